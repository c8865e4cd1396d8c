//! Names that move.
//!
//! # Locks
//! Within one directory its lock, exclusively. Across two the superblock's rename mutex first, so that the tree of directories holds
//! still, then both directory locks, the higher directory first ([`DirLocks`]); then a replaced directory's, which is below both
//! rules. No two threads can then wait for each other: whoever holds two directory locks without the mutex holds a parent and a child
//! of it, in that order.

use vfscale_sync::{QRwLockWriteGuard, rcu};

use crate::dcache::{self, Key};
use crate::dentry::DentryRef;
use crate::inode::InodeRef;
use crate::superblock::{Count, SuperBlock};
use crate::{Context, Errno, FileSystem, FileType, Place, RenameFlags, Result, Vfs, clock, name};

/// A directory with its inode.
struct Dir<'a> {
    dentry: &'a DentryRef,
    inode: InodeRef,
}

/// Both directories of a rename, held exclusively in the one order that cannot deadlock.
struct DirLocks<'a> {
    _dirs: (QRwLockWriteGuard<'a, ()>, Option<QRwLockWriteGuard<'a, ()>>),
    _moves: Option<QRwLockWriteGuard<'a, ()>>,
}

impl<'a> DirLocks<'a> {
    fn take(sb: &'a SuperBlock, a: &'a Dir<'_>, b: &'a Dir<'_>) -> DirLocks<'a> {
        if a.inode == b.inode {
            return DirLocks { _dirs: (a.inode.0.dir_lock().write(), None), _moves: None };
        }
        let moves = sb.rename_mutex();
        let b_first = dcache::is_below(a.dentry, b.dentry)
            || (!dcache::is_below(b.dentry, a.dentry) && b.dentry.id_raw() < a.dentry.id_raw());
        let (first, second) = if b_first { (b, a) } else { (a, b) };
        let first = first.inode.0.dir_lock().write();
        let second = second.inode.0.dir_lock().write();
        DirLocks { _dirs: (first, Some(second)), _moves: Some(moves) }
    }
}

impl<F: FileSystem> Vfs<F> {
    /// Moves a name, in place of another if there is one.
    ///
    /// # Errors
    /// `EINVAL` for flags that exclude each other and for a directory into itself; `EEXIST` with [`RenameFlags::NOREPLACE`]; `ENOENT`, with
    /// [`RenameFlags::EXCHANGE`] also for a missing partner; `ENOTEMPTY`, `ENOTDIR`, `EISDIR`, `EBUSY` (`.` and `..`); what the backend answers.
    pub fn rename(
        &self,
        cx: &Context,
        from_dir: &DentryRef,
        from_name: &[u8],
        to_dir: &DentryRef,
        to_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if exchange && flags.intersects(RenameFlags::NOREPLACE | RenameFlags::WHITEOUT) {
            return Err(Errno::EINVAL);
        }
        name::check_new(from_name, Errno::EBUSY)?;
        name::check_new(to_name, Errno::EBUSY)?;
        // With no lock held first: directories that moved on the host find their places.
        self.lookup(cx, from_dir, from_name)?;
        match self.lookup(cx, to_dir, to_name) {
            Ok(_) | Err(Errno::ENOENT) => {}
            Err(error) => return Err(error),
        }
        let from = Dir { dentry: from_dir, inode: self.dir_inode(from_dir)? };
        let to = Dir { dentry: to_dir, inode: self.dir_inode(to_dir)? };
        let (from_node, to_node) = (self.node(&from.inode)?, self.node(&to.inode)?);
        let _locks = DirLocks::take(self.superblock(), &from, &to);
        if to.inode.0.is_removed() {
            return Err(Errno::ENOENT);
        }

        let moved = self.lookup_locked(cx, from_dir, &from_node, from_name)?;
        let moved_inode = moved.inode().ok_or(Errno::ENOENT)?;
        let target = match self.lookup_locked(cx, to_dir, &to_node, to_name) {
            Ok(dentry) => dentry.inode().map(|inode| (dentry, inode)),
            Err(Errno::ENOENT) => None,
            Err(error) => return Err(error),
        };
        match &target {
            Some(_) if flags.contains(RenameFlags::NOREPLACE) => return Err(Errno::EEXIST),
            None if exchange => return Err(Errno::ENOENT),
            _ => {}
        }
        let is_dir = |inode: &InodeRef| inode.kind() == FileType::Directory;
        if is_dir(&moved_inode) && dcache::is_below(to_dir, &moved) {
            return Err(Errno::EINVAL);
        }
        let replaced_dir = target.as_ref().filter(|(_, inode)| is_dir(inode));
        if let Some((dentry, _)) = replaced_dir
            && dcache::is_below(from_dir, dentry)
        {
            return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
        }
        // Parent before child: nobody makes a name in a directory that is being replaced. The moved one itself is not.
        let victim = replaced_dir
            .filter(|(_, inode)| !exchange && *inode != moved_inode)
            .map(|(_, inode)| inode.0.dir_lock().write());

        let moved_node = self.node(&moved_inode)?;
        let target_node = target.as_ref().map(|(_, inode)| self.node(inode)).transpose()?;
        let answer = self.fs.rename(
            cx,
            Place { dir: &*from_node, name: from_name },
            Place { dir: &*to_node, name: to_name },
            flags,
            &moved_node,
            target_node.as_deref(),
        );
        if let Err(error) = answer {
            // What we believe of the two names may be what was wrong, or has become so.
            if !error.changed_nothing() || error == Errno::EEXIST {
                dcache::unhash(&moved);
                if let Some((dentry, _)) = &target {
                    dcache::unhash(dentry);
                }
                self.forget_absence(to_dir, to_name);
            }
            return Err(error);
        }
        self.superblock().bump(Count::Rename);
        from.inode.0.forget_attr();
        to.inode.0.forget_attr();
        moved_inode.0.forget_attr();
        match &target {
            // Two names of one inode: POSIX has nothing happen.
            Some((_, inode)) if *inode == moved_inode => return Ok(()),
            Some((dentry, inode)) if exchange => {
                inode.0.forget_attr();
                dcache::exchange(&moved, dentry);
                return Ok(());
            }
            Some((dentry, inode)) => {
                if victim.is_some() {
                    inode.0.mark_removed();
                }
                inode.0.lost_a_name();
                dcache::unhash(dentry);
            }
            None => self.forget_absence(to_dir, to_name),
        }
        drop(victim);
        dcache::rename(&moved, to_dir, to_name);
        moved.0.set_valid_until(clock::until(self.options().entry_ttl));
        Ok(())
    }

    /// Takes a negative dentry out of the cache. The caller holds the directory lock exclusively.
    fn forget_absence(&self, dir: &DentryRef, name: &[u8]) {
        let cached = dcache::get(Key::new(self.superblock(), dir.id(), name), &rcu::pin());
        if let Some(negative) = cached.filter(|dentry| dentry.inode().is_none()) {
            dcache::unhash(&negative);
        }
    }
}
