//! A list that many threads insert into and remove from, with one lock that works for its waiters.
//!
//! # Why
//! A list of all objects of one kind (the inodes of a file system) is changed by everybody and read
//! by hardly anybody. Its lock is held for a few stores, and under contention costs hundreds of
//! times that.
//!
//! # How
//! A list behind [`Combining`]: operations are direct while the lock is to be had, and beyond that
//! are done in batches by the head of the queue. `combining` holds the protocol and its orderings,
//! `walked_list` what lets a walker give up the lock.
//!
//! # What to expect
//! On few processors almost everything is direct, and what is gained comes from the lock (a plain
//! store to unlock, waiters that sleep), not from combining. Combining is for many.
//!
//! # Distrust
//! [`ListBatch::is_linked`] looks without the lock: fine for who alone adds and removes this
//! object, a hint for others. An id that is on another list with the same links must not be taken
//! off this one: nothing worse than wrong lists comes of it, but nothing notices either.
//!
//! # Source
//! list_batch thread (2016), which batched the superblock's inode list.

use core::fmt;

use crate::combining::{Apply, Combining, CombiningGuard, DEFAULT_BATCH};
use crate::prim::prefetch_write;
use crate::walked_list::{LockedList, Walk, WalkedList};
use crate::{Id, ListAdapter, Pool, Slot};

/// A list of slots of one pool, behind a combining lock whose head does up to `BATCH` operations
/// for others.
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
/// ALL.add_head(inode);
/// assert_eq!(ALL.len(), 1);
/// assert!(ALL.del(inode));
/// assert!(!ALL.del(inode));
/// INODES.retire(inode, &rcu::pin());
/// ```
pub struct ListBatch<T: Slot, A: ListAdapter<T>, const BATCH: usize = DEFAULT_BATCH> {
    list: Combining<WalkedList<T, A>, BATCH>,
    pool: &'static Pool<T>,
}

/// What one thread asks of a list.
///
/// Taking off always leaves a slot that knows that it is on no list (what the kernel calls
/// `del_init`): a stale link would be an id all the same.
#[derive(Debug)]
pub enum ListOp<T> {
    /// Put it first, unless it is on a list.
    AddHead(Id<T>),
    /// Put it last, unless it is on a list.
    AddTail(Id<T>),
    /// Take it off, if it is on a list.
    Del(Id<T>),
}

impl<T> Clone for ListOp<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ListOp<T> {}

impl<T: Slot, A: ListAdapter<T>> Apply for WalkedList<T, A> {
    type Op = ListOp<T>;

    #[inline]
    fn apply(&mut self, op: ListOp<T>) -> bool {
        // R4.9: no arm for "the rest", so that a new command is not forgotten here.
        match op {
            ListOp::AddHead(id) => self.add_head(id),
            ListOp::AddTail(id) => self.add_tail(id),
            ListOp::Del(id) => self.del(id),
        }
    }
}

impl<T: Slot, A: ListAdapter<T>, const BATCH: usize> ListBatch<T, A, BATCH> {
    /// An empty list of slots of `pool`.
    #[must_use]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub const fn new(pool: &'static Pool<T>) -> Self {
        Self { list: Combining::new(WalkedList::new(pool)), pool }
    }

    /// Does `op`, or has it done; answers whether it changed anything. Its effect is there on
    /// return.
    #[inline]
    pub fn run(&self, op: ListOp<T>) -> bool {
        self.list.run(op)
    }

    /// Puts the slot first. It is on the list on return.
    ///
    /// # Panics
    /// If it is on a list already.
    #[inline]
    pub fn add_head(&self, id: Id<T>) {
        assert!(self.run(ListOp::AddHead(id)), "{id:?} is on a list already");
    }

    /// Puts the slot last. It is on the list on return.
    ///
    /// # Panics
    /// If it is on a list already.
    #[inline]
    pub fn add_tail(&self, id: Id<T>) {
        assert!(self.run(ListOp::AddTail(id)), "{id:?} is on a list already");
    }

    /// Takes the slot off the list; answers whether it was on it. Of several threads that take off
    /// one slot, one is told so.
    #[inline]
    pub fn del(&self, id: Id<T>) -> bool {
        // Who put a slot before ours has our line. It comes while we wait for the lock's, not after.
        prefetch_write(A::links(self.pool.slot(id)));
        self.run(ListOp::Del(id))
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
        self.list.lock().len()
    }

    /// Whether none is. Takes the lock.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lends the list, locked, to `f`. Others wait meanwhile: to look at many slots, take a
    /// [`cursor`](Self::cursor).
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut WalkedList<T, A>) -> R) -> R {
        f(&mut self.list.lock())
    }

    /// Takes the lock and stands before the first slot.
    pub fn cursor(&self) -> ListCursor<'_, T, A, BATCH> {
        ListCursor(Walk::new(self))
    }

    /// Takes the slots off one by one, the first first. The lock is free between any two; ends when
    /// the list was found empty.
    pub fn drain(&self) -> impl Iterator<Item = Id<T>> + '_ {
        core::iter::from_fn(|| self.list.lock().pop_head())
    }
}

impl<T: Slot, A: ListAdapter<T>, const BATCH: usize> fmt::Debug for ListBatch<T, A, BATCH> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListBatch").finish_non_exhaustive()
    }
}

impl<'a, T: Slot, A: ListAdapter<T>, const BATCH: usize> LockedList<T, A>
    for &'a ListBatch<T, A, BATCH>
{
    type Guard = CombiningGuard<'a, WalkedList<T, A>, BATCH>;

    fn lock(self) -> Self::Guard {
        self.list.lock()
    }
}

/// A walk over a [`ListBatch`], from its first slot to its last. Holds the lock, but for
/// [`ListCursor::unlocked`].
///
/// Slots that are on the list throughout come once each, whatever others do while the lock is free;
/// one that comes before the cursor meanwhile is missed.
///
/// ```
/// # use vfscale_sync::{Id, IdLinks, ListAdapter, ListBatch, Pool, Slot};
/// # struct Inode(IdLinks<Inode>);
/// # impl Slot for Inode { fn new() -> Self { Inode(IdLinks::new()) } }
/// # struct All;
/// # impl ListAdapter<Inode> for All { fn links(inode: &Inode) -> &IdLinks<Inode> { &inode.0 } }
/// # static INODES: Pool<Inode> = Pool::new(1000);
/// # static ALL: ListBatch<Inode, All> = ListBatch::new(&INODES);
/// # let ids: Vec<_> = (0..3).map(|_| INODES.alloc().expect("room").publish()).collect();
/// # ids.iter().for_each(|id| ALL.add_tail(*id));
/// let mut cursor = ALL.cursor();
/// let mut seen = 0;
/// while let Some(inode) = cursor.next() {
///     seen += 1;
///     // Anybody may change the list here, this thread too, and take off any slot.
///     cursor.unlocked(|| ALL.del(inode));
/// }
/// assert_eq!(seen, 3);
/// ```
pub struct ListCursor<'a, T: Slot, A: ListAdapter<T>, const BATCH: usize = DEFAULT_BATCH>(
    Walk<T, A, &'a ListBatch<T, A, BATCH>>,
);

impl<T: Slot, A: ListAdapter<T>, const BATCH: usize> ListCursor<'_, T, A, BATCH> {
    /// Takes a slot off, perhaps the one that came last; answers whether it was on the list.
    pub fn del(&mut self, id: Id<T>) -> bool {
        self.0.del(id)
    }

    /// Gives up the lock while `f` runs. The cursor goes on behind what came last, also if that is
    /// taken off meanwhile.
    pub fn unlocked<R>(&mut self, f: impl FnOnce() -> R) -> R {
        self.0.unlocked(f)
    }
}

impl<T: Slot, A: ListAdapter<T>, const BATCH: usize> Iterator for ListCursor<'_, T, A, BATCH> {
    type Item = Id<T>;

    fn next(&mut self) -> Option<Id<T>> {
        self.0.next()
    }
}

impl<T: Slot, A: ListAdapter<T>, const BATCH: usize> fmt::Debug for ListCursor<'_, T, A, BATCH> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListCursor").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
