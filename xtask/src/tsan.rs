//! `cargo xtask tsan`: the stress tests under ThreadSanitizer.
//!
//! The sanitizer needs a nightly compiler. The standard library is not rebuilt with it, so a few reports inside `std` are known
//! false and suppressed by `xtask/tsan.supp`; a report that names our code fails the run. `--cfg tsan` replaces the asymmetric
//! fence, which the sanitizer cannot see, by operations that it can.

use std::process::{Command, Stdio};

use crate::run::{Outcome, root, step, target_dir};

/// Arguments of `tsan`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The toolchain that has the sanitizer.
    #[arg(long, default_value = "nightly")]
    toolchain: String,
    /// Seconds of the in-process storm.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Only tests whose name holds this word.
    filter: Option<String>,
}

const TARGET: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-unknown-linux-gnu"
} else {
    "x86_64-unknown-linux-gnu"
};

pub(crate) fn run(args: &Args) -> Outcome {
    if !has_toolchain(&args.toolchain) {
        return Err(format!(
            "ThreadSanitizer needs the `{0}` toolchain, which is not installed; \
             `rustup toolchain install {0} --profile minimal` installs it",
            args.toolchain
        )
        .into());
    }
    step(&mut tests(args, &["--package", "vfscale-sync"]))?;
    step(&mut tests(args, &["--package", "vfscale"]))?;
    println!("tsan: no report of ours");
    Ok(())
}

/// `cargo test` of one package under the sanitizer. `RUSTUP_TOOLCHAIN` is the one we run under, so it must not be inherited.
fn tests(args: &Args, selection: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", &args.toolchain, "cargo", "test", "--release", "--target", TARGET])
        .args(["--lib", "--tests"])
        .args(selection)
        .current_dir(root())
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
        .env("CARGO_TARGET_DIR", target_dir().join("tsan"))
        .env("RUSTFLAGS", "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg tsan")
        .env("VFSCALE_STORM_SECONDS", args.seconds.to_string())
        .env("TSAN_OPTIONS", sanitizer_options());
    if let Some(filter) = &args.filter {
        command.arg(filter);
    }
    command
}

fn sanitizer_options() -> String {
    let suppressions = root().join("xtask/tsan.supp");
    format!("suppressions={} halt_on_error=0 exitcode=66", suppressions.display())
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
