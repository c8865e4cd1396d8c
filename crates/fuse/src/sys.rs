//! The system calls of this crate that have no safe form: three `ioctl`s of the FUSE device.
#![allow(unsafe_code, reason = "an ioctl is what its number says; these are wrapped here")]

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl, opcode};

/// `FUSE_DEV_IOC_CLONE`: device type 229, number 0; takes a `u32`.
const CLONE: Opcode = opcode::read::<u32>(229, 0);

/// Makes `new`, just opened from the FUSE device, one more descriptor on the connection of `session`.
pub(crate) fn join_connection(
    new: BorrowedFd<'_>,
    session: BorrowedFd<'_>,
) -> rustix::io::Result<()> {
    let Ok(number) = u32::try_from(session.as_raw_fd()) else {
        return Err(rustix::io::Errno::BADF);
    };
    // SAFETY: the number is that of an ioctl which reads one `u32`.
    let clone = unsafe { Setter::<CLONE, u32>::new(number) };
    // SAFETY: it writes no memory of ours, and a descriptor of another kind refuses it.
    unsafe { ioctl(new, clone) }
}

/// `FUSE_DEV_IOC_BACKING_OPEN`: number 1; takes a [`BackingMap`] and answers with a number.
const BACKING_OPEN: Opcode = opcode::write::<BackingMap>(229, 1);
/// `FUSE_DEV_IOC_BACKING_CLOSE`: number 2; takes such a number.
const BACKING_CLOSE: Opcode = opcode::write::<u32>(229, 2);

/// The kernel's `struct fuse_backing_map`.
#[derive(Debug)]
#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

// SAFETY: the opcode stands for a call that reads one `BackingMap`, which `as_ptr` points to, and writes no memory of ours; what the
// call returns is looked at as the plain number it is.
unsafe impl Ioctl for BackingMap {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        BACKING_OPEN
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        (&raw mut *self).cast()
    }

    unsafe fn output_from_ptr(
        number: IoctlOutput,
        _: *mut std::ffi::c_void,
    ) -> rustix::io::Result<u32> {
        // A number of the kernel's is above 0.
        u32::try_from(number).map_err(|_| rustix::io::Errno::IO)
    }
}

/// Registers an open file with a connection. Answers with the number by which replies name it.
pub(crate) fn register_backing(
    connection: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
) -> rustix::io::Result<u32> {
    let map = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
    // SAFETY: it writes no memory of ours, and a descriptor of another kind refuses it.
    unsafe { ioctl(connection, map) }
}

/// Takes a file back. Openings that use it keep it.
pub(crate) fn unregister_backing(
    connection: BorrowedFd<'_>,
    number: u32,
) -> rustix::io::Result<()> {
    // SAFETY: the number is that of an ioctl which reads one `u32`.
    let close = unsafe { Setter::<BACKING_CLOSE, u32>::new(number) };
    // SAFETY: it writes no memory of ours, and a descriptor of another kind refuses it.
    unsafe { ioctl(connection, close) }
}
