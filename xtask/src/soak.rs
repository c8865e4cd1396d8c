//! `cargo xtask soak`: the primitives for as long as one likes, by more threads than there are processors.
//!
//! `crates/sync/tests/soak.rs` has one test per primitive, which takes a moment with the other tests; here each gets its time,
//! one after the other, and the storm over the whole core after them.

use crate::run::{Outcome, cargo, step};

/// Arguments of `soak`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds for each test.
    #[arg(long, default_value_t = 60)]
    pub(crate) seconds: u64,
    /// Only tests whose name holds this word.
    filter: Option<String>,
}

impl Args {
    /// All tests, for so long each.
    pub(crate) fn all(seconds: u64) -> Self {
        Self { seconds, filter: None }
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    for (package, test) in [("vfscale-sync", "soak"), ("vfscale", "storm")] {
        let mut command = cargo(["test", "--release", "--package", package, "--test", test]);
        command.arg("--");
        command.args(&args.filter).args(["--test-threads=1", "--nocapture"]);
        for variable in ["VFSCALE_SOAK_SECONDS", "VFSCALE_STORM_SECONDS"] {
            command.env(variable, args.seconds.to_string());
        }
        step(&mut command)?;
    }
    println!("soak: {} s each, nothing lost", args.seconds);
    Ok(())
}
