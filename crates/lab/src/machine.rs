//! What the figures were taken on, and which processor a thread runs on.

use std::fmt;
use std::process::Command;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Where and with what the figures were taken.
#[derive(Debug)]
pub(crate) struct Machine {
    /// Processors that this process may use.
    pub(crate) cpus: usize,
    /// The processor's own name.
    pub(crate) model: String,
    /// The kernel's release.
    pub(crate) kernel: String,
    /// The commit in the working directory, `-dirty` if it has changes; empty outside a repository.
    pub(crate) commit: String,
    /// Whether the primitives count their events (feature `stats`), which costs a little.
    pub(crate) counting: bool,
    /// Whether this is a build worth measuring.
    pub(crate) optimised: bool,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}, Linux {}", self.cpus, self.model, self.kernel)?;
        if !self.commit.is_empty() {
            write!(f, ", commit {}", self.commit)?;
        }
        if self.counting {
            write!(
                f,
                "\nnote: built with feature `stats`; `--package vfscale-lab` builds without"
            )?;
        }
        if !self.optimised {
            write!(f, "\nnote: a debug build; its figures mean nothing")?;
        }
        Ok(())
    }
}

pub(crate) fn describe() -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let model = read("/proc/cpuinfo")
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map(|rest| rest.trim_start_matches([' ', '\t', ':']).to_owned());
    Machine {
        cpus: allowed().len(),
        model: model.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        commit: commit().unwrap_or_default(),
        counting: counting(),
        optimised: !cfg!(debug_assertions),
    }
}

fn commit() -> Option<String> {
    let out = Command::new("git")
        .args(["describe", "--always", "--dirty", "--exclude=*"])
        .output()
        .ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// The feature is another crate's, so see whether an event is counted.
fn counting() -> bool {
    vfscale_sync::LockRef::new(1, ()).get();
    vfscale_sync::stats::snapshot().lockref_fast > 0
}

/// Keeps the running thread on the `number`th processor it may use, counted round and round.
///
/// Where that is refused the thread stays free; the figures are then as the scheduler makes them.
pub(crate) fn pin(number: usize) {
    let allowed = allowed();
    if allowed.is_empty() {
        return;
    }
    let mut one = CpuSet::new();
    one.set(allowed[number % allowed.len()]);
    let _ = sched_setaffinity(None, &one);
}

fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}
