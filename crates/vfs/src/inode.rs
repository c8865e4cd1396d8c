//! The object itself: type, attributes, the backend's node.
//!
//! An inode is found by [`InodeKey`] through the inode table, whatever its names; two hard links are one inode. It lives as long
//! as somebody counts a reference: a dentry, an open file, a front end's node.
//!
//! # Who may touch what
//! - `ino`, `tag`, `sb`, `hash`, `kind`, `node`: written before the inode can be found, then constant until the slot is reused.
//! - the attributes: writers hold the lockref's lock and make `seq` odd; readers sample `seq` ([`Inode::cached_attr`]).
//! - `alias`: under the lockref's lock. A directory has one dentry as long as that dentry lives.
//! - `dir_lock`: shared for looking up in the directory, exclusive for changing its names.
//!
//! Two cache lines hold what a walk and a reference touch, a third the rest of the attributes.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use vfscale_sync::{
    AtomicId, HashLinks, Held, HeldSlot, Id, IdLinks, ListAdapter, LockRef, Ordering, Pool, Put,
    QRwLock, SeqCount, Slot, rcu,
};

use crate::clock::Now;
use crate::dentry::{Dentry, DentryRef};
use crate::superblock::SuperBlock;
use crate::{Attr, FileType, InodeKey, Timestamp, inode_table};

/// At most this many inodes at once, over all mounts of the process.
const MAX_INODES: u32 = 1 << 26;

pub(crate) static INODES: Pool<Inode> = Pool::new(MAX_INODES);

/// Which state of the attributes a question to the backend was about.
#[derive(Clone, Copy)]
pub(crate) struct AttrSample(u32);

/// The backend's object, as the core keeps it: of the type [`crate::FileSystem::Node`].
pub(crate) type Node = Arc<dyn Any + Send + Sync>;

/// The directory was removed: no name may be made in it any more.
const REMOVED: u32 = 1;
/// The last name is gone: what the backend keeps for it goes with the last reference.
const NAMELESS: u32 = 2;

#[repr(C, align(64))]
pub(crate) struct Inode {
    hash_links: HashLinks<Inode>,
    ino: AtomicU64,
    tag: AtomicU64,
    sb: AtomicId<SuperBlock>,
    hash: AtomicU32,
    seq: SeqCount,
    /// Type and permission bits, as `st_mode`.
    mode: AtomicU32,
    uid: AtomicU32,
    gid: AtomicU32,
    nlink: AtomicU32,
    flags: AtomicU32,
    /// The attributes are good until then, by [`crate::clock::now_ms`].
    attr_until: AtomicU64,

    lockref: LockRef,
    sb_links: IdLinks<Inode>,
    dir_lock: QRwLock<()>,
    alias: AtomicId<Dentry>,
    generation: AtomicU32,
    /// Of a directory: how many of its names are known to be absent.
    absences: AtomicU32,
    node: rcu::RcuCell<Node>,
    blksize: AtomicU32,

    attr_ino: AtomicU64,
    rdev: AtomicU64,
    size: AtomicU64,
    blocks: AtomicU64,
    times: [AtomicU64; 4],
}

impl Slot for Inode {
    fn new() -> Self {
        Inode {
            hash_links: HashLinks::new(),
            ino: AtomicU64::new(0),
            tag: AtomicU64::new(0),
            sb: AtomicId::none(),
            hash: AtomicU32::new(0),
            seq: SeqCount::new(),
            mode: AtomicU32::new(0),
            uid: AtomicU32::new(0),
            gid: AtomicU32::new(0),
            nlink: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            attr_until: AtomicU64::new(0),
            lockref: LockRef::new(0, ()),
            sb_links: IdLinks::new(),
            dir_lock: QRwLock::new(()),
            alias: AtomicId::none(),
            generation: AtomicU32::new(0),
            absences: AtomicU32::new(0),
            node: rcu::RcuCell::empty(),
            blksize: AtomicU32::new(0),
            attr_ino: AtomicU64::new(0),
            rdev: AtomicU64::new(0),
            size: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
            times: [const { AtomicU64::new(0) }; 4],
        }
    }
}

impl HeldSlot for Inode {
    fn lockref(&self) -> &LockRef {
        &self.lockref
    }

    fn pool() -> &'static Pool<Self> {
        &INODES
    }

    /// Drops a reference (`iput`); the last one takes the inode out of the table and gives the backend's node back.
    fn put(id: Id<Self>) {
        let guard = rcu::pin();
        let inode = INODES.get(id, &guard);
        let Put::LastLocked(mut lock) = inode.lockref.put_or_lock() else { return };
        lock.dec();
        lock.mark_dead();
        drop(lock);
        // Dead: nobody takes a reference any more, and only we, who killed it, go on with it.
        let sb = inode.superblock();
        inode_table::remove(id, inode, &guard);
        sb.inodes.del(id);
        inode.node.replace(None, &guard);
        if inode.flags.load(Relaxed) & NAMELESS != 0 {
            // The node may stand for this much memory or disk: let the grace period come the sooner.
            const MOST: u64 = 32 << 20;
            let bytes = inode.blocks.load(Relaxed).saturating_mul(512).min(MOST);
            guard.defer(bytes as usize, || ());
        }
        sb.inode_count().down();
        INODES.retire(id, &guard);
    }
}

impl vfscale_sync::Chained for Inode {
    fn links(&self) -> &HashLinks<Self> {
        &self.hash_links
    }

    fn hash(&self) -> u32 {
        self.hash.load(Relaxed)
    }
}

/// Puts inodes on the superblock's list.
#[derive(Debug)]
pub(crate) struct OnSuperBlock;

impl ListAdapter<Inode> for OnSuperBlock {
    fn links(inode: &Inode) -> &IdLinks<Inode> {
        &inode.sb_links
    }
}

pub(crate) fn pool() -> &'static Pool<Inode> {
    &INODES
}

impl Inode {
    /// Fills a fresh slot; nobody else can find it yet.
    pub(crate) fn init(
        &self,
        sb: Id<SuperBlock>,
        hash: u32,
        key: InodeKey,
        attr: &Attr,
        node: Node,
        attr_until: u64,
    ) {
        let guard = rcu::pin();
        self.generation.fetch_add(1, Relaxed);
        self.ino.store(key.ino, Relaxed);
        self.tag.store(key.tag, Relaxed);
        self.sb.store(Some(sb), Ordering::Relaxed);
        self.hash.store(hash, Relaxed);
        self.flags.store(0, Relaxed);
        self.alias.store(None, Ordering::Relaxed);
        self.node.replace(Some(Box::new(node)), &guard);
        self.mode.store(attr.kind.mode_bits(), Relaxed);
        self.store_attr(attr, attr_until);
        self.lockref.reset(1);
    }

    pub(crate) fn key(&self) -> InodeKey {
        InodeKey { ino: self.ino.load(Relaxed), tag: self.tag.load(Relaxed) }
    }

    pub(crate) fn sb_id(&self) -> Option<Id<SuperBlock>> {
        self.sb.load(Ordering::Relaxed)
    }

    pub(crate) fn superblock(&self) -> &'static SuperBlock {
        SuperBlock::of(self.sb_id())
    }

    pub(crate) fn kind(&self) -> FileType {
        FileType::from_mode(self.mode.load(Relaxed)).unwrap_or(FileType::Regular)
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Relaxed)
    }

    /// How many names of this directory are known to be absent.
    pub(crate) fn absences(&self) -> u32 {
        self.absences.load(Relaxed)
    }

    /// One more, or one less.
    pub(crate) fn count_absence(&self, more: bool) {
        // Relaxed: a count that orders nothing. All of them end before the directory does, for they hold it.
        self.absences.fetch_add(if more { 1 } else { 1_u32.wrapping_neg() }, Relaxed);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.lockref.is_dead()
    }

    pub(crate) fn dir_lock(&self) -> &QRwLock<()> {
        &self.dir_lock
    }

    /// The directory is gone; under its lock held exclusively.
    pub(crate) fn mark_removed(&self) {
        self.flags.fetch_or(REMOVED, Relaxed);
    }

    /// A name was removed. Told by what is cached, so a hint.
    pub(crate) fn lost_a_name(&self) {
        if self.nlink.load(Relaxed) <= 1 {
            self.flags.fetch_or(NAMELESS, Relaxed);
        }
        self.forget_attr();
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.flags.load(Relaxed) & REMOVED != 0
    }

    /// The backend's node, as another owner of it.
    pub(crate) fn node(&self, guard: &rcu::Guard) -> Option<Node> {
        self.node.load(guard).cloned()
    }

    /// Reads attributes as they were together at one moment; `None` if they are not good any more.
    #[inline]
    fn read_attr<T>(&self, now: &Now, read: impl Fn(&Inode) -> T) -> Option<T> {
        loop {
            let start = self.seq.begin();
            let until = self.attr_until.load(Relaxed);
            if !now.is_before(until) {
                return None;
            }
            let value = read(self);
            if !self.seq.retry(start) {
                return Some(value);
            }
            // A writer is at it, or has lost its core there.
            std::thread::yield_now();
        }
    }

    /// Type and permission bits, owner and group, for a permission decision. `None` if they are not good any more.
    #[inline]
    pub(crate) fn cached_owner(&self, now: &Now) -> Option<(u32, u32, u32)> {
        self.read_attr(now, |inode| {
            (inode.mode.load(Relaxed), inode.uid.load(Relaxed), inode.gid.load(Relaxed))
        })
    }

    /// The attributes as last told by the backend, if they are still good. The access time may lag behind reads.
    #[inline]
    pub(crate) fn cached_attr(&self, now: &Now) -> Option<Attr> {
        self.read_attr(now, Inode::load_attr)
    }

    /// The same, with the time until which they are good.
    #[inline]
    pub(crate) fn cached_attr_until(&self, now: &Now) -> Option<(Attr, u64)> {
        self.read_attr(now, |inode| (inode.load_attr(), inode.attr_until.load(Relaxed)))
    }

    #[inline]
    fn load_attr(&self) -> Attr {
        let mode = self.mode.load(Relaxed);
        let [atime, mtime, ctime, btime] = [0, 1, 2, 3].map(|i| self.times[i].load(Relaxed));
        Attr {
            ino: self.attr_ino.load(Relaxed),
            kind: FileType::from_mode(mode).unwrap_or(FileType::Regular),
            perm: mode & 0o7777,
            nlink: self.nlink.load(Relaxed),
            uid: self.uid.load(Relaxed),
            gid: self.gid.load(Relaxed),
            rdev: self.rdev.load(Relaxed),
            size: self.size.load(Relaxed),
            blocks: self.blocks.load(Relaxed),
            blksize: self.blksize.load(Relaxed),
            atime: unpack_time(atime),
            mtime: unpack_time(mtime),
            ctime: unpack_time(ctime),
            btime: (btime != NO_TIME).then(|| unpack_time(btime)),
        }
    }

    /// To be taken before the backend is asked for attributes, and given back with its answer.
    pub(crate) fn attr_sample(&self) -> AttrSample {
        AttrSample(self.seq.begin())
    }

    /// Takes what the backend answered; good until `until`. If the attributes changed since `sample`, the answer may be older than
    /// the change: it is not kept.
    pub(crate) fn store_asked(&self, attr: &Attr, until: u64, sample: AttrSample) {
        let _lock = self.lockref.lock();
        if !self.seq.retry(sample.0) {
            self.store_attr(attr, until);
        }
    }

    /// Takes what the backend answered to a change. If another change came in between, nobody knows which was first: the next look
    /// asks.
    pub(crate) fn store_changed(&self, attr: &Attr, until: u64, sample: AttrSample) {
        let _lock = self.lockref.lock();
        let until = if self.seq.retry(sample.0) { 0 } else { until };
        self.store_attr(attr, until);
    }

    fn store_attr(&self, attr: &Attr, until: u64) {
        let _write = self.seq.write();
        // The type is for ever: a backend that changes its mind is not believed.
        let kind = self.mode.load(Relaxed) & !0o7777;
        self.mode.store(kind | (attr.perm & 0o7777), Relaxed);
        self.nlink.store(attr.nlink, Relaxed);
        self.uid.store(attr.uid, Relaxed);
        self.gid.store(attr.gid, Relaxed);
        self.attr_ino.store(attr.ino, Relaxed);
        self.rdev.store(attr.rdev, Relaxed);
        self.size.store(attr.size, Relaxed);
        self.blocks.store(attr.blocks, Relaxed);
        self.blksize.store(attr.blksize, Relaxed);
        let times = [Some(attr.atime), Some(attr.mtime), Some(attr.ctime), attr.btime];
        let packed = times.map(|t| t.map_or(Some(NO_TIME), pack_time));
        for (word, time) in self.times.iter().zip(packed) {
            word.store(time.unwrap_or(NO_TIME), Relaxed);
        }
        // A time outside of what a word holds is never answered from here: ask the backend each time.
        let holds = packed.iter().all(Option::is_some);
        self.attr_until.store(if holds { until } else { 0 }, Relaxed);
    }

    /// The attributes may have changed: ask the backend the next time.
    pub(crate) fn forget_attr(&self) {
        let _lock = self.lockref.lock();
        self.attr_until.store(0, Relaxed);
        // Who is asking just now must not keep the answer.
        self.seq.invalidate();
    }

    /// Makes `dentry` the one dentry of this directory, or answers with the living one it already has. The caller holds `dentry`'s lock until it
    /// leads here and can be found, so that whoever is given it as the living one gets it whole. (Order: new dentry, inode, living
    /// dentry; who is seen as living has left the inode's lock behind.)
    pub(crate) fn claim_alias(&self, dentry: Id<Dentry>, guard: &rcu::Guard) -> Option<DentryRef> {
        let _lock = self.lockref.lock();
        if let Some(alias) = self.alias.load(Ordering::Relaxed).filter(|&alias| alias != dentry)
            && let Some(alive) = DentryRef::try_get(alias, guard)
        {
            return Some(alive);
        }
        self.alias.store(Some(dentry), Ordering::Relaxed);
        None
    }

    /// `dentry` died; it is not this directory's dentry any more.
    pub(crate) fn drop_alias(&self, dentry: Id<Dentry>) {
        let _lock = self.lockref.lock();
        if self.alias.load(Ordering::Relaxed) == Some(dentry) {
            self.alias.store(None, Ordering::Relaxed);
        }
    }

    pub(crate) fn alias(&self, guard: &rcu::Guard) -> Option<DentryRef> {
        let _lock = self.lockref.lock();
        DentryRef::try_get(self.alias.load(Ordering::Relaxed)?, guard)
    }
}

/// Marks an unknown birth time: the nanoseconds of no real time.
const NO_TIME: u64 = u64::MAX;

/// 34 bits of signed seconds (the years 1698 to 2242) over 30 bits of nanoseconds.
fn pack_time(time: Timestamp) -> Option<u64> {
    let fits = (-(1i64 << 33)..1 << 33).contains(&time.sec) && time.nsec < 1_000_000_000;
    fits.then(|| ((time.sec as u64) << 30) | u64::from(time.nsec))
}

fn unpack_time(word: u64) -> Timestamp {
    Timestamp { sec: (word as i64) >> 30, nsec: (word & ((1 << 30) - 1)) as u32 }
}

/// A counted reference to an inode: it stays the same inode, with its node, as long as this lives.
#[derive(Clone, PartialEq, Eq)]
pub struct InodeRef(pub(crate) Held<Inode>);

impl InodeRef {
    /// Takes a reference on the inode in `slot` if it still is the one with this `generation`.
    #[must_use]
    pub fn find(slot: u32, generation: u32) -> Option<InodeRef> {
        let guard = rcu::pin();
        let inode = InodeRef(Held::try_get(Id::from_raw(slot)?, &guard)?);
        (inode.0.generation() == generation).then_some(inode)
    }

    /// The type.
    #[must_use]
    pub fn kind(&self) -> FileType {
        self.0.kind()
    }

    /// The identity the backend gave it.
    #[must_use]
    pub fn key(&self) -> InodeKey {
        self.0.key()
    }

    /// A number that tells this inode from every other that lived in the same [`slot`](Self::slot). At least 1.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.0.generation()
    }

    /// A number above 0, unique among the inodes that live now.
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.0.id().to_raw()
    }

    /// The one dentry of a directory, if it lives. Other inodes have none to give.
    #[must_use]
    pub fn directory(&self) -> Option<DentryRef> {
        self.0.alias(&rcu::pin())
    }

    /// Gives the reference up into a number, for a table of a front end's own. [`from_raw`](Self::from_raw) takes it back.
    #[must_use = "the reference is lost unless `from_raw` takes it back"]
    pub fn into_raw(self) -> u32 {
        self.0.into_raw().to_raw()
    }

    /// Takes over the reference that [`into_raw`](Self::into_raw) gave up.
    ///
    /// # Panics
    /// On 0. A number that no `into_raw` gave, or one taken back twice, drops somebody else's reference.
    #[must_use]
    pub fn from_raw(raw: u32) -> InodeRef {
        InodeRef(Held::from_raw(Id::from_raw(raw).expect("an inode's number is above 0")))
    }
}

impl std::fmt::Debug for InodeRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InodeRef").field("key", &self.key()).field("kind", &self.kind()).finish()
    }
}

// With `lockdep` its lock carries a class.
#[cfg(not(feature = "lockdep"))]
const _: () = assert!(size_of::<Inode>() == 192 && align_of::<Inode>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_packing() {
        for (sec, nsec) in [
            (0, 0),
            (-1, 999_999_999),
            (4_102_444_800, 1),
            (-(1 << 33), 0),
            ((1 << 33) - 1, 999_999_998),
        ] {
            let time = Timestamp { sec, nsec };
            assert_eq!(pack_time(time).map(unpack_time), Some(time));
        }
        assert_eq!(pack_time(Timestamp { sec: 1 << 33, nsec: 0 }), None);
    }
}
