//! The scalable core of a file system, for user space.
#![forbid(unsafe_code)]

mod attr;
mod error;
mod fs;

pub use attr::{Attr, FileType, SetAttr, SetTime, StatFs, Timestamp};
pub use error::{Errno, Result};
pub use fs::{
    Context, DirEntry, Entry, FileSystem, InodeKey, OpenFlags, Place, RenameFlags, SeekFor,
    SetXattr,
};
