//! One method per operation, in Rust's types, over any backend.
//!
//! Between the protocol (numbers, bytes) and the core (references): a [`FrontEnd`] turns node ids into inodes and file numbers
//! into open files, calls the core, and keeps count of what the client was told.
//!
//! # What the client is given
//! An operation that makes a node known answers with a [`Given`], and one that opens a file with a [`GivenFile`]. They are the
//! client's once the reply was delivered ([`Given::keep`]); dropped before that, since the reply was refused or the code
//! panicked on the way, they go back. So the counts stay exact without a line of clean-up at the callers.
//!
//! # Locks
//! None is held here or in the core when a reply is handed over: methods answer first, replies are written after.
//!
//! # Left to the kernel
//! - Permissions: the mount always has `default_permissions`; the kernel decides by mode, owner and group, so `access` is
//!   never asked.
//! - `flock` and POSIX locks: one mount is one kernel's; its own lock tables see all users of the mount and clean up after
//!   dead processes. Forwarding would buy locks shared with users of the backend beside the mount, and is not asked for.
//! - The umask, and the clearing of set-uid bits on write and chown (by an ordinary setattr). Truncation in `open` is the
//!   exception: see [`FrontEnd::open`].

mod attrs;
mod dirs;
mod io;
mod names;

pub use attrs::STATS_XATTR;
pub(crate) use io::WriteFrom;
pub(crate) use names::LookedUp;

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use vfscale::{Attr, FdTable, FileSystem, FileType, Found, InodeRef, OpenFile, Result, Vfs};

use crate::backing::Backing;
use crate::nodes::{Nodes, ROOT};
use crate::stats::{Counter, FuseStats, Report};

/// At most this many open files in one session.
const MAX_FILES: u32 = 1 << 20;

/// What a client learns about a node: its id, and how long it may believe the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The node id, for later requests.
    pub(crate) node: u64,
    /// Tells the inode from others that had its inode number.
    pub(crate) generation: u64,
    /// The attributes now.
    pub(crate) attr: Attr,
    /// How long the name may be taken to mean this node.
    pub(crate) entry_valid: Duration,
    /// How long the attributes may be taken to be these.
    pub(crate) attr_valid: Duration,
}

/// Serves one client from one [`Vfs`].
pub(crate) struct FrontEnd<F: FileSystem> {
    vfs: Arc<Vfs<F>>,
    nodes: Nodes,
    files: FdTable,
    report: Report,
    /// What it last made, and when.
    reported: Mutex<Option<(Instant, Vec<u8>)>>,
    requests: Counter,
    /// Files that the kernel reads and writes itself, if it may.
    backing: Option<Backing>,
}

impl<F: FileSystem> std::fmt::Debug for FrontEnd<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrontEnd").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl<F: FileSystem> FrontEnd<F> {
    /// A front end whose client knows the root alone. `report` makes the text of the attribute [`STATS_XATTR`].
    ///
    /// # Errors
    /// `ESTALE` if the root has gone.
    pub(crate) fn new(vfs: Arc<Vfs<F>>, report: Report) -> Result<FrontEnd<F>> {
        let nodes = Nodes::new(vfs.root())?;
        let files = FdTable::new(MAX_FILES);
        let (reported, requests) = (Mutex::default(), Counter::default());
        Ok(FrontEnd { vfs, nodes, files, report, reported, requests, backing: None })
    }

    /// From now on the kernel reads and writes files itself, where the backend has a descriptor.
    pub(crate) fn back(&mut self, backing: Backing) {
        self.backing = Some(backing);
    }

    /// What the client holds now.
    #[must_use]
    pub(crate) fn stats(&self) -> FuseStats {
        let (nodes, lookup_counts) = self.nodes.totals();
        FuseStats {
            nodes,
            lookup_counts,
            open_files: self.files.len() as u64,
            requests: self.requests.sum(),
            refused_forgets: self.nodes.refused(),
            passed_through: self.backing.as_ref().map_or(0, Backing::inodes),
        }
    }

    /// Takes everything back from the client: it is gone.
    pub(crate) fn end(&self) {
        self.nodes.forget_all();
        let open = (0..MAX_FILES).take_while(|_| !self.files.is_empty());
        // Not every number is a file's.
        open.for_each(|file| self.close(file).unwrap_or_default());
    }

    /// The client takes back `count` lookups of `node`. More than it did changes nothing.
    pub(crate) fn forget(&self, node: u64, count: u64) {
        self.nodes.forget(node, count);
    }

    pub(crate) fn count_request(&self) {
        self.requests.up();
    }

    fn attr_valid(&self) -> Duration {
        self.vfs.options().attr_ttl
    }

    /// Counts a lookup of `found`; the client's once it has the reply.
    fn give(&self, found: &Found) -> Given<'_, F> {
        let node = self.nodes.remember(found);
        let entry = Entry {
            node,
            // The protocol has no generation for the root: the kernel made that node itself.
            generation: if node == ROOT { 0 } else { u64::from(found.inode.generation()) },
            attr: self.attr_now(found),
            entry_valid: found.valid,
            attr_valid: found.attr_valid,
        };
        Given { front: self, entry: Some(entry) }
    }

    /// Puts an open file into the table; the client's once it has the reply.
    fn give_file(&self, file: OpenFile) -> Result<GivenFile<'_, F>> {
        let number = self.files.install(file.clone())?;
        Ok(GivenFile { front: self, file: Some(number), backing: self.open_backing(&file) })
    }

    /// The backing file of a new opening, if the kernel is to have one.
    fn open_backing(&self, file: &OpenFile) -> Option<u32> {
        let backing = self.backing.as_ref()?;
        let inode = file.inode();
        let register = |register: &dyn Fn(BorrowedFd<'_>) -> Option<u32>| {
            self.vfs.with_descriptor(file, register).flatten()
        };
        (inode.kind() == FileType::Regular).then(|| backing.open(&inode, register)).flatten()
    }

    /// The client has closed this file, or never had it.
    fn close(&self, file: u32) -> Result<()> {
        let file = self.files.close(file)?;
        if let Some(backing) = &self.backing {
            let inode = file.inode();
            backing.close(&inode, || self.vfs.forget_attr(&inode));
        }
        Ok(())
    }

    /// What was found may have been written without the core's knowing.
    fn attr_now(&self, found: &Found) -> Attr {
        let backed = self.backing.as_ref().is_some_and(|backing| backing.has(&found.inode));
        let asked = backed.then(|| self.vfs.getattr(&found.inode, None).ok()).flatten();
        asked.unwrap_or(found.attr)
    }

    fn inode(&self, node: u64) -> Result<InodeRef> {
        self.nodes.get(node)
    }

    fn file(&self, file: u64) -> Result<OpenFile> {
        let number = u32::try_from(file).ok();
        number.and_then(|number| self.files.fget(number)).ok_or(vfscale::Errno::EBADF)
    }
}

/// A lookup that the client has not heard of yet.
#[must_use = "the lookup is taken back when this is dropped"]
#[derive(Debug)]
pub(crate) struct Given<'a, F: FileSystem> {
    front: &'a FrontEnd<F>,
    /// `None` once kept.
    entry: Option<Entry>,
}

impl<F: FileSystem> Given<'_, F> {
    /// What to tell the client.
    ///
    /// # Panics
    /// Never: only [`keep`](Self::keep), which ends this, takes it away.
    #[must_use]
    pub(crate) fn entry(&self) -> &Entry {
        self.entry.as_ref().expect("not kept yet")
    }

    /// The client has it now.
    pub(crate) fn keep(mut self) {
        self.entry = None;
    }
}

impl<F: FileSystem> Drop for Given<'_, F> {
    fn drop(&mut self) {
        if let Some(entry) = &self.entry {
            self.front.nodes.forget(entry.node, 1);
        }
    }
}

/// An open file that the client has not heard of yet.
#[must_use = "the file is closed when this is dropped"]
#[derive(Debug)]
pub(crate) struct GivenFile<'a, F: FileSystem> {
    front: &'a FrontEnd<F>,
    /// `None` once kept.
    file: Option<u32>,
    backing: Option<u32>,
}

impl<F: FileSystem> GivenFile<'_, F> {
    /// The number to tell the client.
    ///
    /// # Panics
    /// Never: only [`keep`](Self::keep), which ends this, takes it away.
    #[must_use]
    pub(crate) fn number(&self) -> u32 {
        self.file.expect("not kept yet")
    }

    /// The number of the file that the kernel is to read and write itself.
    pub(crate) fn backing(&self) -> Option<u32> {
        self.backing
    }

    /// The client has it now, and will release it.
    pub(crate) fn keep(mut self) {
        self.file = None;
    }
}

impl<F: FileSystem> Drop for GivenFile<'_, F> {
    fn drop(&mut self) {
        if let Some(file) = self.file {
            // Closed only here: the client never had it.
            self.front.close(file).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfscale::{Context, Options};
    use vfscale_backends::MemFs;

    #[test]
    fn the_root_is_told_without_a_generation() {
        let vfs = Arc::new(Vfs::new(MemFs::new(), Options::default()).unwrap());
        let front = FrontEnd::new(Arc::clone(&vfs), Box::new(|_| String::new())).unwrap();
        let told = |found: &Found| {
            let given = front.give(found);
            (given.entry().node, given.entry().generation)
        };
        let mut found = vfs.mkdir(&Context::root(), &vfs.root(), b"d", 0o755).unwrap();
        let (node, generation) = told(&found);
        assert!(node > ROOT && generation > 0);
        found.dentry = vfs.root();
        found.inode = found.dentry.inode().unwrap();
        assert_eq!(told(&found), (ROOT, 0));
    }
}
