//! The kernel's end, by way of the crate `fuser`: the only file that names it.
//!
//! # What is taken from it, and what not
//! It mounts (by itself as the super-user, by `fusermount3` otherwise), speaks the opening handshake, and unmounts. The requests
//! after that are read and answered here, straight on the descriptor it leaves us, for what its own loop cannot do:
//! - its replies make the inode number that people see equal to the node id, so numbers would change when the kernel forgets
//!   a node, and differ from those in listings;
//! - it logs a reply that the kernel refused, and tells nobody, so the lookup count in it would be lost;
//! - each of its threads holds a buffer of 16 MiB.
//!
//! # What is asked of the kernel
//! Asynchronous reads and direct I/O, lookups and listings of one directory in parallel, listings with attributes where that
//! seems to pay, truncation as part of `open`, cached link targets, cached pages dropped when a file's size or time changed.
//! Not asked for:
//! - a write-back cache: it would make the kernel the owner of size and times, against a backend that others may change;
//! - locks: see [`crate::FrontEnd`];
//! - to clear set-uid bits ourselves on write and chown: the kernel then does it, by a setattr we see as any other;
//! - export over NFS: node ids do not outlive the session.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use fuser::{Config, InitFlags, KernelConfig, MountOption, Session, SessionACL};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::transport::{Delivery, Transport};
use crate::wire::MAX_DATA;
use crate::{MountError, MountOptions};

/// Requests the kernel may have under way for read-ahead and the like.
const MAX_BACKGROUND: u16 = 64;

/// Tells the kernel what to expect of us; the handshake is all it does.
#[derive(Debug)]
struct Handshake;

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
        let offered = config.capabilities() & wanted;
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
        Ok(())
    }
}

/// A mount in the system, with the handshake done.
#[derive(Debug)]
pub(crate) struct KernelMount {
    session: Mutex<Session<Handshake>>,
    point: PathBuf,
}

impl KernelMount {
    /// Mounts on `point`. Nobody is answered until requests are read from [`device`](Self::device).
    pub(crate) fn new(point: &Path, options: &MountOptions) -> Result<KernelMount, MountError> {
        let failed = |source| MountError::Mount { point: point.to_owned(), source };
        let point = point.canonicalize().map_err(failed)?;
        let session = Session::new(Handshake, &point, &config(options)).map_err(failed)?;
        Ok(KernelMount { session: Mutex::new(session), point })
    }

    pub(crate) fn point(&self) -> &Path {
        &self.point
    }

    /// The connection, for the server to read from.
    pub(crate) fn device(&self) -> io::Result<Device> {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Device { fd: session.as_fd().try_clone_to_owned()? })
    }

    /// Unmounts; refused with `EBUSY` as long as anybody uses the mount, and then nothing changes.
    pub(crate) fn unmount(&self) -> io::Result<()> {
        match rustix::mount::unmount(&self.point, UnmountFlags::NOFOLLOW) {
            // Not the super-user: the helper program may.
            Err(Errno::PERM) => self.by_helper(),
            result => Ok(result?),
        }
    }

    /// Takes the mount out of sight at once. Those who use it go on; the session ends with the last of them.
    pub(crate) fn detach(&self) -> io::Result<()> {
        let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH;
        match rustix::mount::unmount(&self.point, flags) {
            Err(Errno::PERM) => self.by_helper(),
            Ok(()) => {
                // The library would unmount once more, by name, when it is dropped, and find somebody else's mount there. Asked
                // now, it fails or not, and does not ask again.
                let _ = self.by_helper();
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn by_helper(&self) -> io::Result<()> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).unmount()
    }
}

fn config(options: &MountOptions) -> Config {
    let either = |on, yes, no| if on { yes } else { no };
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::DefaultPermissions,
        MountOption::FSName(options.fsname.clone()),
        // Given as it is, since the library keeps its own `Subtype` from the kernel when it mounts without a helper.
        MountOption::CUSTOM(format!("subtype={}", options.subtype)),
        either(options.read_only, MountOption::RO, MountOption::RW),
        either(options.suid, MountOption::Suid, MountOption::NoSuid),
        either(options.dev, MountOption::Dev, MountOption::NoDev),
        either(options.exec, MountOption::Exec, MountOption::NoExec),
        either(options.atime, MountOption::Atime, MountOption::NoAtime),
    ];
    config.acl = if options.allow_other {
        SessionACL::All
    } else if options.allow_root {
        SessionACL::RootAndOwner
    } else {
        SessionACL::Owner
    };
    config
}

/// The open connection to the kernel. Each read takes one request, each write gives one reply.
///
/// All threads share it. The kernel can also give each thread a descriptor of its own; measured on two processors with 1, 2 and 4
/// threads that made no difference beyond the noise (130,000 to 170,000 small requests a second either way), and it takes an
/// `ioctl` for which there is no safe call.
#[derive(Debug)]
pub(crate) struct Device {
    fd: OwnedFd,
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
