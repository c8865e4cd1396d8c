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
//! # Memory
//! A put that resurrects and a get that comes too late still touch the word, so the object must
//! stay readable meanwhile: it lives in a type-stable pool or is freed after a grace period, gets
//! come from inside a read-side section, and [`FileRef::put`] asks for the guard. A stray get on a
//! slot in its next life is a true reference of that one: who finds an object through a table
//! compares the table's entry again after the get, and puts on a mismatch.
//!
//! # Orderings
//! - FR-1 put (Release) -> the exchange NOREF to DEAD (Acquire): all uses come before the
//!   destruction
//! - FR-2 get (SeqCst) and the caller's second read of the table (SeqCst) -> a closer who clears
//!   the entry (SeqCst) and then reads the count: one of the two sees the other
//! - FR-3 `reset` (Release) -> get (Acquire half): the new life's fields
//!
//! # Distrust
//! [`FileRef::count`] answers 0 for an object that may live again. Only [`PutFile::Last`] allows
//! destruction.
//!
//! # Source
//! kernel file_ref (2024), which met the wish of the fget thread (2020) whose split form was
//! refused; `tests/loom_refuted_fget.rs` keeps that form, failing.

use crate::prim::Ordering::{Acquire, Relaxed, Release, SeqCst};
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
        // FR-2 SeqCst: before the caller reads the table again. FR-3, its Acquire half.
        // unmodelled seqcst: loom keeps no one order of SeqCst accesses.
        if is_negative(self.0.fetch_add(1, SeqCst).wrapping_add(1)) {
            return GetFile::Dead;
        }
        stats::count(Event::FileGet);
        GetFile::Taken
    }

    /// Drops a reference. After [`PutFile::Last`] no get succeeds any more, and the caller
    /// destroys.
    ///
    /// The guard keeps the word readable between the subtraction and the decision.
    #[inline]
    pub fn put(&self, _guard: &Guard) -> PutFile {
        stats::count(Event::FilePut);
        // FR-1 Release: our uses. FR-2: whoever reads the count in one order with the gets does so
        // with SeqCst. unmodelled seqcst: as in `get`; its Acquire half serves nobody else.
        let left = self.0.fetch_sub(1, SeqCst).wrapping_sub(1);
        if is_negative(left) { self.put_slow(left) } else { PutFile::StillLive }
    }

    #[cold]
    fn put_slow(&self, left: u64) -> PutFile {
        if left == NOREF {
            // FR-1 Acquire: everybody's uses. Once only: a failure means that somebody took a
            // reference meanwhile, and answers for it.
            return match self.0.compare_exchange(NOREF, DEAD, Acquire, Relaxed) {
                Ok(_) => PutFile::Last,
                Err(_) => PutFile::StillLive,
            };
        }
        assert!(left < RELEASED, "FileRef::put on a dead object: a reference was dropped twice");
        // Back to the middle: the count is lost anyway. Relaxed: nothing is published.
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
        // FR-2 SeqCst: a closer who cleared a table's entry counts the gets that found it. unmodelled seqcst: as in `get`.
        let word = self.0.load(SeqCst);
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
