//! `vfscale stat MNT`: the live numbers of a mount, asked from outside.
//!
//! A mount answers with its summary when the extended attribute `user.vfscale.stats` of its root is read. That goes through the
//! mount itself, so it needs no socket, no privileges beyond those of reading the directory, and works in any mount namespace.

use std::io::Write as _;
use std::path::Path;

use rustix::io::Errno;

use crate::args::StatArgs;
use crate::error::CliError;
use crate::message::one_line;
use crate::mountinfo;
use crate::summary::Summary;

/// The attribute of a mount's root that holds its numbers.
const ATTRIBUTE: &str = "user.vfscale.stats";
/// The longest text the attribute may hold; the kernel's own limit on the size of a value.
const LONGEST: usize = 64 * 1024;
/// What `statfs` says of FUSE.
const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;

/// Runs the command.
///
/// # Errors
/// If MNT is no mount of ours, or dead.
pub(crate) fn run(args: &StatArgs) -> Result<u8, CliError> {
    check(&args.mountpoint)?;
    let text = read(&args.mountpoint)?;
    let summary: Summary = serde_json::from_str(&text).map_err(|error| {
        CliError::path(&args.mountpoint, format!("its numbers cannot be read: {error}"))
    })?;
    let out = if args.json {
        text
    } else {
        let on = summary.mountpoint.as_deref().unwrap_or("?");
        let head = format!("{} on {on} for {:.1} s", summary.source, summary.seconds);
        format!("{}\n{summary}", one_line(&head))
    };
    // A reader that went away (`| head`) is no failure of ours.
    let _ = writeln!(std::io::stdout(), "{}", out.trim_end());
    Ok(0)
}

/// Anybody can write an attribute of this name on a file of their own. What counts is where it is read: on the root of a FUSE mount
/// of ours, which answers for itself.
fn check(mountpoint: &Path) -> Result<(), CliError> {
    let failed = |error| CliError::io(mountpoint, error);
    let not_ours = || CliError::path(mountpoint, "not the root of a vfscale mount");
    match rustix::fs::statfs(mountpoint) {
        Ok(stat) if stat.f_type as u64 == FUSE_SUPER_MAGIC => {}
        Ok(_) => return Err(not_ours()),
        Err(Errno::NOTCONN) => return Err(is_dead(mountpoint)),
        Err(error) => return Err(failed(error.into())),
    }
    let path = mountinfo::locate(mountpoint).map_err(failed)?;
    let mounted = mountinfo::mounted_on(&path).map_err(failed)?;
    if mounted.is_some_and(|mount| mount.is_ours()) { Ok(()) } else { Err(not_ours()) }
}

fn is_dead(mountpoint: &Path) -> CliError {
    let place = mountpoint.display();
    let what =
        format!("the process that served this mount is gone; `vfscale umount {place}` removes it");
    CliError::path(mountpoint, what)
}

fn read(mountpoint: &Path) -> Result<String, CliError> {
    let mut value = vec![0; LONGEST];
    match rustix::fs::getxattr(mountpoint, ATTRIBUTE, &mut value[..]) {
        Ok(length) => {
            value.truncate(length);
            String::from_utf8(value)
                .map_err(|_| CliError::path(mountpoint, "its numbers are not text"))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => {
            Err(CliError::path(mountpoint, "not the root of a vfscale mount"))
        }
        Err(Errno::NOTCONN) => Err(is_dead(mountpoint)),
        Err(error) => Err(CliError::io(mountpoint, error)),
    }
}
