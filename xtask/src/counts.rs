//! `cargo xtask counts`: the hot operations, in instructions.
//!
//! A count has no noise, unlike a time: two runs of one binary agree. So it shows what a change costs while nobody else is
//! there, to the instruction, on a busy machine as well. It says nothing of contention; that is what the lab measures.
//!
//! `benches/counts.rs` of a crate has its operations, and `counts.txt` beside it what they took when it was last accepted. Counts
//! are those of one compiler and one processor family, which the table names.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::run::{Outcome, cargo, on_path, output, root, shown, target_dir};

/// The version of the crate that the benchmarks are written for; the runner must have the same.
const RUNNER: &str = "0.20.0";
/// The packages that have counts, and their tables relative to the root.
const TABLES: [(&str, &str); 2] = [
    ("vfscale-sync", "crates/sync/benches/counts.txt"),
    ("vfscale", "crates/vfs/benches/counts.txt"),
];
/// How often a benchmark does its operation.
const TIMES: f64 = 1000.0;
/// Growth in percent that fails.
const TOLERANCE: f64 = 2.0;
/// The ending of a benchmark that does by hand what the one without it does.
const BY_HAND: &str = "_by_hand";
/// So many instructions more than by hand are the compiler's choice. To count an event or to note a lock takes more.
const CHOICE: f64 = 2.0;

/// Arguments of `counts`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Writes what is counted now into the table.
    #[arg(long, conflicts_with = "features")]
    accept: bool,
    /// Counts with these features, `stats` or `lockdep`, and shows the difference; it may be large, so nothing fails.
    #[arg(long, value_delimiter = ',')]
    features: Vec<String>,
}

/// Instructions of each benchmark.
type Counts = BTreeMap<String, u64>;

pub(crate) fn run(args: &Args) -> Outcome {
    for program in ["valgrind", "gungraun-runner"] {
        if !on_path(program) {
            return Err(format!(
                "instructions are counted by valgrind under gungraun-runner {RUNNER}, and `{program}` is not on the path; \
                 `cargo install gungraun-runner --version {RUNNER} --locked` installs the second"
            )
            .into());
        }
    }
    let compiler = compiler()?;
    let mut faults = Vec::new();
    for (package, path) in TABLES {
        let counted = count(package, &args.features)?;
        if args.accept {
            std::fs::write(root().join(path), table(&compiler, &counted))?;
            println!("counts: {path} has the counts of {} operations", counted.len());
            continue;
        }
        let (written_by, accepted) = parse(&std::fs::read_to_string(root().join(path))?)?;
        if written_by != compiler {
            return Err(format!(
                "{path} was counted with {written_by}, this is {compiler}: counts differ for no fault of ours. \
                 Count with that one, or `cargo xtask counts --accept`"
            )
            .into());
        }
        faults.extend(compare(&accepted, &counted));
    }
    if args.accept {
        return Ok(());
    }
    if !args.features.is_empty() {
        println!("counts: with {}, beside the tables without", args.features.join(", "));
        return Ok(());
    }
    if faults.is_empty() {
        println!("counts: no operation grew by more than {TOLERANCE} %");
        return Ok(());
    }
    Err(format!(
        "{}\n    if that is right, `cargo xtask counts --accept` and say in the commit why",
        faults.join("\n    ")
    )
    .into())
}

/// The compiler that counts, and for what.
fn compiler() -> Outcome<String> {
    let said = String::from_utf8(output(Command::new("rustc").arg("-vV"))?)?;
    let field = |name: &str| said.lines().find_map(|line| line.strip_prefix(name));
    match (field("release: "), field("host: ")) {
        (Some(release), Some(host)) => Ok(format!("rustc {release} {host}")),
        _ => Err(format!("`rustc -vV` says {said:?}").into()),
    }
}

fn count(package: &str, features: &[String]) -> Outcome<Counts> {
    let mut command = cargo(["bench", "--package", package, "--bench", "counts"]);
    if !features.is_empty() {
        command.args(["--features", &features.join(",")]);
    }
    command
        .args(["--", "--output-format=json", "--callgrind-args=--cache-sim=no"])
        .env("RUSTFLAGS", "--cfg gungraun")
        .env("CARGO_TARGET_DIR", target_dir().join("gungraun"));
    println!("$ {}", shown(&command));
    let said = String::from_utf8(output(&mut command)?)?;
    let mut counts = Counts::new();
    for line in said.lines().filter(|line| line.starts_with('{')) {
        let summary: Value = serde_json::from_str(line)?;
        let name = summary["function_name"].as_str();
        let count =
            summary.pointer("/profiles/0/data/total/metrics/Ir/values/new").and_then(Value::as_u64);
        match (name, count) {
            (Some(name), Some(count)) => counts.insert(name.to_owned(), count),
            _ => return Err(format!("no count in what gungraun wrote: {line}").into()),
        };
    }
    if counts.is_empty() {
        return Err("gungraun wrote no counts".into());
    }
    Ok(counts)
}

fn table(compiler: &str, counts: &Counts) -> String {
    let mut text = format!(
        "# Instructions of {TIMES} operations each, by {compiler}. Written by `cargo xtask counts --accept`.\n"
    );
    for (name, count) in counts {
        text += &format!("{name} {count}\n");
    }
    text
}

/// The compiler and the counts of a table.
fn parse(text: &str) -> Outcome<(String, Counts)> {
    let mut lines = text.lines();
    let compiler = lines
        .next()
        .and_then(|head| head.split_once(" by ")?.1.split_once(". "))
        .ok_or("the table has no head")?
        .0;
    let counts = lines
        .map(|line| {
            let (name, count) = line.split_once(' ').ok_or("a line of the table has no count")?;
            Ok((name.to_owned(), count.parse()?))
        })
        .collect::<Outcome<Counts>>()?;
    Ok((compiler.to_owned(), counts))
}

/// Prints both sides and answers what is wrong.
fn compare(accepted: &Counts, counted: &Counts) -> Vec<String> {
    let mut faults = Vec::new();
    println!("{:<26} {:>10} {:>10} {:>9}", "instructions", "accepted", "now", "");
    for (name, &now) in counted {
        let each = now as f64 / TIMES;
        let Some(&before) = accepted.get(name) else {
            println!("{name:<26} {:>10} {each:>10.1}", "-");
            faults.push(format!("{name} is not in the table"));
            continue;
        };
        let growth = 100.0 * (now as f64 - before as f64) / before as f64;
        println!("{name:<26} {:>10.1} {each:>10.1} {growth:>+7.1} %", before as f64 / TIMES);
        if growth > TOLERANCE {
            faults.push(format!("{name} grew by {growth:.1} %"));
        }
        if let Some(&by_hand) = counted.get(&format!("{name}{BY_HAND}")) {
            let more = each - by_hand as f64 / TIMES;
            if more > CHOICE {
                faults.push(format!("{name} takes {more:.1} instructions more than by hand"));
            }
        }
    }
    let gone = accepted.keys().filter(|name| !counted.contains_key(*name));
    faults.extend(gone.map(|name| format!("{name} is in the table and was not counted")));
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(rows: &[(&str, u64)]) -> Counts {
        rows.iter().map(|&(name, count)| (name.to_owned(), count)).collect()
    }

    #[test]
    fn a_table_comes_back_as_it_was_written() {
        let rows = counts(&[("a_lock", 12_000), ("a_list", 130_920)]);
        let text = table("rustc 1.95.0 x86_64-unknown-linux-gnu", &rows);
        let (compiler, read) = parse(&text).unwrap();
        assert_eq!((compiler.as_str(), read), ("rustc 1.95.0 x86_64-unknown-linux-gnu", rows));
    }

    #[test]
    fn growth_beyond_the_tolerance_is_a_fault_and_shrinking_is_none() {
        let accepted = counts(&[("same", 1000), ("more", 1000), ("less", 1000), ("a_bit", 1000)]);
        let now = counts(&[("same", 1000), ("more", 1021), ("less", 500), ("a_bit", 1020)]);
        assert_eq!(compare(&accepted, &now), ["more grew by 2.1 %"]);
    }

    #[test]
    fn benchmarks_that_come_or_go_are_faults() {
        let faults = compare(&counts(&[("old", 1)]), &counts(&[("new", 1)]));
        assert_eq!(faults, ["new is not in the table", "old is in the table and was not counted"]);
    }

    #[test]
    fn what_costs_more_than_by_hand_is_a_fault() {
        let rows = counts(&[("lock", 15_000), ("lock_by_hand", 12_000)]);
        assert_eq!(compare(&rows, &rows), ["lock takes 3.0 instructions more than by hand"]);
    }
}
