//! The backend trait of a memory file system: each method checks, then calls the part that does it.

use std::ops::ControlFlow;

use vfscale::sync::QRwLock;
use vfscale::{
    Attr, Context, DirEntry, Entry, Errno, FileSystem, FileType, OpenFlags, Place, RenameFlags,
    Result, SeekFor, SetAttr, SetXattr, StatFs,
};

use super::content::{Content, SIZE_MAX};
use super::dir::{COOKIE_DOT, COOKIE_DOT_DOT};
use super::inode::Body;
use super::{Handle, MemFs, Node, PAGE, xattr};

/// The longest target of a symbolic link, in bytes: a path with its NUL is 4096.
const TARGET_MAX: usize = 4095;

/// Entries that a listing copies out at a time.
const LIST_BATCH: usize = 64;

/// Bytes that `copy_range` moves at a time.
const COPY_CHUNK: u64 = 256 * 1024;

/// Linux's `FALLOC_FL_*` as far as they are served.
const KEEP_SIZE: u32 = 0x01;
const PUNCH_HOLE: u32 = 0x02;
const ZERO_RANGE: u32 = 0x10;

impl FileSystem for MemFs {
    type Node = Node;
    type Handle = Handle;

    fn root(&self) -> Result<Entry<Node>> {
        Ok(Node::entry(self.root.0.clone()))
    }

    fn lookup(&self, _cx: &Context, at: Place<'_, Node>) -> Result<Entry<Node>> {
        self.find(at)
    }

    fn getattr(&self, node: &Node, _handle: Option<&Handle>) -> Result<Attr> {
        Ok(node.0.attr())
    }

    fn setattr(
        &self,
        cx: &Context,
        node: &Node,
        _handle: Option<&Handle>,
        change: &SetAttr,
    ) -> Result<Attr> {
        node.0.set_attr(cx, change)?;
        Ok(node.0.attr())
    }

    fn readlink(&self, node: &Node) -> Result<Vec<u8>> {
        let Body::Symlink(target) = &node.0.body else { return Err(Errno::EINVAL) };
        node.0.touch_accessed();
        Ok(target.to_vec())
    }

    fn mknod(
        &self,
        cx: &Context,
        at: Place<'_, Node>,
        mode: u32,
        rdev: u64,
    ) -> Result<Entry<Node>> {
        // A mode without a type means a regular file, as the system call has it.
        let kind =
            if mode >> 12 == 0 { Some(FileType::Regular) } else { FileType::from_mode(mode) };
        let (body, rdev) = match kind.ok_or(Errno::EINVAL)? {
            FileType::Regular => (Body::Regular(QRwLock::new(Content::new(&self.space))), 0),
            FileType::Fifo | FileType::Socket => (Body::Special, 0),
            FileType::CharDevice | FileType::BlockDevice => (Body::Special, rdev),
            FileType::Directory | FileType::Symlink => return Err(Errno::EPERM),
        };
        self.make(cx, at, kind.unwrap_or(FileType::Regular), mode, rdev, body)
    }

    fn mkdir(&self, cx: &Context, at: Place<'_, Node>, perm: u32) -> Result<Entry<Node>> {
        self.make_directory(cx, at, perm)
    }

    fn symlink(&self, cx: &Context, at: Place<'_, Node>, target: &[u8]) -> Result<Entry<Node>> {
        match target.len() {
            0 => return Err(Errno::ENOENT),
            len if len > TARGET_MAX => return Err(Errno::ENAMETOOLONG),
            _ => {}
        }
        self.make(cx, at, FileType::Symlink, 0o777, 0, Body::Symlink(target.into()))
    }

    fn link(&self, _cx: &Context, node: &Node, at: Place<'_, Node>) -> Result<Attr> {
        self.add_name(&node.0, at)?;
        Ok(node.0.attr())
    }

    fn unlink(&self, _cx: &Context, at: Place<'_, Node>, _node: &Node) -> Result<()> {
        self.remove_name(at, false).map(drop)
    }

    fn rmdir(&self, _cx: &Context, at: Place<'_, Node>, _node: &Node) -> Result<()> {
        self.remove_name(at, true).map(drop)
    }

    fn rename(
        &self,
        _cx: &Context,
        from: Place<'_, Node>,
        to: Place<'_, Node>,
        flags: RenameFlags,
        _moved: &Node,
        _replaced: Option<&Node>,
    ) -> Result<()> {
        self.move_name(from, to, flags)
    }

    fn create(
        &self,
        cx: &Context,
        at: Place<'_, Node>,
        perm: u32,
        flags: OpenFlags,
    ) -> Result<(Entry<Node>, Handle)> {
        let body = Body::Regular(QRwLock::new(Content::new(&self.space)));
        let entry = self.make(cx, at, FileType::Regular, perm, 0, body)?;
        let handle = Handle { inode: entry.node.0.clone(), flags };
        Ok((entry, handle))
    }

    fn open(&self, _cx: &Context, node: &Node, flags: OpenFlags) -> Result<Handle> {
        let writes = flags.intersects(OpenFlags::WRITE | OpenFlags::TRUNCATE);
        match node.kind() {
            FileType::Directory if writes => return Err(Errno::EISDIR),
            FileType::Directory => {}
            _ if flags.contains(OpenFlags::DIRECTORY) => return Err(Errno::ENOTDIR),
            FileType::Regular => {}
            FileType::Symlink => return Err(Errno::ELOOP),
            // Their other ends are in the client's kernel, which opens them without asking us.
            FileType::Fifo | FileType::Socket | FileType::CharDevice | FileType::BlockDevice => {
                return Err(Errno::ENXIO);
            }
        }
        if flags.contains(OpenFlags::TRUNCATE) {
            node.0.content()?.write().set_size(0)?;
            node.0.touch_modified();
        }
        Ok(Handle { inode: node.0.clone(), flags })
    }

    fn read(&self, handle: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        handle.check(OpenFlags::READ)?;
        let done = handle.inode.content()?.read().read(offset, buf);
        if !handle.flags.contains(OpenFlags::NOATIME) {
            handle.inode.touch_accessed();
        }
        Ok(done)
    }

    fn write(&self, handle: &Handle, offset: u64, data: &[u8]) -> Result<usize> {
        handle.check(OpenFlags::WRITE)?;
        let mut content = handle.inode.content()?.write();
        let append = handle.flags.contains(OpenFlags::APPEND);
        let offset = if append { content.size() } else { offset };
        let done = content.write(offset, data)?;
        drop(content);
        if done > 0 {
            handle.inode.touch_modified();
        }
        Ok(done)
    }

    fn readdir(
        &self,
        handle: &Handle,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let inode = &handle.inode;
        let directory = inode.directory()?;
        if directory.population.is_removed() {
            return Err(Errno::ENOENT);
        }
        inode.touch_accessed();
        let kind = Some(FileType::Directory);
        // The root is its own parent.
        let parent = directory.parent().map_or(inode.ino, |parent| parent.ino);
        let dots = [(&b"."[..], inode.ino, COOKIE_DOT), (&b".."[..], parent, COOKIE_DOT_DOT)];
        for (name, ino, next) in dots {
            if cookie < next && emit(DirEntry { name, ino, kind, next }).is_break() {
                return Ok(());
            }
        }
        let mut cookie = cookie.max(COOKIE_DOT_DOT);
        loop {
            // `emit` may come back to this directory, so it runs without the lock.
            let batch = directory.batch(cookie, LIST_BATCH);
            for (next, slot) in &batch {
                let (ino, kind) = (slot.inode.ino, Some(slot.inode.kind));
                if emit(DirEntry { name: &slot.name, ino, kind, next: *next }).is_break() {
                    return Ok(());
                }
            }
            match batch.last() {
                Some((last, _)) if batch.len() == LIST_BATCH => cookie = *last,
                _ => return Ok(()),
            }
        }
    }

    fn statfs(&self) -> Result<StatFs> {
        Ok(self.space.statfs())
    }

    fn getxattr(&self, _cx: &Context, node: &Node, name: &[u8]) -> Result<Vec<u8>> {
        xattr::get(&node.0, name)
    }

    fn setxattr(
        &self,
        _cx: &Context,
        node: &Node,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> Result<()> {
        xattr::set(&node.0, name, value, how)
    }

    fn listxattr(&self, _cx: &Context, node: &Node) -> Result<Vec<u8>> {
        Ok(xattr::list(&node.0))
    }

    fn removexattr(&self, _cx: &Context, node: &Node, name: &[u8]) -> Result<()> {
        xattr::remove(&node.0, name)
    }

    fn seek(&self, handle: &Handle, offset: u64, what: SeekFor) -> Result<u64> {
        handle.inode.content()?.read().seek(offset, what)
    }

    fn fallocate(&self, handle: &Handle, mode: u32, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        let served = [0, KEEP_SIZE, PUNCH_HOLE | KEEP_SIZE, ZERO_RANGE, ZERO_RANGE | KEEP_SIZE];
        if !served.contains(&mode) {
            return Err(Errno::EOPNOTSUPP);
        }
        handle.check(OpenFlags::WRITE)?;
        let end = offset.checked_add(len).filter(|&end| end <= SIZE_MAX).ok_or(Errno::EFBIG)?;
        let mut content = handle.inode.content()?.write();
        match mode & !KEEP_SIZE {
            0 => content.reserve(offset..end)?,
            PUNCH_HOLE => content.punch(offset..end),
            _ => {
                content.reserve(offset..end)?;
                content.zero(offset..end);
            }
        }
        if mode & KEEP_SIZE == 0 {
            content.grow(end);
        }
        drop(content);
        handle.inode.touch_modified();
        Ok(())
    }

    fn copy_range(
        &self,
        from: &Handle,
        from_offset: u64,
        to: &Handle,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let (source, target) = (from.inode.content()?, to.inode.content()?);
        from.check(OpenFlags::READ)?;
        to.check(OpenFlags::WRITE)?;
        if to.flags.contains(OpenFlags::APPEND) {
            return Err(Errno::EBADF);
        }
        let size = source.read().size();
        let len = len.min(size.saturating_sub(from_offset));
        if from.inode.ino == to.inode.ino && from_offset.abs_diff(to_offset) < len {
            return Err(Errno::EINVAL);
        }
        if to_offset.checked_add(len).is_none_or(|end| end > SIZE_MAX) {
            return Err(Errno::EFBIG);
        }
        let mut done = 0;
        while done < len {
            let (at, onto) = (from_offset + done, to_offset + done);
            // A hole is copied as a hole, so a sparse file stays one.
            let data = source.read().seek(at, SeekFor::Data).unwrap_or(u64::MAX);
            let hole = data.saturating_sub(at).min(len - done);
            if hole > 0 {
                let mut target = target.write();
                target.punch(onto..onto + hole);
                target.grow(onto + hole);
                done += hole;
                continue;
            }
            let end = source.read().seek(at, SeekFor::Hole).unwrap_or(at);
            let want = end.saturating_sub(at).min(len - done).min(COPY_CHUNK);
            let mut chunk = vec![0; want as usize];
            let got = source.read().read(at, &mut chunk);
            if got == 0 {
                break;
            }
            match target.write().write(onto, &chunk[..got]) {
                Ok(written) => {
                    done += written as u64;
                    if written < got {
                        break;
                    }
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        if done > 0 {
            from.inode.touch_accessed();
            to.inode.touch_modified();
        }
        Ok(done)
    }
}

impl Handle {
    /// `EBADF` if this opening does not allow it.
    fn check(&self, needs: OpenFlags) -> Result<()> {
        if self.flags.contains(needs) { Ok(()) } else { Err(Errno::EBADF) }
    }
}

const _: () = assert!(COPY_CHUNK.is_multiple_of(PAGE));
