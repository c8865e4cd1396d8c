//! The smallest lock that sleeps: for a structure that already has its data elsewhere.
//!
//! # Word
//! FREE · HELD · HELD_SLEEPERS (somebody may sleep; a thread that has slept takes the lock with
//! this value, since others may sleep on)
//!
//! # Who writes
//! FREE to HELD, or to HELD_SLEEPERS after a sleep: anyone. HELD to HELD_SLEEPERS: who is about to sleep. To FREE: the holder.
//!
//! # A race, step by step
//! ```text
//!  T1 holds                              T2
//!                                        swaps HELD_SLEEPERS in: was HELD
//!  swaps FREE in: was HELD_SLEEPERS
//!  wakes one, by address                 sleeps only while HELD_SLEEPERS stands: returns, swaps, has the lock
//! ```
//!
//! # Fairness
//! None: a newcomer may pass who was woken.
//!
//! # Orderings
//! - RL-1 unlock (Release) -> lock (Acquire): whatever the lock guards
//!
//! # Source
//! Drepper, "Futexes are tricky" (2004), the mutex of three values.

use crate::backoff::{Backoff, Turn};
use crate::lockdep;
use crate::park::{park32, wake32};
use crate::prim::Ordering::{Acquire, Relaxed, Release};
use crate::prim::{AtomicU32, const_fn};

const FREE: u32 = 0;
const HELD: u32 = 1;
const HELD_SLEEPERS: u32 = 2;

/// A mutual exclusion without data or guard: its owner pairs the calls.
#[derive(Debug)]
pub(crate) struct RawLock(AtomicU32);

impl RawLock {
    const_fn! {
        pub(crate) fn new() -> Self {
            Self(AtomicU32::new(FREE))
        }
    }

    #[inline]
    pub(crate) fn lock(&self) {
        if !self.try_lock() {
            self.lock_slow();
        }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        // RL-1 Acquire: the critical sections before ours.
        self.0.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    /// Whether it was locked a moment ago.
    #[allow(dead_code, reason = "only some configurations ask")]
    pub(crate) fn is_locked(&self) -> bool {
        // Relaxed: a hint.
        self.0.load(Relaxed) != FREE
    }

    #[cold]
    fn lock_slow(&self) {
        lockdep::contended();
        let mut backoff = Backoff::new();
        while backoff.pause() == Turn::Again {
            if self.try_lock() {
                return;
            }
        }
        // RL-1 Acquire: as above. The swap announces us, and takes the lock if it was free.
        while self.0.swap(HELD_SLEEPERS, Acquire) != FREE {
            park32(&self.0, HELD_SLEEPERS);
        }
    }

    #[inline]
    pub(crate) fn unlock(&self) {
        let word = &raw const self.0;
        // RL-1 Release: our critical section. The last touch of the lock.
        if self.0.swap(FREE, Release) == HELD_SLEEPERS {
            wake32(word, 1);
        }
    }
}
