//! Counters that many threads add to and few read.
//!
//! # Why
//! One shared counter costs a contended write per event, which is what the primitives here exist to avoid. Each thread
//! adds to a shard of its own instead, with a plain load and store; a reader sums the shards.
//!
//! # Who writes
//! Shard `n` of the first 64: the thread that has number `n` (see `thread_slot`), alone. The last shard: everybody else, by
//! `fetch_add`. A number that changes hands carries the happens-before edge that lets its next owner go on from the last
//! value.
//!
//! # Orderings
//! All relaxed: a sum is a statistic. It is exact when the threads that added have been joined.
//!
//! The primitives' own events are counted only with feature `stats`, and read with [`snapshot`].

#[cfg(all(feature = "std", not(loom)))]
pub use counters::Counters;

#[cfg(all(feature = "std", not(loom)))]
mod counters {
    use crate::prim::{AtomicU64, Ordering};
    use crate::thread_slot;
    use crossbeam_utils::CachePadded;

    /// Threads beyond so many share one shard.
    const SHARDS: usize = if cfg!(shuttle) { 1 } else { 64 };

    /// `N` counters, each split by thread.
    ///
    /// ```
    /// use vfscale_sync::stats::Counters;
    ///
    /// const HITS: usize = 0;
    /// const MISSES: usize = 1;
    /// static CACHE: Counters<2> = Counters::new();
    ///
    /// std::thread::scope(|scope| {
    ///     for _ in 0..4 {
    ///         scope.spawn(|| CACHE.add(HITS, 1));
    ///     }
    /// });
    /// assert_eq!((CACHE.sum(HITS), CACHE.sum(MISSES)), (4, 0));
    /// ```
    #[derive(Debug)]
    pub struct Counters<const N: usize> {
        own: [CachePadded<[AtomicU64; N]>; SHARDS],
        shared: CachePadded<[AtomicU64; N]>,
    }

    impl<const N: usize> Counters<N> {
        /// All at zero.
        pub const fn new() -> Self {
            Counters {
                own: [const { CachePadded::new([const { AtomicU64::new(0) }; N]) }; SHARDS],
                shared: CachePadded::new([const { AtomicU64::new(0) }; N]),
            }
        }

        /// Adds `n` to counter `which`; wraps. Subtract by adding `n.wrapping_neg()`.
        #[inline]
        pub fn add(&self, which: usize, n: u64) {
            self.add_here(which, n);
        }

        /// Adds, and returns what the running thread's shard now holds: for who acts on every so many events.
        #[inline]
        pub(crate) fn add_here(&self, which: usize, n: u64) -> u64 {
            match self.own.get(thread_slot::current()) {
                Some(shard) => {
                    // Relaxed load and store: this thread is the only writer.
                    let new = shard[which].load(Ordering::Relaxed).wrapping_add(n);
                    shard[which].store(new, Ordering::Relaxed);
                    new
                }
                None => self.shared[which].fetch_add(n, Ordering::Relaxed).wrapping_add(n),
            }
        }

        /// The sum over all threads.
        pub fn sum(&self, which: usize) -> u64 {
            self.own.iter().chain([&self.shared]).fold(0, |sum, shard| {
                // Relaxed: only a statistic.
                sum.wrapping_add(shard[which].load(Ordering::Relaxed))
            })
        }
    }

    impl<const N: usize> Default for Counters<N> {
        fn default() -> Self {
            Counters::new()
        }
    }
}

macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident => $field:ident,)*) => {
        /// What the primitives count.
        #[derive(Clone, Copy, Debug)]
        #[allow(dead_code, reason = "some are counted only with `std`")]
        pub(crate) enum Event { $($variant,)* }

        /// What the primitives of this process have done. All zero without feature `stats`, but for `rcu_grace_periods`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct PrimitiveStats {
            $($(#[$doc])* pub $field: u64,)*
            /// Grace periods that have ended.
            pub rcu_grace_periods: u64,
        }

        #[cfg(all(feature = "stats", not(any(loom, shuttle))))]
        mod counted {
            use super::{Counters, Event, PrimitiveStats};

            const EVENTS: usize = [$(Event::$variant),*].len();
            pub(super) static COUNTERS: Counters<EVENTS> = Counters::new();

            pub(super) fn fill(stats: &mut PrimitiveStats) {
                $(stats.$field = COUNTERS.sum(Event::$variant as usize);)*
            }
        }
    };
}

events! {
    /// Pauses and yields of all locks, before a queue or a sleep.
    Spin => spins,
    /// Sleeps of all locks.
    Park => parks,
    /// Places at the head of a queue that were handed to the next.
    Handoff => handoffs,
    /// `QMutex` and combining locks: acquisitions that were not at once.
    QmutexContended => qmutex_contended,
    /// Lockref operations done by compare-exchange alone.
    LockrefFast => lockref_fast,
    /// Lockref operations that took the lock.
    LockrefSlow => lockref_slow,
    /// Queued read-write lock: shared acquisitions.
    QrwlockRead => qrwlock_reads,
    /// Queued read-write lock: exclusive acquisitions.
    QrwlockWrite => qrwlock_writes,
    /// Queued read-write lock: acquisitions that had to queue.
    QrwlockContended => qrwlock_contended,
    /// Queued read-write lock: times a thread slept.
    QrwlockPark => qrwlock_parks,
    /// Batched list: operations done under the caller's own, uncontended lock.
    ListDirect => list_direct,
    /// Batched list: batches run.
    ListBatch => list_batches,
    /// Batched list: operations done by another thread than the one that asked.
    ListCombined => list_combined,
    /// File references taken.
    FileGet => file_gets,
    /// File references dropped.
    FilePut => file_puts,
}

/// Counts one `event`; nothing without feature `stats`.
#[inline(always)]
#[allow(dead_code, reason = "some events are counted only with `std`")]
pub(crate) fn count(event: Event) {
    count_n(event, 1);
}

/// Counts `n` times `event`; nothing without feature `stats`.
#[inline(always)]
#[allow(dead_code, reason = "some events are counted only with `std`")]
pub(crate) fn count_n(event: Event, n: u64) {
    #[cfg(all(feature = "stats", not(any(loom, shuttle))))]
    counted::COUNTERS.add(event as usize, n);
    #[cfg(not(all(feature = "stats", not(any(loom, shuttle)))))]
    let _ = (event, n);
}

/// What the primitives of this process have done so far.
///
/// ```
/// use vfscale_sync::{QRwLock, stats};
///
/// let before = stats::snapshot().qrwlock_reads;
/// drop(QRwLock::new(1).read());
/// let counted = stats::snapshot().qrwlock_reads - before;
/// assert_eq!(counted, u64::from(cfg!(feature = "stats")));
/// ```
pub fn snapshot() -> PrimitiveStats {
    #[allow(unused_mut, reason = "only filled in where there is something to fill in")]
    let mut stats = PrimitiveStats::default();
    #[cfg(all(feature = "stats", not(any(loom, shuttle))))]
    counted::fill(&mut stats);
    #[cfg(feature = "std")]
    {
        stats.rcu_grace_periods = crate::rcu::stats().grace_periods;
    }
    stats
}

#[cfg(all(test, feature = "std", not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn many_short_threads_lose_no_count() {
        static COUNTERS: Counters<2> = Counters::new();
        for _ in 0..20 {
            crate::testing::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        for _ in 0..100 {
                            COUNTERS.add(0, 1);
                            COUNTERS.add(1, 3);
                            COUNTERS.add(1, 1_u64.wrapping_neg());
                        }
                    });
                }
            });
        }
        assert_eq!(COUNTERS.sum(0), 16_000);
        assert_eq!(COUNTERS.sum(1), 32_000);
    }

    #[test]
    fn more_threads_than_shards_lose_no_count() {
        static COUNTERS: Counters<1> = Counters::new();
        let together = std::sync::Barrier::new(80);
        crate::testing::scope(|scope| {
            for _ in 0..80 {
                scope.spawn(|| {
                    together.wait();
                    (0..100).for_each(|_| COUNTERS.add(0, 1));
                });
            }
        });
        assert_eq!(COUNTERS.sum(0), 8_000);
    }
}
