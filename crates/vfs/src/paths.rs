//! The operations on paths, for use in process: from a directory, with the root of the mount as `/`.
//!
//! They decide who may ([`permission`](crate::permission)). [`Vfs`] has them from the root and with permission bits as they are;
//! [`Cwd`](crate::Cwd) from a working directory and under a mask.

use std::ops::ControlFlow;

use crate::dentry::DentryRef;
use crate::file::OpenFile;
use crate::walk::{Access, MAX_LINKS, WalkFlags, Walked};
use crate::{
    Attr, Context, DirEntry, Errno, FileSystem, FileType, OpenFlags, RenameFlags, Result, SetAttr,
    Vfs, dcache,
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

impl Listed {
    /// What is listed of an entry; nothing of `.` and `..`.
    pub(crate) fn of(entry: DirEntry<'_>) -> Option<Listed> {
        let is_dot = matches!(entry.name, b"." | b"..");
        let listed = || Listed { name: entry.name.to_vec(), kind: entry.kind, ino: entry.ino };
        (!is_dot).then(listed)
    }
}

/// Whose operations on paths these are, and where relative ones begin.
pub(crate) struct At<'a, F: FileSystem> {
    pub(crate) vfs: &'a Vfs<F>,
    pub(crate) cx: &'a Context,
    pub(crate) base: &'a DentryRef,
}

/// A file that was opened, with the directory that it is.
pub(crate) struct OpenedAt {
    pub(crate) file: OpenFile,
    pub(crate) dir: Option<DentryRef>,
}

impl<F: FileSystem> At<'_, F> {
    pub(crate) fn walk(&self, path: &[u8], flags: WalkFlags) -> Result<Walked> {
        self.vfs.walk(self.cx, self.base, path, flags)
    }

    fn walk_parent<'p>(&self, path: &'p [u8]) -> Result<(DentryRef, &'p [u8], bool)> {
        self.vfs.walk_parent(self.cx, self.base, path)
    }

    pub(crate) fn open(&self, path: &[u8], flags: OpenFlags, perm: u32) -> Result<OpenedAt> {
        if flags.contains(OpenFlags::CREATE | OpenFlags::DIRECTORY) {
            return Err(Errno::EINVAL);
        }
        let (mut base, mut path) = (self.base.clone(), path.to_vec());
        for _ in 0..=MAX_LINKS {
            match (At { base: &base, ..*self }).open_once(&path, flags, perm) {
                Ok(opened) => return Ok(opened),
                Err(Stop::Error(error)) => return Err(error),
                Err(Stop::Link(dir, target)) => (base, path) = (dir, target),
            }
        }
        Err(Errno::ELOOP)
    }

    fn open_once(&self, path: &[u8], flags: OpenFlags, perm: u32) -> Result<OpenedAt, Stop> {
        let At { vfs, cx, .. } = *self;
        let nofollow = flags.intersects(OpenFlags::NOFOLLOW | OpenFlags::EXCLUSIVE);
        let walk = if nofollow { WalkFlags::NOFOLLOW } else { WalkFlags::empty() };
        let create = flags.contains(OpenFlags::CREATE);
        match self.walk(path, walk) {
            Ok(_) if create && flags.contains(OpenFlags::EXCLUSIVE) => Err(Errno::EEXIST)?,
            Ok(walked) if create && walked.inode.kind() == FileType::Directory => {
                Err(Errno::EISDIR)?
            }
            Ok(Walked { dentry, inode }) => {
                vfs.check_open(cx, &inode, flags)?;
                let file = vfs.open(cx, &inode, flags)?;
                let dir = (inode.kind() == FileType::Directory).then_some(dentry);
                return Ok(OpenedAt { file, dir });
            }
            Err(Errno::ENOENT) if create => {}
            Err(error) => Err(error)?,
        }
        let (dir, name, slash) = self.walk_parent(path)?;
        if slash {
            Err(Errno::EISDIR)?;
        }
        if !nofollow && let Some(target) = self.dangling(&dir, name)? {
            // A link that leads nowhere: what it names is made.
            return Err(Stop::Link(dir, target));
        }
        vfs.check_change(cx, &dir, None)?;
        let (_, file) = vfs.create(cx, &dir, name, perm, flags)?;
        Ok(OpenedAt { file, dir: None })
    }

    /// The target of `name` if that is a symbolic link.
    fn dangling(&self, dir: &DentryRef, name: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.vfs.lookup(self.cx, dir, name) {
            Ok(found) if found.inode.kind() == FileType::Symlink => {
                self.vfs.readlink(&found.inode).map(Some)
            }
            Ok(_) | Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The place of a name that is to be made: what exists is told before who may.
    fn place_for_new<'p>(
        &self,
        path: &'p [u8],
        slash_is: Option<Errno>,
    ) -> Result<(DentryRef, &'p [u8])> {
        let (dir, name, slash) = self.walk_parent(path)?;
        match self.vfs.lookup(self.cx, &dir, name) {
            Ok(_) => return Err(Errno::EEXIST),
            Err(Errno::ENOENT) => {}
            Err(error) => return Err(error),
        }
        if let Some(error) = slash_is.filter(|_| slash) {
            return Err(error);
        }
        self.vfs.check_change(self.cx, &dir, None)?;
        Ok((dir, name))
    }

    pub(crate) fn mkdir(&self, path: &[u8], perm: u32) -> Result<()> {
        let (dir, name) = self.place_for_new(path, None)?;
        self.vfs.mkdir(self.cx, &dir, name, perm).map(drop)
    }

    pub(crate) fn mknod(&self, path: &[u8], mode: u32, rdev: u64) -> Result<()> {
        let (dir, name) = self.place_for_new(path, Some(Errno::ENOENT))?;
        let kind = FileType::from_mode(mode);
        let is_device = matches!(kind, Some(FileType::CharDevice | FileType::BlockDevice));
        if is_device && self.cx.uid != 0 {
            return Err(Errno::EPERM);
        }
        self.vfs.mknod(self.cx, &dir, name, mode, rdev).map(drop)
    }

    pub(crate) fn symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        let (dir, name) = self.place_for_new(path, Some(Errno::ENOENT))?;
        self.vfs.symlink(self.cx, &dir, name, target).map(drop)
    }

    pub(crate) fn link(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let inode = self.walk(from, WalkFlags::NOFOLLOW)?.inode;
        let (dir, name) = self.place_for_new(to, Some(Errno::ENOENT))?;
        self.vfs.link(self.cx, &inode, &dir, name).map(drop)
    }

    pub(crate) fn unlink(&self, path: &[u8]) -> Result<()> {
        let (dir, name, slash) = self.walk_parent(path)?;
        if slash {
            let found = self.vfs.lookup(self.cx, &dir, name)?;
            let is_dir = found.inode.kind() == FileType::Directory;
            return Err(if is_dir { Errno::EISDIR } else { Errno::ENOTDIR });
        }
        self.vfs.check_change(self.cx, &dir, Some(name))?;
        self.vfs.unlink(self.cx, &dir, name)
    }

    pub(crate) fn rmdir(&self, path: &[u8]) -> Result<()> {
        let (dir, name, _) = self.walk_parent(path)?;
        self.vfs.check_change(self.cx, &dir, Some(name))?;
        self.vfs.rmdir(self.cx, &dir, name)
    }

    pub(crate) fn rename(&self, from: &[u8], to: &[u8], flags: RenameFlags) -> Result<()> {
        let At { vfs, cx, .. } = *self;
        let (from_dir, from_name, from_slash) = self.walk_parent(from)?;
        let (to_dir, to_name, to_slash) = self.walk_parent(to)?;
        if from_slash || to_slash {
            let moved = vfs.lookup(cx, &from_dir, from_name)?;
            if moved.inode.kind() != FileType::Directory {
                return Err(Errno::ENOTDIR);
            }
        }
        vfs.check_move(cx, &from_dir, from_name, &to_dir)?;
        if flags.contains(RenameFlags::EXCHANGE) {
            vfs.check_move(cx, &to_dir, to_name, &from_dir)?;
        } else {
            vfs.check_change(cx, &to_dir, Some(to_name))?;
        }
        vfs.rename(cx, &from_dir, from_name, &to_dir, to_name, flags)
    }

    pub(crate) fn readlink(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.vfs.readlink(&self.walk(path, WalkFlags::NOFOLLOW)?.inode)
    }

    pub(crate) fn setattr(&self, path: &[u8], walk: WalkFlags, change: &SetAttr) -> Result<Attr> {
        let inode = self.walk(path, walk)?.inode;
        if change.size.is_some() && inode.kind() == FileType::Directory {
            return Err(Errno::EISDIR);
        }
        self.vfs.check_setattr(self.cx, &inode, change)?;
        self.vfs.setattr(self.cx, &inode, None, change)
    }

    pub(crate) fn readdir(&self, path: &[u8]) -> Result<Vec<Listed>> {
        let inode = self.walk(path, WalkFlags::DIRECTORY)?.inode;
        self.vfs.check_access(self.cx, &inode, Access::READ)?;
        let dir = self.vfs.open(self.cx, &inode, OpenFlags::READ | OpenFlags::DIRECTORY)?;
        let mut all = Vec::new();
        let mut cookie = 0;
        loop {
            let before = cookie;
            self.vfs.readdir(&dir, cookie, &mut |entry| {
                cookie = entry.next;
                all.extend(Listed::of(entry));
                ControlFlow::Continue(())
            })?;
            if cookie == before {
                return Ok(all);
            }
        }
    }
}

impl<F: FileSystem> Vfs<F> {
    /// Runs operations on paths from the root.
    fn at_root<T>(&self, cx: &Context, run: impl FnOnce(At<'_, F>) -> Result<T>) -> Result<T> {
        run(At { vfs: self, cx, base: self.root_ref() })
    }

    /// Opens what `path` leads to; with [`OpenFlags::CREATE`] a file that is not there is made with the permission bits `perm`.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk), [`open`](Vfs::open) and [`create`](Vfs::create); `EACCES` for who may not; `EPERM` for
    /// [`OpenFlags::NOATIME`] by another than the owner; `EINVAL` for a directory that is to be created.
    pub fn open_path(
        &self,
        cx: &Context,
        path: &[u8],
        flags: OpenFlags,
        perm: u32,
    ) -> Result<OpenFile> {
        self.at_root(cx, |at| at.open(path, flags, perm)).map(|opened| opened.file)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk) and [`mkdir`](Vfs::mkdir); `EACCES` for who may not.
    pub fn mkdir_path(&self, cx: &Context, path: &[u8], perm: u32) -> Result<()> {
        self.at_root(cx, |at| at.mkdir(path, perm))
    }

    /// Makes a symbolic link to `target`.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk) and [`symlink`](Vfs::symlink); `EACCES` for who may not.
    pub fn symlink_path(&self, cx: &Context, target: &[u8], path: &[u8]) -> Result<()> {
        self.at_root(cx, |at| at.symlink(target, path))
    }

    /// Gives what `from` names one more name, `to`.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk) and [`link`](Vfs::link); `EACCES` for who may not.
    pub fn link_path(&self, cx: &Context, from: &[u8], to: &[u8]) -> Result<()> {
        self.at_root(cx, |at| at.link(from, to))
    }

    /// Removes a name that is not a directory's.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk) and [`unlink`](Vfs::unlink); `EACCES` or `EPERM` for who may not.
    pub fn unlink_path(&self, cx: &Context, path: &[u8]) -> Result<()> {
        self.at_root(cx, |at| at.unlink(path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk) and [`rmdir`](Vfs::rmdir); `EACCES` or `EPERM` for who may not.
    pub fn rmdir_path(&self, cx: &Context, path: &[u8]) -> Result<()> {
        self.at_root(cx, |at| at.rmdir(path))
    }

    /// Moves a name.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk) and [`rename`](Vfs::rename); `ENOTDIR` for a slash behind what is no directory; `EACCES` or `EPERM` for who may
    /// not, which for a directory that gets another parent includes who may not write it.
    pub fn rename_path(
        &self,
        cx: &Context,
        from: &[u8],
        to: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        self.at_root(cx, |at| at.rename(from, to, flags))
    }

    /// The target of the symbolic link `path`.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk); `EINVAL` if it is no link.
    pub fn readlink_path(&self, cx: &Context, path: &[u8]) -> Result<Vec<u8>> {
        self.at_root(cx, |at| at.readlink(path))
    }

    /// Changes attributes of what `path` leads to, links followed.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk) and [`setattr`](Vfs::setattr); `EPERM` or `EACCES` for who may not; `EISDIR` for the size of a directory.
    pub fn setattr_path(&self, cx: &Context, path: &[u8], change: &SetAttr) -> Result<()> {
        self.at_root(cx, |at| at.setattr(path, WalkFlags::empty(), change)).map(drop)
    }

    /// All entries of the directory `path` but `.` and `..`, in the backend's order.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk); `EACCES` for who may not read it; what the backend answers.
    pub fn readdir_all(&self, cx: &Context, path: &[u8]) -> Result<Vec<Listed>> {
        self.at_root(cx, |at| at.readdir(path))
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

/// Why opening a path stopped.
enum Stop {
    Error(Errno),
    /// Go on from this directory with this path.
    Link(DentryRef, Vec<u8>),
}

impl From<Errno> for Stop {
    fn from(error: Errno) -> Stop {
        Stop::Error(error)
    }
}
