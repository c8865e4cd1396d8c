//! A reader-writer lock for what is read all the time and hardly ever written.
//!
//! # Why
//! Readers of a lock of one word hand its cache line from processor to processor, however short they
//! stay. Here a reader leaves a note in a row of its own thread instead, and touches nothing that
//! another reader writes.
//!
//! # Words
//! `bias`: 0, or the lock's key; readers may leave notes while it is set · a row of slots per thread,
//! process-wide: 0, or the key of a lock that the thread reads · below it a [`QRwLock`]
//!
//! # Reader
//! Bias set and a slot free: key into the slot, `light`, bias still set: in. Else it reads through the
//! lock below, and gives the bias (back) if no writer has forbidden it.
//!
//! # Writer
//! Takes the lock below, then takes the bias away and waits until no slot holds the key. That costs a
//! barrier on every processor and a look at every row, so it forbids the bias for nine times as long
//! as that took: a lock that is written often is a [`QRwLock`] and a few instructions.
//!
//! # A race, step by step
//! ```text
//!  reader                                writer, has the lock below
//!  key into its slot                     bias := 0
//!  light                                 heavy
//!  bias? 0: takes the note back          slot? key: waits
//!        key: in
//! ```
//! At least one of them sees the other (BR-1).
//!
//! # Orderings
//! - BR-1 `light` of a reader -> `heavy` of a writer: the asymmetric fence
//! - BR-2 bias given (Release), by a reader who has the lock below -> the second look at it
//!   (Acquire): what the writers wrote before
//! - BR-3 slot cleared (Release), by a reader who leaves or was too late -> the writer's look at it
//!   (Acquire): our reads, and the earlier ones of this slot; and -> the next use of the slot
//!   (Acquire), since a guard may be dropped by another thread
//!
//! # Fairness
//! That of [`QRwLock`] for those who meet there. A writer waits for the readers who have left notes, of
//! whom no new ones come once the bias is gone; it looks, yields, then sleeps in steps, since nobody
//! wakes it: leaving is one store.
//!
//! # Distrust
//! Without the asymmetric fence (see [`fence`]) a read costs a full fence; it still
//! writes nothing that is shared. Threads beyond the 128th read through the lock below, as does one
//! that reads more than a few such locks at a time.
//!
//! # Source
//! Dice and Kogan, BRAVO (2019). We differ: rows belong to threads, so that a note is a plain store and
//! not a compare-exchange, and keys are numbers that are never given twice, not addresses.

use core::fmt;
use core::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::backoff::{Backoff, Turn};
use crate::fence;
use crate::lockdep::{self, Mode};
use crate::prim::Ordering::{Acquire, Relaxed, Release};
use crate::prim::{AtomicU64, const_fn};
use crate::qrwlock::{QRwLock, QRwLockReadGuard, QRwLockWriteGuard};

/// Locks that one thread can have notes for at a time, if their keys fall into different slots.
const SLOTS: usize = if cfg!(loom) { 1 } else { 8 };
/// No note, no bias.
const NONE: u64 = 0;
/// For how many times the duration of a revocation the bias is forbidden.
const INHIBIT: u64 = 9;

/// The notes of one thread. One cache line.
#[derive(Debug)]
pub struct Row([AtomicU64; SLOTS]);

impl Row {
    const_fn! {
        /// A row without notes.
        #[allow(clippy::new_without_default, reason = "for statics and models alone")]
        #[cfg_attr(feature = "lockdep", track_caller)]
        pub fn new() -> Self {
            #[cfg(not(any(loom, shuttle)))]
            return Self([const { AtomicU64::new(NONE) }; SLOTS]);
            #[cfg(any(loom, shuttle))]
            Self(core::array::from_fn(|_| AtomicU64::new(NONE)))
        }
    }

    /// The slot for `key`, if it is free.
    #[inline]
    fn slot(&self, key: u64) -> Option<&AtomicU64> {
        let slot = &self.0[key as usize % SLOTS];
        // BR-3 Acquire: after the reads of who used it last. unmodelled acquire: a model's light side is a
        // real fence, which would do.
        (slot.load(Acquire) == NONE).then_some(slot)
    }
}

/// A fair reader-writer lock whose readers write nothing shared while no writer comes.
///
/// ```
/// use vfscale_sync::BiasedRwLock;
///
/// static ROUTES: BiasedRwLock<Vec<&str>> = BiasedRwLock::new(Vec::new());
///
/// ROUTES.write().push("default");
/// assert_eq!(ROUTES.read().len(), 1);
/// ```
///
/// # Invariants
/// The value is reached mutably only by the holder of the write lock below, while `bias` is 0 and no
/// slot that was filled while it was not holds `key`; shared only by a holder of a read lock below, or
/// by who filled a slot with `key` and found `bias` set afterwards, until that slot is cleared.
pub struct BiasedRwLock<T: ?Sized> {
    /// Read by every reader; written when the bias comes or goes, under the lock below.
    bias: AtomicU64,
    /// The lock's number, once it has one. Written under the lock below.
    key: AtomicU64,
    /// In nanoseconds since the process first asked: no bias before.
    not_before: AtomicU64,
    lock: QRwLock<T>,
}

impl<T> BiasedRwLock<T> {
    const_fn! {
        /// An unlocked lock around `value`.
        #[must_use]
        #[cfg_attr(feature = "lockdep", track_caller)]
        pub fn new(value: T) -> Self {
            Self {
                bias: AtomicU64::new(NONE),
                key: AtomicU64::new(NONE),
                not_before: AtomicU64::new(0),
                lock: QRwLock::new(value),
            }
        }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.lock.into_inner()
    }
}

#[cfg(not(loom))]
impl<T: ?Sized> BiasedRwLock<T> {
    /// Locks shared, with others who read. Not twice in one thread: a writer may come in between.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn read(&self) -> BiasedRwLockReadGuard<'_, T> {
        self.read_by(rows::mine())
    }

    /// Locks shared if that is possible now.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn try_read(&self) -> Option<BiasedRwLockReadGuard<'_, T>> {
        if let Some(slot) = rows::mine().and_then(|row| self.leave_note(row)) {
            lockdep::tried(self.lock.key(), Mode::Shared, true);
            return Some(BiasedRwLockReadGuard { hold: Hold::Note(Note { lock: self, slot }) });
        }
        self.lock.try_read().map(|guard| BiasedRwLockReadGuard { hold: Hold::Lock(guard) })
    }

    /// Locks exclusively.
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn write(&self) -> BiasedRwLockWriteGuard<'_, T> {
        self.write_past(rows::all())
    }

    /// Locks exclusively if that is possible now. Costs readers their bias if it is.
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn try_write(&self) -> Option<BiasedRwLockWriteGuard<'_, T>> {
        self.try_write_past(rows::all())
    }
}

impl<T: ?Sized> BiasedRwLock<T> {
    /// `read` of the thread with that row.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub(crate) fn read_by(&self, row: Option<&'static Row>) -> BiasedRwLockReadGuard<'_, T> {
        let asked = lockdep::ask(self.lock.key(), Mode::Shared);
        match row.and_then(|row| self.leave_note(row)) {
            Some(slot) => {
                asked.taken(self.lock.key(), Mode::Shared);
                BiasedRwLockReadGuard { hold: Hold::Note(Note { lock: self, slot }) }
            }
            None => BiasedRwLockReadGuard { hold: Hold::Lock(self.read_below()) },
        }
    }

    #[inline]
    fn leave_note(&self, row: &'static Row) -> Option<&'static AtomicU64> {
        // Relaxed: looked at again below.
        let key = self.bias.load(Relaxed);
        if key == NONE {
            return None;
        }
        let slot = row.slot(key)?;
        // Relaxed: the fence orders it against the second look at the bias.
        slot.store(key, Relaxed);
        // BR-1
        fence::light();
        // BR-2 Acquire: what the writers wrote before the bias was given.
        if self.bias.load(Acquire) == key {
            return Some(slot);
        }
        // BR-3 Release: the reads of earlier notes in this slot. unmodelled release: a model's light side
        // is a real fence, which would do.
        slot.store(NONE, Release);
        None
    }

    #[cold]
    #[cfg_attr(feature = "lockdep", track_caller)]
    fn read_below(&self) -> QRwLockReadGuard<'_, T> {
        let guard = self.lock.read();
        // Relaxed, both: no writer is here to change them, and two readers give the same bias.
        if self.bias.load(Relaxed) == NONE && clock::now() >= self.not_before.load(Relaxed) {
            // BR-2 Release: what the writers wrote whom we have waited for.
            self.bias.store(self.key(), Release);
        }
        guard
    }

    /// The lock's number. The caller holds the lock below, shared.
    fn key(&self) -> u64 {
        /// The next number.
        #[cfg(not(any(loom, shuttle)))]
        static NEXT: AtomicU64 = AtomicU64::new(NONE + 1);
        #[cfg(any(loom, shuttle))]
        static NEXT: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(NONE + 1);

        // Relaxed, here and below: a number says nothing about other words, and who loses takes the other's.
        let key = self.key.load(Relaxed);
        if key != NONE {
            return key;
        }
        let fresh = NEXT.fetch_add(1, Relaxed);
        self.key.compare_exchange(NONE, fresh, Relaxed, Relaxed).err().unwrap_or(fresh)
    }

    /// `write`, with these rows to look at.
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub(crate) fn write_past<'r>(
        &self,
        rows: impl Iterator<Item = &'r Row>,
    ) -> BiasedRwLockWriteGuard<'_, T> {
        let guard = self.lock.write();
        // Relaxed: only who holds the lock below writes it.
        if self.bias.load(Relaxed) != NONE {
            self.revoke(rows);
        }
        BiasedRwLockWriteGuard { below: guard }
    }

    /// `try_write`, with these rows to look at.
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub(crate) fn try_write_past<'r>(
        &self,
        rows: impl Iterator<Item = &'r Row>,
    ) -> Option<BiasedRwLockWriteGuard<'_, T>> {
        let guard = self.lock.try_write()?;
        if let Some(key) = self.take_bias() {
            // BR-3 Acquire: their reads.
            if rows.flat_map(|row| &row.0).any(|slot| slot.load(Acquire) == key) {
                // BR-2 Release: what the writers before us wrote. unmodelled release: the heavy side in
                // `take_bias` is a full fence under a model, which would do.
                self.bias.store(key, Release);
                return None;
            }
        }
        Some(BiasedRwLockWriteGuard { below: guard })
    }

    #[cold]
    fn revoke<'r>(&self, rows: impl Iterator<Item = &'r Row>) {
        let begun = clock::now();
        let Some(key) = self.take_bias() else { return };
        for slot in rows.flat_map(|row| &row.0) {
            await_note(slot, key);
        }
        let took = clock::now() - begun;
        // Relaxed: read under the lock below.
        self.not_before.store(begun + took * (1 + INHIBIT), Relaxed);
    }

    /// Takes the bias away and answers the key it was given for. The caller holds the lock below
    /// exclusively, and then looks at all rows.
    fn take_bias(&self) -> Option<u64> {
        // Relaxed, both: only who holds the lock below writes it, and the fence orders it against the slots.
        let key = self.bias.load(Relaxed);
        if key == NONE {
            return None;
        }
        self.bias.store(NONE, Relaxed);
        // BR-1
        fence::heavy();
        Some(key)
    }

    /// The value, without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.lock.get_mut()
    }
}

/// Waits until the note is gone. Its reader wakes nobody.
fn await_note(slot: &AtomicU64, key: u64) {
    let mut backoff = Backoff::new();
    let mut sleeps = 0;
    // BR-3 Acquire: the reads of who left the note.
    while slot.load(Acquire) == key {
        if backoff.pause() == Turn::Park {
            sleeps = (sleeps + 1).min(20);
            clock::sleep(Duration::from_micros(50 * sleeps));
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for BiasedRwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BiasedRwLock")
            .field("biased", &(self.bias.load(Relaxed) != NONE))
            .field("lock", &&self.lock)
            .finish_non_exhaustive()
    }
}

impl<T: Default> Default for BiasedRwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// What a reader has to give back.
enum Hold<'a, T: ?Sized> {
    Note(Note<'a, T>),
    Lock(QRwLockReadGuard<'a, T>),
}

struct Note<'a, T: ?Sized> {
    lock: &'a BiasedRwLock<T>,
    slot: &'static AtomicU64,
}

impl<T: ?Sized> Drop for Note<'_, T> {
    #[inline]
    fn drop(&mut self) {
        lockdep::released(self.lock.lock.key());
        // BR-3 Release: our reads.
        self.slot.store(NONE, Release);
    }
}

/// Shared access to the value of a [`BiasedRwLock`].
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct BiasedRwLockReadGuard<'a, T: ?Sized> {
    hold: Hold<'a, T>,
}

impl<T: ?Sized> Deref for BiasedRwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match &self.hold {
            // SAFETY: our note was there when the bias was, and still is, so no writer goes on past it
            // (invariant of `BiasedRwLock`).
            Hold::Note(note) => unsafe { &*note.lock.lock.as_ptr() },
            Hold::Lock(guard) => guard,
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for BiasedRwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Exclusive access to the value of a [`BiasedRwLock`].
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct BiasedRwLockWriteGuard<'a, T: ?Sized> {
    below: QRwLockWriteGuard<'a, T>,
}

impl<T: ?Sized> Deref for BiasedRwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.below
    }
}

impl<T: ?Sized> DerefMut for BiasedRwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.below
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for BiasedRwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// What a model has instead of rows per thread.
#[cfg(loom)]
pub mod model {
    use super::{BiasedRwLock, BiasedRwLockReadGuard, BiasedRwLockWriteGuard, Row};

    /// `read`, by the thread with that row.
    pub fn read_by<'a, T>(
        lock: &'a BiasedRwLock<T>,
        row: &'static Row,
    ) -> BiasedRwLockReadGuard<'a, T> {
        lock.read_by(Some(row))
    }

    /// `write`, among threads with these rows.
    pub fn write_past<'a, T>(
        lock: &'a BiasedRwLock<T>,
        rows: &[&'static Row],
    ) -> BiasedRwLockWriteGuard<'a, T> {
        lock.write_past(rows.iter().copied())
    }

    /// `try_write`, among threads with these rows.
    pub fn try_write_past<'a, T>(
        lock: &'a BiasedRwLock<T>,
        rows: &[&'static Row],
    ) -> Option<BiasedRwLockWriteGuard<'a, T>> {
        lock.try_write_past(rows.iter().copied())
    }
}

#[cfg(not(loom))]
mod rows {
    use super::Row;
    use crate::thread_slot;
    use crossbeam_utils::CachePadded;

    /// Threads with a row of their own.
    const ROWS: usize = 128;

    #[cfg(not(shuttle))]
    static TABLE: [CachePadded<Row>; ROWS] = [const { CachePadded::new(Row::new()) }; ROWS];

    /// The row of the running thread.
    #[inline]
    pub(super) fn mine() -> Option<&'static Row> {
        #[cfg(not(shuttle))]
        return TABLE.get(thread_slot::current()).map(|row| &**row);
        #[cfg(shuttle)]
        None
    }

    /// All rows that may have notes.
    pub(super) fn all() -> impl Iterator<Item = &'static Row> {
        // Whoever left a note asked for its number before, and is seen by who comes after `heavy`.
        #[cfg(not(shuttle))]
        return TABLE.iter().take(thread_slot::given()).map(|row| &**row);
        #[cfg(shuttle)]
        core::iter::empty()
    }
}

#[cfg(not(any(loom, shuttle)))]
mod clock {
    use std::sync::OnceLock;
    use std::time::{Duration, Instant};

    static START: OnceLock<Instant> = OnceLock::new();

    /// Nanoseconds since the first call.
    pub(super) fn now() -> u64 {
        let start = START.get_or_init(Instant::now);
        u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX / 16)
    }

    pub(super) fn sleep(time: Duration) {
        std::thread::sleep(time);
    }
}

/// Under a model no time passes: the bias comes back at once.
#[cfg(any(loom, shuttle))]
mod clock {
    pub(super) fn now() -> u64 {
        0
    }

    pub(super) fn sleep(_: std::time::Duration) {
        crate::prim::yield_now();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
