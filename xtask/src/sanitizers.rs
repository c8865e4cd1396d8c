//! `cargo xtask tsan` and `cargo xtask asan`: the stress tests under a sanitizer.
//!
//! The sanitizers need a nightly compiler. The standard library is not rebuilt with them, so a few of ThreadSanitizer's reports
//! inside `std` are known false and suppressed by `xtask/tsan.supp`; a report that names our code fails the run. `--cfg tsan`
//! replaces the asymmetric fence, which ThreadSanitizer cannot see, by operations that it can.
//!
//! AddressSanitizer watches freed boxes and the frames of functions that returned: a waiter's node on its stack is gone as soon
//! as the waiter was told so. It does not look for leaks, since pools of tests live for ever.

use std::process::{Command, Stdio};

use crate::run::{Outcome, root, step, target_dir};

/// Which sanitizer watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sanitizer {
    /// Data races.
    Thread,
    /// Uses of freed memory and of frames that are gone.
    Address,
}

impl Sanitizer {
    fn name(self) -> &'static str {
        match self {
            Sanitizer::Thread => "tsan",
            Sanitizer::Address => "asan",
        }
    }

    fn flags(self) -> &'static str {
        match self {
            Sanitizer::Thread => {
                "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg tsan"
            }
            Sanitizer::Address => "-Zsanitizer=address",
        }
    }

    fn options(self) -> (&'static str, String) {
        match self {
            Sanitizer::Thread => {
                let suppressions = root().join("xtask/tsan.supp");
                let options =
                    format!("suppressions={} halt_on_error=0 exitcode=66", suppressions.display());
                ("TSAN_OPTIONS", options)
            }
            Sanitizer::Address => {
                ("ASAN_OPTIONS", "detect_leaks=0:detect_stack_use_after_return=1".to_owned())
            }
        }
    }
}

/// Arguments of `tsan` and `asan`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The toolchain that has the sanitizer.
    #[arg(long, default_value = "nightly")]
    pub(crate) toolchain: String,
    /// Seconds of the in-process storm.
    #[arg(long, default_value_t = 60)]
    pub(crate) seconds: u64,
    /// Only tests whose name holds this word.
    pub(crate) filter: Option<String>,
}

const TARGET: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-unknown-linux-gnu"
} else {
    "x86_64-unknown-linux-gnu"
};

pub(crate) fn run(sanitizer: Sanitizer, args: &Args) -> Outcome {
    if !has_toolchain(&args.toolchain) {
        return Err(format!(
            "a sanitizer needs the `{0}` toolchain, which is not installed; \
             `rustup toolchain install {0} --profile minimal` installs it",
            args.toolchain
        )
        .into());
    }
    for package in ["vfscale-sync", "vfscale"] {
        step(&mut tests(sanitizer, args, package))?;
    }
    println!("{}: no report of ours", sanitizer.name());
    Ok(())
}

/// `cargo test` of one package under the sanitizer. `RUSTUP_TOOLCHAIN` is the one we run under, so it must not be inherited.
fn tests(sanitizer: Sanitizer, args: &Args, package: &str) -> Command {
    let (variable, options) = sanitizer.options();
    let mut command = Command::new("rustup");
    command
        .args(["run", &args.toolchain, "cargo", "test", "--release", "--target", TARGET])
        .args(["--lib", "--tests", "--package", package])
        .current_dir(root())
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
        .env("CARGO_TARGET_DIR", target_dir().join(sanitizer.name()))
        .env("RUSTFLAGS", sanitizer.flags())
        .env("VFSCALE_STORM_SECONDS", args.seconds.to_string())
        .env(variable, options);
    if let Some(filter) = &args.filter {
        command.arg(filter);
    }
    command
}

fn has_toolchain(name: &str) -> bool {
    Command::new("rustup")
        .args(["run", name, "rustc", "--version"])
        .env_remove("RUSTUP_TOOLCHAIN")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
