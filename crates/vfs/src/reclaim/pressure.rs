//! Memory pressure: the system tells when memory is short, and a mount gives some of its unused names up.
//!
//! # What is read
//! - Pressure stall information (`/proc/pressure/memory`): the share of the last ten seconds in which somebody waited for memory (`some`), and
//!   in which everybody did (`full`).
//! - The limit of the process's own cgroup (version 2): `memory.current` without `inactive_file` of `memory.stat`, which the system takes
//!   back by itself, against the lower one of `memory.max` and `memory.high`.
//!
//! What is not there, or does not read as it should, tells of no pressure: a mount must not forget its names because a file has a new form.
//!
//! # Distrust
//! Dentries and inodes are freed into pools, which use them again but give nothing back to the system. What goes back are long names and the
//! backend's nodes, and the process stops to grow.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::{FileSystem, Vfs};

/// How short memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// It is not.
    #[default]
    None,
    /// Somebody waited for memory for a tenth of the last ten seconds, or 90 % of the limit are used.
    Some,
    /// Everybody did, or 97 % are used.
    Severe,
}

/// Where to read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PressureSource {
    stalls: Option<PathBuf>,
    cgroup: Option<PathBuf>,
}

/// Shares of the last ten seconds, in per cent.
const STALLED: f64 = 10.0;
/// Shares of the limit.
const NEAR: f64 = 0.90;
const AT: f64 = 0.97;

impl PressureSource {
    /// What this system has: neither where there is no such kernel, or no limit.
    #[must_use]
    pub fn system() -> PressureSource {
        let stalls = PathBuf::from("/proc/pressure/memory");
        // `0::/a/b`: the one of version 2.
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
        let cgroup = own.map(|own| Path::new("/sys/fs/cgroup").join(own));
        PressureSource {
            stalls: stalls.exists().then_some(stalls),
            cgroup: cgroup.filter(|dir| dir.join("memory.max").exists()),
        }
    }

    /// These files: one of the form of `/proc/pressure/memory`, and a directory with `memory.current`, `memory.max` and their like.
    #[must_use]
    pub fn new(stalls: Option<PathBuf>, cgroup: Option<PathBuf>) -> PressureSource {
        PressureSource { stalls, cgroup }
    }

    /// Is there anything to read?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stalls.is_none() && self.cgroup.is_none()
    }

    /// The higher of the two now.
    #[must_use]
    pub fn read(&self) -> Pressure {
        let stalls = self.stalls.as_deref().and_then(stalled).unwrap_or_default();
        let limit = self.cgroup.as_deref().and_then(near_the_limit).unwrap_or_default();
        stalls.max(limit)
    }
}

fn stalled(file: &Path) -> Option<Pressure> {
    let text = std::fs::read_to_string(file).ok()?;
    let share = |who: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(who))?;
        let value = line.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?;
        value.parse::<f64>().ok().filter(|share| *share >= STALLED)
    };
    Some(match (share("full "), share("some ")) {
        (Some(_), _) => Pressure::Severe,
        (None, Some(_)) => Pressure::Some,
        (None, None) => Pressure::None,
    })
}

fn near_the_limit(dir: &Path) -> Option<Pressure> {
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).ok();
    // `max` is no number and no limit.
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let limit = ["memory.max", "memory.high"].into_iter().filter_map(number).min()?;
    let inactive = read("memory.stat").and_then(|stat| {
        stat.lines().find_map(|line| line.strip_prefix("inactive_file "))?.trim().parse().ok()
    });
    let used = number("memory.current")?.saturating_sub(inactive.unwrap_or(0));
    let share = used as f64 / limit.max(1) as f64;
    Some(match share {
        _ if share >= AT => Pressure::Severe,
        _ if share >= NEAR => Pressure::Some,
        _ => Pressure::None,
    })
}

impl<F: FileSystem> Vfs<F> {
    /// Gives up unused names as the pressure asks: an eighth of all names, or half of them. Answers how many it freed.
    pub fn relieve(&self, pressure: Pressure) -> u64 {
        let names = self.superblock().names().now();
        match pressure {
            Pressure::None => 0,
            Pressure::Some => self.shrink(names / 8),
            Pressure::Severe => self.shrink(names / 2),
        }
    }

    /// Has a thread read `source` every so often and [`relieve`](Vfs::relieve) this mount, until the answer is dropped or the mount ends.
    ///
    /// The thread holds the mount for the moment of a relief: drop the watch before you take the mount apart.
    ///
    /// # Errors
    /// `EAGAIN` if there is no thread to be had.
    pub fn watch_pressure(
        self: &Arc<Self>,
        source: PressureSource,
        every: Duration,
    ) -> crate::Result<PressureWatch> {
        let stop = Arc::new(AtomicBool::new(false));
        let (vfs, told) = (Arc::downgrade(self), stop.clone());
        let run = move || {
            // Relaxed: it carries nothing but itself, and the join orders the rest.
            while !told.load(Ordering::Relaxed) {
                let pressure = source.read();
                let Some(vfs) = Weak::upgrade(&vfs) else { break };
                vfs.relieve(pressure);
                drop(vfs);
                std::thread::park_timeout(every);
            }
        };
        let thread = std::thread::Builder::new().name("vfscale-pressure".to_owned()).spawn(run);
        Ok(PressureWatch { stop, thread: Some(thread.map_err(|_| crate::Errno::EAGAIN)?) })
    }
}

/// A thread that watches the memory for a mount. Dropping it ends the thread, and waits for that.
#[derive(Debug)]
pub struct PressureWatch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for PressureWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        // The last owner of the mount may be the thread itself.
        if thread.thread().id() != std::thread::current().id() {
            thread.thread().unpark();
            // It panics only if a backend does; that was told already.
            let _ = thread.join();
        }
    }
}
