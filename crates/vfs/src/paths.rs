//! The operations on paths, for use in process: from the root of the mount, as if it were `/`.

use std::ops::ControlFlow;

use crate::dentry::DentryRef;
use crate::file::OpenFile;
use crate::walk::WalkFlags;
use crate::{
    Context, Errno, FileSystem, FileType, OpenFlags, RenameFlags, Result, SetAttr, Vfs, dcache,
};

/// One entry of a directory, listed in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name.
    pub name: Vec<u8>,
    /// The type, if the listing tells.
    pub kind: Option<FileType>,
    /// The inode number.
    pub ino: u64,
}

impl<F: FileSystem> Vfs<F> {
    /// Opens what `path` leads to; with [`OpenFlags::CREATE`] a file that is not there is made with the permission bits `perm`.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk), [`open`](Vfs::open) and [`create`](Vfs::create).
    pub fn open_path(
        &self,
        cx: &Context,
        path: &[u8],
        flags: OpenFlags,
        perm: u32,
    ) -> Result<OpenFile> {
        let walk = if flags.contains(OpenFlags::NOFOLLOW) {
            WalkFlags::NOFOLLOW
        } else {
            WalkFlags::empty()
        };
        let exclusive = flags.contains(OpenFlags::CREATE | OpenFlags::EXCLUSIVE);
        if !exclusive {
            match self.walk(cx, &self.root(), path, walk) {
                Ok(walked) => return self.open(cx, &walked.inode, flags),
                Err(Errno::ENOENT) if flags.contains(OpenFlags::CREATE) => {}
                Err(error) => return Err(error),
            }
        }
        let (dir, name, slash) = self.walk_parent(cx, path)?;
        if slash {
            return Err(Errno::EISDIR);
        }
        self.create(cx, &dir, name, perm, flags).map(|(_, file)| file)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk) and [`mkdir`](Vfs::mkdir).
    pub fn mkdir_path(&self, cx: &Context, path: &[u8], perm: u32) -> Result<()> {
        let (dir, name, _) = self.walk_parent(cx, path).map_err(exists)?;
        self.mkdir(cx, &dir, name, perm).map(drop)
    }

    /// Makes a symbolic link to `target`.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk) and [`symlink`](Vfs::symlink).
    pub fn symlink_path(&self, cx: &Context, target: &[u8], path: &[u8]) -> Result<()> {
        let (dir, name, slash) = self.walk_parent(cx, path).map_err(exists)?;
        if slash {
            return Err(Errno::ENOENT);
        }
        self.symlink(cx, &dir, name, target).map(drop)
    }

    /// Gives what `from` names one more name, `to`.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk) and [`link`](Vfs::link).
    pub fn link_path(&self, cx: &Context, from: &[u8], to: &[u8]) -> Result<()> {
        let inode = self.walk(cx, &self.root(), from, WalkFlags::NOFOLLOW)?.inode;
        let (dir, name, slash) = self.walk_parent(cx, to).map_err(exists)?;
        if slash {
            return Err(Errno::ENOENT);
        }
        self.link(cx, &inode, &dir, name).map(drop)
    }

    /// Removes a name that is not a directory's.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk) and [`unlink`](Vfs::unlink).
    pub fn unlink_path(&self, cx: &Context, path: &[u8]) -> Result<()> {
        let (dir, name, slash) = self.walk_parent(cx, path)?;
        if slash {
            let walked = self.walk(cx, &dir, name, WalkFlags::NOFOLLOW)?;
            let is_dir = walked.inode.kind() == FileType::Directory;
            return Err(if is_dir { Errno::EISDIR } else { Errno::ENOTDIR });
        }
        self.unlink(cx, &dir, name)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk) and [`rmdir`](Vfs::rmdir).
    pub fn rmdir_path(&self, cx: &Context, path: &[u8]) -> Result<()> {
        let (dir, name, _) = self.walk_parent(cx, path)?;
        self.rmdir(cx, &dir, name)
    }

    /// Moves a name.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk) and [`rename`](Vfs::rename); `ENOTDIR` for a slash behind what is no directory.
    pub fn rename_path(
        &self,
        cx: &Context,
        from: &[u8],
        to: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        let (from_dir, from_name, from_slash) = self.walk_parent(cx, from)?;
        let (to_dir, to_name, to_slash) = self.walk_parent(cx, to)?;
        if from_slash || to_slash {
            let moved = self.walk(cx, &from_dir, from_name, WalkFlags::NOFOLLOW)?;
            if moved.inode.kind() != FileType::Directory {
                return Err(Errno::ENOTDIR);
            }
        }
        self.rename(cx, &from_dir, from_name, &to_dir, to_name, flags)
    }

    /// The target of the symbolic link `path`.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk); `EINVAL` if it is no link.
    pub fn readlink_path(&self, cx: &Context, path: &[u8]) -> Result<Vec<u8>> {
        let inode = self.walk(cx, &self.root(), path, WalkFlags::NOFOLLOW)?.inode;
        self.readlink(&inode)
    }

    /// Changes attributes of what `path` leads to, links followed.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk) and [`setattr`](Vfs::setattr).
    pub fn setattr_path(&self, cx: &Context, path: &[u8], change: &SetAttr) -> Result<()> {
        let inode = self.walk(cx, &self.root(), path, WalkFlags::empty())?.inode;
        self.setattr(cx, &inode, None, change).map(drop)
    }

    /// All entries of the directory `path` but `.` and `..`, in the backend's order.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk); what the backend answers.
    pub fn readdir_all(&self, cx: &Context, path: &[u8]) -> Result<Vec<Listed>> {
        let inode = self.walk(cx, &self.root(), path, WalkFlags::DIRECTORY)?.inode;
        let dir = self.open(cx, &inode, OpenFlags::READ | OpenFlags::DIRECTORY)?;
        let mut all = Vec::new();
        let mut cookie = 0;
        loop {
            let before = cookie;
            self.readdir(&dir, cookie, &mut |entry| {
                cookie = entry.next;
                if !matches!(entry.name, b"." | b"..") {
                    all.push(Listed {
                        name: entry.name.to_vec(),
                        kind: entry.kind,
                        ino: entry.ino,
                    });
                }
                ControlFlow::Continue(())
            })?;
            if cookie == before {
                return Ok(all);
            }
        }
    }

    /// The path of `dentry` from the root, as it is at one moment (`d_path`).
    pub fn path_of(&self, dentry: &DentryRef) -> Vec<u8> {
        let climb = || {
            let mut parts = Vec::new();
            let mut at = Some(dentry.clone());
            while let Some(here) = at {
                at = here.parent();
                if at.is_some() {
                    parts.push(here.name());
                }
            }
            let mut path = Vec::new();
            for part in parts.iter().rev() {
                path.push(b'/');
                path.extend_from_slice(part);
            }
            if path.is_empty() { b"/".to_vec() } else { path }
        };
        // One try without a lock; then with moves held off, so that a storm of them cannot keep us here (R3.4).
        let start = dcache::RENAME_LOCK.read_begin();
        let path = climb();
        if !dcache::RENAME_LOCK.read_retry(start) {
            return path;
        }
        let _moves_wait = dcache::RENAME_LOCK.read_exclusive();
        climb()
    }
}

/// A path that ends in a dot or is the root names something that exists.
fn exists(error: Errno) -> Errno {
    if error == Errno::EBUSY { Errno::EEXIST } else { error }
}
