//! One mounted file system: its unused names, its list of inodes, its limits and its numbers.
//!
//! Superblocks live in a pool like dentries and inodes, so that a dentry names its superblock by a 32-bit id and writes no shared
//! count. One is given back when its mount is gone and the last of its names and inodes has followed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_utils::CachePadded;
use vfscale_sync::{Id, ListBatch, Pool, QRwLock, QRwLockWriteGuard, Slot, rcu, stats::Counters};

use crate::hash::HashKey;
use crate::inode::{self, Inode, OnSuperBlock};
use crate::{Options, reclaim};

static SUPERBLOCKS: Pool<SuperBlock> = Pool::new(1 << 12);

/// What is counted per superblock, by thread.
#[derive(Clone, Copy)]
pub(crate) enum Count {
    /// Answered by rcu-walk.
    LookupRcu,
    /// Answered from the cache with a reference taken.
    LookupRef,
    /// The backend was asked.
    LookupBackend,
    /// Answered by a negative dentry.
    NegativeHit,
    /// Slept while another thread asked for the same name.
    LookupWait,
    /// Asked the backend whether a stale name still holds.
    Revalidate,
    /// Dentries the shrinker looked at.
    LruScanned,
    /// Dentries the shrinker freed.
    LruFreed,
    /// Those of them that were absences.
    NegativeFreed,
    /// Absences that found no place.
    NegativeRefused,
    /// Names moved.
    Rename,
    /// Files opened.
    Open,
}

const COUNTS: usize = Count::Open as usize + 1;

/// A number that many threads change, with the highest value it had.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    now: AtomicU64,
    peak: AtomicU64,
}

impl Gauge {
    /// One more; answers with the number then.
    pub(crate) fn up(&self) -> u64 {
        let now = self.now.fetch_add(1, Relaxed) + 1;
        if now > self.peak.load(Relaxed) {
            self.peak.fetch_max(now, Relaxed);
        }
        now
    }

    pub(crate) fn down(&self) {
        self.now.fetch_sub(1, Relaxed);
    }

    /// More by so many, or less; the highest value is not kept.
    pub(crate) fn add(&self, by: i64) {
        self.now.fetch_add(by as u64, Relaxed);
    }

    pub(crate) fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Relaxed)
    }
}

pub(crate) struct SuperBlock {
    /// Unused dentries, and the limits.
    reclaim: reclaim::State,
    /// All its inodes.
    pub(crate) inodes: ListBatch<Inode, OnSuperBlock>,
    /// Held by whoever changes which directory a directory is in.
    rename_mutex: QRwLock<()>,
    /// See [`HashKey`].
    hash_add: AtomicU64,
    hash_mul: AtomicU64,
    counters: Counters<COUNTS>,
    /// What the counters stood at when the mount began.
    before: [AtomicU64; COUNTS],
    names: CachePadded<Gauge>,
    negative: CachePadded<Gauge>,
    /// Bytes of the names that do not fit into their dentries.
    long_names: CachePadded<Gauge>,
    inode_count: CachePadded<Gauge>,
    files: CachePadded<Gauge>,
}

impl Slot for SuperBlock {
    fn new() -> Self {
        SuperBlock {
            reclaim: reclaim::State::new(),
            inodes: ListBatch::new(inode::pool()),
            rename_mutex: QRwLock::new(()),
            hash_add: AtomicU64::new(0),
            hash_mul: AtomicU64::new(1),
            counters: Counters::new(),
            before: [const { AtomicU64::new(0) }; COUNTS],
            names: CachePadded::default(),
            negative: CachePadded::default(),
            long_names: CachePadded::default(),
            inode_count: CachePadded::default(),
            files: CachePadded::default(),
        }
    }
}

impl SuperBlock {
    /// A superblock for a new mount, or `None` if there are too many.
    pub(crate) fn create(options: &Options) -> Option<Id<SuperBlock>> {
        let fresh = SUPERBLOCKS.alloc()?;
        let key = HashKey::new();
        fresh.hash_add.store(key.add, Relaxed);
        fresh.hash_mul.store(key.mul, Relaxed);
        fresh.reclaim.begin(options);
        for (which, before) in fresh.before.iter().enumerate() {
            before.store(fresh.counters.sum(which), Relaxed);
        }
        for gauge in [&fresh.names, &fresh.negative, &fresh.inode_count, &fresh.files] {
            gauge.peak.store(0, Relaxed);
        }
        Some(fresh.publish())
    }

    /// Gives the superblock back. Nothing of it may live.
    pub(crate) fn destroy(id: Id<SuperBlock>) {
        SUPERBLOCKS.retire(id, &rcu::pin());
    }

    /// The superblock a dentry or inode names.
    pub(crate) fn of(id: Option<Id<SuperBlock>>) -> &'static SuperBlock {
        SUPERBLOCKS.slot(id.expect("every dentry and inode has a superblock"))
    }

    /// How names and inodes of this mount hash.
    #[inline]
    pub(crate) fn hash_key(&self) -> HashKey {
        HashKey { add: self.hash_add.load(Relaxed), mul: self.hash_mul.load(Relaxed) }
    }

    pub(crate) fn reclaim(&self) -> &reclaim::State {
        &self.reclaim
    }

    pub(crate) fn rename_mutex(&self) -> QRwLockWriteGuard<'_, ()> {
        self.rename_mutex.write()
    }

    pub(crate) fn bump(&self, what: Count) {
        self.counters.add(what as usize, 1);
    }

    pub(crate) fn add(&self, what: Count, n: u64) {
        self.counters.add(what as usize, n);
    }

    pub(crate) fn count(&self, what: Count) -> u64 {
        self.counters.sum(what as usize) - self.before[what as usize].load(Relaxed)
    }

    pub(crate) fn names(&self) -> &Gauge {
        &self.names
    }

    pub(crate) fn negative(&self) -> &Gauge {
        &self.negative
    }

    pub(crate) fn long_names(&self) -> &Gauge {
        &self.long_names
    }

    pub(crate) fn inode_count(&self) -> &Gauge {
        &self.inode_count
    }

    pub(crate) fn files(&self) -> &Gauge {
        &self.files
    }
}
