//! A file system in memory.
//!
//! # Objects
//! A [`Node`] is one inode: its numbers never change, its attributes stand under one lock, its body
//! (entries, pages, a target) under another. Directories own their children by count and know their
//! parent weakly, so a node lives as long as a name, an opening or the core holds it, and its pages
//! go with it. Inode numbers are never used twice.
//!
//! # Locks
//! There is no lock for the whole file system but `tree`, which a directory takes to move
//! to another parent. The order is: `tree` → entries of a directory (of two: the lower inode number
//! first) → content of a file → attributes. No two locks of the last two kinds are held at once.
//! `rmdir` and a rename onto a directory do not lock the directory that goes: its number of entries
//! is one atomic word that can be turned from 0 into "removed", and an insertion fails on that
//! word.
//!
//! # Limits
//! Pages, extended attributes and inodes are counted in `space.rs` before they exist, so a
//! client gets `ENOSPC` where the server would otherwise run out of memory.
//!
//! # Permissions
//! are the front end's: with FUSE the kernel decides. The backend sets owners, set-gid inheritance
//! and the bits that go with a change of owner.

mod content;
mod dir;
mod inode;
mod names;
mod serve;
mod space;
mod xattr;

use std::sync::Arc;

use vfscale::sync::QRwLock;
use vfscale::{Attr, Entry, FileType, InodeKey, OpenFlags};

use self::inode::Inode;
use self::space::Space;

/// Size of a page of file content, and of a block in `statfs`.
const PAGE: u64 = 4096;

/// The longest name, in bytes.
const NAME_MAX: usize = 255;

/// How large a [`MemFs`] may grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemOptions {
    /// Bytes of file content and extended attributes. `None`: half of the machine's memory.
    pub size_limit_bytes: Option<u64>,
    /// Number of inodes. `None`: one for each page of `size_limit_bytes`.
    pub inode_limit: Option<u64>,
}

/// A file system in memory. It starts empty, and everything in it goes with it.
#[derive(Debug)]
pub struct MemFs {
    root: Node,
    space: Arc<Space>,
    /// Guards the parent of every directory, so that a path upwards holds still while a directory
    /// moves.
    tree: QRwLock<()>,
}

/// One inode of a [`MemFs`].
#[derive(Clone, Debug)]
pub struct Node(Arc<Inode>);

/// One opening of a [`Node`].
#[derive(Debug)]
pub struct Handle {
    inode: Arc<Inode>,
    flags: OpenFlags,
}

impl MemFs {
    /// An empty file system with the default limits.
    #[must_use]
    pub fn new() -> MemFs {
        MemFs::with_options(MemOptions::default())
    }

    /// An empty file system. Its root belongs to the super-user and has mode 0755.
    #[must_use]
    pub fn with_options(options: MemOptions) -> MemFs {
        let space = Arc::new(Space::new(options));
        let root = Inode::root(&space);
        MemFs { root: Node(root), space, tree: QRwLock::new(()) }
    }
}

impl Default for MemFs {
    fn default() -> MemFs {
        MemFs::new()
    }
}

impl Node {
    fn entry(inode: Arc<Inode>) -> Entry<Node> {
        let attr: Attr = inode.attr();
        Entry { key: InodeKey { ino: inode.ino, tag: 0 }, attr, node: Node(inode) }
    }

    fn kind(&self) -> FileType {
        self.0.kind
    }
}
