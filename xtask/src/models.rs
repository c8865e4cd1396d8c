//! `cargo xtask loom` and `cargo xtask shuttle`: the model checkers over `crates/sync`.
//!
//! A model is an integration test named `loom_*.rs` or `shuttle_*.rs`. It is compiled with the checker behind the atomics facade
//! (`--cfg loom`, `--cfg shuttle`), in a target directory of its own so that ordinary builds stay warm. Each model prints its
//! own bound; we let it through.

use std::path::PathBuf;
use std::time::Instant;

use crate::run::{Outcome, cargo, root, step, target_dir};

/// Which checker explores the schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checker {
    /// Every schedule and every allowed reordering of a small case.
    Loom,
    /// Many schedules of a bigger case, all atomics sequentially consistent.
    Shuttle,
}

impl Checker {
    fn name(self) -> &'static str {
        match self {
            Checker::Loom => "loom",
            Checker::Shuttle => "shuttle",
        }
    }
}

/// Arguments of `loom` and `shuttle`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Only models whose file name holds one of these words.
    names: Vec<String>,
}

pub(crate) fn run(checker: Checker, args: &Args) -> Outcome {
    let found = models(checker)?;
    if found.is_empty() {
        return Err(format!("no {0}_*.rs in crates/sync/tests", checker.name()).into());
    }
    let wanted: Vec<String> = found
        .into_iter()
        .filter(|model| args.names.is_empty() || args.names.iter().any(|name| model.contains(name)))
        .collect();
    if wanted.is_empty() {
        return Err(format!("no {} model is named like {:?}", checker.name(), args.names).into());
    }
    let start = Instant::now();
    let mut command = cargo(["test", "--release", "--package", "vfscale-sync"]);
    for model in &wanted {
        command.args(["--test", model]);
    }
    command
        .args(["--", "--nocapture", "--test-threads=1"])
        .env("RUSTFLAGS", format!("--cfg {}", checker.name()))
        .env("CARGO_TARGET_DIR", own_target(checker));
    step(&mut command)?;
    let seconds = start.elapsed().as_secs();
    println!("{}: {} model files hold ({seconds} s)", checker.name(), wanted.len());
    Ok(())
}

fn own_target(checker: Checker) -> PathBuf {
    target_dir().join(checker.name())
}

/// The names of the model files, without their ending, in order.
fn models(checker: Checker) -> Outcome<Vec<String>> {
    let prefix = format!("{}_", checker.name());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root().join("crates/sync/tests"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(stem) = name.strip_suffix(".rs")
            && stem.starts_with(&prefix)
        {
            names.push(stem.to_owned());
        }
    }
    names.sort();
    Ok(names)
}
