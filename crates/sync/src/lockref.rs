//! A spinlock and a reference count that change together in one 64-bit word.
//!
//! # Why
//! `lock; count += 1; unlock` becomes one compare-exchange while the lock is free.
//!
//! # Word
//! bits 0..32 the lock: HELD, SLEEPERS · bits 32..64 the count, signed
//!
//! # Count
//! 0 referenced by nobody but alive (a cache entry) · above: references · below: dead, for good ·
//! `i32::MAX`: saturated, never counted again, so the object leaks instead of wrapping into death
//!
//! # Who writes
//! Lock half 0: anyone, by compare-exchange. HELD set: the holder alone changes the count; others
//! only add SLEEPERS. So the count stands still under the lock, and the holder keeps it in its
//! guard.
//!
//! # Unlock
//! one 64-bit swap of (count, free): the last touch of the object. A wake afterwards goes by
//! address.
//!
//! # A race, step by step
//! ```text
//!  T1 `put_or_lock`                      T2 `get_not_dead`
//!  reads (free, 1): takes (HELD, 1)
//!                                        sees HELD, spins a little, queues for the lock
//!  returns LastLocked; `mark_dead`
//!  unlocks with (free, DEAD), wakes      locks, reads DEAD: Refused
//! ```
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
//! time and tries without the lock again, and only then locks.
//!
//! # Orderings
//! - LR-1 every drop (Release) -> the take of the lock and the drop that reach zero (Acquire): uses
//!   come before teardown
//! - LR-2 unlock (Release) -> lock (Acquire): the fields the lock guards
//! - LR-3 unlock, a drop and `reset` (Release) -> `get_not_zero`, `get_not_dead` (Acquire): who
//!   gets a reference from a stale id sees what the last holder wrote
//!
//! # Distrust
//! `count` and `is_dead` without the lock are old when they return. A count of zero read from
//! outside allows nothing.
//!
//! # Source
//! kernel lockref (2013). We differ: contended compare-exchanges keep away for a few pauses
//! (measured 1.6 times the rate of trying at once, at the price of uneven turns), the count
//! saturates, the lock sleeps.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use crate::backoff::{Backoff, Turn};
use crate::park::{LOW_HALF, park, wake};
use crate::prim::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::prim::{AtomicU64, const_fn, fence, spin_loop};
use crate::stats::{self, Event};

/// The lock is held.
const HELD: u64 = 1;
/// Somebody sleeps until the lock is free. Only ever set together with [`HELD`].
const SLEEPERS: u64 = 2;
/// A count that is no longer counted.
const SATURATED: i32 = i32::MAX;
/// What `mark_dead` stores: in the middle of the negative numbers, so that no stray step leaves
/// them.
const DEAD: i32 = i32::MIN / 2;

/// Failed compare-exchanges before an operation gives up on the lock-free way.
const TRIES: u32 = if cfg!(any(loom, shuttle)) { 3 } else { 100 };
/// Pauses after the first failed compare-exchange; they double up to the second figure. Staying
/// away lets the winner do many operations in its own cache.
const PAUSES: (u32, u32) = if cfg!(any(loom, shuttle)) { (0, 0) } else { (16, 64) };

const fn pack(count: i32, lock: u64) -> u64 {
    ((count.cast_unsigned() as u64) << 32) | lock
}

/// One reading of the word.
#[derive(Clone, Copy)]
struct Snapshot(u64);

impl Snapshot {
    fn count(self) -> i32 {
        ((self.0 >> 32) as u32).cast_signed()
    }

    fn is_free(self) -> bool {
        self.0 & LOW_HALF == 0
    }

    fn has(self, bit: u64) -> bool {
        self.0 & bit != 0
    }
}

/// Whether a reference was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "Refused means there is no reference"]
pub enum Get {
    /// The caller holds one more reference.
    Taken,
    /// The count was dead (or zero, where that refuses too). Nothing changed.
    Refused,
}

/// Answer of [`LockRef::put_return`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "Busy means the reference is still held"]
pub enum PutReturn {
    /// The reference is gone and this many are left, possibly none.
    Left(u32),
    /// Nothing changed: the word is locked or contended, or the count was not positive. Lock it and
    /// do it by hand.
    Busy,
}

/// Answer of [`LockRef::put_or_lock`].
#[derive(Debug)]
#[must_use = "LastLocked means the caller still holds its reference, and the lock"]
pub enum Put<'a, T> {
    /// The reference is gone; others are left.
    StillLive,
    /// It was the last one, or the object is dead already: the count is unchanged and the caller
    /// holds the lock.
    LastLocked(LockRefGuard<'a, T>),
}

/// A lock, a reference count, and a value that the lock guards. Eight bytes for `T = ()`.
///
/// The count is about the object that contains the `LockRef`; it frees nothing itself.
///
/// ```
/// use vfscale_sync::{Get, LockRef, Put};
///
/// let refs = LockRef::new(1, ());
/// refs.get();
/// assert!(matches!(refs.put_or_lock(), Put::StillLive));
/// match refs.put_or_lock() {
///     Put::LastLocked(mut guard) => guard.mark_dead(),
///     Put::StillLive => unreachable!(),
/// }
/// assert_eq!(refs.get_not_dead(), Get::Refused);
/// ```
///
/// # Invariants
/// `value` is touched only by the thread whose compare-exchange set HELD, until its swap clears it
/// (LR-2).
pub struct LockRef<T = ()> {
    word: AtomicU64,
    value: UnsafeCell<T>,
}

// SAFETY: by the invariant one thread at a time reaches `value`, so sharing a `LockRef` only ever
// moves the `T` between threads.
unsafe impl<T: Send> Sync for LockRef<T> {}

/// What an operation makes of a count it read while the lock was free.
enum Step {
    /// Try to store this count.
    To(i32),
    /// Succeed without a change: the count is saturated.
    Keep,
    /// The operation's condition does not hold.
    Stop,
}

/// How the lock-free way ended.
enum Fast {
    Done(i32),
    Stopped,
    /// Locked for longer than a spin, or contended beyond the bound.
    GaveUp,
}

impl LockRef<()> {
    /// Makes a fresh object of a dead one: unlocked, `count` references.
    ///
    /// Only for an object that nobody can find, such as a pool slot before it is published. There is none for a value under the
    /// lock: two holders would then reach it at once.
    pub fn reset(&self, count: u32) {
        debug_assert!(
            Snapshot(self.word.load(Relaxed)).is_free(),
            "LockRef::reset of a locked object: somebody found it"
        );
        let count = if count > i32::MAX as u32 { SATURATED } else { count.cast_signed() };
        // LR-3 Release: the fields written so far come with the count, even for who holds a stale
        // id.
        self.word.store(pack(count, 0), Release);
    }
}

impl<T> LockRef<T> {
    const_fn! {
        /// An unlocked word with `count` references. Counts from `i32::MAX` on are saturated.
        #[must_use]
        pub fn new(count: u32, value: T) -> Self {
            let count = if count > i32::MAX as u32 { SATURATED } else { count.cast_signed() };
            Self { word: AtomicU64::new(pack(count, 0)), value: UnsafeCell::new(value) }
        }
    }

    /// Takes a reference. The caller holds one already, or the lock of something that does.
    #[inline]
    pub fn get(&self) {
        match self.update(get_step) {
            Fast::Done(_) => {}
            Fast::Stopped | Fast::GaveUp => self.get_slow(),
        }
    }

    #[cold]
    fn get_slow(&self) {
        let mut guard = self.lock();
        debug_assert!(
            !guard.is_dead(),
            "LockRef::get on a dead object: the caller holds no reference"
        );
        guard.inc();
    }

    /// Takes a reference if there is at least one.
    #[inline]
    pub fn get_not_zero(&self) -> Get {
        self.get_if(|count| count > 0)
    }

    /// Takes a reference unless the object is dead. Zero is fine: an unused cache entry comes back
    /// into use.
    #[inline]
    pub fn get_not_dead(&self) -> Get {
        self.get_if(|count| count >= 0)
    }

    #[inline]
    fn get_if(&self, allowed: impl Fn(i32) -> bool) -> Get {
        match self.update(|count| if allowed(count) { get_step(count) } else { Step::Stop }) {
            Fast::Done(_) => Get::Taken,
            Fast::Stopped => Get::Refused,
            Fast::GaveUp => {
                let mut guard = self.lock();
                if !allowed(guard.count()) {
                    return Get::Refused;
                }
                guard.inc();
                Get::Taken
            }
        }
    }

    /// Drops a reference without ever locking.
    #[inline]
    pub fn put_return(&self) -> PutReturn {
        match self.update(|count| if count > 0 { put_step(count) } else { Step::Stop }) {
            Fast::Done(left) => PutReturn::Left(left.cast_unsigned()),
            Fast::Stopped | Fast::GaveUp => PutReturn::Busy,
        }
    }

    /// Drops a reference if others are left; else returns locked with the count unchanged.
    #[inline]
    pub fn put_or_lock(&self) -> Put<'_, T> {
        match self.update(|count| if count > 1 { put_step(count) } else { Step::Stop }) {
            Fast::Done(_) => Put::StillLive,
            Fast::Stopped | Fast::GaveUp => self.put_or_lock_slow(),
        }
    }

    #[cold]
    fn put_or_lock_slow(&self) -> Put<'_, T> {
        let mut guard = self.lock();
        if guard.count() > 1 {
            guard.dec();
            return Put::StillLive;
        }
        Put::LastLocked(guard)
    }

    /// The count as it was a moment ago; negative once dead.
    #[inline]
    pub fn count(&self) -> i32 {
        // Relaxed: a hint; whoever acts on it re-checks under the lock (LR-2) or by a successful
        // get (LR-3).
        Snapshot(self.word.load(Relaxed)).count()
    }

    /// Whether the object was dead a moment ago. Dead stays dead, so `true` is final; `false` is
    /// reliable only under the lock.
    #[inline]
    pub fn is_dead(&self) -> bool {
        self.count() < 0
    }

    /// Locks, and so freezes the count.
    #[inline]
    pub fn lock(&self) -> LockRefGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.lock_slow(),
        }
    }

    /// Locks if the lock is free now.
    #[inline]
    pub fn try_lock(&self) -> Option<LockRefGuard<'_, T>> {
        // Relaxed: the compare-exchange re-checks it.
        let mut seen = Snapshot(self.word.load(Relaxed));
        while seen.is_free() {
            match self.take_from(seen, HELD) {
                Ok(guard) => return Some(guard),
                Err(fresh) => seen = fresh,
            }
        }
        None
    }

    #[cold]
    fn lock_slow(&self) -> LockRefGuard<'_, T> {
        stats::count(Event::LockrefSlow);
        let mut backoff = Backoff::new();
        let mut bits = HELD;
        loop {
            // Relaxed: the compare-exchange re-checks it.
            let seen = Snapshot(self.word.load(Relaxed));
            if seen.is_free() {
                match self.take_from(seen, bits) {
                    Ok(guard) => return guard,
                    Err(_) => continue,
                }
            }
            if backoff.pause() == Turn::Again {
                continue;
            }
            if !seen.has(SLEEPERS) {
                // Relaxed: the bit carries no data. The holder's swap either comes first and fails
                // this, or answers the bit.
                let marked =
                    self.word.compare_exchange(seen.0, seen.0 | SLEEPERS, Relaxed, Relaxed);
                if marked.is_err() {
                    continue;
                }
            }
            park(&self.word, LOW_HALF, HELD | SLEEPERS);
            // Others may sleep on; whoever takes the lock after a sleep answers for them.
            bits = HELD | SLEEPERS;
        }
    }

    #[inline]
    fn take_from(&self, seen: Snapshot, bits: u64) -> Result<LockRefGuard<'_, T>, Snapshot> {
        // LR-1, LR-2 Acquire: all uses before their drops, and all earlier critical sections, come
        // before ours.
        match self.word.compare_exchange_weak(seen.0, seen.0 | bits, Acquire, Relaxed) {
            Ok(_) => Ok(LockRefGuard { lock: self, count: seen.count(), exclusive: PhantomData }),
            Err(fresh) => Err(Snapshot(fresh)),
        }
    }

    /// The value, without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The lock-free way: applies `step` while the lock is free.
    #[inline]
    fn update(&self, step: impl Fn(i32) -> Step) -> Fast {
        // Relaxed: the compare-exchange re-checks it.
        let seen = Snapshot(self.word.load(Relaxed));
        if seen.is_free()
            && let Step::To(count) = step(seen.count())
        {
            // LR-1 Release, so that a drop comes after our uses; Acquire for the drop that reaches
            // zero.
            // LR-3 Acquire: a reference got from a stale id sees what the last holder wrote.
            let (old, new) = (seen.0, pack(count, 0));
            if self.word.compare_exchange_weak(old, new, AcqRel, Relaxed).is_ok() {
                stats::count(Event::LockrefFast);
                return Fast::Done(count);
            }
        }
        self.update_slow(step)
    }

    /// All that did not go through at the first try: contention, a held lock, a saturated count, a
    /// refusal.
    #[cold]
    fn update_slow(&self, step: impl Fn(i32) -> Step) -> Fast {
        let mut backoff = Backoff::new();
        let mut pauses = PAUSES.0;
        let mut tries = 0;
        while tries < TRIES {
            // Relaxed: the compare-exchange re-checks it.
            let seen = Snapshot(self.word.load(Relaxed));
            if !seen.is_free() {
                // Wait for the unlock and come back to the lock-free way, but not for ever.
                match backoff.pause() {
                    Turn::Again => continue,
                    Turn::Park => return Fast::GaveUp,
                }
            }
            let count = match step(seen.count()) {
                Step::To(count) => count,
                Step::Keep => {
                    // LR-3 Acquire: as for a reference that was counted.
                    fence(Acquire);
                    return Fast::Done(seen.count());
                }
                Step::Stop => return Fast::Stopped,
            };
            // LR-1, LR-3 AcqRel: as in `update`.
            if self.word.compare_exchange_weak(seen.0, pack(count, 0), AcqRel, Relaxed).is_ok() {
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

fn get_step(count: i32) -> Step {
    // One comparison for both ends: negative counts are large as unsigned numbers.
    if count.cast_unsigned() < SATURATED.cast_unsigned() {
        Step::To(count + 1)
    } else if count == SATURATED {
        Step::Keep
    } else {
        Step::Stop
    }
}

fn put_step(count: i32) -> Step {
    if count == SATURATED { Step::Keep } else { Step::To(count - 1) }
}

impl<T: Default> Default for LockRef<T> {
    /// One reference.
    fn default() -> Self {
        Self::new(1, T::default())
    }
}

impl<T> fmt::Debug for LockRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = Snapshot(self.word.load(Relaxed));
        f.debug_struct("LockRef")
            .field("count", &seen.count())
            .field("held", &seen.has(HELD))
            .finish_non_exhaustive()
    }
}

/// The lock of a [`LockRef`], held: the count stands still, and the value is ours.
#[must_use = "the lock is free again as soon as the guard is dropped"]
pub struct LockRefGuard<'a, T> {
    lock: &'a LockRef<T>,
    /// The count that the unlock stores.
    count: i32,
    /// A guard lends its `T`, so it may be sent or shared only as `&mut T` may.
    exclusive: PhantomData<&'a mut T>,
}

impl<T> LockRefGuard<'_, T> {
    /// The count, which nobody else changes now.
    #[inline]
    #[must_use]
    pub fn count(&self) -> i32 {
        self.count
    }

    /// Whether the object is dead.
    #[inline]
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.count < 0
    }

    /// One reference more. A dead object stays dead.
    #[inline]
    pub fn inc(&mut self) {
        match get_step(self.count) {
            Step::To(count) => self.count = count,
            Step::Keep | Step::Stop => {}
        }
    }

    /// One reference less; answers the new count. Saturated and dead counts do not change.
    ///
    /// # Panics
    /// If the count is zero: somebody dropped a reference that it did not hold.
    #[inline]
    pub fn dec(&mut self) -> i32 {
        assert!(self.count != 0, "LockRefGuard::dec at zero: a reference was dropped twice");
        if self.count > 0 && self.count != SATURATED {
            self.count -= 1;
        }
        self.count
    }

    /// Refuses every later get. For good.
    #[inline]
    pub fn mark_dead(&mut self) {
        self.count = DEAD;
    }
}

impl<T> Deref for LockRefGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so HELD is ours (invariant of `LockRef`), and `&self` rules out
        // our own `&mut T`.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for LockRefGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists, so HELD is ours (invariant of `LockRef`), and `&mut self` makes
        // this the only borrow.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for LockRefGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let word = &raw const self.lock.word;
        // LR-2 Release: our critical section. LR-3 Release: for who gets a reference next. Not a
        // store: a waiter may be adding SLEEPERS at this moment. The last touch of the object.
        let old = Snapshot(self.lock.word.swap(pack(self.count, 0), Release));
        if old.has(SLEEPERS) {
            wake(word, LOW_HALF, 1);
        }
    }
}

impl<T> fmt::Debug for LockRefGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRefGuard").field("count", &self.count).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
