//! An existing `fuser` file system with an inode table of its own, and the same with vfscale's tables in its place.
//!
//! Both show a directory read-only. `before` is how such programs are mostly written: a `Mutex<HashMap>` that gives each path a number
//! and counts how often the kernel was told of it, and one lock that every request takes. `after` says only what the objects are; numbers,
//! lookup counts, caching and concurrency are the core's. The tests mount both and compare what programs see.
//!
//! `cargo run -p vfscale-fuse --example from_fuser -- before|after DIRECTORY MOUNTPOINT`

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file system as a `fuser` program.
pub(crate) mod before {
    use std::collections::HashMap;
    use std::sync::Mutex;
    use std::time::{Duration, UNIX_EPOCH};

    use fuser::{
        Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, LockOwner,
        OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, Request,
    };

    use super::*;

    const TTL: Duration = Duration::from_secs(1);

    struct Inode {
        path: PathBuf,
        lookups: u64,
    }

    #[derive(Default)]
    struct Table {
        inodes: HashMap<u64, Inode>,
        numbers: HashMap<PathBuf, u64>,
        last: u64,
    }

    pub(crate) struct Mirror {
        table: Mutex<Table>,
    }

    impl Mirror {
        pub(crate) fn new(root: &Path) -> Mirror {
            let mut table = Table { last: 1, ..Table::default() };
            table.inodes.insert(1, Inode { path: root.to_owned(), lookups: 1 });
            table.numbers.insert(root.to_owned(), 1);
            Mirror { table: Mutex::new(table) }
        }

        fn path(&self, ino: INodeNo) -> Result<PathBuf, Errno> {
            let table = self.table.lock().unwrap();
            table.inodes.get(&ino.0).map(|inode| inode.path.clone()).ok_or(Errno::ENOENT)
        }

        fn attr(ino: u64, meta: &Metadata) -> FileAttr {
            let time = |sec: i64| UNIX_EPOCH + Duration::from_secs(sec.max(0) as u64);
            FileAttr {
                ino: INodeNo(ino),
                size: meta.size(),
                blocks: meta.blocks(),
                atime: time(meta.atime()),
                mtime: time(meta.mtime()),
                ctime: time(meta.ctime()),
                crtime: UNIX_EPOCH,
                kind: kind(meta.file_type()),
                perm: (meta.mode() & 0o7777) as u16,
                nlink: meta.nlink() as u32,
                uid: meta.uid(),
                gid: meta.gid(),
                rdev: meta.rdev() as u32,
                blksize: 4096,
                flags: 0,
            }
        }
    }

    fn kind(kind: fs::FileType) -> FileType {
        if kind.is_dir() {
            FileType::Directory
        } else if kind.is_symlink() {
            FileType::Symlink
        } else {
            FileType::RegularFile
        }
    }

    impl Filesystem for Mirror {
        fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
            let found = self.path(parent).and_then(|dir| {
                let path = dir.join(name);
                let meta = path.symlink_metadata()?;
                Ok((path, meta))
            });
            let (path, meta) = match found {
                Ok(found) => found,
                Err(error) => return reply.error(error),
            };
            let mut table = self.table.lock().unwrap();
            let ino = match table.numbers.get(&path) {
                Some(&ino) => ino,
                None => {
                    table.last += 1;
                    let ino = table.last;
                    table.numbers.insert(path.clone(), ino);
                    table.inodes.insert(ino, Inode { path, lookups: 0 });
                    ino
                }
            };
            table.inodes.get_mut(&ino).expect("it is in both maps").lookups += 1;
            drop(table);
            reply.entry(&TTL, &Mirror::attr(ino, &meta), Generation(0));
        }

        fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
            let mut table = self.table.lock().unwrap();
            let Some(inode) = table.inodes.get_mut(&ino.0) else { return };
            inode.lookups = inode.lookups.saturating_sub(lookups);
            if inode.lookups == 0 {
                let Inode { path, .. } = table.inodes.remove(&ino.0).expect("just found");
                table.numbers.remove(&path);
            }
        }

        fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
            match self.path(ino).and_then(|path| Ok(path.symlink_metadata()?)) {
                Ok(meta) => reply.attr(&TTL, &Mirror::attr(ino.0, &meta)),
                Err(error) => reply.error(error),
            }
        }

        fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
            match self.path(ino).and_then(|path| Ok(fs::read_link(path)?)) {
                Ok(target) => reply.data(target.as_os_str().as_bytes()),
                Err(error) => reply.error(error),
            }
        }

        fn read(
            &self,
            _: &Request,
            ino: INodeNo,
            _: FileHandle,
            offset: u64,
            size: u32,
            _: OpenFlags,
            _: Option<LockOwner>,
            reply: ReplyData,
        ) {
            let mut buf = vec![0; size as usize];
            let read = self.path(ino).and_then(|path| Ok(File::open(path)?));
            match read.and_then(|file| Ok(read_full(&file, offset, &mut buf)?)) {
                Ok(n) => reply.data(&buf[..n]),
                Err(error) => reply.error(error),
            }
        }

        fn readdir(
            &self,
            _: &Request,
            ino: INodeNo,
            _: FileHandle,
            offset: u64,
            mut reply: ReplyDirectory,
        ) {
            let names = match self.path(ino).and_then(|path| Ok(list(&path)?)) {
                Ok(names) => names,
                Err(error) => return reply.error(error),
            };
            for ((name, meta), next) in names.iter().zip(1..).skip(offset as usize) {
                // The number that a lookup would give is not known before there was one.
                let ino = INodeNo(meta.ino());
                if reply.add(ino, next, kind(meta.file_type()), OsStr::from_bytes(name)) {
                    break;
                }
            }
            reply.ok();
        }
    }
}

/// The same without a table of its own.
pub(crate) mod after {
    use std::ops::ControlFlow;

    use vfscale::{
        Attr, Context, DirEntry, Entry, Errno, FileSystem, FileType, InodeKey, OpenFlags, Place,
        Result, Timestamp,
    };

    use super::*;

    pub(crate) struct Mirror {
        root: PathBuf,
    }

    /// What was a row of the table.
    pub(crate) struct Node {
        path: PathBuf,
    }

    pub(crate) enum Handle {
        File(File),
        Directory(Vec<(Vec<u8>, Metadata)>),
    }

    impl Mirror {
        pub(crate) fn new(root: &Path) -> Mirror {
            Mirror { root: root.to_owned() }
        }

        fn attr(meta: &Metadata) -> Attr {
            let time = |sec, nsec: i64| Timestamp { sec, nsec: nsec as u32 };
            let kind = FileType::from_mode(meta.mode()).unwrap_or(FileType::Regular);
            Attr {
                perm: meta.mode() & 0o7777,
                nlink: meta.nlink() as u32,
                uid: meta.uid(),
                gid: meta.gid(),
                rdev: meta.rdev(),
                size: meta.size(),
                blocks: meta.blocks(),
                atime: time(meta.atime(), meta.atime_nsec()),
                mtime: time(meta.mtime(), meta.mtime_nsec()),
                ctime: time(meta.ctime(), meta.ctime_nsec()),
                ..Attr::new(meta.ino(), kind)
            }
        }

        fn entry(path: PathBuf) -> Result<Entry<Node>> {
            let meta = path.symlink_metadata()?;
            // The host's number is the identity: two hard links are one inode, which the table of paths could not know.
            let key = InodeKey { ino: meta.ino(), tag: meta.dev() };
            Ok(Entry { key, attr: Mirror::attr(&meta), node: Node { path } })
        }
    }

    impl FileSystem for Mirror {
        type Node = Node;
        type Handle = Handle;

        fn root(&self) -> Result<Entry<Node>> {
            Mirror::entry(self.root.clone())
        }

        fn lookup(&self, _: &Context, at: Place<'_, Node>) -> Result<Entry<Node>> {
            Mirror::entry(at.dir.path.join(OsStr::from_bytes(at.name)))
        }

        fn getattr(&self, node: &Node, _: Option<&Handle>) -> Result<Attr> {
            Ok(Mirror::attr(&node.path.symlink_metadata()?))
        }

        fn readlink(&self, node: &Node) -> Result<Vec<u8>> {
            Ok(fs::read_link(&node.path)?.into_os_string().into_encoded_bytes())
        }

        fn open(&self, _: &Context, node: &Node, flags: OpenFlags) -> Result<Handle> {
            if flags.contains(OpenFlags::WRITE) {
                return Err(Errno::EROFS);
            }
            if flags.contains(OpenFlags::DIRECTORY) {
                return Ok(Handle::Directory(list(&node.path)?));
            }
            Ok(Handle::File(File::open(&node.path)?))
        }

        fn read(&self, handle: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
            let Handle::File(file) = handle else { return Err(Errno::EISDIR) };
            Ok(read_full(file, offset, buf)?)
        }

        fn readdir(
            &self,
            handle: &Handle,
            cookie: u64,
            emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
        ) -> Result<()> {
            let Handle::Directory(names) = handle else { return Err(Errno::ENOTDIR) };
            for ((name, meta), next) in names.iter().zip(1..).skip(cookie as usize) {
                let (ino, kind) = (meta.ino(), FileType::from_mode(meta.mode()));
                if emit(DirEntry { name, ino, kind, next }).is_break() {
                    break;
                }
            }
            Ok(())
        }
    }
}

/// What is in a directory, sorted, the dots first.
fn list(dir: &Path) -> io::Result<Vec<(Vec<u8>, Metadata)>> {
    let mut names = vec![(b".".to_vec(), dir.symlink_metadata()?)];
    names.push((b"..".to_vec(), dir.join("..").symlink_metadata()?));
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        names.push((entry.file_name().into_encoded_bytes(), entry.metadata()?));
    }
    names[2..].sort_by(|a, b| a.0.cmp(&b.0));
    Ok(names)
}

/// Reads until the buffer is full or the file ends.
fn read_full(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], offset + done as u64)? {
            0 => break,
            n => done += n,
        }
    }
    Ok(done)
}

#[allow(dead_code, reason = "the tests take the rest of this file")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [which, directory, point] = &args[..] else {
        return Err("usage: from_fuser before|after DIRECTORY MOUNTPOINT".into());
    };
    let directory = fs::canonicalize(directory)?;
    if which == "before" {
        let session =
            fuser::spawn_mount(before::Mirror::new(&directory), point, &fuser::Config::default())?;
        session.join()?;
    } else {
        let vfs = vfscale::Vfs::new(after::Mirror::new(&directory), vfscale::Options::default())?;
        let options = vfscale_fuse::MountOptions::parse("ro")?;
        let report = |stats: &vfscale_fuse::FuseStats| format!("{stats:?}");
        vfscale_fuse::serve(Arc::new(vfs), point.as_ref(), &options, report)?.wait();
    }
    Ok(())
}
