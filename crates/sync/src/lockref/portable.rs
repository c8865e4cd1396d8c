//! A 32-bit lock beside a 32-bit count: every operation takes the lock.
//!
//! # Why
//! Some processors have no 64-bit compare-exchange. The answers are those of the packed word, so
//! that a program may be moved from one to the other; only the lock-free way is gone. Feature
//! `portable` selects it anywhere, and the tests and models run on both.
//!
//! # Who writes
//! The holder of the lock, and nobody else. Whoever reads the count without it reads an old one.
//!
//! # Locked by whom
//! An operation holds the lock for a few instructions, so one that finds it held waits as the
//! packed word's do, and gives up only on a holder that keeps it.
//!
//! # Orderings
//! The lock's RL-1 stands for LR-1, LR-2 and LR-3 of the parent module: every change of the count is a
//! critical section. The unlock is the last touch of the object.

use super::{Change, Fast};
use crate::backoff::{Backoff, Turn};
use crate::prim::Ordering::Relaxed;
use crate::prim::{AtomicU32, const_fn};
use crate::raw_lock::RawLock;

pub(super) struct Word {
    lock: RawLock,
    /// Written by the holder of `lock`.
    count: AtomicU32,
}

impl Word {
    const_fn! {
        /// Free, with this count.
        pub(super) fn new(count: i32) -> Self {
            Self { lock: RawLock::new(), count: AtomicU32::new(count.cast_unsigned()) }
        }
    }

    /// Sets the count of a word that nobody else uses.
    pub(super) fn reset(&self, count: i32) {
        self.lock.lock();
        self.unlock(count);
    }

    /// The count as it was a moment ago.
    #[inline]
    pub(super) fn count(&self) -> i32 {
        // Relaxed: a hint, or read under the lock (RL-1).
        self.count.load(Relaxed).cast_signed()
    }

    /// Whether the lock was held a moment ago.
    pub(super) fn is_held(&self) -> bool {
        self.lock.is_locked()
    }

    /// Locks if the lock is free now, and answers the count.
    #[inline]
    pub(super) fn try_lock(&self) -> Option<i32> {
        self.lock.try_lock().then(|| self.count())
    }

    /// Locks, asleep if it takes long, and answers the count.
    pub(super) fn lock_slow(&self) -> i32 {
        self.lock.lock();
        self.count()
    }

    /// Unlocks and sets the count. The caller holds the lock.
    #[inline]
    pub(super) fn unlock(&self, count: i32) {
        // Relaxed: published by the unlock (RL-1).
        self.count.store(count.cast_unsigned(), Relaxed);
        self.lock.unlock();
    }

    /// There is no way without the lock.
    #[inline]
    pub(super) fn try_change(&self, _: Change) -> Option<i32> {
        None
    }

    /// Changes the count under the lock, if the lock can be had soon.
    pub(super) fn change(&self, change: Change) -> Fast {
        let mut backoff = Backoff::new();
        while !self.lock.try_lock() {
            if backoff.pause() == Turn::Park {
                return Fast::GaveUp;
            }
        }
        let count = self.count();
        let new = change.of(count);
        self.unlock(new.unwrap_or(count));
        new.map_or(Fast::Stopped, Fast::Done)
    }
}
