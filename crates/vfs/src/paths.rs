//! The operations on paths, for use in process: from the root of the mount, as if it were `/`.
//!
//! They decide who may, by mode, owner and group, as a kernel does for its callers. The operations on a component do not: a front end's kernel has
//! decided already.

use std::ops::ControlFlow;

use crate::dentry::DentryRef;
use crate::file::OpenFile;
use crate::inode::InodeRef;
use crate::walk::{Access, MAX_LINKS, WalkFlags};
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
    /// Those of [`walk`](Vfs::walk), [`open`](Vfs::open) and [`create`](Vfs::create); `EACCES` for who may not.
    pub fn open_path(
        &self,
        cx: &Context,
        path: &[u8],
        flags: OpenFlags,
        perm: u32,
    ) -> Result<OpenFile> {
        let mut path = path.to_vec();
        for _ in 0..=MAX_LINKS {
            match self.open_once(cx, &path, flags, perm) {
                Ok(file) => return Ok(file),
                Err(Stop::Error(error)) => return Err(error),
                Err(Stop::Link(target)) => path = target,
            }
        }
        Err(Errno::ELOOP)
    }

    fn open_once(
        &self,
        cx: &Context,
        path: &[u8],
        flags: OpenFlags,
        perm: u32,
    ) -> Result<OpenFile, Stop> {
        let nofollow = flags.intersects(OpenFlags::NOFOLLOW | OpenFlags::EXCLUSIVE);
        let walk = if nofollow { WalkFlags::NOFOLLOW } else { WalkFlags::empty() };
        let create = flags.contains(OpenFlags::CREATE);
        match self.walk(cx, &self.root(), path, walk) {
            Ok(_) if create && flags.contains(OpenFlags::EXCLUSIVE) => Err(Errno::EEXIST)?,
            Ok(walked) if create && walked.inode.kind() == FileType::Directory => {
                Err(Errno::EISDIR)?
            }
            Ok(walked) => {
                self.check_open(cx, &walked.inode, flags)?;
                return Ok(self.open(cx, &walked.inode, flags)?);
            }
            Err(Errno::ENOENT) if create => {}
            Err(error) => Err(error)?,
        }
        let (dir, name, slash) = self.walk_parent(cx, path)?;
        if slash {
            Err(Errno::EISDIR)?;
        }
        if !nofollow && let Some(target) = self.dangling(cx, &dir, name)? {
            // A link that leads nowhere: what it names is made.
            return Err(
                Stop::Link([&self.path_of(&dir)[..], b"/", &target].concat()).absolute(&target)
            );
        }
        self.check_change(cx, &dir, None)?;
        let (_, file) = self.create(cx, &dir, name, perm, flags)?;
        Ok(file)
    }

    /// The target of `name` if that is a symbolic link.
    fn dangling(&self, cx: &Context, dir: &DentryRef, name: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.lookup(cx, dir, name) {
            Ok(found) if found.inode.kind() == FileType::Symlink => {
                self.readlink(&found.inode).map(Some)
            }
            Ok(_) | Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn check_open(&self, cx: &Context, inode: &InodeRef, flags: OpenFlags) -> Result<()> {
        let mut access = None;
        for (flag, right) in [
            (OpenFlags::READ, Access::READ),
            (OpenFlags::WRITE | OpenFlags::TRUNCATE, Access::WRITE),
        ] {
            if flags.intersects(flag) {
                access = Some(access.map_or(right, |all: Access| all.and(right)));
            }
        }
        access.map_or(Ok(()), |access| self.check_access(cx, inode, access))
    }

    /// The place of a name that is to be made: what exists is told before who may.
    fn place_for_new(
        &self,
        cx: &Context,
        path: &[u8],
        slash_is: Option<Errno>,
    ) -> Result<(DentryRef, Vec<u8>)> {
        let (dir, name, slash) = self.walk_parent(cx, path)?;
        match self.lookup(cx, &dir, name) {
            Ok(_) => return Err(Errno::EEXIST),
            Err(Errno::ENOENT) => {}
            Err(error) => return Err(error),
        }
        if let Some(error) = slash_is.filter(|_| slash) {
            return Err(error);
        }
        self.check_change(cx, &dir, None)?;
        Ok((dir, name.to_vec()))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk) and [`mkdir`](Vfs::mkdir); `EACCES` for who may not.
    pub fn mkdir_path(&self, cx: &Context, path: &[u8], perm: u32) -> Result<()> {
        let (dir, name) = self.place_for_new(cx, path, None)?;
        self.mkdir(cx, &dir, &name, perm).map(drop)
    }

    /// Makes a symbolic link to `target`.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk) and [`symlink`](Vfs::symlink); `EACCES` for who may not.
    pub fn symlink_path(&self, cx: &Context, target: &[u8], path: &[u8]) -> Result<()> {
        let (dir, name) = self.place_for_new(cx, path, Some(Errno::ENOENT))?;
        self.symlink(cx, &dir, &name, target).map(drop)
    }

    /// Gives what `from` names one more name, `to`.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk) and [`link`](Vfs::link); `EACCES` for who may not.
    pub fn link_path(&self, cx: &Context, from: &[u8], to: &[u8]) -> Result<()> {
        let inode = self.walk(cx, &self.root(), from, WalkFlags::NOFOLLOW)?.inode;
        let (dir, name) = self.place_for_new(cx, to, Some(Errno::ENOENT))?;
        self.link(cx, &inode, &dir, &name).map(drop)
    }

    /// Removes a name that is not a directory's.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk) and [`unlink`](Vfs::unlink); `EACCES` or `EPERM` for who may not.
    pub fn unlink_path(&self, cx: &Context, path: &[u8]) -> Result<()> {
        let (dir, name, slash) = self.walk_parent(cx, path)?;
        if slash {
            let found = self.lookup(cx, &dir, name)?;
            let is_dir = found.inode.kind() == FileType::Directory;
            return Err(if is_dir { Errno::EISDIR } else { Errno::ENOTDIR });
        }
        self.check_change(cx, &dir, Some(name))?;
        self.unlink(cx, &dir, name)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk) and [`rmdir`](Vfs::rmdir); `EACCES` or `EPERM` for who may not.
    pub fn rmdir_path(&self, cx: &Context, path: &[u8]) -> Result<()> {
        let (dir, name, _) = self.walk_parent(cx, path)?;
        self.check_change(cx, &dir, Some(name))?;
        self.rmdir(cx, &dir, name)
    }

    /// Moves a name.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk) and [`rename`](Vfs::rename); `ENOTDIR` for a slash behind what is no directory; `EACCES` or `EPERM` for who may
    /// not.
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
            let moved = self.lookup(cx, &from_dir, from_name)?;
            if moved.inode.kind() != FileType::Directory {
                return Err(Errno::ENOTDIR);
            }
        }
        self.check_change(cx, &from_dir, Some(from_name))?;
        self.check_change(cx, &to_dir, Some(to_name))?;
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

/// Why opening a path stopped.
enum Stop {
    Error(Errno),
    /// Go on with this path.
    Link(Vec<u8>),
}

impl Stop {
    /// A target that begins with a slash stands alone.
    fn absolute(self, target: &[u8]) -> Stop {
        if target.first() == Some(&b'/') { Stop::Link(target.to_vec()) } else { self }
    }
}

impl From<Errno> for Stop {
    fn from(error: Errno) -> Stop {
        Stop::Error(error)
    }
}
