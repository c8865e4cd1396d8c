//! Counted references to pool slots, four bytes each.
//!
//! # Why
//! An [`Id`] may be stale, and what it leads to may be another object. A `Held` is an id whose slot is counted: it is the
//! object that was found, until it is dropped.
//!
//! # Who retires
//! The type's owner: [`HeldSlot::put`] decides what the last drop does (keep it in a cache, mark it dead and retire it), so that
//! one count serves both. Only a dead slot is retired, and a dead count refuses: a slot that somebody holds is not reused.
//!
//! # A race, step by step
//! ```text
//!  T1 `try_get(id)`                      T2 last drop
//!  section; slot of `id`
//!                                        locks, marks dead, unlocks, retires: waits for T1's section
//!  `get_not_dead`: Refused
//! ```
//! Had T1's id been staler than its section, the slot may have begun a new life: who looks up by key compares the key after
//! `try_get`.
//!
//! # Orderings
//! LR-1 to LR-3 of `lockref` for the count, RCU-2 for the slot.

use crate::rcu::Guard;
use crate::{Fresh, Get, Id, LockRef, Pool, Slot};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;

/// A slot that counts who uses it.
pub trait HeldSlot: Slot {
    /// The count.
    fn lockref(&self) -> &LockRef;

    /// The pool its slots are in.
    fn pool() -> &'static Pool<Self>;

    /// Drops one reference; called where a [`Held`] goes out of scope. Does what the last drop asks for.
    fn put(id: Id<Self>);
}

/// One counted reference to a slot. While it lives the slot is not retired, if all who retire obey the count.
///
/// Nothing here is unsafe, since a slot stays a valid `T` for ever; a reference too many or too few is a bug like any other.
///
/// ```
/// use vfscale_sync::{Held, HeldSlot, Id, LockRef, Pool, Put, Slot, rcu};
///
/// struct Inode {
///     refs: LockRef,
/// }
///
/// impl Slot for Inode {
///     fn new() -> Self {
///         Inode { refs: LockRef::new(0, ()) }
///     }
/// }
///
/// static INODES: Pool<Inode> = Pool::new(1000);
///
/// impl HeldSlot for Inode {
///     fn lockref(&self) -> &LockRef {
///         &self.refs
///     }
///
///     fn pool() -> &'static Pool<Self> {
///         &INODES
///     }
///
///     fn put(id: Id<Self>) {
///         if let Put::LastLocked(mut last) = INODES.slot(id).refs.put_or_lock() {
///             last.mark_dead();
///             drop(last);
///             INODES.retire(id, &rcu::pin());
///         }
///     }
/// }
///
/// let fresh = INODES.alloc().expect("room");
/// fresh.refs.reset(1);
/// let inode = Held::from_fresh(fresh);
/// let guard = rcu::pin();
/// let again = Held::try_get(inode.id(), &guard).expect("it lives");
/// let id = inode.id();
/// drop((inode, again));
/// assert!(Held::try_get(id, &guard).is_none());
/// ```
pub struct Held<T: HeldSlot> {
    id: Id<T>,
}

impl<T: HeldSlot> Held<T> {
    /// Publishes a slot and takes over the reference that its count was reset to.
    pub fn from_fresh(fresh: Fresh<T>) -> Self {
        Held { id: fresh.publish() }
    }

    /// A reference to the slot, unless it is dead.
    #[inline]
    pub fn try_get(id: Id<T>, guard: &Guard) -> Option<Self> {
        match T::pool().get(id, guard).lockref().get_not_dead() {
            Get::Taken => Some(Held { id }),
            Get::Refused => None,
        }
    }

    /// Takes over a reference that [`Held::into_raw`] gave up, or that was counted by hand.
    #[inline]
    pub fn from_raw(id: Id<T>) -> Self {
        Held { id }
    }

    /// Gives up the value but not the reference: somebody will pass the id to [`Held::from_raw`].
    #[inline]
    pub fn into_raw(self) -> Id<T> {
        ManuallyDrop::new(self).id
    }

    /// Which slot.
    #[inline]
    pub fn id(&self) -> Id<T> {
        self.id
    }
}

impl<T: HeldSlot> Deref for Held<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        T::pool().slot(self.id)
    }
}

impl<T: HeldSlot> Clone for Held<T> {
    #[inline]
    fn clone(&self) -> Self {
        self.lockref().get();
        Held { id: self.id }
    }
}

impl<T: HeldSlot> Drop for Held<T> {
    #[inline]
    fn drop(&mut self) {
        T::put(self.id);
    }
}

impl<T: HeldSlot> PartialEq for Held<T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl<T: HeldSlot> Eq for Held<T> {}

impl<T: HeldSlot> fmt::Debug for Held<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.id).finish()
    }
}
