//! Attributes: owners, bits, times, extended attributes.

use crate::{
    Context, Errno, FileSystem, FileType, OpenFlags, SetAttr, SetTime, SetXattr, Timestamp,
};

use crate::conformance::world::{RDWR, World, tick};

pub(crate) fn root_is_a_directory<F: FileSystem>(w: &World<F>) {
    let root = w.fs.root().unwrap();
    assert_eq!(root.attr.kind, FileType::Directory);
    assert_eq!(root.key, w.fs.root().unwrap().key);
    assert_eq!(w.attr(&w.root).ino, root.attr.ino);
}

pub(crate) fn times_follow_changes<F: FileSystem>(w: &World<F>) {
    let (entry, handle) = w.create("f");
    let t0 = w.attr(&entry.node);
    assert!(t0.btime.is_none_or(|btime| btime <= t0.ctime));
    tick();
    w.write(&handle, 0, b"x");
    let t1 = w.attr(&entry.node);
    assert!(t1.mtime > t0.mtime && t1.ctime > t0.ctime);
    tick();
    w.set(&entry.node, SetAttr { perm: Some(0o600), ..Default::default() }).unwrap();
    let t2 = w.attr(&entry.node);
    assert!(t2.mtime == t1.mtime && t2.ctime > t1.ctime);
    let r2 = w.attr(&w.root);
    tick();
    w.fs.link(&w.cx, &entry.node, w.at("g")).unwrap();
    let (t3, r3) = (w.attr(&entry.node), w.attr(&w.root));
    assert!(t3.ctime > t2.ctime && r3.mtime > r2.mtime && r3.ctime > r2.ctime);
    tick();
    w.unlink("g").unwrap();
    let (t4, r4) = (w.attr(&entry.node), w.attr(&w.root));
    assert!(t4.ctime > t3.ctime && r4.mtime > r3.mtime);
    assert_eq!(t4.btime, t0.btime);
}

pub(crate) fn times_are_set_and_omitted<F: FileSystem>(w: &World<F>) {
    let entry = w.file("f", b"");
    let at = |sec, nsec| Timestamp { sec, nsec };
    let set = |atime: Option<Timestamp>, mtime: Option<Timestamp>| SetAttr {
        atime: atime.map(SetTime::At),
        mtime: mtime.map(SetTime::At),
        ..Default::default()
    };
    let (t1, t2) = (at(1_000_000_000, 123_456_789), at(2_000_000_000, 1));
    let attr = w.set(&entry.node, set(Some(t1), Some(t1))).unwrap();
    assert_eq!((attr.atime, attr.mtime), (t1, t1));
    let attr = w.set(&entry.node, set(None, Some(t2))).unwrap();
    assert_eq!((attr.atime, attr.mtime), (t1, t2));
    let now = SetAttr { atime: Some(SetTime::Now), ..Default::default() };
    let attr = w.set(&entry.node, now).unwrap();
    assert!(attr.atime.sec > t1.sec + 1000);
    assert_eq!(attr.mtime, t2);
    let before = w.attr(&entry.node);
    assert_eq!(w.set(&entry.node, SetAttr::default()).unwrap(), before);
    // Before 1970 and after 2038.
    let (early, late) = (at(-86_400, 5), at(4_000_000_000, 999_999_999));
    let attr = w.set(&entry.node, set(Some(early), Some(late))).unwrap();
    assert_eq!((attr.atime, attr.mtime), (early, late));
    // A link's own times, though its target does not exist.
    let link = w.fs.symlink(&w.cx, w.at("l"), b"nowhere").unwrap();
    let attr = w.set(&link.node, set(Some(t1), Some(t2))).unwrap();
    assert_eq!((attr.atime, attr.mtime), (t1, t2));
    // Through an opening whose name is gone.
    let (gone, handle) = w.create("gone");
    w.unlink("gone").unwrap();
    let attr = w.fs.setattr(&w.cx, &gone.node, Some(&handle), &set(None, Some(t1))).unwrap();
    assert_eq!(attr.mtime, t1);
}

pub(crate) fn owner_and_group_change_together<F: FileSystem>(w: &World<F>) {
    let entry = w.file("f", b"");
    let change = SetAttr { uid: Some(1234), gid: Some(5678), ..Default::default() };
    let attr = w.set(&entry.node, change).unwrap();
    assert_eq!((attr.uid, attr.gid), (1234, 5678));
    let attr = w.set(&entry.node, SetAttr { gid: Some(9), ..Default::default() }).unwrap();
    assert_eq!((attr.uid, attr.gid), (1234, 9));
    let link = w.fs.symlink(&w.cx, w.at("l"), b"f").unwrap();
    let attr = w.set(&link.node, SetAttr { uid: Some(7), ..Default::default() }).unwrap();
    assert_eq!((attr.uid, attr.kind), (7, FileType::Symlink));
    assert_eq!(w.attr(&entry.node).uid, 1234);
}

pub(crate) fn owner_change_clears_set_uid<F: FileSystem>(w: &World<F>) {
    let entry = w.file("f", b"");
    let perm = |perm| SetAttr { perm: Some(perm), ..Default::default() };
    let owner = SetAttr { uid: Some(1234), gid: Some(1234), ..Default::default() };
    assert_eq!(w.set(&entry.node, perm(0o6755)).unwrap().perm, 0o6755);
    assert_eq!(w.set(&entry.node, owner).unwrap().perm, 0o755);
    // Owner first, then bits: asked for in one call, the bits stay.
    let both = SetAttr { perm: Some(0o4755), ..owner };
    assert_eq!(w.set(&entry.node, both).unwrap().perm, 0o4755);
    let dir = w.mkdir("d");
    w.set(&dir.node, perm(0o2775)).unwrap();
    assert_eq!(w.set(&dir.node, owner).unwrap().perm, 0o2775);
}

pub(crate) fn set_gid_directory<F: FileSystem>(w: &World<F>) {
    let dir = w.mkdir("d");
    let group = SetAttr { gid: Some(4321), ..Default::default() };
    w.set(&dir.node, group).unwrap();
    w.set(&dir.node, SetAttr { perm: Some(0o2777), ..Default::default() }).unwrap();
    let cx = Context { uid: 1234, gid: 1234, groups: Some(vec![4321]), pid: 0 };
    let at = |name| crate::Place { dir: &dir.node, name };
    let f = w.fs.create(&cx, at(b"f"), 0o644, RDWR).unwrap().0.attr;
    let s = w.fs.mkdir(&cx, at(b"s"), 0o755).unwrap().attr;
    let l = w.fs.symlink(&cx, at(b"l"), b"t").unwrap().attr;
    let p = w.fs.mknod(&cx, at(b"p"), 0o01_0644, 0).unwrap().attr;
    for attr in [f, s, l, p] {
        assert_eq!((attr.uid, attr.gid), (1234, 4321), "{:?}", attr.kind);
    }
    assert_eq!((f.perm, s.perm), (0o644, 0o2755));
    // A member of the group may make a set-gid file; another may not, and is not told.
    let mine = w.fs.create(&cx, at(b"g"), 0o2755, RDWR).unwrap().0.attr;
    assert_eq!(mine.perm, 0o2755);
    let other = Context { groups: Some(vec![]), ..cx };
    let theirs = w.fs.create(&other, at(b"h"), 0o2755, RDWR).unwrap().0.attr;
    assert_eq!(theirs.perm, 0o755);
}

pub(crate) fn created_as_the_caller<F: FileSystem>(w: &World<F>) {
    let cx = Context { uid: 1234, gid: 5678, groups: Some(vec![]), pid: 0 };
    // The front end has decided already that the caller may: the root may well be 0755 and
    // another's.
    let f = w.fs.create(&cx, w.at("f"), 0o644, OpenFlags::WRITE).unwrap().0.attr;
    let d = w.fs.mkdir(&cx, w.at("d"), 0o755).unwrap().attr;
    let l = w.fs.symlink(&cx, w.at("l"), b"t").unwrap().attr;
    let p = w.fs.mknod(&cx, w.at("p"), 0o01_0644, 0).unwrap().attr;
    let c = w.fs.mknod(&cx, w.at("c"), 0o02_0644, 0x103).unwrap().attr;
    for attr in [f, d, l, p, c] {
        assert_eq!((attr.uid, attr.gid), (1234, 5678), "{:?}", attr.kind);
    }
    let ours = w.fs.create(&w.cx, w.at("g"), 0o644, OpenFlags::WRITE).unwrap().0.attr;
    assert_eq!((ours.uid, ours.gid), (0, 0));
}

pub(crate) fn extended_attributes<F: FileSystem>(w: &World<F>) {
    let (f, d) = (w.file("f", b""), w.mkdir("d"));
    for node in [&f.node, &d.node] {
        assert_eq!(w.fs.listxattr(&w.cx, node).unwrap(), b"");
        w.fs.setxattr(&w.cx, node, b"user.a", b"1", SetXattr::Any).unwrap();
        w.fs.setxattr(&w.cx, node, b"user.\xff", b"", SetXattr::Create).unwrap();
        assert_eq!(w.fs.getxattr(&w.cx, node, b"user.a").unwrap(), b"1");
        assert_eq!(w.fs.getxattr(&w.cx, node, b"user.\xff").unwrap(), b"");
        w.fs.setxattr(&w.cx, node, b"user.a", &[3; 1000], SetXattr::Replace).unwrap();
        assert_eq!(w.fs.getxattr(&w.cx, node, b"user.a").unwrap(), [3; 1000]);
        let list = w.fs.listxattr(&w.cx, node).unwrap();
        let mut names: Vec<_> = list.split_inclusive(|&b| b == 0).collect();
        names.sort();
        assert_eq!(names, [&b"user.a\0"[..], b"user.\xff\0"]);
        w.fs.removexattr(&w.cx, node, b"user.a").unwrap();
        assert_eq!(w.fs.getxattr(&w.cx, node, b"user.a"), Err(Errno::ENODATA));
    }
}

pub(crate) fn extended_attribute_errors<F: FileSystem>(w: &World<F>) {
    let f = w.file("f", b"").node;
    let set = |name: &[u8], how| w.fs.setxattr(&w.cx, &f, name, b"v", how);
    assert_eq!(set(b"user.a", SetXattr::Replace), Err(Errno::ENODATA));
    set(b"user.a", SetXattr::Create).unwrap();
    assert_eq!(set(b"user.a", SetXattr::Create), Err(Errno::EEXIST));
    assert_eq!(w.fs.removexattr(&w.cx, &f, b"user.none"), Err(Errno::ENODATA));
    assert_eq!(set(b"nospace", SetXattr::Any), Err(Errno::EOPNOTSUPP));
    let long = [&b"user."[..], &[b'x'; 251]].concat();
    assert_eq!(set(&long, SetXattr::Any), Err(Errno::ERANGE));
    // Not for links; and never through a link at its target.
    let link = w.fs.symlink(&w.cx, w.at("l"), b"f").unwrap().node;
    let refused = w.fs.setxattr(&w.cx, &link, b"user.b", b"v", SetXattr::Any);
    assert_eq!(refused, Err(Errno::EPERM));
    assert_eq!(w.fs.getxattr(&w.cx, &f, b"user.b"), Err(Errno::ENODATA));
}

pub(crate) fn statfs_tells_the_longest_name<F: FileSystem>(w: &World<F>) {
    let stat = w.fs.statfs().unwrap();
    assert_eq!(stat.namelen, 255);
    assert!(stat.bsize > 0 && stat.frsize > 0 && stat.blocks >= stat.bfree);
}
