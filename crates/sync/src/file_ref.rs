//! A reference count that is taken by one unconditional add, and knows when it is too late.
//!
//! # Why
//! "Add unless zero" as a compare-exchange loop costs a retry per competitor; check-then-add is
//! wrong (the object dies in between, and a third thread sees the count it was given back). Here a
//! get always adds one, and the value it produced tells whether that was a reference.
//!
//! # Word
//! references minus one, in zones; a get or a put moves it by one and never out of a zone that is
//! 2^62 wide
//! ```text
//!  0x0000…0 ..= 0x7fff…f   valid       one reference and more
//!  0x8000…0 ..= 0xbfff…f   saturated   counts are lost: the object leaks, gets fail
//!  0xc000…0 ..= 0xffff…e   dead        no get succeeds; a stray add or subtraction does not matter
//!  0xffff…f                NOREF       the last put has been, the death is not decided
//! ```
//!
//! # The last put, step by step
//! ```text
//!  T1 put                                T2 get
//!  0 -> NOREF
//!                                        NOREF -> 0: not negative, a reference. It lives again
//!  NOREF -> DEAD fails: 0. StillLive
//! ```
//! or, the other way round:
//! ```text
//!  0 -> NOREF -> DEAD: Last              DEAD -> DEAD + 1: negative, no reference, and nothing is undone
//! ```
//! T1 acts on the value that its own subtraction produced and tries the exchange once. To read the
//! count again would judge another life of the object.
//!
//! # Several at once
//! [`FileRef::get_many`] adds its number in one step; the same zones tell.
//! [`FileRef::put_close`] is for who expects to be the last: an exchange from one reference to DEAD,
//! one step instead of two, and worse than [`FileRef::put`] where others count at the same time. It
//! never leaves the valid zone before it is decided, so it asks for no guard.
//!
//! # Memory
//! A put that resurrects and a get that comes too late still touch the word, so the object must
//! stay readable meanwhile: it lives in a type-stable pool or is freed after a grace period, gets
//! come from inside a read-side section, and [`FileRef::put`] asks for the guard. A stray get on a
//! slot in its next life is a true reference of that one: who finds an object through a table
//! compares the table's entry again after the get, and puts on a mismatch.
//!
//! # Orderings
//! - FR-1 put (Release) -> the exchange to DEAD (Acquire): all uses come before the destruction
//! - FR-2 put (Release), after the closer has cleared the table's entry -> get (Acquire), before the
//!   caller reads the entry again: a get that comes after the put sees the entry cleared. One that
//!   comes before it has a reference that the put leaves alone
//! - FR-3 `reset` (Release) -> get (Acquire): the new life's fields
//!
//! # Distrust
//! [`FileRef::count`] answers 0 for an object that may live again. Only [`PutFile::Last`] allows
//! destruction.
//!
//! # Beside it
//! [`CasRef`]: the compare-exchange loop, exact, and slower as soon as two count at once.
//! [`experimental::ReservedXchg`](crate::experimental::ReservedXchg): the form that the thread's
//! replies proposed and nobody built, which blocks.
//!
//! # Source
//! kernel file_ref (2024), which met the wish of the fget thread (2020) whose split form was
//! refused; `tests/loom_refuted_fget.rs` keeps that form, failing.

mod cas;
pub(crate) mod reserved;

pub use cas::CasRef;

use crate::prim::Ordering::{Acquire, Relaxed, Release};
use crate::prim::{AtomicU64, const_fn};
use crate::rcu::Guard;
use crate::stats::{self, Event};

const NOREF: u64 = u64::MAX;
/// The middle of the dead zone.
const DEAD: u64 = 0xe000_0000_0000_0000;
/// Where the dead zone begins.
const RELEASED: u64 = 0xc000_0000_0000_0000;
/// The middle of the saturated zone.
const SATURATED: u64 = 0xa000_0000_0000_0000;

/// Whether a reference was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "Dead means there is no reference"]
pub enum GetFile {
    /// The caller holds one more reference.
    Taken,
    /// The object is dead (or its count was lost): look it up again.
    Dead,
}

/// What a put left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "Last means the caller destroys the object"]
pub enum PutFile {
    /// Others hold references, or took one just now.
    StillLive,
    /// The object is dead, and this call alone says so.
    Last,
}

/// A reference count for objects that are found without a lock. Eight bytes.
///
/// ```
/// use vfscale_sync::{FileRef, GetFile, PutFile, rcu};
///
/// let refs = FileRef::new();
/// let guard = rcu::pin();
/// assert_eq!(refs.get(), GetFile::Taken);
/// assert_eq!(refs.put(&guard), PutFile::StillLive);
/// assert_eq!(refs.put(&guard), PutFile::Last);
/// assert_eq!(refs.get(), GetFile::Dead);
/// ```
#[derive(Debug)]
pub struct FileRef(AtomicU64);

/// The zone of a value that is not valid.
fn is_negative(word: u64) -> bool {
    word.cast_signed() < 0
}

impl FileRef {
    const_fn! {
        /// One reference.
        #[must_use]
        pub fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }

    /// Takes a reference if the object lives.
    ///
    /// The object must be readable: held, or found inside a read-side section.
    #[inline]
    pub fn get(&self) -> GetFile {
        self.get_many(1)
    }

    /// Takes `n` references if the object lives, all or none. Each has to be put.
    ///
    /// The object must be readable, as for [`FileRef::get`]. `n` is small so that not even a million
    /// million refused calls add up to a way out of the dead zone.
    #[inline]
    pub fn get_many(&self, n: u16) -> GetFile {
        let n = u64::from(n);
        // FR-2 Acquire: before the caller reads the table again. FR-3 Acquire: the fields.
        if is_negative(self.0.fetch_add(n, Acquire).wrapping_add(n)) {
            return GetFile::Dead;
        }
        stats::count(Event::FileGet);
        GetFile::Taken
    }

    /// Drops a reference. After [`PutFile::Last`] no get succeeds any more, and the caller
    /// destroys.
    ///
    /// The guard keeps the word readable between the subtraction and the decision.
    ///
    /// # Panics
    /// If the object is dead: a reference was dropped twice.
    #[inline]
    pub fn put(&self, _guard: &Guard) -> PutFile {
        stats::count(Event::FilePut);
        // FR-1 Release: our uses. FR-2 Release: the entry that we cleared.
        let left = self.0.fetch_sub(1, Release).wrapping_sub(1);
        if is_negative(left) { self.put_slow(left) } else { PutFile::StillLive }
    }

    /// Drops a reference that is probably the last. As [`FileRef::put`] otherwise.
    ///
    /// # Panics
    /// If the object is dead: a reference was dropped twice.
    pub fn put_close(&self) -> PutFile {
        stats::count(Event::FilePut);
        // Relaxed: the exchange re-checks it.
        let mut seen = self.0.load(Relaxed);
        while !is_negative(seen) {
            let outcome = if seen == 0 {
                // FR-1 Acquire: everybody's uses.
                self.0.compare_exchange_weak(0, DEAD, Acquire, Relaxed).map(|_| PutFile::Last)
            } else {
                // FR-1 Release: our uses. FR-2 Release: the entry that we cleared.
                self.0
                    .compare_exchange_weak(seen, seen - 1, Release, Relaxed)
                    .map(|_| PutFile::StillLive)
            };
            match outcome {
                Ok(outcome) => return outcome,
                Err(fresh) => seen = fresh,
            }
        }
        self.put_lost(seen)
    }

    #[cold]
    fn put_slow(&self, left: u64) -> PutFile {
        if left != NOREF {
            return self.put_lost(left);
        }
        // FR-1 Acquire: everybody's uses. Once only: a failure means that somebody took a reference
        // meanwhile, and answers for it.
        match self.0.compare_exchange(NOREF, DEAD, Acquire, Relaxed) {
            Ok(_) => PutFile::Last,
            Err(_) => PutFile::StillLive,
        }
    }

    /// A put of a count that is lost, or was dropped before.
    fn put_lost(&self, word: u64) -> PutFile {
        assert!(word < RELEASED, "FileRef: put on a dead object: a reference was dropped twice");
        // Back to the middle. Relaxed: nothing is published.
        self.0.store(SATURATED, Relaxed);
        PutFile::StillLive
    }

    /// Makes a fresh object of a dead one: one reference.
    ///
    /// The last step of preparing an object for reuse: a get through a stale pointer succeeds from
    /// here on.
    pub fn reset(&self) {
        // FR-3 Release: the fields of the new life.
        self.0.store(0, Release);
    }

    /// How many references there were a moment ago; 0 also for an object that may live again.
    #[must_use]
    pub fn count(&self) -> u64 {
        // Relaxed: a hint.
        let word = self.0.load(Relaxed);
        if word >= RELEASED { 0 } else { word + 1 }
    }
}

impl Default for FileRef {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
