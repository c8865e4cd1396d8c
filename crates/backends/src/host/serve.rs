//! The backend trait of a host directory: each method finds the descriptor and calls the part that
//! does it.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::AtFlags;
use vfscale::{
    Attr, Context, DirEntry, Entry, Errno, FileSystem, OpenFlags, Place, RenameFlags, Result,
    SeekFor, SetAttr, SetXattr, StatFs,
};

use super::{Handle, HostFs, Node, files, retry};

impl FileSystem for HostFs {
    type Node = Node;
    type Handle = Handle;

    fn root(&self) -> Result<Entry<Node>> {
        let attr = self.home.attr(&*self.place(&self.root)?)?;
        Ok(Entry { key: self.root.key, attr, node: Node(self.root.clone()) })
    }

    fn lookup(&self, _cx: &Context, at: Place<'_, Node>) -> Result<Entry<Node>> {
        self.find(at)
    }

    fn found_again(&self, known: &Node, again: &Node) {
        self.learn(&known.0, &again.0);
    }

    fn descriptor<'a>(&self, handle: &'a Handle) -> Option<BorrowedFd<'a>> {
        Some(handle.fd.as_fd())
    }

    fn getattr(&self, node: &Node, handle: Option<&Handle>) -> Result<Attr> {
        match handle {
            Some(handle) => self.home.attr(&*handle.fd),
            None => self.home.attr(&*self.place(&node.0)?),
        }
    }

    fn setattr(
        &self,
        _cx: &Context,
        node: &Node,
        handle: Option<&Handle>,
        change: &SetAttr,
    ) -> Result<Attr> {
        self.change(&node.0, handle, change)
    }

    fn readlink(&self, node: &Node) -> Result<Vec<u8>> {
        self.link_target(&node.0)
    }

    fn mknod(
        &self,
        cx: &Context,
        at: Place<'_, Node>,
        mode: u32,
        rdev: u64,
    ) -> Result<Entry<Node>> {
        self.make_node(cx, at, mode, rdev)
    }

    fn mkdir(&self, cx: &Context, at: Place<'_, Node>, perm: u32) -> Result<Entry<Node>> {
        self.make_dir(cx, at, perm)
    }

    fn symlink(&self, cx: &Context, at: Place<'_, Node>, target: &[u8]) -> Result<Entry<Node>> {
        self.make_link(cx, at, target)
    }

    fn link(&self, _cx: &Context, node: &Node, at: Place<'_, Node>) -> Result<Attr> {
        self.add_name(&node.0, at)
    }

    fn unlink(&self, _cx: &Context, at: Place<'_, Node>, node: &Node) -> Result<()> {
        self.remove_name(at, &node.0, AtFlags::empty())
    }

    fn rmdir(&self, _cx: &Context, at: Place<'_, Node>, node: &Node) -> Result<()> {
        self.remove_name(at, &node.0, AtFlags::REMOVEDIR)
    }

    fn rename(
        &self,
        _cx: &Context,
        from: Place<'_, Node>,
        to: Place<'_, Node>,
        flags: RenameFlags,
        moved: &Node,
        replaced: Option<&Node>,
    ) -> Result<()> {
        self.move_name(from, to, flags, &moved.0, replaced.map(|node| &node.0))
    }

    fn create(
        &self,
        cx: &Context,
        at: Place<'_, Node>,
        perm: u32,
        flags: OpenFlags,
    ) -> Result<(Entry<Node>, Handle)> {
        self.create_file(cx, at, perm, flags)
    }

    fn open(&self, _cx: &Context, node: &Node, flags: OpenFlags) -> Result<Handle> {
        self.open_object(&node.0, flags)
    }

    fn read(&self, handle: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        files::read_at(&*handle.fd, offset, buf)
    }

    fn write(&self, handle: &Handle, offset: u64, data: &[u8]) -> Result<usize> {
        files::write_at(&*handle.fd, offset, data)
    }

    fn flush(&self, handle: &Handle) -> Result<()> {
        self.close_one(handle)
    }

    fn fsync(&self, handle: &Handle, data_only: bool) -> Result<()> {
        if data_only {
            retry(|| rustix::fs::fdatasync(&*handle.fd))
        } else {
            retry(|| rustix::fs::fsync(&*handle.fd))
        }
    }

    fn readdir(
        &self,
        handle: &Handle,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let stream = handle.stream.as_ref().ok_or(Errno::ENOTDIR)?;
        stream.read(&self.home, &handle.fd, cookie, emit)
    }

    fn statfs(&self) -> Result<StatFs> {
        let root = self.place(&self.root)?;
        let stat = retry(|| rustix::fs::fstatvfs(&*root))?;
        Ok(StatFs {
            blocks: stat.f_blocks,
            bfree: stat.f_bfree,
            bavail: stat.f_bavail,
            files: stat.f_files,
            ffree: stat.f_ffree,
            bsize: u32::try_from(stat.f_bsize).unwrap_or(u32::MAX),
            frsize: u32::try_from(stat.f_frsize).unwrap_or(u32::MAX),
            namelen: u32::try_from(stat.f_namemax).unwrap_or(u32::MAX),
        })
    }

    fn getxattr(&self, _cx: &Context, node: &Node, name: &[u8]) -> Result<Vec<u8>> {
        self.xattr(&node.0, name)
    }

    fn setxattr(
        &self,
        _cx: &Context,
        node: &Node,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> Result<()> {
        self.set_xattr(&node.0, name, value, how)
    }

    fn listxattr(&self, cx: &Context, node: &Node) -> Result<Vec<u8>> {
        self.list_xattrs(cx, &node.0)
    }

    fn removexattr(&self, _cx: &Context, node: &Node, name: &[u8]) -> Result<()> {
        self.remove_xattr(&node.0, name)
    }

    fn seek(&self, handle: &Handle, offset: u64, what: SeekFor) -> Result<u64> {
        // A directory's position is its listing's.
        if handle.stream.is_some() {
            return Err(Errno::EISDIR);
        }
        files::seek(&*handle.fd, offset, what)
    }

    fn fallocate(&self, handle: &Handle, mode: u32, offset: u64, len: u64) -> Result<()> {
        files::allocate(&*handle.fd, mode, offset, len)
    }

    fn copy_range(
        &self,
        from: &Handle,
        from_offset: u64,
        to: &Handle,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        files::copy((&*from.fd, from_offset), (&*to.fd, to_offset), len)
    }
}
