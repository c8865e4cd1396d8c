//! The system calls that `rustix` does not offer: file handles, raw directory reading, the
//! file-system identity of a thread, and a `close` that tells its error.
#![allow(
    unsafe_code,
    reason = "thin wrappers of system calls; all of the crate's unsafe code is here"
)]

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use vfscale::{Errno, Result};

/// The longest handle that the kernel makes.
const HANDLE_MAX: usize = 128;

/// The kernel's `struct file_handle` with room for the longest one.
#[repr(C)]
struct RawHandle {
    bytes: u32,
    kind: i32,
    data: [u8; HANDLE_MAX],
}

// `libc::file_handle` ends in an array without a length; ours must agree with it up to there.
const _: () = {
    assert!(offset_of!(RawHandle, bytes) == offset_of!(libc::file_handle, handle_bytes));
    assert!(offset_of!(RawHandle, kind) == offset_of!(libc::file_handle, handle_type));
    assert!(offset_of!(RawHandle, data) == offset_of!(libc::file_handle, f_handle));
};

/// A file system's own name for an inode, its generation included: it never comes to mean another
/// inode.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileHandle(
    /// Its type (an `i32`), then its bytes: one word less than two fields, in every object.
    Box<[u8]>,
);

fn last_error() -> Errno {
    io::Error::last_os_error().into()
}

/// Makes a system call until it is not interrupted. It tells failure by a negative answer.
fn uninterrupted<T: Copy + Into<i64>>(mut call: impl FnMut() -> T) -> Result<T> {
    loop {
        let answer = call();
        if answer.into() >= 0 {
            return Ok(answer);
        }
        match last_error() {
            Errno::EINTR => {}
            error => return Err(error),
        }
    }
}

/// The handle of what `fd` (which may be `O_PATH`) refers to, and the id of the mount it was
/// reached through. `None` where there are no handles: the file system makes none, or the system
/// has or allows no such call.
///
/// # Errors
/// Any other reason, which may be gone the next time: an object must not have two identities.
pub(super) fn name_to_handle(fd: impl AsFd) -> Result<Option<(FileHandle, i32)>> {
    let mut raw = RawHandle { bytes: HANDLE_MAX as u32, kind: 0, data: [0; HANDLE_MAX] };
    let mut mount = 0;
    // SAFETY: the path is an empty C string; `raw` starts with the header that the kernel expects
    // and owns the `bytes` bytes behind it that it may fill; `mount` is an int to write to. None of
    // them is kept.
    let answer = uninterrupted(|| unsafe {
        libc::name_to_handle_at(
            fd.as_fd().as_raw_fd(),
            c"".as_ptr(),
            (&raw mut raw).cast(),
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    });
    match answer {
        Err(Errno::EOPNOTSUPP | Errno::EOVERFLOW | Errno::ENOSYS | Errno::EPERM) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    let len = (raw.bytes as usize).min(HANDLE_MAX);
    let kind = raw.kind.to_ne_bytes();
    Ok(Some((FileHandle([&kind[..], &raw.data[..len]].concat().into()), mount)))
}

/// Opens an inode by its handle, as a place only (`O_PATH`). `mount` is a readable descriptor on
/// its mount.
pub(super) fn open_by_handle(mount: impl AsFd, handle: &FileHandle) -> Result<OwnedFd> {
    let (kind, data) = handle.0.split_first_chunk().ok_or(Errno::EINVAL)?;
    let kind = i32::from_ne_bytes(*kind);
    let mut raw = RawHandle { bytes: data.len() as u32, kind, data: [0; HANDLE_MAX] };
    raw.data.get_mut(..data.len()).ok_or(Errno::EINVAL)?.copy_from_slice(data);
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: `raw` starts with the header that the kernel expects, followed by at least as many
    // bytes as it says. It is not kept.
    let fd = uninterrupted(|| unsafe {
        libc::open_by_handle_at(mount.as_fd().as_raw_fd(), (&raw mut raw).cast(), flags)
    })?;
    // SAFETY: the call succeeded, so this is a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Fills `buf` with raw directory entries from the descriptor's position on; 0 at the end.
pub(super) fn getdents(fd: impl AsFd, buf: &mut [u8]) -> Result<usize> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `buf.len()` bytes to `buf`, which we borrow mutably for the
    // time of the call.
    let n = uninterrupted(|| unsafe {
        libc::syscall(libc::SYS_getdents64, fd, buf.as_mut_ptr(), buf.len())
    })?;
    Ok(n as usize)
}

/// Closes and tells what the file system says about it: network file systems report delayed errors
/// here.
pub(super) fn close(fd: OwnedFd) -> Result<()> {
    // SAFETY: `into_raw_fd` gave up ownership, so this is the only close. On an error, `EINTR`
    // included, Linux has closed it too.
    match unsafe { libc::close(fd.into_raw_fd()) } {
        0 => Ok(()),
        _ => Some(last_error()).filter(|&error| error != Errno::EINTR).map_or(Ok(()), Err),
    }
}

/// Which of the two file-system ids of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum FsId {
    User,
    Group,
}

/// Sets a file-system id of the calling thread alone, and checks that it took: the call itself
/// reports no error.
pub(super) fn set_fs_id(which: FsId, id: u32) -> Result<()> {
    let number = match which {
        FsId::User => libc::SYS_setfsuid,
        FsId::Group => libc::SYS_setfsgid,
    };
    // SAFETY: the call takes one integer, touches no memory and changes only this thread's
    // credentials.
    unsafe { libc::syscall(number, id) };
    // An id that is never valid changes nothing; the answer is the current one.
    // SAFETY: as above.
    let now = unsafe { libc::syscall(number, u32::MAX) };
    if now as u32 == id { Ok(()) } else { Err(Errno::EPERM) }
}
