//! The one system call of this crate that has no safe form.
#![allow(unsafe_code, reason = "an ioctl is what its number says; this one is wrapped here")]

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::ioctl::{Setter, ioctl, opcode};

/// `FUSE_DEV_IOC_CLONE`: device type 229, number 0; takes a `u32`.
const CLONE: rustix::ioctl::Opcode = opcode::read::<u32>(229, 0);

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
