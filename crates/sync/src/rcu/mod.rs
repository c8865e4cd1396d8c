//! Read-copy-update: readers that store nothing others read, writers that wait for them.
//!
//! # Why
//! A reader of a shared structure must not find its memory freed. A count per object costs two contended writes per visit; a
//! lock costs the same. Here a reader announces itself in a word of its own (about a nanosecond, no contention), and who
//! removes an object frees it once every reader that might have seen it has moved on: after a *grace period*.
//!
//! # Use
//! ```
//! use vfscale_sync::rcu;
//!
//! let cell = rcu::RcuCell::empty();
//! let guard = rcu::pin();
//! cell.replace(Some(Box::new(1)), &guard);
//! assert_eq!(cell.load(&guard), Some(&1));
//! cell.replace(Some(Box::new(2)), &guard); // the 1 stays readable for this guard
//! ```
//! - [`pin`] opens a section: what is reachable inside it stays allocated until the [`Guard`] is dropped. Sections nest.
//! - [`Guard::defer`] runs a closure after a grace period, [`synchronize`] waits for one, [`barrier`] waits until everything
//!   deferred so far has run.
//!
//! - [`Qsbr`] is for a thread that reads all the time and says when it does not.
//!
//! Keep sections short. A section that lasts keeps everybody's garbage alive; [`stalls`] names its thread.
//!
//! # Who runs deferred calls, and when
//! The thread that deferred them, when it drops its outermost guard and has two batches of 1,024 calls, or one whose grace
//! period another thread has run meanwhile, or 1 MiB; if readers allow. Garbage is bounded: beyond eight batches or 32 MiB in
//! one thread, that thread waits for readers each time it leaves its outermost section, a millisecond at most, so that a lock
//! it holds meanwhile cannot deadlock with a reader. A thread that ends passes its garbage on. So dropping a guard may run
//! deferred calls: they must not block, and not take a lock that someone holds while dropping a guard. One that panics ends
//! there; the others of its batch run.
//!
//! # Distrust
//! A guard that is lost (`mem::forget`) keeps its section open for ever, and with it everybody's garbage. After a `fork` without an
//! `exec` the child must not use this module: sections and locks of threads that it does not have stay as they were. Nor must a
//! global allocator: this module allocates.
//!
//! # Parts
//! `domain`: the protocol and its orderings, as the models run it. `registry`: the threads' records. `local`: sections and
//! garbage of one thread. `defer`: containers. `cell`: [`RcuCell`]. `qsbr`: [`Qsbr`]. `stall`: reports. `explicit`: a [`Domain`] of one's own.
//!
//! # Source
//! Kernel RCU for the interface; the protocol is that of user-space RCU in its membarrier flavour, with one counter that
//! only grows in place of two phases.

mod cell;
#[cfg(not(any(loom, shuttle)))]
mod defer;
#[cfg(not(any(loom, shuttle)))]
#[expect(unreachable_pub, reason = "public under a model, where `tests/loom_rcu.rs` drives it")]
mod domain;
#[cfg(any(loom, shuttle))]
#[doc(hidden)]
pub mod domain;
#[cfg(not(any(loom, shuttle)))]
mod explicit;
#[cfg(not(any(loom, shuttle)))]
mod local;
mod qsbr;
#[cfg(not(any(loom, shuttle)))]
mod registry;
#[cfg(not(any(loom, shuttle)))]
mod stall;

pub use cell::RcuCell;
#[cfg(not(any(loom, shuttle)))]
pub use explicit::{Domain, DomainCell, Registration, Section};
pub use qsbr::Qsbr;
#[cfg(not(any(loom, shuttle)))]
pub use stall::{Stall, on_stall};

use std::marker::PhantomData;

/// A section of reading. Lends references to what RCU protects, and stays in its thread.
///
/// ```
/// use vfscale_sync::rcu;
///
/// let guard = rcu::pin();
/// guard.defer(0, || println!("nobody reads any more who read before"));
/// drop(guard);
/// rcu::barrier(); // has waited until it was printed
/// ```
#[must_use = "the section ends when the guard is dropped"]
#[derive(Debug)]
pub struct Guard {
    /// Neither `Send` nor `Sync`: the section is the thread's.
    _thread: PhantomData<*mut ()>,
}

/// Opens a section, or nests one more in the section this thread is in.
#[inline]
pub fn pin() -> Guard {
    imp::enter();
    Guard { _thread: PhantomData }
}

impl Guard {
    /// Runs `f` after a grace period, on some thread that drops its outermost guard (or in [`barrier`]). `bytes` is what `f`
    /// will free, about: it counts towards the limit on garbage.
    ///
    /// `f` must not block, see the module. If the process ends first, `f` never runs.
    #[inline]
    pub fn defer(&self, bytes: usize, f: impl FnOnce() + Send + 'static) {
        imp::defer(bytes, f);
    }

    /// Asks that what this thread has deferred be freed at the first chance, though it be less than a batch: for who waits
    /// for a deferred call without being able to block.
    pub fn expedite(&self) {
        imp::expedite();
    }
}

impl Clone for Guard {
    /// Nests one more section.
    #[inline]
    fn clone(&self) -> Self {
        pin()
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        imp::leave();
    }
}

/// Waits until every section that is open now, in any thread, has ended.
///
/// # Panics
/// If this thread is in a section: it would wait for itself.
pub fn synchronize() {
    assert!(
        !imp::in_section(),
        "rcu::synchronize inside a section of this thread would never return"
    );
    imp::synchronize();
}

/// Waits until everything deferred before this call, by any thread, has run.
///
/// # Panics
/// If this thread is in a section or inside a deferred call: it would wait for itself.
pub fn barrier() {
    assert!(!imp::in_section(), "rcu::barrier inside a section of this thread would never return");
    assert!(!imp::in_callback(), "rcu::barrier inside a deferred call would never return");
    imp::barrier();
}

/// The grace period that covers everything unlinked before this call, for [`poll`].
#[cfg(not(loom))]
pub(crate) fn snapshot() -> u64 {
    imp::snapshot()
}

/// Whether the grace period is over. If not, helps it along without waiting. Works inside a section too, though then the
/// grace period ends after it.
#[cfg(not(loom))]
pub(crate) fn poll(snapshot: u64) -> bool {
    imp::poll(snapshot)
}

/// Whether the running thread may call [`synchronize`] and [`barrier`]: it holds no guard and is in no deferred call.
pub fn may_wait() -> bool {
    !imp::in_section() && !imp::in_callback()
}

/// Whether the running thread holds a guard.
pub fn is_pinned() -> bool {
    imp::in_section()
}

/// What the process's domain has done so far. Taken without stopping anybody: the fields may be of slightly different
/// moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RcuStats {
    /// Grace periods that have ended.
    pub grace_periods: u64,
    /// Calls deferred.
    pub deferred: u64,
    /// Deferred calls that have run.
    pub freed: u64,
    /// Deferred calls that wait.
    pub pending: u64,
    /// Bytes that the waiting calls said they would free.
    pub pending_bytes: u64,
    /// The longest that a writer has slept for one reader: a section that lasts too long shows here.
    pub longest_wait_us: u64,
    /// Threads that are registered now.
    pub readers: u64,
    /// Whether readers run without a processor fence (the system's barrier is in use).
    pub asymmetric: bool,
}

/// What the process's domain has done so far.
pub fn stats() -> RcuStats {
    imp::stats()
}

/// The sections that hold a grace period up at this moment, with their threads: who keeps the garbage alive. Writers keep
/// account of them, so one that nobody waits for is not there, however long it lasts.
#[cfg(not(any(loom, shuttle)))]
#[must_use]
pub fn stalls() -> Vec<Stall> {
    registry::stalls()
}

/// The process's domain.
#[cfg(not(any(loom, shuttle)))]
mod imp {
    use super::RcuStats;
    pub(super) use super::local::{
        barrier, defer, enter, expedite, in_callback, in_section, leave, renew,
    };
    use super::registry::{DOMAIN, Wait, longest_wait_us, records, wait_for};
    use crate::prim::Ordering;

    pub(super) fn synchronize() {
        wait_for(DOMAIN.snapshot(), Wait::Forever);
    }

    pub(super) fn snapshot() -> u64 {
        DOMAIN.snapshot()
    }

    pub(super) fn poll(snapshot: u64) -> bool {
        wait_for(snapshot, Wait::Briefly)
    }

    pub(super) fn stats() -> RcuStats {
        let mut stats = RcuStats {
            grace_periods: DOMAIN.completed(),
            longest_wait_us: longest_wait_us(),
            asymmetric: crate::fence::is_asymmetric(),
            ..RcuStats::default()
        };
        let mut freed_bytes = 0_u64;
        // What is freed is read before what is deferred, so that `pending` is not below zero by our doing.
        for record in records() {
            stats.freed += record.counts.freed.load(Ordering::Relaxed);
            freed_bytes += record.counts.freed_bytes.load(Ordering::Relaxed);
        }
        let mut deferred_bytes = 0_u64;
        for record in records() {
            stats.deferred += record.counts.deferred.load(Ordering::Relaxed);
            deferred_bytes += record.counts.deferred_bytes.load(Ordering::Relaxed);
            stats.readers += u64::from(record.is_taken());
        }
        stats.pending = stats.deferred.saturating_sub(stats.freed);
        stats.pending_bytes = deferred_bytes.saturating_sub(freed_bytes);
        stats
    }
}

/// Under a model a grace period never ends: nothing deferred runs, which real runs may also do. The protocol itself is
/// modelled on `domain` alone (`tests/loom_rcu.rs`).
#[cfg(any(loom, shuttle))]
mod imp {
    use super::RcuStats;

    pub(super) fn enter() {}
    pub(super) fn renew() -> bool {
        true
    }
    pub(super) fn leave() {}
    pub(super) fn expedite() {}

    #[expect(clippy::mem_forget, reason = "what waits for a grace period that never ends")]
    pub(super) fn defer(_bytes: usize, f: impl FnOnce() + Send + 'static) {
        std::mem::forget(f);
    }

    pub(super) fn in_section() -> bool {
        false
    }

    pub(super) fn in_callback() -> bool {
        false
    }

    pub(super) fn synchronize() {
        panic!("a grace period never ends under a model")
    }

    pub(super) fn barrier() {
        panic!("a grace period never ends under a model")
    }

    #[cfg(not(loom))]
    pub(super) fn snapshot() -> u64 {
        0
    }

    #[cfg(not(loom))]
    pub(super) fn poll(_snapshot: u64) -> bool {
        false
    }

    pub(super) fn stats() -> RcuStats {
        RcuStats::default()
    }
}
