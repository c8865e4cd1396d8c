//! Open files: opening, reading, writing, listing.

use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;

use crate::file::OpenFile;
use crate::inode::InodeRef;
use crate::superblock::Count;
use crate::{Context, DirEntry, Errno, FileSystem, FileType, OpenFlags, Result, SeekFor, Vfs};

impl<F: FileSystem> Vfs<F> {
    /// Opens a file, or a directory with [`OpenFlags::DIRECTORY`].
    ///
    /// # Errors
    /// `ENOTDIR` for a file opened as a directory, `EISDIR` for a directory opened for writing, `ELOOP` for a symbolic link; what the
    /// backend answers.
    pub fn open(&self, cx: &Context, inode: &InodeRef, flags: OpenFlags) -> Result<OpenFile> {
        let is_dir = inode.kind() == FileType::Directory;
        if inode.kind() == FileType::Symlink {
            return Err(Errno::ELOOP);
        }
        if flags.contains(OpenFlags::DIRECTORY) && !is_dir {
            return Err(Errno::ENOTDIR);
        }
        if is_dir && flags.intersects(OpenFlags::WRITE | OpenFlags::TRUNCATE) {
            return Err(Errno::EISDIR);
        }
        let flags = if is_dir { flags | OpenFlags::DIRECTORY } else { flags };
        let handle = self.fs.open(cx, &*self.node(inode)?, flags)?;
        if flags.contains(OpenFlags::TRUNCATE) {
            inode.0.forget_attr();
        }
        self.opened(inode.clone(), flags, handle)
    }

    pub(crate) fn opened(
        &self,
        inode: InodeRef,
        flags: OpenFlags,
        handle: F::Handle,
    ) -> Result<OpenFile> {
        self.superblock().bump(Count::Open);
        OpenFile::new(inode, flags, Box::new(handle))
    }

    /// Runs `f` on the backend's own descriptor of this file, if it offers one ([`FileSystem::descriptor`]). Who changes the file through
    /// it tells the core by [`forget_attr`](Self::forget_attr).
    pub fn with_descriptor<R>(
        &self,
        file: &OpenFile,
        f: impl FnOnce(BorrowedFd<'_>) -> R,
    ) -> Option<R> {
        let ran = file.with_handle(|handle| Ok(self.fs.descriptor(handle).map(f)));
        ran.ok().flatten()
    }

    /// Reads at `offset`; answers with the number of bytes, less than asked only at the end of the file.
    ///
    /// # Errors
    /// `EBADF` if it is not open for reading.
    pub fn read(&self, file: &OpenFile, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if !file.flags().contains(OpenFlags::READ) {
            return Err(Errno::EBADF);
        }
        file.with_handle(|handle| self.fs.read(handle, offset, buf))
    }

    /// Writes at `offset`, at the end for a file opened with [`OpenFlags::APPEND`]; answers with the number of bytes.
    ///
    /// # Errors
    /// `EBADF` if it is not open for writing.
    pub fn write(&self, file: &OpenFile, offset: u64, data: &[u8]) -> Result<usize> {
        if !file.flags().contains(OpenFlags::WRITE) {
            return Err(Errno::EBADF);
        }
        let result = file.with_handle(|handle| self.fs.write(handle, offset, data));
        file.forget_attr();
        result
    }

    /// One descriptor of this opening was closed: reports what earlier writes could not.
    ///
    /// # Errors
    /// Those of delayed writes.
    pub fn flush(&self, file: &OpenFile) -> Result<()> {
        file.with_handle(|handle| self.fs.flush(handle))
    }

    /// Makes a file or directory durable; only its data if `data_only`.
    ///
    /// # Errors
    /// Those of writing back.
    pub fn fsync(&self, file: &OpenFile, data_only: bool) -> Result<()> {
        file.with_handle(|handle| self.fs.fsync(handle, data_only))
    }

    /// Lists an open directory from `cookie` on: 0, or [`DirEntry::next`] of an entry seen before. Stops when `emit` breaks.
    ///
    /// # Errors
    /// `ENOTDIR` if it is none.
    pub fn readdir(
        &self,
        file: &OpenFile,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        if !file.flags().contains(OpenFlags::DIRECTORY) {
            return Err(Errno::ENOTDIR);
        }
        file.with_handle(|handle| self.fs.readdir(handle, cookie, emit))
    }

    /// The offset of the next data or hole at or behind `offset`.
    ///
    /// # Errors
    /// `ENXIO` at or past the end; `ENOSYS` if the backend knows no holes.
    pub fn seek(&self, file: &OpenFile, offset: u64, what: SeekFor) -> Result<u64> {
        file.with_handle(|handle| self.fs.seek(handle, offset, what))
    }

    /// Allocates or frees space. `mode` is Linux's `FALLOC_FL_*`.
    ///
    /// # Errors
    /// `EBADF` if it is not open for writing; `EOPNOTSUPP`.
    pub fn fallocate(&self, file: &OpenFile, mode: u32, offset: u64, len: u64) -> Result<()> {
        if !file.flags().contains(OpenFlags::WRITE) {
            return Err(Errno::EBADF);
        }
        let result = file.with_handle(|handle| self.fs.fallocate(handle, mode, offset, len));
        file.forget_attr();
        result
    }

    /// Copies from one open file to another; answers with the number of bytes.
    ///
    /// # Errors
    /// `EBADF` if one is not open for it; `EOPNOTSUPP`: read and write instead.
    pub fn copy_range(
        &self,
        from: &OpenFile,
        from_offset: u64,
        to: &OpenFile,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let (read, write) = (from.flags(), to.flags());
        if !read.contains(OpenFlags::READ) || !write.contains(OpenFlags::WRITE) {
            return Err(Errno::EBADF);
        }
        let result = from.with_handle(|source| {
            to.with_handle(|target| self.fs.copy_range(source, from_offset, target, to_offset, len))
        });
        to.forget_attr();
        result
    }
}
