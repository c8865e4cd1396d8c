//! `cargo xtask test`: the README's test command.

use std::ffi::OsString;

use crate::run::{Outcome, cargo, step};

/// Arguments of `test`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Passed on to `cargo test --workspace`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    step(cargo(["test", "--workspace"]).args(&args.rest))
}
