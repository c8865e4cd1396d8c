//! The two published test suites, and programs from the system.

use std::path::PathBuf;
use std::process::Command;

use crate::run::{Outcome, cargo, is_root, on_path, output, step, target_dir};

/// A published crate with a binary of its own name, in the one version that our figures come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}

impl Tool {
    /// Builds it into the target directory, unless this version is there already.
    pub(crate) fn install(self) -> Outcome<PathBuf> {
        let root = target_dir().join("tools");
        let binary = root.join("bin").join(self.name);
        let stamp = format!("{} {}", self.name, self.version);
        let version = output(Command::new(&binary).arg("--version"));
        if version.is_ok_and(|text| String::from_utf8_lossy(&text).trim() == stamp) {
            return Ok(binary);
        }
        step(
            cargo(["install", "--quiet", "--locked", "--root"])
                .arg(&root)
                .args(["--version", self.version, self.name])
                .env("CARGO_TARGET_DIR", root.join("build")),
        )?;
        Ok(binary)
    }
}

/// Makes sure that `program` can be run; on Debian and its kin its package is installed.
pub(crate) fn need(program: &str, package: &str) -> Outcome {
    if on_path(program) {
        return Ok(());
    }
    if on_path("apt-get") && is_root() {
        println!("  {program} is missing: installing the package {package}");
        let install = || {
            let mut command = Command::new("apt-get");
            command.args(["install", "--yes", "--quiet", "--no-install-recommends", package]);
            command.env("DEBIAN_FRONTEND", "noninteractive");
            command
        };
        if output(&mut install()).is_ok() && on_path(program) {
            return Ok(());
        }
        // The package lists may be absent or old.
        output(Command::new("apt-get").args(["update", "--quiet"]))?;
        output(&mut install())?;
    }
    if on_path(program) {
        Ok(())
    } else {
        Err(format!("`{program}` is not installed (Debian: the package {package})").into())
    }
}
