//! A number that is odd while a writer is at work, so that readers need not write anything.
//!
//! # Why
//! A reader of several fields notices that they changed under it, at the cost of two loads.
//!
//! # Reader
//! `begin` -> read the fields (relaxed atomics) -> `retry`: `true` means that what was read may be
//! mixed
//!
//! # Writer
//! holds the lock that orders writers: odd -> write the fields (relaxed atomics) -> even
//!
//! # A race, step by step
//! ```text
//!  T1 reader                             T2 writer
//!  `begin`: 6
//!  reads the first field
//!                                        6 -> 7, fence, writes both fields, 7 -> 8
//!  reads the second field: T2's
//!  fence, `retry`: 8 is not 6, again
//! ```
//! Having read what T2 wrote, T1 must see a number that T2 wrote before it (SQ-2).
//!
//! # Never waits
//! [`SeqCount::begin`] clears the low bit of what it reads. If a writer was at work, no value of
//! the sequence equals that, and `retry` sends the reader round again: readers do not spin on a
//! writer that lost its processor.
//!
//! # Two types
//! [`SeqCount`] leaves the writers' lock to its owner. [`SeqLock`] brings one, which a reader that
//! has retried often enough takes too.
//!
//! # Wraps
//! after 2^31 writes. A reader that sleeps through exactly that many is fooled; nobody has met one.
//!
//! # Orderings
//! - SQ-1 end of a write (Release) -> `begin` (Acquire): a reader that starts at this number sees
//!   that write whole
//! - SQ-2 after the odd number, fence (Release) before the fields -> fence (Acquire) in `retry`,
//!   before the number is read again: a reader that saw any new field sees the odd number or a
//!   later one
//!
//! # Source
//! kernel seqlock; the orderings are Boehm's, "Can seqlocks get along with programming language memory models?" (2012). We
//! differ: a read that begins during a write is lost at once instead of waiting for it.

use crate::backoff::{Backoff, Turn};
use crate::lockdep::{self, Mode};
use crate::prim::Ordering::{Acquire, Relaxed, Release};
use crate::prim::{AtomicU32, const_fn, fence};
use crate::raw_lock::RawLock;

/// A sequence counter whose writers are ordered by a lock of its owner.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
/// use vfscale_sync::{QMutex, SeqCount};
///
/// static WRITERS: QMutex<()> = QMutex::new(());
/// static SEQ: SeqCount = SeqCount::new();
/// static PLACE: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];
///
/// let lock = WRITERS.lock();
/// let write = SEQ.write();
/// PLACE.iter().for_each(|part| part.store(7, Relaxed));
/// drop(write);
/// drop(lock);
///
/// let place = loop {
///     let start = SEQ.begin();
///     let place = [PLACE[0].load(Relaxed), PLACE[1].load(Relaxed)];
///     if !SEQ.retry(start) {
///         break place;
///     }
/// };
/// assert_eq!(place, [7, 7]);
/// ```
#[derive(Debug)]
pub struct SeqCount(AtomicU32);

impl SeqCount {
    const_fn! {
        /// Starts at zero.
        #[must_use]
        pub fn new() -> Self {
            Self(AtomicU32::new(0))
        }
    }

    /// Starts a read. Never odd: a read that begins during a write is told to retry.
    #[inline]
    #[must_use = "the read ends with `retry` of this number"]
    pub fn begin(&self) -> u32 {
        // SQ-1 Acquire: the write that ended with this number comes before our reads.
        self.0.load(Acquire) & !1
    }

    /// Whether a write was at work since `start`, so that what was read is worth nothing.
    #[inline]
    #[must_use = "true means that what was read may be mixed"]
    pub fn retry(&self, start: u32) -> bool {
        // SQ-2 Acquire: if one of our reads saw a field of a writer, the next load sees its odd
        // number.
        fence(Acquire);
        // Relaxed: ordered by the fence.
        self.0.load(Relaxed) != start
    }

    /// The number as it is, odd during a write. For a writer, who holds the lock, or for a
    /// statistic.
    #[inline]
    #[must_use]
    pub fn value(&self) -> u32 {
        // Relaxed: the lock orders it for a writer; nobody else may conclude anything.
        self.0.load(Relaxed)
    }

    /// Starts a write, which ends when the guard is dropped. The caller holds the lock that orders
    /// writers.
    #[inline]
    pub fn write(&self) -> SeqWrite<'_> {
        // Relaxed: writers are ordered by their lock, readers by the fence.
        let start = self.0.load(Relaxed);
        debug_assert!(
            start & 1 == 0,
            "SeqCount::write during a write: the writers' lock is not held"
        );
        self.0.store(start.wrapping_add(1), Relaxed);
        // SQ-2 Release: the odd number comes before every field we write.
        fence(Release);
        SeqWrite { count: self, end: start.wrapping_add(2) }
    }

    /// Makes every read that is under way retry, without a write. The caller holds the lock that
    /// orders writers.
    #[inline]
    pub fn invalidate(&self) {
        // Relaxed: writers are ordered by their lock.
        let start = self.0.load(Relaxed);
        // SQ-1 Release: what was changed before, for readers that begin now.
        self.0.store(start.wrapping_add(2), Release);
    }
}

impl Default for SeqCount {
    fn default() -> Self {
        Self::new()
    }
}

/// A write of a [`SeqCount`] under way.
#[must_use = "the write ends as soon as the guard is dropped"]
#[derive(Debug)]
pub struct SeqWrite<'a> {
    count: &'a SeqCount,
    end: u32,
}

impl Drop for SeqWrite<'_> {
    #[inline]
    fn drop(&mut self) {
        // SQ-1 Release: all fields written come before the even number.
        self.count.0.store(self.end, Release);
    }
}

/// A sequence counter with its own lock for writers, and for readers who have lost patience.
///
/// ```
/// use vfscale_sync::Ordering::Relaxed;
/// use vfscale_sync::SeqLock;
/// use std::sync::atomic::AtomicU32;
///
/// static LOCK: SeqLock = SeqLock::new();
/// static PAIR: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];
///
/// {
///     let _write = LOCK.write();
///     PAIR[0].store(7, Relaxed);
///     PAIR[1].store(7, Relaxed);
/// }
/// let pair = loop {
///     let start = LOCK.read_begin();
///     let pair = (PAIR[0].load(Relaxed), PAIR[1].load(Relaxed));
///     if !LOCK.read_retry(start) {
///         break pair;
///     }
/// };
/// assert_eq!(pair, (7, 7));
/// ```
#[derive(Debug)]
pub struct SeqLock {
    count: SeqCount,
    lock: RawLock,
    class: lockdep::Class,
}

impl SeqLock {
    const_fn! {
        /// Unlocked.
        #[must_use]
        #[cfg_attr(feature = "lockdep", track_caller)]
        pub fn new() -> Self {
            let class = lockdep::Class::here();
            Self { count: SeqCount::new(), lock: RawLock::new(), class }
        }
    }

    /// Starts a read. Gives a writer at work a few steps to finish; if it does not, the read will
    /// be told to retry.
    #[inline]
    #[must_use = "the read ends with `read_retry` of this number"]
    pub fn read_begin(&self) -> u32 {
        if self.count.value() & 1 != 0 {
            self.await_writer();
        }
        self.count.begin()
    }

    /// A read that begins during a write is lost in advance, so a short wait costs nothing.
    #[cold]
    fn await_writer(&self) {
        let mut backoff = Backoff::new();
        while self.count.value() & 1 != 0 && backoff.pause() == Turn::Again {}
    }

    /// Whether a write was at work since `start`.
    #[inline]
    #[must_use = "true means that what was read may be mixed"]
    pub fn read_retry(&self, start: u32) -> bool {
        self.count.retry(start)
    }

    /// Locks out other writers and makes readers retry until the guard is dropped.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn write(&self) -> SeqLockWrite<'_> {
        lockdep::acquire(self.class.key(), Mode::Exclusive, || self.lock.lock());
        SeqLockWrite { write: Some(self.count.write()), lock: self }
    }

    /// Locks out writers without disturbing readers: for a reader that retried often enough.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn read_exclusive(&self) -> SeqLockRead<'_> {
        lockdep::acquire(self.class.key(), Mode::Exclusive, || self.lock.lock());
        SeqLockRead { lock: self }
    }
}

impl Default for SeqLock {
    fn default() -> Self {
        Self::new()
    }
}

/// A write of a [`SeqLock`] under way.
#[must_use = "the write ends as soon as the guard is dropped"]
#[derive(Debug)]
pub struct SeqLockWrite<'a> {
    /// Taken out in `drop`: the number turns even before the lock is free.
    write: Option<SeqWrite<'a>>,
    lock: &'a SeqLock,
}

impl Drop for SeqLockWrite<'_> {
    fn drop(&mut self) {
        self.write = None;
        lockdep::released(self.lock.class.key());
        self.lock.lock.unlock();
    }
}

/// The lock of a [`SeqLock`], held for reading: no writer is at work.
#[must_use = "writers are let in as soon as the guard is dropped"]
#[derive(Debug)]
pub struct SeqLockRead<'a> {
    lock: &'a SeqLock,
}

impl Drop for SeqLockRead<'_> {
    fn drop(&mut self) {
        lockdep::released(self.lock.class.key());
        self.lock.lock.unlock();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
