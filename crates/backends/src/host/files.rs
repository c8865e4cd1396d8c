//! Opening, and what is done with an opening.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use vfscale::{Context, Entry, Errno, FileType, OpenFlags, Place, Result, SeekFor};

use super::dir::Stream;
use super::node::Object;
use super::reach::single;
use super::stat;
use super::{Handle, HostFs, Node, retry, sys};

/// The host's flags for an opening.
///
/// `DIRECT` is left out: it would ask for buffers aligned as the host's disk has it, which a front
/// end's are not. The front end serves it by not caching.
fn host_flags(flags: OpenFlags) -> OFlags {
    let access = match (flags.contains(OpenFlags::READ), flags.contains(OpenFlags::WRITE)) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        (_, false) => OFlags::RDONLY,
    };
    let map = [
        (OpenFlags::APPEND, OFlags::APPEND),
        (OpenFlags::TRUNCATE, OFlags::TRUNC),
        (OpenFlags::DIRECTORY, OFlags::DIRECTORY),
        (OpenFlags::DSYNC, OFlags::DSYNC),
        (OpenFlags::SYNC, OFlags::SYNC),
        (OpenFlags::NOATIME, OFlags::NOATIME),
    ];
    let set = map.into_iter().filter(|(ours, _)| flags.contains(*ours));
    set.fold(access, |all, (_, host)| all | host)
}

fn changes(flags: OpenFlags) -> bool {
    flags.intersects(OpenFlags::WRITE | OpenFlags::TRUNCATE)
}

impl Handle {
    fn of(object: &Object, fd: OwnedFd, flags: OpenFlags) -> Handle {
        let fd = Arc::new(fd);
        object.fds.opened(&fd);
        Handle { fd, flags, stream: None }
    }

    /// Whether content can be changed through it.
    pub(super) fn writes(&self) -> bool {
        self.stream.is_none() && self.flags.contains(OpenFlags::WRITE)
    }
}

impl HostFs {
    pub(super) fn open_object(&self, object: &Arc<Object>, flags: OpenFlags) -> Result<Handle> {
        match object.kind {
            FileType::Directory if changes(flags) => return Err(Errno::EISDIR),
            FileType::Directory => {}
            _ if flags.contains(OpenFlags::DIRECTORY) => return Err(Errno::ENOTDIR),
            FileType::Regular => {}
            FileType::Symlink => return Err(Errno::ELOOP),
            // A client's kernel opens these itself. Here it could wait for ever, or set a device in
            // motion.
            FileType::Fifo | FileType::Socket | FileType::CharDevice | FileType::BlockDevice => {
                return Err(Errno::ENXIO);
            }
        }
        if changes(flags) {
            self.writable()?;
        }
        let place = self.place(object)?;
        let host = host_flags(flags);
        let fd = match self.with_room(|| self.reopen(&*place, host)) {
            // Leaving the access time alone is for owners; whoever may not still gets the content.
            Err(Errno::EPERM) if host.contains(OFlags::NOATIME) => {
                self.with_room(|| self.reopen(&*place, host - OFlags::NOATIME))?
            }
            other => other?,
        };
        Ok(if object.kind == FileType::Directory {
            let stream = Stream::new(stat::device(&fd)?);
            Handle { stream: Some(stream), ..Handle::of(object, fd, flags) }
        } else {
            Handle::of(object, fd, flags)
        })
    }

    pub(super) fn create_file(
        &self,
        cx: &Context,
        at: Place<'_, Node>,
        perm: u32,
        flags: OpenFlags,
    ) -> Result<(Entry<Node>, Handle)> {
        self.writable()?;
        let name = single(at.name)?;
        let dir = self.place(&at.dir.0)?;
        // The access time is as new as the file, and a file that is new has nothing to cut.
        let host = host_flags(flags - OpenFlags::NOATIME - OpenFlags::TRUNCATE)
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC;
        let mode = rustix::fs::Mode::from_raw_mode(perm & 0o7777);
        let fd = self.with_room(|| {
            let _acting = self.server.act_as(cx, perm)?;
            retry(|| rustix::fs::openat(&*dir, name, host, mode))
        })?;
        let (entry, object) = self.entry(self.home.identify(&fd)?, at);
        let handle = Handle::of(&object, fd, flags);
        Ok((entry, handle))
    }
}

impl HostFs {
    /// What closing one of several descriptors of an opening does, error included.
    pub(super) fn close_one(&self, handle: &Handle) -> Result<()> {
        match self.with_room(|| retry(|| rustix::io::fcntl_dupfd_cloexec(&*handle.fd, 0))) {
            Ok(fd) => sys::close(fd),
            // Nobody could close files any more. An error that waits here is told by `fsync`.
            Err(Errno::EMFILE | Errno::ENFILE) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Reads until `buf` is full or the file ends.
pub(super) fn read_at(fd: impl AsFd, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match retry(|| rustix::io::pread(&fd, &mut buf[done..], offset + done as u64)) {
            Ok(0) => break,
            Ok(n) => done += n,
            // Also if some was read: fewer bytes than asked for mean the end of the file.
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Writes all, or up to an error. A descriptor opened to append does so whatever the offset.
pub(super) fn write_at(fd: impl AsFd, offset: u64, data: &[u8]) -> Result<usize> {
    let mut done = 0;
    while done < data.len() {
        match retry(|| rustix::io::pwrite(&fd, &data[done..], offset + done as u64)) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

pub(super) fn seek(fd: impl AsFd, offset: u64, what: SeekFor) -> Result<u64> {
    // The call takes a signed offset; no file reaches beyond.
    if i64::try_from(offset).is_err() {
        return Err(Errno::ENXIO);
    }
    let to = match what {
        SeekFor::Data => SeekFrom::Data(offset),
        SeekFor::Hole => SeekFrom::Hole(offset),
    };
    retry(|| rustix::fs::seek(&fd, to))
}

pub(super) fn allocate(fd: impl AsFd, mode: u32, offset: u64, len: u64) -> Result<()> {
    let mode = FallocateFlags::from_bits_retain(mode);
    retry(|| rustix::fs::fallocate(&fd, mode, offset, len))
}

/// Copies in one call, which may copy less. To go on here would be wrong within one file: what was
/// copied behind its end has made it longer.
pub(super) fn copy(
    (from, mut from_offset): (impl AsFd, u64),
    (to, mut to_offset): (impl AsFd, u64),
    len: u64,
) -> Result<u64> {
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    retry(|| {
        let (from_at, to_at) = (Some(&mut from_offset), Some(&mut to_offset));
        rustix::fs::copy_file_range(&from, from_at, &to, to_at, len)
    })
    .map(|copied| copied as u64)
}
