//! From a request's kind to the front end's method, and from its answer to the reply.
//!
//! Each arm reads the fields of its kind in the protocol's order, calls one method and writes what it answered; nothing else is
//! decided here. Anything that was given to the client comes back as [`Done`], to be kept once the reply is delivered.

use std::ops::ControlFlow;

use vfscale::{
    Context, Errno, FileSystem, OpenFlags, RenameFlags, Result, SeekFor, SetAttr, SetTime,
    SetXattr, Timestamp,
};

use crate::front_end::{FrontEnd, Given, GivenFile, LookedUp, WriteFrom};
use crate::wire::{self, Fields, Reply, Request, opcode};

/// What answering a request gave to the client.
#[must_use = "what was given goes back unless it is kept"]
pub(crate) enum Done<'a, F: FileSystem> {
    /// Nothing that would have to come back.
    Plain,
    /// The protocol wants no reply to this.
    Silent,
    /// A lookup.
    Node(Given<'a, F>),
    /// Lookups of one piece of a listing.
    Nodes(Vec<Given<'a, F>>),
    /// An open file.
    File(GivenFile<'a, F>),
    /// A lookup and an open file.
    Created(Given<'a, F>, GivenFile<'a, F>),
}

impl<F: FileSystem> Done<'_, F> {
    /// The client has the reply.
    pub(crate) fn keep(self) {
        match self {
            Done::Plain | Done::Silent => {}
            Done::Node(node) => node.keep(),
            Done::Nodes(nodes) => nodes.into_iter().for_each(Given::keep),
            Done::File(file) => file.keep(),
            Done::Created(node, file) => {
                node.keep();
                file.keep();
            }
        }
    }
}

/// Flags of an opening's reply: the kernel keeps the pages it has; it sends no FLUSH when a descriptor is closed.
const KEEP_CACHE: u32 = 1 << 1;
const NO_FLUSH: u32 = 1 << 5;
/// The kernel reads and writes the named backing file.
const PASSTHROUGH: u32 = 1 << 7;

/// Flag of a SETXATTR: the new access list costs the file its set-group-id bit, since its owner is not in the group.
const KILL_SGID: u32 = 1 << 0;

/// What holds for all requests of a session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    /// Only this user and the super-user may ask.
    pub(crate) only: Option<u32>,
    /// Cached pages stay over an opening.
    pub(crate) keep_cache: bool,
    /// The kernel decides by access control lists, and the umask is ours to apply.
    pub(crate) access_lists: bool,
    /// Files may be read and written without us.
    pub(crate) passthrough: bool,
    /// A SETXATTR has a second word of flags.
    pub(crate) long_setxattr: bool,
}

impl Rules {
    /// Requests the kernel makes on its own account name no user; and a file, once open, is its holder's to use and close, whoever
    /// it was passed on to.
    fn refuse(&self, request: &Request<'_>) -> bool {
        use opcode::*;
        let own: &[u32] = &[
            FORGET,
            BATCH_FORGET,
            READ,
            WRITE,
            FLUSH,
            RELEASE,
            RELEASEDIR,
            FSYNC,
            FSYNCDIR,
            DESTROY,
        ];
        let own = own.contains(&request.opcode);
        self.only.is_some_and(|owner| request.uid != owner && request.uid != 0) && !own
    }

    /// The mode of something new in the directory `parent`. Without access lists the kernel has applied the umask already.
    fn masked<F: FileSystem>(
        &self,
        front: &FrontEnd<F>,
        parent: u64,
        mode: u32,
        umask: u32,
    ) -> Result<u32> {
        if self.access_lists { front.masked(parent, mode, umask & 0o777) } else { Ok(mode) }
    }

    /// Flags of the reply to an opening with these flags. What only reads has no delayed error to hear of at a close.
    /// Pages of a file that was passed through before may be older than what was written then.
    fn open_flags(&self, opened: OpenFlags, backed: bool) -> u32 {
        let flush = if opened.contains(OpenFlags::WRITE) { 0 } else { NO_FLUSH };
        let keep = if self.keep_cache && !self.passthrough { KEEP_CACHE } else { 0 };
        flush | if backed { PASSTHROUGH } else { keep }
    }

    /// What an opening's reply tells of a file that was opened with these flags.
    fn opened<F: FileSystem>(
        &self,
        file: &GivenFile<'_, F>,
        flags: OpenFlags,
        reply: &mut Reply,
    ) -> Result<()> {
        let backing = file.backing();
        reply.opened(file.number(), self.open_flags(flags, backing.is_some()), backing.unwrap_or(0))
    }
}

/// Answers one request into `reply`.
pub(crate) fn answer<'a, F: FileSystem>(
    front: &'a FrontEnd<F>,
    rules: &Rules,
    request: &Request<'_>,
    reply: &mut Reply,
) -> Result<Done<'a, F>> {
    let node = request.node;
    let mut body = request.body;
    let body = &mut body;
    let cx = &Context { uid: request.uid, gid: request.gid, groups: None, pid: request.pid };
    if rules.refuse(request) {
        return Err(Errno::EACCES);
    }
    match request.opcode {
        opcode::LOOKUP => match front.lookup(cx, node, body.name()?)? {
            LookedUp::Present(given) => return entry(given, reply),
            LookedUp::Absent(valid) => reply.absent(valid)?,
        },
        opcode::FORGET => {
            front.forget(node, body.u64()?);
            return Ok(Done::Silent);
        }
        opcode::BATCH_FORGET => {
            let count = body.u32()?;
            body.skip(4)?;
            for _ in 0..count {
                front.forget(body.u64()?, body.u64()?);
            }
            return Ok(Done::Silent);
        }
        opcode::GETATTR => {
            let (attr, valid) = front.getattr(node, getattr_file(body)?)?;
            reply.attr_reply(&attr, valid)?;
        }
        opcode::STATX => {
            let (attr, valid) = front.getattr(node, getattr_file(body)?)?;
            reply.statx_reply(&attr, valid)?;
        }
        opcode::SETATTR => {
            let (file, change) = setattr(body)?;
            let (attr, valid) = front.setattr(cx, node, file, &change)?;
            reply.attr_reply(&attr, valid)?;
        }
        opcode::READLINK => reply.bytes(&front.readlink(node)?)?,
        opcode::SYMLINK => {
            let name = body.name()?;
            return entry(front.symlink(cx, node, name, body.name()?)?, reply);
        }
        opcode::MKNOD => {
            let (mode, rdev) = (body.u32()?, body.u32()?);
            let umask = body.u32()?;
            body.skip(4)?;
            let mode = rules.masked(front, node, mode, umask)?;
            return entry(front.mknod(cx, node, body.name()?, mode, u64::from(rdev))?, reply);
        }
        opcode::MKDIR => {
            let (mode, umask) = (body.u32()?, body.u32()?);
            let mode = rules.masked(front, node, mode, umask)?;
            return entry(front.mkdir(cx, node, body.name()?, mode)?, reply);
        }
        opcode::UNLINK => front.unlink(cx, node, body.name()?)?,
        opcode::RMDIR => front.rmdir(cx, node, body.name()?)?,
        opcode::RENAME | opcode::RENAME2 => {
            let new_dir = body.u64()?;
            let mut flags = RenameFlags::empty();
            if request.opcode == opcode::RENAME2 {
                flags = RenameFlags::from_bits(body.u32()?).ok_or(Errno::EINVAL)?;
                body.skip(4)?;
            }
            let old = body.name()?;
            front.rename(cx, (node, old), (new_dir, body.name()?), flags)?;
        }
        opcode::LINK => {
            let old = body.u64()?;
            return entry(front.link(cx, old, node, body.name()?)?, reply);
        }
        opcode::OPEN => {
            let flags = open_flags(body.u32()?);
            let file = front.open(cx, node, flags)?;
            rules.opened(&file, flags, reply)?;
            return Ok(Done::File(file));
        }
        opcode::OPENDIR => {
            let file = front.opendir(cx, node)?;
            reply.opened(file.number(), 0, 0)?;
            return Ok(Done::File(file));
        }
        opcode::CREATE => {
            let (flags, mode) = (open_flags(body.u32()?), body.u32()?);
            let umask = body.u32()?;
            body.skip(4)?; // flags of no use
            let mode = rules.masked(front, node, mode, umask)?;
            let (given, file) = front.create(cx, node, body.name()?, mode, flags)?;
            reply.entry(given.entry())?;
            rules.opened(&file, flags, reply)?;
            return Ok(Done::Created(given, file));
        }
        opcode::READ => {
            let (file, offset, size) = (body.u64()?, body.u64()?, body.u32()?);
            reply.fill(size as usize, |room| front.read(file, offset, room))?;
        }
        opcode::WRITE => {
            const FROM_CACHE: u32 = 1;
            let (file, offset, size, flags) = (body.u64()?, body.u64()?, body.u32()?, body.u32()?);
            body.skip(16)?; // the lock's owner, the file's flags
            let from =
                if flags & FROM_CACHE != 0 { WriteFrom::PageCache } else { WriteFrom::Caller };
            let written = front.write(file, offset, body.bytes(size as usize)?, from)?;
            reply.u32(written as u32)?;
            reply.u32(0)?;
        }
        opcode::STATFS => reply.statfs(&front.statfs()?)?,
        opcode::RELEASE | opcode::RELEASEDIR => front.release(body.u64()?)?,
        opcode::FLUSH => front.flush(body.u64()?)?,
        opcode::FSYNC | opcode::FSYNCDIR => {
            let (file, flags) = (body.u64()?, body.u32()?);
            front.fsync(file, flags & 1 != 0)?;
        }
        opcode::READDIR => readdir(front, body, reply)?,
        opcode::READDIRPLUS => return readdir_plus(front, cx, node, body, reply),
        opcode::GETXATTR => {
            let size = body.u32()?;
            body.skip(4)?;
            value(&front.getxattr(cx, node, body.name()?)?, size, reply)?;
        }
        opcode::LISTXATTR => value(&front.listxattr(cx, node)?, body.u32()?, reply)?,
        opcode::SETXATTR => {
            let (size, flags) = (body.u32()?, body.u32()?);
            let more = if rules.long_setxattr { body.u64()? as u32 } else { 0 };
            let name = body.name()?;
            let how = match flags as i32 {
                0 => SetXattr::Any,
                libc::XATTR_CREATE => SetXattr::Create,
                libc::XATTR_REPLACE => SetXattr::Replace,
                _ => return Err(Errno::EINVAL),
            };
            front.setxattr(cx, node, name, body.bytes(size as usize)?, how)?;
            if more & KILL_SGID != 0 {
                front.clear_set_gid(cx, node)?;
            }
        }
        opcode::REMOVEXATTR => front.removexattr(cx, node, body.name()?)?,
        opcode::LSEEK => {
            let (file, offset, whence) = (body.u64()?, body.u64()?, body.u32()?);
            let what = match whence as i32 {
                libc::SEEK_DATA => SeekFor::Data,
                libc::SEEK_HOLE => SeekFor::Hole,
                _ => return Err(Errno::EINVAL),
            };
            reply.u64(front.seek(file, offset, what)?)?;
        }
        opcode::FALLOCATE => {
            let [file, offset, len] = [body.u64()?, body.u64()?, body.u64()?];
            front.fallocate(file, body.u32()?, offset, len)?;
        }
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
            let from = (body.u64()?, body.u64()?);
            body.skip(8)?; // the target's node; its file says as much
            let to = (body.u64()?, body.u64()?);
            let len = body.u64()?;
            if body.u64()? != 0 {
                return Err(Errno::EINVAL);
            }
            if request.opcode == opcode::COPY_FILE_RANGE_64 {
                reply.u64(front.copy_range(from, to, len)?)?;
            } else {
                // This form answers in 32 bits.
                reply.u32(front.copy_range(from, to, len.min(1 << 30))? as u32)?;
                reply.u32(0)?;
            }
        }
        opcode::IOCTL => return Err(Errno::ENOTTY),
        opcode::NOTIFY_REPLY => return Ok(Done::Silent),
        opcode::DESTROY => {}
        // The kernel remembers this for most kinds, and does without: access, locks, poll, bmap, interrupt, …
        _ => return Err(Errno::ENOSYS),
    }
    Ok(Done::Plain)
}

fn entry<'a, F: FileSystem>(given: Given<'a, F>, reply: &mut Reply) -> Result<Done<'a, F>> {
    reply.entry(given.entry())?;
    Ok(Done::Node(given))
}

/// The file through which attributes are asked for, if any.
fn getattr_file(body: &mut Fields<'_>) -> Result<Option<u64>> {
    const HAS_FILE: u32 = 1;
    let flags = body.u32()?;
    body.skip(4)?;
    let file = body.u64()?;
    Ok((flags & HAS_FILE != 0).then_some(file))
}

fn setattr(body: &mut Fields<'_>) -> Result<(Option<u64>, SetAttr)> {
    let valid = body.u32()?;
    body.skip(4)?;
    let (file, size) = (body.u64()?, body.u64()?);
    body.skip(8)?; // the lock's owner
    let (atime, mtime) = (body.u64()?, body.u64()?);
    body.skip(8)?; // the change time: the backend's business
    let (atime_nsec, mtime_nsec) = (body.u32()?, body.u32()?);
    body.skip(4)?;
    let mode = body.u32()?;
    body.skip(4)?;
    let (uid, gid) = (body.u32()?, body.u32()?);
    let has = |bit: u32| valid & (1 << bit) != 0;
    let time = |sec: u64, nsec, set, now| match (has(set), has(now)) {
        (_, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At(Timestamp { sec: sec as i64, nsec })),
        (false, false) => None,
    };
    let change = SetAttr {
        perm: has(0).then_some(mode & 0o7777),
        uid: has(1).then_some(uid),
        gid: has(2).then_some(gid),
        size: has(3).then_some(size),
        atime: time(atime, atime_nsec, 4, 7),
        mtime: time(mtime, mtime_nsec, 5, 8),
    };
    Ok((has(6).then_some(file), change))
}

/// The flags of `open(2)`, as this architecture has them, by name.
///
/// `O_DIRECT` ends here: it has done its work in the kernel, which passes each read and write on as it is, and the buffers
/// behind have not the caller's alignment. So do `O_NOFOLLOW` and the like, which were about the walk.
fn open_flags(raw: u32) -> OpenFlags {
    let raw = raw as i32;
    let mut flags = match raw & libc::O_ACCMODE {
        libc::O_WRONLY => OpenFlags::WRITE,
        libc::O_RDWR => OpenFlags::READ | OpenFlags::WRITE,
        _ => OpenFlags::READ,
    };
    let names = [
        (libc::O_APPEND, OpenFlags::APPEND),
        (libc::O_TRUNC, OpenFlags::TRUNCATE),
        (libc::O_CREAT, OpenFlags::CREATE),
        (libc::O_EXCL, OpenFlags::EXCLUSIVE),
        (libc::O_DSYNC, OpenFlags::DSYNC),
        (libc::O_SYNC, OpenFlags::SYNC),
        (libc::O_NONBLOCK, OpenFlags::NONBLOCK),
        (libc::O_NOATIME, OpenFlags::NOATIME),
    ];
    for (bits, flag) in names {
        flags.set(flag, raw & bits == bits);
    }
    flags
}

/// An extended attribute's value, or its length if the caller has no room yet.
fn value(value: &[u8], size: u32, reply: &mut Reply) -> Result<()> {
    match size as usize {
        0 => {
            reply.u32(value.len() as u32)?;
            reply.u32(0)
        }
        size if value.len() > size => Err(Errno::ERANGE),
        _ => reply.bytes(value),
    }
}

/// File, cookie and room for a piece of a listing.
fn listing(body: &mut Fields<'_>) -> Result<(u64, u64, usize)> {
    let (file, cookie, size) = (body.u64()?, body.u64()?, body.u32()?);
    Ok((file, cookie, (size as usize).min(wire::MAX_DATA)))
}

fn readdir<F: FileSystem>(
    front: &FrontEnd<F>,
    body: &mut Fields<'_>,
    reply: &mut Reply,
) -> Result<()> {
    let (file, cookie, room) = listing(body)?;
    front.readdir(file, cookie, &mut |entry| {
        let fits = reply.data_len() + wire::dirent_size(entry.name.len(), false) <= room;
        let kind = entry.kind.map_or(0, |kind| kind as u32);
        if fits && reply.dirent(entry.name, entry.ino, kind, entry.next).is_ok() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })
}

fn readdir_plus<'a, F: FileSystem>(
    front: &'a FrontEnd<F>,
    cx: &Context,
    node: u64,
    body: &mut Fields<'_>,
    reply: &mut Reply,
) -> Result<Done<'a, F>> {
    let (file, cookie, room) = listing(body)?;
    let mut used = 0;
    let fits = |name_len| {
        used += wire::dirent_size(name_len, true);
        used <= room
    };
    let mut nodes = Vec::new();
    for entry in front.readdir_plus(cx, node, file, cookie, fits)? {
        let listed = &entry.listed;
        match &entry.given {
            Some(given) => reply.entry(given.entry())?,
            None => reply.no_entry()?,
        }
        let attr = entry.given.as_ref().map(|given| given.entry().attr);
        let kind = attr.map(|attr| attr.kind).or(listed.kind).map_or(0, |kind| kind as u32);
        let ino = attr.map_or(listed.ino, |attr| attr.ino);
        reply.dirent(&listed.name, ino, kind, listed.next)?;
        nodes.extend(entry.given);
    }
    Ok(Done::Nodes(nodes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_flags_by_name() {
        let flags = |raw: i32| open_flags(raw as u32);
        assert_eq!(flags(libc::O_RDONLY), OpenFlags::READ);
        assert_eq!(flags(libc::O_RDWR | libc::O_DIRECT), OpenFlags::READ | OpenFlags::WRITE);
        // O_SYNC holds the bit of O_DSYNC.
        assert_eq!(flags(libc::O_DSYNC), OpenFlags::READ | OpenFlags::DSYNC);
        assert_eq!(
            flags(libc::O_WRONLY | libc::O_SYNC | libc::O_TRUNC | libc::O_APPEND),
            OpenFlags::WRITE
                | OpenFlags::SYNC
                | OpenFlags::DSYNC
                | OpenFlags::TRUNCATE
                | OpenFlags::APPEND
        );
    }
}
