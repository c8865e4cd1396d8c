//! The numbers of a mount.

use std::mem::size_of;

use vfscale_sync::rcu::RcuStats;
use vfscale_sync::stats::PrimitiveStats;

use crate::dentry::Dentry;
use crate::inode::Inode;
use crate::superblock::{Count, SuperBlock};

/// The numbers of a mount. Those of the primitives and of RCU are the whole process's.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Names cached now, positive and negative, in use or not.
    pub names: u64,
    /// The most there were at once.
    pub names_peak: u64,
    /// Those of them that are known to be absent.
    pub negative: u64,
    /// The most there were at once.
    pub negative_peak: u64,
    /// Inodes now.
    pub inodes: u64,
    /// The most there were at once.
    pub inodes_peak: u64,
    /// Open files now.
    pub files: u64,
    /// Files opened so far.
    pub opens: u64,
    /// Bytes of the names and inodes now. The backend's nodes come on top.
    pub bytes: u64,
    /// The same for the highest numbers of each, without names of more than 36 bytes.
    pub bytes_peak: u64,
    /// Components answered by rcu-walk, with no store to shared memory.
    pub lookups_rcu: u64,
    /// Components answered from the cache with a reference taken.
    pub lookups_ref: u64,
    /// Components the backend was asked for.
    pub lookups_backend: u64,
    /// Lookups answered by a negative dentry.
    pub negative_hits: u64,
    /// Lookups that slept while another thread asked for the same name.
    pub lookup_waits: u64,
    /// Stale names the backend was asked about again.
    pub revalidations: u64,
    /// Dentries the shrinker looked at; with [`Reclaim::Clock`](crate::Reclaim::Clock) chains too.
    pub lru_scanned: u64,
    /// Dentries the shrinker freed.
    pub lru_freed: u64,
    /// Those of them that were known to be absent.
    pub negative_freed: u64,
    /// Absences that were not kept: their directory had too many, or they are not to be believed for a moment.
    pub negative_refused: u64,
    /// Names moved.
    pub renames: u64,
    /// What the primitives counted, process-wide.
    pub primitives: PrimitiveStats,
    /// What RCU counted, process-wide.
    pub rcu: RcuStats,
}

impl Stats {
    pub(crate) fn of(sb: &SuperBlock) -> Stats {
        let bytes =
            |names, inodes| names * size_of::<Dentry>() as u64 + inodes * size_of::<Inode>() as u64;
        let (names, inodes) = (sb.names(), sb.inode_count());
        Stats {
            names: names.now(),
            names_peak: names.peak(),
            negative: sb.negative().now(),
            negative_peak: sb.negative().peak(),
            inodes: inodes.now(),
            inodes_peak: inodes.peak(),
            files: sb.files().now(),
            opens: sb.count(Count::Open),
            bytes: crate::reclaim::bytes(sb),
            bytes_peak: bytes(names.peak(), inodes.peak()),
            lookups_rcu: sb.count(Count::LookupRcu),
            lookups_ref: sb.count(Count::LookupRef),
            lookups_backend: sb.count(Count::LookupBackend),
            negative_hits: sb.count(Count::NegativeHit),
            lookup_waits: sb.count(Count::LookupWait),
            revalidations: sb.count(Count::Revalidate),
            lru_scanned: sb.count(Count::LruScanned),
            lru_freed: sb.count(Count::LruFreed),
            negative_freed: sb.count(Count::NegativeFreed),
            negative_refused: sb.count(Count::NegativeRefused),
            renames: sb.count(Count::Rename),
            primitives: vfscale_sync::stats::snapshot(),
            rcu: vfscale_sync::rcu::stats(),
        }
    }
}
