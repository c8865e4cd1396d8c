//! Misses ask the backend once per name, at the same time for different names, and stale names are asked about again.

#[path = "../../sync/src/testing.rs"]
mod testing;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

// Ours, not the library's: its slow path is invisible to the thread sanitizer.
use vfscale::sync::QRwLock;
use vfscale::{
    Attr, Context, Entry, Errno, FileSystem, FileType, InodeKey, Options, Place, Result, SetAttr,
    Vfs,
};

const CX: Context = Context::root();

/// One flat directory whose content tests change behind the core's back, and which counts and delays what it is asked.
#[derive(Default)]
struct Behind {
    names: QRwLock<HashMap<Vec<u8>, u64>>,
    delay_ms: AtomicU64,
    asked: AtomicU64,
    inside: AtomicU64,
    most_inside: AtomicU64,
    panics: AtomicBool,
    /// A `getattr` that has its answer stops between these two.
    getattr_gate: QRwLock<Option<Arc<(Barrier, Barrier)>>>,
    /// This node's `getattr` answers `ESTALE`.
    gone: AtomicU64,
    /// Every name ever looked up, for who asks.
    seen: QRwLock<Vec<Vec<u8>>>,
}

fn entry(ino: u64) -> Entry<u64> {
    let kind = if ino < 100 { FileType::Directory } else { FileType::Regular };
    let attr = Attr { size: ino, ..Attr::new(ino, kind) };
    Entry { key: InodeKey { ino, tag: 0 }, attr, node: ino }
}

struct Flat(Arc<Behind>);

impl FileSystem for Flat {
    type Node = u64;
    type Handle = ();

    fn root(&self) -> Result<Entry<u64>> {
        Ok(entry(1))
    }

    fn lookup(&self, _: &Context, at: Place<'_, u64>) -> Result<Entry<u64>> {
        let state = &self.0;
        state.seen.write().push(at.name.to_vec());
        state.asked.fetch_add(1, SeqCst);
        let inside = state.inside.fetch_add(1, SeqCst) + 1;
        state.most_inside.fetch_max(inside, SeqCst);
        std::thread::sleep(Duration::from_millis(state.delay_ms.load(SeqCst)));
        state.inside.fetch_sub(1, SeqCst);
        assert!(!state.panics.load(SeqCst), "a panic of the backend's own");
        let names = state.names.write();
        let full = [format!("{}/", at.dir).as_bytes(), at.name].concat();
        names.get(&full).map(|&ino| entry(ino)).ok_or(Errno::ENOENT)
    }

    fn getattr(&self, node: &u64, _: Option<&()>) -> Result<Attr> {
        let names = self.0.names.write();
        let attr = entry(*node).attr;
        let size = names.get(format!("size of {node}").as_bytes()).copied();
        drop(names);
        if let Some(gate) = &*self.0.getattr_gate.write() {
            gate.0.wait();
            gate.1.wait();
        }
        if self.0.gone.load(SeqCst) == *node {
            return Err(Errno::ESTALE);
        }
        Ok(Attr { size: size.unwrap_or(attr.size), ..attr })
    }

    fn setattr(&self, _: &Context, node: &u64, _: Option<&()>, change: &SetAttr) -> Result<Attr> {
        let size = change.size.unwrap();
        self.0.names.write().insert(format!("size of {node}").into(), size);
        Ok(Attr { size, ..entry(*node).attr })
    }
}

fn mount(options: Options) -> (Arc<Vfs<Flat>>, Arc<Behind>) {
    let behind = Arc::new(Behind::default());
    (Arc::new(Vfs::new(Flat(behind.clone()), options).unwrap()), behind)
}

impl Behind {
    fn set(&self, name: &str, ino: u64) {
        self.names.write().insert(format!("1/{name}").into(), ino);
    }

    fn set_in(&self, dir: u64, name: &str, ino: u64) {
        self.names.write().insert(format!("{dir}/{name}").into(), ino);
    }

    fn clear(&self) {
        self.names.write().clear();
    }
}

fn at_once<T: Send>(n: usize, f: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(n);
    testing::scope(|scope| {
        let run = |i| {
            barrier.wait();
            f(i)
        };
        let threads: Vec<_> = (0..n).map(|i| scope.spawn(move || run(i))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

#[test]
fn two_misses_of_one_name_ask_once() {
    let (vfs, behind) = mount(Options::exclusive());
    behind.set("x", 200);
    behind.delay_ms.store(100, SeqCst);
    let root = vfs.root();
    let inodes = at_once(6, |_| vfs.lookup(&CX, &root, b"x").unwrap().inode);
    assert!(inodes.iter().all(|inode| *inode == inodes[0]));
    assert_eq!(behind.asked.load(SeqCst), 1);
    assert_eq!(at_once(6, |_| vfs.lookup(&CX, &root, b"none").map(drop)), [Err(Errno::ENOENT); 6]);
    assert_eq!(behind.asked.load(SeqCst), 2);
    let stats = vfs.stats();
    assert_eq!(stats.lookups_backend, 2);
    assert!(stats.lookup_waits >= 2, "{stats:?}");
}

#[test]
fn different_names_are_asked_for_at_the_same_time() {
    let (vfs, behind) = mount(Options::exclusive());
    behind.delay_ms.store(200, SeqCst);
    let root = vfs.root();
    let start = Instant::now();
    at_once(4, |i| vfs.lookup(&CX, &root, format!("n{i}").as_bytes()).unwrap_err());
    assert_eq!(behind.most_inside.load(SeqCst), 4);
    assert!(start.elapsed() < Duration::from_millis(700), "{:?}", start.elapsed());
}

#[test]
fn a_panic_of_the_backend_strands_nobody() {
    let (vfs, behind) = mount(Options::exclusive());
    behind.set("x", 200);
    behind.delay_ms.store(100, SeqCst);
    behind.panics.store(true, SeqCst);
    let root = vfs.root();
    let outcomes = at_once(2, |_| {
        let ask = std::panic::AssertUnwindSafe(|| vfs.lookup(&CX, &root, b"x").map(drop));
        std::panic::catch_unwind(ask).is_ok()
    });
    assert_eq!(outcomes, [false, false], "the second asked for itself");
    behind.panics.store(false, SeqCst);
    assert!(vfs.lookup(&CX, &root, b"x").is_ok());
}

#[test]
fn stale_names_are_asked_about_again() {
    let mut options = Options::exclusive();
    (options.entry_ttl, options.attr_ttl, options.negative_ttl) = Default::default();
    let (vfs, behind) = mount(options);
    let root = vfs.root();
    let ino = |name: &str| vfs.lookup(&CX, &root, name.as_bytes()).map(|found| found.attr.ino);
    assert_eq!(ino("x"), Err(Errno::ENOENT));
    behind.set("x", 200);
    assert_eq!(ino("x"), Ok(200));
    let held = vfs.lookup(&CX, &root, b"x").unwrap();
    assert_eq!(ino("x"), Ok(200));
    behind.set("x", 201);
    assert_eq!(ino("x"), Ok(201), "replaced behind our back");
    assert_eq!(held.inode.key().ino, 200, "who holds the old one keeps it");
    behind.clear();
    assert_eq!(ino("x"), Err(Errno::ENOENT));
    assert!(vfs.stats().revalidations > 0);
}

#[test]
fn a_directory_that_moves_behind_our_back_keeps_its_one_dentry() {
    let mut options = Options::exclusive();
    (options.entry_ttl, options.attr_ttl, options.negative_ttl) = Default::default();
    let (vfs, behind) = mount(options);
    let root = vfs.root();
    behind.set("old", 7);
    behind.set("other", 8);
    behind.set_in(7, "file", 300);
    let old = vfs.lookup(&CX, &root, b"old").unwrap();
    assert_eq!(vfs.stat(&CX, b"/old/file").unwrap().ino, 300);
    behind.clear();
    behind.set("other", 8);
    behind.set_in(8, "new", 7);
    behind.set_in(7, "file", 300);
    let other = vfs.lookup(&CX, &root, b"other").unwrap();
    let new = vfs.lookup(&CX, &other.dentry, b"new").unwrap();
    assert_eq!(new.dentry, old.dentry);
    assert_eq!(vfs.path_of(&old.dentry), b"/other/new");
    assert_eq!(vfs.stat(&CX, b"/other/new/file").unwrap().ino, 300);
    assert_eq!(vfs.stat(&CX, b"/old"), Err(Errno::ENOENT));
    // A backend that shows a directory below itself is refused, and nothing of it is stored.
    behind.set_in(7, "loop", 8);
    assert_eq!(vfs.stat(&CX, b"/other/new/loop"), Err(Errno::ELOOP));
    assert_eq!(vfs.path_of(&old.dentry), b"/other/new");
}

#[test]
fn an_old_answer_does_not_undo_a_change() {
    let (vfs, behind) = mount(Options::exclusive());
    behind.set("x", 200);
    let inode = vfs.lookup(&CX, &vfs.root(), b"x").unwrap().inode;
    let gate = Arc::new((Barrier::new(2), Barrier::new(2)));
    *behind.getattr_gate.write() = Some(gate.clone());
    testing::scope(|scope| {
        let asker = scope.spawn(|| vfs.getattr(&inode, None).unwrap().size);
        gate.0.wait();
        // The asker has the old answer in hand. A change begins and ends.
        let change = SetAttr { size: Some(5), ..SetAttr::default() };
        assert_eq!(vfs.setattr(&CX, &inode, None, &change).unwrap().size, 5);
        gate.1.wait();
        assert_eq!(asker.join().unwrap(), 200);
    });
    *behind.getattr_gate.write() = None;
    assert_eq!(vfs.stat(&CX, b"/x").unwrap().size, 5);
}

#[test]
fn dots_never_reach_the_backend() {
    let mut options = Options::exclusive();
    options.attr_ttl = Duration::ZERO;
    let (vfs, behind) = mount(options);
    behind.set("p", 7);
    behind.set_in(7, "d", 8);
    let p = vfs.lookup(&CX, &vfs.root(), b"p").unwrap();
    let d = vfs.lookup(&CX, &p.dentry, b"d").unwrap();
    behind.gone.store(7, SeqCst);
    assert_eq!(vfs.lookup(&CX, &d.dentry, b"..").map(drop), Err(Errno::ESTALE));
    assert_eq!(vfs.lookup(&CX, &p.dentry, b".").map(drop), Err(Errno::ESTALE));
    behind.gone.store(0, SeqCst);
    assert_eq!(vfs.path_of(&d.dentry), b"/p/d");
    assert_eq!(*behind.seen.write(), [b"p", b"d"]);
}

/// One directory seen at two places at the same moment, again and again: it has one dentry, and nobody is told that it is absent.
#[test]
fn a_directory_at_two_places_is_whole_for_everybody() {
    let (vfs, behind) = mount(Options::exclusive());
    behind.set("a", 7);
    behind.set("b", 8);
    behind.set_in(7, "x", 9);
    behind.set_in(8, "y", 9);
    behind.set_in(9, "file", 300);
    let end = Instant::now() + Duration::from_secs(1);
    at_once(6, |i| {
        let (dir, name): (&[u8], &[u8]) = if i % 2 == 0 { (b"a", b"x") } else { (b"b", b"y") };
        let dir = vfs.lookup(&CX, &vfs.root(), dir).unwrap();
        while Instant::now() < end {
            let found = vfs.lookup(&CX, &dir.dentry, name).unwrap();
            assert_eq!(found.attr.ino, 9);
            assert_eq!(vfs.lookup(&CX, &found.dentry, b"file").unwrap().attr.ino, 300);
            if i == 0 {
                drop(found);
                vfs.shrink(5);
            }
        }
    });
    vfs.shrink_all();
    assert_eq!((vfs.stats().names, vfs.stats().inodes), (1, 1));
}
