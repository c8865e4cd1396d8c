//! A name in a directory, cached: it leads to an inode, or to none (the name is known to be absent).
//!
//! # Layout
//! Two cache lines. The first holds all that a lock-free walker reads; the second all that is written when a reference is taken
//! or the LRU moves, so that walkers on other cores keep the first one (R1.5 in the lessons of the lockref thread).
//!
//! # Who may touch what
//! - `parent`, `hash`, `name`, `long_name`, `inode`, `meta`: written with the lockref's lock held and `seq` odd. Readers sample `seq`, read, and
//!   check it again. While the dentry is fresh (nobody can find it) they are written freely.
//! - a dentry with a counted reference that leads to an inode goes on leading to it.
//! - `queue_links` and the flags `KEPT_*`: under the lockref's lock *and* the queue's.
//! - `USED`: anybody, at any time, by read-modify-write; a hint, which a change of `meta` beside it may lose.
//!
//! # States, in `meta`
//! `IN_LOOKUP` in the hash, the backend is being asked; only the slow path sees it, and waits.
//! `HASHED` can be found. Neither: nobody finds it any more; it dies with its last reference.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use vfscale_sync::{
    AtomicId, Chained, Get, HashLinks, Held, HeldSlot, Id, IdLinks, ListAdapter, LockRef,
    LockRefGuard, NameBytes, Ordering, Pool, SeqCount, Slot, rcu,
    wait::{self, WaitWord},
};

use crate::clock::Now;
use crate::inode::{Inode, InodeRef};
use crate::superblock::SuperBlock;
use crate::{FileType, dcache};

/// At most this many dentries at once, over all mounts of the process.
const MAX_DENTRIES: u32 = 1 << 27;

/// Names up to this many bytes stand in the dentry itself.
const INLINE_NAME: usize = 36;

pub(crate) static DENTRIES: Pool<Dentry> = Pool::new(MAX_DENTRIES);

/// In the hash, and what it says holds.
const HASHED: u32 = 1 << 16;
/// In the hash, and the backend is being asked.
const IN_LOOKUP: u32 = 1 << 17;

/// Used since the last sweep. Beside what a walker reads, so that one who marks a name that is marked touches no second line.
const USED: u32 = 1 << 18;

/// Waits among the unused names.
const KEPT_NAMES: u32 = 1;
/// Waits among the absent ones.
const KEPT_ABSENT: u32 = 2;
/// Counted as an absence, at its superblock and its directory.
const COUNTED: u32 = 4;

/// Where a name without references waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// As the mount's policy has it.
    Names,
    /// On the queue of absences.
    Absent,
}

#[repr(C, align(64))]
pub(crate) struct Dentry {
    hash_links: HashLinks<Dentry>,
    parent: AtomicId<Dentry>,
    pub(crate) seq: SeqCount,
    hash: AtomicU32,
    inode: AtomicId<Inode>,
    /// Bits 0–7 the name's length, 8–15 the inode's type (0 = negative), then the states.
    meta: AtomicU32,
    name: NameBytes<{ INLINE_NAME / 4 }>,

    lockref: LockRef,
    sb: AtomicId<SuperBlock>,
    flags: AtomicU32,
    queue_links: IdLinks<Dentry>,
    /// What it says is good until then, by [`crate::clock::now_ms`].
    valid_until: AtomicU64,
    long_name: rcu::RcuCell<Box<[u8]>>,
    /// 1 while in lookup; who meets it sleeps here.
    in_lookup: WaitWord,
}

impl Slot for Dentry {
    fn new() -> Self {
        Dentry {
            hash_links: HashLinks::new(),
            parent: AtomicId::none(),
            seq: SeqCount::new(),
            hash: AtomicU32::new(0),
            inode: AtomicId::none(),
            meta: AtomicU32::new(0),
            name: NameBytes::new(),
            lockref: LockRef::new(0, ()),
            sb: AtomicId::none(),
            flags: AtomicU32::new(0),
            queue_links: IdLinks::new(),
            valid_until: AtomicU64::new(0),
            long_name: rcu::RcuCell::empty(),
            in_lookup: WaitWord::new(0),
        }
    }
}

impl Chained for Dentry {
    fn links(&self) -> &HashLinks<Self> {
        &self.hash_links
    }

    fn hash(&self) -> u32 {
        self.hash.load(Relaxed)
    }
}

impl HeldSlot for Dentry {
    fn lockref(&self) -> &LockRef {
        &self.lockref
    }

    fn pool() -> &'static Pool<Self> {
        &DENTRIES
    }

    fn put(id: Id<Self>) {
        dcache::put(id);
    }
}

/// Puts dentries on a queue of their superblock.
#[derive(Debug)]
pub(crate) struct OnQueue;

impl ListAdapter<Dentry> for OnQueue {
    fn links(dentry: &Dentry) -> &IdLinks<Dentry> {
        &dentry.queue_links
    }
}

pub(crate) fn pool() -> &'static Pool<Dentry> {
    &DENTRIES
}

/// What a dentry leads to: those bits of `meta` that hold the inode's type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leads(u32);

impl Leads {
    pub(crate) const NOWHERE: Leads = Leads(0);
    pub(crate) const TO_DIRECTORY: Leads = Leads::to(FileType::Directory);
    pub(crate) const TO_LINK: Leads = Leads::to(FileType::Symlink);

    const fn to(kind: FileType) -> Leads {
        Leads((kind as u32) << 8)
    }
}

/// What a fresh dentry is to be.
pub(crate) enum Birth {
    /// In the hash soon, with the backend still to be asked.
    InLookup,
    /// Not in the hash yet, what it leads to still to be set.
    Bare,
}

impl Dentry {
    /// Fills a fresh slot. Takes over the reference on `parent`.
    pub(crate) fn init(
        &self,
        sb: Id<SuperBlock>,
        parent: Option<DentryRef>,
        hash: u32,
        name: &[u8],
        birth: Birth,
    ) {
        let guard = rcu::pin();
        // A reader with an old sequence number, from before the slot was used anew, must not believe what follows.
        let _write = self.seq.write();
        self.sb.store(Some(sb), Ordering::Relaxed);
        self.parent.store(parent.map(|p| p.0.into_raw()), Ordering::Relaxed);
        self.hash.store(hash, Relaxed);
        self.flags.store(0, Relaxed);
        let (state, waiting) = match birth {
            Birth::InLookup => (IN_LOOKUP, 1),
            Birth::Bare => (0, 0),
        };
        self.meta.store(state, Relaxed);
        self.set_name(name, &guard);
        self.set_inode(None);
        self.valid_until.store(0, Relaxed);
        self.in_lookup.store(waiting, Ordering::Relaxed);
        self.lockref.reset(1);
    }

    fn set_name(&self, name: &[u8], guard: &rcu::Guard) {
        debug_assert!(name.len() <= 255);
        let meta = self.meta.load(Relaxed);
        self.meta.store((meta & !0xff) | name.len() as u32, Relaxed);
        if name.len() <= INLINE_NAME {
            self.name.store(name);
        } else {
            let before = self.long_name.load(guard).map_or(0, |long| long.len());
            self.superblock().long_names().add(name.len() as i64 - before as i64);
            self.long_name.replace(Some(Box::new(name.into())), guard);
        }
    }

    fn set_inode(&self, inode: Option<InodeRef>) {
        let kind = inode.as_ref().map_or(0, |i| i.0.kind() as u32);
        self.inode.store(inode.map(|i| i.0.into_raw()), Ordering::Relaxed);
        let meta = self.meta.load(Relaxed);
        self.meta.store((meta & !0xff00) | kind << 8, Relaxed);
    }

    /// Is this the dentry of `name` in `parent`, in the hash and known? For a reader under `seq`.
    #[inline]
    pub(crate) fn answers(
        &self,
        parent: Id<Dentry>,
        hash: u32,
        name: &[u8],
        guard: &rcu::Guard,
    ) -> bool {
        const MASK: u32 = HASHED | IN_LOOKUP | 0xff;
        self.hash.load(Relaxed) == hash
            && self.parent.load(Ordering::Relaxed) == Some(parent)
            && self.meta.load(Relaxed) & MASK == HASHED | name.len() as u32
            && self.name_is(name, guard)
    }

    /// The same, but in lookup too: what the slow path must not insert beside.
    pub(crate) fn stands_for(
        &self,
        parent: Id<Dentry>,
        hash: u32,
        name: &[u8],
        guard: &rcu::Guard,
    ) -> bool {
        let meta = self.meta.load(Relaxed);
        self.hash.load(Relaxed) == hash
            && self.parent.load(Ordering::Relaxed) == Some(parent)
            && meta & (HASHED | IN_LOOKUP) != 0
            && meta & 0xff == name.len() as u32
            && self.name_is(name, guard)
    }

    // A call of its own: inlined, its cases are multiplied with those of the walk around it.
    #[inline(never)]
    fn name_is(&self, name: &[u8], guard: &rcu::Guard) -> bool {
        if name.len() <= INLINE_NAME {
            self.name.eq(name)
        } else {
            self.long_name.load(guard).is_some_and(|long| **long == *name)
        }
    }

    /// A copy of the name. Under a reference and the lock, or checked by `seq`.
    fn load_name(&self, guard: &rcu::Guard) -> Vec<u8> {
        let len = (self.meta.load(Relaxed) & 0xff) as usize;
        if len <= INLINE_NAME {
            let mut name = [0; INLINE_NAME];
            self.name.copy_to(len, &mut name);
            name[..len].to_vec()
        } else {
            self.long_name.load(guard).map_or_else(Vec::new, |long| long.to_vec())
        }
    }

    pub(crate) fn superblock(&self) -> &'static SuperBlock {
        SuperBlock::of(self.sb.load(Ordering::Relaxed))
    }

    pub(crate) fn parent_id(&self) -> Option<Id<Dentry>> {
        self.parent.load(Ordering::Relaxed)
    }

    pub(crate) fn inode_id(&self) -> Option<Id<Inode>> {
        self.inode.load(Ordering::Relaxed)
    }

    /// What it leads to, without touching that.
    #[inline]
    pub(crate) fn leads(&self) -> Leads {
        Leads(self.meta.load(Relaxed) & 0xff00)
    }

    /// The type of the inode it leads to.
    pub(crate) fn kind(&self) -> Option<FileType> {
        FileType::from_dirent((self.meta.load(Relaxed) >> 8) as u8)
    }

    pub(crate) fn is_hashed(&self) -> bool {
        self.meta.load(Relaxed) & HASHED != 0
    }

    pub(crate) fn is_in_lookup(&self) -> bool {
        self.meta.load(Relaxed) & IN_LOOKUP != 0
    }

    #[inline]
    pub(crate) fn is_valid(&self, now: &Now) -> bool {
        now.is_before(self.valid_until.load(Relaxed))
    }

    pub(crate) fn valid_until(&self) -> u64 {
        self.valid_until.load(Relaxed)
    }

    pub(crate) fn set_valid_until(&self, until: u64) {
        self.valid_until.store(until, Relaxed);
    }

    /// Marks it used, with no store if it is marked already.
    pub(crate) fn touch(&self) {
        if self.meta.load(Relaxed) & USED == 0 {
            self.meta.fetch_or(USED, Relaxed);
        }
    }

    /// May stay cached with no reference and nothing left to do: can be found, is marked used, is kept where it belongs.
    pub(crate) fn is_settled(&self) -> bool {
        let meta = self.meta.load(Relaxed);
        let places = if meta & 0xff00 == 0 { KEPT_ABSENT } else { KEPT_ABSENT | KEPT_NAMES };
        meta & (HASHED | USED) == HASHED | USED && self.flags.load(Relaxed) & places != 0
    }

    /// Where it waits.
    pub(crate) fn kept(&self) -> Option<Kept> {
        match self.flags.load(Relaxed) & (KEPT_NAMES | KEPT_ABSENT) {
            0 => None,
            KEPT_NAMES => Some(Kept::Names),
            _ => Some(Kept::Absent),
        }
    }

    /// Under its lock, or dead.
    pub(crate) fn set_kept(&self, kept: Option<Kept>) {
        let places = match kept {
            None => 0,
            Some(Kept::Names) => KEPT_NAMES,
            Some(Kept::Absent) => KEPT_ABSENT,
        };
        let flags = self.flags.load(Relaxed);
        self.flags.store(flags & !(KEPT_NAMES | KEPT_ABSENT) | places, Relaxed);
    }

    /// Takes the mark of use away, and tells whether it was there.
    pub(crate) fn take_touch(&self) -> bool {
        self.meta.load(Relaxed) & USED != 0 && self.meta.fetch_and(!USED, Relaxed) & USED != 0
    }

    /// It is known to be absent from now on, or not any more. Under its lock, or dead.
    fn count_absence(&self, absent: bool) {
        let flags = self.flags.load(Relaxed);
        if (flags & COUNTED != 0) == absent {
            return;
        }
        self.flags.store(flags ^ COUNTED, Relaxed);
        let negative = self.superblock().negative();
        if absent {
            negative.up();
        } else {
            negative.down();
        }
        // The directory is held, and leads to its inode for ever.
        if let Some(dir) = self.parent_id().and_then(|dir| DENTRIES.slot(dir).inode_id()) {
            crate::inode::pool().slot(dir).count_absence(absent);
        }
    }

    /// From now on nobody finds it; the chain still holds it until `dcache::unlink_chain`. Under the lock.
    pub(crate) fn unhash(&self, _lock: &LockRefGuard<'_, ()>) -> bool {
        let meta = self.meta.load(Relaxed);
        let was = meta & (HASHED | IN_LOOKUP) != 0;
        self.meta.store(meta & !(HASHED | IN_LOOKUP), Relaxed);
        self.seq.invalidate();
        was
    }

    /// Can be found again under the name it has. Under the lock.
    pub(crate) fn rehash(&self, _lock: &LockRefGuard<'_, ()>) {
        let _write = self.seq.write();
        self.meta.store(self.meta.load(Relaxed) | HASHED, Relaxed);
    }

    /// Attaches an inode (or its absence) to a dentry that led nowhere yet, and ends its lookup. Under the lock.
    pub(crate) fn instantiate(
        &self,
        inode: Option<InodeRef>,
        until: u64,
        _lock: &LockRefGuard<'_, ()>,
    ) {
        debug_assert!(self.inode_id().is_none());
        self.count_absence(inode.is_none());
        let _write = self.seq.write();
        self.set_inode(inode);
        self.valid_until.store(until, Relaxed);
        let meta = self.meta.load(Relaxed);
        self.meta.store((meta & !IN_LOOKUP) | HASHED, Relaxed);
    }

    /// Turns it negative and answers with the reference it had. Under the lock.
    pub(crate) fn take_inode(&self, _lock: &LockRefGuard<'_, ()>) -> Option<InodeRef> {
        self.count_absence(true);
        // What was asked for was another thing: an absence begins unused.
        self.take_touch();
        let _write = self.seq.write();
        let inode = self.inode.load(Ordering::Relaxed).map(|id| InodeRef(Held::from_raw(id)));
        self.set_inode(None);
        inode
    }

    /// Gives it another name and parent, inside `dcache`'s relinking. Takes over the reference on `parent` and answers with the old
    /// one. Under the lock, with `seq` odd.
    pub(crate) fn set_place(
        &self,
        parent: DentryRef,
        hash: u32,
        name: &[u8],
        guard: &rcu::Guard,
    ) -> Option<DentryRef> {
        let old = self.parent.load(Ordering::Relaxed).map(|id| DentryRef(Held::from_raw(id)));
        self.parent.store(Some(parent.0.into_raw()), Ordering::Relaxed);
        self.hash.store(hash, Relaxed);
        self.set_name(name, guard);
        old
    }

    /// Gives up the reference on its parent, and with it its count as an absence; it is dead.
    pub(crate) fn take_parent(&self) -> Option<Id<Dentry>> {
        self.count_absence(false);
        let parent = self.parent.load(Ordering::Relaxed);
        self.parent.store(None, Ordering::Relaxed);
        parent
    }

    /// Drops what the slot owns; it is dead.
    pub(crate) fn scrub_owned(&self, guard: &rcu::Guard) {
        // It may have had a long name once, and a short one since.
        if let Some(long) = self.long_name.load(guard) {
            self.superblock().long_names().add(-(long.len() as i64));
            self.long_name.replace(None, guard);
        }
    }

    pub(crate) fn lock(&self) -> LockRefGuard<'_, ()> {
        self.lockref.lock()
    }

    /// Sleeps until the lookup under way ends.
    pub(crate) fn wait_for_lookup(&self) {
        while self.in_lookup.load(Ordering::Acquire) == 1 {
            wait::wait(&self.in_lookup, 1);
        }
    }

    /// The lookup ended, one way or the other.
    pub(crate) fn end_lookup(&self) {
        self.in_lookup.store(0, Ordering::Release);
        wait::wake_all(&self.in_lookup);
    }
}

/// A counted reference to a dentry: it stays the same dentry, and goes on leading to its inode, as long as this lives. Its name and
/// parent may change by a rename.
#[derive(Clone, PartialEq, Eq)]
pub struct DentryRef(pub(crate) Held<Dentry>);

impl DentryRef {
    pub(crate) fn try_get(id: Id<Dentry>, guard: &rcu::Guard) -> Option<DentryRef> {
        Held::try_get(id, guard).map(DentryRef)
    }

    pub(crate) fn id(&self) -> Id<Dentry> {
        self.0.id()
    }

    /// The inode it leads to; `None` if it is negative.
    #[must_use]
    pub fn inode(&self) -> Option<InodeRef> {
        let guard = rcu::pin();
        Held::try_get(self.0.inode_id()?, &guard).map(InodeRef)
    }

    /// The name now. Empty for the root.
    #[must_use]
    pub fn name(&self) -> Vec<u8> {
        let guard = rcu::pin();
        loop {
            let start = self.0.seq.begin();
            let name = self.0.load_name(&guard);
            if !self.0.seq.retry(start) {
                return name;
            }
            std::thread::yield_now();
        }
    }

    /// The directory it is in now; `None` for the root.
    #[must_use]
    pub fn parent(&self) -> Option<DentryRef> {
        let guard = rcu::pin();
        loop {
            // R1.2: a reference on what was the parent is only good if it still is.
            let start = self.0.seq.begin();
            let id = self.0.parent_id()?;
            let pool = Dentry::pool();
            if pool.get(id, &guard).lockref.get_not_zero() == Get::Taken {
                let parent = DentryRef(Held::from_raw(id));
                if !self.0.seq.retry(start) {
                    return Some(parent);
                }
            }
            std::thread::yield_now();
        }
    }

    /// Nobody finds it by its name any more.
    #[must_use]
    pub fn is_unhashed(&self) -> bool {
        self.0.parent_id().is_some() && !self.0.is_hashed()
    }

    /// A number above 0, unique among the dentries that live now.
    #[must_use]
    pub fn id_raw(&self) -> u32 {
        self.0.id().to_raw()
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
    pub fn from_raw(raw: u32) -> DentryRef {
        DentryRef(Held::from_raw(Id::from_raw(raw).expect("a dentry's number is above 0")))
    }
}

impl std::fmt::Debug for DentryRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.name();
        f.debug_struct("DentryRef")
            .field("name", &name.escape_ascii().to_string())
            .field("kind", &self.0.kind())
            .finish()
    }
}

const _: () = assert!(size_of::<Dentry>() == 128 && align_of::<Dentry>() == 64);
const _: () = assert!(std::mem::offset_of!(Dentry, lockref) == 64);
