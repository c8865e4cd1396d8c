//! The grace-period protocol by itself: one counter, one word per reader.
//!
//! # Words
//! - `Domain::grace`: the number of grace periods ever started, from 1.
//! - `Domain::completed`: the highest grace period that is over.
//! - `Reader::active`: 0 outside a section, inside it the value of `grace` read on entry.
//!
//! # Who writes
//! `active`: its thread alone. `grace` and `completed`: whoever holds the lock of the caller (see `registry.rs`).
//!
//! # Protocol
//! ```text
//! reader                              writer
//! v = grace                           unlink
//! active = v          (RCU-2)         heavy()            (RCU-1)
//! light()             (RCU-1)         new = grace + 1; grace = new
//! follow pointers                     for each reader: until active is 0 or >= new   (RCU-2)
//! active = 0          (RCU-2)         completed = new    (RCU-3)
//!                                     free
//! ```
//! RCU-1: either the reader's `active` is seen by the scan, or the reader's loads see the unlink. In the first case `v` was
//! loaded before the barrier, and the counter was raised after it, so `v < new` and the writer waits.
//!
//! The counter must be raised *after* the barrier. Raised before, a reader may load the new value while its later loads
//! still miss the unlink; the writer takes it for a young reader and frees under it. One counter that only grows needs no
//! second phase: a reader that was slow to store an old `v` is merely waited for.
//!
//! # Orderings
//! - RCU-1 `light` after entry -> `heavy` after the unlink: the asymmetric fence, a store and a load on each side.
//! - RCU-2 both stores to `active` (Release) -> the scan's load (Acquire): the section's reads come before the free. The
//!   store on *entry* is Release as well, since it may be the one the scan reads, and it says that the section before is over.
//! - RCU-3 `completed` (Release) -> `is_complete` (Acquire): who frees on another's grace period comes after its readers.
//! - RCU-4 `snapshot`: a fence before loading `grace`. A grace period numbered two above the value loaded began after the
//!   fence: one above may have passed its barrier already and not yet raised the counter.

use crate::fence;
use crate::prim::{AtomicU64, Ordering};

/// Grace periods of one set of readers.
#[derive(Debug)]
pub struct Domain {
    grace: AtomicU64,
    completed: AtomicU64,
}

/// One reader's word.
#[derive(Debug)]
pub struct Reader {
    active: AtomicU64,
}

impl Domain {
    /// A domain in which no grace period has run.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Domain { grace: AtomicU64::new(1), completed: AtomicU64::new(1) }
    }

    /// A domain in which no grace period has run.
    #[cfg(loom)]
    pub fn new() -> Self {
        Domain { grace: AtomicU64::new(1), completed: AtomicU64::new(1) }
    }

    /// Starts a grace period and returns its number. The caller holds the lock that orders writers, and no grace period is
    /// in progress.
    pub fn start_locked(&self) -> u64 {
        // RCU-1: after everything the callers of this grace period have unlinked, before the counter.
        fence::heavy();
        // Relaxed load: we hold the writers' lock.
        let new = self.grace.load(Ordering::Relaxed) + 1;
        // RCU-4: only now, with the barrier passed, may a `snapshot` count this grace period as begun.
        // unmodelled release: the barrier above releases too, in every form of it.
        self.grace.store(new, Ordering::Release);
        new
    }

    /// Declares the grace period `number` over: each reader has been seen quiet.
    pub fn complete_locked(&self, number: u64) {
        // RCU-3 Release: the scan's acquires come before anybody frees on the strength of this.
        self.completed.store(number, Ordering::Release);
    }

    /// The number of a grace period in progress. The caller holds the writers' lock.
    pub fn in_progress_locked(&self) -> Option<u64> {
        // Relaxed: only the holder of the writers' lock writes these.
        let grace = self.grace.load(Ordering::Relaxed);
        (self.completed.load(Ordering::Relaxed) != grace).then_some(grace)
    }

    /// The grace period that will cover everything unlinked before this call, for a caller who holds the writers' lock: the
    /// next to be started.
    pub fn snapshot_locked(&self) -> u64 {
        self.grace.load(Ordering::Relaxed) + 1
    }

    /// The grace period that will cover everything unlinked before this call, for a caller without the lock.
    pub fn snapshot(&self) -> u64 {
        // RCU-4: our unlinks come before this load in every thread's eyes.
        crate::prim::fence(Ordering::SeqCst);
        self.grace.load(Ordering::Relaxed) + 2
    }

    /// Whether the grace period `number` is over.
    pub fn is_complete(&self, number: u64) -> bool {
        // RCU-3 Acquire.
        self.completed.load(Ordering::Acquire) >= number
    }

    /// How many grace periods have run to their end.
    pub fn completed(&self) -> u64 {
        // Relaxed: only a statistic.
        self.completed.load(Ordering::Relaxed) - 1
    }
}

impl Reader {
    /// A reader outside any section.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Reader { active: AtomicU64::new(0) }
    }

    /// A reader outside any section.
    #[cfg(loom)]
    pub fn new() -> Self {
        Reader { active: AtomicU64::new(0) }
    }

    /// A reader that is in a section and never leaves it.
    #[cfg(all(feature = "std", not(any(loom, shuttle))))]
    pub(super) const fn in_section() -> Self {
        Reader { active: AtomicU64::new(u64::MAX) }
    }

    /// Whether the reader's own thread is in a section.
    #[cfg(all(feature = "std", not(any(loom, shuttle))))]
    #[inline(always)]
    pub(super) fn is_in_section(&self) -> bool {
        self.active() != 0
    }

    /// Begins a section; its thread is in none, or ends the one it is in.
    #[inline(always)]
    pub fn enter(&self, domain: &Domain) {
        // Relaxed: an old value only makes a writer wait for us without need.
        let now = domain.grace.load(Ordering::Relaxed);
        // RCU-2 Release: keeps the previous section before this store.
        self.active.store(now, Ordering::Release);
        // RCU-1: the store above before every load of the section.
        fence::light();
    }

    /// Ends the section.
    #[inline(always)]
    pub fn leave(&self) {
        // RCU-2 Release: the section's loads come before this store.
        self.active.store(0, Ordering::Release);
    }

    /// The word, for its own thread or for a report: 0 outside a section.
    #[cfg(all(feature = "std", not(any(loom, shuttle))))]
    #[inline(always)]
    pub(super) fn active(&self) -> u64 {
        // Relaxed: its thread alone writes it; others only report it.
        self.active.load(Ordering::Relaxed)
    }

    /// Whether this reader cannot hold anything that was unlinked before the grace period `number` began.
    pub fn is_quiet(&self, number: u64) -> bool {
        // RCU-2 Acquire.
        let active = self.active.load(Ordering::Acquire);
        active == 0 || active >= number
    }
}
