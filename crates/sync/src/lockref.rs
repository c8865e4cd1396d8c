//! A spinlock and a reference count that change together in one 64-bit word.
//!
//! # Why
//! `lock; count += 1; unlock` becomes one compare-exchange while the lock is free.
//!
//! # Count
//! 0 referenced by nobody but alive (a cache entry) · above: references · below: dead, for good ·
//! `i32::MAX`: saturated, never counted again, so the object leaks instead of wrapping into death
//!
//! # Who writes
//! The lock free: anyone changes the count. The lock held: its holder alone, and the count stands
//! still for everybody else (R1.1).
//!
//! # A race, step by step
//! ```text
//!  T1 `put_or_lock`                      T2 `get_not_dead`
//!  reads (free, 1): takes (HELD, 1)
//!                                        sees HELD, spins a little, queues for the lock
//!  returns LastLocked; `mark_dead`
//!  unlocks with (free, DEAD), wakes      locks, reads DEAD: Refused (R1.7)
//! ```
//!
//! # Two words
//! `packed` is the word described here, with its lock-free way and its sleepers. `portable` always
//! takes a lock, for targets without 64-bit atomics and under feature `portable`. One behaviour in
//! both (R1.9).
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
//! # Left to the owner of the object
//! A reference to "the parent" got without a lock is one to whatever was there: check again, by a
//! sequence number, that it still is (R1.2). Fields that are looked up without a reference belong
//! on another cache line than this word, which every get and put takes away (R1.5).
//!
//! # Source
//! kernel lockref (2013), and what was learnt since: R1.1 to R1.9 name its lessons, and so do the
//! tests. We differ: contended compare-exchanges keep away for a few pauses (R1.4; measured 1.6
//! times the rate of trying at once, at the price of uneven turns), the count saturates (R1.8), a
//! held lock does not end the lock-free way (R1.6), the lock sleeps.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

#[cfg(all(target_has_atomic = "64", not(feature = "portable")))]
mod packed;
#[cfg(not(all(target_has_atomic = "64", not(feature = "portable"))))]
mod portable;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

#[cfg(all(target_has_atomic = "64", not(feature = "portable")))]
use packed::Word;
#[cfg(not(all(target_has_atomic = "64", not(feature = "portable"))))]
use portable::Word;

use crate::lockdep::{self, Mode};
use crate::prim::const_fn;
use crate::stats::{self, Event};

/// A count that is no longer counted.
const SATURATED: i32 = i32::MAX;
/// What `mark_dead` stores: in the middle of the negative numbers, so that no stray step leaves
/// them.
const DEAD: i32 = i32::MIN / 2;

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
/// `value` is touched only by the thread that took the lock, until it unlocks (LR-2).
pub struct LockRef<T = ()> {
    word: Word,
    value: UnsafeCell<T>,
}

// SAFETY: by the invariant one thread at a time reaches `value`, so sharing a `LockRef` only ever
// moves the `T` between threads.
unsafe impl<T: Send> Sync for LockRef<T> {}

/// What an operation does to the count: adds `by`, if there are `least` references or more.
#[derive(Clone, Copy)]
struct Change {
    least: i32,
    by: i32,
}

impl Change {
    const GET: Self = Self { least: 0, by: 1 };
    const GET_NOT_ZERO: Self = Self { least: 1, by: 1 };
    const PUT: Self = Self { least: 1, by: -1 };
    const PUT_UNLESS_LAST: Self = Self { least: 2, by: -1 };

    /// The new count, the same for a saturated one; `None` if the condition does not hold.
    fn of(self, count: i32) -> Option<i32> {
        match count {
            SATURATED => Some(SATURATED),
            _ if count < self.least => None,
            _ => Some(count + self.by),
        }
    }
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
        debug_assert!(!self.word.is_held(), "LockRef::reset of a locked object: somebody found it");
        self.word.reset(first_count(count));
    }
}

impl<T> LockRef<T> {
    const_fn! {
        /// An unlocked word with `count` references. Counts from `i32::MAX` on are saturated.
        #[must_use]
        pub fn new(count: u32, value: T) -> Self {
            Self { word: Word::new(first_count(count)), value: UnsafeCell::new(value) }
        }
    }

    /// Takes a reference. The caller holds one already, or the lock of something that does.
    ///
    /// # Panics
    /// If the object is dead: the caller holds no reference.
    #[inline]
    pub fn get(&self) {
        if self.word.try_change(Change::GET).is_none() {
            self.get_held_slow();
        }
    }

    #[cold]
    fn get_held_slow(&self) {
        match self.get_slow(Change::GET) {
            Get::Taken => {}
            Get::Refused => {
                panic!("LockRef::get on a dead object: the caller holds no reference")
            }
        }
    }

    /// Takes a reference if there is at least one.
    #[inline]
    pub fn get_not_zero(&self) -> Get {
        match self.word.try_change(Change::GET_NOT_ZERO) {
            Some(_) => Get::Taken,
            None => self.get_slow(Change::GET_NOT_ZERO),
        }
    }

    /// Takes a reference unless the object is dead. Zero is fine: an unused cache entry comes back
    /// into use.
    #[inline]
    pub fn get_not_dead(&self) -> Get {
        match self.word.try_change(Change::GET) {
            Some(_) => Get::Taken,
            None => self.get_slow(Change::GET),
        }
    }

    #[cold]
    fn get_slow(&self, change: Change) -> Get {
        let got = match self.word.change(change) {
            Fast::Done(_) => true,
            Fast::Stopped => false,
            Fast::GaveUp => self.lock().change(change),
        };
        if got { Get::Taken } else { Get::Refused }
    }

    /// Drops a reference if that takes no waiting for a holder of the lock. Never returns locked.
    #[inline]
    pub fn put_return(&self) -> PutReturn {
        match self.word.try_change(Change::PUT) {
            Some(left) => PutReturn::Left(left.cast_unsigned()),
            None => self.put_return_slow(),
        }
    }

    #[cold]
    fn put_return_slow(&self) -> PutReturn {
        match self.word.change(Change::PUT) {
            Fast::Done(left) => PutReturn::Left(left.cast_unsigned()),
            Fast::Stopped | Fast::GaveUp => PutReturn::Busy,
        }
    }

    /// Drops a reference if others are left; else returns locked with the count unchanged.
    #[inline]
    pub fn put_or_lock(&self) -> Put<'_, T> {
        match self.word.try_change(Change::PUT_UNLESS_LAST) {
            Some(_) => Put::StillLive,
            None => self.put_or_lock_slow(),
        }
    }

    #[cold]
    fn put_or_lock_slow(&self) -> Put<'_, T> {
        if let Fast::Done(_) = self.word.change(Change::PUT_UNLESS_LAST) {
            return Put::StillLive;
        }
        let mut guard = self.lock();
        if guard.change(Change::PUT_UNLESS_LAST) {
            return Put::StillLive;
        }
        Put::LastLocked(guard)
    }

    /// The count as it was a moment ago; negative once dead.
    #[inline]
    pub fn count(&self) -> i32 {
        self.word.count()
    }

    /// Whether the object was dead a moment ago. Dead stays dead, so `true` is final; `false` is
    /// reliable only under the lock.
    #[inline]
    pub fn is_dead(&self) -> bool {
        self.count() < 0
    }

    /// Locks, and so freezes the count.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn lock(&self) -> LockRefGuard<'_, T> {
        let take = || self.word.try_lock().unwrap_or_else(|| self.lock_slow());
        self.locked(lockdep::acquire(lockdep::by_address(self), Mode::Exclusive, take))
    }

    /// Locks if the lock is free now.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn try_lock(&self) -> Option<LockRefGuard<'_, T>> {
        let count = self.word.try_lock();
        lockdep::tried(lockdep::by_address(self), Mode::Exclusive, count.is_some());
        count.map(|count| self.locked(count))
    }

    #[cold]
    fn lock_slow(&self) -> i32 {
        stats::count(Event::LockrefSlow);
        lockdep::contended();
        self.word.lock_slow()
    }

    /// The guard for who has just locked the word and read its count.
    #[inline]
    fn locked(&self, count: i32) -> LockRefGuard<'_, T> {
        LockRefGuard { lock: self, count, exclusive: PhantomData }
    }

    /// The value, without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

#[cfg(all(feature = "lockdep", not(any(loom, shuttle))))]
impl<T> Drop for LockRef<T> {
    fn drop(&mut self) {
        lockdep::forget(self);
    }
}

const fn first_count(count: u32) -> i32 {
    if count > i32::MAX as u32 { SATURATED } else { count.cast_signed() }
}

impl<T: Default> Default for LockRef<T> {
    /// One reference.
    fn default() -> Self {
        Self::new(1, T::default())
    }
}

impl<T> fmt::Debug for LockRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRef")
            .field("count", &self.count())
            .field("held", &self.word.is_held())
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

    /// One reference more, by hand. A dead object stays dead, and a saturated count as it is; who
    /// must not go on without a reference asks [`LockRefGuard::is_dead`] first.
    #[inline]
    pub fn inc(&mut self) {
        self.change(Change::GET);
    }

    /// Changes the count if the condition holds; answers whether it did.
    fn change(&mut self, change: Change) -> bool {
        let new = change.of(self.count);
        self.count = new.unwrap_or(self.count);
        new.is_some()
    }

    /// One reference less; answers the new count. Saturated and dead counts do not change.
    ///
    /// # Panics
    /// If the count is zero: somebody dropped a reference that it did not hold.
    #[inline]
    pub fn dec(&mut self) -> i32 {
        assert!(self.count != 0, "LockRefGuard::dec at zero: a reference was dropped twice");
        self.change(Change::PUT);
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
        // SAFETY: the guard exists, so the lock is ours (invariant of `LockRef`), and `&self` rules out
        // our own `&mut T`.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for LockRefGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists, so the lock is ours (invariant of `LockRef`), and `&mut self` makes
        // this the only borrow.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for LockRefGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        lockdep::released(lockdep::by_address(self.lock));
        // The last touch of the object.
        self.lock.word.unlock(self.count);
    }
}

impl<T> fmt::Debug for LockRefGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRefGuard").field("count", &self.count).finish_non_exhaustive()
    }
}
