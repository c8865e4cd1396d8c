//! The messages of the FUSE protocol, version 7, as bytes.
//!
//! Numbers are in the machine's own byte order. A request is a header of 40 bytes, then numbers and names in the order of its
//! kind; a reply a header of 16 bytes, then the like. [`Fields`] reads requests front to back and answers `EINVAL` for one that
//! is cut short; it never panics on what a client sends. [`Reply`] is a buffer that a server thread fills again and again.
//!
//! What a request of each kind holds stands in [`crate::dispatch`], beside the code that reads it.

use std::time::Duration;

use vfscale::{Attr, Errno, Result, StatFs, Timestamp};

use crate::front_end::Entry;

/// Kinds of requests.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const NOTIFY_REPLY: u32 = 41;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const STATX: u32 = 52;
    pub(crate) const COPY_FILE_RANGE_64: u32 = 53;
}

/// The most bytes of data in one request or reply.
pub(crate) const MAX_DATA: usize = 1 << 20;

/// A buffer for requests holds the data and whatever goes before it.
pub(crate) const REQUEST_BYTES: usize = MAX_DATA + 4096;

const REQUEST_HEADER: usize = 40;
const REPLY_HEADER: usize = 16;
/// Nothing is promised to be valid for longer, 68 years: a kernel adds it to the time now.
const MAX_VALID: u64 = i32::MAX as u64;
/// What a lookup tells of the found node.
const ENTRY: usize = 128;
/// A directory entry without its name.
const DIRENT: usize = 24;

/// A request: who asks what of which node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
    pub(crate) node: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
    pub(crate) body: Fields<'a>,
}

impl<'a> Request<'a> {
    /// Takes a message apart. `None` if it does not even hold a header, so that nobody can be answered.
    pub(crate) fn parse(message: &'a [u8]) -> Option<Request<'a>> {
        let mut header = Fields(message.get(..REQUEST_HEADER)?);
        let len = header.u32().ok()? as usize;
        let opcode = header.u32().ok()?;
        let unique = header.u64().ok()?;
        let node = header.u64().ok()?;
        let [uid, gid, pid] = [header.u32().ok()?, header.u32().ok()?, header.u32().ok()?];
        // Extensions stand at the end, counted in units of 8 bytes. None is asked for, so none is read.
        let extensions = usize::from(u16::from_ne_bytes([message[36], message[37]])) * 8;
        let end = len.min(message.len()).checked_sub(extensions)?;
        let body = Fields(message.get(REQUEST_HEADER..end)?);
        Some(Request { opcode, unique, node, uid, gid, pid, body })
    }
}

/// What is still unread of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Errno::EINVAL)?;
        self.0 = rest;
        Ok(*head)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_ne_bytes(self.take()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_ne_bytes(self.take()?))
    }

    /// Passes over fields that nobody needs.
    pub(crate) fn skip(&mut self, bytes: usize) -> Result<()> {
        self.0 = self.0.get(bytes..).ok_or(Errno::EINVAL)?;
        Ok(())
    }

    /// The bytes up to the next NUL.
    pub(crate) fn name(&mut self) -> Result<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == 0).ok_or(Errno::EINVAL)?;
        let name = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Ok(name)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Errno::EINVAL)?;
        self.0 = rest;
        Ok(head)
    }
}

/// A reply under way. Its room is fixed: [`MAX_DATA`] and the header.
#[derive(Debug)]
pub(crate) struct Reply {
    bytes: Box<[u8]>,
    len: usize,
}

impl Reply {
    pub(crate) fn new() -> Reply {
        Reply { bytes: vec![0; REPLY_HEADER + MAX_DATA].into_boxed_slice(), len: REPLY_HEADER }
    }

    /// Empties it for the next request.
    pub(crate) fn clear(&mut self) {
        self.len = REPLY_HEADER;
    }

    /// The finished message: what was put, or the error alone.
    pub(crate) fn finish(&mut self, unique: u64, error: Option<Errno>) -> &[u8] {
        if error.is_some() {
            self.clear();
        }
        let code = error.map_or(0, |error| -error.raw());
        self.bytes[..4].copy_from_slice(&(self.len as u32).to_ne_bytes());
        self.bytes[4..8].copy_from_slice(&code.to_ne_bytes());
        self.bytes[8..16].copy_from_slice(&unique.to_ne_bytes());
        &self.bytes[..self.len]
    }

    /// Bytes put so far.
    pub(crate) fn data_len(&self) -> usize {
        self.len - REPLY_HEADER
    }

    /// Puts bytes; `ERANGE` if they are more than a reply holds.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let end = self.len + bytes.len();
        self.bytes.get_mut(self.len..end).ok_or(Errno::ERANGE)?.copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    /// Lets `fill` write up to `size` bytes in place, and keeps as many as it says.
    pub(crate) fn fill(
        &mut self,
        size: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize>,
    ) -> Result<()> {
        let size = size.min(self.bytes.len() - self.len);
        let filled = fill(&mut self.bytes[self.len..self.len + size])?;
        self.len += filled.min(size);
        Ok(())
    }

    pub(crate) fn u32(&mut self, value: u32) -> Result<()> {
        self.bytes(&value.to_ne_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> Result<()> {
        self.bytes(&value.to_ne_bytes())
    }

    fn u16(&mut self, value: u16) -> Result<()> {
        self.bytes(&value.to_ne_bytes())
    }

    fn zeros(&mut self, count: usize) -> Result<()> {
        self.fill(count, |room| {
            room.fill(0);
            Ok(room.len())
        })
    }

    /// What a lookup, or anything else that makes a node known, answers.
    pub(crate) fn entry(&mut self, entry: &Entry) -> Result<()> {
        self.u64(entry.node)?;
        self.u64(entry.generation)?;
        self.u64(seconds(entry.entry_valid))?;
        self.u64(seconds(entry.attr_valid))?;
        self.u32(entry.entry_valid.subsec_nanos())?;
        self.u32(entry.attr_valid.subsec_nanos())?;
        self.attr(&entry.attr)
    }

    /// The name is absent, and the client may believe so for a while.
    pub(crate) fn absent(&mut self, valid: Duration) -> Result<()> {
        self.zeros(16)?;
        self.u64(seconds(valid))?;
        self.u64(0)?;
        self.u32(valid.subsec_nanos())?;
        self.zeros(ENTRY - 36)
    }

    fn attr(&mut self, attr: &Attr) -> Result<()> {
        for value in [attr.ino, attr.size, attr.blocks] {
            self.u64(value)?;
        }
        let times = [attr.atime, attr.mtime, attr.ctime];
        for time in times {
            self.u64(time.sec as u64)?;
        }
        for time in times {
            self.u32(time.nsec)?;
        }
        // The kernel's own coding of a device number is the low half of `st_rdev`.
        let rdev = attr.rdev as u32;
        for value in [mode(attr), attr.nlink, attr.uid, attr.gid, rdev, attr.blksize, 0] {
            self.u32(value)?;
        }
        Ok(())
    }

    pub(crate) fn attr_reply(&mut self, attr: &Attr, valid: Duration) -> Result<()> {
        self.u64(seconds(valid))?;
        self.u32(valid.subsec_nanos())?;
        self.u32(0)?;
        self.attr(attr)
    }

    /// As [`attr_reply`](Self::attr_reply), with the birth time.
    pub(crate) fn statx_reply(&mut self, attr: &Attr, valid: Duration) -> Result<()> {
        const BASIC: u32 = 0x7ff;
        const BIRTH: u32 = 0x800;
        self.u64(seconds(valid))?;
        self.u32(valid.subsec_nanos())?;
        self.zeros(4 + 16)?;
        self.u32(if attr.btime.is_some() { BASIC | BIRTH } else { BASIC })?;
        self.u32(attr.blksize)?;
        self.u64(0)?;
        for value in [attr.nlink, attr.uid, attr.gid] {
            self.u32(value)?;
        }
        self.u16(mode(attr) as u16)?;
        self.u16(0)?;
        for value in [attr.ino, attr.size, attr.blocks, 0] {
            self.u64(value)?;
        }
        for time in [attr.atime, attr.btime.unwrap_or_default(), attr.ctime, attr.mtime] {
            self.time(time)?;
        }
        self.u32(libc::major(attr.rdev))?;
        self.u32(libc::minor(attr.rdev))?;
        self.zeros(8 + 14 * 8)
    }

    fn time(&mut self, time: Timestamp) -> Result<()> {
        self.u64(time.sec as u64)?;
        self.u32(time.nsec)?;
        self.u32(0)
    }

    pub(crate) fn opened(&mut self, file: u32, flags: u32, backing: u32) -> Result<()> {
        self.u64(u64::from(file))?;
        self.u32(flags)?;
        self.u32(backing)
    }

    pub(crate) fn statfs(&mut self, stat: &StatFs) -> Result<()> {
        for value in [stat.blocks, stat.bfree, stat.bavail, stat.files, stat.ffree] {
            self.u64(value)?;
        }
        for value in [stat.bsize, stat.namelen, stat.frsize] {
            self.u32(value)?;
        }
        self.zeros(4 + 6 * 4)
    }

    /// One entry of a listing; [`dirent_size`] tells how much it takes.
    pub(crate) fn dirent(&mut self, name: &[u8], ino: u64, kind: u32, next: u64) -> Result<()> {
        self.u64(ino)?;
        self.u64(next)?;
        self.u32(name.len() as u32)?;
        self.u32(kind)?;
        self.bytes(name)?;
        self.zeros(name.len().wrapping_neg() % 8)
    }

    /// Stands before a listed entry of which nothing but the name is told. Takes no lookup count.
    pub(crate) fn no_entry(&mut self) -> Result<()> {
        self.zeros(ENTRY)
    }
}

fn seconds(valid: Duration) -> u64 {
    valid.as_secs().min(MAX_VALID)
}

fn mode(attr: &Attr) -> u32 {
    attr.kind.mode_bits() | (attr.perm & 0o7777)
}

/// How much an entry of a listing takes, with what a lookup tells of it or without.
pub(crate) fn dirent_size(name_len: usize, with_entry: bool) -> usize {
    (DIRENT + name_len).next_multiple_of(8) + if with_entry { ENTRY } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfscale::FileType;

    fn attr() -> Attr {
        let time = Timestamp { sec: -1, nsec: 5 };
        Attr {
            ino: 7,
            kind: FileType::Regular,
            perm: 0o4755,
            nlink: 2,
            uid: 3,
            gid: 4,
            rdev: 0,
            size: 9,
            blocks: 8,
            blksize: 4096,
            atime: time,
            mtime: time,
            ctime: time,
            btime: None,
        }
    }

    #[test]
    fn replies_have_the_protocols_sizes() {
        let mut reply = Reply::new();
        let second = Duration::from_secs(1);
        let entry =
            Entry { node: 5, generation: 1, attr: attr(), entry_valid: second, attr_valid: second };
        let mut sizes = Vec::new();
        let mut measure = |put: &dyn Fn(&mut Reply) -> Result<()>| {
            reply.clear();
            put(&mut reply).unwrap();
            sizes.push(reply.data_len());
        };
        measure(&|r| r.entry(&entry));
        measure(&|r| r.absent(second));
        measure(&|r| r.no_entry());
        measure(&|r| r.attr_reply(&attr(), second));
        measure(&|r| r.statx_reply(&attr(), second));
        measure(&|r| r.opened(3, 0, 0));
        measure(&|r| r.statfs(&StatFs::default()));
        measure(&|r| r.dirent(b"abc", 1, 8, 1));
        measure(&|r| r.dirent(b"12345678", 1, 8, 1));
        assert_eq!(sizes, [128, 128, 128, 104, 288, 16, 80, 32, 32]);
        assert_eq!(dirent_size(3, false), 32);
        assert_eq!(dirent_size(9, true), 40 + 128);
    }

    #[test]
    fn an_error_drops_what_was_put() {
        let mut reply = Reply::new();
        reply.u64(1).unwrap();
        let message = reply.finish(77, Some(Errno::ENOENT));
        assert_eq!(message.len(), 16);
        assert_eq!(message[4..8], (-2i32).to_ne_bytes());
        assert_eq!(message[8..16], 77u64.to_ne_bytes());
    }

    #[test]
    fn a_reply_never_outgrows_its_room() {
        let mut reply = Reply::new();
        assert_eq!(reply.bytes(&vec![0; MAX_DATA + 1]), Err(Errno::ERANGE));
        reply.fill(usize::MAX / 2, |room| Ok(room.len())).unwrap();
        assert_eq!(reply.data_len(), MAX_DATA);
        assert_eq!(reply.u32(1), Err(Errno::ERANGE));
    }

    #[test]
    fn short_requests_are_refused() {
        assert!(Request::parse(&[0; 39]).is_none());
        let mut message = [0u8; 48];
        message[0] = 48;
        let mut request = Request::parse(&message).unwrap();
        assert_eq!(request.body.u64(), Ok(0));
        assert_eq!(request.body.u32(), Err(Errno::EINVAL));
        let mut fields = Fields(b"ab");
        assert_eq!(fields.name(), Err(Errno::EINVAL));
        assert_eq!(fields.bytes(3), Err(Errno::EINVAL));
        // Extensions longer than the message, a length shorter than the header.
        message[36] = 255;
        assert!(Request::parse(&message).is_none());
        message[36] = 0;
        message[0] = 8;
        assert!(Request::parse(&message).is_none());
    }
}
