//! A backend that tells what cannot be: refused with a named error, and nothing of it stays.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use vfscale::{
    Attr, Context, Entry, Errno, FileSystem, FileType, InodeKey, Options, Place, Result, Vfs,
};

const CX: Context = Context::root();

/// What a name leads to: a number and a type; or what happens instead.
#[derive(Clone)]
enum Answer {
    Is(u64, FileType),
    Panic,
    /// Comes back when the flag is set.
    Hang(Arc<AtomicBool>),
}

/// Tells what it was told to tell, by directory and name.
#[derive(Default)]
struct Liar {
    answers: Mutex<HashMap<(u64, Vec<u8>), Answer>>,
}

fn entry(ino: u64, kind: FileType) -> Entry<Attr> {
    let attr = Attr::new(ino, kind);
    Entry { key: InodeKey { ino, tag: 0 }, attr, node: attr }
}

impl Liar {
    fn say(&self, dir: u64, name: &str, answer: Answer) {
        self.answers.lock().unwrap().insert((dir, name.as_bytes().to_vec()), answer);
    }
}

impl FileSystem for Liar {
    type Node = Attr;
    type Handle = ();

    fn root(&self) -> Result<Entry<Attr>> {
        Ok(entry(1, FileType::Directory))
    }

    fn lookup(&self, _: &Context, at: Place<'_, Attr>) -> Result<Entry<Attr>> {
        let answer = self.answers.lock().unwrap().get(&(at.dir.ino, at.name.to_vec())).cloned();
        match answer.ok_or(Errno::ENOENT)? {
            Answer::Is(ino, kind) => Ok(entry(ino, kind)),
            Answer::Panic => panic!("the backend panics"),
            Answer::Hang(come_back) => {
                while !come_back.load(Relaxed) {
                    std::thread::yield_now();
                }
                Err(Errno::ENOENT)
            }
        }
    }

    fn getattr(&self, node: &Attr, _: Option<&()>) -> Result<Attr> {
        Ok(*node)
    }
}

fn mount() -> Vfs<Liar> {
    Vfs::new(Liar::default(), Options::exclusive()).expect("a mount")
}

use FileType::{Directory, Regular};

#[test]
fn a_directory_in_itself() {
    let vfs = mount();
    vfs.fs().say(1, "d", Answer::Is(2, Directory));
    vfs.fs().say(2, "self", Answer::Is(2, Directory));
    vfs.fs().say(2, "root", Answer::Is(1, Directory));
    assert!(vfs.stat(&CX, b"/d").is_ok());
    let before = vfs.stats();
    for path in [&b"/d/self"[..], b"/d/root", b"/d/self/self"] {
        assert_eq!(vfs.stat(&CX, path), Err(Errno::ELOOP));
    }
    let after = vfs.stats();
    assert_eq!((after.names, after.inodes), (before.names, before.inodes), "nothing is stored");
    assert!(vfs.stat(&CX, b"/d").is_ok());
    vfs.unmount().expect("nothing is left");
}

#[test]
fn a_ring_of_directories() {
    let vfs = mount();
    vfs.fs().say(1, "a", Answer::Is(2, Directory));
    vfs.fs().say(2, "b", Answer::Is(3, Directory));
    vfs.fs().say(3, "c", Answer::Is(4, Directory));
    vfs.fs().say(4, "a", Answer::Is(2, Directory));
    assert!(vfs.stat(&CX, b"/a/b/c").is_ok());
    let names = vfs.stats().names;
    assert_eq!(vfs.stat(&CX, b"/a/b/c/a"), Err(Errno::ELOOP));
    assert_eq!(vfs.stats().names, names);
    assert!(vfs.stat(&CX, b"/a/b/c").is_ok(), "the tree is as it was");
    vfs.unmount().expect("nothing is left");
}

/// The same number with another type is another object: the one that is known keeps its type, and each name leads to its own.
#[test]
fn a_number_used_again_for_another_type() {
    let vfs = mount();
    vfs.fs().say(1, "file", Answer::Is(7, Regular));
    vfs.fs().say(1, "dir", Answer::Is(7, Directory));
    let file = vfs.lookup(&CX, &vfs.root(), b"file").unwrap();
    let dir = vfs.lookup(&CX, &vfs.root(), b"dir").unwrap();
    assert_eq!((file.inode.kind(), dir.inode.kind()), (Regular, Directory));
    assert_ne!(file.inode, dir.inode);
    let again = vfs.lookup(&CX, &vfs.root(), b"file").unwrap();
    assert_eq!((&again.inode, again.attr.kind), (&file.inode, Regular));
    drop((file, dir, again));
    vfs.shrink_all();
    assert_eq!(vfs.lookup(&CX, &vfs.root(), b"dir").unwrap().attr.kind, Directory);
    vfs.unmount().expect("nothing is left");
}

#[test]
fn a_root_that_is_a_file() {
    struct File;
    impl FileSystem for File {
        type Node = ();
        type Handle = ();
        fn root(&self) -> Result<Entry<()>> {
            let Entry { key, attr, .. } = entry(1, Regular);
            Ok(Entry { key, attr, node: () })
        }
        fn lookup(&self, _: &Context, _: Place<'_, ()>) -> Result<Entry<()>> {
            Err(Errno::ENOENT)
        }
        fn getattr(&self, (): &(), _: Option<&()>) -> Result<Attr> {
            Ok(Attr::new(1, Regular))
        }
    }
    assert_eq!(Vfs::new(File, Options::exclusive()).map(drop), Err(Errno::ENOTDIR));
}

#[test]
fn an_inode_of_another_mount() {
    let (ours, theirs) = (mount(), mount());
    for vfs in [&ours, &theirs] {
        vfs.fs().say(1, "f", Answer::Is(2, Regular));
    }
    let there = theirs.lookup(&CX, &theirs.root(), b"f").unwrap();
    let root = ours.root();
    assert_eq!(ours.link(&CX, &there.inode, &root, b"g").map(drop), Err(Errno::EXDEV));
    assert_eq!(ours.getattr(&there.inode, None).map(drop), Err(Errno::EXDEV));
    // The same numbers in two mounts are two objects.
    assert_ne!(ours.lookup(&CX, &root, b"f").unwrap().inode, there.inode);
    assert_eq!(ours.stat(&CX, b"/g"), Err(Errno::ENOENT));
}

/// A panic is the caller's own: who waited for the same name asks for itself, and the name is not stuck.
#[test]
fn a_panic_reaches_its_caller_alone() {
    let vfs = mount();
    vfs.fs().say(1, "x", Answer::Panic);
    let before = vfs.stats().names;
    std::thread::scope(|scope| {
        let askers = [(); 4].map(|()| scope.spawn(|| vfs.stat(&CX, b"/x").map(drop)));
        for asker in askers {
            assert!(asker.join().is_err(), "each of them panics");
        }
    });
    assert_eq!(vfs.stats().names, before);
    vfs.fs().say(1, "x", Answer::Is(5, Regular));
    assert!(vfs.stat(&CX, b"/x").is_ok());
    vfs.unmount().expect("nothing is left");
}

#[test]
fn a_hang_keeps_its_callers_alone() {
    let vfs = mount();
    let come_back = Arc::new(AtomicBool::new(false));
    vfs.fs().say(1, "stuck", Answer::Hang(come_back.clone()));
    for i in 0..100 {
        vfs.fs().say(1, &format!("f{i}"), Answer::Is(10 + i, Regular));
    }
    std::thread::scope(|scope| {
        let stuck = [(); 2].map(|()| scope.spawn(|| vfs.stat(&CX, b"/stuck").map(drop)));
        while vfs.stats().lookups_backend == 0 {
            std::thread::yield_now();
        }
        // Others look up in the very same directory, the first time and again, and names are freed.
        for i in 0..100 {
            let path = format!("/f{i}");
            assert!(vfs.stat(&CX, path.as_bytes()).is_ok());
            assert!(vfs.stat(&CX, path.as_bytes()).is_ok());
        }
        vfs.shrink(50);
        assert!(stuck.iter().all(|thread| !thread.is_finished()));
        come_back.store(true, Relaxed);
        for thread in stuck {
            assert_eq!(thread.join().unwrap(), Err(Errno::ENOENT));
        }
    });
    vfs.unmount().expect("nothing is left");
}
