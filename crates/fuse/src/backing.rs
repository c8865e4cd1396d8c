//! Files that the kernel reads and writes itself.
//!
//! # Why
//! With FUSE passthrough (Linux 6.9) the reply to an opening names a backing file, and the kernel then reads, writes and maps that file
//! without asking: data never visits this process. A backend offers one by [`FileSystem::descriptor`](vfscale::FileSystem::descriptor).
//!
//! # One inode, one answer
//! A kernel refuses (`EIO`) an opening of an inode whose other openings go another way: by another backing file, or none. So the first
//! opening decides, and the rest follow it until the last is released. A kernel has let go of the backing file when it sends RELEASE;
//! one that comes after an opening that was already answered finds the count above zero.
//!
//! # Attributes
//! What the kernel writes itself, nobody tells the core. So while an inode is backed, an answer with its attributes asks the backend,
//! and the core's copy is dropped before the mark goes: whoever sees no mark sees no older copy.
//!
//! # Who may
//! Registering a file takes `CAP_SYS_ADMIN` in the initial user namespace, and a file system that is not stacked itself (overlayfs is).
//! Where it is refused the files are served as without.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use vfscale::InodeRef;

use crate::adapter::Device;

const SHARDS: usize = 64;

/// By slot and generation of the inode.
type Shard = HashMap<(u32, u32), Backed>;

#[derive(Debug)]
pub(crate) struct Backing {
    device: Device,
    shards: [Mutex<Shard>; SHARDS],
    /// Inodes with a backing file, so that a mount without them takes no lock.
    inodes: AtomicUsize,
    /// We have not the right.
    off: AtomicBool,
}

/// A regular file that is open.
#[derive(Debug)]
struct Backed {
    /// The backing file, by the kernel's number; `None`: all openings are served by us.
    id: Option<u32>,
    openings: u32,
}

impl Backing {
    /// Files are registered on this connection.
    pub(crate) fn new(device: Device) -> Backing {
        Backing {
            device,
            shards: std::array::from_fn(|_| Mutex::default()),
            inodes: AtomicUsize::new(0),
            off: AtomicBool::new(false),
        }
    }

    fn shard(&self, inode: &InodeRef) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[inode.slot() as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more opening of this regular file. Answers with the backing file to tell the kernel, if there is to be one;
    /// `with_descriptor` runs what it is given on a descriptor of the file, if the backend has one.
    pub(crate) fn open(
        &self,
        inode: &InodeRef,
        with_descriptor: impl FnOnce(&dyn Fn(BorrowedFd<'_>) -> Option<u32>) -> Option<u32>,
    ) -> Option<u32> {
        let mut shard = self.shard(inode);
        match shard.entry((inode.slot(), inode.generation())) {
            Entry::Occupied(mut open) => {
                open.get_mut().openings += 1;
                open.get().id
            }
            Entry::Vacant(free) => {
                // Relaxed: a hint. Whoever misses it tries once more in vain.
                let may = !self.off.load(Relaxed);
                let id = may.then(|| with_descriptor(&|file| self.register(file))).flatten();
                free.insert(Backed { id, openings: 1 });
                // Relaxed: under the shard's lock, and who must see it (a lookup behind a write through this opening) comes after
                // the reply that tells the kernel of it.
                self.inodes.fetch_add(usize::from(id.is_some()), Relaxed);
                id
            }
        }
    }

    fn register(&self, file: BorrowedFd<'_>) -> Option<u32> {
        let registered = self.device.register(file);
        if let Err(error) = registered {
            tracing::debug!(%error, "a file is not passed through");
            if error == Errno::PERM {
                self.off.store(true, Relaxed);
            }
        }
        registered.ok()
    }

    /// Inodes with a backing file.
    pub(crate) fn inodes(&self) -> u64 {
        self.inodes.load(Relaxed) as u64 // a statistic
    }

    /// Does the kernel write this inode itself?
    pub(crate) fn has(&self, inode: &InodeRef) -> bool {
        if self.inodes.load(Relaxed) == 0 {
            return false;
        }
        let shard = self.shard(inode);
        shard.get(&(inode.slot(), inode.generation())).is_some_and(|open| open.id.is_some())
    }

    /// One opening less; the last one lets go of the backing file, after `forget`.
    pub(crate) fn close(&self, inode: &InodeRef, forget: impl FnOnce()) {
        let mut shard = self.shard(inode);
        let Entry::Occupied(mut open) = shard.entry((inode.slot(), inode.generation())) else {
            return;
        };
        open.get_mut().openings -= 1;
        if open.get().openings > 0 {
            return;
        }
        if let Some(id) = open.get().id {
            forget();
            self.inodes.fetch_sub(1, Relaxed); // as in `open`
            // The connection may have ended, and its files with it.
            let _ = self.device.unregister(id);
        }
        open.remove();
    }
}
