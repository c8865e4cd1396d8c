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
use crate::summary::Summary;

/// The attribute of a mount's root that holds its numbers.
const ATTRIBUTE: &str = "user.vfscale.stats";
/// The longest text the attribute may hold; the kernel's own limit on the size of a value.
const LONGEST: usize = 64 * 1024;

/// Runs the command.
///
/// # Errors
/// If MNT is no mount of ours, or dead.
pub(crate) fn run(args: &StatArgs) -> Result<u8, CliError> {
    let text = read(&args.mountpoint)?;
    let out = if args.json {
        text
    } else {
        let summary: Summary = serde_json::from_str(&text).map_err(|error| {
            CliError::path(&args.mountpoint, format!("its numbers cannot be read: {error}"))
        })?;
        let on = summary.mountpoint.as_deref().unwrap_or("?");
        let head = format!("{} on {on} for {:.1} s", summary.source, summary.seconds);
        format!("{}\n{summary}", one_line(&head))
    };
    // A reader that went away (`| head`) is no failure of ours.
    let _ = writeln!(std::io::stdout(), "{}", out.trim_end());
    Ok(0)
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
        Err(Errno::NOTCONN) => Err(CliError::path(
            mountpoint,
            format!(
                "the process that served this mount is gone; `vfscale umount {}` removes it",
                mountpoint.display()
            ),
        )),
        Err(error) => Err(CliError::io(mountpoint, error)),
    }
}
