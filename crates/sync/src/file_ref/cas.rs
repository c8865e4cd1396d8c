//! The older form: a compare-exchange loop that adds unless zero.
//!
//! # Word
//! the references; 0 is dead, for good · `u64::MAX / 2` refuses more, so it never wraps
//!
//! # Beside `FileRef`
//! The count is exact, a refused get writes nothing, and a put is decided by its own subtraction, so
//! that it needs no guard. But competitors make each other's exchanges fail: 8 tries for one success
//! were seen on 112 processors.
//!
//! # Orderings
//! - CR-1 put (Release) -> the put that reaches zero (Acquire): all uses come before the destruction
//! - CR-2 put (Release), after the closer has cleared the table's entry -> get (Acquire), before the
//!   caller reads the entry again
//! - CR-3 `reset` (Release) -> get (Acquire): the new life's fields
//!
//! # Source
//! kernel `atomic_long_inc_not_zero` on `f_count`, until 2024.

use super::{GetFile, PutFile};
use crate::prim::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::prim::{AtomicU64, const_fn};

/// More is refused.
const MAX: u64 = u64::MAX / 2;

/// A reference count for objects that are found without a lock, by compare-exchange. Eight bytes.
///
/// For few threads, or where refused gets must not write. Else take [`FileRef`](super::FileRef).
///
/// ```
/// use vfscale_sync::{CasRef, GetFile, PutFile};
///
/// let refs = CasRef::new();
/// assert_eq!(refs.get(), GetFile::Taken);
/// assert_eq!(refs.put(), PutFile::StillLive);
/// assert_eq!(refs.put(), PutFile::Last);
/// assert_eq!(refs.get(), GetFile::Dead);
/// ```
#[derive(Debug)]
pub struct CasRef(AtomicU64);

impl CasRef {
    const_fn! {
        /// One reference.
        #[must_use]
        pub fn new() -> Self {
            Self(AtomicU64::new(1))
        }
    }

    /// Takes a reference if the object lives. The object must be readable: held, or found inside a
    /// read-side section.
    #[inline]
    pub fn get(&self) -> GetFile {
        self.get_many(1)
    }

    /// Takes `n` references if the object lives, all or none. Each has to be put.
    #[inline]
    pub fn get_many(&self, n: u16) -> GetFile {
        // Relaxed: the exchange re-checks it.
        let mut seen = self.0.load(Relaxed);
        while (1..MAX).contains(&seen) {
            // CR-2 Acquire: before the caller reads the table again. CR-3 Acquire: the fields.
            match self.0.compare_exchange_weak(seen, seen + u64::from(n), Acquire, Relaxed) {
                Ok(_) => return GetFile::Taken,
                Err(fresh) => seen = fresh,
            }
        }
        GetFile::Dead
    }

    /// Drops a reference. After [`PutFile::Last`] no get succeeds any more, and the caller destroys.
    ///
    /// # Panics
    /// If the object is dead: a reference was dropped twice.
    #[inline]
    pub fn put(&self) -> PutFile {
        // CR-1 AcqRel: our uses; everybody's, if we are the last. CR-2 Release: the entry that we cleared.
        match self.0.fetch_sub(1, AcqRel) {
            1 => PutFile::Last,
            2.. => PutFile::StillLive,
            0 => self.put_dead(),
        }
    }

    #[cold]
    fn put_dead(&self) -> ! {
        // Relaxed: nobody may act on it.
        self.0.fetch_add(1, Relaxed);
        panic!("CasRef: put on a dead object: a reference was dropped twice");
    }

    /// Makes a fresh object of a dead one: one reference. The last step of preparing it.
    pub fn reset(&self) {
        // CR-3 Release: the fields of the new life.
        self.0.store(1, Release);
    }

    /// How many references there were a moment ago.
    #[must_use]
    pub fn count(&self) -> u64 {
        // Relaxed: a hint.
        self.0.load(Relaxed)
    }
}

impl Default for CasRef {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_highest_count_refuses_more_and_stays_exact() {
        let refs = CasRef(AtomicU64::new(MAX - 1));
        assert_eq!((refs.get(), refs.get(), refs.count()), (GetFile::Taken, GetFile::Dead, MAX));
        assert_eq!(
            (refs.put(), refs.get(), refs.count()),
            (PutFile::StillLive, GetFile::Taken, MAX)
        );
    }

    #[test]
    #[should_panic(expected = "dropped twice")]
    fn a_put_of_the_dead_is_caught() {
        let refs = CasRef::new();
        assert_eq!(refs.put(), PutFile::Last);
        let _ = refs.put();
    }
}
