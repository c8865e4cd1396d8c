//! dcache thread: does anybody notice when the cache is trimmed, when it grows, when it is large?
//!
//! - `reclaim-bytes`: memory for each name of a large cache, by what the process takes from the system.
//! - `reclaim-trim`: one thread looks up known names and times each, while the other does nothing, or frees all other names of a cache of a
//!   million.
//! - `reclaim-grow`: the same while the other inserts as fast as it can, and times each insertion.
//! - `reclaim-hot`: a small set of names in a small and in a large cache.
//!
//! Reading the clock is part of each time, in every arm alike. The other thread's times are those of its processor: how long it works, not how
//! long it was kept from working.

use std::fmt::Debug;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use vfscale::{DentryRef, Reclaim};

use super::reclaim_names::{Make, Names, Ours, Path, Random, Times, lru, moka, quick_cache};
use crate::sample::Worker;
use crate::scenario::{Arm, Scenario, Subject};

/// A large cache.
const NAMES: u64 = if cfg!(test) { 1_000 } else { 1_000_000 };
/// A very large one.
const MANY: u64 = if cfg!(test) { 2_000 } else { 10_000_000 };
/// The set that is looked up.
const HOT: u64 = if cfg!(test) { 100 } else { 10_000 };
/// Names of one directory.
const DIR: u64 = 1_000;

pub(crate) const BYTES: Scenario = Scenario {
    name: "reclaim-bytes",
    question: "how much memory does a cached name take, with its inode and all indexes?",
    source: "dcache thread, 2002",
    operation: "stat of a name of a cache of a million",
    threads: &[1],
    think_ns: &[0],
    arms: &[
        Arm { name: "vfscale", what: "vfscale, lazy LRU", make: |_| bytes(&OUR_CROWD, lru) },
        Arm {
            name: "quick_cache",
            what: "quick_cache::sync::Cache",
            make: |_| bytes(&QUICK_CROWD, quick_cache),
        },
        Arm { name: "moka", what: "moka::sync::Cache", make: |_| bytes(&MOKA_CROWD, moka) },
    ],
};

pub(crate) const TRIM: Scenario = Scenario {
    name: "reclaim-trim",
    question: "how long does a lookup take while a million names are trimmed?",
    operation: "lookup of a known name with a reference, each timed",
    threads: &[2],
    arms: &[
        Arm { name: "idle", what: "the other thread does nothing", make: |_| tail(Other::Nothing) },
        Arm {
            name: "lru",
            what: "it shrinks, lazy LRU",
            make: |_| tail(Other::Trims(Reclaim::Lru)),
        },
        Arm {
            name: "clock",
            what: "it shrinks, clock over chains",
            make: |_| tail(Other::Trims(Reclaim::Clock)),
        },
        Arm {
            name: "sieve",
            what: "it shrinks, SIEVE",
            make: |_| tail(Other::Trims(Reclaim::Sieve)),
        },
    ],
    ..BYTES
};

pub(crate) const GROW: Scenario = Scenario {
    name: "reclaim-grow",
    question: "how long does a lookup take while the table grows?",
    operation: "lookup of a known name with a reference, each timed; the other thread inserts",
    threads: &[2],
    arms: &[
        Arm { name: "idle", what: "the other thread does nothing", make: |_| tail(Other::Nothing) },
        Arm { name: "growing", what: "it inserts", make: |_| tail(Other::Inserts) },
    ],
    ..BYTES
};

pub(crate) const HOT_SET: Scenario = Scenario {
    name: "reclaim-hot",
    question: "what does a large cache cost those who use a small part of it?",
    operation: "stat of one of ten thousand names, or of any",
    threads: &[1],
    arms: &[
        Arm { name: "small", what: "a cache of 10,000 names", make: |_| hot(&SMALL, HOT, HOT) },
        Arm {
            name: "hot",
            what: "10,000 of a cache of 10,000,000",
            make: |_| hot(&LARGE, MANY, HOT),
        },
        Arm {
            name: "uniform",
            what: "all of a cache of 10,000,000",
            make: |_| hot(&LARGE, MANY, MANY),
        },
    ],
    ..BYTES
};

fn known(at: u64) -> Path {
    Path::new((at / DIR) as u32, false, at)
}

/// Bytes of the process that are in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// Nanoseconds for which the running thread had a processor.
fn worked() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A full cache, and what it took to fill it. Made once in a process: pools give no memory back, so a second one would seem to take none.
struct Crowd {
    cache: Box<dyn Names>,
    bytes_per_name: f64,
}

static OUR_CROWD: OnceLock<Crowd> = OnceLock::new();
static QUICK_CROWD: OnceLock<Crowd> = OnceLock::new();
static MOKA_CROWD: OnceLock<Crowd> = OnceLock::new();

impl Crowd {
    fn new(make: Make) -> Crowd {
        let before = resident();
        // More than room enough: nothing is evicted.
        let cache = make(NAMES * 2_000);
        for at in 0..NAMES {
            assert!(!cache.look(&known(at)), "a new name");
        }
        let bytes = resident().saturating_sub(before);
        Crowd { cache, bytes_per_name: bytes as f64 / NAMES as f64 }
    }
}

#[derive(Debug)]
struct Bytes(&'static Crowd);

impl Debug for Crowd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crowd")
            .field("bytes_per_name", &self.bytes_per_name)
            .finish_non_exhaustive()
    }
}

fn bytes(crowd: &'static OnceLock<Crowd>, make: Make) -> Box<dyn Subject> {
    Box::new(Bytes(crowd.get_or_init(|| Crowd::new(make))))
}

impl Subject for Bytes {
    fn work(&self, worker: &mut Worker<'_>) {
        let mut random = Random(5);
        worker.repeat::<64>(|| {
            black_box(self.0.cache.look(&known(random.below(NAMES))));
        });
    }

    fn check(&self, _: &[u64]) -> Result<(), String> {
        // moka's policy may refuse a few.
        let there = (0..100).filter(|at| self.0.cache.look(&known(at * (NAMES / 100)))).count();
        if there >= 90 { Ok(()) } else { Err(format!("{there} of 100 names are there")) }
    }

    fn values(&self) -> Vec<(&'static str, f64)> {
        vec![("name_bytes", self.0.bytes_per_name)]
    }
}

/// What the second thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    Nothing,
    Trims(Reclaim),
    Inserts,
}

#[derive(Debug)]
struct Tail {
    cache: Ours,
    hot: Vec<(DentryRef, Path)>,
    other: Other,
    /// How many the other thread has freed or inserted.
    moved: AtomicU64,
    /// The reader's times, until the other was done; the other's.
    times: Mutex<[Times; 2]>,
    is_done: std::sync::atomic::AtomicBool,
}

fn tail(other: Other) -> Box<dyn Subject> {
    let policy = if let Other::Trims(policy) = other { policy } else { Reclaim::Lru };
    let cache = Ours::new(u64::MAX, policy);
    let trims = matches!(other, Other::Trims(_));
    let filled = if trims { NAMES + HOT } else { HOT };
    (0..filled).for_each(|at| assert!(!cache.look(&known(at))));
    let hot = (0..HOT).map(|at| {
        let path = known(at);
        assert!(cache.look(&path));
        let dir = cache.0.lookup(&vfscale::Context::root(), &cache.0.root(), path.dir());
        (dir.expect("a directory").dentry, path)
    });
    let hot = hot.collect();
    let times = Mutex::new([Times::new(), Times::new()]);
    let is_done = std::sync::atomic::AtomicBool::new(false);
    Box::new(Tail { cache, hot, other, moved: AtomicU64::new(0), times, is_done })
}

impl Tail {
    fn read(&self, worker: &mut Worker<'_>, times: &mut Times) {
        let mut random = Random(3);
        let is_done = || self.is_done.load(Ordering::Relaxed);
        worker.repeat::<64>(|| {
            let (dir, path) = &self.hot[random.below(HOT) as usize];
            let begun = Instant::now();
            black_box(self.cache.lookup(dir, path.name()));
            let time = begun.elapsed();
            if !is_done() {
                times.add(time.as_nanos() as u64);
            }
        });
    }

    fn disturb(&self, worker: &mut Worker<'_>, times: &mut Times) {
        let mut moved = 0;
        match self.other {
            Other::Nothing => {
                while !worker.is_over() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Other::Trims(_) => {
                // A caller that frees for itself does a piece at a time.
                while !worker.is_over() && moved < NAMES {
                    let begun = worked();
                    let now = self.cache.0.shrink(1_000.min(NAMES - moved));
                    times.add(worked() - begun);
                    moved += now;
                    if now == 0 {
                        break;
                    }
                }
            }
            Other::Inserts => {
                while !worker.is_over() && moved < NAMES {
                    let path = known(HOT + moved);
                    let begun = worked();
                    assert!(!self.cache.look(&path));
                    times.add(worked() - begun);
                    moved += 1;
                }
            }
        }
        if self.other != Other::Nothing {
            self.is_done.store(true, Ordering::Relaxed);
        }
        worker.sample.done = moved;
        self.moved.store(moved, Ordering::Relaxed);
        while !worker.is_over() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Subject for Tail {
    fn work(&self, worker: &mut Worker<'_>) {
        let mut times = Times::new();
        let part = worker.number.min(1);
        match worker.number {
            0 => {
                worker.sample.role = "reader";
                self.read(worker, &mut times);
            }
            1 => {
                worker.sample.role = "other";
                self.disturb(worker, &mut times);
            }
            _ => return,
        }
        self.times.lock().unwrap_or_else(PoisonError::into_inner)[part] = times;
    }

    /// The names that are left are those that were there and did not go, and each of the reader's is one of them.
    fn check(&self, done: &[u64]) -> Result<(), String> {
        let stats = self.cache.0.stats();
        let moved = self.moved.load(Ordering::Relaxed);
        let dirs = |names: u64| names.div_ceil(DIR);
        let most = match self.other {
            Other::Nothing => HOT + dirs(HOT),
            Other::Inserts => HOT + moved + dirs(HOT + moved),
            Other::Trims(_) => (NAMES + HOT + dirs(NAMES + HOT)).saturating_sub(moved) + HOT,
        };
        if stats.names <= most + 1 {
            Ok(())
        } else {
            Err(format!("{} names are left, not {most}; {done:?} done", stats.names))
        }
    }

    fn values(&self) -> Vec<(&'static str, f64)> {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let [reader, other] = &*times;
        let mut values = vec![
            ("p50_ns", reader.quantile(0.5)),
            ("p99_ns", reader.quantile(0.99)),
            ("p999_ns", reader.quantile(0.999)),
        ];
        if self.other != Other::Nothing {
            values.push(("moved_objects", self.moved.load(Ordering::Relaxed) as f64));
            values.push(("other_p99_ns", other.quantile(0.99)));
            values.push(("other_max_ns", other.quantile(1.0)));
        }
        values
    }
}

static SMALL: OnceLock<Ours> = OnceLock::new();
static LARGE: OnceLock<Ours> = OnceLock::new();

#[derive(Debug)]
struct Hot {
    cache: &'static Ours,
    asked: u64,
}

fn hot(cache: &'static OnceLock<Ours>, names: u64, asked: u64) -> Box<dyn Subject> {
    let cache = cache.get_or_init(|| {
        let cache = Ours::new(u64::MAX, Reclaim::Lru);
        (0..names).for_each(|at| assert!(!cache.look(&known(at))));
        cache
    });
    Box::new(Hot { cache, asked })
}

impl Subject for Hot {
    fn work(&self, worker: &mut Worker<'_>) {
        let mut random = Random(1 + worker.number as u64);
        worker.repeat::<256>(|| {
            assert!(self.cache.look(&known(random.below(self.asked))), "nothing was evicted");
        });
    }

    fn check(&self, _: &[u64]) -> Result<(), String> {
        let stats = self.cache.0.stats();
        if stats.names >= self.asked && stats.lru_freed == 0 {
            Ok(())
        } else {
            Err(format!("{} names, {} freed", stats.names, stats.lru_freed))
        }
    }
}
