//! Scenarios that compare vfscale with its peers, on this machine.
//!
//! A scenario is a question ("what does a reference cost when two threads share the object?"). It names its arms and runs them
//! interleaved, `A B C C B A`, so that a slow spell of the machine falls on all of them; it checks its own counts after each
//! turn; and it shows the median with the best and the worst round, not one lucky figure.
#![deny(unsafe_code)]

mod compare;
mod engine;
mod goals;
mod machine;
mod numbers;
mod page;
#[expect(unsafe_code, reason = "a peer's own interface is unsafe")]
mod peers;
mod record;
mod report;
mod sample;
mod scenario;
mod scenarios;

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

use crate::engine::{Control, Plan};
use crate::record::Document;
use crate::scenario::Scenario;

/// Compares vfscale with its peers on this machine.
#[derive(Debug, Parser)]
#[command(name = "vfscale-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The scenarios, their questions and their arms.
    List,
    /// Runs scenarios and prints a table of each.
    Run(RunArgs),
    /// Tells whether one run is slower than another.
    Compare {
        /// The run before, as `run --json` wrote it.
        before: PathBuf,
        /// The run after.
        after: PathBuf,
    },
    /// Makes one page of the runs in a directory.
    Report {
        /// Where the files are that `run --json` and `goals --json` wrote.
        directory: PathBuf,
        /// The page: one file, without scripts.
        #[arg(long)]
        html: PathBuf,
    },
    /// Measures the goals of `goals.toml` and says which are met.
    Goals(goals::Args),
}

/// How to run scenarios.
#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Which scenarios; `all` or none for all of them.
    names: Vec<String>,
    /// The thread counts; each scenario has its own if not given.
    #[arg(long, value_delimiter = ',', value_parser = thread_count)]
    threads: Vec<usize>,
    /// Nanoseconds of work elsewhere after each operation; each scenario has its own if not given.
    #[arg(long, value_delimiter = ',')]
    think: Vec<u32>,
    /// Seconds of one turn of one arm.
    #[arg(long, default_value_t = 0.2, value_parser = turn_seconds)]
    seconds: f64,
    /// How often each arm has its turn; an even number is best, since every second round goes backwards.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=1000))]
    rounds: u32,
    /// Only these arms.
    #[arg(long, value_delimiter = ',')]
    arms: Vec<String>,
    /// Short turns and few rounds: to see whether something works, not how well.
    #[arg(long, conflicts_with_all = ["seconds", "rounds"])]
    quick: bool,
    /// Writes the result of every single turn here, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Why a command ends without success.
#[derive(Debug)]
pub(crate) enum Error {
    /// It was asked for something that does not exist or cannot be read: exit code 2.
    Usage(String),
    /// An arm gave a wrong answer: its figures are worthless.
    WrongAnswer(String),
    /// The answer is no: a goal is missed, a run is slower.
    Missed(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(why) | Error::Missed(why) => f.write_str(why),
            Error::WrongAnswer(why) => write!(f, "wrong answer: {why}"),
        }
    }
}

fn thread_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=1024) => Ok(count),
        _ => Err("a number from 1 to 1024".to_owned()),
    }
}

fn turn_seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number from 0.001 to 3600".to_owned()),
    }
}

fn main() -> ExitCode {
    end_with_the_reader();
    let outcome = match Cli::parse().command {
        Command::List => {
            list();
            Ok(())
        }
        Command::Run(args) => run(&args),
        Command::Compare { before, after } => compare::run(&before, &after),
        Command::Report { directory, html } => page::run(&directory, &html),
        Command::Goals(args) => goals::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("vfscale-lab: {why}");
            ExitCode::from(if matches!(why, Error::Usage(_)) { 2 } else { 1 })
        }
    }
}

/// Whoever reads our output may have seen enough (`vfscale-lab list | head`): then we end without a word, as other programs do.
fn end_with_the_reader() {
    let always = Arc::new(AtomicBool::new(true));
    // Where it fails, printing panics as before.
    let _ = signal_hook::flag::register_conditional_default(signal_hook::consts::SIGPIPE, always);
}

fn list() {
    for scenario in scenarios::ALL {
        println!("{}: {}", scenario.name, scenario.question);
        println!("    source: {}", scenario.source);
        for arm in scenario.arms {
            println!("    {:<16} {}", arm.name, arm.what);
        }
    }
}

/// The scenarios of these names.
fn choose(names: &[String]) -> Result<Vec<&'static Scenario>, Error> {
    if names.is_empty() || names.iter().any(|name| name == "all") {
        return Ok(scenarios::ALL.to_vec());
    }
    let find = |name: &String| {
        scenarios::ALL.iter().copied().find(|scenario| scenario.name == name).ok_or_else(|| {
            Error::Usage(format!("no scenario {name:?}; `vfscale-lab list` shows them"))
        })
    };
    names.iter().map(find).collect()
}

fn run(args: &RunArgs) -> Result<(), Error> {
    let chosen = choose(&args.names)?;
    let mut plan = Plan {
        turn: Duration::from_secs_f64(args.seconds),
        rounds: args.rounds,
        disturbance: DISTURBANCE,
    };
    if args.quick {
        plan = Plan { turn: Duration::from_millis(20), rounds: 4, ..plan };
    }
    // Everything that can be wrong is found before the first turn.
    let mut todo = Vec::new();
    for scenario in chosen {
        let arms = scenario.select(&args.arms)?;
        for (threads, think) in cases(scenario, args) {
            todo.push((scenario, arms.clone(), threads, think));
        }
    }
    let turns: usize = todo.iter().map(|(_, arms, ..)| arms.len()).sum();
    let session = Session::start(turns as u64 * u64::from(plan.rounds));
    let mut document = Document::new(machine::describe());
    report::print_head(&document);
    for same in todo.chunk_by(|a, b| a.0.name == b.0.name) {
        let mut rows = Vec::new();
        for (scenario, arms, threads, think) in same {
            rows.extend(engine::run(
                scenario,
                arms,
                (*threads, *think),
                &plan,
                &session.control(),
            )?);
        }
        if !rows.is_empty() {
            session.progress.suspend(|| report::print(same[0].0, &rows));
        }
        document.rows.extend(rows);
    }
    session.progress.finish_and_clear();
    document.interrupted = session.was_interrupted();
    if let Some(path) = &args.json {
        document.write(path)?;
    }
    if document.interrupted {
        return Err(Error::Missed("interrupted; what was finished is kept".to_owned()));
    }
    Ok(())
}

/// A round is thrown away if others took more than this share of the processors: a clock tick or two in a short round is not yet it.
pub(crate) const DISTURBANCE: f64 = 0.10;

/// The thread counts and think times that a scenario is run with.
fn cases(scenario: &Scenario, args: &RunArgs) -> Vec<(usize, u32)> {
    let threads = if args.threads.is_empty() { scenario.threads } else { &args.threads };
    let think = if args.think.is_empty() { scenario.think_ns } else { &args.think };
    let with = |&think: &u32| threads.iter().map(move |&threads| (threads, think));
    think.iter().flat_map(with).collect()
}

/// A run that shows how far it is, and that can be ended.
#[derive(Debug)]
pub(crate) struct Session {
    interrupted: Arc<AtomicBool>,
    pub(crate) progress: ProgressBar,
}

impl Session {
    pub(crate) fn start(turns: u64) -> Session {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // The second one ends the program at once; without a handler the first one does.
            let _ = signal_hook::flag::register_conditional_default(signal, interrupted.clone());
            let _ = signal_hook::flag::register(signal, interrupted.clone());
        }
        // Shows nothing where the error output is no terminal.
        let progress = ProgressBar::new(turns);
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} turns, {eta} left, {msg}");
        progress.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Session { interrupted, progress }
    }

    pub(crate) fn control(&self) -> Control<'_> {
        Control { stop: &self.interrupted, progress: &self.progress }
    }

    pub(crate) fn was_interrupted(&self) -> bool {
        // Relaxed: it carries nothing but itself.
        self.interrupted.load(Ordering::Relaxed)
    }
}
