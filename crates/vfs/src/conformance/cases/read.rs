//! What holds for any tree, also one that cannot be changed. The cases look at the first objects that a walk from the root comes to.

use std::collections::HashSet;

use crate::conformance::world::{Listed, RDWR, World, absent};
use crate::{Attr, Entry, Errno, FileSystem, FileType, InodeKey, OpenFlags, Place, SetAttr};

/// So many objects, and so many names of one directory, are looked at.
const OBJECTS: usize = 300;
const NAMES: usize = 40;

/// An object with the way to it: what is told when a case fails.
struct Seen<N> {
    path: String,
    entry: Entry<N>,
}

fn first_names<F: FileSystem>(w: &World<F>, dir: &F::Node) -> Vec<Listed> {
    let mut listed = w.list_some(&w.open_dir(dir), 0, NAMES + 2);
    listed.retain(|entry| entry.name != b"." && entry.name != b"..");
    listed
}

/// The first objects of the tree, breadth first, each with the node of its lookup.
fn objects<F: FileSystem>(w: &World<F>) -> Vec<Seen<F::Node>> {
    let mut seen = vec![Seen { path: "/".to_owned(), entry: w.fs.root().expect("the root") }];
    let mut next = 0;
    while next < seen.len() && seen.len() < OBJECTS {
        if seen[next].entry.attr.kind == FileType::Directory {
            let mut found = Vec::new();
            for listed in first_names(w, &seen[next].entry.node) {
                let at = Place { dir: &seen[next].entry.node, name: &listed.name };
                let path = format!("{}{}/", seen[next].path, listed.name.escape_ascii());
                match w.fs.lookup(&w.cx, at) {
                    Ok(entry) => found.push(Seen { path, entry }),
                    Err(error) => panic!("{path} is listed, and not found: {error:?}"),
                }
            }
            seen.extend(found);
        }
        next += 1;
    }
    seen
}

fn of_kind<F: FileSystem>(w: &World<F>, kind: FileType) -> Vec<Seen<F::Node>> {
    objects(w).into_iter().filter(|seen| seen.entry.attr.kind == kind).collect()
}

pub(crate) fn root_is_a_directory<F: FileSystem>(w: &World<F>) {
    let root = w.fs.root().expect("the root");
    assert_eq!(root.attr.kind, FileType::Directory);
    assert_eq!(root.key, w.fs.root().expect("the root again").key);
}

pub(crate) fn absent_names<F: FileSystem>(w: &World<F>) {
    let names = ["no such name, we hope", "\u{fffd}", " "];
    for seen in of_kind(w, FileType::Directory) {
        let has: HashSet<_> =
            first_names(w, &seen.entry.node).into_iter().map(|l| l.name).collect();
        for name in names.iter().filter(|name| !has.contains(name.as_bytes())) {
            absent(w.lookup_in(&seen.entry.node, name));
        }
    }
    assert!(w.lookup(&"x".repeat(256)).is_err(), "a name of 256 bytes");
}

/// The type, the number and the identity of an object are the same each time.
pub(crate) fn identity<F: FileSystem>(w: &World<F>) {
    let (first, second) = (objects(w), objects(w));
    assert_eq!(first.len(), second.len(), "the tree is the same");
    let mut by_key: std::collections::HashMap<InodeKey, Attr> = Default::default();
    for (a, b) in first.iter().zip(&second) {
        assert_eq!((&a.path, a.entry.key), (&b.path, b.entry.key));
        let attr = w.attr(&a.entry.node);
        assert_eq!((attr.ino, attr.kind), (a.entry.attr.ino, a.entry.attr.kind), "{}", a.path);
        let known = by_key.entry(a.entry.key).or_insert(a.entry.attr);
        assert_eq!(known.kind, a.entry.attr.kind, "{}: one identity, two types", a.path);
        // A directory has one name; what has two is counted so.
        assert_ne!(attr.nlink, 0, "{}", a.path);
    }
    let directories = first.iter().filter(|seen| seen.entry.attr.kind == FileType::Directory);
    let keys: Vec<_> = directories.map(|seen| seen.entry.key).collect();
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "a directory with two names");
}

pub(crate) fn listing_agrees_with_lookup<F: FileSystem>(w: &World<F>) {
    for seen in of_kind(w, FileType::Directory).iter().take(20) {
        for listed in first_names(w, &seen.entry.node) {
            let at = Place { dir: &seen.entry.node, name: &listed.name };
            let attr = w.fs.lookup(&w.cx, at).expect("a listed name").attr;
            let name = listed.name.escape_ascii();
            assert_eq!(listed.ino, attr.ino, "{}{name}", seen.path);
            assert!(listed.kind.is_none_or(|kind| kind == attr.kind), "{}{name}", seen.path);
            assert_ne!(listed.next, 0, "{}{name}", seen.path);
        }
    }
}

/// In pieces or at once, from a cookie or on from the last one: the same names in the same order.
pub(crate) fn listing_in_pieces<F: FileSystem>(w: &World<F>) {
    for seen in of_kind(w, FileType::Directory).iter().take(20) {
        let handle = w.open_dir(&seen.entry.node);
        let all = w.list_some(&handle, 0, 200);
        for piece in [1, 3, 50] {
            let (mut again, mut cookie) = (Vec::new(), 0);
            while again.len() < all.len() {
                let some = w.list_some(&handle, cookie, piece.min(all.len() - again.len()));
                let Some(last) = some.last() else { break };
                cookie = last.next;
                again.extend(some);
            }
            assert_eq!(again, all, "{} in pieces of {piece}", seen.path);
        }
        if let [first, second, ..] = &all[..] {
            let other = w.open_dir(&seen.entry.node);
            assert_eq!(w.list_some(&other, first.next, 1), std::slice::from_ref(second));
        }
    }
}

pub(crate) fn content_agrees_with_size<F: FileSystem>(w: &World<F>) {
    for seen in of_kind(w, FileType::Regular).iter().take(30) {
        let handle = w.open(&seen.entry.node, OpenFlags::READ).expect("open for reading");
        let size = w.attr(&seen.entry.node).size;
        let whole = w.read_handle(&handle);
        assert_eq!(whole.len() as u64, size.min(1 << 16), "{}", seen.path);
        let mut piece = [0; 7];
        for at in [0, 1, whole.len() / 2, whole.len().saturating_sub(3)] {
            let n = w.fs.read(&handle, at as u64, &mut piece).expect("read");
            let expected = (size - at.min(whole.len()) as u64).min(7) as usize;
            assert_eq!(n, expected, "{} at {at}", seen.path);
            let known = &whole[at.min(whole.len())..];
            let known = &known[..known.len().min(n)];
            assert_eq!(&piece[..known.len()], known, "{} at {at}", seen.path);
        }
        assert_eq!(w.fs.read(&handle, size, &mut piece), Ok(0), "{} at its end", seen.path);
        assert_eq!(w.fs.read(&handle, 1 << 50, &mut piece), Ok(0), "{} far behind", seen.path);
    }
}

pub(crate) fn kinds_are_checked<F: FileSystem>(w: &World<F>) {
    let file = of_kind(w, FileType::Regular);
    for seen in file.iter().take(5) {
        let node = &seen.entry.node;
        assert_eq!(w.lookup_in(node, "x").map(drop), Err(Errno::ENOTDIR), "{}", seen.path);
        let dir = OpenFlags::READ | OpenFlags::DIRECTORY;
        assert_eq!(w.open(node, dir).map(drop), Err(Errno::ENOTDIR), "{}", seen.path);
        assert_eq!(w.fs.readlink(node), Err(Errno::EINVAL), "{}", seen.path);
    }
    for seen in of_kind(w, FileType::Directory).iter().take(5) {
        let opened = w.open(&seen.entry.node, RDWR).map(drop);
        assert!([Err(Errno::EISDIR), Err(Errno::EROFS)].contains(&opened), "{}", seen.path);
        assert_eq!(w.fs.readlink(&seen.entry.node), Err(Errno::EINVAL), "{}", seen.path);
    }
    for seen in of_kind(w, FileType::Symlink).iter().take(5) {
        let target = w.fs.readlink(&seen.entry.node).expect("the target");
        assert_eq!(target.len() as u64, seen.entry.attr.size, "{}", seen.path);
        assert!((1..4096).contains(&target.len()) && !target.contains(&0), "{}", seen.path);
    }
}

/// Threads that look at the same objects at once see what one alone sees.
pub(crate) fn many_at_once<F: FileSystem>(w: &World<F>) {
    let alone: Vec<_> = objects(w).into_iter().map(|seen| (seen.path, seen.entry.key)).collect();
    std::thread::scope(|scope| {
        let threads = [(); 4].map(|()| {
            scope.spawn(|| {
                let seen = objects(w).into_iter().map(|seen| (seen.path, seen.entry.key));
                seen.collect::<Vec<_>>()
            })
        });
        for thread in threads {
            match thread.join() {
                Ok(seen) => assert_eq!(seen, alone),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
}

/// Of a backend that cannot be changed: it says so, and nothing changes.
pub(crate) fn changes_are_refused<F: FileSystem>(w: &World<F>) {
    let before: Vec<_> = objects(w).into_iter().map(|seen| (seen.path, seen.entry.attr)).collect();
    let refused = |result: crate::Result<()>, what: &str| {
        let errors = [Errno::EROFS, Errno::EPERM, Errno::EACCES];
        assert!(result.is_err_and(|error| errors.contains(&error)), "{what}: {result:?}");
    };
    let at = w.at("vfscale-conformance");
    refused(w.fs.mkdir(&w.cx, at, 0o755).map(drop), "mkdir");
    refused(w.fs.mknod(&w.cx, at, 0o10_0644, 0).map(drop), "mknod");
    refused(w.fs.symlink(&w.cx, at, b"t").map(drop), "symlink");
    refused(w.fs.create(&w.cx, at, 0o644, RDWR).map(drop), "create");
    let perm = SetAttr { perm: Some(0o600), ..Default::default() };
    for seen in objects(w).iter().take(10) {
        refused(w.set(&seen.entry.node, perm).map(drop), &format!("chmod {}", seen.path));
    }
    for seen in of_kind(w, FileType::Regular).iter().take(3) {
        let opened = w.open(&seen.entry.node, OpenFlags::WRITE);
        let opened = opened.and_then(|handle| w.fs.write(&handle, 0, b"x"));
        refused(opened.map(drop), &format!("write {}", seen.path));
        refused(w.fs.link(&w.cx, &seen.entry.node, at).map(drop), "link");
    }
    let names = first_names(w, &w.root);
    if let Some(name) = names.first() {
        let from = Place { dir: &w.root, name: &name.name };
        let node = w.fs.lookup(&w.cx, from).expect("a listed name").node;
        let flags = crate::RenameFlags::empty();
        refused(w.fs.rename(&w.cx, from, at, flags, &node, None), "rename");
        refused(w.fs.unlink(&w.cx, from, &node), "unlink");
        refused(w.fs.rmdir(&w.cx, from, &node), "rmdir");
    }
    absent(w.lookup("vfscale-conformance"));
    let after: Vec<_> = objects(w).into_iter().map(|seen| (seen.path, seen.entry.attr)).collect();
    assert!(before == after, "something changed");
}
