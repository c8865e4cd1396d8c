//! A fair reader-writer lock: whoever cannot have it soon queues, and a waiting writer holds
//! newcomers off.
//!
//! # Why
//! A lock that prefers readers starves a writer, one that prefers writers starves readers, and a
//! queue that only spins collapses as soon as its first thread loses the processor.
//!
//! # Word
//! bit 0 WRITER: held exclusively · bit 1 WAITING: the head of the queue is a writer, nobody passes
//! · bit 8 PARKED: somebody sleeps at the gate · bits 9..31 readers · bit 31 too many readers
//!
//! # Reader
//! Adds itself; was neither WRITER nor WAITING set, it is in. Else it takes itself out again, tries
//! for three rounds of pauses and seven yields (each try a load, so a crowd does not disturb), then
//! queues. As head it adds itself for good and waits only for WRITER.
//!
//! # Writer
//! One compare-exchange if nobody is there. Else three rounds of pauses, then the queue. As head it
//! sets WAITING at once and keeps it while it yields and sleeps: a writer that yields before it
//! announced itself waits a thousand times longer than one that does not. How it sets WAITING is the
//! lock's second type parameter, see [`Announce`].
//!
//! # Fairness
//! Passing others is possible only before queueing, a bounded number of times. The queue is
//! strictly first come, first served. Nested reads ([`QRwLock::read_nested`]) pass everybody but a
//! writer who holds the lock, so many of them can starve writers.
//!
//! # Sleep
//! Waiters behind the head sleep on their own nodes. The head cannot sleep on the word, which
//! readers change all the time; it sleeps on `gate`, which changes once per wake-up.
//! ```text
//!  H head, a writer                      R last reader
//!  reads gate 7, then (R, WAITING)
//!  adds PARKED from that value
//!                                        subtracts itself: sees PARKED and no other reader
//!                                        clears PARKED, gate 8, wakes
//!  sleeps while gate is 7: returns
//! ```
//! Had the subtraction come first, adding PARKED would have failed and H would have looked again.
//! PARKED may be left over from one who gave up: the next unlock opens the gate for nobody.
//!
//! # Orderings
//! - QR-1 write unlock and downgrade (Release) -> a reader's add, or its second read of the word
//!   (Acquire)
//! - QR-2 read unlock and write unlock (Release) -> the compare-exchange that takes WRITER
//!   (Acquire). On the exchange, not on the read before it: in between a reader can come and go,
//!   and its reads would not be ordered before our writes
//! - QR-3 change of `gate` (Release) -> the head's read of it (Acquire): who has seen the change
//!   has seen PARKED cleared, and sets it again before it sleeps. So, too, a head that set the bit
//!   read `gate` before the change that answers it, and does not sleep on that change's value
//!
//! # Distrust
//! A thread that reads twice can wait for a writer that waits for it: its inner read has to be
//! [`QRwLock::read_nested`]. The waker touches the lock after it unlocked, so never put it in an
//! object that its own unlock may free (the guards of `read_arc` and `write_arc` see to that). A
//! panic unlocks and poisons nothing.
//!
//! # Source
//! kernel qrwlock, with WAITING set by OR as since 2017 (the 2015 form, setting it only while no
//! writer is in, starves the head). We differ: the queue sleeps, and tries are made before queueing
//! (1.6 times the best other lock at 2 threads, 3.8 times at 8 on 2 processors, 5 reads to 1
//! write).

mod announce;
#[cfg(all(feature = "arc_lock", not(any(loom, shuttle))))]
mod arc;
mod guard;
#[cfg(all(feature = "lock_api", not(any(loom, shuttle))))]
mod lock_api;
mod raw;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use announce::{Announce, ByteCas, OrBit, WordCas};
#[cfg(all(feature = "arc_lock", not(any(loom, shuttle))))]
pub use arc::{ArcQRwLockReadGuard, ArcQRwLockWriteGuard};
pub use guard::{
    MappedQRwLockReadGuard, MappedQRwLockWriteGuard, QRwLockReadGuard, QRwLockWriteGuard,
};
#[cfg(all(feature = "lock_api", not(any(loom, shuttle))))]
pub use raw::RawQRwLock;
#[cfg(not(all(feature = "lock_api", not(any(loom, shuttle)))))]
use raw::RawQRwLock;

use core::cell::UnsafeCell;
use core::fmt;
#[cfg(feature = "std")]
use std::time::{Duration, Instant};

use crate::prim::const_fn;

/// A fair, sleeping reader-writer lock. Sixteen bytes beside its value.
///
/// ```
/// use vfscale_sync::QRwLock;
///
/// static NAMES: QRwLock<Vec<&str>> = QRwLock::new(Vec::new());
///
/// NAMES.write().push("usr");
/// assert_eq!(NAMES.read().len(), 1);
/// ```
///
/// # Invariants
/// `value` is reached mutably only between a compare-exchange that set WRITER from a word without
/// readers and the operation that clears it, and shared only by a thread that is counted as a
/// reader in a word without WRITER (QR-1, QR-2).
pub struct QRwLock<T: ?Sized, S = OrBit> {
    raw: RawQRwLock<S>,
    value: UnsafeCell<T>,
}

// SAFETY: by the invariant readers share `&T` (so `T: Sync`), and writers hand the value from
// thread to thread (so `T: Send`).
unsafe impl<T: ?Sized + Send + Sync, S> Sync for QRwLock<T, S> {}

impl<T> QRwLock<T> {
    const_fn! {
        /// An unlocked lock around `value`.
        #[must_use]
        #[cfg_attr(feature = "lockdep", track_caller)]
        pub fn new(value: T) -> Self {
            Self { raw: RawQRwLock::unlocked(), value: UnsafeCell::new(value) }
        }
    }
}

impl<T, S: Announce> QRwLock<T, S> {
    const_fn! {
        /// An unlocked lock around `value` whose writers announce themselves in a way of your choice.
        ///
        /// ```
        /// use vfscale_sync::{ByteCas, QRwLock};
        ///
        /// let as_in_2015: QRwLock<u32, ByteCas> = QRwLock::with_announce(1);
        /// assert_eq!(*as_in_2015.read(), 1);
        /// ```
        #[must_use]
        #[cfg_attr(feature = "lockdep", track_caller)]
        pub fn with_announce(value: T) -> Self {
            Self { raw: RawQRwLock::unlocked(), value: UnsafeCell::new(value) }
        }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, S: Announce> QRwLock<T, S> {
    /// Locks shared, with others who read. Not twice in one thread: a writer may come in between.
    ///
    /// # Panics
    /// If more than 2^22 read guards exist: they were leaked.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn read(&self) -> QRwLockReadGuard<'_, T, S> {
        self.raw.read();
        QRwLockReadGuard::of(self)
    }

    /// Locks shared, past a writer who waits: for a thread that may hold the lock shared already, and
    /// would wait for a writer that waits for it. Waits only for a writer who holds the lock.
    ///
    /// # Panics
    /// If more than 2^22 read guards exist: they were leaked.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn read_nested(&self) -> QRwLockReadGuard<'_, T, S> {
        self.raw.read_nested();
        QRwLockReadGuard::of(self)
    }

    /// Locks exclusively.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn write(&self) -> QRwLockWriteGuard<'_, T, S> {
        self.raw.write();
        QRwLockWriteGuard::of(self)
    }

    /// Locks shared if that is possible now.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn try_read(&self) -> Option<QRwLockReadGuard<'_, T, S>> {
        self.raw.try_read().then(|| QRwLockReadGuard::of(self))
    }

    /// Locks exclusively if that is possible now.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn try_write(&self) -> Option<QRwLockWriteGuard<'_, T, S>> {
        self.raw.try_write().then(|| QRwLockWriteGuard::of(self))
    }

    /// Locks shared if that is possible before `deadline`. Queues like every other; who gives up leaves
    /// the queue as it was.
    ///
    /// # Panics
    /// As [`QRwLock::read`].
    #[cfg(feature = "std")]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn try_read_until(&self, deadline: Instant) -> Option<QRwLockReadGuard<'_, T, S>> {
        self.raw.read_until(deadline).then(|| QRwLockReadGuard::of(self))
    }

    /// Locks exclusively if that is possible before `deadline`. Queues like every other, and holds
    /// readers off while it waits at the head.
    #[cfg(feature = "std")]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn try_write_until(&self, deadline: Instant) -> Option<QRwLockWriteGuard<'_, T, S>> {
        self.raw.write_until(deadline).then(|| QRwLockWriteGuard::of(self))
    }

    /// Locks shared if that is possible within `timeout`; one too long for the clock is no limit.
    ///
    /// # Panics
    /// As [`QRwLock::read`].
    #[cfg(feature = "std")]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn try_read_for(&self, timeout: Duration) -> Option<QRwLockReadGuard<'_, T, S>> {
        match Instant::now().checked_add(timeout) {
            Some(deadline) => self.try_read_until(deadline),
            None => Some(self.read()),
        }
    }

    /// Locks exclusively if that is possible within `timeout`; one too long for the clock is no limit.
    #[cfg(feature = "std")]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn try_write_for(&self, timeout: Duration) -> Option<QRwLockWriteGuard<'_, T, S>> {
        match Instant::now().checked_add(timeout) {
            Some(deadline) => self.try_write_until(deadline),
            None => Some(self.write()),
        }
    }

    /// Whether somebody was waiting a moment ago: time for a long holder to let go.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.raw.is_contended()
    }

    /// Whether somebody held it a moment ago, shared or exclusively.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }

    /// What `lockdep` knows the lock by, for a lock that is built on this one.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn key(&self) -> crate::lockdep::Key<'_> {
        self.raw.key()
    }

    /// Where the value is, for a lock that is built on this one.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.value.get()
    }

    /// The value, without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: Default, S: Announce> Default for QRwLock<T, S> {
    fn default() -> Self {
        Self::with_announce(T::default())
    }
}

impl<T> From<T> for QRwLock<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug, S: Announce> fmt::Debug for QRwLock<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("QRwLock");
        match self.try_read() {
            Some(guard) => out.field("value", &&*guard),
            None => out.field("value", &format_args!("<locked>")),
        };
        out.finish()
    }
}
