//! The lock without its value: one word, a gate and a queue. The theory stands in the module above.

use core::fmt;
use core::marker::PhantomData;

use super::announce::{Announce, OrBit};
use crate::backoff::{Backoff, Turn};
use crate::lockdep::{self, Mode};
use crate::mcs::McsQueue;
use crate::park::{Deadline, Sleep, park32_within, wake32};
use crate::prim::Ordering::{Acquire, Relaxed, Release};
use crate::prim::{AtomicU32, const_fn};
use crate::stats::{self, Event};

/// Held exclusively.
pub(super) const WRITER: u32 = 1;
/// The head of the queue is a writer: nobody passes.
pub(super) const WAITING: u32 = 1 << 1;
/// The byte in which a writer holds or waits.
pub(super) const WRITER_BYTE: u32 = 0xff;
/// The head of the queue, or a nested reader, sleeps at the gate.
pub(super) const PARKED: u32 = 1 << 8;
/// One reader.
pub(super) const READER: u32 = 1 << 9;
/// 2^22 readers: a leak of guards, not a crowd.
const TOO_MANY: u32 = 1 << 31;
/// The count of readers, the bit that says there are too many included.
const READERS: u32 = !(READER - 1);

/// A [`QRwLock`](crate::QRwLock) without its value, for code written against `lock_api`, whose traits
/// it has: `lock_api::RwLock<RawQRwLock, T>`. Feature `lock_api`.
#[cfg_attr(
    feature = "lock_api",
    doc = r#"
```
use vfscale_sync::RawQRwLock;

type RwLock<T> = lock_api::RwLock<RawQRwLock, T>;

static NAMES: RwLock<Vec<&str>> = RwLock::new(Vec::new());

NAMES.write().push("usr");
assert_eq!(NAMES.read().len(), 1);
```
"#
)]
#[cfg_attr(
    not(feature = "lock_api"),
    allow(unreachable_pub, reason = "named by others only through `lock_api`")
)]
pub struct RawQRwLock<S = OrBit> {
    pub(super) word: AtomicU32,
    /// Where the head of the queue sleeps: changes with every wake-up.
    gate: AtomicU32,
    pub(super) queue: McsQueue,
    class: lockdep::Class,
    announce: PhantomData<fn() -> S>,
}

/// The deadline has passed. The lock is not held.
pub(super) struct TimedOut;

impl<S: Announce> RawQRwLock<S> {
    const_fn! {
        /// An unlocked lock.
        #[cfg_attr(feature = "lockdep", track_caller)]
        pub(super) fn unlocked() -> Self {
            Self {
                word: AtomicU32::new(0),
                gate: AtomicU32::new(0),
                queue: McsQueue::new(),
                class: lockdep::Class::here(),
                announce: PhantomData,
            }
        }
    }

    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub(super) fn read(&self) {
        lockdep::acquire(self.class.key(), Mode::Shared, || {
            stats::count(Event::QrwlockRead);
            // QR-1 Acquire: what the writers before us wrote.
            let old = self.word.fetch_add(READER, Acquire);
            if old & (WRITER | WAITING | TOO_MANY) != 0 {
                // Without a deadline it does not fail.
                let _ = self.read_slow(old, None);
            }
        });
    }

    /// As `read`, but gives up at the deadline.
    #[cfg(feature = "std")]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub(super) fn read_until(&self, deadline: std::time::Instant) -> bool {
        lockdep::acquire_if(self.class.key(), Mode::Shared, || {
            stats::count(Event::QrwlockRead);
            // QR-1 Acquire: what the writers before us wrote.
            let old = self.word.fetch_add(READER, Acquire);
            let at_once = old & (WRITER | WAITING | TOO_MANY) == 0;
            at_once || self.read_slow(old, Some(deadline)).is_ok()
        })
    }

    #[cold]
    fn read_slow(&self, old: u32, deadline: Deadline) -> Result<(), TimedOut> {
        self.sub_reader();
        refuse_leak(old);
        lockdep::contended();
        stats::count(Event::QrwlockContended);
        let mut backoff = Backoff::new();
        while backoff.pause() == Turn::Again {
            if self.try_add_reader() {
                return Ok(());
            }
        }
        self.queue
            .at_head_within(deadline, || self.read_ignoring_waiting(deadline))
            .unwrap_or(Err(TimedOut))
    }

    /// Counts itself as a reader for good and waits only until no writer holds the lock.
    ///
    /// For the head of the queue, which alone sets WAITING, and for a nested reader, whom a waiting writer waits for.
    fn read_ignoring_waiting(&self, deadline: Deadline) -> Result<(), TimedOut> {
        // Once WRITER is gone no writer passes our count.
        // QR-1 Acquire: what the writers before us wrote, if none is in.
        let old = self.word.fetch_add(READER, Acquire);
        if old & (WRITER | TOO_MANY) == 0 {
            return Ok(());
        }
        self.await_writer(old, deadline)
    }

    #[cold]
    fn await_writer(&self, old: u32, deadline: Deadline) -> Result<(), TimedOut> {
        if old & TOO_MANY != 0 {
            self.sub_reader();
            refuse_leak(old);
        }
        if self.await_clear(WRITER, deadline).is_err() {
            self.sub_reader();
            return Err(TimedOut);
        }
        // QR-1 Acquire: as for a reader that came later. No fence, which the thread sanitizer would not see.
        self.word.load(Acquire);
        Ok(())
    }

    /// Locks shared, past a waiting writer.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub(super) fn read_nested(&self) {
        lockdep::acquire(self.class.key(), Mode::Nested, || {
            stats::count(Event::QrwlockRead);
            // Without a deadline it does not fail.
            let _ = self.read_ignoring_waiting(None);
        });
    }

    /// Locks shared if that is possible now.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub(super) fn try_read(&self) -> bool {
        let taken = self.try_add_reader();
        lockdep::tried(self.class.key(), Mode::Shared, taken);
        taken
    }

    /// Reads before it writes, so that one who may not enter does not disturb.
    #[inline]
    fn try_add_reader(&self) -> bool {
        // Relaxed: the addition below re-checks it.
        let seen = self.word.load(Relaxed);
        if seen & (WRITER | WAITING | TOO_MANY) != 0 {
            return false;
        }
        // QR-1 Acquire: what the writers before us wrote.
        let old = self.word.fetch_add(READER, Acquire);
        if old & (WRITER | WAITING | TOO_MANY) != 0 {
            self.sub_reader();
            return false;
        }
        true
    }

    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub(super) fn write(&self) {
        lockdep::acquire(self.class.key(), Mode::Exclusive, || {
            if !self.write_at_once() {
                // Without a deadline it does not fail.
                let _ = self.write_slow(None);
            }
        });
    }

    /// As `write`, but gives up at the deadline.
    #[cfg(feature = "std")]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub(super) fn write_until(&self, deadline: std::time::Instant) -> bool {
        lockdep::acquire_if(self.class.key(), Mode::Exclusive, || {
            self.write_at_once() || self.write_slow(Some(deadline)).is_ok()
        })
    }

    #[inline]
    fn write_at_once(&self) -> bool {
        stats::count(Event::QrwlockWrite);
        // QR-2 Acquire: reads and writes of all holders before us.
        self.word.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok()
    }

    #[cold]
    fn write_slow(&self, deadline: Deadline) -> Result<(), TimedOut> {
        lockdep::contended();
        stats::count(Event::QrwlockContended);
        let mut backoff = Backoff::new();
        while backoff.spin() {
            if self.try_set_writer() {
                return Ok(());
            }
        }
        self.queue
            .at_head_within(deadline, || self.write_as_head(deadline))
            .unwrap_or(Err(TimedOut))
    }

    fn write_as_head(&self, deadline: Deadline) -> Result<(), TimedOut> {
        while !S::announce(&self.word) {
            self.await_clear(WRITER, deadline)?;
        }
        loop {
            let Ok(seen) = self.await_clear(WRITER | READERS, deadline) else {
                // Nobody sleeps because of the bit: who met it queues behind us, or tries again.
                // Relaxed: as when it was set.
                self.word.fetch_and(!WAITING, Relaxed);
                return Err(TimedOut);
            };
            // This also clears WAITING, and PARKED: a nested reader would be counted in `seen`.
            // QR-2 Acquire: reads and writes of all holders before us.
            if self.word.compare_exchange_weak(seen, WRITER, Acquire, Relaxed).is_ok() {
                return Ok(());
            }
        }
    }

    /// Locks exclusively if that is possible now.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub(super) fn try_write(&self) -> bool {
        let taken = self.try_set_writer();
        lockdep::tried(self.class.key(), Mode::Exclusive, taken);
        taken
    }

    fn try_set_writer(&self) -> bool {
        // Relaxed: the compare-exchange re-checks it.
        let mut seen = self.word.load(Relaxed);
        // PARKED may be left over from a head that has gone, or belong to one that is about to look: it stays.
        while seen & !PARKED == 0 {
            // QR-2 Acquire: reads and writes of all holders before us.
            match self.word.compare_exchange_weak(seen, seen | WRITER, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(fresh) => seen = fresh,
            }
        }
        false
    }

    /// Waits until none of `bits` is set; answers the word it saw then. For the head of the queue and nested readers.
    fn await_clear(&self, bits: u32, deadline: Deadline) -> Result<u32, TimedOut> {
        let mut backoff = Backoff::new();
        loop {
            // QR-3 Acquire: if this change was made after PARKED was cleared, the next line sees it cleared.
            let gate = self.gate.load(Acquire);
            // Relaxed: the caller acquires, a reader by a second read (QR-1), a writer by its exchange (QR-2).
            let seen = self.word.load(Relaxed);
            if seen & bits == 0 {
                return Ok(seen);
            }
            if backoff.pause() == Turn::Again {
                continue;
            }
            if seen & PARKED == 0 {
                // Relaxed: `gate` was read before this, so the change that follows the clearing of this
                // bit is later than that read. (Had the read seen it, the clearing would happen before
                // the setting, by QR-3, and could not have found the bit.)
                let parked = self.word.compare_exchange(seen, seen | PARKED, Relaxed, Relaxed);
                if parked.is_err() {
                    continue;
                }
            }
            stats::count(Event::QrwlockPark);
            if park32_within(&self.gate, gate, deadline) == Sleep::TimedOut {
                // PARKED stays, and costs the next unlock a look.
                return Err(TimedOut);
            }
        }
    }

    /// What `lockdep` knows the lock by.
    #[cfg(feature = "std")]
    #[inline]
    pub(super) fn key(&self) -> lockdep::Key<'_> {
        self.class.key()
    }

    /// Whether somebody was in the queue a moment ago.
    pub(super) fn is_contended(&self) -> bool {
        self.queue.is_busy()
    }

    /// Whether it was held a moment ago; readers that come and go at once count.
    pub(super) fn is_locked(&self) -> bool {
        // Relaxed: a hint.
        self.word.load(Relaxed) & (WRITER | READERS) != 0
    }

    /// Whether it was held exclusively a moment ago.
    #[cfg(feature = "lock_api")]
    pub(super) fn is_write_locked(&self) -> bool {
        // Relaxed: a hint.
        self.word.load(Relaxed) & WRITER != 0
    }

    #[inline]
    pub(super) fn unlock_shared(&self) {
        lockdep::released(self.class.key());
        self.sub_reader();
    }

    #[inline]
    pub(super) fn sub_reader(&self) {
        // QR-2 Release: our reads come before the next writer's writes.
        let old = self.word.fetch_sub(READER, Release);
        // A sleeper that waits for readers is a writer and waits for the last; one that is a reader counts itself.
        if old & (READERS | PARKED) == READER | PARKED {
            self.open_gate();
        }
    }

    #[inline]
    pub(super) fn unlock_exclusive(&self) {
        lockdep::released(self.class.key());
        // Readers may be adding and subtracting themselves in the same word, so not a store.
        // QR-1, QR-2 Release: our writes.
        let old = self.word.fetch_sub(WRITER, Release);
        if old & PARKED != 0 {
            self.open_gate();
        }
    }

    /// From held exclusively to held shared, with nobody in between.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub(super) fn downgrade(&self) {
        lockdep::released(self.class.key());
        lockdep::tried(self.class.key(), Mode::Shared, true);
        // QR-1 Release: our writes, to the readers who come now. For a writer's writes QR-2's is at our unlock.
        let old = self.word.fetch_add(READER - WRITER, Release);
        if old & PARKED != 0 {
            // The head may be a reader.
            self.open_gate();
        }
    }

    #[cold]
    fn open_gate(&self) {
        // Relaxed: see where the bit is set.
        if self.word.fetch_and(!PARKED, Relaxed) & PARKED != 0 {
            // QR-3 Release: PARKED is cleared.
            self.gate.fetch_add(1, Release);
            // All: nested readers sleep here beside the head.
            wake32(&raw const self.gate, u32::MAX);
        }
    }
}

fn refuse_leak(old: u32) {
    assert!(old & TOO_MANY == 0, "QRwLock: 2^22 read guards exist; they were leaked");
}

impl<S> fmt::Debug for RawQRwLock<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: a hint.
        let word = self.word.load(Relaxed);
        f.debug_struct("RawQRwLock")
            .field("written", &(word & WRITER != 0))
            .field("readers", &(word / READER))
            .finish_non_exhaustive()
    }
}
