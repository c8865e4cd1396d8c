//! The same random operations on the memory file system and on a directory of the host. Every
//! answer, every error and the whole tree must be the same: the host's kernel is the reference that
//! nobody had to write.

use std::fmt::Debug;

use vfscale::conformance::{Listed, RDWR, World};
use vfscale::{
    Attr, Errno, FileSystem, FileType, OpenFlags, Place, RenameFlags, Result, SetAttr, SetXattr,
};
use vfscale_backends::{HostFs, HostOptions, MemFs};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const HANDLES: usize = 3;

/// A small generator, so that a failing run can be repeated from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn name(&mut self) -> &'static str {
        self.pick(&NAMES)
    }

    /// A directory as the names that lead to it; often one that does not exist.
    fn dir(&mut self) -> Vec<&'static str> {
        (0..self.pick(&[0, 0, 1, 1, 2])).map(|_| self.name()).collect()
    }

    fn at(&mut self) -> At {
        At { dir: self.dir(), name: self.name() }
    }
}

#[derive(Clone, Debug)]
struct At {
    dir: Vec<&'static str>,
    name: &'static str,
}

#[derive(Clone, Debug)]
enum Op {
    Create(At, u32, usize),
    Mkdir(At, u32),
    Symlink(At),
    Mknod(At, u32),
    Link(At, At),
    Unlink(At),
    Rmdir(At),
    Rename(At, At, u32),
    Set(At, SetAttr),
    Open(At, OpenFlags, usize),
    Close(usize),
    Write(usize, u64, usize),
    Read(usize, u64, usize),
    Allocate(usize, u32, u64, u64),
    Copy(usize, u64, usize, u64, u64),
    SetXattr(At, &'static str, usize, SetXattr),
    GetXattr(At, &'static str),
    RemoveXattr(At, &'static str),
    Readlink(At),
}

fn random_op(r: &mut Random) -> Op {
    const XATTRS: [&str; 3] = ["user.a", "user.b", "unknown.c"];
    let perms = [0o644, 0o755, 0o4755, 0o2755, 0o2644, 0o1777, 0];
    // Of whole pages, since how much of a hole is one differs with the size of a block.
    let page = |r: &mut Random| r.below(6) as u64 * 4096;
    match r.below(26) {
        0..=2 => Op::Create(r.at(), r.pick(&perms), r.below(HANDLES)),
        3..=5 => Op::Mkdir(r.at(), r.pick(&[0o755, 0o700])),
        6 => Op::Symlink(r.at()),
        7 => Op::Mknod(
            r.at(),
            r.pick(&[0o01_0644, 0o14_0600, 0o10_0640, 0o644, 0o04_0755, 0o12_0777]),
        ),
        8 | 9 => Op::Link(r.at(), r.at()),
        10 => Op::Unlink(r.at()),
        11 => Op::Rmdir(r.at()),
        12..=15 => Op::Rename(r.at(), r.at(), r.pick(&[0, 0, 0, 1, 2, 2, 3])),
        16 => {
            let change = match r.below(4) {
                0 => SetAttr { perm: Some(r.pick(&perms)), ..Default::default() },
                1 => SetAttr { size: Some(r.below(20_000) as u64), ..Default::default() },
                2 => SetAttr { uid: Some(r.below(3) as u32), ..Default::default() },
                _ => SetAttr { gid: Some(7), perm: Some(r.pick(&perms)), ..Default::default() },
            };
            Op::Set(r.at(), change)
        }
        17 | 18 => {
            let read = OpenFlags::READ;
            let flags = [
                read,
                RDWR,
                RDWR | OpenFlags::APPEND,
                OpenFlags::WRITE | OpenFlags::TRUNCATE,
                read | OpenFlags::DIRECTORY,
            ];
            Op::Open(r.at(), r.pick(&flags), r.below(HANDLES))
        }
        19 => Op::Close(r.below(HANDLES)),
        20 => Op::Write(r.below(HANDLES), r.below(20_000) as u64, r.below(9_000)),
        21 => Op::Read(r.below(HANDLES), r.below(20_000) as u64, r.below(9_000)),
        22 => {
            let (offset, len) = (r.below(20_000) as u64, r.below(9_000) as u64);
            Op::Allocate(r.below(HANDLES), r.pick(&[0, 1, 3, 2, 0x10, 0x11, 1 << 15]), offset, len)
        }
        23 => Op::Copy(r.below(HANDLES), page(r), r.below(HANDLES), page(r), r.below(9_000) as u64),
        24 => {
            let how = r.pick(&[SetXattr::Any, SetXattr::Create, SetXattr::Replace]);
            Op::SetXattr(r.at(), r.pick(&XATTRS), r.below(50), how)
        }
        _ => match r.below(3) {
            0 => Op::GetXattr(r.at(), r.pick(&XATTRS)),
            1 => Op::RemoveXattr(r.at(), r.pick(&XATTRS)),
            _ => Op::Readlink(r.at()),
        },
    }
}

/// One of the two, with its openings.
struct Twin<F: FileSystem> {
    w: World<F>,
    handles: [Option<F::Handle>; HANDLES],
}

/// What can be compared: numbers and times differ.
fn told(attr: &Attr) -> String {
    // How large a directory is, and whether a link's mode means anything, is each file system's
    // own.
    let size = if attr.kind == FileType::Directory { 0 } else { attr.size };
    let Attr { kind, perm, nlink, uid, gid, .. } = attr;
    format!("{kind:?} {perm:o} nlink {nlink} {uid}:{gid} size {size}")
}

impl<F: FileSystem> Twin<F> {
    fn new(fs: F) -> Twin<F> {
        Twin { w: World::new(fs), handles: Default::default() }
    }

    fn dir(&self, names: &[&str]) -> Result<F::Node> {
        let mut node = self.w.fs.root()?.node;
        for name in names {
            node = self.w.lookup_in(&node, name)?.node;
        }
        Ok(node)
    }

    fn handle(&self, slot: usize) -> Result<&F::Handle> {
        self.handles[slot].as_ref().ok_or(Errno::EBADF)
    }

    fn place<'a>(dir: &'a F::Node, at: &At) -> Place<'a, F::Node> {
        Place { dir, name: at.name.as_bytes() }
    }

    fn node(&self, at: &At) -> Result<F::Node> {
        Ok(self.w.lookup_in(&self.dir(&at.dir)?, at.name)?.node)
    }

    fn apply(&mut self, op: &Op) -> Result<String> {
        let (fs, cx) = (&self.w.fs, &self.w.cx);
        let done = |()| "done".to_owned();
        match op {
            Op::Create(at, perm, slot) => {
                let dir = self.dir(&at.dir)?;
                let (entry, handle) = fs.create(cx, Self::place(&dir, at), *perm, RDWR)?;
                self.handles[*slot] = Some(handle);
                Ok(told(&entry.attr))
            }
            Op::Mkdir(at, perm) => {
                let dir = self.dir(&at.dir)?;
                fs.mkdir(cx, Self::place(&dir, at), *perm).map(|entry| told(&entry.attr))
            }
            Op::Symlink(at) => {
                let dir = self.dir(&at.dir)?;
                fs.symlink(cx, Self::place(&dir, at), b"a/b").map(|entry| told(&entry.attr))
            }
            Op::Mknod(at, mode) => {
                let dir = self.dir(&at.dir)?;
                fs.mknod(cx, Self::place(&dir, at), *mode, 0).map(|entry| told(&entry.attr))
            }
            Op::Link(of, at) => {
                let (node, dir) = (self.node(of)?, self.dir(&at.dir)?);
                fs.link(cx, &node, Self::place(&dir, at)).map(|attr| told(&attr))
            }
            Op::Unlink(at) => {
                let (node, dir) = (self.node(at)?, self.dir(&at.dir)?);
                fs.unlink(cx, Self::place(&dir, at), &node).map(done)
            }
            Op::Rmdir(at) => {
                let (node, dir) = (self.node(at)?, self.dir(&at.dir)?);
                fs.rmdir(cx, Self::place(&dir, at), &node).map(done)
            }
            Op::Rename(from, to, flags) => {
                let (old, new) = (self.dir(&from.dir)?, self.dir(&to.dir)?);
                let flags = RenameFlags::from_bits_retain(*flags);
                self.w.rename_in((&old, from.name), (&new, to.name), flags).map(done)
            }
            Op::Set(at, change) => {
                let node = self.node(at)?;
                self.w.set(&node, *change).map(|attr| told(&attr))
            }
            Op::Open(at, flags, slot) => {
                let node = self.node(at)?;
                self.handles[*slot] = Some(self.w.open(&node, *flags)?);
                Ok("opened".to_owned())
            }
            Op::Close(slot) => Ok(format!("{}", self.handles[*slot].take().is_some())),
            Op::Write(slot, offset, len) => {
                let data: Vec<u8> = (0..*len).map(|i| (i % 250) as u8 + 1).collect();
                fs.write(self.handle(*slot)?, *offset, &data).map(|n| n.to_string())
            }
            Op::Read(slot, offset, len) => {
                let mut buf = vec![0; *len];
                let n = fs.read(self.handle(*slot)?, *offset, &mut buf)?;
                Ok(format!("{n} {:x}", digest(&buf[..n])))
            }
            Op::Allocate(slot, mode, offset, len) => {
                fs.fallocate(self.handle(*slot)?, *mode, *offset, *len).map(done)
            }
            Op::Copy(from, from_offset, to, to_offset, len) => {
                let (from, to) = (self.handle(*from)?, self.handle(*to)?);
                fs.copy_range(from, *from_offset, to, *to_offset, *len).map(|n| n.to_string())
            }
            Op::SetXattr(at, name, len, how) => {
                let node = self.node(at)?;
                fs.setxattr(cx, &node, name.as_bytes(), &vec![7; *len], *how).map(done)
            }
            Op::GetXattr(at, name) => {
                let node = self.node(at)?;
                fs.getxattr(cx, &node, name.as_bytes()).map(|value| value.len().to_string())
            }
            Op::RemoveXattr(at, name) => {
                fs.removexattr(cx, &self.node(at)?, name.as_bytes()).map(done)
            }
            Op::Readlink(at) => {
                fs.readlink(&self.node(at)?).map(|target| target.escape_ascii().to_string())
            }
        }
    }

    /// Everything below `dir`, one line each.
    fn dump(&self, dir: &F::Node, path: &str, out: &mut Vec<String>) {
        let listed: Vec<Listed> = self.w.list_some(&self.w.open_dir(dir), 0, usize::MAX);
        let mut names: Vec<_> = listed.iter().map(|entry| entry.name.clone()).collect();
        names.sort();
        for name in names.iter().filter(|name| !name.starts_with(b".")) {
            let name = str::from_utf8(name).unwrap();
            let entry = self.w.lookup_in(dir, name).unwrap();
            let path = format!("{path}/{name}");
            let content = if entry.attr.kind == FileType::Regular {
                let handle = self.w.open(&entry.node, OpenFlags::READ).unwrap();
                digest(&self.w.read_handle(&handle))
            } else {
                0
            };
            let xattrs = self.w.fs.listxattr(&self.w.cx, &entry.node).unwrap();
            let mut xattrs: Vec<_> = xattrs.split(|&b| b == 0).collect();
            xattrs.sort();
            let xattrs = xattrs.concat().escape_ascii().to_string();
            out.push(format!("{path} {} {content:x} {xattrs}", told(&entry.attr)));
            if entry.attr.kind == FileType::Directory {
                self.dump(&entry.node, &path, out);
            }
        }
    }

    fn tree(&self) -> Vec<String> {
        let mut out = vec![told(&self.w.attr(&self.w.root))];
        self.dump(&self.w.root, "", &mut out);
        out
    }
}

fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(bytes.len() as u64, |sum, &b| sum.wrapping_mul(31).wrapping_add(b.into()))
}

fn same<T: PartialEq + Debug>(mem: T, host: T, what: &str, done: &[Op]) {
    assert!(
        mem == host,
        "{what}\n mem {mem:?}\nhost {host:?}\nafter {:?}",
        &done[done.len().saturating_sub(6)..]
    );
}

fn run(seed: u64, options: HostOptions) {
    const STEPS: usize = 1_000;
    let dir = tempfile::tempdir().unwrap();
    let mut mem = Twin::new(MemFs::new());
    let mut host = Twin::new(HostFs::new(dir.path(), options).unwrap());
    // Both roots with the same owner and bits.
    let root = SetAttr { perm: Some(0o755), uid: Some(0), gid: Some(0), ..Default::default() };
    mem.w.set(&mem.w.root, root).unwrap();
    host.w.set(&host.w.root, root).unwrap();
    let (mut random, mut done) = (Random(seed), Vec::new());
    for step in 0..STEPS {
        let op = random_op(&mut random);
        done.push(op.clone());
        let what = format!("seed {seed}, step {step}: {op:?}");
        same(mem.apply(&op), host.apply(&op), &what, &done);
        if step % 10 == 0 {
            same(mem.tree(), host.tree(), &what, &done);
        }
    }
}

#[test]
fn memory_and_host_agree() {
    for seed in [0, 1, 2] {
        run(seed, HostOptions::default());
    }
}

#[test]
fn memory_and_host_by_name_agree() {
    let few = HostOptions { fd_limit: Some(4), file_handles: false, ..HostOptions::default() };
    for seed in [10, 12, 78] {
        run(seed, few);
    }
}
