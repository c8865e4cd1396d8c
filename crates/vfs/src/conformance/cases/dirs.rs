//! Listing directories.

use std::collections::{BTreeSet, HashSet};

use crate::{FileSystem, FileType, Place};

use crate::conformance::world::World;

pub(crate) fn dots_and_kinds<F: FileSystem>(w: &World<F>) {
    let d = w.mkdir("d");
    w.mkdir_in(&d.node, "sub");
    w.create_in(&d.node, "file");
    w.fs.symlink(&w.cx, Place { dir: &d.node, name: b"link" }, b"t").unwrap();
    let listed = w.list_some(&w.open_dir(&d.node), 0, 100);
    assert_eq!(listed.len(), 5);
    for entry in &listed {
        let (ino, kind) = match &entry.name[..] {
            b"." => (d.attr.ino, FileType::Directory),
            b".." => (w.attr(&w.root).ino, FileType::Directory),
            name => {
                let found = w.lookup_in(&d.node, std::str::from_utf8(name).unwrap()).unwrap();
                (found.attr.ino, found.attr.kind)
            }
        };
        assert_eq!(entry.ino, ino);
        assert!(entry.kind.is_none_or(|told| told == kind));
        assert_ne!(entry.next, 0);
    }
}

fn fill<F: FileSystem>(w: &World<F>, n: usize) -> F::Node {
    let d = w.mkdir("d").node;
    for i in 0..n {
        let name = format!("name-{i:05}");
        let at = Place { dir: &d, name: name.as_bytes() };
        w.fs.mknod(&w.cx, at, 0o10_0644, 0).unwrap();
    }
    d
}

/// Reads all in pieces of `piece`; a name that comes twice fails.
fn read_in_pieces<F: FileSystem>(
    w: &World<F>,
    dir: &F::Node,
    piece: usize,
    mut between: impl FnMut(&[Vec<u8>]),
) -> BTreeSet<Vec<u8>> {
    let handle = w.open_dir(dir);
    let (mut all, mut cookie) = (BTreeSet::new(), 0);
    loop {
        let listed = w.list_some(&handle, cookie, piece);
        let Some(last) = listed.last() else { return all };
        cookie = last.next;
        let names: Vec<_> = listed.into_iter().map(|entry| entry.name).collect();
        for name in &names {
            assert!(all.insert(name.clone()), "{} came twice", name.escape_ascii());
        }
        between(&names);
    }
}

pub(crate) fn small_pieces_lose_nothing<F: FileSystem>(w: &World<F>) {
    let d = fill(w, 1500);
    for piece in [1, 7, 100, 1000] {
        assert_eq!(read_in_pieces(w, &d, piece, |_| {}).len(), 1502);
    }
}

pub(crate) fn removing_while_reading<F: FileSystem>(w: &World<F>) {
    let d = fill(w, 3000);
    let read = read_in_pieces(w, &d, 130, |names| {
        for name in names.iter().filter(|name| name.starts_with(b"name")) {
            let at = Place { dir: &d, name };
            let node = w.fs.lookup(&w.cx, at).unwrap().node;
            w.fs.unlink(&w.cx, at, &node).unwrap();
        }
    });
    assert_eq!(read.len(), 3002);
    w.rmdir("d").unwrap();
}

/// What was there from beginning to end comes once, whatever is added meanwhile.
pub(crate) fn adding_while_reading<F: FileSystem>(w: &World<F>) {
    let d = fill(w, 600);
    let mut added = 0;
    let read = read_in_pieces(w, &d, 40, |_| {
        // So few that a backend which shows them all comes to an end.
        if added < 200 {
            let name = format!("more-{added:05}");
            let at = Place { dir: &d, name: name.as_bytes() };
            w.fs.mknod(&w.cx, at, 0o10_0644, 0).unwrap();
            added += 1;
        }
    });
    let old = read.iter().filter(|name| name.starts_with(b"name-")).count();
    assert_eq!(old, 600);
    assert!(read.len() <= 602 + added);
}

pub(crate) fn resume_at_a_told_cookie<F: FileSystem>(w: &World<F>) {
    let d = fill(w, 500);
    let handle = w.open_dir(&d);
    let listed = w.list_some(&handle, 0, usize::MAX);
    for at in [0, 1, 17, 250, 499] {
        let again = w.list_some(&handle, listed[at].next, 3);
        assert_eq!(again, listed[at + 1..(at + 4).min(listed.len())]);
    }
    let end = listed.last().unwrap().next;
    assert!(w.list_some(&handle, end, 5).is_empty());
    assert_eq!(w.list_some(&handle, 0, 5), listed[..5]);
    // A cookie also holds in another opening, as a server that reopens needs it.
    assert_eq!(w.list_some(&w.open_dir(&d), listed[100].next, 2), listed[101..103]);
}

pub(crate) fn two_readers<F: FileSystem>(w: &World<F>) {
    let d = fill(w, 400);
    let handle = w.open_dir(&d);
    std::thread::scope(|scope| {
        for piece in [3, 50] {
            let (handle, w) = (&handle, &w);
            scope.spawn(move || {
                let (mut seen, mut cookie) = (HashSet::new(), 0);
                loop {
                    let listed = w.list_some(handle, cookie, piece);
                    let Some(last) = listed.last() else { break };
                    cookie = last.next;
                    seen.extend(listed.into_iter().map(|entry| entry.name));
                }
                assert_eq!(seen.len(), 402);
            });
        }
    });
}

pub(crate) fn link_counts<F: FileSystem>(w: &World<F>) {
    let d = w.mkdir("d");
    assert_eq!(w.attr(&d.node).nlink, 2);
    w.mkdir_in(&d.node, "a");
    w.mkdir_in(&d.node, "b");
    w.create_in(&d.node, "f");
    assert_eq!(w.attr(&d.node).nlink, 4);
    let a = w.lookup_in(&d.node, "a").unwrap().node;
    w.fs.rmdir(&w.cx, Place { dir: &d.node, name: b"a" }, &a).unwrap();
    assert_eq!(w.attr(&d.node).nlink, 3);
    assert_eq!(w.attr(&w.root).nlink, 3);
}
