//! Changing attributes, and extended ones.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};
use rustix::fs::{XattrFlags, getxattr, getxattr_query, listxattr, listxattr_query};
use rustix::path::DecInt;
use vfscale::{Attr, Context, Errno, FileType, Result, SetAttr, SetTime, SetXattr};

use super::node::Object;
use super::{Handle, HostFs, retry};

/// Room for the values and lists that are common, so that they take one call.
const XATTR_BYTES: usize = 512;

fn timespec(set: Option<SetTime>) -> Timespec {
    match set {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::At(time)) => Timespec { tv_sec: time.sec, tv_nsec: time.nsec.into() },
    }
}

/// An id to set. The value that means "leave it" to the system cannot be one.
fn id(id: Option<u32>) -> Result<Option<u32>> {
    if id == Some(u32::MAX) { Err(Errno::EINVAL) } else { Ok(id) }
}

impl HostFs {
    /// Owner, permission bits, size, times, in this order: a new owner clears bits that the same
    /// call may set again, and a new size moves times. If a step fails those before it stay done.
    pub(super) fn change(
        &self,
        object: &Arc<Object>,
        handle: Option<&Handle>,
        change: &SetAttr,
    ) -> Result<Attr> {
        self.writable()?;
        // What no object of this kind can change is refused before anything changes.
        match object.kind {
            FileType::Symlink if change.perm.is_some() => return Err(Errno::EOPNOTSUPP),
            FileType::Directory if change.size.is_some() => return Err(Errno::EISDIR),
            FileType::Regular => {}
            // Opening one of the rest to cut it could wait for ever.
            _ if change.size.is_some() => return Err(Errno::EINVAL),
            _ => {}
        }
        let place = match handle {
            Some(handle) => Arc::clone(&handle.fd),
            None => self.place(object)?,
        };
        if change.uid.is_some() || change.gid.is_some() {
            let (uid, gid) = (id(change.uid)?, id(change.gid)?);
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            retry(|| rustix::fs::chownat(&*place, c"", uid, gid, AtFlags::EMPTY_PATH))?;
        }
        if let Some(perm) = change.perm {
            let (link, mode) = (DecInt::from_fd(&*place), Mode::from_raw_mode(perm & 0o7777));
            retry(|| rustix::fs::chmodat(&self.proc_fds, link.as_c_str(), mode, AtFlags::empty()))?;
        }
        if let Some(size) = change.size {
            self.resize(&place, handle, size)?;
        }
        if change.atime.is_some() || change.mtime.is_some() {
            let times = Timestamps {
                last_access: timespec(change.atime),
                last_modification: timespec(change.mtime),
            };
            // Following the link in `/proc` ends at the object itself, also if that is a symbolic
            // link.
            let link = DecInt::from_fd(&*place);
            retry(|| {
                rustix::fs::utimensat(&self.proc_fds, link.as_c_str(), &times, AtFlags::empty())
            })?;
        }
        self.home.attr(&*place)
    }

    /// Of a regular file.
    fn resize(&self, place: &Arc<OwnedFd>, handle: Option<&Handle>, size: u64) -> Result<()> {
        if let Some(handle) = handle.filter(|handle| handle.writes()) {
            return retry(|| rustix::fs::ftruncate(&*handle.fd, size));
        }
        let file = self.with_room(|| self.reopen(&**place, OFlags::WRONLY))?;
        retry(|| rustix::fs::ftruncate(&file, size))
    }

    // Extended attributes go by path, since those calls refuse `O_PATH` descriptors, and take no
    // directory to start at before Linux 6.13. The path ends in the object itself, so nothing that
    // it might mean as a link is reached. It starts at the process's own `/proc`: who may mount
    // over that could lead these calls elsewhere, and is the super-user of our mounts anyway.

    pub(super) fn xattr(&self, object: &Arc<Object>, name: &[u8]) -> Result<Vec<u8>> {
        let place = self.place(object)?;
        let path = HostFs::proc_path(&*place);
        read_sized(
            |buf| retry(|| getxattr(path.as_str(), name, &mut *buf)),
            || retry(|| getxattr_query(path.as_str(), name)),
        )
    }

    pub(super) fn set_xattr(
        &self,
        object: &Arc<Object>,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> Result<()> {
        self.writable()?;
        let place = self.place(object)?;
        let path = HostFs::proc_path(&*place);
        let flags = match how {
            SetXattr::Any => XattrFlags::empty(),
            SetXattr::Create => XattrFlags::CREATE,
            SetXattr::Replace => XattrFlags::REPLACE,
        };
        retry(|| rustix::fs::setxattr(path.as_str(), name, value, flags))
    }

    /// The `trusted` ones only for the super-user, as on the host.
    pub(super) fn list_xattrs(&self, cx: &Context, object: &Arc<Object>) -> Result<Vec<u8>> {
        let place = self.place(object)?;
        let path = HostFs::proc_path(&*place);
        let mut list = read_sized(
            |buf| retry(|| listxattr(path.as_str(), &mut *buf)),
            || retry(|| listxattr_query(path.as_str())),
        )?;
        if cx.uid != 0 {
            let names = list.split_inclusive(|&b| b == 0);
            list = names.filter(|name| !name.starts_with(b"trusted.")).flatten().copied().collect();
        }
        Ok(list)
    }

    pub(super) fn remove_xattr(&self, object: &Arc<Object>, name: &[u8]) -> Result<()> {
        self.writable()?;
        let place = self.place(object)?;
        let path = HostFs::proc_path(&*place);
        retry(|| rustix::fs::removexattr(path.as_str(), name))
    }

    pub(super) fn link_target(&self, object: &Arc<Object>) -> Result<Vec<u8>> {
        if object.kind != FileType::Symlink {
            return Err(Errno::EINVAL);
        }
        let place = self.place(object)?;
        let target = retry(|| rustix::fs::readlinkat(place.as_fd(), c"", Vec::new()))?;
        Ok(target.into_bytes())
    }
}

/// Reads something whose size is not known: into a small buffer, and if that is too small, into one
/// of the size that the host tells.
fn read_sized(
    mut read: impl FnMut(&mut [u8]) -> Result<usize>,
    size: impl Fn() -> Result<usize>,
) -> Result<Vec<u8>> {
    let mut buf = vec![0; XATTR_BYTES];
    loop {
        match read(&mut buf) {
            Ok(len) => {
                buf.truncate(len);
                return Ok(buf);
            }
            // It may grow between the two calls.
            Err(Errno::ERANGE) => buf.resize(size()?.max(buf.len() + 1), 0),
            Err(error) => return Err(error),
        }
    }
}
