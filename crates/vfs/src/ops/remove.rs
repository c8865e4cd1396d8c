//! Names that go: unlink, rmdir.

use vfscale_sync::rcu;

use crate::clock::{self, Now};
use crate::dcache::parallel::Asked;
use crate::dcache::{self, Key};
use crate::dentry::DentryRef;
use crate::{Context, Errno, FileSystem, FileType, Place, Result, Vfs, inode_table, name};

/// Which kind of name is to go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Remove {
    File,
    Directory,
}

impl<F: FileSystem> Vfs<F> {
    /// Removes a name that is not a directory's. The object lives on as long as it is open or has other names.
    ///
    /// # Errors
    /// `ENOENT`; `EISDIR` for a directory; what the backend answers.
    pub fn unlink(&self, cx: &Context, dir: &DentryRef, name: &[u8]) -> Result<()> {
        name::check_new(name, Errno::EISDIR)?;
        self.remove(cx, dir, name, Remove::File)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`; `ENOTDIR` for anything else; `ENOTEMPTY`; `EINVAL` for `.`; what the backend answers.
    pub fn rmdir(&self, cx: &Context, dir: &DentryRef, name: &[u8]) -> Result<()> {
        let dot = if name == b".." { Errno::ENOTEMPTY } else { Errno::EINVAL };
        name::check_new(name, dot)?;
        self.remove(cx, dir, name, Remove::Directory)
    }

    fn remove(&self, cx: &Context, dir: &DentryRef, name: &[u8], what: Remove) -> Result<()> {
        // With no lock held first: a directory that moved on the host finds its place here.
        self.lookup(cx, dir, name)?;
        let dir_inode = self.dir_inode(dir)?;
        let dir_node = self.node(&dir_inode)?;
        let exclusive = dir_inode.0.dir_lock().write();
        let dentry = self.lookup_locked(cx, dir, &dir_node, name)?;
        let inode = dentry.inode().ok_or(Errno::ENOENT)?;
        let is_dir = inode.kind() == FileType::Directory;
        let node = self.node(&inode)?;
        let at = Place { dir: &*dir_node, name };
        let answer = match what {
            Remove::File if is_dir => Err(Errno::EISDIR),
            Remove::Directory if !is_dir => Err(Errno::ENOTDIR),
            Remove::File => self.fs.unlink(cx, at, &node),
            Remove::Directory => {
                // Parent before child: nobody makes a name in it while it goes.
                let _victim = inode.0.dir_lock().write();
                self.fs.rmdir(cx, at, &node).inspect(|()| inode.0.mark_removed())
            }
        };
        match answer {
            Ok(()) => {
                inode.0.lost_a_name();
                dir_inode.0.forget_attr();
                drop(inode);
                dcache::delete(&dentry, clock::until(self.options().negative_ttl));
            }
            Err(error) if error.changed_nothing() => {}
            // Gone on the host already, or gone for all we know: the next look asks.
            Err(_) => dcache::unhash(&dentry),
        }
        drop(exclusive);
        answer
    }

    /// The dentry of a name that exists. The caller holds the directory lock exclusively.
    ///
    /// # Errors
    /// `ENOENT`; `ESTALE` if it is a directory that is cached at another place; what the backend answers.
    pub(crate) fn lookup_locked(
        &self,
        cx: &Context,
        dir: &DentryRef,
        dir_node: &F::Node,
        name: &[u8],
    ) -> Result<DentryRef> {
        let cached = dcache::get(Key::new(self.superblock(), dir.id(), name), &rcu::pin());
        if let Some(dentry) = cached.as_ref().filter(|dentry| dentry.0.is_valid(&Now::default())) {
            return if dentry.inode().is_some() { Ok(dentry.clone()) } else { Err(Errno::ENOENT) };
        }
        self.superblock().bump(crate::superblock::Count::LookupBackend);
        let asked = self.ask(cx, dir_node, name);
        if let (Ok(asked), Some(dentry)) = (&asked, &cached)
            && dentry.inode().is_some_and(|inode| asked.is(&inode))
        {
            dentry.0.set_valid_until(clock::until(self.options().entry_ttl));
            if let Some(inode) = dentry.inode() {
                self.found_again(&inode, &asked.node);
            }
            return Ok(dentry.clone());
        }
        if let Some(wrong) = cached {
            dcache::unhash(&wrong);
        }
        let Asked { key, attr, node } = asked?;
        let until = clock::until(self.options().attr_ttl);
        let (inode, again) = inode_table::get_or_create(self.sb, key, &attr, node, until)?;
        let until = clock::until(self.options().entry_ttl);
        let dentry = dcache::add(self.sb, dir, name, inode.clone(), until)?;
        if let Some(again) = again {
            self.found_again(&inode, &again);
        }
        Ok(dentry)
    }
}
