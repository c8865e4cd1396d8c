//! All inodes of a mount, one after another.

use std::ops::ControlFlow;

use vfscale_sync::{Held, rcu};

use crate::inode::InodeRef;
use crate::{FileSystem, Vfs};

impl<F: FileSystem> Vfs<F> {
    /// Runs `f` on every inode that is known now, until it breaks: to write back, to look for what has changed below, to count.
    ///
    /// No lock is held while `f` runs; it may use the mount as it likes, and take its time. Inodes that are known from beginning to
    /// end come once each; those that come or go meanwhile may be missed.
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # use vfscale::*;
    /// # fn demo<F: FileSystem>(vfs: &Vfs<F>) {
    /// // The source was changed behind our back: believe no attributes.
    /// vfs.for_each_inode(|inode| {
    ///     vfs.forget_attr(&inode);
    ///     ControlFlow::Continue(())
    /// });
    /// # }
    /// ```
    pub fn for_each_inode(&self, mut f: impl FnMut(InodeRef) -> ControlFlow<()>) {
        let mut cursor = self.superblock().inodes.cursor();
        while let Some(id) = cursor.next() {
            // With the list locked: what is on it is this inode, and no later one of its slot. A dying one is passed over.
            let Some(held) = Held::try_get(id, &rcu::pin()) else { continue };
            // The reference goes with the lock free: if it is the last, it takes the inode off the list.
            if cursor.unlocked(|| f(InodeRef(held))).is_break() {
                return;
            }
        }
    }
}
