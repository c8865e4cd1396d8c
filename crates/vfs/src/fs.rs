//! The trait a backend implements.
//!
//! A backend knows objects ([`FileSystem::Node`]) and openings of them ([`FileSystem::Handle`]); names, identity, caching, locks
//! and lifetime are the core's. Every method but [`root`](FileSystem::root), [`lookup`](FileSystem::lookup) and
//! [`getattr`](FileSystem::getattr) has a default, which answers `ENOSYS`, `EROFS` or what a file system without the feature says.
//!
//! # What the core promises
//! - It holds no lock of its own during a call but directory locks: that of the directory, shared for `lookup` and exclusive for `mknod`, `mkdir`,
//!   `symlink`, `link`, `create`, `unlink`, `rmdir` and `rename` (and for a `lookup` that one of these needs); that of a directory which is to
//!   go; and, where directories change their parents, the mount's rename mutex.
//! - Two misses of one name ask once. A stale name that several threads find at once may be asked about by each of them.
//! - Names are single components: not empty, not `.` or `..`, without `/` and NUL, at most 255 bytes. They need not be UTF-8.
//! - A node is dropped once no cache, client or open file holds its inode; a handle once its last user is done.
//! - The cache changes only after the backend has answered with success.
//! - The component operations decide nothing about permissions: the front end has. [`crate::Vfs`]'s operations on paths do.
//!
//! # What it asks of a backend
//! Dropping a [`Node`](FileSystem::Node) must not panic, wait for another thread or call the mount: it happens a grace period after the last
//! use, in whichever thread comes by, which may hold directory locks. Dropping a [`Handle`](FileSystem::Handle) may take its time.

use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;

use crate::{Attr, Errno, FileType, Result, SetAttr, StatFs};

/// On whose behalf a backend acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// The caller's file-system user id.
    pub uid: u32,
    /// The caller's file-system group id.
    pub gid: u32,
    /// The caller's supplementary groups, if the front end knows them.
    pub groups: Option<Vec<u32>>,
    /// The caller's process, or 0 if unknown. A backend may use it to look up the groups.
    pub pid: u32,
}

impl Context {
    /// The super-user, with no process.
    #[must_use]
    pub const fn root() -> Context {
        Context { uid: 0, gid: 0, groups: None, pid: 0 }
    }
}

/// What makes an inode the same inode: two lookups with equal keys reach one inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InodeKey {
    /// The backend's inode number.
    pub ino: u64,
    /// Whatever else tells two objects with that number apart: device, generation, birth time.
    pub tag: u64,
}

/// An object as a backend hands it to the core.
#[derive(Debug)]
pub struct Entry<N> {
    /// Its identity.
    pub key: InodeKey,
    /// Its attributes now.
    pub attr: Attr,
    /// The backend's own object. When the core knows an inode with this key already, it goes to [`FileSystem::found_again`] and is
    /// dropped.
    pub node: N,
}

/// One entry of a directory as a backend lists it. `.` and `..` are listed too, where the directory stores them.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// The name, any bytes but `/` and NUL.
    pub name: &'a [u8],
    /// The inode number, as [`Attr::ino`].
    pub ino: u64,
    /// The type, if the listing tells.
    pub kind: Option<FileType>,
    /// Pass this to [`FileSystem::readdir`] to go on behind this entry. Never 0.
    pub next: u64,
}

bitflags::bitflags! {
    /// How to open a file. The values are Linux's on most architectures; a backend maps them by name.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OpenFlags: u32 {
        /// May read.
        const READ = 1 << 0;
        /// May write.
        const WRITE = 1 << 1;
        /// Every write goes to the end.
        const APPEND = 1 << 2;
        /// Cut to size 0.
        const TRUNCATE = 1 << 3;
        /// Create the name if it is absent.
        const CREATE = 1 << 4;
        /// With `CREATE`: refuse a name that exists.
        const EXCLUSIVE = 1 << 5;
        /// Refuse anything but a directory.
        const DIRECTORY = 1 << 6;
        /// Refuse a symbolic link as the last component.
        const NOFOLLOW = 1 << 7;
        /// Bypass the page cache, where the backend can.
        const DIRECT = 1 << 8;
        /// Write data through before answering.
        const DSYNC = 1 << 9;
        /// Write data and attributes through before answering.
        const SYNC = 1 << 10;
        /// Do not wait for the other end of a pipe or a device.
        const NONBLOCK = 1 << 11;
        /// Do not change the access time.
        const NOATIME = 1 << 12;
    }

    /// How to rename; at most one of them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        /// Refuse to replace a name.
        const NOREPLACE = 1 << 0;
        /// Swap two names, both of which exist.
        const EXCHANGE = 1 << 1;
        /// Leave a whiteout behind.
        const WHITEOUT = 1 << 2;
    }
}

/// How to set an extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetXattr {
    /// Create or replace.
    Any,
    /// Refuse one that exists (`EEXIST`).
    Create,
    /// Refuse one that is absent (`ENODATA`).
    Replace,
}

/// What to seek for in a file with holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekFor {
    /// The next data (`SEEK_DATA`).
    Data,
    /// The next hole (`SEEK_HOLE`).
    Hole,
}

/// One name that takes part in an operation: the directory's node and the component.
#[derive(Debug)]
pub struct Place<'a, N> {
    /// The directory.
    pub dir: &'a N,
    /// The component in it.
    pub name: &'a [u8],
}

impl<N> Clone for Place<'_, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<N> Copy for Place<'_, N> {}

/// A file system that the core can serve.
#[allow(unused_variables, reason = "defaults ignore their arguments; the names document them")]
pub trait FileSystem: Send + Sync + 'static {
    /// The backend's object: what it needs to reach one inode again.
    type Node: Send + Sync + 'static;
    /// The backend's opening of a file or directory. Dropping it closes it.
    type Handle: Send + Sync + 'static;

    /// The root directory. Called once per mount.
    ///
    /// # Errors
    /// Whatever keeps the file system from being served.
    fn root(&self) -> Result<Entry<Self::Node>>;

    /// Finds `name` in `dir`.
    ///
    /// # Errors
    /// `ENOENT` if there is no such name; the core may then remember its absence.
    fn lookup(&self, cx: &Context, at: Place<'_, Self::Node>) -> Result<Entry<Self::Node>>;

    /// A lookup or a creation reached an object that the core knows already, and the place was accepted: `known` is the node that
    /// the core keeps, `again` the one that was made for the answer and is about to be dropped. Take over from it what is newer. The
    /// directory lock of the place is held.
    fn found_again(&self, known: &Self::Node, again: &Self::Node) {}

    /// The attributes now; through `handle` if the file is open (its name may be gone).
    ///
    /// # Errors
    /// `ESTALE` if the object is gone.
    fn getattr(&self, node: &Self::Node, handle: Option<&Self::Handle>) -> Result<Attr>;

    /// Changes attributes and answers with the new ones.
    ///
    /// # Errors
    /// `EROFS` by default.
    fn setattr(
        &self,
        cx: &Context,
        node: &Self::Node,
        handle: Option<&Self::Handle>,
        change: &SetAttr,
    ) -> Result<Attr> {
        Err(Errno::EROFS)
    }

    /// The target of a symbolic link, any bytes.
    ///
    /// # Errors
    /// `EINVAL` by default, as for an object that is no link.
    fn readlink(&self, node: &Self::Node) -> Result<Vec<u8>> {
        Err(Errno::EINVAL)
    }

    /// Creates a file that is not a directory or link. `mode` holds type and permission bits, the caller's umask already applied.
    ///
    /// # Errors
    /// `EROFS` by default.
    fn mknod(
        &self,
        cx: &Context,
        at: Place<'_, Self::Node>,
        mode: u32,
        rdev: u64,
    ) -> Result<Entry<Self::Node>> {
        Err(Errno::EROFS)
    }

    /// Creates a directory. `perm` holds permission bits, the caller's umask already applied.
    ///
    /// # Errors
    /// `EROFS` by default.
    fn mkdir(
        &self,
        cx: &Context,
        at: Place<'_, Self::Node>,
        perm: u32,
    ) -> Result<Entry<Self::Node>> {
        Err(Errno::EROFS)
    }

    /// Creates a symbolic link to `target`.
    ///
    /// # Errors
    /// `EROFS` by default.
    fn symlink(
        &self,
        cx: &Context,
        at: Place<'_, Self::Node>,
        target: &[u8],
    ) -> Result<Entry<Self::Node>> {
        Err(Errno::EROFS)
    }

    /// Gives `node` one more name, and answers with its attributes after that.
    ///
    /// # Errors
    /// `EROFS` by default.
    fn link(&self, cx: &Context, node: &Self::Node, at: Place<'_, Self::Node>) -> Result<Attr> {
        Err(Errno::EROFS)
    }

    /// Removes a name that is not a directory's. `node` is what the core believes the name to mean.
    ///
    /// # Errors
    /// `EROFS` by default.
    fn unlink(&self, cx: &Context, at: Place<'_, Self::Node>, node: &Self::Node) -> Result<()> {
        Err(Errno::EROFS)
    }

    /// Removes an empty directory. `node` is what the core believes the name to mean.
    ///
    /// # Errors
    /// `EROFS` by default; `ENOTEMPTY` if it has entries.
    fn rmdir(&self, cx: &Context, at: Place<'_, Self::Node>, node: &Self::Node) -> Result<()> {
        Err(Errno::EROFS)
    }

    /// Renames. `moved` is what the core believes the old name to mean, `replaced` the new one.
    ///
    /// # Errors
    /// `EROFS` by default; `EINVAL` for flags the backend cannot honour, before any change.
    fn rename(
        &self,
        cx: &Context,
        from: Place<'_, Self::Node>,
        to: Place<'_, Self::Node>,
        flags: RenameFlags,
        moved: &Self::Node,
        replaced: Option<&Self::Node>,
    ) -> Result<()> {
        Err(Errno::EROFS)
    }

    /// Creates a regular file and opens it. Refuses a name that exists (`EEXIST`): the core opens that one itself.
    ///
    /// # Errors
    /// `EROFS` by default.
    fn create(
        &self,
        cx: &Context,
        at: Place<'_, Self::Node>,
        perm: u32,
        flags: OpenFlags,
    ) -> Result<(Entry<Self::Node>, Self::Handle)> {
        Err(Errno::EROFS)
    }

    /// Opens a file, or a directory if `flags` holds [`OpenFlags::DIRECTORY`].
    ///
    /// # Errors
    /// `ENOSYS` by default.
    fn open(&self, cx: &Context, node: &Self::Node, flags: OpenFlags) -> Result<Self::Handle> {
        Err(Errno::ENOSYS)
    }

    /// A descriptor of the file that `handle` has open, if it is one of the host's and whatever is read, written or mapped there is what
    /// [`read`](Self::read) and [`write`](Self::write) would do. A front end whose client is a kernel lets that use it directly.
    fn descriptor<'a>(&self, handle: &'a Self::Handle) -> Option<BorrowedFd<'a>> {
        None
    }

    /// Reads at `offset`; answers with the number of bytes, less than asked only at the end of the file.
    ///
    /// # Errors
    /// `ENOSYS` by default.
    fn read(&self, handle: &Self::Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Err(Errno::ENOSYS)
    }

    /// Writes at `offset` (at the end for a handle opened with [`OpenFlags::APPEND`]); answers with the number of bytes.
    ///
    /// # Errors
    /// `ENOSYS` by default.
    fn write(&self, handle: &Self::Handle, offset: u64, data: &[u8]) -> Result<usize> {
        Err(Errno::ENOSYS)
    }

    /// One descriptor of this opening was closed: report what earlier writes could not. Called once per close, not per opening.
    ///
    /// # Errors
    /// Those of delayed writes. Nothing by default.
    fn flush(&self, handle: &Self::Handle) -> Result<()> {
        Ok(())
    }

    /// Makes a file or directory durable; only its data if `data_only`.
    ///
    /// # Errors
    /// Those of writing back. Nothing by default.
    fn fsync(&self, handle: &Self::Handle, data_only: bool) -> Result<()> {
        Ok(())
    }

    /// Lists a directory from `cookie` on: 0, or [`DirEntry::next`] of an entry seen before. Stops when `emit` breaks.
    ///
    /// # Errors
    /// `ENOSYS` by default.
    fn readdir(
        &self,
        handle: &Self::Handle,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Size and use of the file system.
    ///
    /// # Errors
    /// None by default, which tells of nothing but the longest name.
    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs { bsize: 4096, frsize: 4096, namelen: 255, ..StatFs::default() })
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `EOPNOTSUPP` by default; `ENODATA` if there is none of this name.
    fn getxattr(&self, cx: &Context, node: &Self::Node, name: &[u8]) -> Result<Vec<u8>> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `EOPNOTSUPP` by default.
    fn setxattr(
        &self,
        cx: &Context,
        node: &Self::Node,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    /// The names of all extended attributes, each ended by a NUL.
    ///
    /// # Errors
    /// `EOPNOTSUPP` by default.
    fn listxattr(&self, cx: &Context, node: &Self::Node) -> Result<Vec<u8>> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `EOPNOTSUPP` by default; `ENODATA` if there is none of this name.
    fn removexattr(&self, cx: &Context, node: &Self::Node, name: &[u8]) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    /// The offset of the next data or hole at or behind `offset`.
    ///
    /// # Errors
    /// `ENOSYS` by default (a front end then treats the file as all data); `ENXIO` at or past the end.
    fn seek(&self, handle: &Self::Handle, offset: u64, what: SeekFor) -> Result<u64> {
        Err(Errno::ENOSYS)
    }

    /// Allocates or frees space. `mode` is Linux's `FALLOC_FL_*`.
    ///
    /// # Errors
    /// `EOPNOTSUPP` by default, and for modes the backend does not know.
    fn fallocate(&self, handle: &Self::Handle, mode: u32, offset: u64, len: u64) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Copies within the file system; answers with the number of bytes copied.
    ///
    /// # Errors
    /// `EOPNOTSUPP` by default; a client then reads and writes.
    fn copy_range(
        &self,
        from: &Self::Handle,
        from_offset: u64,
        to: &Self::Handle,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        Err(Errno::EOPNOTSUPP)
    }
}
