//! `cargo xtask preflight`: everything that a change must pass, cheapest first.

use std::process::Command;

use crate::run::{Outcome, cargo, step};
use crate::{models, test, tidy};

/// Arguments of `preflight`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave the tests out.
    #[arg(long)]
    no_test: bool,
}

/// The feature sets of `vfscale-sync` that must build on their own.
const SYNC_FEATURES: [&[&str]; 4] = [
    &["--no-default-features"],
    &["--no-default-features", "--features", "alloc"],
    &[],
    &["--all-features"],
];

pub(crate) fn run(args: &Args) -> Outcome {
    step(&mut cargo(["fmt", "--all", "--check"]))?;
    tidy::run()?;
    for features in SYNC_FEATURES {
        step(&mut clippy("--package=vfscale-sync", features))?;
    }
    step(&mut clippy("--workspace", &[]))?;
    step(
        cargo(["doc", "--workspace", "--no-deps", "--document-private-items"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    if !args.no_test {
        test::run(&test::Args::default())?;
        models::run(models::Checker::Loom, &models::Args::default())?;
        models::run(models::Checker::Shuttle, &models::Args::default())?;
    }
    println!("preflight: ready");
    Ok(())
}

fn clippy(selection: &str, features: &[&str]) -> Command {
    let mut command = cargo(["clippy", selection, "--all-targets"]);
    command.args(features).args(["--", "-D", "warnings"]);
    command
}
