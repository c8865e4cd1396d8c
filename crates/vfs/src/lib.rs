//! The scalable core of a file system, for user space: dentry cache, inode table, file table and path walk.
//!
//! An author of a file system or server implements [`FileSystem`]: objects, and openings of them. [`Vfs`] puts names, identity, caching,
//! locking and lifetime in front of it, so that any number of threads can use it at once and a lookup that hits takes no lock.
//!
//! # Nouns
//! An *inode* is the object. A *dentry* is one of its names in a directory, or the cached fact that a name is absent. A *file* is one opening
//! of an inode.
//!
//! # Who holds a reference on whom
//! A dentry holds its parent and its inode. An open file holds its inode. A front end holds dentries for directories and inodes for the rest.
//! The inode holds the backend's node. Nothing points down: an unused name can always go.
//!
//! # Example
//! ```
//! # use vfscale::*;
//! /// One directory with one file in it.
//! struct Hello;
//!
//! impl FileSystem for Hello {
//!     type Node = Attr;
//!     type Handle = ();
//!
//!     fn root(&self) -> Result<Entry<Attr>> {
//!         let attr = Attr::new(1, FileType::Directory);
//!         Ok(Entry { key: InodeKey { ino: 1, tag: 0 }, attr, node: attr })
//!     }
//!
//!     fn lookup(&self, _: &Context, at: Place<'_, Attr>) -> Result<Entry<Attr>> {
//!         if at.dir.ino != 1 || at.name != b"hello" {
//!             return Err(Errno::ENOENT);
//!         }
//!         let attr = Attr { size: 5, ..Attr::new(2, FileType::Regular) };
//!         Ok(Entry { key: InodeKey { ino: 2, tag: 0 }, attr, node: attr })
//!     }
//!
//!     fn getattr(&self, node: &Attr, _: Option<&()>) -> Result<Attr> {
//!         Ok(*node)
//!     }
//! }
//!
//! let vfs = Vfs::new(Hello, Options::exclusive())?;
//! assert_eq!(vfs.stat(&Context::root(), b"/hello")?.size, 5);
//! assert_eq!(vfs.stat(&Context::root(), b"/nobody"), Err(Errno::ENOENT));
//! # Ok::<(), Errno>(())
//! ```
#![forbid(unsafe_code)]

mod attr;
mod clock;
pub mod conformance;
mod cwd;
mod dcache;
mod dentry;
mod error;
mod fd_table;
mod file;
mod fs;
mod hash;
mod inode;
mod inode_table;
mod name;
mod ops;
mod paths;
mod permission;
mod reclaim;
mod stats;
mod superblock;
mod vfs;
mod walk;

pub use attr::{Attr, FileType, SetAttr, SetTime, StatFs, Timestamp};
pub use cwd::{Cwd, Stream};
pub use dentry::DentryRef;
pub use error::{Errno, Result};
pub use fd_table::{Fd, FdTable, Files, Reserved};
pub use file::{OpenFile, close_pending};
pub use fs::{
    Context, DirEntry, Entry, FileSystem, InodeKey, OpenFlags, Place, RenameFlags, SeekFor,
    SetXattr,
};
pub use inode::InodeRef;
pub use paths::Listed;
pub use permission::AccessMode;
pub use reclaim::{Pressure, PressureSource, PressureWatch, Reclaim};
pub use stats::Stats;
pub use vfs::{Busy, Found, Options, Vfs};
pub use vfscale_sync as sync;
pub use walk::{WalkFlags, Walked};
