//! Node ids: the numbers by which the client names inodes.
//!
//! An inode number is what people see in `stat`; a node id is what the kernel sends in requests. A node id is the inode's slot in
//! the pool, and above it the slot's generation, at least 1: no two inodes ever have one id, and none has the root's, which the
//! protocol fixes at 1. So an id is checked by two loads, and an old one names nobody: it answers `ESTALE`.
//!
//! While the client knows an id (its lookup count is above 0, [`crate::node_table`]) the inode is held: by a reference on its
//! dentry if it is a directory, so that names can be looked up in it, on the inode itself otherwise, since two hard links are one
//! node. The root has no count; it is held as long as the session.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use vfscale::{DentryRef, Errno, FileType, Found, InodeRef, Result};

use crate::node_table::{Lowered, NodeTable, Parked};

/// The root's node id, fixed by the protocol.
pub(crate) const ROOT: u64 = 1;

/// Every inode that one client knows.
#[derive(Debug)]
pub(crate) struct Nodes {
    root: DentryRef,
    root_inode: InodeRef,
    table: NodeTable,
    refused: AtomicU64,
}

impl Nodes {
    /// # Errors
    /// `ESTALE` for a root without an inode.
    pub(crate) fn new(root: DentryRef) -> Result<Nodes> {
        let root_inode = root.inode().ok_or(Errno::ESTALE)?;
        Ok(Nodes { root, root_inode, table: NodeTable::new(), refused: AtomicU64::new(0) })
    }

    /// Gives the client a count of what was found, and answers with its node id.
    pub(crate) fn remember(&self, found: &Found) -> u64 {
        let inode = &found.inode;
        if *inode == self.root_inode {
            return ROOT;
        }
        let (slot, generation) = (inode.slot(), inode.generation());
        let unneeded = self.table.raise(slot, generation, || {
            if inode.kind() == FileType::Directory {
                Parked::Directory(found.dentry.clone().into_raw())
            } else {
                Parked::Other(inode.clone().into_raw())
            }
        });
        unneeded.into_iter().for_each(give_back);
        (u64::from(generation) << 32) | u64::from(slot)
    }

    /// Takes counts back from the client. More than it has changes nothing but a line in the log: for the first time, the second,
    /// the fourth and so on, since a client could fill the log.
    pub(crate) fn forget(&self, node: u64, count: u64) {
        if node == ROOT {
            return; // held anyway
        }
        let (slot, generation) = split(node);
        match self.table.lower(slot, generation, count) {
            Lowered::Kept => {}
            Lowered::Last(parked) => give_back(parked),
            Lowered::Refused => {
                let refused = self.refused.fetch_add(1, Relaxed) + 1; // a statistic
                if refused.is_power_of_two() {
                    tracing::warn!(node, count, refused, "refused a FORGET above the lookup count");
                }
            }
        }
    }

    /// Takes every count back: the session is over, and a kernel sends no FORGET for what it knew at an unmount.
    pub(crate) fn forget_all(&self) {
        self.table.clear(give_back);
    }

    /// The inode of this node id.
    ///
    /// # Errors
    /// `ESTALE` for one that the client does not know, or not any more.
    pub(crate) fn get(&self, node: u64) -> Result<InodeRef> {
        if node == ROOT {
            return Ok(self.root_inode.clone());
        }
        let (slot, generation) = split(node);
        // The count says whether the id is the client's to use, the pool whether the inode lives.
        let known = self.table.knows(slot, generation);
        known.then(|| InodeRef::find(slot, generation)).flatten().ok_or(Errno::ESTALE)
    }

    /// The directory of this node id.
    ///
    /// # Errors
    /// `ESTALE` as for [`get`](Self::get); `ENOTDIR` for anything but a directory.
    pub(crate) fn dir(&self, node: u64) -> Result<DentryRef> {
        if node == ROOT {
            return Ok(self.root.clone());
        }
        let inode = self.get(node)?;
        if inode.kind() != FileType::Directory {
            return Err(Errno::ENOTDIR);
        }
        inode.directory().ok_or(Errno::ESTALE)
    }

    /// Nodes the client knows, the root among them, and the sum of their counts.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let (nodes, counts) = self.table.totals();
        (nodes + 1, counts)
    }

    /// FORGETs that were refused so far.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.forget_all();
    }
}

fn split(node: u64) -> (u32, u32) {
    (node as u32, (node >> 32) as u32)
}

/// Drops a reference that the table held.
fn give_back(parked: Parked) {
    match parked {
        Parked::Directory(raw) => drop(DentryRef::from_raw(raw)),
        Parked::Other(raw) => drop(InodeRef::from_raw(raw)),
    }
}
