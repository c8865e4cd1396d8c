//! The lock and the count in one 64-bit word, changed together by compare-exchange.
//!
//! # Word
//! bits 0..32 the count, signed · bits 32..64 the lock: HELD, SLEEPERS
//!
//! In this order one comparison of the whole word says that the lock is free and the count between
//! two bounds, and the new word is the old one plus or minus 1.
//!
//! # Who writes
//! Lock half 0 (free): anyone, by compare-exchange. HELD set: the holder alone changes the count; others
//! only add SLEEPERS. So the count stands still under the lock, and the holder keeps it in its
//! guard.
//!
//! # Unlock
//! one 64-bit swap of (count, free): the last touch of the object. A wake afterwards goes by
//! address.
//!
//! # The sleep bit, step by step
//! ```text
//!  T1 holds                              T2, T3 wait
//!                                        T2 sets SLEEPERS by compare-exchange from a held word, sleeps; T3 sleeps too
//!  swap answers (HELD | SLEEPERS)
//!  wakes one                             T2 takes (HELD | SLEEPERS): T3 may still be asleep, so the bit has to stay
//! ```
//!
//! # Back to fast
//! A locked word does not send everybody to the lock for good: each operation spins for a bounded
//! time and tries without the lock again, and only then gives up.
//!
//! # Orderings
//! LR-1, LR-2 and LR-3 of the parent module.

use super::{Change, Fast, SATURATED};
use crate::backoff::{Backoff, Turn};
use crate::park::{park_high_half, wake_high_half};
use crate::prim::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::prim::{AtomicU64, const_fn, fence, spin_loop};
use crate::stats::{self, Event};

/// The lock is held.
const HELD: u64 = 1 << 32;
/// Somebody sleeps until the lock is free. Only ever set together with [`HELD`].
const SLEEPERS: u64 = 2 << 32;

/// Failed compare-exchanges before an operation gives up on the lock-free way (R1.3).
const TRIES: u32 = if cfg!(any(loom, shuttle)) { 3 } else { 100 };
/// Pauses after a failed compare-exchange; they double up to the second figure (R1.4). Staying away
/// for about ten transfers of the line lets the winner do many operations in its own cache.
/// Measured with two threads: 1.6 times parking_lot's rate at 32, 1.25 at 16, 1.1 at 16 after a
/// second try at once.
const PAUSES: (u32, u32) = if cfg!(any(loom, shuttle)) { (0, 0) } else { (32, 128) };

const fn pack(count: i32, lock: u64) -> u64 {
    count.cast_unsigned() as u64 | lock
}

/// One reading of the word.
#[derive(Clone, Copy)]
struct Snapshot(u64);

impl Snapshot {
    fn count(self) -> i32 {
        (self.0 as u32).cast_signed()
    }

    fn is_free(self) -> bool {
        self.0 >> 32 == 0
    }

    fn has(self, bit: u64) -> bool {
        self.0 & bit != 0
    }
}

pub(super) struct Word(AtomicU64);

impl Word {
    const_fn! {
        /// Free, with this count.
        pub(super) fn new(count: i32) -> Self {
            Self(AtomicU64::new(pack(count, 0)))
        }
    }

    /// Sets the count of a word that nobody else uses.
    pub(super) fn reset(&self, count: i32) {
        // LR-3 Release: the fields written so far come with the count, even for who holds a stale
        // id.
        self.0.store(pack(count, 0), Release);
    }

    /// The count as it was a moment ago.
    #[inline]
    pub(super) fn count(&self) -> i32 {
        // Relaxed: a hint; whoever acts on it re-checks under the lock (LR-2) or by a successful
        // get (LR-3).
        Snapshot(self.0.load(Relaxed)).count()
    }

    /// Whether the lock was held a moment ago.
    pub(super) fn is_held(&self) -> bool {
        // Relaxed: only shown, or asserted where nobody else uses the word.
        !Snapshot(self.0.load(Relaxed)).is_free()
    }

    /// Locks if the lock is free now, and answers the count.
    #[inline]
    pub(super) fn try_lock(&self) -> Option<i32> {
        // Relaxed: the compare-exchange re-checks it.
        let mut seen = Snapshot(self.0.load(Relaxed));
        while seen.is_free() {
            match self.take_from(seen, HELD) {
                Ok(count) => return Some(count),
                Err(fresh) => seen = fresh,
            }
        }
        None
    }

    /// Locks, asleep if it takes long, and answers the count.
    pub(super) fn lock_slow(&self) -> i32 {
        let mut backoff = Backoff::new();
        let mut bits = HELD;
        loop {
            // Relaxed: the compare-exchange re-checks it.
            let seen = Snapshot(self.0.load(Relaxed));
            if seen.is_free() {
                match self.take_from(seen, bits) {
                    Ok(count) => return count,
                    Err(_) => continue,
                }
            }
            if backoff.pause() == Turn::Again {
                continue;
            }
            if !seen.has(SLEEPERS) {
                // Relaxed: the bit carries no data. The holder's swap either comes first and fails
                // this, or answers the bit.
                let marked = self.0.compare_exchange(seen.0, seen.0 | SLEEPERS, Relaxed, Relaxed);
                if marked.is_err() {
                    continue;
                }
            }
            park_high_half(&self.0, ((HELD | SLEEPERS) >> 32) as u32);
            // Others may sleep on; whoever takes the lock after a sleep answers for them.
            bits = HELD | SLEEPERS;
        }
    }

    #[inline]
    fn take_from(&self, seen: Snapshot, bits: u64) -> Result<i32, Snapshot> {
        // LR-1, LR-2 Acquire: all uses before their drops, and all earlier critical sections, come
        // before ours.
        match self.0.compare_exchange_weak(seen.0, seen.0 | bits, Acquire, Relaxed) {
            Ok(_) => Ok(seen.count()),
            Err(fresh) => Err(Snapshot(fresh)),
        }
    }

    /// Unlocks and sets the count. The caller holds the lock.
    #[inline]
    pub(super) fn unlock(&self, count: i32) {
        let word = &raw const self.0;
        // LR-2 Release: our critical section. LR-3 Release: for who gets a reference next. Not a
        // store: a waiter may be adding SLEEPERS at this moment. The last touch of the object.
        let old = Snapshot(self.0.swap(pack(count, 0), Release));
        if old.has(SLEEPERS) {
            wake_high_half(word, 1);
        }
    }

    /// Changes the count at the first try and answers the new one, if the lock is free and nothing
    /// else is in the way.
    #[inline]
    pub(super) fn try_change(&self, change: Change) -> Option<i32> {
        // Relaxed: the compare-exchange re-checks it.
        let seen = self.0.load(Relaxed);
        // From `least` to the last count that is counted, and free: anything else is larger.
        let least = pack(change.least, 0);
        if seen.wrapping_sub(least) >= pack(SATURATED, 0) - least {
            return None;
        }
        let new = seen.wrapping_add_signed(i64::from(change.by));
        // LR-1 Release, so that a drop comes after our uses; Acquire for the drop that reaches
        // zero.
        // LR-3 Acquire: a reference got from a stale id sees what the last holder wrote.
        self.0.compare_exchange_weak(seen, new, AcqRel, Relaxed).ok()?;
        stats::count(Event::LockrefFast);
        Some(Snapshot(new).count())
    }

    /// Changes the count while the lock is free: all that did not go through at the first try.
    /// Contention, a held lock, a saturated count, a refusal.
    #[cold]
    pub(super) fn change(&self, change: Change) -> Fast {
        let mut backoff = Backoff::new();
        let mut pauses = PAUSES.0;
        let mut tries = 0;
        while tries < TRIES {
            // Relaxed: the compare-exchange re-checks it.
            let seen = Snapshot(self.0.load(Relaxed));
            if !seen.is_free() {
                // Wait for the unlock and come back to the lock-free way, but not for ever.
                match backoff.pause() {
                    Turn::Again => continue,
                    Turn::Park => return Fast::GaveUp,
                }
            }
            let Some(count) = change.of(seen.count()) else { return Fast::Stopped };
            if count == seen.count() {
                // LR-3 Acquire: as for a reference that was counted.
                fence(Acquire);
                return Fast::Done(count);
            }
            // The first try was the caller's. It lost against somebody: stay away first.
            if tries > 0
                // LR-1, LR-3 AcqRel: as in `try_change`.
                && self.0.compare_exchange_weak(seen.0, pack(count, 0), AcqRel, Relaxed).is_ok()
            {
                stats::count(Event::LockrefFast);
                return Fast::Done(count);
            }
            tries += 1;
            for _ in 0..pauses {
                spin_loop();
            }
            pauses = (pauses * 2).min(PAUSES.1);
        }
        Fast::GaveUp
    }
}
