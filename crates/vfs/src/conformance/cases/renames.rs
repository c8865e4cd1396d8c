//! Renames: what moves, what stays, what is refused.
//!
//! Each lookup here makes a node of its own, and it is that one which is renamed. Where a case goes
//! on with a node from before, it hands the new one over as the core does.

use crate::{Errno, FileSystem, OpenFlags, RenameFlags};

use crate::conformance::world::{World, absent};

const PLAIN: RenameFlags = RenameFlags::empty();

pub(crate) fn plain<F: FileSystem>(w: &World<F>) {
    let (old, handle) = w.create("a");
    w.write(&handle, 0, b"1");
    w.rename("a", "b", PLAIN).unwrap();
    absent(w.lookup("a"));
    assert_eq!(w.lookup("b").unwrap().key, old.key);
    let other = w.open(&old.node, OpenFlags::WRITE).unwrap();
    w.write(&other, 0, b"2");
    w.write(&handle, 5, b"3");
    assert_eq!(w.content("b"), b"2\0\0\0\x003");
    absent(w.rename("a", "c", PLAIN));
}

pub(crate) fn over_a_file_that_is_open<F: FileSystem>(w: &World<F>) {
    let (old, handle) = w.create("v");
    w.write(&handle, 0, b"old");
    let new = w.file("v.tmp", b"new");
    w.rename("v.tmp", "v", PLAIN).unwrap();
    assert_eq!(w.lookup("v").unwrap().key, new.key);
    assert_eq!(w.content("v"), b"new");
    assert_eq!(w.read_handle(&handle), b"old");
    assert_eq!(w.fs.getattr(&old.node, Some(&handle)).unwrap().nlink, 0);
}

pub(crate) fn to_another_directory<F: FileSystem>(w: &World<F>) {
    let (p, q) = (w.mkdir("p"), w.mkdir("q"));
    let sub = w.mkdir_in(&p.node, "sub");
    let (deep, _) = w.create_in(&sub.node, "deep");
    w.rename_in((&p.node, "sub"), (&q.node, "moved"), PLAIN).unwrap();
    absent(w.lookup_in(&p.node, "sub"));
    let moved = w.lookup_in(&q.node, "moved").unwrap();
    assert_eq!(moved.key, sub.key);
    w.fs.found_again(&sub.node, &moved.node);
    // Both by the node from before and by the one from after.
    assert_eq!(w.lookup_in(&sub.node, "deep").unwrap().key, deep.key);
    assert_eq!(w.lookup_in(&moved.node, "deep").unwrap().key, deep.key);
    assert_eq!((w.attr(&p.node).nlink, w.attr(&q.node).nlink), (2, 3));
    let listed = w.list_some(&w.open_dir(&sub.node), 0, 10);
    let dot_dot = listed.iter().find(|entry| entry.name == b"..").unwrap();
    assert_eq!(dot_dot.ino, q.attr.ino);
}

pub(crate) fn kinds_must_match<F: FileSystem>(w: &World<F>) {
    let (full, _empty) = (w.mkdir("full"), w.mkdir("empty"));
    w.create_in(&full.node, "x");
    w.create("file");
    assert_eq!(w.rename("file", "empty", PLAIN), Err(Errno::EISDIR));
    assert_eq!(w.rename("empty", "file", PLAIN), Err(Errno::ENOTDIR));
    assert_eq!(w.rename("empty", "full", PLAIN), Err(Errno::ENOTEMPTY));
    assert_eq!(w.names(&w.root), [&b"empty"[..], b"file", b"full"]);
    w.rename("full", "empty", PLAIN).unwrap();
    let moved = w.lookup("empty").unwrap();
    assert_eq!(moved.key, full.key);
    w.fs.found_again(&full.node, &moved.node);
    assert_eq!(w.names(&full.node), [b"x"]);
    // A directory onto the one it stands in.
    let inner = w.mkdir_in(&full.node, "inner");
    let up = w.rename_in((&full.node, "inner"), (&w.root, "empty"), PLAIN);
    assert_eq!(up, Err(Errno::ENOTEMPTY));
    assert_eq!(w.lookup_in(&full.node, "inner").unwrap().key, inner.key);
}

pub(crate) fn noreplace<F: FileSystem>(w: &World<F>) {
    w.file("a", b"AAAA");
    w.file("b", b"BBBB");
    assert_eq!(w.rename("a", "b", RenameFlags::NOREPLACE), Err(Errno::EEXIST));
    assert_eq!((w.content("a"), w.content("b")), (b"AAAA".to_vec(), b"BBBB".to_vec()));
    w.rename("a", "c", RenameFlags::NOREPLACE).unwrap();
    assert_eq!(w.content("c"), b"AAAA");
}

pub(crate) fn exchange<F: FileSystem>(w: &World<F>) {
    let (a, b) = (w.file("a", b"AAAA"), w.file("b", b"BBBB"));
    w.rename("a", "b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!((w.content("a"), w.content("b")), (b"BBBB".to_vec(), b"AAAA".to_vec()));
    assert_eq!((w.lookup("a").unwrap().key, w.lookup("b").unwrap().key), (b.key, a.key));
    absent(w.rename("a", "missing", RenameFlags::EXCHANGE));
    absent(w.rename("missing", "a", RenameFlags::EXCHANGE));
}

pub(crate) fn exchange_of_directories<F: FileSystem>(w: &World<F>) {
    let (d, e) = (w.mkdir("d"), w.mkdir("e"));
    let (f, _) = w.create_in(&e.node, "f");
    w.rename_in((&w.root, "d"), (&e.node, "f"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!(w.lookup("d").unwrap().key, f.key);
    let moved = w.lookup_in(&e.node, "f").unwrap();
    assert_eq!(moved.key, d.key);
    w.fs.found_again(&d.node, &moved.node);
    assert_eq!((w.attr(&w.root).nlink, w.attr(&e.node).nlink), (3, 3));
    let listed = w.list_some(&w.open_dir(&d.node), 0, 10);
    assert_eq!(listed.iter().find(|entry| entry.name == b"..").unwrap().ino, e.attr.ino);
    let ring = w.rename_in((&w.root, "e"), (&e.node, "f"), RenameFlags::EXCHANGE);
    assert_eq!(ring, Err(Errno::EINVAL));
}

pub(crate) fn into_its_own_subtree<F: FileSystem>(w: &World<F>) {
    let d = w.mkdir("d");
    let sub = w.mkdir_in(&d.node, "sub");
    for dir in [&d.node, &sub.node] {
        let moved = w.rename_in((&w.root, "d"), (dir, "x"), PLAIN);
        assert_eq!(moved, Err(Errno::EINVAL));
    }
    assert_eq!(w.lookup("d").unwrap().key, d.key);
}

pub(crate) fn two_names_of_one_inode<F: FileSystem>(w: &World<F>) {
    let a = w.file("a", b"x");
    w.fs.link(&w.cx, &a.node, w.at("b")).unwrap();
    let d = w.mkdir("d");
    let at = crate::Place { dir: &d.node, name: b"c" };
    w.fs.link(&w.cx, &a.node, at).unwrap();
    let before = w.attr(&a.node);
    w.rename("a", "b", PLAIN).unwrap();
    w.rename_in((&w.root, "a"), (&d.node, "c"), PLAIN).unwrap();
    w.rename("a", "b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(w.attr(&a.node).nlink, 3);
    assert_eq!(w.attr(&a.node).mtime, before.mtime);
    for name in ["a", "b"] {
        assert_eq!(w.lookup(name).unwrap().key, a.key);
    }
}

pub(crate) fn bad_flags_change_nothing<F: FileSystem>(w: &World<F>) {
    w.file("a", b"AAAA");
    w.file("b", b"BBBB");
    let both = RenameFlags::NOREPLACE | RenameFlags::EXCHANGE;
    assert_eq!(w.rename("a", "b", both), Err(Errno::EINVAL));
    assert_eq!(w.rename("a", "b", RenameFlags::from_bits_retain(1 << 9)), Err(Errno::EINVAL));
    assert_eq!((w.content("a"), w.content("b")), (b"AAAA".to_vec(), b"BBBB".to_vec()));
}
