//! What an object of the host is: attributes and identity.
//!
//! # Identity
//! The key of an inode is its number and a tag. Where the file system makes handles that last, the
//! tag is a hash of the device and the handle, in which a generation tells apart two inodes that
//! had one number after the other. Elsewhere it is a hash of the device and the time of birth,
//! which does the same as long as the clock does not stand still between them. On a FUSE mount a
//! handle is a number of the server's memory that a cache pressure may change: none is taken there.
//!
//! An object that is reached through another mount than the root's has that mount in its tag. It
//! may be the same file as one on ours, but that mount may be read-only or differ otherwise; so two
//! views are two objects.
//!
//! # Numbers
//! A client sees one device, whatever is mounted below the root. The number of an object on another
//! device is therefore mixed with that device, so that no two objects look like one file with two
//! names. Two views of one device keep its numbers, as on the host.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::AsFd;
use std::sync::Mutex;

use rustix::fs::{AtFlags, Statx, StatxFlags, StatxTimestamp};
use vfscale::{Attr, Errno, FileType, InodeKey, Result, Timestamp};

use super::retry;
use super::sys::{self, FileHandle};
use crate::locks::lock;

/// What `statfs` says of every FUSE mount.
const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;

/// Set in the number of every object on another device, which keeps those away from the numbers
/// that have a meaning of their own, and from nearly all that the root's device gives.
const FOREIGN: u64 = 1 << 63;

/// Major and minor number.
pub(super) type Device = (u32, u32);

/// All there is to know about an object that a descriptor leads to.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) key: InodeKey,
    pub(super) attr: Attr,
    pub(super) handle: Option<FileHandle>,
    /// Reached through the root's own mount.
    pub(super) at_home: bool,
}

/// Where the root lies. What lies elsewhere is told apart by it.
#[derive(Debug)]
pub(super) struct Home {
    device: Device,
    /// `None` if the system does not tell (before Linux 5.8), and gives no handle either.
    mount: Option<u64>,
    lasting_handles: bool,
    /// Whether handles last on another mount, by its id and device: to ask each time would be a
    /// message to a server where they do not.
    others: Mutex<HashMap<(u64, Device), bool>>,
}

impl Home {
    pub(super) fn of(root: impl AsFd) -> Result<Home> {
        let raw = statx(&root, AtFlags::empty())?;
        let lasting_handles = has_lasting_handles(&root)?;
        let handle = if lasting_handles { sys::name_to_handle(&root)? } else { None };
        let mount = mount_of(&raw, handle.as_ref());
        Ok(Home { device: device_of(&raw), mount, lasting_handles, others: Mutex::default() })
    }

    pub(super) fn identify(&self, fd: impl AsFd) -> Result<Identity> {
        let raw = statx(&fd, AtFlags::empty())?;
        let attr = self.attr_of(&raw)?;
        let named = if self.takes_handle(&fd, &raw)? { sys::name_to_handle(&fd)? } else { None };
        let mount = mount_of(&raw, named.as_ref());
        let handle = named.map(|(handle, _)| handle);
        // The default hasher starts the same each time, so a key means the same for the life of
        // the process.
        let mut tag = DefaultHasher::new();
        device_of(&raw).hash(&mut tag);
        match &handle {
            Some(handle) => handle.hash(&mut tag),
            None => attr.btime.hash(&mut tag),
        }
        let at_home = mount == self.mount;
        if !at_home {
            mount.hash(&mut tag);
        }
        let key = InodeKey { ino: raw.stx_ino, tag: tag.finish() };
        Ok(Identity { key, attr, handle, at_home })
    }

    pub(super) fn attr(&self, fd: impl AsFd) -> Result<Attr> {
        self.attr_of(&statx(fd, AtFlags::empty())?)
    }

    /// The number that a client sees of an inode on this device.
    pub(super) fn number(&self, ino: u64, device: Device) -> u64 {
        if device == self.device {
            return ino;
        }
        let mut mixed = DefaultHasher::new();
        (device, ino).hash(&mut mixed);
        mixed.finish() | FOREIGN
    }

    /// Whether a handle says more than the number, on the file system that `fd` leads to.
    fn takes_handle(&self, fd: impl AsFd, raw: &Statx) -> Result<bool> {
        let device = device_of(raw);
        if device == self.device {
            return Ok(self.lasting_handles);
        }
        let place = (raw.stx_mnt_id, device);
        if let Some(&known) = lock(&self.others).get(&place) {
            return Ok(known);
        }
        let lasting = has_lasting_handles(fd)?;
        lock(&self.others).insert(place, lasting);
        Ok(lasting)
    }

    fn attr_of(&self, raw: &Statx) -> Result<Attr> {
        let time = |t: &StatxTimestamp| Timestamp { sec: t.tv_sec, nsec: t.tv_nsec };
        let mode = u32::from(raw.stx_mode);
        let has_btime = raw.stx_mask & StatxFlags::BTIME.bits() != 0;
        Ok(Attr {
            ino: self.number(raw.stx_ino, device_of(raw)),
            // Some kernel objects have no type; they are nothing that a directory tree should
            // hold.
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
}

/// The host's own number and the type of what `fd` leads to.
pub(super) fn number_and_kind(fd: impl AsFd) -> Result<(u64, Option<FileType>)> {
    let raw = statx(fd, AtFlags::STATX_DONT_SYNC)?;
    Ok((raw.stx_ino, FileType::from_mode(u32::from(raw.stx_mode))))
}

pub(super) fn device(fd: impl AsFd) -> Result<Device> {
    Ok(device_of(&statx(fd, AtFlags::STATX_DONT_SYNC)?))
}

fn device_of(raw: &Statx) -> Device {
    (raw.stx_dev_major, raw.stx_dev_minor)
}

fn mount_of(raw: &Statx, handle: Option<&(FileHandle, i32)>) -> Option<u64> {
    if raw.stx_mask & StatxFlags::MNT_ID.bits() != 0 {
        return Some(raw.stx_mnt_id);
    }
    handle.and_then(|&(_, mount)| u64::try_from(mount).ok())
}

fn has_lasting_handles(fd: impl AsFd) -> Result<bool> {
    let stat = retry(|| rustix::fs::fstatfs(&fd))?;
    Ok(u64::try_from(stat.f_type) != Ok(FUSE_SUPER_MAGIC))
}

fn statx(fd: impl AsFd, sync: AtFlags) -> Result<Statx> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID;
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | sync;
    retry(|| rustix::fs::statx(&fd, c"", flags, wanted))
}
