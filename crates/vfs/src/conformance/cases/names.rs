//! Creating, finding and removing names.

use std::ops::ControlFlow;

use crate::{Errno, FileSystem, FileType, OpenFlags, Place, RenameFlags};

use crate::conformance::world::{RDWR, World, absent, gone};

pub(crate) fn absent_name<F: FileSystem>(w: &World<F>) {
    absent(w.lookup("nothing"));
}

pub(crate) fn create_then_look_up<F: FileSystem>(w: &World<F>) {
    let (made, _handle) = w.create("a");
    let found = w.lookup("a").unwrap();
    assert_eq!((found.key, found.attr), (made.key, made.attr));
    assert_eq!(found.attr.kind, FileType::Regular);
    assert_eq!((found.attr.nlink, found.attr.size), (1, 0));
    assert_ne!(found.attr.ino, 0);
    assert_ne!(w.mkdir("b").key, found.key);
}

pub(crate) fn create_refuses_an_existing_name<F: FileSystem>(w: &World<F>) {
    w.file("a", b"kept");
    let again = w.fs.create(&w.cx, w.at("a"), 0o600, RDWR).map(drop);
    assert_eq!(again, Err(Errno::EEXIST));
    assert_eq!(w.fs.mkdir(&w.cx, w.at("a"), 0o700).map(drop), Err(Errno::EEXIST));
    assert_eq!(w.fs.symlink(&w.cx, w.at("a"), b"t").map(drop), Err(Errno::EEXIST));
    assert_eq!(w.fs.mknod(&w.cx, w.at("a"), 0o10_0600, 0).map(drop), Err(Errno::EEXIST));
    assert_eq!(w.content("a"), b"kept");
    // A dangling link is a name too.
    w.fs.symlink(&w.cx, w.at("dangling"), b"nowhere").unwrap();
    let over = w.fs.create(&w.cx, w.at("dangling"), 0o600, RDWR).map(drop);
    assert_eq!(over, Err(Errno::EEXIST));
    absent(w.lookup("nowhere"));
}

pub(crate) fn names_are_bytes<F: FileSystem>(w: &World<F>) {
    let names: [&[u8]; 6] = [b"\xff", b"\xc3", b"\x80.", b"\n", b"\\", &[0xfe; 255]];
    for name in names {
        let at = Place { dir: &w.root, name };
        let made = w.fs.create(&w.cx, at, 0o644, RDWR).unwrap().0;
        assert_eq!(w.fs.lookup(&w.cx, at).unwrap().key, made.key);
    }
    let mut sorted: Vec<Vec<u8>> = names.iter().map(|name| name.to_vec()).collect();
    sorted.sort();
    assert_eq!(w.names(&w.root), sorted);
    for name in names {
        let at = Place { dir: &w.root, name };
        let node = w.fs.lookup(&w.cx, at).unwrap().node;
        w.fs.unlink(&w.cx, at, &node).unwrap();
    }
    assert!(w.names(&w.root).is_empty());
}

pub(crate) fn too_long_a_name<F: FileSystem>(w: &World<F>) {
    let long = "x".repeat(256);
    let refused = Err(Errno::ENAMETOOLONG);
    assert_eq!(w.lookup(&long).map(drop), refused);
    assert_eq!(w.fs.mkdir(&w.cx, w.at(&long), 0o755).map(drop), refused);
    assert_eq!(w.fs.create(&w.cx, w.at(&long), 0o644, RDWR).map(drop), refused);
    w.file("a", b"");
    assert_eq!(w.rename("a", &long, RenameFlags::empty()), refused);
    w.lookup("a").unwrap();
}

pub(crate) fn hard_links_are_one_inode<F: FileSystem>(w: &World<F>) {
    let made = w.file("f", b"12345");
    let attr = w.fs.link(&w.cx, &made.node, w.at("g")).unwrap();
    assert_eq!(attr.nlink, 2);
    let other = w.lookup("g").unwrap();
    assert_eq!(other.key, made.key);
    let handle = w.open(&made.node, OpenFlags::WRITE | OpenFlags::APPEND).unwrap();
    w.write(&handle, 0, b"6789");
    assert_eq!(w.attr(&other.node).size, 9);
    assert_eq!(w.content("g"), b"123456789");
    w.unlink("f").unwrap();
    assert_eq!(w.attr(&other.node).nlink, 1);
    assert_eq!(w.fs.link(&w.cx, &other.node, w.at("g")).map(drop), Err(Errno::EEXIST));
    let back = w.fs.link(&w.cx, &other.node, w.at("f")).unwrap();
    assert_eq!((back.nlink, back.ino), (2, made.attr.ino));
}

pub(crate) fn link_refuses_directories_and_dead_inodes<F: FileSystem>(w: &World<F>) {
    let dir = w.mkdir("d");
    assert_eq!(w.fs.link(&w.cx, &dir.node, w.at("e")).map(drop), Err(Errno::EPERM));
    let (entry, _handle) = w.create("f");
    w.unlink("f").unwrap();
    absent(w.fs.link(&w.cx, &entry.node, w.at("g")));
    absent(w.lookup("g"));
    // A link to a symbolic link is one more name of the link, not of its target.
    let link = w.fs.symlink(&w.cx, w.at("l"), b"anywhere").unwrap();
    assert_eq!(w.fs.link(&w.cx, &link.node, w.at("m")).unwrap().kind, FileType::Symlink);
    assert_eq!(w.lookup("m").unwrap().key, link.key);
}

pub(crate) fn unlinked_but_open<F: FileSystem>(w: &World<F>) {
    let (old, handle) = w.create("f");
    w.unlink("f").unwrap();
    absent(w.lookup("f"));
    w.write(&handle, 0, &[7; 100]);
    let change = crate::SetAttr { size: Some(10), perm: Some(0o600), ..Default::default() };
    let attr = w.fs.setattr(&w.cx, &old.node, Some(&handle), &change).unwrap();
    assert_eq!((attr.size, attr.perm, attr.nlink), (10, 0o600, 0));
    w.fs.setxattr(&w.cx, &old.node, b"user.k", b"v", crate::SetXattr::Any).unwrap();
    assert_eq!(w.fs.getxattr(&w.cx, &old.node, b"user.k").unwrap(), b"v");
    let (new, _) = w.create("f");
    assert_ne!(new.key, old.key);
    assert_eq!(w.content("f"), b"");
    assert_eq!(w.read_handle(&handle), [7; 10]);
    assert_eq!(w.fs.getattr(&old.node, Some(&handle)).unwrap().nlink, 0);
    // A second opening of what has no name left.
    let again = w.open(&old.node, RDWR).unwrap();
    assert_eq!(w.read_handle(&again), [7; 10]);
}

pub(crate) fn unlink_and_rmdir_know_their_kinds<F: FileSystem>(w: &World<F>) {
    let dir = w.mkdir("d");
    w.create_in(&dir.node, "f");
    w.create("f");
    assert_eq!(w.unlink("d"), Err(Errno::EISDIR));
    assert_eq!(w.rmdir("f"), Err(Errno::ENOTDIR));
    assert_eq!(w.rmdir("d"), Err(Errno::ENOTEMPTY));
    let child = w.lookup_in(&dir.node, "f").unwrap().node;
    w.fs.unlink(&w.cx, Place { dir: &dir.node, name: b"f" }, &child).unwrap();
    w.rmdir("d").unwrap();
    absent(w.lookup("d"));
    let file = w.lookup("f").unwrap().node;
    assert_eq!(w.lookup_in(&file, "x").map(drop), Err(Errno::ENOTDIR));
    absent(w.fs.unlink(&w.cx, w.at("gone"), &file));
}

pub(crate) fn removed_directory_takes_no_names<F: FileSystem>(w: &World<F>) {
    let dir = w.mkdir("d");
    let handle = w.open_dir(&dir.node);
    w.rmdir("d").unwrap();
    let at = Place { dir: &dir.node, name: b"f" };
    gone(w.fs.create(&w.cx, at, 0o644, RDWR));
    gone(w.fs.mkdir(&w.cx, at, 0o755));
    let file = w.file("f", b"");
    gone(w.fs.link(&w.cx, &file.node, at));
    gone(w.fs.rename(&w.cx, w.at("f"), at, RenameFlags::empty(), &file.node, None));
    w.lookup("f").unwrap();
    gone(w.fs.readdir(&handle, 0, &mut |_| ControlFlow::Continue(())));
}

pub(crate) fn symbolic_links<F: FileSystem>(w: &World<F>) {
    let target = b"some/\xffwhere";
    let link = w.fs.symlink(&w.cx, w.at("l"), target).unwrap();
    assert_eq!((link.attr.kind, link.attr.perm), (FileType::Symlink, 0o777));
    assert_eq!(link.attr.size, target.len() as u64);
    assert_eq!(w.fs.readlink(&link.node).unwrap(), target);
    let file = w.file("f", b"");
    assert_eq!(w.fs.readlink(&file.node), Err(Errno::EINVAL));
    let long = vec![b'x'; 4095];
    let at = w.at("long");
    let made = w.fs.symlink(&w.cx, at, &long).unwrap();
    assert_eq!(w.fs.readlink(&made.node).unwrap(), long);
    let too_long = w.fs.symlink(&w.cx, w.at("longer"), &[b'x'; 4096]).map(drop);
    assert_eq!(too_long, Err(Errno::ENAMETOOLONG));
    // Nobody follows it: what the client does not resolve is not resolved.
    w.fs.symlink(&w.cx, w.at("to-root"), b"/").unwrap();
    assert_eq!(w.lookup("to-root").unwrap().attr.kind, FileType::Symlink);
}

pub(crate) fn special_files<F: FileSystem>(w: &World<F>) {
    let device = (1 << 8) | 3;
    let cases = [
        ("p", 0o01_0644, 0, FileType::Fifo),
        ("s", 0o14_0600, 0, FileType::Socket),
        ("c", 0o02_0666, device, FileType::CharDevice),
        ("b", 0o06_0660, device, FileType::BlockDevice),
        ("r", 0o10_0444, 0, FileType::Regular),
    ];
    for (name, mode, rdev, kind) in cases {
        let made = w.fs.mknod(&w.cx, w.at(name), mode, rdev).unwrap();
        assert_eq!((made.attr.kind, made.attr.perm), (kind, mode & 0o7777), "{name}");
        assert_eq!(made.attr.rdev, rdev, "{name}");
        assert_eq!(w.lookup(name).unwrap().key, made.key);
        if kind != FileType::Regular {
            // Never waits for the other end, never reaches a device on behalf of a client.
            let opened = w.open(&made.node, OpenFlags::READ).map(drop);
            assert_eq!(opened, Err(Errno::ENXIO), "{name}");
        }
        w.unlink(name).unwrap();
    }
}

pub(crate) fn mode_is_exact<F: FileSystem>(w: &World<F>) {
    for perm in [0, 0o444, 0o777, 0o666, 0o4755, 0o2755, 0o1777, 0o6777] {
        let made = w.fs.create(&w.cx, w.at("f"), perm, RDWR).unwrap().0;
        assert_eq!(made.attr.perm, perm);
        w.unlink("f").unwrap();
        let made = w.fs.mkdir(&w.cx, w.at("d"), perm & 0o1777).unwrap();
        assert_eq!(made.attr.perm, perm & 0o1777);
        w.rmdir("d").unwrap();
        let made = w.fs.mknod(&w.cx, w.at("p"), 0o01_0000 | perm, 0).unwrap();
        assert_eq!(made.attr.perm, perm);
        w.unlink("p").unwrap();
    }
}
