//! A database written and checked by sqlite3 on a mount, with a rollback journal and with a write-ahead log.
//!
//! The rollback journal leans on file locks, on fsync of files and directories and on unlink; the write-ahead log on shared
//! memory maps as well.

use std::path::Path;
use std::process::{Command, Stdio};

use super::mount::Mount;
use super::tools::need;
use super::{Bench, Tally};
use crate::run::{Outcome, output};

pub(crate) fn run(bench: &Bench, tally: &mut Tally) -> Outcome {
    need("sqlite3", "sqlite3")?;
    // Each row takes a little over 1000 bytes.
    let rows = bench.pick(2_000, 20_000);
    for &backend in &bench.backends {
        let mount = Mount::new(bench, backend.name(), backend)?;
        for journal in ["delete", "wal"] {
            let file = mount.path().join(format!("{journal}.db"));
            let name = format!("{}: {rows} rows, journal_mode={journal}", backend.name());
            tally.case(&name, fill(&file, journal, rows).and_then(|()| check(&file, rows)));
            let name = format!("{}: two writers at once, journal_mode={journal}", backend.name());
            tally.case(&name, two_writers(&file, rows));
        }
        mount.unmount()?;
    }
    Ok(())
}

fn sql(file: &Path, script: &str) -> Outcome<String> {
    let out = output(Command::new("sqlite3").arg("-bail").arg(file).arg(script))?;
    Ok(String::from_utf8_lossy(&out).trim().to_owned())
}

fn fill(file: &Path, journal: &str, rows: u32) -> Outcome {
    let mode = sql(file, &format!("PRAGMA journal_mode={journal};"))?;
    if mode != journal {
        return Err(format!("journal_mode stays {mode}").into());
    }
    sql(
        file,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, key TEXT, body BLOB); CREATE INDEX k ON t(key);",
    )?;
    let half = rows / 2;
    for (from, to) in [(1, half), (half + 1, rows)] {
        sql(
            file,
            &format!(
                "WITH RECURSIVE n(i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM n WHERE i < {to}) \
                 INSERT INTO t SELECT i, hex(i * 7919 % 10007), randomblob(1000) FROM n;"
            ),
        )?;
    }
    // Rewrites a tenth of it, and gives pages back.
    sql(file, "UPDATE t SET body = randomblob(900) WHERE id % 10 = 0; VACUUM;").map(drop)
}

fn check(file: &Path, rows: u32) -> Outcome {
    let integrity = sql(file, "PRAGMA integrity_check;")?;
    if integrity != "ok" {
        return Err(format!("integrity_check: {integrity}").into());
    }
    let count = sql(file, "SELECT count(*), sum(id) FROM t;")?;
    let rows = u64::from(rows);
    let expected = format!("{rows}|{}", rows * (rows + 1) / 2);
    if count == expected { Ok(()) } else { Err(format!("counts {count}, not {expected}").into()) }
}

/// Two processes insert under each other's locks; no row may be lost.
fn two_writers(file: &Path, rows: u32) -> Outcome {
    let insert = |from: u32| -> Outcome<std::process::Child> {
        let script = (from..from + 50)
            .map(|id| format!("INSERT INTO t VALUES({id}, 'w', zeroblob(100));"))
            .collect::<String>();
        Ok(Command::new("sqlite3")
            .args(["-bail", "-cmd", ".timeout 60000"])
            .arg(file)
            .arg(script)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?)
    };
    let (mut one, mut two) = (insert(rows + 1)?, insert(rows + 51)?);
    let (one, two) = (one.wait()?, two.wait()?);
    if !one.success() || !two.success() {
        return Err(format!("writers ended with {one} and {two}").into());
    }
    check(file, rows + 100)
}
