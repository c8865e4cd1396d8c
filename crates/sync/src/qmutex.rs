//! A mutex whose unlock is a plain store, with waiters that queue and sleep.
//!
//! # Why
//! Most locks are free when they are taken. Then a mutex costs two exchanges of its word, one to
//! lock and one to unlock, of which the second only asks whether somebody sleeps. Here the sleeper
//! answers that, by a barrier on every processor (see `asym_lock`), and the free case is half as
//! dear.
//!
//! # How
//! Lock: one compare-exchange. Failing that, a few pauses and yields with a try each; then the
//! queue (`mcs`), first come, first served, each waiter asleep on its own stack. The head of the
//! queue takes the lock in competition with newcomers, passes the lead on, and only then goes to
//! work.
//!
//! # Who writes
//! The lock's words: see `asym_lock`. The queue's tail: arrivals, and the last to leave.
//!
//! # A wait, step by step
//! ```text
//!  T1 holder            T2                           T3
//!                       tries in vain, queues: head
//!                       sleeps on the lock's flag    queues behind T2, sleeps on its own node
//!  unlocks, wakes T2
//!                       takes the lock, T3 is head
//! ```
//!
//! # Fairness
//! A newcomer may pass the queue, until the head has slept and lost: from the next unlock on the
//! lock is the head's alone. So a waiter is passed during one sleep of each head before it, and no
//! longer.
//!
//! # Orderings
//! Those of `asym_lock` (AL-1 is the value's) and `mcs`.
//!
//! # Distrust
//! The first lock of a process that finds the barrier not yet asked for exchanges at unlock.
//! [`fence::prepare`] at start-up spares that. A panic in the critical section unlocks and poisons
//! nothing.
//!
//! # Source
//! Our own: what was left of the list_batch thread's lock on few processors, where combining does
//! not pay.
//!
//! [`fence::prepare`]: crate::fence::prepare

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use crate::asym_lock::AsymLock;
use crate::lockdep::{self, Mode};
use crate::mcs::McsQueue;
use crate::prim::const_fn;

/// A value behind a lock that costs one exchange while it is free.
///
/// Waiters are served in order, but for newcomers that find the lock free; these are shut out once
/// the first waiter has slept and lost against them. Sleeps where there is something to sleep on.
///
/// ```
/// use vfscale_sync::QMutex;
///
/// static TOTAL: QMutex<u64> = QMutex::new(0);
///
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| (0..100).for_each(|_| *TOTAL.lock() += 1));
///     }
/// });
/// assert_eq!(*TOTAL.lock(), 400);
/// ```
///
/// # Invariants
/// `value` is reached only by the holder of `lock`, or through `&mut self`.
#[repr(C)]
pub struct QMutex<T: ?Sized> {
    lock: AsymLock,
    queue: McsQueue,
    class: lockdep::Class,
    value: UnsafeCell<T>,
}

// SAFETY: the lock lets one thread at a time reach the value (invariant), so it is sent, not shared.
unsafe impl<T: ?Sized + Send> Sync for QMutex<T> {}

impl<T> QMutex<T> {
    const_fn! {
        /// An unlocked mutex around `value`.
        #[must_use]
        #[cfg_attr(feature = "lockdep", track_caller)]
        pub fn new(value: T) -> Self {
            Self {
                lock: AsymLock::new(),
                queue: McsQueue::new(),
                class: lockdep::Class::here(),
                value: UnsafeCell::new(value),
            }
        }
    }

    /// A mutex of the form without a barrier, for models.
    #[cfg(loom)]
    pub fn new_symmetric(value: T) -> Self {
        Self { lock: AsymLock::symmetric(), ..Self::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> QMutex<T> {
    /// Takes the lock, waiting for it if need be.
    ///
    /// Does not return if this thread holds it already.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn lock(&self) -> QMutexGuard<'_, T> {
        lockdep::acquire(self.class.key(), Mode::Exclusive, || {
            if !self.lock.try_lock() {
                self.lock_slow();
            }
        });
        self.guard()
    }

    #[cold]
    fn lock_slow(&self) {
        lockdep::contended();
        if !self.lock.lock_for_a_while() {
            self.queue.at_head(|| self.lock.lock_as_head());
        }
    }

    /// Takes the lock if it is free and no waiter is to have it first.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn try_lock(&self) -> Option<QMutexGuard<'_, T>> {
        let taken = self.lock.try_lock();
        lockdep::tried(self.class.key(), Mode::Exclusive, taken);
        // Not `then_some`: a guard made for a lock that was not had would unlock the holder's.
        taken.then(|| self.guard())
    }

    fn guard(&self) -> QMutexGuard<'_, T> {
        QMutexGuard { mutex: self, _thread: PhantomData }
    }

    /// The value, without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: Default> Default for QMutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for QMutex<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for QMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("QMutex");
        match self.try_lock() {
            Some(guard) => out.field("value", &&*guard),
            None => out.field("value", &format_args!("<locked>")),
        };
        out.finish()
    }
}

/// Holds a [`QMutex`]. Unlocks when dropped, also while unwinding.
///
/// It stays in its thread:
/// ```compile_fail,E0277
/// let mutex = vfscale_sync::QMutex::new(1);
/// let guard = mutex.lock();
/// std::thread::scope(|scope| scope.spawn(move || drop(guard)).join());
/// ```
#[must_use = "dropping the guard unlocks"]
pub struct QMutexGuard<'a, T: ?Sized> {
    mutex: &'a QMutex<T>,
    _thread: PhantomData<*mut ()>,
}

// SAFETY: a shared guard lends `&T` and nothing else.
unsafe impl<T: ?Sized + Sync> Sync for QMutexGuard<'_, T> {}

impl<T: ?Sized> Deref for QMutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: we hold the lock (invariant of `QMutex`).
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for QMutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: we hold the lock, and lend from `&mut self`.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for QMutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        lockdep::released(self.mutex.class.key());
        self.mutex.lock.unlock();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for QMutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, feature = "std", not(any(loom, shuttle))))]
mod tests;
