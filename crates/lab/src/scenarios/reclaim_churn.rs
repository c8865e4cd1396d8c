//! dcache thread: what does a hit cost while names come and go?
//!
//! The cache is full. One thread looks up names of a small set all the time; with more than one the others look up names that were never
//! asked for, so each of their lookups is a miss, an insertion and an eviction. One thread alone does both, fifteen hits for each miss.

use std::fmt::Debug;

use super::reclaim_names::{Make, Names, Path, Random, clock, lru, moka, quick_cache, sieve};
use super::{Padded, padded};
use crate::sample::{Setup, Worker};
use crate::scenario::{Arm, Scenario, Subject};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "reclaim-churn",
    question: "what does a hit cost while others evict?",
    source: "dcache thread, 2002",
    operation: "stat of a path of two components; a reader's is a hit, a churner's a miss that evicts",
    threads: &[1, 2],
    think_ns: &[0],
    arms: &[
        Arm { name: "lru", what: "vfscale, lazy LRU", make: |setup| churn(setup, lru) },
        Arm {
            name: "clock",
            what: "vfscale, clock over chains",
            make: |setup| churn(setup, clock),
        },
        Arm { name: "sieve", what: "vfscale, SIEVE", make: |setup| churn(setup, sieve) },
        Arm {
            name: "quick_cache",
            what: "quick_cache::sync::Cache",
            make: |setup| churn(setup, quick_cache),
        },
        Arm { name: "moka", what: "moka::sync::Cache", make: |setup| churn(setup, moka) },
    ],
};

const BYTES: u64 = if cfg!(test) { 256 << 10 } else { 8 << 20 };
/// Names that are asked for again and again.
const HOT: u64 = if cfg!(test) { 64 } else { 1_000 };

#[derive(Debug)]
struct Churn {
    cache: Box<dyn Names>,
    hot: Vec<Path>,
    /// Hits of the reader that were none.
    missed: Vec<Padded>,
}

fn churn(setup: &Setup, make: Make) -> Box<dyn Subject> {
    let hot: Vec<Path> = (0..HOT).map(|i| Path::new((i % 10) as u32, false, i)).collect();
    let cache = make(BYTES);
    // Full, and the hot ones known as such.
    for new in 0..BYTES / 256 {
        cache.look(&Path::new(99, false, 1 << 60 | new));
        cache.look(&hot[(new % HOT) as usize]);
    }
    Box::new(Churn { cache, hot, missed: padded(setup.threads) })
}

impl Subject for Churn {
    fn work(&self, worker: &mut Worker<'_>) {
        let number = worker.number as u64;
        let alone = self.missed.len() == 1;
        let mut random = Random(7 + number);
        let mut new = (number + 1) << 48;
        let mut missed = 0;
        let mut hit = || {
            let path = &self.hot[random.below(HOT) as usize];
            missed += u64::from(!self.cache.look(path));
        };
        let mut miss = || {
            new += 1;
            self.cache.look(&Path::new(99, false, new));
        };
        if alone {
            let mut at = 0_u64;
            worker.repeat::<256>(|| {
                at += 1;
                if at.is_multiple_of(16) { miss() } else { hit() }
            });
        } else if number == 0 {
            worker.sample.role = "reader";
            worker.repeat::<256>(hit);
        } else {
            worker.sample.role = "churner";
            worker.repeat::<16>(miss);
        }
        self.missed[worker.number].add_alone(missed);
    }

    /// A reader whose hits are misses would measure something else.
    fn check(&self, done: &[u64]) -> Result<(), String> {
        let missed = self.missed[0].get();
        // A thread that lost its processor for long may find the names gone.
        if missed <= done[0] / 4 + HOT {
            Ok(())
        } else {
            Err(format!("{missed} of {} hits were misses", done[0]))
        }
    }

    fn values(&self) -> Vec<(&'static str, f64)> {
        self.cache.values()
    }
}
