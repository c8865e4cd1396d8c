//! Open files: opening, moving data, closing.

use vfscale::{
    Context, Errno, FileSystem, FileType, InodeRef, OpenFile, OpenFlags, Result, SeekFor, SetAttr,
};

use super::{FrontEnd, GivenFile};

/// On whose account the kernel writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteFrom {
    /// A `write` on this very file.
    Caller,
    /// The page cache, which holds what was stored through a mapping. The file is any that may write.
    PageCache,
}

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const GROUP_EXEC: u32 = 0o0010;

impl<F: FileSystem> FrontEnd<F> {
    /// Opens a file.
    ///
    /// The kernel leaves the truncation of `O_TRUNC` to us, and with it what goes with every change of content by an ordinary
    /// user: a set-uid bit is cleared, and a set-gid bit of an executable.
    pub(crate) fn open(
        &self,
        cx: &Context,
        node: u64,
        flags: OpenFlags,
    ) -> Result<GivenFile<'_, F>> {
        let inode = self.inode(node)?;
        let file = self.vfs.open(cx, &inode, flags)?;
        if flags.contains(OpenFlags::TRUNCATE) && cx.uid != 0 {
            self.drop_privileges(&inode, &file)?;
        }
        self.give_file(file)
    }

    fn drop_privileges(&self, inode: &InodeRef, file: &OpenFile) -> Result<()> {
        let perm = self.vfs.getattr(inode, Some(file))?.perm;
        let set_gid = if perm & GROUP_EXEC != 0 { SET_GID } else { 0 };
        if perm & (SET_UID | set_gid) == 0 {
            return Ok(());
        }
        let change = SetAttr { perm: Some(perm & !(SET_UID | set_gid)), ..SetAttr::default() };
        // As the super-user: who may write need not own the file.
        self.vfs.setattr(&Context::root(), inode, Some(file), &change).map(drop)
    }

    pub(crate) fn read(&self, file: u64, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.vfs.read(&self.file(file)?, offset, buf)
    }

    /// Writes, all of `data` unless an error stops it on the way.
    pub(crate) fn write(
        &self,
        file: u64,
        offset: u64,
        data: &[u8],
        from: WriteFrom,
    ) -> Result<usize> {
        let file = self.file(file)?;
        if from == WriteFrom::PageCache && file.flags().contains(OpenFlags::APPEND) {
            // Stored pages belong where they are mapped, not at the end, where this file would put them.
            let plain = self.vfs.open(&Context::root(), &file.inode(), OpenFlags::WRITE)?;
            return self.write_all(&plain, offset, data);
        }
        self.write_all(&file, offset, data)
    }

    fn write_all(&self, file: &OpenFile, offset: u64, data: &[u8]) -> Result<usize> {
        let mut done = 0;
        while done < data.len() {
            match self.vfs.write(file, offset + done as u64, &data[done..]) {
                Ok(0) => break,
                Ok(written) => done += written,
                Err(Errno::EINTR) => {}
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    pub(crate) fn flush(&self, file: u64) -> Result<()> {
        self.vfs.flush(&self.file(file)?)
    }

    /// Closes a file or directory. The backend's handle goes with its last user, who may be a request still under way.
    pub(crate) fn release(&self, file: u64) -> Result<()> {
        let number = u32::try_from(file).map_err(|_| Errno::EBADF)?;
        self.close(number)
    }

    pub(crate) fn fsync(&self, file: u64, data_only: bool) -> Result<()> {
        self.vfs.fsync(&self.file(file)?, data_only)
    }

    pub(crate) fn seek(&self, file: u64, offset: u64, what: SeekFor) -> Result<u64> {
        self.vfs.seek(&self.file(file)?, offset, what)
    }

    pub(crate) fn fallocate(&self, file: u64, mode: u32, offset: u64, len: u64) -> Result<()> {
        self.vfs.fallocate(&self.file(file)?, mode, offset, len)
    }

    /// `from` and `to` are each a file and an offset in it.
    pub(crate) fn copy_range(&self, from: (u64, u64), to: (u64, u64), len: u64) -> Result<u64> {
        self.vfs.copy_range(&self.file(from.0)?, from.1, &self.file(to.0)?, to.1, len)
    }

    /// Opens a directory for listing.
    pub(crate) fn opendir(&self, cx: &Context, node: u64) -> Result<GivenFile<'_, F>> {
        let inode = self.inode(node)?;
        if inode.kind() != FileType::Directory {
            return Err(Errno::ENOTDIR);
        }
        self.give_file(self.vfs.open(cx, &inode, OpenFlags::READ | OpenFlags::DIRECTORY)?)
    }
}
