//! The kernel's end, by way of the crate `fuser`: the only file that names it.
//!
//! # What is taken from it, and what not
//! It speaks the opening handshake; and for an ordinary user it mounts and unmounts by way of the program `fusermount3`. The
//! super-user's mount is one system call, made here. The requests after the handshake are read and answered by the server,
//! straight on the connection, for what the library's own loop cannot do:
//! - its replies make the inode number that people see equal to the node id, so numbers would change when the kernel forgets
//!   a node, and differ from those in listings;
//! - it logs a reply that the kernel refused, and tells nobody, so the lookup count in it would be lost;
//! - each of its threads holds a buffer of 16 MiB.
//!
//! # What is asked of the kernel
//! Asynchronous reads and direct I/O, lookups and listings of one directory in parallel, listings with attributes where that
//! seems to pay, truncation as part of `open`, cached link targets, cached pages dropped when a file's size or time changed. And
//! for a backend that keeps access control lists ([`Wanted::access_lists`]): to decide by them, to leave the umask to us, since a
//! directory's default list takes its place, and to say when a changed list costs a file its set-group-id bit.
//! Not asked for:
//! - a write-back cache: it would make the kernel the owner of size and times, against a backend that others may change;
//! - locks: see [`crate::front_end`];
//! - to clear set-uid bits ourselves on write and chown: the kernel then does it, by a setattr we see as any other;
//! - export over NFS: node ids do not outlive the session.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use fuser::{Config, InitFlags, KernelConfig, MountOption, Session, SessionACL};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags, statfs, statx};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::transport::{Delivery, Transport};
use crate::wire::MAX_DATA;
use crate::{MountError, MountOptions, sys};

/// Where connections to the kernel are made.
pub(crate) const DEVICE: &str = "/dev/fuse";

/// Requests the kernel may have under way for read-ahead and the like.
const MAX_BACKGROUND: u16 = 64;

/// Files to pass through lie on no stacked file system; so overlayfs can be stacked on the mount, but not the other way round.
const STACK_DEPTH: u32 = 1;

/// What a session would have of the kernel beyond what every one has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    /// The backend keeps access control lists: the kernel is to decide by them, too.
    pub(crate) access_lists: bool,
    /// Files are to be read and written without us, where the backend has a descriptor.
    pub(crate) passthrough: bool,
}

/// What the kernel has agreed to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Agreed {
    /// It reads access control lists and decides by them, and leaves the umask to us.
    pub(crate) access_lists: bool,
    /// A SETXATTR has a second word of flags.
    pub(crate) long_setxattr: bool,
    /// It takes files to read and write itself, from who may register them.
    pub(crate) passthrough: bool,
}

/// Tells the kernel what to expect of us; the handshake is all it does.
#[derive(Debug)]
struct Handshake {
    wanted: Wanted,
    agreed: Arc<OnceLock<Agreed>>,
}

impl Handshake {
    /// And where its outcome will stand.
    fn new(wanted: Wanted) -> (Handshake, Arc<OnceLock<Agreed>>) {
        let agreed = Arc::default();
        (Handshake { wanted, agreed: Arc::clone(&agreed) }, agreed)
    }
}

/// All of the three or none: lists without our umask would make files that nobody asked for, the umask without lists is the kernel's.
const ACCESS_LISTS: InitFlags =
    InitFlags::FUSE_POSIX_ACL.union(InitFlags::FUSE_DONT_MASK).union(InitFlags::FUSE_SETXATTR_EXT);

impl fuser::Filesystem for Handshake {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_ATOMIC_O_TRUNC
            | InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS;
        let mut offered = config.capabilities() & wanted;
        let access_lists = self.wanted.access_lists && config.capabilities().contains(ACCESS_LISTS);
        if access_lists {
            offered |= ACCESS_LISTS;
        }
        let passthrough = self.wanted.passthrough
            && config.capabilities().contains(InitFlags::FUSE_PASSTHROUGH)
            && config.set_max_stack_depth(STACK_DEPTH).is_ok();
        if passthrough {
            offered |= InitFlags::FUSE_PASSTHROUGH;
        }
        if config.add_capabilities(offered).is_err() {
            unreachable!("only what is offered");
        }
        // Too much is answered with the most there is: take that.
        if let Err(most) = config.set_max_readahead(MAX_DATA as u32) {
            let _ = config.set_max_readahead(most);
        }
        if let Err(most) = config.set_max_write(MAX_DATA as u32) {
            let _ = config.set_max_write(most);
        }
        let _ = config.set_max_background(MAX_BACKGROUND);
        let _ = self.agreed.set(Agreed { access_lists, long_setxattr: access_lists, passthrough });
        Ok(())
    }
}

/// A mount in the system.
#[derive(Debug)]
pub(crate) struct KernelMount {
    point: PathBuf,
    /// Of the mounted file system, major and minor: no other has them as long as it lives.
    number: (u32, u32),
    /// Present if the helper program mounted: then it has to unmount, too.
    helper: Option<Mutex<Session<Handshake>>>,
}

impl KernelMount {
    /// Mounts on `point` and shakes hands. Nobody is answered until requests are read from the device.
    pub(crate) fn new(
        point: &Path,
        options: &MountOptions,
        wanted: Wanted,
    ) -> Result<(KernelMount, Device, Agreed), MountError> {
        let failed = |source| MountError::Mount { point: point.to_owned(), source };
        let point = point.canonicalize().map_err(failed)?;
        let (handshake, agreed) = Handshake::new(wanted);
        let mounted = match KernelMount::as_super_user(&point, options, handshake) {
            Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
                let (handshake, agreed) = Handshake::new(wanted);
                KernelMount::by_helper(&point, options, handshake).map(|mounted| (mounted, agreed))
            }
            result => result.map(|mounted| (mounted, agreed)),
        };
        let ((mount, device), agreed) = mounted.map_err(failed)?;
        Ok((mount, device, agreed.get().copied().unwrap_or_default()))
    }

    /// The library could do this as well; but it would then unmount by name once more when the mount lives on in another
    /// namespace, or with its last users, and would find somebody else's mount there.
    fn as_super_user(
        point: &Path,
        options: &MountOptions,
        handshake: Handshake,
    ) -> io::Result<(KernelMount, Device)> {
        let fd = OwnedFd::from(File::options().read(true).write(true).open(DEVICE)?);
        let device = Device { fd: fd.try_clone()? };
        let data = CString::new(mount_data(&fd, options))?;
        let flags = mount_flags(options);
        rustix::mount::mount(&*options.fsname, point, "fuse", flags, &*data)?;
        let number = number_on_top(point).inspect_err(|_| {
            let _ = rustix::mount::unmount(point, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH);
        })?;
        let mount = KernelMount { point: point.to_owned(), number, helper: None };
        let session = Session::from_fd(handshake, fd, SessionACL::default(), Config::default());
        match session {
            Ok(_) => Ok((mount, device)),
            Err(error) => {
                let _ = mount.detach(); // the handshake's error says more
                Err(error)
            }
        }
    }

    fn by_helper(
        point: &Path,
        options: &MountOptions,
        handshake: Handshake,
    ) -> io::Result<(KernelMount, Device)> {
        let session = Session::new(handshake, point, &config(options)).map_err(|error| {
            // The place to mount on is there: it is the program that was not found.
            if error.kind() == io::ErrorKind::NotFound {
                let text = "it takes the super-user, or the program fusermount3";
                return io::Error::new(io::ErrorKind::PermissionDenied, text);
            }
            error
        })?;
        let device = Device { fd: session.as_fd().try_clone_to_owned()? };
        let number = number_on_top(point)?;
        let helper = Some(Mutex::new(session));
        Ok((KernelMount { point: point.to_owned(), number, helper }, device))
    }

    pub(crate) fn point(&self) -> &Path {
        &self.point
    }

    pub(crate) fn number(&self) -> (u32, u32) {
        self.number
    }

    /// Unmounts; refused with `EBUSY` as long as anybody uses the mount, and then nothing changes. (The helper program knows but
    /// one way, that of [`detach`](Self::detach).)
    pub(crate) fn unmount(&self) -> io::Result<()> {
        self.take_down(UnmountFlags::NOFOLLOW)
    }

    /// Takes the mount out of sight at once. Those who use it go on; the session ends with the last of them.
    pub(crate) fn detach(&self) -> io::Result<()> {
        self.take_down(UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)
    }

    /// As [`detach`](Self::detach), and the connection ends: who waits for an answer gets an error.
    pub(crate) fn abort(&self) -> io::Result<()> {
        self.take_down(UnmountFlags::NOFOLLOW | UnmountFlags::DETACH | UnmountFlags::FORCE)
    }

    /// Is what is on top at the mount point this file system, as far as its number tells?
    pub(crate) fn has_our_number_on_top(&self) -> bool {
        number_on_top(&self.point).is_ok_and(|number| number == self.number)
    }

    /// Does what is on top at the mount point answer nobody, since its connection has ended?
    pub(crate) fn is_dead(&self) -> bool {
        statfs(&self.point).is_err_and(|error| error == Errno::NOTCONN)
    }

    fn take_down(&self, flags: UnmountFlags) -> io::Result<()> {
        match &self.helper {
            Some(session) => session.lock().unwrap_or_else(PoisonError::into_inner).unmount(),
            None => Ok(rustix::mount::unmount(&self.point, flags)?),
        }
    }
}

/// The device number of the file system on top at `point`. Asks the kernel alone: no server has to answer.
fn number_on_top(point: &Path) -> io::Result<(u32, u32)> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let found = statx(CWD, point, flags, StatxFlags::empty())?;
    Ok((found.stx_dev_major, found.stx_dev_minor))
}

/// The options that are the file system's own, as `mount(2)` takes them.
fn mount_data(fd: &OwnedFd, options: &MountOptions) -> String {
    use rustix::process::{getgid, getuid};
    let (fd, uid, gid) = (fd.as_raw_fd(), getuid().as_raw(), getgid().as_raw());
    let mut data = format!("fd={fd},rootmode=40000,user_id={uid},group_id={gid}");
    data.push_str(",default_permissions,subtype=");
    // A comma would begin another option.
    data.extend(options.subtype.chars().filter(|&c| c != ','));
    // The kernel knows no `allow_root`; the server keeps the others out.
    if options.allow_other || options.allow_root {
        data.push_str(",allow_other");
    }
    data
}

/// The options of every mount.
fn mount_flags(options: &MountOptions) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOEXEC, !options.exec);
    flags.set(MountFlags::NOATIME, !options.atime);
    flags
}

/// The same for the helper program.
fn config(options: &MountOptions) -> Config {
    let either = |on, yes, no| if on { yes } else { no };
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::DefaultPermissions,
        MountOption::FSName(options.fsname.clone()),
        MountOption::Subtype(options.subtype.clone()),
        either(options.read_only, MountOption::RO, MountOption::RW),
        either(options.suid, MountOption::Suid, MountOption::NoSuid),
        either(options.dev, MountOption::Dev, MountOption::NoDev),
        either(options.exec, MountOption::Exec, MountOption::NoExec),
        either(options.atime, MountOption::Atime, MountOption::NoAtime),
    ];
    if options.allow_other || options.allow_root {
        config.acl = SessionACL::All;
    }
    config
}

/// An open connection to the kernel. Each read takes one request, each write gives one reply; a reply goes the way its request came.
#[derive(Debug)]
pub(crate) struct Device {
    fd: OwnedFd,
}

impl Device {
    /// One more descriptor on the same connection, with a queue of requests under way of its own; on a machine with many
    /// processors, threads that share one descriptor queue up for that one's lock. (On two, with 1, 2 and 4 threads, it makes no
    /// difference beyond the noise: 130,000 to 170,000 small requests a second either way.)
    pub(crate) fn clone_connection(&self) -> io::Result<Device> {
        let fd = OwnedFd::from(File::options().read(true).write(true).open(DEVICE)?);
        sys::join_connection(fd.as_fd(), self.fd.as_fd())?;
        Ok(Device { fd })
    }

    /// The same descriptor once more: for calls, not to read requests from.
    pub(crate) fn share(&self) -> io::Result<Device> {
        Ok(Device { fd: self.fd.try_clone()? })
    }

    /// Makes a regular file one that the kernel can read and write itself.
    pub(crate) fn register(&self, file: BorrowedFd<'_>) -> rustix::io::Result<u32> {
        sys::register_backing(self.fd.as_fd(), file)
    }

    pub(crate) fn unregister(&self, number: u32) -> rustix::io::Result<()> {
        sys::unregister_backing(self.fd.as_fd(), number)
    }

    /// May we register files at all? Tried with one that is none: that is found out after the right to was checked.
    pub(crate) fn may_register(&self) -> bool {
        self.register(self.fd.as_fd()) == Err(Errno::INVAL)
    }

    /// Does the kernel still send requests? Not after an unmount, or an abort of the connection.
    pub(crate) fn is_connected(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let looked = poll(&mut fds, Some(&Timespec::default()));
        looked.is_ok() && !fds[0].revents().contains(PollFlags::ERR)
    }
}

impl Transport for Device {
    fn receive(&self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(&self.fd, &mut *buf) {
                Ok(len) => return Ok(Some(len)),
                // A request that was interrupted before we got it; a signal.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                // Unmounted.
                Err(Errno::NODEV) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn reply(&self, message: &[u8]) -> Delivery {
        loop {
            match rustix::io::write(&self.fd, message) {
                Ok(_) => return Delivery::Taken,
                Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::debug!(%error, "the kernel refused a reply");
                    return Delivery::Refused;
                }
            }
        }
    }
}
