//! Which bytes may be a name.

use crate::{Errno, Result};

/// Longest name, in bytes.
pub(crate) const NAME_MAX: usize = 255;
/// Longest path, in bytes, its end not counted.
pub(crate) const PATH_MAX: usize = 4095;

/// Refuses what can never be looked up: the empty name, `/` or NUL inside, more than 255 bytes.
pub(crate) fn check(name: &[u8]) -> Result<()> {
    if name.is_empty() {
        Err(Errno::ENOENT)
    } else if name.len() > NAME_MAX {
        Err(Errno::ENAMETOOLONG)
    } else if name.iter().any(|&b| b == b'/' || b == 0) {
        Err(Errno::EINVAL)
    } else {
        Ok(())
    }
}

/// Refuses `.` and `..` too, with what making or removing them answers.
pub(crate) fn check_new(name: &[u8], dot: Errno) -> Result<()> {
    check(name)?;
    if matches!(name, b"." | b"..") { Err(dot) } else { Ok(()) }
}
