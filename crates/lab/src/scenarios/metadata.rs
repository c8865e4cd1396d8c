//! FxMark's metadata set, in process: what names cost in a whole file system.
//!
//! Ours is the core over its backend in memory. The peers: the table under one lock that user-space file systems have, here with nothing else
//! that a file system does; the crate `vfs`, whose file system in memory is a map of whole paths under a read-write lock; and the
//! kernel's own, on tmpfs, by system calls.
//!
//! All threads work in one directory, or each in its own. Five components lead to a file.

use std::collections::HashMap;
use std::fmt::Debug;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;
use parking_lot::{Mutex, RwLock};
use vfs::FileSystem as _;
use vfscale::{Context, OpenFlags, Options, RenameFlags, Vfs};
use vfscale_backends::MemFs;

use crate::sample::{Setup, Worker};
use crate::scenario::{Arm, Scenario, Subject, expect};

/// Names that each thread uses in turn.
const NAMES: usize = 64;

/// A file system, as far as the scenarios use one. A mistake is a panic: it would be no measurement.
trait Tree: Send + Sync + Debug {
    fn mkdir(&self, path: &str);
    fn create(&self, path: &str);
    fn unlink(&self, path: &str);
    /// The size, which is 0.
    fn stat(&self, path: &str) -> u64;
    fn rename(&self, from: &str, to: &str);
    fn exists(&self, path: &str) -> bool;
}

/// What each thread does with its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    Stat,
    CreateUnlink,
    Rename,
}

#[derive(Debug)]
struct Play<T> {
    tree: T,
    job: Job,
    /// By thread: its files, and what they are called after a rename.
    names: Vec<Vec<(String, String)>>,
}

fn play<T: Tree + 'static>(tree: T, setup: &Setup, job: Job, shared: bool) -> Box<dyn Subject> {
    for dir in ["/usr", "/usr/share", "/usr/share/doc"] {
        tree.mkdir(dir);
    }
    let of_thread = |thread: usize| {
        let dir = format!("/usr/share/doc/{}", if shared { 0 } else { thread });
        if thread == 0 || !shared {
            tree.mkdir(&dir);
        }
        let name = |n| (format!("{dir}/file-{thread}-{n}"), format!("{dir}/moved-{thread}-{n}"));
        (0..NAMES).map(name).collect::<Vec<_>>()
    };
    let names: Vec<Vec<(String, String)>> = (0..setup.threads).map(of_thread).collect();
    if job != Job::CreateUnlink {
        names.iter().flatten().for_each(|(name, _)| tree.create(name));
    }
    Box::new(Play { tree, job, names })
}

impl<T: Tree> Subject for Play<T> {
    fn work(&self, worker: &mut Worker<'_>) {
        let (tree, names) = (black_box(&self.tree), &self.names[worker.number]);
        let mut next = 0;
        worker.repeat::<16>(|| {
            let (name, moved) = &names[next];
            next = (next + 1) % NAMES;
            match self.job {
                Job::Stat => assert_eq!(tree.stat(name), 0),
                Job::CreateUnlink => {
                    tree.create(name);
                    tree.unlink(name);
                }
                Job::Rename => {
                    tree.rename(name, moved);
                    tree.rename(moved, name);
                }
            }
        });
    }

    fn check(&self, _: &[u64]) -> Result<(), String> {
        let all = || self.names.iter().flatten();
        let there = all().filter(|(name, _)| self.tree.exists(name)).count();
        let wanted = if self.job == Job::CreateUnlink { 0 } else { all().count() };
        expect("files by their names", wanted as i64, there as i64)?;
        let moved = all().filter(|(_, moved)| self.tree.exists(moved)).count();
        expect("files by other names", 0, moved as i64)
    }
}

struct Ours {
    cx: Context,
    vfs: Vfs<MemFs>,
}

impl Debug for Ours {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ours").finish_non_exhaustive()
    }
}

impl Ours {
    fn new() -> Ours {
        let vfs = Vfs::new(MemFs::new(), Options::exclusive()).expect("a file system in memory");
        Ours { cx: Context::root(), vfs }
    }
}

impl Tree for Ours {
    fn mkdir(&self, path: &str) {
        self.vfs.mkdir_path(&self.cx, path.as_bytes(), 0o755).expect("mkdir");
    }
    fn create(&self, path: &str) {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
        drop(self.vfs.open_path(&self.cx, path.as_bytes(), flags, 0o644).expect("create"));
    }
    fn unlink(&self, path: &str) {
        self.vfs.unlink_path(&self.cx, path.as_bytes()).expect("unlink");
    }
    fn stat(&self, path: &str) -> u64 {
        self.vfs.stat(&self.cx, path.as_bytes()).expect("stat").size
    }
    fn rename(&self, from: &str, to: &str) {
        let (from, to) = (from.as_bytes(), to.as_bytes());
        self.vfs.rename_path(&self.cx, from, to, RenameFlags::empty()).expect("rename");
    }
    fn exists(&self, path: &str) -> bool {
        self.vfs.stat(&self.cx, path.as_bytes()).is_ok()
    }
}

/// What a name stands for in the one table.
#[derive(Debug, Default)]
struct Node {
    number: u64,
    size: AtomicU64,
}

/// (directory, name) to node.
type Names = HashMap<u64, HashMap<Box<str>, Arc<Node>, RandomState>, RandomState>;

/// The lock of the one table, for those who read and those who write.
trait TableLock: Send + Sync + Debug {
    fn new(names: Names) -> Self;
    fn read<R>(&self, f: impl FnOnce(&Names) -> R) -> R;
    fn write<R>(&self, f: impl FnOnce(&mut Names) -> R) -> R;
}

impl TableLock for Mutex<Names> {
    fn new(names: Names) -> Self {
        Mutex::new(names)
    }
    fn read<R>(&self, f: impl FnOnce(&Names) -> R) -> R {
        f(&self.lock())
    }
    fn write<R>(&self, f: impl FnOnce(&mut Names) -> R) -> R {
        f(&mut self.lock())
    }
}

impl TableLock for RwLock<Names> {
    fn new(names: Names) -> Self {
        RwLock::new(names)
    }
    fn read<R>(&self, f: impl FnOnce(&Names) -> R) -> R {
        f(&RwLock::read(self))
    }
    fn write<R>(&self, f: impl FnOnce(&mut Names) -> R) -> R {
        f(&mut RwLock::write(self))
    }
}

#[derive(Debug)]
struct OneLock<L> {
    names: L,
    next: AtomicU64,
}

impl<L: TableLock> OneLock<L> {
    fn new() -> Self {
        let names = Names::from_iter([(0, HashMap::default())]);
        OneLock { names: L::new(names), next: AtomicU64::new(1) }
    }

    /// Takes the lock for each component, as a server does that is asked for one after the other.
    fn walk(&self, path: &str) -> Option<Arc<Node>> {
        let mut at = Arc::new(Node::default());
        for name in path.split('/').filter(|name| !name.is_empty()) {
            at = self.names.read(|names| names.get(&at.number)?.get(name).cloned())?;
        }
        Some(at)
    }

    fn split(path: &str) -> (&str, &str) {
        path.rsplit_once('/').expect("an absolute path")
    }

    fn parent_of<'p>(&self, path: &'p str) -> (u64, &'p str) {
        let (dir, name) = Self::split(path);
        (self.walk(dir).expect("a directory").number, name)
    }

    fn add(&self, path: &str, is_dir: bool) {
        let (parent, name) = self.parent_of(path);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let node = Arc::new(Node { number, size: AtomicU64::new(0) });
        self.names.write(|names| {
            let before = names.get_mut(&parent).expect("a directory").insert(name.into(), node);
            assert!(before.is_none(), "{path} is there already");
            if is_dir {
                names.insert(number, HashMap::default());
            }
        });
    }
}

impl<L: TableLock> Tree for OneLock<L> {
    fn mkdir(&self, path: &str) {
        self.add(path, true);
    }
    fn create(&self, path: &str) {
        self.add(path, false);
    }
    fn unlink(&self, path: &str) {
        let (parent, name) = self.parent_of(path);
        let node =
            self.names.write(|names| names.get_mut(&parent).and_then(|dir| dir.remove(name)));
        assert!(node.is_some(), "{path} is not there");
    }
    fn stat(&self, path: &str) -> u64 {
        self.walk(path).expect("a file").size.load(Ordering::Relaxed)
    }
    fn rename(&self, from: &str, to: &str) {
        let ((old, from), (new, to)) = (self.parent_of(from), self.parent_of(to));
        self.names.write(|names| {
            let node = names.get_mut(&old).and_then(|dir| dir.remove(from)).expect("a file");
            names.get_mut(&new).expect("a directory").insert(to.into(), node);
        });
    }
    fn exists(&self, path: &str) -> bool {
        self.walk(path).is_some()
    }
}

/// The crate `vfs`.
#[derive(Debug)]
struct CrateVfs(vfs::MemoryFS);

impl Tree for CrateVfs {
    fn mkdir(&self, path: &str) {
        self.0.create_dir(path).expect("mkdir");
    }
    fn create(&self, path: &str) {
        drop(self.0.create_file(path).expect("create"));
    }
    fn unlink(&self, path: &str) {
        self.0.remove_file(path).expect("unlink");
    }
    fn stat(&self, path: &str) -> u64 {
        self.0.metadata(path).expect("stat").len
    }
    fn rename(&self, _: &str, _: &str) {
        unreachable!("it has no rename: no arm of that scenario");
    }
    fn exists(&self, path: &str) -> bool {
        self.0.exists(path).expect("exists")
    }
}

/// A directory of the kernel's tmpfs, taken away at the end.
#[derive(Debug)]
struct Kernel(PathBuf);

impl Kernel {
    fn new() -> Kernel {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("vfscale-lab-{}-{number}", std::process::id());
        let path = Path::new("/dev/shm").join(name);
        fs::create_dir(&path).expect("a directory in /dev/shm");
        Kernel(path)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.join(&path[1..])
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Tree for Kernel {
    fn mkdir(&self, path: &str) {
        fs::create_dir(self.at(path)).expect("mkdir");
    }
    fn create(&self, path: &str) {
        drop(fs::File::create_new(self.at(path)).expect("create"));
    }
    fn unlink(&self, path: &str) {
        fs::remove_file(self.at(path)).expect("unlink");
    }
    fn stat(&self, path: &str) -> u64 {
        fs::metadata(self.at(path)).expect("stat").len()
    }
    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.at(from), self.at(to)).expect("rename");
    }
    fn exists(&self, path: &str) -> bool {
        self.at(path).exists()
    }
}

const OURS: &str = "vfscale::Vfs over its file system in memory, by paths, with permission checks";
const MUTEX: &str = "a map of names under one Mutex of parking_lot, nodes in Arc, no permissions";
const RWLOCK: &str = "the same under one RwLock of parking_lot";
const CRATE: &str = "MemoryFS of the crate vfs: whole paths under one RwLock";
const KERNEL: &str = "the kernel's tmpfs, by system calls";

macro_rules! arms {
    ($job:expr, $shared:literal $(, $peer:ident)?) => {
        &[
            Arm { name: "vfscale", what: OURS, make: |s| play(Ours::new(), s, $job, $shared) },
            Arm {
                name: "mutex",
                what: MUTEX,
                make: |s| play(OneLock::<Mutex<Names>>::new(), s, $job, $shared),
            },
            Arm {
                name: "rwlock",
                what: RWLOCK,
                make: |s| play(OneLock::<RwLock<Names>>::new(), s, $job, $shared),
            },
            $(Arm { name: "vfs-crate", what: CRATE, make: |s| play($peer(vfs::MemoryFS::new()), s, $job, $shared) },)?
            Arm { name: "kernel", what: KERNEL, make: |s| play(Kernel::new(), s, $job, $shared) },
        ]
    };
}

/// FxMark MRPM: open of five components in one directory, here without the open.
pub(crate) const STAT: Scenario = Scenario {
    name: "meta-stat",
    question: "what does stat of a path of five components cost, all of them cached, in one directory?",
    source: "FxMark MRPM; will-it-scale stat1; dcache thread, 2001",
    operation: "stat of one of 64 files of one's own",
    threads: &[1, 2, 8],
    think_ns: &[0],
    arms: arms!(Job::Stat, true, CrateVfs),
};

/// FxMark MWCM and MWUM.
pub(crate) const CREATE_SHARED: Scenario = Scenario {
    name: "meta-create-shared",
    question: "what do creating and unlinking a file cost when all threads do it in one directory?",
    source: "FxMark MWCM, MWUM; will-it-scale unlink1",
    operation: "create, close and unlink",
    arms: arms!(Job::CreateUnlink, true, CrateVfs),
    ..STAT
};

/// FxMark MWCL and MWUL.
pub(crate) const CREATE_OWN: Scenario = Scenario {
    name: "meta-create-own",
    question: "what do creating and unlinking a file cost when each thread has a directory of its own?",
    source: "FxMark MWCL, MWUL; will-it-scale unlink2",
    operation: "create, close and unlink",
    arms: arms!(Job::CreateUnlink, false, CrateVfs),
    ..STAT
};

/// FxMark MWRM.
pub(crate) const RENAME_SHARED: Scenario = Scenario {
    name: "meta-rename-shared",
    question: "what does a rename cost when all threads do it in one directory?",
    source: "FxMark MWRM",
    operation: "rename to another name and back",
    arms: arms!(Job::Rename, true),
    ..STAT
};

/// FxMark MWRL.
pub(crate) const RENAME_OWN: Scenario = Scenario {
    name: "meta-rename-own",
    question: "what does a rename cost when each thread has a directory of its own?",
    source: "FxMark MWRL",
    operation: "rename to another name and back",
    arms: arms!(Job::Rename, false),
    ..STAT
};
