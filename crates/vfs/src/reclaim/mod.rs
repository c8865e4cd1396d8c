//! Reclaim: which unused names go, and when.
//!
//! # Why
//! A cache that only grows ends the process it lives in; one that forgets the wrong names asks the backend for everything. So a mount has
//! limits, unused names wait in an order, and a shrinker takes from its end, a bounded piece at a time.
//!
//! # What waits where
//! A name is *unused* when its last reference ends. Then it is *kept* ([`retain`]): what is known to be absent on the queue of absences, the
//! rest as the mount's [`Policy`] does it. A hit never touches that place; it sets the mark of use ([`Dentry::touch`]) if it is not set.
//! Names come into use again where they stand, and turn positive or negative there. What is wrong is put right by whoever meets it: the
//! sweep, or the next last reference.
//!
//! # Order of going
//! Absences that were not asked for since the last sweep, then other names by the policy, then what is left of the absences. An absence is
//! cheap to learn again and there is no end to names that are absent (R3.12), but a build asks for the same few thousands of them
//! all the time: dropping those costs it a quarter of its lookups. The mark of use tells the two apart: a sweep for room looks at not many
//! more absences than it wants victims, so where most of them are of use the others pay as well.
//!
//! # A race, step by step
//! ```text
//!   T1 lookup                                T2 sweep
//!   finds the name, count 0
//!                                            tries for its lock, count is 0, marks it dead
//!   takes a reference: refused, it is dead
//!   looks again: a miss, asks the backend
//! ```
//! The other way round T2 sees the count and takes the name off its place.
//!
//! # Locks
//! Dentry, then queue. A sweep goes the other way and only *tries* for a dentry's lock (R3.5); it holds a queue for at most [`BATCH`] names,
//! kills outside of it, and no lookup waits for the kill. The clock holds no lock at all between two names. Nobody waits for another's
//! victim (R3.9, R3.10): who meets a dying name passes on.
//!
//! # Source
//! The dcache thread (2002): lazy LRU, and the clock of the replies. The second chance and the batches of today's kernels. SIEVE (NSDI 2024), which is the default: decision 8.

mod clock;
mod pressure;
mod queue;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use vfscale_sync::{HeldSlot, Id, LockRefGuard, QRwLock, rcu};

pub use pressure::{Pressure, PressureSource, PressureWatch};

use crate::Options;
use crate::dcache::{begin_kill, finish_kill, put};
use crate::dentry::{Dentry, Kept};
use crate::inode::Inode;
use crate::superblock::{Count, SuperBlock};
use queue::{Queue, Spare};

/// At most this many names are looked at with a queue held.
const BATCH: usize = 256;

/// Which unused names of a mount go first, apart from those that are known to be absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reclaim {
    /// The one that came into the queue first; one that was used since the last look goes to the young end and has lost its mark. Lazy: the
    /// queue is put in order only while it is looked at.
    Lru,
    /// No queue: a hand goes over the chains of the index and takes what was not used since it last came by. Letting go of a name takes no
    /// lock, but the hand passes what is in use, other mounts' names and empty chains too.
    Clock,
    /// A queue like that of [`Lru`](Reclaim::Lru) and a hand on it: what was used stays where it is, and the hand goes on. A name that came
    /// once does not push out those that came again.
    #[default]
    Sieve,
}

/// Where unused names wait, and how some are found that may go.
trait Policy: Sync {
    /// Keeps a name that nobody uses any more. Under its lock.
    fn keep(&self, superblock: &SuperBlock, id: Id<Dentry>);

    /// Lets go of a name that is kept.
    fn let_go(&self, superblock: &SuperBlock, id: Id<Dentry>);

    /// Looks at about `budget` names and takes up to `want`: dead already, for the caller alone.
    fn sweep(&self, superblock: &SuperBlock, want: usize, budget: usize, found: &mut Swept);

    /// How many steps it takes to look at everything once.
    fn round(&self, superblock: &SuperBlock) -> usize;
}

/// What a sweep came to.
#[derive(Default)]
struct Swept {
    scanned: usize,
    victims: Vec<Id<Dentry>>,
    /// Taken off a queue on which they do not belong any more.
    displaced: Vec<Id<Dentry>>,
}

/// A mount's unused names and its limits.
pub(crate) struct State {
    policy: AtomicU32,
    /// Unused names that lead somewhere, for the policies with a queue. Inside a dentry's lock; who holds it may only *try* for one.
    names: QRwLock<Queue>,
    /// Names known to be absent. As above.
    absent: QRwLock<Queue>,
    /// The clock's place in the index.
    hand: AtomicU32,
    max_names: AtomicU64,
    max_bytes: AtomicU64,
    max_negative: AtomicU64,
    max_negative_per_dir: AtomicU32,
}

impl State {
    pub(crate) fn new() -> State {
        State {
            policy: AtomicU32::new(0),
            names: QRwLock::new(Queue::new(Kept::Names)),
            absent: QRwLock::new(Queue::new(Kept::Absent)),
            hand: AtomicU32::new(0),
            max_names: AtomicU64::new(0),
            max_bytes: AtomicU64::new(0),
            max_negative: AtomicU64::new(0),
            max_negative_per_dir: AtomicU32::new(0),
        }
    }

    /// For a new mount. Nothing is kept yet.
    pub(crate) fn begin(&self, options: &Options) {
        let or_none = |limit: u64| if limit == 0 { u64::MAX } else { limit };
        self.policy.store(options.reclaim as u32, Relaxed);
        self.hand.store(0, Relaxed);
        self.max_names.store(or_none(options.max_names), Relaxed);
        self.max_bytes.store(or_none(options.max_bytes), Relaxed);
        self.max_negative.store(or_none(options.max_negative), Relaxed);
        let per_dir = u32::try_from(or_none(options.max_negative_per_dir)).unwrap_or(u32::MAX);
        self.max_negative_per_dir.store(per_dir, Relaxed);
    }

    fn policy(&self) -> &'static dyn Policy {
        const POLICIES: [&dyn Policy; 3] =
            [&queue::Queued(Spare::ToTheEnd), &clock::Clock, &queue::Queued(Spare::InPlace)];
        POLICIES[self.policy.load(Relaxed) as usize]
    }
}

/// Keeps a dentry whose last reference ended: in its place the first time, marked used after that. Under its lock.
pub(crate) fn retain(id: Id<Dentry>, dentry: &Dentry, _lock: &LockRefGuard<'_, ()>) {
    let wanted = if dentry.kind().is_none() { Kept::Absent } else { Kept::Names };
    match dentry.kept() {
        // Turned positive on the queue of absences: the sweep finds it there.
        Some(kept) if kept == wanted || kept == Kept::Absent => dentry.touch(),
        // Turned negative: its own limit must find it.
        Some(kept) => {
            let_go(kept, dentry.superblock(), id, dentry);
            keep(wanted, id, dentry);
        }
        None => keep(wanted, id, dentry),
    }
}

/// Puts it in its place. Under its lock.
fn keep(kept: Kept, id: Id<Dentry>, dentry: &Dentry) {
    let superblock = dentry.superblock();
    dentry.set_kept(Some(kept));
    match kept {
        Kept::Absent => superblock.reclaim().absent.write().push(id),
        Kept::Names => superblock.reclaim().policy().keep(superblock, id),
    }
}

/// Takes it out of its place. Under its lock, or dead.
fn let_go(kept: Kept, superblock: &SuperBlock, id: Id<Dentry>, dentry: &Dentry) {
    match kept {
        Kept::Absent => superblock.reclaim().absent.write().remove(id),
        Kept::Names => superblock.reclaim().policy().let_go(superblock, id),
    }
    dentry.set_kept(None);
}

/// Takes a dead dentry out of its place.
pub(crate) fn forget(id: Id<Dentry>, dentry: &Dentry) {
    // Dead, so that `retain` does not add it again. A sweep may be taking it off just now, under the queue's lock: removing is idempotent.
    if let Some(kept) = dentry.kept() {
        let_go(kept, dentry.superblock(), id, dentry);
    }
}

/// Bytes of the names and inodes of a mount now; the backend's nodes come on top.
pub(crate) fn bytes(superblock: &SuperBlock) -> u64 {
    superblock.names().now() * size_of::<Dentry>() as u64
        + superblock.inode_count().now() * size_of::<Inode>() as u64
        + superblock.long_names().now()
}

/// Sees to it that one more name fits under the limits, as far as there are unused ones.
pub(crate) fn make_room(superblock: &SuperBlock) {
    const EACH: u64 = (size_of::<Dentry>() + size_of::<Inode>()) as u64;
    let state = superblock.reclaim();
    // Other threads are on their way to one more each: the trim begins a little below the limit.
    let below = |max: u64, unit: u64| max - (max / 8).min(64 * unit);
    let piece = |max: u64| (max / 64).clamp(1, BATCH as u64 / 2);

    let max_negative = state.max_negative.load(Relaxed);
    let negative = superblock.negative().now();
    if negative >= below(max_negative, 1) {
        let want = piece(max_negative) + (negative - below(max_negative, 1));
        sweep_absent(superblock, want, 4 * want as usize + BATCH, None);
    }
    let max_names = state.max_names.load(Relaxed);
    let names = superblock.names().now();
    let mut want = 0;
    if names >= below(max_names, 1) {
        want = piece(max_names) + (names - below(max_names, 1));
    }
    let max_bytes = state.max_bytes.load(Relaxed);
    if max_bytes != u64::MAX {
        let bytes = bytes(superblock);
        if bytes >= below(max_bytes, EACH) {
            want = want.max(piece(max_bytes / EACH) + (bytes - below(max_bytes, EACH)) / EACH);
        }
    }
    if want > 0 {
        shrink_within(superblock, want, 64 * want as usize + BATCH);
    }
}

/// Sees to it that one more absent name fits under the limit of the directory `dir`. False if it does not: the absence is not to be kept.
pub(crate) fn make_room_for_absence(
    superblock: &SuperBlock,
    dir: Id<Dentry>,
    inode: &Inode,
) -> bool {
    let max = superblock.reclaim().max_negative_per_dir.load(Relaxed);
    if inode.absences() < max - (max / 8).min(64) {
        return true;
    }
    // The directory pays with its own. What the hand passes on the way stays as it is.
    sweep_absent(superblock, 16, BATCH, Some(dir));
    inode.absences() < max
}

/// May this name, which is about to go, stay as one more absence? Looks at the limits alone: whoever removes a tree is not to sweep for it.
pub(crate) fn has_room_for_absence(dentry: &Dentry) -> bool {
    let superblock = dentry.superblock();
    let state = superblock.reclaim();
    let dir = dentry.parent_id().and_then(|dir| Dentry::pool().slot(dir).inode_id());
    let absences = dir.map_or(0, |dir| Inode::pool().slot(dir).absences());
    absences < state.max_negative_per_dir.load(Relaxed)
        && superblock.negative().now() < state.max_negative.load(Relaxed)
}

/// Frees up to `want` unused names and answers how many it freed.
pub(crate) fn shrink(superblock: &SuperBlock, want: u64) -> u64 {
    shrink_within(superblock, want, usize::MAX)
}

/// The same, with at most `budget` steps.
fn shrink_within(superblock: &SuperBlock, want: u64, budget: usize) -> u64 {
    let state = superblock.reclaim();
    let absent = || state.absent.read().len().min(budget);
    let first = if budget == usize::MAX { absent() } else { absent().min(want as usize * 5 / 4) };
    let mut freed = sweep_absent(superblock, want, first, None);
    // Twice round: the first may only take marks of use away.
    let policy = state.policy();
    let mut left = policy.round(superblock).saturating_mul(2).min(budget);
    while freed < want && left > 0 {
        let mut found = Swept::default();
        policy.sweep(superblock, (want - freed) as usize, left.min(BATCH), &mut found);
        left -= found.scanned.min(left);
        let nothing = found.scanned == 0;
        freed += finish(superblock, found);
        if nothing {
            break;
        }
    }
    if freed < want {
        freed + sweep_absent(superblock, want - freed, absent(), None)
    } else {
        freed
    }
}

/// Frees absences that were not asked for since the hand last passed them; only those of one directory, if one is named.
fn sweep_absent(superblock: &SuperBlock, want: u64, budget: usize, of: Option<Id<Dentry>>) -> u64 {
    let (mut freed, mut left) = (0, budget);
    while freed < want && left > 0 {
        let mut found = Swept::default();
        let guard = rcu::pin();
        let want = (want - freed) as usize;
        superblock.reclaim().absent.write().sweep(
            Spare::InPlace,
            want,
            left.min(BATCH),
            of,
            &mut found,
            &guard,
        );
        drop(guard);
        left -= found.scanned.min(left);
        let nothing = found.scanned == 0;
        let now = finish(superblock, found);
        superblock.add(Count::NegativeFreed, now);
        freed += now;
        if nothing {
            break;
        }
    }
    freed
}

/// Ends what a sweep killed, and puts what it displaced where it belongs. With no lock held.
fn finish(superblock: &SuperBlock, found: Swept) -> u64 {
    let freed = found.victims.len() as u64;
    superblock.add(Count::LruScanned, found.scanned as u64);
    superblock.add(Count::LruFreed, freed);
    let guard = rcu::pin();
    for id in found.victims {
        let dentry = Dentry::pool().get(id, &guard);
        if let Some(parent) = finish_kill(id, dentry, &guard) {
            put(parent);
        }
    }
    for id in found.displaced {
        let dentry = Dentry::pool().get(id, &guard);
        let lock = dentry.lock();
        if lock.count() == 0 && dentry.is_hashed() && dentry.kept().is_none() {
            retain(id, dentry, &lock);
        }
    }
    freed
}

/// What a sweep does with a name that it has come to. What leaves its queue does so under the lock that is answered with, so that a last
/// reference that ends beside us finds it either on or off.
enum Verdict<'a> {
    /// Killed, for the sweep's caller to finish.
    Victim,
    /// Was used since the last look, or its lock is taken.
    Spared,
    /// In use or dying: keeps no place.
    Gone(LockRefGuard<'a, ()>),
    /// Unused, but not one of those that wait here.
    Displaced(LockRefGuard<'a, ()>),
}

/// Kills a name if nobody uses it and nobody has since the last look. `here`: the queue it stands on, whose lock is held.
fn judge(dentry: &Dentry, here: Kept) -> Verdict<'_> {
    let Some(lock) = dentry.lockref().try_lock() else { return Verdict::Spared };
    // Below 0: its killer waits to take it off.
    if lock.count() != 0 {
        return Verdict::Gone(lock);
    }
    if here == Kept::Absent && dentry.kind().is_some() {
        return Verdict::Displaced(lock);
    }
    if dentry.take_touch() {
        return Verdict::Spared;
    }
    begin_kill(dentry, lock);
    Verdict::Victim
}
