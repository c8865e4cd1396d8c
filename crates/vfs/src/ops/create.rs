//! New names: files, directories, links.

use std::sync::Arc;

use crate::clock::{self, Now};
use crate::dcache::{self, Key};
use crate::dentry::DentryRef;
use crate::file::OpenFile;
use crate::inode::{InodeRef, Node};
use crate::{
    Attr, Context, Entry, Errno, FileSystem, FileType, Found, OpenFlags, Place, Result, Vfs,
    inode_table, name,
};

/// What the backend made, with whatever else came of it.
struct Made<T> {
    inode: InodeRef,
    attr: Attr,
    /// A node for an inode that has one.
    again: Option<Node>,
    extra: T,
}

impl<F: FileSystem> Vfs<F> {
    /// Creates a file that is not a directory or link. `mode` holds type and permission bits, the caller's umask already applied.
    ///
    /// # Errors
    /// `EEXIST` if the name exists; `EINVAL` for a type that is made otherwise; what the backend answers.
    pub fn mknod(
        &self,
        cx: &Context,
        dir: &DentryRef,
        name: &[u8],
        mode: u32,
        rdev: u64,
    ) -> Result<Found> {
        // No type means a regular file.
        let mode = if mode >> 12 == 0 { mode | FileType::Regular.mode_bits() } else { mode };
        match FileType::from_mode(mode) {
            Some(FileType::Directory | FileType::Symlink) | None => return Err(Errno::EINVAL),
            Some(_) => {}
        }
        self.make(dir, name, |at| self.fs.mknod(cx, at, mode, rdev))
    }

    /// Creates a directory. `perm` holds permission bits, the caller's umask already applied.
    ///
    /// # Errors
    /// `EEXIST` if the name exists; what the backend answers.
    pub fn mkdir(&self, cx: &Context, dir: &DentryRef, name: &[u8], perm: u32) -> Result<Found> {
        self.make(dir, name, |at| self.fs.mkdir(cx, at, perm))
    }

    /// Creates a symbolic link to `target`.
    ///
    /// # Errors
    /// `EEXIST` if the name exists; `ENOENT` for an empty target; what the backend answers.
    pub fn symlink(
        &self,
        cx: &Context,
        dir: &DentryRef,
        name: &[u8],
        target: &[u8],
    ) -> Result<Found> {
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        if target.len() > name::PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        self.make(dir, name, |at| self.fs.symlink(cx, at, target))
    }

    /// Gives `inode` one more name.
    ///
    /// # Errors
    /// `EEXIST` if the name exists; `EPERM` for a directory; `EXDEV` for another mount's inode; what the backend answers.
    pub fn link(
        &self,
        cx: &Context,
        inode: &InodeRef,
        dir: &DentryRef,
        name: &[u8],
    ) -> Result<Found> {
        if inode.kind() == FileType::Directory {
            return Err(Errno::EPERM);
        }
        let node = self.node(inode)?;
        self.with_new_name(dir, name, |at| {
            let sample = inode.0.attr_sample();
            let attr = self.fs.link(cx, &node, at)?;
            inode.0.store_changed(&attr, clock::until(self.options().attr_ttl), sample);
            Ok(Made { inode: inode.clone(), attr, again: None, extra: () })
        })
        .map(|(found, ())| found)
    }

    /// Opens a file, and creates it if it is not there: `O_CREAT`. `flags` may hold [`OpenFlags::EXCLUSIVE`] to refuse an existing one.
    ///
    /// # Errors
    /// `EEXIST` as asked for; those of [`open`](Vfs::open); what the backend answers.
    pub fn create(
        &self,
        cx: &Context,
        dir: &DentryRef,
        name: &[u8],
        perm: u32,
        flags: OpenFlags,
    ) -> Result<(Found, OpenFile)> {
        name::check_new(name, Errno::EISDIR)?;
        let exclusive = flags.contains(OpenFlags::EXCLUSIVE);
        // Created and removed again and again by others, it may be neither there nor away: a few tries, then say so.
        for _ in 0..16 {
            if !exclusive {
                let existing = match self.lookup(cx, dir, name) {
                    Ok(found) => Some(self.open(cx, &found.inode, flags).map(|file| (found, file))),
                    Err(Errno::ENOENT) => None,
                    Err(error) => return Err(error),
                };
                match existing {
                    Some(Err(Errno::ESTALE | Errno::ENOENT)) => continue,
                    Some(result) => return result,
                    None => {}
                }
            }
            let made = self.with_new_name(dir, name, |at| {
                let (entry, handle) = self.fs.create(cx, at, perm, flags)?;
                self.adopt(entry, handle)
            });
            match made {
                Err(Errno::EEXIST) if !exclusive => {}
                Err(error) => return Err(error),
                Ok((found, handle)) => {
                    let file = self.opened(found.inode.clone(), flags, handle)?;
                    return Ok((found, file));
                }
            }
        }
        Err(Errno::ESTALE)
    }

    fn make(
        &self,
        dir: &DentryRef,
        name: &[u8],
        ask: impl FnOnce(Place<'_, F::Node>) -> Result<Entry<F::Node>>,
    ) -> Result<Found> {
        self.with_new_name(dir, name, |at| self.adopt(ask(at)?, ())).map(|(found, ())| found)
    }

    /// The inode of what the backend just made.
    fn adopt<T>(&self, Entry { key, attr, node }: Entry<F::Node>, extra: T) -> Result<Made<T>> {
        let until = clock::until(self.options().attr_ttl);
        let (inode, again) =
            inode_table::get_or_create(self.sb, key, &attr, Arc::new(node), until)?;
        Ok(Made { inode, attr, again, extra })
    }

    /// Lets the backend make a name, with the directory to ourselves; and then, and only then, puts it into the cache.
    fn with_new_name<T>(
        &self,
        dir: &DentryRef,
        name: &[u8],
        ask: impl FnOnce(Place<'_, F::Node>) -> Result<Made<T>>,
    ) -> Result<(Found, T)> {
        name::check_new(name, Errno::EEXIST)?;
        let dir_inode = self.dir_inode(dir)?;
        let dir_node = self.node(&dir_inode)?;
        let exclusive = dir_inode.0.dir_lock().write();
        if dir_inode.0.is_removed() {
            return Err(Errno::ENOENT);
        }
        let made = ask(Place { dir: &dir_node, name });
        let cached =
            dcache::get(Key::new(self.superblock(), dir.id(), name), &vfscale_sync::rcu::pin());
        let Made { inode, attr, again, extra } = match made {
            Ok(made) => made,
            Err(error) => {
                // Made on the host while we believed it absent, or made for all we know: the next look asks.
                if (error == Errno::EEXIST || !error.changed_nothing())
                    && let Some(wrong) = cached.filter(|dentry| dentry.inode().is_none())
                {
                    dcache::unhash(&wrong);
                }
                return Err(error);
            }
        };
        dir_inode.0.forget_attr();
        let until = clock::until(self.options().entry_ttl);
        let added = match cached {
            Some(negative) if negative.inode().is_none() => {
                dcache::instantiate(&negative, inode.clone(), until).map(|()| negative)
            }
            stale => {
                if let Some(stale) = stale {
                    dcache::unhash(&stale);
                }
                dcache::add(self.sb, dir, name, inode.clone(), until)
            }
        };
        if let (Ok(_), Some(again)) = (&added, &again) {
            self.found_again(&inode, again);
        }
        // Only now: a handle that is not wanted closes with no lock held.
        drop(exclusive);
        let dentry = added?;
        let now = Now::default();
        let valid = now.remaining(until);
        let attr_valid = now.remaining(clock::until(self.options().attr_ttl));
        Ok((Found { dentry, inode, attr, valid, attr_valid }, extra))
    }
}
