//! The dentry cache: all names, in one hash keyed by mount, parent and name; read under RCU.
//!
//! # Life of a dentry
//! 1. A miss inserts it `IN_LOOKUP` under the bucket's lock, so that a second miss of the name finds it and sleeps (`d_alloc_parallel`).
//!    [`parallel`] asks the backend and makes it positive, negative, or takes it back.
//! 2. Each reference that ends looks whether it was the last ([`put`], the kernel's `dput`). A hashed dentry then stays, at first put
//!    where unused names wait, later marked used; from the third time on without any lock.
//! 3. The shrinker ([`reclaim`]), an unlink or an invalidation takes it out: dead, out of the chain, its inode and its parent let go.
//!
//! # A race, step by step
//! ```text
//!   T1 put, the last                         T2 lookup
//!   count 1 -> 0, no lock
//!                                            finds it, count 0 -> 1 (zero is alive)
//!   locks; count is not 0: done              uses it
//! ```
//! # Why a miss is no false miss
//! A rename moves a dentry to another chain and may drag a walker along. The chain's own moved-out number, re-read after a miss,
//! catches that (the index does it). A dentry that moves in place of another leaves a moment with neither: the miss then goes to
//! the slow path, which waits for the directory lock that the rename holds.

pub(crate) mod parallel;

use vfscale_sync::{Chained, HashIndex, HeldSlot, Id, LockRefGuard, PutReturn, SeqLock, rcu};

use crate::dentry::{self, Birth, Dentry, DentryRef};
use crate::inode::InodeRef;
use crate::superblock::SuperBlock;
use crate::{Errno, FileType, Result, reclaim};

/// Makes moves of names one at a time, and lets climbers (`is_below`, paths) check that none happened.
pub(crate) static RENAME_LOCK: SeqLock = SeqLock::new();

static INDEX: HashIndex<Dentry> = HashIndex::new(&dentry::DENTRIES);

pub(crate) fn index() -> &'static HashIndex<Dentry> {
    &INDEX
}

/// A component with its hash in one directory.
#[derive(Clone, Copy)]
pub(crate) struct Key<'a> {
    pub(crate) parent: Id<Dentry>,
    pub(crate) name: &'a [u8],
    pub(crate) hash: u32,
}

impl<'a> Key<'a> {
    #[inline]
    pub(crate) fn new(sb: &SuperBlock, parent: Id<Dentry>, name: &'a [u8]) -> Key<'a> {
        Key { parent, name, hash: sb.hash_key().name(parent.to_raw(), name) }
    }
}

/// A dentry found without a reference, and the sequence number under which it was the right one.
pub(crate) struct Hit<'g> {
    pub(crate) id: Id<Dentry>,
    pub(crate) dentry: &'g Dentry,
    pub(crate) seq: u32,
}

impl Hit<'_> {
    /// Did it change since it was found?
    #[inline]
    pub(crate) fn changed(&self) -> bool {
        self.dentry.seq.retry(self.seq)
    }

    /// A reference on it, if it still is what was found.
    pub(crate) fn legitimize(&self, guard: &rcu::Guard) -> Option<DentryRef> {
        let dentry = DentryRef::try_get(self.id, guard)?;
        (!self.changed()).then_some(dentry)
    }
}

/// Finds a name (`__d_lookup_rcu`): no lock, no store. `None` may also mean that the name is being looked up.
///
/// What is found was the name only if it has not [`changed`](Hit::changed) when all that is wanted has been read from it.
#[inline]
pub(crate) fn find<'g>(key: Key<'_>, guard: &'g rcu::Guard) -> Option<Hit<'g>> {
    index().find_map(key.hash, guard, move |id, dentry| {
        let seq = dentry.seq.begin();
        let answers = dentry.answers(key.parent, key.hash, key.name, guard);
        answers.then_some(Hit { id, dentry, seq })
    })
}

/// Finds a name and takes a reference on its dentry, positive or negative (`d_lookup`).
pub(crate) fn get(key: Key<'_>, guard: &rcu::Guard) -> Option<DentryRef> {
    loop {
        // A hit that changed under our hands: look again. Each turn means that somebody else got on.
        if let Some(dentry) = find(key, guard)?.legitimize(guard) {
            return Some(dentry);
        }
        std::hint::spin_loop();
    }
}

/// A new dentry, filled but not to be found yet.
fn alloc(
    sb: Id<SuperBlock>,
    parent: Option<DentryRef>,
    hash: u32,
    name: &[u8],
    birth: Birth,
) -> Result<DentryRef> {
    let superblock = SuperBlock::of(Some(sb));
    let fresh = dentry::pool().alloc().ok_or(Errno::ENFILE)?;
    superblock.names().up();
    fresh.init(sb, parent, hash, name, birth);
    Ok(DentryRef(vfscale_sync::Held::from_fresh(fresh)))
}

/// Lets a dentry that leads nowhere lead to `inode`; `publish` then puts it into the hash, if it is not there yet. Its lock is held from
/// before a directory knows it as its one dentry until it is whole: who is given it meanwhile waits.
///
/// # Errors
/// The dentry that the directory has already, at another place. Nothing was done then.
fn attach(
    dentry: &DentryRef,
    inode: InodeRef,
    until: u64,
    publish: impl FnOnce(&rcu::Guard),
) -> Result<(), DentryRef> {
    let guard = rcu::pin();
    let lock = dentry.0.lock();
    if inode.0.kind() == FileType::Directory
        && let Some(alias) = inode.0.claim_alias(dentry.id(), &guard)
    {
        return Err(alias);
    }
    dentry.0.instantiate(Some(inode), until, &lock);
    publish(&guard);
    drop(lock);
    Ok(())
}

/// The root of a mount: its own tree, never in the hash.
pub(crate) fn make_root(sb: Id<SuperBlock>, inode: InodeRef) -> Result<DentryRef> {
    let root = alloc(sb, None, 0, b"", Birth::Bare)?;
    attach(&root, inode, crate::clock::FOREVER, |_| ()).map_err(|_| Errno::EBUSY)?;
    Ok(root)
}

/// Puts a name into the cache at once (`d_add`). The caller holds the directory lock exclusively and knows the name is not there.
///
/// # Errors
/// `ENFILE` if the pool is used up; `ESTALE` for a directory that is cached at another place.
pub(crate) fn add(
    sb: Id<SuperBlock>,
    parent: &DentryRef,
    name: &[u8],
    inode: InodeRef,
    until: u64,
) -> Result<DentryRef> {
    let superblock = SuperBlock::of(Some(sb));
    reclaim::make_room(superblock);
    let key = Key::new(superblock, parent.id(), name);
    let dentry = alloc(sb, Some(parent.clone()), key.hash, name, Birth::Bare)?;
    attach(&dentry, inode, until, |guard| index().insert(dentry.id(), key.hash, guard))
        .map_err(|_| Errno::ESTALE)?;
    Ok(dentry)
}

/// Takes a dentry out of the cache; who holds it keeps it (`d_drop`).
pub(crate) fn unhash(dentry: &DentryRef) {
    let guard = rcu::pin();
    let lock = dentry.0.lock();
    if dentry.0.unhash(&lock) {
        // Under the lock: a move that brings it back must not find it in the old chain.
        unlink_chain(dentry.id(), &dentry.0, &guard);
    }
}

/// Takes an unhashed dentry out of its chain.
fn unlink_chain(id: Id<Dentry>, dentry: &Dentry, guard: &rcu::Guard) {
    index().remove(id, dentry.hash(), guard);
}

/// The name is gone (`d_delete`): a dentry that only the caller holds turns negative in place, if one more absence fits; another is taken
/// out of the cache. The caller holds the directory lock exclusively.
pub(crate) fn delete(dentry: &DentryRef, until: u64) {
    let lock = dentry.0.lock();
    // A directory's dentry stays its one dentry to the end; it never turns negative.
    if lock.count() > 1
        || dentry.0.kind() == Some(FileType::Directory)
        || !dentry.0.is_hashed()
        || !crate::clock::Now::default().is_before(until)
        || !reclaim::has_room_for_absence(&dentry.0)
    {
        drop(lock);
        unhash(dentry);
        return;
    }
    let inode = dentry.0.take_inode(&lock);
    dentry.0.set_valid_until(until);
    drop(lock);
    drop(inode);
}

/// Gives a negative dentry its inode (`d_instantiate`). The caller holds the directory lock exclusively.
///
/// # Errors
/// `ESTALE` for a directory that is cached at another place; the dentry is out of the cache then.
pub(crate) fn instantiate(dentry: &DentryRef, inode: InodeRef, until: u64) -> Result<()> {
    attach(dentry, inode, until, |_| ()).map_err(|_| {
        unhash(dentry);
        Errno::ESTALE
    })
}

/// Moves a name (`d_move`). The caller holds both directory locks exclusively, or is the only one who knows the place.
pub(crate) fn rename(dentry: &DentryRef, parent: &DentryRef, name: &[u8]) {
    let moves = RENAME_LOCK.write();
    let old_parent = move_to(dentry, parent, name);
    drop(moves);
    // A last reference may end here: only with no lock held.
    drop(old_parent);
}

/// Swaps two names (`d_exchange`). The caller holds both directory locks exclusively.
pub(crate) fn exchange(a: &DentryRef, b: &DentryRef) {
    let moves = RENAME_LOCK.write();
    let old_parents = a.parent().zip(b.parent()).map(|(a_parent, b_parent)| {
        let (a_name, b_name) = (a.name(), b.name());
        let old = (move_to(a, &b_parent, &b_name), move_to(b, &a_parent, &a_name));
        (old, a_parent, b_parent)
    });
    drop(moves);
    drop(old_parents);
}

/// Moves one dentry, with all moves held off, and answers with the parent it had. A directory that would come below itself (its
/// backend was changed behind the mount's back, in two steps at once) goes out of the cache instead.
fn move_to(dentry: &DentryRef, parent: &DentryRef, name: &[u8]) -> Option<DentryRef> {
    let guard = rcu::pin();
    if climb(parent.id(), dentry.id(), &guard) {
        unhash(dentry);
        return None;
    }
    let parent = parent.clone();
    let key = Key::new(dentry.0.superblock(), parent.id(), name);
    let lock = dentry.0.lock();
    if dentry.0.is_hashed() {
        let mut old_parent = None;
        let _write = dentry.0.seq.write();
        index().relink(dentry.id(), dentry.0.hash(), key.hash, &guard, || {
            old_parent = dentry.0.set_place(parent, key.hash, name, &guard);
        });
        return old_parent;
    }
    // Out of the cache, but in use (its name was invalidated): it comes back at its new place.
    let write = dentry.0.seq.write();
    let old_parent = dentry.0.set_place(parent, key.hash, name, &guard);
    drop(write);
    index().insert(dentry.id(), key.hash, &guard);
    dentry.0.rehash(&lock);
    old_parent
}

/// Does the way up from `from` lead over `to`?
fn climb(from: Id<Dentry>, to: Id<Dentry>, guard: &rcu::Guard) -> bool {
    let mut at = Some(from);
    while let Some(id) = at {
        if id == to {
            return true;
        }
        at = Dentry::pool().get(id, guard).parent_id();
    }
    false
}

/// Is `dentry` the directory `above`, or below it (`is_subdir`)? One try without a lock, then with moves held off.
pub(crate) fn is_below(dentry: &DentryRef, above: &DentryRef) -> bool {
    let guard = rcu::pin();
    let start = RENAME_LOCK.read_begin();
    let below = climb(dentry.id(), above.id(), &guard);
    if !RENAME_LOCK.read_retry(start) {
        return below;
    }
    let _moves_wait = RENAME_LOCK.read_exclusive();
    climb(dentry.id(), above.id(), &guard)
}

/// Drops a reference (`dput`), and then that on the parent if this was the end, and so on.
pub(crate) fn put(id: Id<Dentry>) {
    let guard = rcu::pin();
    let mut next = Some(id);
    while let Some(id) = next {
        next = put_one(id, &guard);
    }
}

fn put_one(id: Id<Dentry>, guard: &rcu::Guard) -> Option<Id<Dentry>> {
    let dentry = Dentry::pool().get(id, guard);
    let lock = match dentry.lockref().put_return() {
        PutReturn::Left(0) => {
            if dentry.is_settled() {
                return None;
            }
            let lock = dentry.lock();
            // Taken again, or killed by another (negative) in between: theirs now.
            if lock.count() != 0 {
                return None;
            }
            lock
        }
        PutReturn::Left(_) => return None,
        PutReturn::Busy => {
            let mut lock = dentry.lock();
            if lock.dec() != 0 {
                return None;
            }
            lock
        }
    };
    if dentry.is_hashed() {
        reclaim::retain(id, dentry, &lock);
        return None;
    }
    begin_kill(dentry, lock);
    finish_kill(id, dentry, guard)
}

/// From here on nobody takes a reference and nobody finds it. With no reference left, under its lock.
pub(crate) fn begin_kill(dentry: &Dentry, mut lock: LockRefGuard<'_, ()>) {
    lock.mark_dead();
    dentry.unhash(&lock);
    drop(lock);
}

/// Lets go of what a dead dentry held, and answers with its parent, on which a reference is still to be dropped.
pub(crate) fn finish_kill(
    id: Id<Dentry>,
    dentry: &Dentry,
    guard: &rcu::Guard,
) -> Option<Id<Dentry>> {
    let superblock = dentry.superblock();
    reclaim::forget(id, dentry);
    unlink_chain(id, dentry, guard);
    let inode = dentry.inode_id().map(|id| InodeRef(vfscale_sync::Held::from_raw(id)));
    if let Some(dir) = inode.filter(|inode| inode.0.kind() == FileType::Directory) {
        dir.0.drop_alias(id);
    }
    let parent = dentry.take_parent();
    dentry.scrub_owned(guard);
    dentry::pool().retire(id, guard);
    superblock.names().down();
    parent
}
