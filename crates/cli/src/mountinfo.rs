//! What is mounted where, from `/proc/self/mountinfo`.
//!
//! Asking the mount table instead of the mount point itself is what makes dead mounts tractable: once its server is gone, every
//! call on the mount point answers `ENOTCONN`, but the table still tells where it is and what it was.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// The type the kernel shows for our mounts.
pub(crate) const OUR_TYPE: &str = "fuse.vfscale";

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// The directory it covers.
    pub(crate) mountpoint: PathBuf,
    /// The device number of the file system, major and minor.
    pub(crate) device: (u32, u32),
    /// The file system's type, with its subtype.
    pub(crate) kind: String,
}

impl MountEntry {
    /// Whether we serve it.
    pub(crate) fn is_ours(&self) -> bool {
        self.kind == OUR_TYPE
    }
}

/// The topmost mount on exactly this directory, if it is a mount point. `path` must be absolute and free of symbolic links.
///
/// # Errors
/// If the table cannot be read.
pub(crate) fn mounted_on(path: &Path) -> io::Result<Option<MountEntry>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    // Of several mounts on one directory the last line is the one on top.
    Ok(entries(&table).filter(|entry| entry.mountpoint == path).last())
}

/// Whether the file system with this device number is mounted on exactly this directory, on top or not.
///
/// # Errors
/// If the table cannot be read.
pub(crate) fn is_listed(path: &Path, device: (u32, u32)) -> io::Result<bool> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(entries(&table).any(|entry| entry.device == device && entry.mountpoint == path))
}

/// The absolute form of a mount point, found without touching the mounted file system, which may be dead.
///
/// # Errors
/// If the directories above it cannot be resolved.
pub(crate) fn locate(given: &Path) -> io::Result<PathBuf> {
    match std::fs::canonicalize(given) {
        Ok(path) => Ok(path),
        Err(error) => match (given.parent(), given.file_name()) {
            (Some(parent), Some(name)) => {
                let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
                Ok(std::fs::canonicalize(parent)?.join(name))
            }
            _ => Err(error),
        },
    }
}

fn entries(table: &[u8]) -> impl Iterator<Item = MountEntry> + '_ {
    table.split(|byte| *byte == b'\n').filter_map(entry)
}

/// `ID PARENT MAJ:MIN ROOT MOUNTPOINT OPTIONS [TAGS...] - TYPE SOURCE SUPER`
fn entry(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
    let mountpoint = unescape(fields.nth(1)?);
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    Some(MountEntry {
        mountpoint: PathBuf::from(OsString::from_vec(mountpoint)),
        device: (device.0.parse().ok()?, device.1.parse().ok()?),
        kind: std::ffi::OsStr::from_bytes(kind).to_string_lossy().into_owned(),
    })
}

/// Undoes the octal escapes (`\040` for a space) of the table.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let octal = |digit: u8| (b'0'..=b'7').contains(&digit).then(|| u32::from(digit - b'0'));
        if let (b'\\', [a, b, c, tail @ ..]) = (first, after)
            && let (Some(a), Some(b), Some(c)) = (octal(*a), octal(*b), octal(*c))
        {
            out.push((a << 6 | b << 3 | c) as u8);
            rest = tail;
        } else {
            out.push(first);
            rest = after;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
40 27 0:50 / /mnt/a\\040b rw,nosuid,nodev shared:3 master:1 - fuse.vfscale /src rw,user_id=0\n\
41 40 0:51 / /mnt/a\\040b rw - tmpfs none rw\n\
42 27 0:52 / /mnt/dead rw - fuse.vfscale mem: rw\n";

    #[test]
    fn reads_types_behind_optional_tags_and_undoes_escapes() {
        let all: Vec<MountEntry> = entries(TABLE).collect();
        assert_eq!(all.len(), 4);
        assert_eq!(all[1].mountpoint, Path::new("/mnt/a b"));
        assert!(all[1].is_ours());
        assert_eq!((all[2].device, all[2].kind.as_str()), ((0, 51), "tmpfs"));
        assert!(all[3].is_ours());
    }

    #[test]
    fn a_backslash_that_escapes_nothing_stays() {
        assert_eq!(unescape(b"a\\9\\134x\\"), b"a\\9\\x\\");
    }

    #[test]
    fn a_place_below_a_missing_name_is_found_through_its_parent() {
        let found = locate(Path::new("/proc/self/../no-such-name")).expect("the parent exists");
        assert_eq!(found, Path::new("/proc/no-such-name"));
    }
}
