//! A directory of the host, passed through.
//!
//! # Staying inside
//! The directory is opened once, and everything else is reached from descriptors: single names
//! below a directory's descriptor, never followed if they are links; objects seen before by their
//! file handle or by a checked step from their parent; reopening through `/proc/self/fd`, whose own
//! descriptor is kept too (but extended attributes have no such calls: they go by `/proc`'s path).
//! So nothing that is mounted over the directory later, not even this file system itself, changes
//! what it serves, and no link on the host leads out of it. What the host moves out of the directory
//! stays reachable for whoever knows it already, as it would be for a process that has it open: a
//! client that has looked a directory up goes on working in it, wherever it lies now.
//!
//! # What is mounted below
//! It is served too, as another part of the same tree: with keys and numbers that tell its objects
//! from those on other devices and behind other mounts (`stat.rs`), and reached by name (`node.rs`).
//!
//! # Descriptors
//! None is held per known file. A bounded cache (`fd_cache.rs`) keeps `O_PATH` descriptors; what
//! left it is reopened by one of the ways back (`node.rs`). The limit is [`HostFs::fd_limit`];
//! openings of clients come on top, and when the process runs into its own limit the cache gives
//! way.
//!
//! # On whose behalf
//! What is created (`caller.rs`) is created as the caller. All else runs as the server: whether the
//! caller may was decided by the front end (with FUSE: the kernel, by `default_permissions`), and
//! once decided it must not be decided again without the caller's groups. A hard link too is made
//! with the server's rights, since the kernel applied `protected_hardlinks` on the way in.
//!
//! # The process
//! [`HostFs::new`] sets the process's umask to 0: modes arrive with the caller's umask applied.
//! `/proc` must be mounted, and a process that forks must make its `HostFs` after that.

mod attrs;
mod caller;
mod dir;
mod fd_cache;
mod files;
mod names;
mod node;
mod reach;
mod serve;
mod stat;
mod sys;

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::{Resource, getrlimit};
use vfscale::{Errno, OpenFlags};

use self::caller::Server;
use self::dir::Stream;
use self::fd_cache::FdCache;
use self::node::{Moves, Object, Way};
use self::stat::{Home, Identity};

/// The most descriptors to cache, however many the process may have: more would only cost memory.
const FD_LIMIT_MAX: u64 = 65_536;
const FD_LIMIT_MIN: u64 = 16;

/// How to serve a directory of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostOptions {
    /// The most `O_PATH` descriptors to keep. `None`: half of what the process may have open.
    pub fd_limit: Option<usize>,
    /// Create files as the caller, if the process has the rights to take on other ids. Otherwise
    /// they are the server's.
    pub act_as_caller: bool,
    /// Refuse every change with `EROFS`.
    pub read_only: bool,
    /// Reach objects by file handle, if the process has the rights and the file system can.
    /// Otherwise by name.
    pub file_handles: bool,
}

impl Default for HostOptions {
    fn default() -> HostOptions {
        HostOptions { fd_limit: None, act_as_caller: true, read_only: false, file_handles: true }
    }
}

/// Why a directory cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostError {
    /// The directory cannot be opened.
    Open {
        /// The directory.
        path: PathBuf,
        /// The system's reason; [`Errno::ENOTDIR`] if it is something else.
        error: Errno,
    },
    /// `/proc/self/fd` cannot be opened, without which no file can be.
    Proc(Errno),
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostError::Open { path, error } => write!(f, "cannot open {}: {error}", path.display()),
            HostError::Proc(error) => write!(f, "cannot open /proc/self/fd: {error}"),
        }
    }
}

impl std::error::Error for HostError {}

/// A directory of the host.
#[derive(Debug)]
pub struct HostFs {
    root: Arc<Object>,
    home: Home,
    /// Where handles can be opened, if they can: a readable descriptor of the root.
    mount: Option<OwnedFd>,
    proc_fds: OwnedFd,
    cache: FdCache,
    moves: Moves,
    server: Server,
    read_only: bool,
}

/// One object of a [`HostFs`].
#[derive(Clone, Debug)]
pub struct Node(Arc<Object>);

/// One opening of a [`Node`].
#[derive(Debug)]
pub struct Handle {
    fd: Arc<OwnedFd>,
    flags: OpenFlags,
    /// For a directory.
    stream: Option<Stream>,
}

impl HostFs {
    /// Opens a directory to serve it.
    ///
    /// # Errors
    /// If the directory or `/proc/self/fd` cannot be opened.
    pub fn new(src: &Path, options: HostOptions) -> Result<HostFs, HostError> {
        let cannot = |error: Errno| HostError::Open { path: src.to_owned(), error };
        let place = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(src, place).map_err(cannot)?;
        let proc_fds = open(Path::new("/proc/self/fd"), place).map_err(HostError::Proc)?;
        let home = Home::of(&root).map_err(cannot)?;
        let identity = home.identify(&root).map_err(cannot)?;
        let mount =
            if options.file_handles { probe_handles(&root, &home, &identity) } else { None };
        let root = Object::new(identity.key, identity.attr.kind, Way::Root(Arc::new(root)));
        rustix::process::umask(Mode::empty());
        Ok(HostFs {
            root: Arc::new(root),
            home,
            mount,
            proc_fds,
            cache: FdCache::new(options.fd_limit.unwrap_or_else(default_fd_limit)),
            moves: Moves::default(),
            server: Server::new(options.act_as_caller),
            read_only: options.read_only,
        })
    }

    /// The most descriptors that are kept beside those of open files.
    #[must_use]
    pub fn fd_limit(&self) -> usize {
        self.cache.limit()
    }

    /// How many descriptors are kept now. Costs a look at each of them.
    #[must_use]
    pub fn cached_fds(&self) -> usize {
        self.cache.len()
    }

    /// Whether objects of the directory's own mount are reached by file handle, and not by name.
    #[must_use]
    pub fn uses_file_handles(&self) -> bool {
        self.mount.is_some()
    }

    fn writable(&self) -> Result<(), Errno> {
        if self.read_only { Err(Errno::EROFS) } else { Ok(()) }
    }
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    retry(|| rustix::fs::openat(CWD, path, flags, Mode::empty()))
}

/// What it takes to open handles, if it works: the right to (`CAP_DAC_READ_SEARCH`) and a file
/// system that can. Both are found out by trying.
fn probe_handles(root: &OwnedFd, home: &Home, identity: &Identity) -> Option<OwnedFd> {
    let handle = identity.handle.as_ref()?;
    // A descriptor without `O_PATH`, which is what opening a handle asks for.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = retry(|| rustix::fs::openat(root, c".", flags, Mode::empty())).ok()?;
    let opened = sys::open_by_handle(&readable, handle).ok()?;
    let same = home.identify(&opened).ok()?.key == identity.key;
    same.then_some(readable)
}

/// Half of what the process may have open: the other half is for the files that clients open.
fn default_fd_limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 2;
    limit.clamp(FD_LIMIT_MIN, FD_LIMIT_MAX) as usize
}

/// Makes a system call until it is not interrupted, and gives its error the core's type.
fn retry<T>(call: impl FnMut() -> rustix::io::Result<T>) -> Result<T, Errno> {
    rustix::io::retry_on_intr(call).map_err(|error| Errno::from_raw(error.raw_os_error()))
}
