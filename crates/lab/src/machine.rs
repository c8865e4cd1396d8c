//! What the figures were taken on, and which processor a thread runs on.

use std::fmt;
use std::hint;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

/// Where and with what the figures were taken.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Processors that this process may use.
    pub(crate) cpus: usize,
    /// The processor's own name.
    pub(crate) model: String,
    /// The kernel's release.
    pub(crate) kernel: String,
    /// The commit in the working directory, `-dirty` if it has changes; empty outside a repository.
    pub(crate) commit: String,
    /// A cache line's way from the first processor to the second and back, in ns; none with one processor.
    pub(crate) ping_pong_ns: Option<f64>,
    /// The load average of the last minute, at the start.
    pub(crate) load: String,
    /// Whether the asymmetric fence works (membarrier).
    pub(crate) membarrier: bool,
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
        if let Some(ns) = self.ping_pong_ns {
            write!(f, "\nping-pong of a cache line {ns:.0} ns")?;
        }
        let membarrier = if self.membarrier { "works" } else { "missing" };
        write!(f, ", load {}, membarrier {membarrier}", self.load)?;
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
        cpus: cpus(),
        model: model.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        commit: commit().unwrap_or_default(),
        ping_pong_ns: ping_pong(),
        load: read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned(),
        membarrier: vfscale_sync::fence::is_asymmetric(),
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

/// Two threads pass one number to and fro; the quickest of several tries.
fn ping_pong() -> Option<f64> {
    const TURNS: u64 = 2_000;
    if cpus() < 2 {
        return None;
    }
    let ball = AtomicU64::new(0);
    let play = |number: usize, mine: u64| {
        pin(number);
        let mut tries = Vec::new();
        for game in 0..8 {
            let begun = Instant::now();
            for turn in 0..TURNS {
                let wanted = 2 * (game * TURNS + turn) + mine;
                // Acquire and Release: each waits for the other's store, as with a flag that guards data.
                let mut spins = 0_u32;
                while ball.load(Ordering::Acquire) != wanted {
                    spins += 1;
                    if spins.is_multiple_of(10_000) {
                        thread::yield_now();
                    }
                    hint::spin_loop();
                }
                ball.store(wanted + 1, Ordering::Release);
            }
            tries.push(begun.elapsed().as_nanos() as f64 / TURNS as f64);
        }
        tries.into_iter().fold(f64::INFINITY, f64::min)
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| play(1, 1));
        let ns = scope.spawn(|| play(0, 0)).join().ok();
        other.join().ok()?;
        ns
    })
}

/// How many processors this process may use.
pub(crate) fn cpus() -> usize {
    allowed().len().max(1)
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

/// Watches for others who use the processors: a round in which they did is not a measurement.
#[derive(Debug)]
pub(crate) struct Watch {
    begun: Instant,
    machine: Option<Ticks>,
    ours: Duration,
}

/// Times of the whole machine since it started, in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ticks {
    busy: u64,
    stolen: u64,
}

impl Watch {
    pub(crate) fn start() -> Watch {
        Watch { begun: Instant::now(), machine: ticks(), ours: own_time() }
    }

    /// The share of the machine's time, from 0 to 1, that went to others and to the hypervisor since [`start`](Self::start).
    /// 0 where the system does not tell.
    pub(crate) fn disturbance(&self) -> f64 {
        let (Some(before), Some(after)) = (self.machine, ticks()) else { return 0.0 };
        let per_second = rustix::param::clock_ticks_per_second() as f64;
        let ours = (own_time() - self.ours).as_secs_f64();
        let busy = after.busy.saturating_sub(before.busy) as f64 / per_second;
        let stolen = after.stolen.saturating_sub(before.stolen) as f64 / per_second;
        let all = self.begun.elapsed().as_secs_f64() * online() as f64;
        ((busy - ours).max(0.0) + stolen) / all.max(1e-9)
    }
}

fn own_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn online() -> usize {
    thread::available_parallelism().map_or(1, usize::from).max(cpus())
}

fn ticks() -> Option<Ticks> {
    parse_ticks(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// The line `cpu user nice system idle iowait irq softirq steal ...`.
fn parse_ticks(stat: &str) -> Option<Ticks> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let values: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, stolen, ..] = values[..] else {
        return None;
    };
    Some(Ticks { busy: user + nice + system + irq + softirq, stolen })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line_of_times_is_read_by_position() {
        let stat = "cpu  100 1 20 9000 50 3 4 7 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(parse_ticks(stat), Some(Ticks { busy: 128, stolen: 7 }));
        assert_eq!(parse_ticks("cpu  1 2 3\n"), None);
        assert_eq!(parse_ticks(""), None);
    }

    #[test]
    fn others_time_is_what_is_not_ours() {
        let watch = Watch {
            begun: Instant::now() - Duration::from_secs(10),
            machine: ticks().map(|now| Ticks { busy: now.busy.saturating_sub(500), ..now }),
            ours: own_time(),
        };
        // 5 s of others in 10 s of so many processors.
        let expected = 5.0 / (10.0 * online() as f64);
        let found = watch.disturbance();
        assert!(found >= expected * 0.95 && found < expected * 1.5 + 0.1, "{found}, {expected}");
    }
}
