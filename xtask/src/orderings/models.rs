//! The model tests one by one: what they are, how long they take, and which orderings they pass.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::models::{Checker, build, models};
use crate::run::{Outcome, output, root, shown, target_dir};

/// One test of one model file.
#[derive(Clone, Debug)]
pub(super) struct Test {
    program: PathBuf,
    /// File and test, as in `loom_lockref::the_sleep_bit_is_handed_on`.
    pub(super) name: String,
}

/// What one run of a test came to.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It passed.
    Holds,
    /// It failed; the first line of why.
    Fails(String),
    /// It was stopped at the limit.
    Undecided,
}

/// One test without any change.
#[derive(Debug)]
pub(super) struct Baseline {
    pub(super) test: Test,
    pub(super) took: Duration,
    /// The weakenings that it would notice, or not, as lines for `VFSCALE_LOOM_WEAKEN`.
    pub(super) passes: Vec<String>,
}

/// Builds the models and lists their tests.
pub(super) fn tests(words: &[String]) -> Outcome<Vec<Test>> {
    let mut build = build(Checker::Loom, &models(Checker::Loom, words)?);
    build.args(["--no-run", "--message-format=json"]);
    println!("$ {}", shown(&build));
    let messages = output(&mut build)?;
    let mut tests = Vec::new();
    for message in String::from_utf8_lossy(&messages).lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(message) else { continue };
        let (Some(program), Some(name)) =
            (message["executable"].as_str(), message["target"]["name"].as_str())
        else {
            continue;
        };
        let listed = output(Command::new(program).args(["--list", "--format=terse"]))?;
        for line in String::from_utf8_lossy(&listed).lines() {
            if let Some(test) = line.strip_suffix(": test") {
                tests.push(Test { program: program.into(), name: format!("{name}::{test}") });
            }
        }
    }
    Ok(tests)
}

impl Test {
    /// Runs the test alone, with one variable set, for at most `limit`; what it wrote is in `log` afterwards.
    fn run(&self, variable: (&str, &str), limit: Duration, log: &Path) -> Outcome<Verdict> {
        let (_, test) = self.name.split_once("::").expect("a file and a test");
        let out = File::create(log)?;
        let mut child = Command::new(&self.program)
            .args(["--exact", test, "--nocapture"])
            .current_dir(root().join("crates/sync"))
            .env(variable.0, variable.1)
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()?;
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if start.elapsed() > limit {
                child.kill()?;
                child.wait()?;
                return Ok(Verdict::Undecided);
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        if status.success() {
            return Ok(Verdict::Holds);
        }
        Ok(Verdict::Fails(reason(&std::fs::read_to_string(log)?)))
    }

    /// Runs the test with an ordering made weaker.
    pub(super) fn weakened(&self, line: &str, limit: Duration, log: &Path) -> Outcome<Verdict> {
        self.run(("VFSCALE_LOOM_WEAKEN", line), limit, log)
    }

    /// Runs the test as it is, unless that was done since it was built. A test that has to panic answers nothing: with a weaker
    /// ordering it panics as well.
    pub(super) fn baseline(&self, limit: Duration) -> Outcome<Option<Baseline>> {
        let dir = target_dir().join("orderings");
        std::fs::create_dir_all(&dir)?;
        let record = dir.join(format!("{}.passes", self.name.replace("::", "-")));
        let log = record.with_extension("log");
        let timing = record.with_extension("ms");
        let built = std::fs::metadata(&self.program)?.modified()?;
        let known =
            std::fs::metadata(&timing).and_then(|it| it.modified()).is_ok_and(|at| at > built);
        if !known {
            let start = Instant::now();
            let record = record.to_str().ok_or("the target directory has a name in UTF-8")?;
            match self.run(("VFSCALE_LOOM_RECORD", record), limit, &log)? {
                Verdict::Holds => {}
                Verdict::Fails(why) => return Err(format!("{} fails: {why}", self.name).into()),
                Verdict::Undecided => {
                    println!("over time as it is, left out: {}", self.name);
                    return Ok(None);
                }
            }
            std::fs::write(&timing, start.elapsed().as_millis().to_string())?;
        }
        if std::fs::read_to_string(&log)?.contains(" - should panic ... ok") {
            return Ok(None);
        }
        let took = Duration::from_millis(std::fs::read_to_string(&timing)?.trim().parse()?);
        // No record: the test passes no ordering at all.
        let passes = std::fs::read_to_string(&record).unwrap_or_default();
        let passes = passes.lines().map(str::to_owned).collect();
        Ok(Some(Baseline { test: self.clone(), took, passes }))
    }
}

/// Why a test failed, from what it wrote: the line after `panicked at`.
fn reason(log: &str) -> String {
    let mut lines = log.lines().skip_while(|line| !line.contains("panicked at"));
    lines.next();
    lines
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or("it ended without a panic")
        .to_owned()
}
