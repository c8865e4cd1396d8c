//! The calls of a process, in process: a working directory, credentials, a mask, and files with a position.
//!
//! # Nouns
//! A [`Cwd`] is where relative paths begin and on whose behalf. A [`Stream`] is an [`OpenFile`] with the place where the next read or write
//! begins. The calls that take a descriptor of a directory (`openat` and its like) are those of a `Cwd` that begins there: [`Cwd::at`].
//!
//! # Who decides
//! The core, by mode, owner, groups and the sticky bit of what the backend tells; `umask` is taken off here. Owners and set-gid of what is new are
//! the backend's.

use std::io::SeekFrom;
use std::ops::ControlFlow;
use std::sync::Arc;

use vfscale_sync::QRwLock;

use crate::dentry::DentryRef;
use crate::file::OpenFile;
use crate::paths::{At, Listed, OpenedAt};
use crate::walk::{Access, WalkFlags};
use crate::{
    AccessMode, Attr, Context, Errno, FileSystem, FileType, OpenFlags, RenameFlags, Result,
    SetAttr, SetTime, StatFs, Vfs,
};

/// A working directory of a mount, with credentials and a mask.
///
/// A clone is another one: what is changed in it is not in the first, as after a `fork`. It holds its directory, which a mount that ends reports
/// as busy.
///
/// ```
/// # use std::sync::Arc;
/// # use vfscale::*;
/// # fn demo<F: FileSystem>(fs: F) -> Result<()> {
/// let vfs = Arc::new(Vfs::new(fs, Options::exclusive())?);
/// let mut cwd = Cwd::new(vfs, Context::root());
/// cwd.set_umask(0o027);
/// cwd.mkdir(b"logs", 0o777)?;
/// cwd.chdir(b"logs")?;
/// let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
/// let log = cwd.open(b"today", flags, 0o666)?;
/// log.write(b"up")?;
/// assert_eq!(cwd.stat(b"/logs/today")?.perm, 0o640);
/// assert_eq!(cwd.getcwd()?, b"/logs");
/// # Ok(())
/// # }
/// ```
pub struct Cwd<F: FileSystem> {
    dir: DentryRef,
    cx: Context,
    umask: u32,
    /// Goes last: the directory is one of its names.
    vfs: Arc<Vfs<F>>,
}

/// Permission bits that a mask takes away.
const MASKED: u32 = 0o777;

impl<F: FileSystem> Cwd<F> {
    /// The root of a mount, with a mask of 022.
    pub fn new(vfs: Arc<Vfs<F>>, cx: Context) -> Cwd<F> {
        Cwd { dir: vfs.root(), cx, umask: 0o022, vfs }
    }

    /// The mount.
    pub fn vfs(&self) -> &Arc<Vfs<F>> {
        &self.vfs
    }

    /// On whose behalf.
    pub fn context(&self) -> &Context {
        &self.cx
    }

    /// On whose behalf from now on; files that are open stay as they are.
    pub fn set_context(&mut self, cx: Context) {
        self.cx = cx;
    }

    /// Sets which permission bits new files and directories do not get, and answers with those until now (`umask`). Bits above 0777 are
    /// left out.
    pub fn set_umask(&mut self, umask: u32) -> u32 {
        std::mem::replace(&mut self.umask, umask & MASKED)
    }

    fn here(&self) -> At<'_, F> {
        At { vfs: &self.vfs, cx: &self.cx, base: &self.dir }
    }

    /// The same with another directory: the `*at` calls are this one's.
    ///
    /// # Errors
    /// `ENOTDIR` if `dir` is none; `EXDEV` if it is another mount's; `EACCES` for who may not search it.
    pub fn at(&self, dir: &Stream<F>) -> Result<Cwd<F>> {
        let mut cwd = self.clone();
        cwd.fchdir(dir)?;
        Ok(cwd)
    }

    /// Makes `path` the working directory.
    ///
    /// # Errors
    /// Those of [`Vfs::walk`]; `ENOTDIR`; `EACCES` for who may not search it.
    pub fn chdir(&mut self, path: &[u8]) -> Result<()> {
        let to = self.here().walk(path, WalkFlags::DIRECTORY)?;
        self.vfs.check_access(&self.cx, &to.inode, Access::SEARCH)?;
        self.dir = to.dentry;
        Ok(())
    }

    /// Makes an open directory the working directory.
    ///
    /// # Errors
    /// As [`at`](Cwd::at).
    pub fn fchdir(&mut self, dir: &Stream<F>) -> Result<()> {
        let to = dir.dir.as_ref().ok_or(Errno::ENOTDIR)?;
        if !Arc::ptr_eq(&self.vfs, &dir.vfs) {
            return Err(Errno::EXDEV);
        }
        self.vfs.check_access(&self.cx, &dir.file.inode(), Access::SEARCH)?;
        self.dir = to.clone();
        Ok(())
    }

    /// The path of the working directory from the root of the mount.
    ///
    /// # Errors
    /// `ENOENT` if it was removed; `ENAMETOOLONG` if it is longer than a path may be.
    pub fn getcwd(&self) -> Result<Vec<u8>> {
        let is_removed = self.dir.inode().is_none_or(|inode| inode.0.is_removed());
        if is_removed {
            return Err(Errno::ENOENT);
        }
        let path = self.vfs.path_of(&self.dir);
        if path.len() > crate::name::PATH_MAX { Err(Errno::ENAMETOOLONG) } else { Ok(path) }
    }

    /// Opens what `path` leads to; with [`OpenFlags::CREATE`] a file that is not there is made with the permission bits `perm`, less the
    /// mask.
    ///
    /// # Errors
    /// Those of [`Vfs::open_path`].
    pub fn open(&self, path: &[u8], flags: OpenFlags, perm: u32) -> Result<Stream<F>> {
        let OpenedAt { file, dir } = self.here().open(path, flags, self.masked(perm))?;
        let (cx, vfs) = (self.cx.clone(), self.vfs.clone());
        Ok(Stream { file, dir, position: QRwLock::new(0), cx, vfs })
    }

    fn masked(&self, perm: u32) -> u32 {
        perm & 0o7777 & !self.umask
    }

    /// The attributes of what `path` leads to, links followed.
    ///
    /// # Errors
    /// Those of [`Vfs::walk`].
    pub fn stat(&self, path: &[u8]) -> Result<Attr> {
        self.vfs.stat_from(&self.cx, &self.dir, path, WalkFlags::empty())
    }

    /// The attributes of what `path` names, a link as the last component not followed.
    ///
    /// # Errors
    /// Those of [`Vfs::walk`].
    pub fn lstat(&self, path: &[u8]) -> Result<Attr> {
        self.vfs.stat_from(&self.cx, &self.dir, path, WalkFlags::NOFOLLOW)
    }

    /// May this be done with what `path` leads to?
    ///
    /// # Errors
    /// `EACCES` if not; those of [`Vfs::walk`].
    pub fn access(&self, path: &[u8], mode: AccessMode) -> Result<()> {
        let inode = self.here().walk(path, WalkFlags::empty())?.inode;
        self.vfs.check_mode(&self.cx, &inode, mode)
    }

    /// Makes a directory with the permission bits `perm`, less the mask.
    ///
    /// # Errors
    /// Those of [`Vfs::mkdir_path`].
    pub fn mkdir(&self, path: &[u8], perm: u32) -> Result<()> {
        // Set-uid and set-gid are not asked for with a new directory: it has the latter from its parent.
        self.here().mkdir(path, self.masked(perm) & 0o1777)
    }

    /// Makes a file that is not a directory or link; `mode` holds its type, too.
    ///
    /// # Errors
    /// Those of [`Vfs::walk`] and [`Vfs::mknod`]; `EPERM` for a device by another than the super-user; `EACCES` for who may not.
    pub fn mknod(&self, path: &[u8], mode: u32, rdev: u64) -> Result<()> {
        self.here().mknod(path, mode & !self.umask, rdev)
    }

    /// Makes a symbolic link to `target`.
    ///
    /// # Errors
    /// Those of [`Vfs::symlink_path`].
    pub fn symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        self.here().symlink(target, path)
    }

    /// Gives what `from` names one more name, `to`. A link as the last component of `from` gets it itself.
    ///
    /// # Errors
    /// Those of [`Vfs::link_path`].
    pub fn link(&self, from: &[u8], to: &[u8]) -> Result<()> {
        self.here().link(from, to)
    }

    /// Removes a name that is not a directory's.
    ///
    /// # Errors
    /// Those of [`Vfs::unlink_path`].
    pub fn unlink(&self, path: &[u8]) -> Result<()> {
        self.here().unlink(path)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of [`Vfs::rmdir_path`].
    pub fn rmdir(&self, path: &[u8]) -> Result<()> {
        self.here().rmdir(path)
    }

    /// Moves a name.
    ///
    /// # Errors
    /// Those of [`Vfs::rename_path`].
    pub fn rename(&self, from: &[u8], to: &[u8], flags: RenameFlags) -> Result<()> {
        self.here().rename(from, to, flags)
    }

    /// The target of the symbolic link `path`.
    ///
    /// # Errors
    /// Those of [`Vfs::readlink_path`].
    pub fn readlink(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.here().readlink(path)
    }

    /// All entries of a directory but `.` and `..`, in the backend's order.
    ///
    /// # Errors
    /// Those of [`Vfs::readdir_all`].
    pub fn readdir(&self, path: &[u8]) -> Result<Vec<Listed>> {
        self.here().readdir(path)
    }

    /// Changes the permission bits.
    ///
    /// # Errors
    /// Those of [`Vfs::setattr_path`].
    pub fn chmod(&self, path: &[u8], perm: u32) -> Result<()> {
        let change = SetAttr { perm: Some(perm & 0o7777), ..SetAttr::default() };
        self.here().setattr(path, WalkFlags::empty(), &change).map(drop)
    }

    /// Changes owner and group, those that are given.
    ///
    /// # Errors
    /// Those of [`Vfs::setattr_path`].
    pub fn chown(&self, path: &[u8], uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let change = SetAttr { uid, gid, ..SetAttr::default() };
        self.here().setattr(path, WalkFlags::empty(), &change).map(drop)
    }

    /// The same, for a link itself.
    ///
    /// # Errors
    /// Those of [`Vfs::setattr_path`].
    pub fn lchown(&self, path: &[u8], uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let change = SetAttr { uid, gid, ..SetAttr::default() };
        self.here().setattr(path, WalkFlags::NOFOLLOW, &change).map(drop)
    }

    /// Cuts a file to `size` bytes, or fills it up with zeros.
    ///
    /// # Errors
    /// Those of [`Vfs::setattr_path`].
    pub fn truncate(&self, path: &[u8], size: u64) -> Result<()> {
        let change = SetAttr { size: Some(size), ..SetAttr::default() };
        self.here().setattr(path, WalkFlags::empty(), &change).map(drop)
    }

    /// Sets the times that are given.
    ///
    /// # Errors
    /// Those of [`Vfs::setattr_path`].
    pub fn utimes(
        &self,
        path: &[u8],
        atime: Option<SetTime>,
        mtime: Option<SetTime>,
    ) -> Result<()> {
        let change = SetAttr { atime, mtime, ..SetAttr::default() };
        self.here().setattr(path, WalkFlags::empty(), &change).map(drop)
    }

    /// Size and use of the file system.
    ///
    /// # Errors
    /// What the backend answers.
    pub fn statfs(&self) -> Result<StatFs> {
        self.vfs.statfs()
    }
}

impl<F: FileSystem> Clone for Cwd<F> {
    fn clone(&self) -> Self {
        Cwd { dir: self.dir.clone(), cx: self.cx.clone(), umask: self.umask, vfs: self.vfs.clone() }
    }
}

impl<F: FileSystem> std::fmt::Debug for Cwd<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cwd")
            .field("dir", &self.dir)
            .field("cx", &self.cx)
            .field("umask", &format_args!("{:03o}", self.umask))
            .finish()
    }
}

/// An open file with a position, as a descriptor has it. All calls may be made from several threads; reads and writes at the position take
/// turns, those at an offset do not.
pub struct Stream<F: FileSystem> {
    file: OpenFile,
    dir: Option<DentryRef>,
    /// Of a file the byte, of a directory the cookie, where the next call begins. Held during the call.
    position: QRwLock<u64>,
    /// Who opened it.
    cx: Context,
    vfs: Arc<Vfs<F>>,
}

impl<F: FileSystem> Stream<F> {
    /// The opening itself.
    pub fn file(&self) -> &OpenFile {
        &self.file
    }

    fn refuse_dir(&self) -> Result<()> {
        if self.dir.is_some() { Err(Errno::EISDIR) } else { Ok(()) }
    }

    /// Reads at the position and moves it on; answers with the number of bytes, 0 at the end.
    ///
    /// # Errors
    /// `EBADF` if it is not open for reading; `EISDIR`; what the backend answers.
    pub fn read(&self, buf: &mut [u8]) -> Result<usize> {
        let mut position = self.position.write();
        let count = self.pread(*position, buf)?;
        *position += count as u64;
        Ok(count)
    }

    /// Reads at `offset`.
    ///
    /// # Errors
    /// As [`read`](Stream::read).
    pub fn pread(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.refuse_dir()?;
        self.vfs.read(&self.file, offset, buf)
    }

    /// Writes at the position, with [`OpenFlags::APPEND`] at the end, and moves it behind what was written.
    ///
    /// # Errors
    /// `EBADF` if it is not open for writing; what the backend answers.
    pub fn write(&self, data: &[u8]) -> Result<usize> {
        let mut position = self.position.write();
        let count = self.vfs.write(&self.file, *position, data)?;
        *position = if self.file.flags().contains(OpenFlags::APPEND) {
            self.stat()?.size
        } else {
            *position + count as u64
        };
        Ok(count)
    }

    /// Writes at `offset`, with [`OpenFlags::APPEND`] at the end all the same.
    ///
    /// # Errors
    /// As [`write`](Stream::write).
    pub fn pwrite(&self, offset: u64, data: &[u8]) -> Result<usize> {
        self.vfs.write(&self.file, offset, data)
    }

    /// Moves the position and answers with it. Behind the end is a place, too; of a directory only the start, and places that this call
    /// answered with.
    ///
    /// # Errors
    /// `EINVAL` for a place before the start, and for a directory's end; `EOVERFLOW` for one beyond 2^63.
    pub fn seek(&self, to: SeekFrom) -> Result<u64> {
        let mut position = self.position.write();
        let (base, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::Current(by) => (*position, by),
            SeekFrom::End(_) if self.dir.is_some() => return Err(Errno::EINVAL),
            SeekFrom::End(by) => (self.stat()?.size, by),
        };
        if self.dir.is_some() && by != 0 {
            return Err(Errno::EINVAL);
        }
        let at = if by < 0 {
            base.checked_sub(by.unsigned_abs()).ok_or(Errno::EINVAL)?
        } else {
            base.checked_add(by.unsigned_abs()).ok_or(Errno::EOVERFLOW)?
        };
        // A cookie may have any bit.
        if self.dir.is_none() && i64::try_from(at).is_err() {
            return Err(Errno::EOVERFLOW);
        }
        *position = at;
        Ok(at)
    }

    /// The next entries of a directory, at most `most`, without `.` and `..`; none at the end.
    ///
    /// # Errors
    /// `ENOTDIR` if it is none; `EBADF` if it is not open for reading; what the backend answers.
    pub fn readdir(&self, most: usize) -> Result<Vec<Listed>> {
        if self.dir.is_some() && !self.file.flags().contains(OpenFlags::READ) {
            return Err(Errno::EBADF);
        }
        let mut position = self.position.write();
        let mut listed = Vec::new();
        while listed.len() < most {
            let before = *position;
            self.vfs.readdir(&self.file, before, &mut |entry| {
                *position = entry.next;
                listed.extend(Listed::of(entry));
                if listed.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            if *position == before {
                break;
            }
        }
        Ok(listed)
    }

    /// The attributes now.
    ///
    /// # Errors
    /// What the backend answers.
    pub fn stat(&self) -> Result<Attr> {
        self.vfs.getattr(&self.file.inode(), Some(&self.file))
    }

    /// Cuts the file to `size` bytes, or fills it up with zeros.
    ///
    /// # Errors
    /// `EINVAL` if it is not open for writing; what the backend answers.
    pub fn truncate(&self, size: u64) -> Result<()> {
        if !self.file.flags().contains(OpenFlags::WRITE) {
            return Err(Errno::EINVAL);
        }
        let change = SetAttr { size: Some(size), ..SetAttr::default() };
        // Allowed by opening: not asked again.
        let inode = self.file.inode();
        self.vfs.setattr(&self.cx, &inode, Some(&self.file), &change).map(drop)
    }

    /// Makes it durable; only its data if `data_only`.
    ///
    /// # Errors
    /// Those of writing back.
    pub fn sync(&self, data_only: bool) -> Result<()> {
        self.vfs.fsync(&self.file, data_only)
    }

    /// The type of what is open.
    pub fn kind(&self) -> FileType {
        self.file.inode().kind()
    }
}

impl<F: FileSystem> std::fmt::Debug for Stream<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("file", &self.file).field("dir", &self.dir).finish()
    }
}
