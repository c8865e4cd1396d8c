//! A list in parts, one per thread: who adds takes its own part's lock, who takes off the slot's.
//!
//! # Why
//! The list of all inodes is only ever walked by those who want all of it, in whatever order. So it
//! need not be one list. With a part per thread, adding never meets another thread, and taking off
//! meets one only if that one is busy with the same part.
//!
//! # How
//! A slot remembers its part (`shard_mark` holds that protocol). A part is a list behind a
//! [`QMutex`], whose free case costs one exchange, on a cache line of its own. Threads beyond the
//! number of parts share them.
//!
//! # What it does not promise
//! No order, beyond that within a part the last added comes first. [`ShardedList::len`] and a walk
//! go from part to part and are no snapshot: a walk meets what is on the list throughout once, and
//! misses what is added to a part that it has passed.
//!
//! # Distrust
//! As for [`ListBatch`]: [`ShardedList::is_linked`] is a hint for all but the one who adds and
//! removes, and ids of another list's slots are not noticed.
//!
//! # Source
//! dlock-list, which answered the list_batch thread: the same test on the same machine ran 1.43
//! times as fast with batches, 2.86 times with parts. We differ: a part per thread number, not per
//! processor, since user space learns its processor late; cursors that pin nothing.
//!
//! [`ListBatch`]: crate::ListBatch

use core::fmt;
use core::mem::MaybeUninit;

use crossbeam_utils::CachePadded;

use crate::shard_mark::ShardMark;
use crate::walked_list::{LockedList, Walk, WalkedList};
use crate::{Id, ListAdapter, Pool, QMutex, QMutexGuard, Slot, thread_slot};

/// Says which mark of a slot goes with its links.
pub trait ShardedAdapter<T: Slot>: ListAdapter<T> {
    /// The mark.
    fn mark(slot: &T) -> &ShardMark;
}

/// A list of slots of one pool, in `SHARDS` parts.
///
/// ```
/// use vfscale_sync::{IdLinks, ListAdapter, Pool, ShardMark, ShardedAdapter, ShardedList, Slot};
///
/// struct Inode {
///     links: IdLinks<Inode>,
///     mark: ShardMark,
/// }
///
/// impl Slot for Inode {
///     fn new() -> Self {
///         Inode { links: IdLinks::new(), mark: ShardMark::new() }
///     }
/// }
///
/// struct All;
///
/// impl ListAdapter<Inode> for All {
///     fn links(inode: &Inode) -> &IdLinks<Inode> {
///         &inode.links
///     }
/// }
///
/// impl ShardedAdapter<Inode> for All {
///     fn mark(inode: &Inode) -> &ShardMark {
///         &inode.mark
///     }
/// }
///
/// static INODES: Pool<Inode> = Pool::new(1000);
/// static ALL: ShardedList<Inode, All> = ShardedList::new(&INODES);
///
/// let inode = INODES.alloc().expect("room").publish();
/// ALL.add(inode);
/// std::thread::spawn(move || assert!(ALL.del(inode))).join().unwrap();
/// assert!(ALL.is_empty());
/// ```
pub struct ShardedList<T: Slot, A: ShardedAdapter<T>, const SHARDS: usize = 32> {
    shards: [Shard<T, A>; SHARDS],
    pool: &'static Pool<T>,
}

type Shard<T, A> = CachePadded<QMutex<WalkedList<T, A>>>;

impl<T: Slot, A: ShardedAdapter<T>, const SHARDS: usize> ShardedList<T, A, SHARDS> {
    /// An empty list of slots of `pool`.
    #[must_use]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub const fn new(pool: &'static Pool<T>) -> Self {
        const { assert!(SHARDS > 0, "a list of no parts") };
        let mut shards = MaybeUninit::<[Shard<T, A>; SHARDS]>::uninit();
        let first = shards.as_mut_ptr().cast::<Shard<T, A>>();
        let mut at = 0;
        while at < SHARDS {
            let shard = CachePadded::new(QMutex::new(WalkedList::new(pool)));
            // SAFETY: part `at` lies inside the array.
            let place = unsafe { first.add(at) };
            // SAFETY: the place is ours, aligned, and holds nothing yet.
            unsafe { place.write(shard) };
            at += 1;
        }
        // SAFETY: the loop has written all parts.
        let shards = unsafe { shards.assume_init() };
        Self { shards, pool }
    }

    /// The part of the running thread. Any will do for a thread that has no number.
    #[inline]
    fn own(&self) -> usize {
        thread_slot::current() % SHARDS
    }

    #[inline]
    fn mark(&self, id: Id<T>) -> &'static ShardMark {
        A::mark(self.pool.slot(id))
    }

    /// Puts the slot on the running thread's part. It is on the list on return.
    ///
    /// # Panics
    /// If it is on a list already.
    #[inline]
    pub fn add(&self, id: Id<T>) {
        let (own, mark) = (self.own(), self.mark(id));
        let added = !mark.is_set() && {
            let mut shard = self.shards[own].lock();
            let added = shard.add_head(id);
            if added {
                mark.set(own);
            }
            added
        };
        assert!(added, "{id:?} is on a list already");
    }

    /// Takes the slot off, whichever thread added it; answers whether it was on the list. Of several
    /// threads that take off one slot, one is told so.
    #[inline]
    pub fn del(&self, id: Id<T>) -> bool {
        let mark = self.mark(id);
        let Some((_, mut shard)) =
            mark.lock(|number| self.shards.get(number).map(|shard| &**shard))
        else {
            return false;
        };
        let was_on = shard.del(id);
        // After the links (SM-1).
        mark.clear();
        was_on
    }

    /// Whether the slot was on the list a moment ago. Exact for who alone adds and removes it.
    #[inline]
    #[must_use]
    pub fn is_linked(&self, id: Id<T>) -> bool {
        self.mark(id).is_set()
    }

    /// How many slots are on the parts, counted one part after the other.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Whether none is, by a look at one part after the other.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_empty())
    }

    /// Stands before the first part.
    pub fn cursor(&self) -> ShardedCursor<'_, T, A, SHARDS> {
        ShardedCursor { list: self, number: 0, walk: None }
    }

    /// Takes the slots off one by one, part after part. No lock is held between any two.
    pub fn drain(&self) -> impl Iterator<Item = Id<T>> + '_ {
        self.shards.iter().flat_map(move |shard| {
            core::iter::from_fn(move || {
                let mut shard = shard.lock();
                let id = shard.pop_head()?;
                self.mark(id).clear();
                Some(id)
            })
        })
    }
}

impl<T: Slot, A: ShardedAdapter<T>, const SHARDS: usize> fmt::Debug for ShardedList<T, A, SHARDS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardedList").finish_non_exhaustive()
    }
}

impl<'a, T: Slot, A: ListAdapter<T>> LockedList<T, A> for &'a QMutex<WalkedList<T, A>> {
    type Guard = QMutexGuard<'a, WalkedList<T, A>>;

    fn lock(self) -> Self::Guard {
        self.lock()
    }
}

type PartWalk<'a, T, A> = Walk<T, A, &'a QMutex<WalkedList<T, A>>>;

/// A walk over a [`ShardedList`], part by part. Holds the lock of the part it is in, but for
/// [`ShardedCursor::unlocked`]; none before the first slot and after the last.
///
/// ```
/// # use vfscale_sync::{IdLinks, ListAdapter, Pool, ShardMark, ShardedAdapter, ShardedList, Slot};
/// # struct Inode(IdLinks<Inode>, ShardMark);
/// # impl Slot for Inode { fn new() -> Self { Inode(IdLinks::new(), ShardMark::new()) } }
/// # struct All;
/// # impl ListAdapter<Inode> for All { fn links(inode: &Inode) -> &IdLinks<Inode> { &inode.0 } }
/// # impl ShardedAdapter<Inode> for All { fn mark(inode: &Inode) -> &ShardMark { &inode.1 } }
/// # static INODES: Pool<Inode> = Pool::new(1000);
/// # static ALL: ShardedList<Inode, All> = ShardedList::new(&INODES);
/// # (0..3).for_each(|_| ALL.add(INODES.alloc().expect("room").publish()));
/// let mut cursor = ALL.cursor();
/// let mut seen = 0;
/// while let Some(inode) = cursor.next() {
///     seen += 1;
///     cursor.unlocked(|| assert!(ALL.del(inode)));
/// }
/// assert_eq!(seen, 3);
/// ```
pub struct ShardedCursor<'a, T: Slot, A: ShardedAdapter<T>, const SHARDS: usize = 32> {
    list: &'a ShardedList<T, A, SHARDS>,
    /// The part that `walk` is in, or the next one.
    number: usize,
    walk: Option<PartWalk<'a, T, A>>,
}

impl<T: Slot, A: ShardedAdapter<T>, const SHARDS: usize> ShardedCursor<'_, T, A, SHARDS> {
    /// Takes a slot off, perhaps the one that came last; answers whether it was on the list.
    pub fn del(&mut self, id: Id<T>) -> bool {
        let mark = self.list.mark(id);
        match &mut self.walk {
            Some(walk) if mark.is(self.number) => {
                let was_on = walk.del(id);
                mark.clear();
                was_on
            }
            // Never two parts' locks at once.
            _ => self.unlocked_in(|list| list.del(id)),
        }
    }

    fn unlocked_in<R>(&mut self, f: impl FnOnce(&ShardedList<T, A, SHARDS>) -> R) -> R {
        let list = self.list;
        self.unlocked(|| f(list))
    }

    /// Gives up the lock while `f` runs. The cursor goes on behind what came last, also if that is
    /// taken off meanwhile.
    pub fn unlocked<R>(&mut self, f: impl FnOnce() -> R) -> R {
        match &mut self.walk {
            Some(walk) => walk.unlocked(f),
            None => f(),
        }
    }
}

impl<T: Slot, A: ShardedAdapter<T>, const SHARDS: usize> Iterator
    for ShardedCursor<'_, T, A, SHARDS>
{
    type Item = Id<T>;

    fn next(&mut self) -> Option<Id<T>> {
        loop {
            if let Some(walk) = &mut self.walk {
                if let Some(id) = walk.next() {
                    return Some(id);
                }
                // Unlocks before the next part is locked.
                self.walk = None;
                self.number += 1;
            }
            self.walk = Some(Walk::new(&**self.list.shards.get(self.number)?));
        }
    }
}

impl<T: Slot, A: ShardedAdapter<T>, const SHARDS: usize> fmt::Debug
    for ShardedCursor<'_, T, A, SHARDS>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardedCursor").field("part", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
