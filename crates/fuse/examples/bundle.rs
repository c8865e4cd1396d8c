//! A file system of one's own: files that a program carries along, as a read-only tree.
//!
//! `cargo run -p vfscale-fuse --example bundle -- /mnt` mounts it until somebody says `umount /mnt`. The guide (`docs/guide.md`) goes
//! through it line by line; the tests mount it and run the conformance kit against it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use vfscale::{
    Attr, Context, DirEntry, Entry, Errno, FileSystem, FileType, InodeKey, OpenFlags, Place, Result,
};

/// An object of the tree. Directories know their names, files their bytes.
pub(crate) struct Object {
    ino: u64,
    parent: u64,
    body: Body,
}

enum Body {
    Directory(BTreeMap<Vec<u8>, Arc<Object>>),
    File(&'static [u8]),
}

/// The whole tree, made once and never changed.
pub(crate) struct Bundle {
    root: Arc<Object>,
}

impl Bundle {
    /// From paths without a leading slash, and what is in the files.
    pub(crate) fn new(files: &[(&str, &'static [u8])]) -> Bundle {
        let mut next = 1;
        Bundle { root: Bundle::directory(&mut next, 1, files) }
    }

    /// The directory that holds these files, numbered from `next` on.
    fn directory(next: &mut u64, parent: u64, files: &[(&str, &'static [u8])]) -> Arc<Object> {
        let ino = *next;
        *next += 1;
        let (mut names, mut below) = (BTreeMap::new(), BTreeMap::<&str, Vec<_>>::new());
        for &(path, bytes) in files {
            match path.split_once('/') {
                Some((first, rest)) => below.entry(first).or_default().push((rest, bytes)),
                None => {
                    let file = Object { ino: *next, parent: ino, body: Body::File(bytes) };
                    *next += 1;
                    names.insert(path.into(), Arc::new(file));
                }
            }
        }
        for (name, files) in below {
            names.insert(name.into(), Bundle::directory(next, ino, &files));
        }
        Arc::new(Object { ino, parent, body: Body::Directory(names) })
    }
}

impl Object {
    fn attr(&self) -> Attr {
        match &self.body {
            Body::Directory(names) => {
                let subdirs = names.values().filter(|o| matches!(o.body, Body::Directory(_)));
                Attr { nlink: 2 + subdirs.count() as u32, ..Attr::new(self.ino, self.kind()) }
            }
            Body::File(bytes) => {
                let size = bytes.len() as u64;
                Attr { size, perm: 0o444, ..Attr::new(self.ino, self.kind()) }
            }
        }
    }

    fn kind(&self) -> FileType {
        match self.body {
            Body::Directory(_) => FileType::Directory,
            Body::File(_) => FileType::Regular,
        }
    }

    fn entry(self: &Arc<Object>) -> Entry<Arc<Object>> {
        let key = InodeKey { ino: self.ino, tag: 0 };
        Entry { key, attr: self.attr(), node: Arc::clone(self) }
    }
}

impl FileSystem for Bundle {
    type Node = Arc<Object>;
    type Handle = Arc<Object>;

    fn root(&self) -> Result<Entry<Arc<Object>>> {
        Ok(self.root.entry())
    }

    fn lookup(&self, _: &Context, at: Place<'_, Arc<Object>>) -> Result<Entry<Arc<Object>>> {
        let Body::Directory(names) = &at.dir.body else { return Err(Errno::ENOTDIR) };
        names.get(at.name).map(Object::entry).ok_or(Errno::ENOENT)
    }

    fn getattr(&self, node: &Arc<Object>, _: Option<&Arc<Object>>) -> Result<Attr> {
        Ok(node.attr())
    }

    fn open(&self, _: &Context, node: &Arc<Object>, flags: OpenFlags) -> Result<Arc<Object>> {
        match node.kind() {
            _ if flags.contains(OpenFlags::WRITE) => Err(Errno::EROFS),
            FileType::Regular if flags.contains(OpenFlags::DIRECTORY) => Err(Errno::ENOTDIR),
            _ => Ok(Arc::clone(node)),
        }
    }

    fn read(&self, file: &Arc<Object>, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let Body::File(bytes) = file.body else { return Err(Errno::EISDIR) };
        let rest = bytes.get(offset as usize..).unwrap_or(&[]);
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn readdir(
        &self,
        dir: &Arc<Object>,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let Body::Directory(names) = &dir.body else { return Err(Errno::ENOTDIR) };
        let directory = FileType::Directory;
        let dots = [(&b"."[..], dir.ino, directory), (&b".."[..], dir.parent, directory)];
        let names = names.iter().map(|(name, o)| (name.as_slice(), o.ino, o.kind()));
        // The tree never changes: the number of an entry is its place for ever.
        for ((name, ino, kind), next) in dots.into_iter().chain(names).zip(1..) {
            let entry = DirEntry { name, ino, kind: Some(kind), next };
            if next > cookie && emit(entry).is_break() {
                break;
            }
        }
        Ok(())
    }
}

#[allow(dead_code, reason = "the tests take the rest of this file")]
fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let point = std::env::args_os().nth(1).ok_or("usage: bundle MOUNTPOINT")?;
    let bundle =
        Bundle::new(&[("README", b"hello\n"), ("src/bundle.rs", include_bytes!("bundle.rs"))]);
    let vfs = Arc::new(vfscale::Vfs::new(bundle, vfscale::Options::exclusive())?);
    let options = vfscale_fuse::MountOptions::parse("ro")?;
    vfscale_fuse::serve(vfs, point.as_ref(), &options, |stats| format!("{stats:?}"))?.wait();
    Ok(())
}
