//! What can go wrong between a backend and a working mount.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use vfscale::Errno;

/// Why a mount could not be made, or not be ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The kernel's end cannot be opened: not there, or not for us.
    #[error("cannot open /dev/fuse: {0}")]
    Device(#[source] io::Error),
    /// The place to mount on is no directory.
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// The place to mount on cannot be used, or the kernel refused the mount.
    #[error("cannot mount on {}: {source}", .point.display())]
    Mount {
        /// Where.
        point: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The backend has no root to show.
    #[error("the backend's root cannot be used: {0}")]
    Root(#[source] Errno),
    /// Passthrough was insisted on, and the kernel has none, or none for us.
    #[error("no passthrough: it takes Linux 6.9 and CAP_SYS_ADMIN")]
    Passthrough,
    /// The server threads could not be started.
    #[error("cannot start the server threads: {0}")]
    Threads(#[source] io::Error),
    /// Files or working directories in the mount are in use.
    #[error("{} is in use", .0.display())]
    Busy(PathBuf),
    /// It could not be unmounted.
    #[error("cannot unmount {}: {source}", .point.display())]
    Unmount {
        /// Where.
        point: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is unmounted, but requests are still under way.
    #[error("{} is unmounted; its server had not ended after {} s", .point.display(), .after.as_secs())]
    Lingering {
        /// Where it was.
        point: PathBuf,
        /// How long the server was waited for.
        after: Duration,
    },
}
