//! `cargo xtask loom` and `cargo xtask shuttle`: the model checkers over `crates/sync`.
//!
//! A model is an integration test named `loom_*.rs` or `shuttle_*.rs`. It is compiled with the checker behind the atomics facade
//! (`--cfg loom`, `--cfg shuttle`), in a target directory of its own so that ordinary builds stay warm. Each model prints its
//! own bound; we let it through.

use std::process::Command;
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
    /// Loom: preemptions beyond each model's own bound.
    #[arg(long, default_value_t = 0)]
    more: usize,
}

impl Args {
    /// All models, with more preemptions than they ask for.
    pub(crate) fn deeper(more: usize) -> Self {
        Self { names: Vec::new(), more }
    }
}

pub(crate) fn run(checker: Checker, args: &Args) -> Outcome {
    let wanted = models(checker, &args.names)?;
    let start = Instant::now();
    step(
        build(checker, &wanted)
            .args(["--", "--nocapture", "--test-threads=1"])
            .env("VFSCALE_LOOM_MORE", args.more.to_string()),
    )?;
    let seconds = start.elapsed().as_secs();
    println!("{}: {} model files hold ({seconds} s)", checker.name(), wanted.len());
    Ok(())
}

/// `cargo test` of these models, with the checker behind the facade.
pub(crate) fn build(checker: Checker, models: &[String]) -> Command {
    let mut command = cargo(["test", "--release", "--package", "vfscale-sync"]);
    for model in models {
        command.args(["--test", model]);
    }
    command
        .env("RUSTFLAGS", format!("--cfg {}", checker.name()))
        // To optimise across crates takes longer than all schedules of most models.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_TARGET_DIR", target_dir().join(checker.name()));
    command
}

/// The names of the model files that hold one of `words` (all, without words), without their ending, in order.
pub(crate) fn models(checker: Checker, words: &[String]) -> Outcome<Vec<String>> {
    let prefix = format!("{}_", checker.name());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root().join("crates/sync/tests"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(stem) = name.strip_suffix(".rs")
            && stem.starts_with(&prefix)
            && (words.is_empty() || words.iter().any(|word| stem.contains(word)))
        {
            names.push(stem.to_owned());
        }
    }
    if names.is_empty() {
        return Err(format!("no {} model is named like {words:?}", checker.name()).into());
    }
    names.sort();
    Ok(names)
}
