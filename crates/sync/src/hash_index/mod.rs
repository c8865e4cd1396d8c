//! A hash table of pool slots: lookups that store nothing, and growth that stops nobody.
//!
//! # Why
//! A lookup must not write to memory that other lookups read, whatever writers do; a rename must not make a lookup of some
//! other name miss; and the table must follow the number of entries from hundreds to tens of millions without a pause.
//!
//! # Shape
//! An array of bucket words (`bucket`), each the head of a chain of slots linked by ids. Readers walk under an RCU guard;
//! writers lock one bucket.
//!
//! # Why a miss is looked at twice
//! A walker stands on a node. A rename takes that node out of its chain and links it into another: the walker follows the
//! node's new link and ends in a foreign chain, having missed the rest of its own.
//! ```text
//! reader                                   writer
//! word = bucket A; at node N of A
//!                                          unlink N from A; LEFT of A += 1
//!                                          N.next = head of B        (HX-2 Release)
//! follows N.next into B, finds the end     (HX-2 Acquire)
//! word of A again: LEFT differs -> walk A again
//! ```
//! Only a node that left the chain can drag a walker out of it, so only renames out of *this* bucket make a miss repeat.
//! LEFT has 22 bits: a false miss needs a reader that sleeps through an exact multiple of four million departures from one
//! bucket, in one walk.
//!
//! # Growth
//! Tables alternate between a node's two links. A bucket is moved by threading its nodes into the next table by the *other*
//! link, under the bucket's lock, and marking it MOVED; readers inside the old chain find it whole, everybody else is sent
//! on. Each writer moves a few buckets along with its own work. When all are moved, the next table becomes the current
//! one; the old is freed, and another resize may begin, after one grace period: only then has the last walker left the links
//! that the next resize uses. Shrinking is the same with fewer buckets.
//!
//! # Orderings
//! - HX-1, HX-4 in `bucket`. HX-2: LEFT is raised (Release) before a node that left is linked anew (Release), and the
//!   reader's load of the link (Acquire) comes before it looks at LEFT again.
//! - HX-5 the next table (Release) -> whoever MOVED sends there (Acquire).
//! - HX-6 every bucket moved -> the thread that completes the resize.
//! - HX-7 `current` (Release) -> readers (Acquire): the table whole.
//!
//! # What the caller keeps
//! A slot is linked once. Its `hash()` does not change while it is linked, except inside [`HashIndex::relink`]. `eq` may see
//! a slot that is just being changed or has just been removed: who needs to know checks the slot's sequence.
//! Guards are short: a resize needs grace periods, so under a guard that lasts the table cannot grow twice.
//!
//! # Source
//! the kernel's dentry hash for chains that a rename may drag a walker out of (there the walker asks `rename_lock`, one for
//! all; here a number per bucket), and Xu's resizable hash of the kernel's bridge code (2010) for two links a node.

// unmodelled file: loom has no statics for the pools that it points into; `tests/shuttle_index.rs` and ThreadSanitizer look at it.

mod bucket;
mod find;
mod table;

use crate::prim::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::rcu::{self, Guard};
use crate::stats::Counters;
use crate::{AtomicId, Id, Pool, Slot};
use bucket::{Locked, Moved};
use std::fmt;
use std::ptr;
use table::Table;

/// A slot's place in a [`HashIndex`]: one link for each of the two tables it may be in.
pub struct HashLinks<T> {
    next: [AtomicId<T>; 2],
}

impl<T> HashLinks<T> {
    /// Not linked.
    pub const fn new() -> Self {
        HashLinks { next: [AtomicId::none(), AtomicId::none()] }
    }
}

impl<T> Default for HashLinks<T> {
    fn default() -> Self {
        HashLinks::new()
    }
}

impl<T> fmt::Debug for HashLinks<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.next).finish()
    }
}

/// A slot that can be in a [`HashIndex`].
pub trait Chained: Slot {
    /// Its links.
    fn links(&self) -> &HashLinks<Self>;

    /// The hash it is linked under. Stable while it is linked.
    fn hash(&self) -> u32;
}

/// What [`HashIndex::find_or_insert`] did.
#[must_use]
pub enum FindOrInsert<'g, T> {
    /// It was there.
    Found(Id<T>, &'g T),
    /// It was not, and the slot that `make` returned is linked now.
    Inserted(Id<T>),
    /// It was not, and `make` had none.
    Failed,
}

impl<T> fmt::Debug for FindOrInsert<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FindOrInsert::Found(id, _) => write!(f, "Found({id:?})"),
            FindOrInsert::Inserted(id) => write!(f, "Inserted({id:?})"),
            FindOrInsert::Failed => f.write_str("Failed"),
        }
    }
}

/// The smallest table: a page.
const MIN_BUCKETS: usize = if cfg!(shuttle) { 1 } else { 512 };
const MAX_BUCKETS: usize = 1 << 30;
/// How many buckets a writer moves along with its own work, while a resize is on.
const STEP: usize = if cfg!(shuttle) { 1 } else { 4 };
/// A thread compares the number of nodes with that of buckets each time its own count passes a multiple of this.
const CHECK_EVERY: u64 = if cfg!(shuttle) { 1 } else { 32 };
/// The table is made smaller when it has so many buckets for each node.
const SPARSE: usize = 8;

/// Values of `HashIndex::state`.
mod state {
    /// One table.
    pub(super) const IDLE: u32 = 0;
    /// One thread is making the next table, or freeing the last.
    pub(super) const BUSY: u32 = 1;
    /// Chains move to the next table.
    pub(super) const MOVING: u32 = 2;
    /// All chains have moved; readers may still be in the old table and on its links.
    pub(super) const SETTLING: u32 = 3;
}

/// An index of the slots of one pool by hash.
///
/// ```
/// use vfscale_sync::{Chained, HashIndex, HashLinks, Ordering, Pool, Slot, rcu};
/// use std::sync::atomic::AtomicU32;
///
/// struct User {
///     links: HashLinks<User>,
///     number: AtomicU32,
/// }
///
/// impl Slot for User {
///     fn new() -> Self {
///         User { links: HashLinks::new(), number: AtomicU32::new(0) }
///     }
/// }
///
/// impl Chained for User {
///     fn links(&self) -> &HashLinks<Self> {
///         &self.links
///     }
///
///     fn hash(&self) -> u32 {
///         hash(self.number.load(Ordering::Relaxed))
///     }
/// }
///
/// fn hash(number: u32) -> u32 {
///     number.wrapping_mul(0x9e37_79b9)
/// }
///
/// static USERS: Pool<User> = Pool::new(1000);
/// static BY_NUMBER: HashIndex<User> = HashIndex::new(&USERS);
///
/// let user = USERS.alloc().expect("room");
/// user.number.store(7, Ordering::Relaxed);
/// let guard = rcu::pin();
/// BY_NUMBER.insert(user.publish(), hash(7), &guard);
///
/// let is_seven = |_, user: &User| user.number.load(Ordering::Relaxed) == 7;
/// let (id, _) = BY_NUMBER.find(hash(7), &guard, is_seven).expect("it was inserted");
/// assert!(BY_NUMBER.remove(id, hash(7), &guard));
/// assert!(BY_NUMBER.find(hash(7), &guard, is_seven).is_none());
/// USERS.retire(id, &guard);
/// ```
///
/// # Invariants
/// `current` and `retired` are null or from `Box::into_raw`. A table reached from `current` is freed only through `retired`,
/// a grace period after `current` left it.
pub struct HashIndex<T: Chained> {
    pool: &'static Pool<T>,
    current: AtomicPtr<Table>,
    state: AtomicU32,
    /// The table before `current`, while `state` is SETTLING. Written by who completes a resize.
    retired: AtomicPtr<Table>,
    /// The grace period after which `retired` is nobody's. Written with it.
    settled: AtomicU64,
    count: Counters<1>,
}

impl<T: Chained> HashIndex<T> {
    /// An empty index of slots of `pool`. The first table is made with the first insert.
    pub const fn new(pool: &'static Pool<T>) -> Self {
        HashIndex {
            pool,
            current: AtomicPtr::new(ptr::null_mut()),
            state: AtomicU32::new(state::IDLE),
            retired: AtomicPtr::new(ptr::null_mut()),
            settled: AtomicU64::new(0),
            count: Counters::new(),
        }
    }

    /// The slot under `hash` that `eq` accepts, or the slot that `make` returns, linked: decided under one lock, so of two
    /// callers with the same key one inserts and the other finds.
    ///
    /// `eq` and `make` run under the bucket's lock: they are short and do not use this index. The slot from `make` is complete
    /// and its `hash()` is `hash`.
    pub fn find_or_insert<'g>(
        &'static self,
        hash: u32,
        guard: &'g Guard,
        mut eq: impl FnMut(Id<T>, &'g T) -> bool,
        make: impl FnOnce() -> Option<Id<T>>,
    ) -> FindOrInsert<'g, T> {
        let (table, mut locked) = self.lock(hash, guard);
        let found = self.chain(table, &locked).find(|id| eq(*id, self.pool.get(*id, guard)));
        if let Some(id) = found {
            return FindOrInsert::Found(id, self.pool.get(id, guard));
        }
        let Some(id) = make() else { return FindOrInsert::Failed };
        self.push(table, &mut locked, id, hash);
        drop(locked);
        self.changed(1, guard);
        FindOrInsert::Inserted(id)
    }

    /// Links a slot that is not linked. Does not look whether there is an equal one.
    pub fn insert(&'static self, id: Id<T>, hash: u32, guard: &Guard) {
        let (table, mut locked) = self.lock(hash, guard);
        self.push(table, &mut locked, id, hash);
        drop(locked);
        self.changed(1, guard);
    }

    /// Unlinks the slot. False if it is not linked under `hash`.
    ///
    /// It may be linked again at once; walkers that stand on it look again. It may be retired under a guard taken before.
    pub fn remove(&'static self, id: Id<T>, hash: u32, guard: &Guard) -> bool {
        let (table, mut locked) = self.lock(hash, guard);
        let was_linked = self.unlink(table, &mut locked, id);
        drop(locked);
        if was_linked {
            self.changed(1_u64.wrapping_neg(), guard);
        }
        was_linked
    }

    /// Moves the slot from one hash to another. `change` runs while it is unlinked: it stores the new key, after which the
    /// slot's `hash()` is `new_hash`.
    ///
    /// Lookups of either key may miss meanwhile; lookups of other keys do not.
    ///
    /// # Panics
    /// If the slot is not linked under `old_hash`: linking it a second time would tangle two chains.
    pub fn relink(
        &'static self,
        id: Id<T>,
        old_hash: u32,
        new_hash: u32,
        guard: &Guard,
        change: impl FnOnce(),
    ) {
        let (table, mut locked) = self.lock(old_hash, guard);
        let was_linked = self.unlink(table, &mut locked, id);
        // HX-2: LEFT is raised here, before the link changes below.
        drop(locked);
        assert!(was_linked, "relink of {id:?}, which is not linked under the hash given");
        change();
        let (table, mut locked) = self.lock(new_hash, guard);
        self.push(table, &mut locked, id, new_hash);
        drop(locked);
        self.help(guard);
    }

    /// How many slots are linked. Exact when nobody changes the index meanwhile.
    pub fn len(&self) -> usize {
        // A sum of shards of different moments may be below zero.
        usize::try_from(self.count.sum(0) as i64).unwrap_or(0)
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many buckets the current table has; 0 before the first insert.
    pub fn buckets(&self) -> usize {
        let guard = rcu::pin();
        self.table(&guard).map_or(0, Table::len)
    }

    /// Calls `visit` with each slot that is linked during the whole call, and perhaps with others, perhaps twice.
    pub fn for_each<'g>(&'static self, guard: &'g Guard, mut visit: impl FnMut(Id<T>, &'g T)) {
        let Some(table) = self.table(guard) else { return };
        for index in 0..table.len() {
            self.visit_bucket(table, index, guard, &mut visit);
        }
    }

    /// Calls `visit` with the slots of one chain, and answers with the hand for the next one. Taken round from any hand back to 0, it passes
    /// every slot that is linked meanwhile, perhaps some twice; a resize on the way makes it neither skip one nor begin anew.
    ///
    /// Takes no lock: `visit` may remove what it is shown. It may also be shown what is not linked any more. A step per chain; all chains of a
    /// table are [`buckets`](Self::buckets) steps.
    pub fn visit_chain<'g>(
        &'static self,
        hand: u32,
        guard: &'g Guard,
        visit: &mut dyn FnMut(Id<T>, &'g T),
    ) -> u32 {
        let Some(table) = self.table(guard) else { return 0 };
        let mask = (table.len() - 1) as u32;
        self.visit_unlocked(table, (hand & mask) as usize, guard, visit);
        // The topmost bit of the bucket's number counts first, so that a larger table goes on in the middle of the same chains and a smaller
        // one at the chain that took them in.
        (hand | !mask).reverse_bits().wrapping_add(1).reverse_bits()
    }

    fn visit_unlocked<'g>(
        &'static self,
        table: &'g Table,
        index: usize,
        guard: &'g Guard,
        visit: &mut dyn FnMut(Id<T>, &'g T),
    ) {
        let word = table.at(index).load();
        if word.is_moved() {
            let Some(next) = table.next(guard) else { return };
            // As in `visit_bucket`.
            let mut index = index & (next.len() - 1);
            while index < next.len() {
                self.visit_unlocked(next, index, guard, visit);
                index += table.len();
            }
            return;
        }
        let mut at = word.head();
        while let Some(id) = at {
            let node = self.pool.get(id, guard);
            // HX-2 Acquire. Before `visit`, which may link it elsewhere.
            at = node.links().next[table.parity].load(Ordering::Acquire);
            visit(id, node);
        }
    }

    fn visit_bucket<'g>(
        &'static self,
        table: &'g Table,
        index: usize,
        guard: &'g Guard,
        visit: &mut dyn FnMut(Id<T>, &'g T),
    ) {
        match table.at(index).lock() {
            Ok(locked) => {
                // Not under the lock: `visit` is the caller's.
                let ids: Vec<_> = self.chain(table, &locked).collect();
                drop(locked);
                ids.into_iter().for_each(|id| visit(id, self.pool.get(id, guard)));
            }
            Err(Moved) => {
                let Some(next) = table.next(guard) else { return };
                // A larger table spreads our bucket over several of its own; a smaller one holds it in one.
                let mut index = index & (next.len() - 1);
                while index < next.len() {
                    self.visit_bucket(next, index, guard, visit);
                    index += table.len();
                }
            }
        }
    }

    #[inline]
    fn table<'g>(&self, _guard: &'g Guard) -> Option<&'g Table> {
        // HX-7 Acquire.
        let table = self.current.load(Ordering::Acquire);
        // SAFETY: null or a table that is freed a grace period after `current` left it (type invariant).
        unsafe { table.as_ref() }
    }

    /// The lock of the bucket that holds `hash` now, and its table.
    #[inline]
    fn lock<'g>(&'static self, hash: u32, guard: &'g Guard) -> (&'g Table, Locked<'g>) {
        let mut table = match self.table(guard) {
            Some(table) => table,
            None => self.first_table(guard),
        };
        loop {
            match table.bucket(hash).lock() {
                Ok(locked) => return (table, locked),
                Err(Moved) => {
                    table = table.next(guard).expect("a moved bucket has a next table");
                }
            }
        }
    }

    #[cold]
    fn first_table<'g>(&'static self, guard: &'g Guard) -> &'g Table {
        let table = Table::new(MIN_BUCKETS, 0).expect("memory for the first page of a hash index");
        let table = Box::into_raw(table);
        // HX-7 Release: the table whole.
        if self
            .current
            .compare_exchange(ptr::null_mut(), table, Ordering::Release, Ordering::Relaxed)
            .is_err()
        {
            // SAFETY: from `Box::into_raw` above, and not published.
            drop(unsafe { Box::from_raw(table) });
        }
        self.table(guard).expect("a first table was just published")
    }

    /// The chain of a locked bucket.
    fn chain(&self, table: &Table, locked: &Locked<'_>) -> impl Iterator<Item = Id<T>> + use<T> {
        let (pool, parity) = (self.pool, table.parity);
        // Relaxed: the lock orders the links (HX-4).
        std::iter::successors(locked.head(), move |id| {
            pool.slot(*id).links().next[parity].load(Ordering::Relaxed)
        })
    }

    fn push(&self, table: &Table, locked: &mut Locked<'_>, id: Id<T>, hash: u32) {
        let node = self.pool.slot(id);
        debug_assert_eq!(node.hash(), hash, "{id:?} is linked under another hash than its own");
        locked.push(id, hash, &node.links().next[table.parity]);
    }

    /// Takes the slot out of a locked bucket. Its own link stays, for walkers that stand on it.
    fn unlink(&self, table: &Table, locked: &mut Locked<'_>, id: Id<T>) -> bool {
        let mut before = None;
        let Some(_) = self.chain(table, locked).find(|at| {
            let found = *at == id;
            if !found {
                before = Some(*at);
            }
            found
        }) else {
            return false;
        };
        let link = |id| &self.pool.slot(id).links().next[table.parity];
        // Relaxed: the lock (HX-4).
        let after = link(id).load(Ordering::Relaxed);
        match before {
            // HX-1 Release.
            Some(before) => link(before).store(after, Ordering::Release),
            None => locked.set_head(after),
        }
        locked.note_left();
        let rest = self.chain(table, locked);
        locked.set_filter(rest.map(|id| self.pool.slot(id).hash()));
        true
    }

    /// Accounts for `by` more nodes (wraps), helps with a resize, and begins one if the table no longer fits.
    #[inline]
    fn changed(&'static self, by: u64, guard: &Guard) {
        let own = self.count.add_here(0, by);
        self.help(guard);
        if own.is_multiple_of(CHECK_EVERY) {
            self.check_size(guard);
        }
    }

    /// Does a writer's share of a resize, if one is on.
    #[inline]
    fn help(&'static self, guard: &Guard) {
        // Acquire: what the state says has been prepared.
        match self.state.load(Ordering::Acquire) {
            state::MOVING => self.move_some(guard),
            state::SETTLING => self.settle(),
            _ => {}
        }
    }

    #[cold]
    fn check_size(&'static self, guard: &Guard) {
        let Some(table) = self.table(guard) else { return };
        let (nodes, buckets) = (self.len(), table.len());
        let wanted = if nodes > buckets {
            nodes.next_power_of_two().max(buckets * 2).min(MAX_BUCKETS)
        } else if buckets > MIN_BUCKETS && nodes < buckets / SPARSE {
            (nodes * 2).next_power_of_two().max(MIN_BUCKETS)
        } else {
            return;
        };
        if wanted != buckets {
            self.start_resize(wanted, guard);
        }
    }

    fn start_resize(&'static self, buckets: usize, guard: &Guard) {
        if self
            .state
            .compare_exchange(state::IDLE, state::BUSY, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            return;
        }
        // Only now: `current` cannot change while the state is ours.
        let made = self.table(guard).and_then(|table| {
            let next = Table::new(buckets, table.parity ^ 1)?;
            table.set_next(next);
            Some(())
        });
        // Without memory the old table goes on, more slowly.
        let state = if made.is_some() { state::MOVING } else { state::IDLE };
        // Release: the next table before MOVING.
        self.state.store(state, Ordering::Release);
    }

    /// Moves a few buckets of the current table to the next.
    #[cold]
    fn move_some(&'static self, guard: &Guard) {
        let Some(old) = self.table(guard) else { return };
        // The resize that the state spoke of may be over, and this the new table.
        let Some(new) = old.next(guard) else { return };
        // A table that shrinks has mostly empty buckets, and fewer nodes than those to pay for the move.
        let step = if new.len() < old.len() { 4 * STEP } else { STEP };
        let claimed = old.claim(step);
        let count = claimed.len();
        for index in claimed {
            let Ok(mut from) = old.at(index).lock() else { continue };
            for id in self.chain(old, &from) {
                let node = self.pool.slot(id);
                let hash = node.hash();
                // The next table cannot be moved on before this one is complete.
                let Ok(mut to) = new.bucket(hash).lock() else { continue };
                to.push(id, hash, &node.links().next[new.parity]);
            }
            from.mark_moved();
        }
        if old.note_moved(count) {
            self.complete(old, guard);
        }
    }

    /// All chains of `old`, the current table, have moved.
    fn complete(&'static self, old: &Table, guard: &Guard) {
        let bytes = old.bytes();
        // HX-7 Release, and Acquire for the old one.
        let old = self.current.swap(old.next_ptr(), Ordering::AcqRel);
        // Relaxed: published by the state.
        self.retired.store(old, Ordering::Relaxed);
        self.settled.store(rcu::snapshot(), Ordering::Relaxed);
        // HX-8 Release: the two fields above.
        self.state.store(state::SETTLING, Ordering::Release);
        // The next writer settles; should there be none, this does.
        guard.defer(bytes, || self.settle());
        guard.expedite();
    }

    /// Frees the old table and allows the next resize, once no reader is left in the old table or on its links.
    #[cold]
    fn settle(&'static self) {
        // HX-8 Acquire: the fields that belong to SETTLING.
        if self.state.load(Ordering::Acquire) != state::SETTLING
            || !rcu::poll(self.settled.load(Ordering::Relaxed))
        {
            return;
        }
        if self
            .state
            .compare_exchange(state::SETTLING, state::BUSY, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            return;
        }
        // The state is ours, but it may be the SETTLING of a later resize.
        if !rcu::poll(self.settled.load(Ordering::Relaxed)) {
            self.state.store(state::SETTLING, Ordering::Release);
            return;
        }
        let old = self.retired.swap(ptr::null_mut(), Ordering::Relaxed);
        if !old.is_null() {
            // SAFETY: from `Box::into_raw`; taken out by us alone; `current` left it a grace period ago.
            drop(unsafe { Box::from_raw(old) });
        }
        // HX-8 Release: the old links are nobody's, before the next resize uses them.
        self.state.store(state::IDLE, Ordering::Release);
    }
}

impl<T: Chained> fmt::Debug for HashIndex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashIndex")
            .field("len", &self.len())
            .field("buckets", &self.buckets())
            .finish()
    }
}
