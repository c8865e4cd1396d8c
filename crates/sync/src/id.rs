//! Names of pool slots: 32 bits, and nothing that can dangle.
//!
//! # Why
//! A link by pointer is eight bytes and needs `unsafe` to follow. A link by id is four, and following it always reaches a
//! valid object (see [`Pool`]): perhaps not the one meant, which is a logic error that a sequence check catches, never
//! undefined behaviour.
//!
//! # Orderings
//! The caller's: each operation takes them. An id that was stored with Release and loaded with Acquire leads to a slot as it was
//! when it was stored.

use crate::prim::{AtomicU32, Ordering};
use core::fmt;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;
use core::num::NonZeroU32;

#[cfg(all(doc, feature = "std"))]
use crate::Pool;

/// The name of one slot of a pool of `T`. Says nothing about whether the slot is in use.
pub struct Id<T> {
    raw: NonZeroU32,
    _of: PhantomData<fn() -> T>,
}

impl<T> Id<T> {
    /// The number behind the id, never 0.
    #[inline]
    pub const fn to_raw(self) -> u32 {
        self.raw.get()
    }

    /// The id behind the number; `None` for 0. Any other number is an id, and `Pool::get` takes it.
    #[inline]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match NonZeroU32::new(raw) {
            Some(raw) => Some(Id { raw, _of: PhantomData }),
            None => None,
        }
    }
}

impl<T> Clone for Id<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Id<T> {}

impl<T> PartialEq for Id<T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl<T> Eq for Id<T> {}

impl<T> PartialOrd for Id<T> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Id<T> {
    #[inline]
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.raw.cmp(&other.raw)
    }
}

impl<T> Hash for Id<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.raw.hash(state);
    }
}

impl<T> fmt::Debug for Id<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.raw)
    }
}

/// An id, or none, that threads may load and store at the same time.
///
/// ```
/// use vfscale_sync::{AtomicId, Id, Ordering};
///
/// static LATEST: AtomicId<String> = AtomicId::none();
///
/// assert_eq!(LATEST.load(Ordering::Acquire), None);
/// LATEST.store(Id::from_raw(7), Ordering::Release);
/// assert_eq!(LATEST.load(Ordering::Acquire).map(Id::to_raw), Some(7));
/// ```
pub struct AtomicId<T> {
    raw: AtomicU32,
    _of: PhantomData<fn() -> T>,
}

impl<T> AtomicId<T> {
    /// None.
    #[cfg(not(loom))]
    pub const fn none() -> Self {
        AtomicId { raw: AtomicU32::new(0), _of: PhantomData }
    }

    /// None.
    #[cfg(loom)]
    pub fn none() -> Self {
        AtomicId { raw: AtomicU32::new(0), _of: PhantomData }
    }

    /// Loads; `order` as for an atomic load.
    #[inline]
    pub fn load(&self, order: Ordering) -> Option<Id<T>> {
        Id::from_raw(self.raw.load(order))
    }

    /// Stores; `order` as for an atomic store.
    #[inline]
    pub fn store(&self, id: Option<Id<T>>, order: Ordering) {
        self.raw.store(raw(id), order);
    }

    /// Stores, and returns what was there.
    #[inline]
    pub fn swap(&self, id: Option<Id<T>>, order: Ordering) -> Option<Id<T>> {
        Id::from_raw(self.raw.swap(raw(id), order))
    }

    /// Stores `new` if `current` is there.
    ///
    /// # Errors
    /// What is there, if it is not `current`. Nothing changed then.
    #[inline]
    pub fn compare_exchange(
        &self,
        current: Option<Id<T>>,
        new: Option<Id<T>>,
        success: Ordering,
        failure: Ordering,
    ) -> Result<(), Option<Id<T>>> {
        match self.raw.compare_exchange(raw(current), raw(new), success, failure) {
            Ok(_) => Ok(()),
            Err(found) => Err(Id::from_raw(found)),
        }
    }
}

#[inline]
fn raw<T>(id: Option<Id<T>>) -> u32 {
    id.map_or(0, Id::to_raw)
}

impl<T> Default for AtomicId<T> {
    fn default() -> Self {
        AtomicId::none()
    }
}

impl<T> fmt::Debug for AtomicId<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: for people to read.
        match self.load(Ordering::Relaxed) {
            Some(id) => id.fmt(f),
            None => f.write_str("none"),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn ids_are_small_and_numbers_come_back() {
        assert_eq!(size_of::<Id<u8>>(), 4);
        assert_eq!(size_of::<Option<Id<u8>>>(), 4);
        assert_eq!(size_of::<AtomicId<u8>>(), 4);
        assert_eq!(Id::<u8>::from_raw(0), None);
        assert_eq!(Id::<u8>::from_raw(7).map(Id::to_raw), Some(7));
        assert_eq!(format!("{:?}", Id::<u8>::from_raw(7).unwrap()), "#7");
    }

    #[test]
    fn atomic_ids_hold_none_and_some() {
        let cell = AtomicId::<u8>::none();
        let (a, b) = (Id::from_raw(1), Id::from_raw(2));
        assert_eq!(cell.load(Ordering::Relaxed), None);
        cell.store(a, Ordering::Relaxed);
        assert_eq!(cell.swap(b, Ordering::Relaxed), a);
        assert_eq!(cell.compare_exchange(a, None, Ordering::Relaxed, Ordering::Relaxed), Err(b));
        assert_eq!(cell.compare_exchange(b, None, Ordering::Relaxed, Ordering::Relaxed), Ok(()));
    }
}
