//! What a memory file system has used up, and what it may.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use vfscale::{Errno, Result, StatFs};

use super::{MemOptions, NAME_MAX, PAGE};

/// Memory assumed when the system does not tell how much it has.
const FALLBACK_MEMORY_BYTES: u64 = 2 << 30;

/// Counts of pages and inodes with a limit each. All orderings are relaxed: the counts guard no
/// other memory.
#[derive(Debug)]
pub(super) struct Space {
    pages: Budget,
    inodes: Budget,
    next_ino: AtomicU64,
}

#[derive(Debug)]
struct Budget {
    used: AtomicU64,
    limit: u64,
}

impl Budget {
    fn take(&self, n: u64) -> Result<()> {
        let grow = |used: u64| used.checked_add(n).filter(|&sum| sum <= self.limit);
        self.used.fetch_update(Relaxed, Relaxed, grow).map(drop).map_err(|_| Errno::ENOSPC)
    }

    fn give_back(&self, n: u64) {
        let before = self.used.fetch_sub(n, Relaxed);
        debug_assert!(before >= n, "gave back {n} of {before}");
    }

    fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used.load(Relaxed))
    }
}

impl Space {
    pub(super) fn new(options: MemOptions) -> Space {
        let bytes = options.size_limit_bytes.unwrap_or_else(|| memory_bytes() / 2);
        let pages = bytes.div_ceil(PAGE);
        let inodes = options.inode_limit.unwrap_or(pages);
        Space {
            pages: Budget { used: AtomicU64::new(0), limit: pages },
            // The root must exist in the smallest file system too.
            inodes: Budget { used: AtomicU64::new(0), limit: inodes.max(1) },
            next_ino: AtomicU64::new(1),
        }
    }

    /// Counts `n` more pages, or none.
    pub(super) fn take_pages(&self, n: u64) -> Result<()> {
        self.pages.take(n)
    }

    pub(super) fn give_back_pages(&self, n: u64) {
        self.pages.give_back(n);
    }

    /// Counts one more inode and answers with its number.
    pub(super) fn take_inode(&self) -> Result<u64> {
        self.inodes.take(1)?;
        Ok(self.next_ino.fetch_add(1, Relaxed))
    }

    pub(super) fn give_back_inode(&self) {
        self.inodes.give_back(1);
    }

    pub(super) fn statfs(&self) -> StatFs {
        let free = self.pages.free();
        StatFs {
            blocks: self.pages.limit,
            bfree: free,
            bavail: free,
            files: self.inodes.limit,
            ffree: self.inodes.free(),
            bsize: PAGE as u32,
            frsize: PAGE as u32,
            namelen: NAME_MAX as u32,
        }
    }
}

fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let bytes = (info.totalram as u64).checked_mul(u64::from(info.mem_unit.max(1)));
    bytes.filter(|&bytes| bytes > 0).unwrap_or(FALLBACK_MEMORY_BYTES)
}
