//! Which of several locked lists a slot is on: written in the slot, under that list's lock.
//!
//! # Why
//! Any thread may take off a slot that any thread put on, so the slot itself must lead to the lock.
//!
//! # Word
//! 0 on no list · n+1 on list n
//!
//! # Who writes
//! 0 to n+1: the holder of lock n, who put it on. Back to 0: the holder of lock n, who took it off.
//!
//! # A race, step by step
//! ```text
//!  T1 takes off                          T2 takes off, and puts on list 4
//!  reads 3: will lock 3
//!                                        locks 3, unlinks, mark := 0, unlocks
//!                                        locks 4, links, mark := 5, unlocks
//!  locks 3, reads 5: not here any more
//!  unlocks 3, locks 4
//! ```
//! A mark that reads n+1 under lock n stays so until the unlock: who changes it holds that lock.
//!
//! # Orderings
//! - SM-1 mark := 0 (Release) -> the look before the slot is put on again (Acquire): the links as
//!   the removal left them
//!
//! Everything else is ordered by the locks.
//!
//! # Distrust
//! Two threads that put one slot on at the same time break the contract, and may both succeed: the
//! lists are wrong then.
//!
//! # Source
//! dlock-list, of the replies to the list_batch thread.

use crate::prim::Ordering::{Acquire, Relaxed, Release};
use crate::prim::{AtomicU32, const_fn};
use crate::{QMutex, QMutexGuard};

/// The number of the list that a slot is on; a field of the slot.
#[derive(Debug)]
pub struct ShardMark(AtomicU32);

impl ShardMark {
    const_fn! {
        /// On no list.
        #[must_use]
        pub fn new() -> Self {
            Self(AtomicU32::new(0))
        }
    }

    /// Whether the slot was on a list a moment ago.
    #[inline]
    pub fn is_set(&self) -> bool {
        // SM-1 Acquire: links of a slot that is on no list are as its removal left them.
        self.0.load(Acquire) != 0
    }

    /// Whether the slot is on list `number`. Exact for the holder of its lock.
    #[inline]
    pub(crate) fn is(&self, number: usize) -> bool {
        // Relaxed: the lock orders it.
        self.0.load(Relaxed) as usize == number + 1
    }

    /// The slot is on list `number`, whose lock the caller holds.
    #[inline]
    pub fn set(&self, number: usize) {
        // Relaxed: who reads it takes the lock before it acts.
        self.0.store(number as u32 + 1, Relaxed);
    }

    /// The slot is on no list. The caller holds the lock of the one it was on.
    #[inline]
    pub fn clear(&self) {
        // SM-1 Release: the links.
        self.0.store(0, Release);
    }

    /// Locks the list that the slot is on, and answers its number; `None` if it is on none.
    #[inline]
    pub fn lock<'a, L: 'a>(
        &self,
        list: impl Fn(usize) -> Option<&'a QMutex<L>>,
    ) -> Option<(usize, QMutexGuard<'a, L>)> {
        loop {
            // Relaxed: read again under the lock.
            let number = (self.0.load(Relaxed) as usize).checked_sub(1)?;
            let locked = list(number)?.lock();
            if self.is(number) {
                return Some((number, locked));
            }
        }
    }
}

impl Default for ShardMark {
    fn default() -> Self {
        Self::new()
    }
}
