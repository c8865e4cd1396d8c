//! A backend with its root, and short forms of what a test asks of it.

use std::ops::ControlFlow;

use crate::{
    Attr, Context, Entry, Errno, FileSystem, FileType, OpenFlags, Place, RenameFlags, Result,
    SetAttr,
};

/// Open for both.
pub const RDWR: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

/// A backend with its root, and short forms of what a test asks of it. What "must succeed" panics otherwise.
pub struct World<F: FileSystem> {
    /// The backend.
    pub fs: F,
    /// On whose behalf: the super-user's.
    pub cx: Context,
    /// Its root.
    pub root: F::Node,
}

/// One line of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// As [`DirEntry::name`](crate::DirEntry::name).
    pub name: Vec<u8>,
    /// As [`DirEntry::ino`](crate::DirEntry::ino).
    pub ino: u64,
    /// As [`DirEntry::kind`](crate::DirEntry::kind).
    pub kind: Option<FileType>,
    /// As [`DirEntry::next`](crate::DirEntry::next).
    pub next: u64,
}

impl<F: FileSystem> std::fmt::Debug for World<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("cx", &self.cx).finish_non_exhaustive()
    }
}

impl<F: FileSystem> World<F> {
    /// The backend with its root.
    ///
    /// # Panics
    /// If it has none.
    pub fn new(fs: F) -> World<F> {
        let root = fs.root().expect("the root");
        World { fs, cx: Context::root(), root: root.node }
    }

    /// A name in the root.
    pub fn at<'a>(&'a self, name: &'a str) -> Place<'a, F::Node> {
        Place { dir: &self.root, name: name.as_bytes() }
    }

    /// Finds a name.
    pub fn lookup_in(&self, dir: &F::Node, name: &str) -> Result<Entry<F::Node>> {
        self.fs.lookup(&self.cx, Place { dir, name: name.as_bytes() })
    }

    /// Finds a name in the root.
    pub fn lookup(&self, name: &str) -> Result<Entry<F::Node>> {
        self.lookup_in(&self.root, name)
    }

    /// The attributes of an object that must exist.
    pub fn attr(&self, node: &F::Node) -> Attr {
        self.fs.getattr(node, None).expect("getattr")
    }

    /// Makes a directory, which must succeed.
    pub fn mkdir_in(&self, dir: &F::Node, name: &str) -> Entry<F::Node> {
        let at = Place { dir, name: name.as_bytes() };
        self.fs.mkdir(&self.cx, at, 0o755).expect("mkdir")
    }

    /// The same in the root.
    pub fn mkdir(&self, name: &str) -> Entry<F::Node> {
        self.mkdir_in(&self.root, name)
    }

    /// Makes a file open for reading and writing, which must succeed.
    pub fn create_in(&self, dir: &F::Node, name: &str) -> (Entry<F::Node>, F::Handle) {
        let at = Place { dir, name: name.as_bytes() };
        self.fs.create(&self.cx, at, 0o644, RDWR).expect("create")
    }

    /// The same in the root.
    pub fn create(&self, name: &str) -> (Entry<F::Node>, F::Handle) {
        self.create_in(&self.root, name)
    }

    /// A file with this content.
    pub fn file(&self, name: &str, content: &[u8]) -> Entry<F::Node> {
        let (entry, handle) = self.create(name);
        self.write(&handle, 0, content);
        entry
    }

    /// Opens an object.
    pub fn open(&self, node: &F::Node, flags: OpenFlags) -> Result<F::Handle> {
        self.fs.open(&self.cx, node, flags)
    }

    /// Writes all of it, which must succeed.
    pub fn write(&self, handle: &F::Handle, offset: u64, data: &[u8]) {
        assert_eq!(self.fs.write(handle, offset, data), Ok(data.len()));
    }

    /// The first 64 KiB.
    pub fn read_handle(&self, handle: &F::Handle) -> Vec<u8> {
        let mut buf = vec![0; 1 << 16];
        let n = self.fs.read(handle, 0, &mut buf).expect("read");
        buf.truncate(n);
        buf
    }

    /// The first 64 KiB of a file in the root.
    pub fn content(&self, name: &str) -> Vec<u8> {
        let node = self.lookup(name).expect("lookup").node;
        self.read_handle(&self.open(&node, OpenFlags::READ).expect("open"))
    }

    /// Changes attributes.
    pub fn set(&self, node: &F::Node, change: SetAttr) -> Result<Attr> {
        self.fs.setattr(&self.cx, node, None, &change)
    }

    /// Renames from one directory to another, what a lookup of both names yields.
    pub fn rename_in(
        &self,
        (old, from): (&F::Node, &str),
        (new, to): (&F::Node, &str),
        flags: RenameFlags,
    ) -> Result<()> {
        let moved = self.lookup_in(old, from)?.node;
        let replaced = self.lookup_in(new, to).ok().map(|entry| entry.node);
        let from = Place { dir: old, name: from.as_bytes() };
        let to = Place { dir: new, name: to.as_bytes() };
        self.fs.rename(&self.cx, from, to, flags, &moved, replaced.as_ref())
    }

    /// As the core does it, which knows the node that moves.
    pub fn move_known(
        &self,
        (old, from): (&F::Node, &str),
        (new, to): (&F::Node, &str),
        flags: RenameFlags,
        moved: &F::Node,
        replaced: Option<&F::Node>,
    ) {
        let from = Place { dir: old, name: from.as_bytes() };
        let to = Place { dir: new, name: to.as_bytes() };
        self.fs.rename(&self.cx, from, to, flags, moved, replaced).expect("rename");
    }

    /// The same within the root.
    pub fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Result<()> {
        self.rename_in((&self.root, from), (&self.root, to), flags)
    }

    /// Removes a name of the root that is no directory's.
    pub fn unlink(&self, name: &str) -> Result<()> {
        let node = self.lookup(name)?.node;
        self.fs.unlink(&self.cx, self.at(name), &node)
    }

    /// Removes a directory from the root.
    pub fn rmdir(&self, name: &str) -> Result<()> {
        let node = self.lookup(name)?.node;
        self.fs.rmdir(&self.cx, self.at(name), &node)
    }

    /// Up to `max` entries from `cookie` on.
    pub fn list_some(&self, handle: &F::Handle, cookie: u64, max: usize) -> Vec<Listed> {
        let mut listed = Vec::new();
        let emit = &mut |entry: crate::DirEntry<'_>| {
            if listed.len() == max {
                return ControlFlow::Break(());
            }
            listed.push(Listed {
                name: entry.name.to_vec(),
                ino: entry.ino,
                kind: entry.kind,
                next: entry.next,
            });
            ControlFlow::Continue(())
        };
        self.fs.readdir(handle, cookie, emit).expect("readdir");
        listed
    }

    /// Opens a directory, which must succeed.
    pub fn open_dir(&self, node: &F::Node) -> F::Handle {
        self.open(node, OpenFlags::READ | OpenFlags::DIRECTORY).expect("open a directory")
    }

    /// All names but the dots, sorted.
    pub fn names(&self, node: &F::Node) -> Vec<Vec<u8>> {
        let listed = self.list_some(&self.open_dir(node), 0, usize::MAX);
        let mut names: Vec<_> = listed.into_iter().map(|entry| entry.name).collect();
        names.retain(|name| name != b"." && name != b"..");
        names.sort();
        names
    }
}

/// The answer must be `ENOENT`.
#[track_caller]
pub fn absent<T>(result: Result<T>) {
    assert_eq!(result.map(drop), Err(Errno::ENOENT));
}

/// What asks something of a removed object may hear either: that it is gone, or that it cannot be
/// reached.
#[track_caller]
pub fn gone<T>(result: Result<T>) {
    let error = result.map(drop).expect_err("something came of a removed object");
    assert!([Errno::ENOENT, Errno::ESTALE].contains(&error), "{error:?}");
}

/// Long enough for the coarse clock that some file systems stamp with.
pub fn tick() {
    std::thread::sleep(std::time::Duration::from_millis(12));
}
