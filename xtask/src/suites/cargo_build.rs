//! A build of this workspace inside a mount: sources, target directory and the locks that cargo takes, all on it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use super::mount::Mount;
use super::{Bench, Tally};
use crate::run::{Outcome, cargo, output, root};

pub(crate) fn run(bench: &Bench, tally: &mut Tally) -> Outcome {
    for &backend in &bench.backends {
        let mount = Mount::new(bench, backend.name(), backend)?;
        let tree = mount.path().join("workspace");
        let mut case = |name: &str, outcome: Outcome| {
            tally.case(&format!("{}: {name}", backend.name()), outcome);
        };
        case("copy the workspace in", copy_workspace(&tree));
        let packages: &[&str] = bench.pick(&["--package=vfscale-sync"], &["--workspace"]);
        case("cargo build", build(&tree, packages).map(drop));
        case("a second build has nothing to do", nothing_to_do(&tree, packages));
        if packages == ["--workspace"] {
            let binary = tree.join("target/debug/vfscale");
            case("the built binary runs", output(Command::new(binary).arg("--version")).map(drop));
        }
        case("cargo clean", output(&mut inside(&tree, &["clean", "--quiet"])).map(drop));
        mount.unmount()?;
    }
    Ok(())
}

/// The files git knows, or would take; not what was built.
fn copy_workspace(to: &Path) -> Outcome {
    let listed = output(
        Command::new("git")
            .args([
                "-c",
                "safe.directory=*",
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(root()),
    )?;
    for name in listed.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let name = Path::new(OsStr::from_bytes(name));
        let from = root().join(name);
        if !from.is_file() {
            continue;
        }
        let target = to.join(name);
        fs::create_dir_all(target.parent().expect("a file lies in a directory"))?;
        fs::copy(from, target)?;
    }
    Ok(())
}

fn inside(tree: &Path, args: &[&str]) -> Command {
    let mut command = cargo(args);
    command.current_dir(tree).env_remove("RUSTFLAGS").env("CARGO_TARGET_DIR", tree.join("target"));
    command
}

fn build(tree: &Path, packages: &[&str]) -> Outcome<()> {
    output(inside(tree, &["build", "--quiet"]).args(packages)).map(drop)
}

/// Cargo compares modification times, to the nanosecond.
fn nothing_to_do(tree: &Path, packages: &[&str]) -> Outcome {
    let out = inside(tree, &["build", "--verbose"]).args(packages).output()?;
    let said = String::from_utf8_lossy(&out.stderr);
    if !out.status.success() {
        return Err(format!("failed: {said}").into());
    }
    match said.lines().find(|line| line.trim_start().starts_with("Compiling")) {
        Some(line) => Err(format!("built again: {}", line.trim()).into()),
        None => Ok(()),
    }
}
