//! The project's verbs: `cargo xtask VERB`, one file per verb.
//!
//! Every verb answers one question ("do the models hold?", "do other people's tests pass on a mount?") with its exit code, and
//! says in its last line what the answer is. Nothing has to be installed to run them; `suites` fetches the two published test
//! suites it runs.
#![forbid(unsafe_code)]

mod counts;
mod models;
mod nightly;
mod orderings;
mod preflight;
mod run;
mod sanitizers;
mod soak;
mod source;
mod suites;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's verbs.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Do the tests pass? `cargo test --workspace`, mounts included.
    Test(test::Args),
    /// Do the loom models hold? Every schedule of the smallest cases; prints each bound.
    Loom(models::Args),
    /// Do the shuttle models hold? Many schedules of bigger cases.
    Shuttle(models::Args),
    /// Does ThreadSanitizer stay silent on the stress tests? Needs a nightly toolchain.
    Tsan(sanitizers::Args),
    /// Does AddressSanitizer? Needs a nightly toolchain.
    Asan(sanitizers::Args),
    /// Do the primitives hold for long, with more threads than processors?
    Soak(soak::Args),
    /// Does everything hold that takes long? orderings, tsan, asan, soak, the models with more preemptions, and counts.
    Nightly(nightly::Args),
    /// Do other people's programs and tests pass on a mount? pjdfstest, fsx, tar, git, sqlite, cargo, storm.
    Suites(suites::Args),
    /// Does the tree keep its own rules? Ordering tags, `unsafe`, file sizes, words, links.
    Tidy,
    /// Does a model miss each ordering when it is made weaker? `--tags` lists the pairs they belong to.
    Orderings(orderings::Args),
    /// Do the hot operations take as few instructions as before? Needs valgrind and gungraun-runner.
    Counts(counts::Args),
    /// Is this tree ready to be shown? Format, lints, documentation, tidy and tests.
    Preflight(preflight::Args),
    /// The load that `suites storm` puts on a directory. Run by it inside the mount.
    #[command(hide = true)]
    StormLoad(suites::storm::LoadArgs),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().verb {
        Verb::Test(args) => test::run(&args),
        Verb::Loom(args) => models::run(models::Checker::Loom, &args),
        Verb::Shuttle(args) => models::run(models::Checker::Shuttle, &args),
        Verb::Tsan(args) => sanitizers::run(sanitizers::Sanitizer::Thread, &args),
        Verb::Asan(args) => sanitizers::run(sanitizers::Sanitizer::Address, &args),
        Verb::Soak(args) => soak::run(&args),
        Verb::Nightly(args) => nightly::run(&args),
        Verb::Suites(args) => suites::run(&args),
        Verb::Tidy => tidy::run(),
        Verb::Orderings(args) => orderings::run(&args),
        Verb::Counts(args) => counts::run(&args),
        Verb::Preflight(args) => preflight::run(&args),
        Verb::StormLoad(args) => suites::storm::load(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}
