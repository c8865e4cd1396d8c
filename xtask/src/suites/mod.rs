//! `cargo xtask suites`: other people's programs and tests, on a real mount.
//!
//! Each suite mounts a scratch directory (and `mem:`, where that applies) with the built release binary, prints its cases that
//! fail, and closes with `name: N passed, M failed`. The verb fails if any suite did. Scratch directories lie under the
//! system's temporary directory, or under `--dir`, on a file system that can hold devices, owners and extended attributes.

mod cargo_build;
mod compare;
mod fsx;
mod git;
mod mount;
mod pjdfstest;
mod sqlite;
pub(crate) mod storm;
mod tar;
mod tools;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::run::{Outcome, cargo, is_root, step, target_dir};

/// Arguments of `suites`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which suites to run; all of them if none is named.
    names: Vec<Name>,
    /// How much of each: `small` for every change, `full` for the figures in the documents.
    #[arg(long, default_value = "full")]
    size: Size,
    /// What to mount; `host` and `mem` if not given.
    #[arg(long)]
    backend: Option<Backend>,
    /// Where scratch directories are made.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Seconds of the storm (60; 5 with `--size small`).
    #[arg(long)]
    seconds: Option<u64>,
    /// Threads of the storm.
    #[arg(long, default_value_t = 8)]
    threads: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    Pjdfstest,
    Fsx,
    Tar,
    Git,
    Sqlite,
    Cargo,
    Storm,
}

/// How much of a suite runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Size {
    /// A few seconds each.
    Small,
    /// What the documents' figures come from.
    Full,
}

/// What is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// A scratch directory of the host.
    Host,
    /// `mem:`.
    Mem,
    /// Nothing: the suite runs in a plain directory. What fails there says nothing about a mount.
    Native,
}

impl Backend {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Backend::Host => "host",
            Backend::Mem => "mem",
            Backend::Native => "native",
        }
    }
}

/// What every suite is given.
#[derive(Debug)]
pub(crate) struct Bench {
    /// The built `vfscale`.
    pub(crate) vfscale: PathBuf,
    /// An empty directory of this suite's own, on the host.
    pub(crate) scratch: PathBuf,
    pub(crate) size: Size,
    pub(crate) backends: Vec<Backend>,
    pub(crate) seconds: u64,
    pub(crate) threads: usize,
}

impl Bench {
    /// One value for each size.
    pub(crate) fn pick<T>(&self, small: T, full: T) -> T {
        match self.size {
            Size::Small => small,
            Size::Full => full,
        }
    }
}

/// How a suite went.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: Vec<String>,
}

impl Tally {
    /// Counts one case, and shows it.
    pub(crate) fn case(&mut self, name: &str, outcome: Outcome) {
        match outcome {
            Ok(()) => {
                println!("  ok    {name}");
                self.passed += 1;
            }
            Err(why) => {
                println!("  FAIL  {name}: {why}");
                self.failed.push(name.to_owned());
            }
        }
    }

    /// Counts cases that another program has shown already.
    pub(crate) fn add_passed(&mut self, count: usize) {
        self.passed += count;
    }

    /// Shows and counts a case that failed.
    pub(crate) fn fail(&mut self, name: String) {
        println!("  FAIL  {name}");
        self.failed.push(name);
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    if !is_root() || !Path::new("/dev/fuse").exists() {
        return Err("the suites mount: they need root and /dev/fuse".into());
    }
    if args.backend != Some(Backend::Native) {
        step(&mut cargo(["build", "--release", "--package", "vfscale-cli"]))?;
    }
    let scratch = scratch_dir(args.dir.as_deref())?;
    let outcome = run_all(args, scratch.path());
    // A suite that failed leaves nothing mounted, but if one did, removing through the mount would be wrong.
    if mount::anything_below(scratch.path()) {
        scratch.keep();
        return Err("a suite left a mount behind".into());
    }
    outcome
}

fn run_all(args: &Args, scratch: &Path) -> Outcome {
    let names = if args.names.is_empty() { Name::value_variants() } else { &args.names };
    let mut bad = Vec::new();
    for &name in names {
        let label = name.to_possible_value().expect("no suite is hidden").get_name().to_owned();
        let own = scratch.join(&label);
        std::fs::create_dir(&own)?;
        let bench = Bench {
            vfscale: target_dir().join("release/vfscale"),
            scratch: own,
            size: args.size,
            backends: args
                .backend
                .map_or_else(|| vec![Backend::Host, Backend::Mem], |one| vec![one]),
            seconds: args.seconds.unwrap_or(if args.size == Size::Small { 5 } else { 60 }),
            threads: args.threads,
        };
        println!("{label}:");
        let mut tally = Tally::default();
        let start = std::time::Instant::now();
        if let Err(why) = run_one(name, &bench, &mut tally) {
            tally.fail(format!("the suite itself: {why}"));
        }
        println!(
            "{label}: {} passed, {} failed ({} s)",
            tally.passed,
            tally.failed.len(),
            start.elapsed().as_secs()
        );
        if !tally.failed.is_empty() || tally.passed == 0 {
            bad.push(label);
        }
    }
    if bad.is_empty() { Ok(()) } else { Err(format!("failed: {}", bad.join(", ")).into()) }
}

fn run_one(name: Name, bench: &Bench, tally: &mut Tally) -> Outcome {
    match name {
        Name::Pjdfstest => pjdfstest::run(bench, tally),
        Name::Fsx => fsx::run(bench, tally),
        Name::Tar => tar::run(bench, tally),
        Name::Git => git::run(bench, tally),
        Name::Sqlite => sqlite::run(bench, tally),
        Name::Cargo => cargo_build::run(bench, tally),
        Name::Storm => storm::run(bench, tally),
    }
}

/// A directory that goes away with its owner.
struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Scratch {
    fn path(&self) -> &Path {
        &self.path
    }

    fn keep(mut self) {
        self.keep = true;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Ordinary users take part in some suites, so the directory is open to them.
fn scratch_dir(parent: Option<&Path>) -> Outcome<Scratch> {
    let parent = std::path::absolute(parent.unwrap_or(&std::env::temp_dir()))?;
    let path = parent.join(format!("vfscale-{}", std::process::id()));
    std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let scratch = Scratch { path, keep: false };
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o755))?;
    Ok(scratch)
}
