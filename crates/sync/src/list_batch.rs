//! A list that many threads insert into and remove from, with one lock that works for its waiters.
//!
//! # Why
//! A list of all objects of one kind (the inodes of a file system) is changed by everybody and read
//! by hardly anybody. Its lock is held for a few stores, and under contention costs hundreds of
//! times that.
//!
//! # How
//! An [`IdList`] behind [`Combining`]: operations are direct while the lock is to be had, and
//! beyond that are done in batches by the head of the queue. `combining` holds the protocol and its
//! orderings.
//!
//! # What to expect
//! On few processors almost everything is direct, and what is gained comes from the lock (a plain
//! store to unlock, waiters that sleep), not from combining. Combining is for many.
//!
//! # Distrust
//! [`ListBatch::is_linked`] looks without the lock: fine for who alone adds and removes this
//! object, a hint for others. An operation that breaks the contract (adding what is on the list)
//! panics, and ends the process if it was queued.
//!
//! # Source
//! list_batch thread (2016), which batched the superblock's inode list.

use core::fmt;

use crate::combining::{Apply, Combining};
use crate::{Id, IdList, ListAdapter, Pool, Slot};

/// A list of slots of one pool, behind a combining lock.
///
/// ```
/// use vfscale_sync::{Id, IdLinks, ListAdapter, ListBatch, Pool, Slot, rcu};
///
/// struct Inode {
///     on_superblock: IdLinks<Inode>,
/// }
///
/// impl Slot for Inode {
///     fn new() -> Self {
///         Inode { on_superblock: IdLinks::new() }
///     }
/// }
///
/// struct OnSuperblock;
///
/// impl ListAdapter<Inode> for OnSuperblock {
///     fn links(inode: &Inode) -> &IdLinks<Inode> {
///         &inode.on_superblock
///     }
/// }
///
/// static INODES: Pool<Inode> = Pool::new(1000);
/// static ALL: ListBatch<Inode, OnSuperblock> = ListBatch::new(&INODES);
///
/// let inode = INODES.alloc().expect("room").publish();
/// ALL.add(inode);
/// assert_eq!(ALL.len(), 1);
/// assert!(ALL.del(inode));
/// assert!(!ALL.del(inode));
/// INODES.retire(inode, &rcu::pin());
/// ```
pub struct ListBatch<T: Slot, A: ListAdapter<T>> {
    pool: &'static Pool<T>,
    list: Combining<Batched<T, A>>,
}

/// What one thread asks of the list.
enum Op<T> {
    Add(Id<T>),
    AddTail(Id<T>),
    Del(Id<T>),
}

impl<T> Clone for Op<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Op<T> {}

struct Batched<T: Slot, A: ListAdapter<T>>(IdList<T, A>);

impl<T: Slot, A: ListAdapter<T>> Apply for Batched<T, A> {
    type Op = Op<T>;

    fn apply(&mut self, op: Op<T>) -> bool {
        match op {
            Op::Add(id) => self.0.push_front(id),
            Op::AddTail(id) => self.0.push_back(id),
            Op::Del(id) => return self.0.remove(id),
        }
        true
    }
}

impl<T: Slot, A: ListAdapter<T>> ListBatch<T, A> {
    /// An empty list of slots of `pool`.
    #[must_use]
    pub const fn new(pool: &'static Pool<T>) -> Self {
        Self { pool, list: Combining::new(Batched(IdList::new(pool))) }
    }

    /// Puts the slot first. It is on the list on return.
    ///
    /// # Panics
    /// If it is on a list already.
    #[inline]
    pub fn add(&self, id: Id<T>) {
        self.list.run(Op::Add(id));
    }

    /// Puts the slot last. It is on the list on return.
    ///
    /// # Panics
    /// If it is on a list already.
    #[inline]
    pub fn add_tail(&self, id: Id<T>) {
        self.list.run(Op::AddTail(id));
    }

    /// Takes the slot off the list; answers whether it was on it.
    #[inline]
    pub fn del(&self, id: Id<T>) -> bool {
        self.list.run(Op::Del(id))
    }

    /// Whether the slot was on the list a moment ago. Exact for who alone adds and removes it.
    #[inline]
    #[must_use]
    pub fn is_linked(&self, id: Id<T>) -> bool {
        A::links(self.pool.slot(id)).is_linked()
    }

    /// How many slots are on the list. Takes the lock.
    #[must_use]
    pub fn len(&self) -> usize {
        self.with(|list| list.len())
    }

    /// Whether none is. Takes the lock.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lends the list, locked, to `f`: to walk it, or to take many off. Others wait meanwhile, so
    /// do it in portions.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut IdList<T, A>) -> R) -> R {
        self.list.with(|batched| f(&mut batched.0))
    }
}

impl<T: Slot, A: ListAdapter<T>> fmt::Debug for ListBatch<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListBatch").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
