//! Scenarios that compare vfscale with its peers, on this machine.
//!
//! A scenario is a question ("what does a reference cost when two threads share the object?"). It names its arms and runs them
//! interleaved, `A B C C B A`, so that a slow spell of the machine falls on all of them; it checks its own counts after each
//! turn; and it shows the median with the best and the worst round, not one lucky figure.
#![forbid(unsafe_code)]

mod engine;
mod machine;
mod report;
mod scenario;
mod scenarios;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

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
    /// Runs one scenario, or all of them.
    Run(RunArgs),
}

/// How to run a scenario.
#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Which scenario; all of them if not given.
    name: Option<String>,
    /// The thread counts to try.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2], value_parser = thread_count)]
    threads: Vec<usize>,
    /// Seconds of one turn of one arm.
    #[arg(long, default_value_t = 0.3, value_parser = turn_seconds)]
    seconds: f64,
    /// How often each arm has its turn; an even number, since every second pass goes backwards.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=1000))]
    rounds: u32,
    /// Only these arms.
    #[arg(long, value_delimiter = ',')]
    arms: Vec<String>,
    /// Writes the result of every single turn here, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
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
    let outcome = match Cli::parse().command {
        Command::List => {
            list();
            Ok(())
        }
        Command::Run(args) => run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("vfscale-lab: {why}");
            ExitCode::FAILURE
        }
    }
}

fn list() {
    for scenario in scenarios::ALL {
        println!("{}: {}", scenario.name, scenario.question);
        for arm in scenario.arms {
            println!("    {:<10} {}", arm.name, arm.what);
        }
    }
}

fn run(args: &RunArgs) -> Result<(), String> {
    let chosen: Vec<_> = scenarios::ALL
        .iter()
        .filter(|scenario| args.name.as_deref().is_none_or(|name| name == scenario.name))
        .collect();
    if chosen.is_empty() {
        let name = args.name.as_deref().unwrap_or_default();
        return Err(format!("no scenario {name:?}; `vfscale-lab list` shows them"));
    }
    let machine = machine::describe();
    println!("{machine}");
    let plan = engine::Plan {
        turn: Duration::from_secs_f64(args.seconds),
        rounds: args.rounds,
        threads: args.threads.clone(),
    };
    let mut results = Vec::new();
    for scenario in chosen {
        let arms = scenario.select(&args.arms)?;
        let result = engine::run(scenario, &arms, &plan)?;
        report::print(&result);
        results.push(result);
    }
    if let Some(path) = &args.json {
        let text = report::json(&machine, &plan, &results);
        std::fs::write(path, text).map_err(|why| format!("{}: {why}", path.display()))?;
    }
    Ok(())
}
