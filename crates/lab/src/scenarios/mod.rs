//! The scenarios, one a file.

mod exit_storm;
mod fget;
mod fileref;
mod list;
mod lockref;
mod metadata;
mod qrwlock;
mod rcu_read;
mod rcu_retire;
mod reclaim_churn;
mod reclaim_names;
mod reclaim_ratio;
mod reclaim_tail;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::scenario::Scenario;

/// All of them, in the order in which they are listed and run.
pub(crate) const ALL: &[&Scenario] = &[
    &lockref::SCENARIO,
    &fileref::SCENARIO,
    &fget::SCENARIO,
    &qrwlock::READ,
    &qrwlock::EVEN,
    &qrwlock::MIX,
    &qrwlock::WRITE,
    &qrwlock::WRITER_WAIT,
    &rcu_read::SCENARIO,
    &rcu_retire::SCENARIO,
    &rcu_retire::STALLED,
    &list::SCENARIO,
    &exit_storm::SCENARIO,
    &reclaim_ratio::BUILD,
    &reclaim_ratio::WEB,
    &reclaim_ratio::SCAN,
    &reclaim_churn::SCENARIO,
    &reclaim_tail::BYTES,
    &reclaim_tail::TRIM,
    &reclaim_tail::GROW,
    &reclaim_tail::HOT_SET,
    &metadata::STAT,
    &metadata::CREATE_SHARED,
    &metadata::CREATE_OWN,
    &metadata::RENAME_SHARED,
    &metadata::RENAME_OWN,
];

/// A count on a pair of cache lines of its own: neighbours are fetched together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(AtomicU64);

impl Padded {
    /// A load and a store: for a count that one thread alone writes.
    fn add_alone(&self, n: u64) {
        // Relaxed, twice: nobody else writes here, and the join orders the result.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        // Relaxed: read after the join, or by its only writer.
        self.0.load(Ordering::Relaxed)
    }
}

/// One count for each thread.
fn padded(threads: usize) -> Vec<Padded> {
    (0..threads).map(|_| Padded::default()).collect()
}
