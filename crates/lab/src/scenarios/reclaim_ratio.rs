//! dcache thread: which policy keeps the right names?
//!
//! Three patterns, each of them more than the cache holds: a build that looks for every header in several directories and finds it in the
//! last, so four of five lookups are of absent names; requests for paths of a web server, by Zipf; and the same with a scan beside
//! it that touches each name once, as a backup does. All arms have the same memory; the peers that are alike have the same number of names
//! instead, which leaves the policy alone. The figures are the share of lookups that the
//! cache answers, after a warm-up, and for ours the steps of the sweep for each name that went.

use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use super::reclaim_names::{
    Make, Names, Path, Random, clock, lru, moka, moka_alike, quick_cache, quick_cache_alike, sieve,
};
use super::{Padded, padded};
use crate::sample::{Setup, Worker};
use crate::scenario::{Arm, Scenario, Subject};

/// Memory of each arm.
const BYTES: u64 = if cfg!(test) { 256 << 10 } else { 4 << 20 };
/// Operations of a pattern before it begins anew.
const LENGTH: usize = if cfg!(test) { 1 << 13 } else { 1 << 18 };
/// So many are not counted, if there are more.
const WARM: u64 = 50_000;

macro_rules! arms {
    ($pattern:expr) => {
        &[
            Arm { name: "lru", what: "vfscale, lazy LRU", make: |s| ratio(s, $pattern, lru) },
            Arm {
                name: "clock",
                what: "vfscale, clock over chains",
                make: |s| ratio(s, $pattern, clock),
            },
            Arm { name: "sieve", what: "vfscale, SIEVE", make: |s| ratio(s, $pattern, sieve) },
            Arm {
                name: "quick_cache",
                what: "quick_cache::sync::Cache",
                make: |s| ratio(s, $pattern, quick_cache),
            },
            Arm { name: "moka", what: "moka::sync::Cache", make: |s| ratio(s, $pattern, moka) },
            Arm {
                name: "quick_cache-alike",
                what: "quick_cache with as many names as ours",
                make: |s| ratio(s, $pattern, quick_cache_alike),
            },
            Arm {
                name: "moka-alike",
                what: "moka with as many names as ours",
                make: |s| ratio(s, $pattern, moka_alike),
            },
        ]
    };
}

pub(crate) const BUILD: Scenario = Scenario {
    name: "reclaim-build",
    question: "which share of a build's lookups, most of them of absent names, does the cache answer?",
    source: "dcache thread, 2002, and its replies; a build's probes, 2023",
    operation: "stat of a path of two components",
    threads: &[1, 2],
    think_ns: &[0],
    arms: arms!(&BUILD_PATTERN),
};

pub(crate) const WEB: Scenario = Scenario {
    name: "reclaim-web",
    question: "which share of requests by Zipf does the cache answer?",
    arms: arms!(&WEB_PATTERN),
    ..BUILD
};

pub(crate) const SCAN: Scenario = Scenario {
    name: "reclaim-scan",
    question: "which share of requests does the cache answer while a scan touches other names once?",
    arms: arms!(&SCAN_PATTERN),
    ..BUILD
};

/// What is looked up.
#[derive(Clone, Copy, Debug)]
enum Step {
    Known(Path),
    /// A name that was never asked for.
    New,
}

type Pattern = OnceLock<Arc<[Step]>>;

static BUILD_PATTERN: (Pattern, fn() -> Vec<Step>) = (OnceLock::new(), build);
static WEB_PATTERN: (Pattern, fn() -> Vec<Step>) = (OnceLock::new(), web);
static SCAN_PATTERN: (Pattern, fn() -> Vec<Step>) = (OnceLock::new(), scan);

/// Draws numbers by Zipf's law: the n-th is drawn in proportion to 1/n^s.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(numbers: usize, s: f64) -> Zipf {
        let mut sum = 0.0;
        Zipf(
            (1..=numbers)
                .map(|n| {
                    sum += (n as f64).powf(-s);
                    sum
                })
                .collect(),
        )
    }

    fn draw(&self, random: &mut Random) -> u64 {
        let at = random.below(1 << 53) as f64 / (1_u64 << 53) as f64 * self.0[self.0.len() - 1];
        // Neighbours in the order of demand are not neighbours in the tree.
        (self.0.partition_point(|sum| *sum < at) as u64).wrapping_mul(0x9e37_79b1) & 0xffff_ffff
    }
}

fn build() -> Vec<Step> {
    let (headers, mut random) = (Zipf::new(4_000, 0.7), Random(11));
    let mut steps = Vec::with_capacity(LENGTH + 512);
    while steps.len() < LENGTH {
        let source = random.below(4_000);
        steps.push(Step::Known(Path::new(10 + (source % 50) as u32, false, source)));
        for _ in 0..40 {
            let header = headers.draw(&mut random);
            let home = (header % 10) as u32;
            steps.extend((0..home).map(|dir| Step::Known(Path::new(dir, true, header))));
            steps.push(Step::Known(Path::new(home, false, header)));
        }
        // The object, which is looked for before it is made.
        steps.push(Step::Known(Path::new(60, true, source)));
    }
    steps
}

fn web() -> Vec<Step> {
    let (pages, mut random) = (Zipf::new(100_000, 0.9), Random(12));
    let step = |_| {
        let page = pages.draw(&mut random);
        Step::Known(Path::new((page % 100) as u32, page.is_multiple_of(100), page))
    };
    (0..LENGTH).map(step).collect()
}

fn scan() -> Vec<Step> {
    let mut steps = web();
    // Every other stretch of a thousand is the scan's.
    for (at, step) in steps.iter_mut().enumerate() {
        if at / 1_000 % 2 == 1 {
            *step = Step::New;
        }
    }
    steps
}

#[derive(Debug)]
struct Ratio {
    cache: Box<dyn Names>,
    steps: Arc<[Step]>,
    /// By thread: lookups counted, and hits.
    counted: Vec<Padded>,
    hits: Vec<Padded>,
}

fn ratio(
    setup: &Setup,
    pattern: &'static (Pattern, fn() -> Vec<Step>),
    make: Make,
) -> Box<dyn Subject> {
    let steps = pattern.0.get_or_init(|| (pattern.1)().into()).clone();
    let counts = || padded(setup.threads);
    Box::new(Ratio { cache: make(BYTES), steps, counted: counts(), hits: counts() })
}

impl Ratio {
    fn sum(&self, counts: &[Padded]) -> u64 {
        counts.iter().map(Padded::get).sum()
    }
}

impl Subject for Ratio {
    fn work(&self, worker: &mut Worker<'_>) {
        let number = worker.number;
        let mut at = self.steps.len() / self.counted.len() * number;
        let (mut done, mut hits, mut warm) = (0, 0, (0, 0));
        worker.repeat::<256>(|| {
            // Names of a scan are half of all where there is one: they can never hit, and are not counted.
            match &self.steps[at] {
                Step::Known(path) => {
                    done += 1;
                    hits += u64::from(self.cache.look(path));
                }
                Step::New => {
                    let new = ((number as u64) << 56) + (1 << 50) + (done << 20) + at as u64;
                    self.cache.look(&Path::new(99, false, new));
                }
            }
            at += 1;
            if at == self.steps.len() {
                at = 0;
            }
            if done == WARM {
                warm = (done, hits);
            }
        });
        self.counted[number].add_alone(done - warm.0);
        self.hits[number].add_alone(hits - warm.1);
    }

    /// Each answer was checked where it was given; here, that as many hits were seen as there were lookups at most.
    fn check(&self, done: &[u64]) -> Result<(), String> {
        let (hits, counted) = (self.sum(&self.hits), self.sum(&self.counted));
        let done: u64 = done.iter().sum();
        if hits <= counted && counted <= done {
            Ok(())
        } else {
            Err(format!("{hits} hits of {counted} lookups of {done}"))
        }
    }

    fn values(&self) -> Vec<(&'static str, f64)> {
        let mut values = self.cache.values();
        let counted = self.sum(&self.counted).max(1);
        values.push(("hit_share", self.sum(&self.hits) as f64 / counted as f64));
        values
    }
}
