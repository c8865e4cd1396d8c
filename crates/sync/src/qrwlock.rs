//! A fair reader-writer lock: whoever cannot have it soon queues, and a waiting writer holds
//! newcomers off.
//!
//! # Why
//! A lock that prefers readers starves a writer, one that prefers writers starves readers, and a
//! queue that only spins collapses as soon as its first thread loses the processor.
//!
//! # Word
//! bit 0 WRITER: held exclusively · bit 1 WAITING: the head of the queue is a writer, nobody passes
//! · bit 2 PARKED: the head sleeps · bits 3..31 readers · bit 31 too many readers
//!
//! # Reader
//! Adds itself; was neither WRITER nor WAITING set, it is in. Else it takes itself out again, tries
//! for three rounds of pauses and seven yields (each try a load, so a crowd does not disturb), then
//! queues. As head it adds itself for good and waits only for WRITER.
//!
//! # Writer
//! One compare-exchange if nobody is there. Else three rounds of pauses, then the queue. As head it
//! sets WAITING at once and keeps it while it yields and sleeps: a writer that yields before it
//! announced itself waits a thousand times longer than one that does not.
//!
//! # Fairness
//! Passing others is possible only before queueing, a bounded number of times. The queue is
//! strictly first come, first served.
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
//!
//! # Orderings
//! - QR-1 write unlock (Release) -> a reader's add, or the head's second read of the word (Acquire)
//! - QR-2 read unlock and write unlock (Release) -> the compare-exchange that takes WRITER
//!   (Acquire). On the exchange, not on the read before it: in between a reader can come and go,
//!   and its reads would not be ordered before our writes
//! - QR-3 the head reads `gate`, then sets PARKED (Release) -> the waker clears PARKED (Acquire),
//!   then changes `gate`: the change is later than the head's read. The models do not see the lack
//!   of it, since loom lets no read return a later write
//! - QR-4 change of `gate` (Release) -> the head's read of it (Acquire): who has seen the change
//!   has seen PARKED cleared, and sets it again before it sleeps
//!
//! # Distrust
//! A thread that reads twice can wait for a writer that waits for it. The waker touches the lock
//! after it unlocked, so never put it in an object that its own unlock may free. A panic unlocks
//! and poisons nothing.
//!
//! # Source
//! kernel qrwlock, with WAITING set by OR as since 2017 (the 2015 form, setting it only while no
//! writer is in, starves the head). We differ: the queue sleeps, and tries are made before queueing
//! (1.6 times the best other lock at 2 threads, 3.8 times at 8 on 2 processors, 5 reads to 1
//! write).

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use crate::backoff::{Backoff, Turn};
use crate::mcs::McsQueue;
use crate::park::{park32, wake32};
use crate::prim::Ordering::{Acquire, Relaxed, Release};
use crate::prim::{AtomicU32, const_fn};
use crate::stats::{self, Event};

const WRITER: u32 = 1;
const WAITING: u32 = 1 << 1;
const PARKED: u32 = 1 << 2;
const READER: u32 = 1 << 3;
/// 2^28 readers: a leak of guards, not a crowd.
const TOO_MANY: u32 = 1 << 31;
/// The count of readers, the bit that says there are too many included.
const READERS: u32 = !(READER - 1);

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
/// readers and the subtraction that clears it, and shared only by a thread that is counted as a
/// reader in a word without WRITER (QR-1, QR-2).
pub struct QRwLock<T: ?Sized> {
    word: AtomicU32,
    /// Where the head of the queue sleeps: changes with every wake-up.
    gate: AtomicU32,
    queue: McsQueue,
    value: UnsafeCell<T>,
}

// SAFETY: by the invariant readers share `&T` (so `T: Sync`), and writers hand the value from
// thread to thread (so `T: Send`).
unsafe impl<T: ?Sized + Send + Sync> Sync for QRwLock<T> {}

impl<T> QRwLock<T> {
    const_fn! {
        /// An unlocked lock around `value`.
        #[must_use]
        pub fn new(value: T) -> Self {
            Self {
                word: AtomicU32::new(0),
                gate: AtomicU32::new(0),
                queue: McsQueue::new(),
                value: UnsafeCell::new(value),
            }
        }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> QRwLock<T> {
    /// Locks shared, with others who read. Not twice in one thread: a writer may come in between.
    ///
    /// # Panics
    /// If more than 2^28 read guards exist: they were leaked.
    #[inline]
    pub fn read(&self) -> QRwLockReadGuard<'_, T> {
        stats::count(Event::QrwlockRead);
        // QR-1 Acquire: what the writers before us wrote.
        let old = self.word.fetch_add(READER, Acquire);
        if old & (WRITER | WAITING | TOO_MANY) != 0 {
            self.read_slow(old);
        }
        QRwLockReadGuard { lock: self }
    }

    #[cold]
    fn read_slow(&self, old: u32) {
        self.unlock_shared();
        assert!(old & TOO_MANY == 0, "QRwLock: 2^28 read guards exist; they were leaked");
        stats::count(Event::QrwlockContended);
        let mut backoff = Backoff::new();
        while backoff.pause() == Turn::Again {
            if self.try_add_reader() {
                return;
            }
        }
        self.queue.at_head(|| {
            // Nobody but the head sets WAITING, so only WRITER can be in the way, and once it is
            // gone no writer passes our count.
            // QR-1 Acquire: what the writers before us wrote, if none is in.
            let old = self.word.fetch_add(READER, Acquire);
            if old & WRITER != 0 {
                let _ = self.await_clear(WRITER);
                // QR-1 Acquire: as above, now that none is in. No fence, which the thread sanitizer
                // would not see.
                self.word.load(Acquire);
            }
        });
    }

    /// Locks exclusively.
    #[inline]
    pub fn write(&self) -> QRwLockWriteGuard<'_, T> {
        stats::count(Event::QrwlockWrite);
        // QR-2 Acquire: reads and writes of all holders before us.
        if self.word.compare_exchange(0, WRITER, Acquire, Relaxed).is_err() {
            self.write_slow();
        }
        QRwLockWriteGuard { lock: self, exclusive: PhantomData }
    }

    #[cold]
    fn write_slow(&self) {
        stats::count(Event::QrwlockContended);
        let mut backoff = Backoff::new();
        while backoff.spin() {
            if self.try_set_writer() {
                return;
            }
        }
        self.queue.at_head(|| {
            // Relaxed: the bit carries no data, it only keeps readers out.
            self.word.fetch_or(WAITING, Relaxed);
            loop {
                let seen = self.await_clear(WRITER | READERS);
                // This also clears WAITING, and PARKED, which concerned us.
                // QR-2 Acquire: reads and writes of all holders before us.
                if self.word.compare_exchange_weak(seen, WRITER, Acquire, Relaxed).is_ok() {
                    return;
                }
            }
        });
    }

    /// The head of the queue waits until none of `bits` is set; answers the word it saw then.
    fn await_clear(&self, bits: u32) -> u32 {
        let mut backoff = Backoff::new();
        loop {
            // QR-4 Acquire: if this change was made after PARKED was cleared, the next line sees it
            // cleared.
            let gate = self.gate.load(Acquire);
            // Relaxed: the caller acquires, a reader by a second read (QR-1), a writer by its
            // exchange (QR-2).
            let seen = self.word.load(Relaxed);
            if seen & bits == 0 {
                return seen;
            }
            if backoff.pause() == Turn::Again {
                continue;
            }
            if seen & PARKED == 0 {
                // QR-3 Release: our read of `gate` comes before the waker's change of it.
                let parked = self.word.compare_exchange(seen, seen | PARKED, Release, Relaxed);
                if parked.is_err() {
                    continue;
                }
            }
            stats::count(Event::QrwlockPark);
            park32(&self.gate, gate);
        }
    }

    /// Locks shared if that is possible now.
    #[inline]
    pub fn try_read(&self) -> Option<QRwLockReadGuard<'_, T>> {
        self.try_add_reader().then(|| QRwLockReadGuard { lock: self })
    }

    /// Reads before it writes, so that one who may not enter does not disturb.
    fn try_add_reader(&self) -> bool {
        // Relaxed: the exchange below re-checks it.
        let seen = self.word.load(Relaxed);
        if seen & (WRITER | WAITING | TOO_MANY) != 0 {
            return false;
        }
        // QR-1 Acquire: what the writers before us wrote.
        let old = self.word.fetch_add(READER, Acquire);
        if old & (WRITER | WAITING | TOO_MANY) != 0 {
            self.unlock_shared();
            return false;
        }
        true
    }

    /// Locks exclusively if that is possible now.
    #[inline]
    pub fn try_write(&self) -> Option<QRwLockWriteGuard<'_, T>> {
        self.try_set_writer().then(|| QRwLockWriteGuard { lock: self, exclusive: PhantomData })
    }

    fn try_set_writer(&self) -> bool {
        // Relaxed: the compare-exchange re-checks it.
        let mut seen = self.word.load(Relaxed);
        // PARKED may be left over from a head that has gone, or belong to one that is about to
        // look: it stays.
        while seen & !PARKED == 0 {
            // QR-2 Acquire: reads and writes of all holders before us.
            match self.word.compare_exchange_weak(seen, seen | WRITER, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(fresh) => seen = fresh,
            }
        }
        false
    }

    /// Whether somebody was waiting a moment ago: time for a long holder to let go.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.queue.is_busy()
    }

    /// The value, without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[inline]
    fn unlock_shared(&self) {
        // QR-2 Release: our reads come before the next writer's writes.
        let old = self.word.fetch_sub(READER, Release);
        // A sleeping head that is a writer waits for the last reader; one that is a reader counts
        // itself, so never sees this.
        if old & (READERS | PARKED) == READER | PARKED {
            self.wake_head();
        }
    }

    #[inline]
    fn unlock_exclusive(&self) {
        // Readers may be adding and subtracting themselves in the same word, so not a store.
        // QR-1, QR-2 Release: our writes.
        let old = self.word.fetch_sub(WRITER, Release);
        if old & PARKED != 0 {
            self.wake_head();
        }
    }

    #[cold]
    fn wake_head(&self) {
        // QR-3 Acquire: the head read `gate` before it set the bit.
        if self.word.fetch_and(!PARKED, Acquire) & PARKED != 0 {
            // QR-4 Release: PARKED is cleared.
            self.gate.fetch_add(1, Release);
            wake32(&raw const self.gate, 1);
        }
    }
}

impl<T: Default> Default for QRwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for QRwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("QRwLock");
        match self.try_read() {
            Some(guard) => out.field("value", &&*guard),
            None => out.field("value", &format_args!("<locked>")),
        };
        out.finish()
    }
}

/// Shared access to the value of a [`QRwLock`].
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct QRwLockReadGuard<'a, T: ?Sized> {
    lock: &'a QRwLock<T>,
}

impl<T: ?Sized> Deref for QRwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so we are counted and WRITER is not set (invariant of
        // `QRwLock`).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for QRwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.unlock_shared();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for QRwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Exclusive access to the value of a [`QRwLock`].
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct QRwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a QRwLock<T>,
    /// A guard lends its `T`, so it may be sent or shared only as `&mut T` may.
    exclusive: PhantomData<&'a mut T>,
}

impl<T: ?Sized> Deref for QRwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so WRITER is ours (invariant of `QRwLock`), and `&self` rules
        // out our own `&mut T`.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for QRwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists, so WRITER is ours (invariant of `QRwLock`), and `&mut self`
        // makes this the only borrow.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for QRwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.unlock_exclusive();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for QRwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
