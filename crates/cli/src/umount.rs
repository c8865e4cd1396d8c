//! `vfscale umount MNT`, and unmounting in general.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use vfscale_fuse::{MountError, Mounted};

use crate::args::UmountArgs;
use crate::error::CliError;
use crate::mountinfo::{self, OUR_TYPE};

/// Runs the command.
///
/// # Errors
/// If MNT is no mount of ours, is in use, or may not be unmounted.
pub(crate) fn run(args: &UmountArgs) -> Result<u8, CliError> {
    let given = &args.mountpoint;
    let path = mountinfo::locate(given).map_err(|error| CliError::io(given, error))?;
    let mounted = mountinfo::mounted_on(&path).map_err(|error| CliError::io(given, error))?;
    match mounted {
        Some(mount) if mount.is_ours() => {}
        Some(mount) => {
            return Err(CliError::path(
                given,
                format!("a mount of type {}, not {OUR_TYPE}: left alone", mount.kind),
            ));
        }
        None => return Err(CliError::path(given, "not a mount point")),
    }
    let flags = if args.lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match unmount(&path, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(0),
        // Nobody serves a dead mount any more, so nothing is lost by taking it from those who still stand in it.
        Err(Errno::BUSY) if is_dead(&path) => {
            unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
                .map_err(|error| failed(given, error))?;
            Ok(0)
        }
        Err(error) => Err(failed(given, error)),
    }
}

/// Whether the process that served the mount on `path` is gone.
pub(crate) fn is_dead(path: &Path) -> bool {
    rustix::fs::statfs(path).is_err_and(|error| error == Errno::NOTCONN)
}

fn failed(given: &Path, error: Errno) -> CliError {
    match error {
        Errno::BUSY => {
            CliError::path(given, "in use; `vfscale umount --lazy` detaches it all the same")
        }
        Errno::PERM => CliError::path(given, "unmounting needs root (CAP_SYS_ADMIN)"),
        error => CliError::io(given, error),
    }
}

/// How the unmount of a mount of ours went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmounted {
    /// Nobody used the mount any more, or somebody else unmounted it.
    Clean,
    /// It was taken from processes that still used it; they get errors from now on, or at the latest when this process ends.
    Detached,
    /// Another mount is on top of it, and has to go first. It stays, dead once this process has ended.
    Covered,
    /// It is unmounted, but requests are still under way, so the server has not ended. It was waited for as long as this.
    Lingering(Duration),
}

impl Unmounted {
    /// What the user has to hear about it, if anything.
    pub(crate) fn remark(self) -> Option<String> {
        match self {
            Unmounted::Clean => None,
            Unmounted::Detached => Some("the mount was still in use and was detached".to_owned()),
            Unmounted::Covered => Some(
                "left mounted, beneath another mount; once that is gone, `vfscale umount` removes it"
                    .to_owned(),
            ),
            Unmounted::Lingering(after) => {
                let seconds = after.as_secs();
                Some(format!("unmounted; the server had not ended after {seconds} s"))
            }
        }
    }
}

/// Unmounts. A mount that is in use gets `grace` to become free; then it is taken from its users and its connection ended, which
/// stops the server threads as well.
///
/// # Errors
/// If the mount stays.
pub(crate) fn unmount_within(mounted: &Mounted, grace: Duration) -> Result<Unmounted, MountError> {
    let deadline = Instant::now() + grace;
    let mut pause = Duration::from_millis(1);
    loop {
        match mounted.try_unmount() {
            Ok(()) => return Ok(Unmounted::Clean),
            Err(MountError::Lingering { after, .. }) => return Ok(Unmounted::Lingering(after)),
            Err(MountError::Busy(_)) if Instant::now() < deadline => {
                // A process that has just ended gives up its last file a moment later.
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(50));
            }
            Err(MountError::Busy(_)) => break,
            Err(error) => return Err(error),
        }
    }
    mounted.abort()?;
    // Only one that is out of its reach is still there now.
    let covered = mountinfo::is_listed(mounted.point(), mounted.device()).unwrap_or(false);
    Ok(if covered { Unmounted::Covered } else { Unmounted::Detached })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_goes_on_is_not_called_a_failed_unmount() {
        let remark = Unmounted::Lingering(Duration::from_secs(10)).remark();
        assert_eq!(remark.as_deref(), Some("unmounted; the server had not ended after 10 s"));
        assert_eq!(Unmounted::Clean.remark(), None);
    }
}
