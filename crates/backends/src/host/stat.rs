//! What an object of the host is: attributes and identity.
//!
//! # Identity
//! The key of an inode is its number and a tag. Where the file system makes handles, the tag is a
//! hash of the device and the handle, in which a generation tells apart two inodes that had one
//! number after the other. Elsewhere it is a hash of the device and the time of birth, which does
//! the same as long as the clock does not stand still between them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Statx, StatxFlags, StatxTimestamp};
use vfscale::{Attr, Errno, FileType, InodeKey, Result, Timestamp};

use super::sys::{self, FileHandle};

/// All there is to know about an object that a descriptor leads to.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) key: InodeKey,
    pub(super) attr: Attr,
    /// With the id of the mount through which the object was reached.
    pub(super) handle: Option<(FileHandle, i32)>,
}

pub(super) fn identify(fd: impl AsFd) -> Result<Identity> {
    let raw = statx(&fd)?;
    let attr = attr_of(&raw)?;
    let handle = sys::name_to_handle(&fd).ok();
    // The default hasher starts the same each time, so a key means the same for the life of the
    // process.
    let mut tag = DefaultHasher::new();
    (raw.stx_dev_major, raw.stx_dev_minor).hash(&mut tag);
    match &handle {
        Some((handle, _)) => handle.hash(&mut tag),
        None => attr.btime.hash(&mut tag),
    }
    Ok(Identity { key: InodeKey { ino: attr.ino, tag: tag.finish() }, attr, handle })
}

pub(super) fn attr(fd: impl AsFd) -> Result<Attr> {
    attr_of(&statx(fd)?)
}

fn statx(fd: impl AsFd) -> Result<Statx> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    Ok(rustix::fs::statx(fd, c"", flags, wanted).map_err(std::io::Error::from)?)
}

fn attr_of(raw: &Statx) -> Result<Attr> {
    let time = |t: &StatxTimestamp| Timestamp { sec: t.tv_sec, nsec: t.tv_nsec };
    let mode = u32::from(raw.stx_mode);
    let has_btime = raw.stx_mask & StatxFlags::BTIME.bits() != 0;
    Ok(Attr {
        ino: raw.stx_ino,
        // Some kernel objects have no type; they are nothing that a directory tree should hold.
        kind: FileType::from_mode(mode).ok_or(Errno::EIO)?,
        perm: mode & 0o7777,
        nlink: raw.stx_nlink,
        uid: raw.stx_uid,
        gid: raw.stx_gid,
        rdev: rustix::fs::makedev(raw.stx_rdev_major, raw.stx_rdev_minor),
        size: raw.stx_size,
        blocks: raw.stx_blocks,
        blksize: raw.stx_blksize,
        atime: time(&raw.stx_atime),
        mtime: time(&raw.stx_mtime),
        ctime: time(&raw.stx_ctime),
        btime: has_btime.then(|| time(&raw.stx_btime)),
    })
}
