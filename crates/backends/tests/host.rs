//! What only a host directory has to get right: staying inside, and finding its objects again.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use tempfile::TempDir;
use vfscale::conformance::{RDWR, World, absent};
use vfscale::{
    Context, Errno, FileSystem, OpenFlags, Options, Place, RenameFlags, SetAttr, SetXattr, Vfs,
    WalkFlags,
};
use vfscale_backends::{HostError, HostFs, HostOptions};

const BY_NAME: HostOptions =
    HostOptions { fd_limit: Some(2), act_as_caller: true, read_only: false, file_handles: false };

/// A directory and a file system over it.
fn world(options: HostOptions) -> (World<HostFs>, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (World::new(HostFs::new(dir.path(), options).unwrap()), dir)
}

/// Makes sure that no descriptor but those of two other objects is kept.
fn evict(w: &World<HostFs>) {
    for name in ["evict-a", "evict-b", "evict-c", "evict-d"] {
        if w.lookup(name).is_err() {
            w.mkdir(name);
        }
    }
    for name in ["evict-a", "evict-b", "evict-c", "evict-d", "evict-a", "evict-b"] {
        w.lookup(name).unwrap();
    }
}

fn read(w: &World<HostFs>, node: &<HostFs as FileSystem>::Node) -> Result<Vec<u8>, Errno> {
    Ok(w.read_handle(&w.open(node, OpenFlags::READ)?))
}

#[test]
fn source_must_be_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    for (path, error) in [(file, Errno::ENOTDIR), (dir.path().join("none"), Errno::ENOENT)] {
        let refused = HostFs::new(&path, HostOptions::default()).map(drop).unwrap_err();
        assert_eq!(refused, HostError::Open { path: path.clone(), error });
        assert!(refused.to_string().contains(path.to_str().unwrap()));
    }
}

#[test]
fn names_that_would_leave_are_refused() {
    let (w, _dir) = world(HostOptions::default());
    let d = w.mkdir("d").node;
    for name in [&b""[..], b".", b"..", b"a/b", b"/etc", b"a\0b"] {
        let at = Place { dir: &d, name };
        let refused = Err(Errno::EINVAL);
        assert_eq!(w.fs.lookup(&w.cx, at).map(drop), refused);
        assert_eq!(w.fs.mkdir(&w.cx, at, 0o755).map(drop), refused);
        assert_eq!(w.fs.create(&w.cx, at, 0o644, RDWR).map(drop), refused);
        assert_eq!(w.fs.symlink(&w.cx, at, b"t").map(drop), refused);
        assert!(w.fs.link(&w.cx, &d, at).is_err());
        assert_eq!(w.fs.unlink(&w.cx, at, &d), refused);
        assert_eq!(w.fs.rmdir(&w.cx, at, &d), refused);
        let moved = w.fs.rename(&w.cx, w.at("d"), at, RenameFlags::empty(), &d, None);
        assert_eq!(moved, refused);
    }
}

#[test]
fn links_lead_nowhere() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    let (w, dir) = world(BY_NAME);
    symlink(outside.path(), dir.path().join("way-out")).unwrap();
    let link = w.lookup("way-out").unwrap().node;
    assert_eq!(w.lookup_in(&link, "secret").map(drop), Err(Errno::ENOTDIR));
    let at = Place { dir: &link, name: b"new" };
    assert_eq!(w.fs.create(&w.cx, at, 0o644, RDWR).map(drop), Err(Errno::ENOTDIR));
    // A directory that we know is swapped for a link to another.
    let inner = w.mkdir("inner").node;
    w.create_in(&inner, "secret");
    let inside = w.lookup_in(&inner, "secret").unwrap().node;
    evict(&w);
    fs::rename(dir.path().join("inner"), dir.path().join("aside")).unwrap();
    symlink(outside.path(), dir.path().join("inner")).unwrap();
    assert_eq!(w.lookup_in(&inner, "secret").map(drop), Err(Errno::ESTALE));
    assert_eq!(read(&w, &inside), Err(Errno::ESTALE));
    let at = Place { dir: &inner, name: b"new" };
    assert_eq!(w.fs.create(&w.cx, at, 0o644, RDWR).map(drop), Err(Errno::ESTALE));
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn by_handle_an_object_is_found_wherever_it_went() {
    let (w, dir) = world(HostOptions { fd_limit: Some(2), ..HostOptions::default() });
    if !w.fs.uses_file_handles() {
        println!("skipped: no right to open file handles, or a file system without them");
        return;
    }
    let d = w.mkdir("d");
    let (f, handle) = w.create_in(&d.node, "f");
    w.write(&handle, 0, b"here");
    drop(handle);
    evict(&w);
    fs::create_dir(dir.path().join("e")).unwrap();
    fs::rename(dir.path().join("d"), dir.path().join("e/d")).unwrap();
    fs::rename(dir.path().join("e/d/f"), dir.path().join("g")).unwrap();
    assert_eq!(read(&w, &f.node), Ok(b"here".to_vec()));
    assert_eq!(w.lookup("g").unwrap().key, f.key);
    w.create_in(&d.node, "new");
    assert!(dir.path().join("e/d/new").exists());
    // The number may come again at once, the object does not.
    evict(&w);
    fs::remove_file(dir.path().join("g")).unwrap();
    fs::write(dir.path().join("g"), "another").unwrap();
    assert_eq!(w.fs.getattr(&f.node, None).map(drop), Err(Errno::ESTALE));
    assert_ne!(w.lookup("g").unwrap().key, f.key);
}

#[test]
fn by_name_our_own_renames_are_followed() {
    let (w, _dir) = world(BY_NAME);
    let a = w.mkdir("a");
    let b = w.mkdir_in(&a.node, "b");
    let (f, handle) = w.create_in(&b.node, "f");
    w.write(&handle, 0, b"deep");
    drop(handle);
    let none = RenameFlags::empty();
    w.move_known((&w.root, "a"), (&w.root, "moved"), none, &a.node, None);
    evict(&w);
    assert_eq!(read(&w, &f.node), Ok(b"deep".to_vec()));
    w.move_known((&b.node, "f"), (&w.root, "g"), none, &f.node, None);
    evict(&w);
    assert_eq!(read(&w, &f.node), Ok(b"deep".to_vec()));
    // Both sides of an exchange, one of them a directory with something below.
    let (g, moved) = ((&w.root, "g"), (&w.root, "moved"));
    w.move_known(g, moved, RenameFlags::EXCHANGE, &f.node, Some(&a.node));
    w.create_in(&b.node, "below");
    let below = w.lookup_in(&b.node, "below").unwrap();
    evict(&w);
    assert_eq!(read(&w, &f.node), Ok(b"deep".to_vec()));
    assert_eq!(w.attr(&below.node).ino, below.attr.ino);
}

#[test]
fn by_name_a_move_on_the_host_is_stale_until_seen() {
    let (w, dir) = world(BY_NAME);
    let a = w.mkdir("a");
    let (f, _) = w.create_in(&a.node, "f");
    evict(&w);
    fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
    assert_eq!(w.fs.getattr(&f.node, None).map(drop), Err(Errno::ESTALE));
    absent(w.lookup("a"));
    let found = w.lookup("b").unwrap();
    assert_eq!(found.key, a.key);
    // The core keeps the node that it had, and that one learns once the place is accepted.
    evict(&w);
    assert_eq!(w.fs.getattr(&f.node, None).map(drop), Err(Errno::ESTALE));
    w.fs.found_again(&a.node, &found.node);
    drop(found);
    evict(&w);
    assert_eq!(w.attr(&f.node).ino, f.attr.ino);
    // Another object under the old name is not taken for it.
    evict(&w);
    fs::rename(dir.path().join("b/f"), dir.path().join("b/g")).unwrap();
    fs::write(dir.path().join("b/f"), "another").unwrap();
    assert_eq!(read(&w, &f.node), Err(Errno::ESTALE));
}

#[test]
fn by_name_directories_that_swap_places_on_the_host() {
    let (w, dir) = world(BY_NAME);
    let a = w.mkdir("a");
    let b = w.mkdir_in(&a.node, "b");
    evict(&w);
    // a/b becomes b/a: each one's last known parent is now below it.
    fs::rename(dir.path().join("a/b"), dir.path().join("b")).unwrap();
    fs::rename(dir.path().join("a"), dir.path().join("b/a")).unwrap();
    for node in [&a.node, &b.node] {
        evict(&w);
        assert_eq!(w.fs.getattr(node, None).map(drop), Err(Errno::ESTALE));
    }
    let found = w.lookup("b").unwrap();
    assert_eq!(found.key, b.key);
    w.fs.found_again(&b.node, &found.node);
    let lower = w.lookup_in(&b.node, "a").unwrap();
    assert_eq!(lower.key, a.key);
    w.fs.found_again(&a.node, &lower.node);
    evict(&w);
    assert_eq!(w.attr(&a.node).ino, a.attr.ino);
}

/// A mount by name that believes nothing for long.
fn core_by_name() -> (Vfs<HostFs>, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    for name in ["evict-a", "evict-b", "evict-c"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    let mut options = Options::exclusive();
    (options.entry_ttl, options.attr_ttl, options.negative_ttl) = Default::default();
    (Vfs::new(HostFs::new(dir.path(), BY_NAME).unwrap(), options).unwrap(), dir)
}

fn evict_core(vfs: &Vfs<HostFs>) {
    for path in [b"/evict-a", b"/evict-b", b"/evict-c", b"/evict-a", b"/evict-b"] {
        vfs.stat(&Context::root(), path).unwrap();
    }
}

#[test]
fn by_name_what_the_core_refuses_changes_no_place() {
    let (vfs, dir) = core_by_name();
    let (cx, at) = (Context::root(), |name: &str| dir.path().join(name));
    fs::create_dir_all(at("a/inner")).unwrap();
    let a = vfs.lookup(&cx, &vfs.root(), b"a").unwrap();
    let inner = vfs.lookup(&cx, &a.dentry, b"inner").unwrap();
    // Upside down for a moment, and seen so by who has the inner one open.
    fs::rename(at("a/inner"), at("x")).unwrap();
    fs::rename(at("a"), at("x/a")).unwrap();
    assert_eq!(vfs.lookup(&cx, &inner.dentry, b"a").map(drop), Err(Errno::ELOOP));
    fs::rename(at("x/a"), at("a")).unwrap();
    fs::rename(at("x"), at("a/inner")).unwrap();
    evict_core(&vfs);
    assert_eq!(vfs.getattr(&inner.inode, None).unwrap().ino, inner.attr.ino);
    assert_eq!(vfs.getattr(&a.inode, None).unwrap().ino, a.attr.ino);
}

#[test]
fn by_name_the_core_follows_moves_on_the_host_once_it_sees_them() {
    let (vfs, dir) = core_by_name();
    let (cx, root, at) = (Context::root(), vfs.root(), |name: &str| dir.path().join(name));
    fs::create_dir_all(at("a/b")).unwrap();
    fs::write(at("a/b/f"), "moved").unwrap();
    let f = vfs.walk(&cx, &root, b"/a/b/f", WalkFlags::empty()).unwrap();
    let b = vfs.walk(&cx, &root, b"/a/b", WalkFlags::empty()).unwrap();
    fs::rename(at("a/b"), at("b")).unwrap();
    fs::rename(at("a"), at("b/a")).unwrap();
    evict_core(&vfs);
    assert_eq!(vfs.getattr(&f.inode, None).map(drop), Err(Errno::ESTALE));
    assert_eq!(vfs.lookup(&cx, &root, b"b").unwrap().dentry, b.dentry);
    evict_core(&vfs);
    assert_eq!(vfs.getattr(&f.inode, None).unwrap().size, 5);
    assert_eq!(vfs.stat(&cx, b"/b/a").unwrap().kind, vfscale::FileType::Directory);
    // Made known by the core, moved by the core.
    vfs.rename(&cx, &b.dentry, b"f", &root, b"g", RenameFlags::empty()).unwrap();
    evict_core(&vfs);
    assert_eq!(vfs.getattr(&f.inode, None).unwrap().size, 5);
}

#[test]
fn by_name_a_hard_link_outlives_either_of_its_names() {
    for gone in ["f", "g"] {
        let (w, _dir) = world(BY_NAME);
        let f = w.file("f", b"kept");
        w.fs.link(&w.cx, &f.node, w.at("g")).unwrap();
        w.fs.unlink(&w.cx, w.at(gone), &f.node).unwrap();
        evict(&w);
        assert_eq!(read(&w, &f.node), Ok(b"kept".to_vec()));
    }
    // Found by both names, and one goes on the host.
    let (vfs, dir) = core_by_name();
    let cx = Context::root();
    fs::write(dir.path().join("f"), "kept").unwrap();
    fs::hard_link(dir.path().join("f"), dir.path().join("g")).unwrap();
    let inode = vfs.lookup(&cx, &vfs.root(), b"f").unwrap().inode;
    assert_eq!(vfs.lookup(&cx, &vfs.root(), b"g").unwrap().inode, inode);
    fs::remove_file(dir.path().join("g")).unwrap();
    evict_core(&vfs);
    assert_eq!(vfs.getattr(&inode, None).unwrap().nlink, 1);
}

/// Whatever a host shows, and whatever races with it: no ring of objects that nobody could free,
/// and no endless way up.
#[test]
fn by_name_there_are_no_rings() {
    let (w, _dir) = world(HostOptions { fd_limit: Some(64), ..BY_NAME });
    let (x, y) = (w.mkdir("x"), w.mkdir("y"));
    w.mkdir_in(&x.node, "y");
    w.mkdir_in(&y.node, "x");
    w.fs.found_again(&x.node, &w.lookup_in(&x.node, "y").unwrap().node);
    assert_eq!(w.attr(&x.node).ino, x.attr.ino);
    drop((x, y));
    assert_eq!(w.fs.cached_fds(), 0);
    // Far below the root the look for a ring takes time, and two of them overlap.
    let mut deep = w.mkdir("deep").node;
    for _ in 0..200 {
        deep = w.mkdir_in(&deep, "d").node;
    }
    let (x, y) = (w.mkdir_in(&deep, "x").node, w.mkdir_in(&deep, "y").node);
    w.mkdir_in(&x, "y");
    w.mkdir_in(&y, "x");
    drop((x, y));
    for _ in 0..300 {
        let ready = AtomicU32::new(0);
        let find = |name| w.lookup_in(&deep, name).unwrap().node;
        let (x, y) = (find("x"), find("y"));
        let (in_x, in_y) = (w.lookup_in(&x, "y").unwrap(), w.lookup_in(&y, "x").unwrap());
        std::thread::scope(|scope| {
            for (known, again) in [(&x, in_y), (&y, in_x)] {
                let (w, ready) = (&w, &ready);
                scope.spawn(move || {
                    // Nobody sleeps, so both start at the same moment.
                    ready.fetch_add(1, SeqCst);
                    while ready.load(SeqCst) < 2 {
                        std::thread::yield_now();
                    }
                    w.fs.found_again(known, &again.node);
                });
            }
        });
    }
    drop(deep);
    assert_eq!(w.fs.cached_fds(), 0, "everything was freed");
}

#[test]
fn by_name_what_lies_below_an_open_directory_is_reached() {
    let (w, dir) = world(BY_NAME);
    let d = w.mkdir("d");
    let (f, handle) = w.create_in(&d.node, "f");
    w.write(&handle, 0, b"below");
    drop(handle);
    let open = w.open_dir(&d.node);
    fs::rename(dir.path().join("d"), dir.path().join("e")).unwrap();
    evict(&w);
    assert_eq!(read(&w, &f.node), Ok(b"below".to_vec()));
    evict(&w);
    assert_eq!(w.attr(&d.node).ino, d.attr.ino);
    drop(open);
    evict(&w);
    assert_eq!(w.fs.getattr(&f.node, None).map(drop), Err(Errno::ESTALE));
}

#[test]
fn what_is_open_is_reached_without_a_name() {
    for options in [BY_NAME, HostOptions { file_handles: true, ..BY_NAME }] {
        let (w, dir) = world(options);
        let (f, handle) = w.create("f");
        w.write(&handle, 0, b"still");
        fs::remove_file(dir.path().join("f")).unwrap();
        evict(&w);
        assert_eq!(w.attr(&f.node).nlink, 0);
        assert_eq!(read(&w, &f.node), Ok(b"still".to_vec()));
        evict(&w);
        let cut = SetAttr { size: Some(1), perm: Some(0o400), ..Default::default() };
        assert_eq!(w.set(&f.node, cut).unwrap().size, 1);
        absent(w.fs.link(&w.cx, &f.node, w.at("again")));
        drop(handle);
        evict(&w);
        assert_eq!(w.fs.getattr(&f.node, None).map(drop), Err(Errno::ESTALE));
    }
}

/// Who looked a name up just before it went can still open what it meant, as on the host.
#[test]
fn a_latecomer_opens_what_the_name_meant() {
    let (w, _dir) = world(HostOptions::default());
    let (f, new, old) = (w.file("f", b"1"), w.file("new", b"2"), w.file("old", b"3"));
    assert_eq!(w.fs.cached_fds(), 0, "a new file is only open");
    w.fs.unlink(&w.cx, w.at("f"), &f.node).unwrap();
    let (none, replaced) = (RenameFlags::empty(), Some(&old.node));
    w.fs.rename(&w.cx, w.at("new"), w.at("old"), none, &new.node, replaced).unwrap();
    assert_eq!(read(&w, &f.node), Ok(b"1".to_vec()));
    assert_eq!(read(&w, &old.node), Ok(b"3".to_vec()));
    assert_eq!(w.attr(&old.node).nlink, 0);
    // Nothing is kept of them once nobody knows them, so the host can free them.
    drop((f, old));
    assert_eq!(w.fs.cached_fds(), 0);
}

#[test]
fn read_only_refuses_every_change() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "content").unwrap();
    let options = HostOptions { read_only: true, ..HostOptions::default() };
    let w = World::new(HostFs::new(dir.path(), options).unwrap());
    let f = w.lookup("f").unwrap().node;
    let refused = Err(Errno::EROFS);
    assert_eq!(w.fs.create(&w.cx, w.at("g"), 0o644, RDWR).map(drop), refused);
    assert_eq!(w.fs.mkdir(&w.cx, w.at("g"), 0o755).map(drop), refused);
    assert_eq!(w.fs.mknod(&w.cx, w.at("g"), 0o10_0644, 0).map(drop), refused);
    assert_eq!(w.fs.symlink(&w.cx, w.at("g"), b"t").map(drop), refused);
    assert_eq!(w.fs.link(&w.cx, &f, w.at("g")).map(drop), refused);
    assert_eq!(w.unlink("f"), refused);
    assert_eq!(w.rename("f", "g", RenameFlags::empty()), refused);
    assert_eq!(w.set(&f, SetAttr { perm: Some(0), ..Default::default() }).map(drop), refused);
    assert_eq!(w.fs.setxattr(&w.cx, &f, b"user.a", b"", SetXattr::Any), refused);
    assert_eq!(w.fs.removexattr(&w.cx, &f, b"user.a"), refused);
    for flags in [RDWR, OpenFlags::WRITE, OpenFlags::READ | OpenFlags::TRUNCATE] {
        assert_eq!(w.open(&f, flags).map(drop), refused);
    }
    assert_eq!(read(&w, &f), Ok(b"content".to_vec()));
}

#[test]
fn without_acting_as_the_caller_files_are_the_servers() {
    let (w, dir) = world(HostOptions { act_as_caller: false, ..HostOptions::default() });
    let cx = vfscale::Context { uid: 1234, gid: 1234, groups: None, pid: 0 };
    w.fs.create(&cx, w.at("f"), 0o644, RDWR).unwrap();
    let owner = fs::metadata(dir.path()).unwrap().uid();
    assert_eq!(fs::metadata(dir.path().join("f")).unwrap().uid(), owner);
}

#[test]
fn a_long_value_is_read_whole() {
    let (w, _dir) = world(HostOptions::default());
    let f = w.file("f", b"").node;
    let value: Vec<u8> = (0..1500_u32).map(|i| i as u8).collect();
    w.fs.setxattr(&w.cx, &f, b"user.long", &value, SetXattr::Any).unwrap();
    assert_eq!(w.fs.getxattr(&w.cx, &f, b"user.long").unwrap(), value);
    for i in 0..20 {
        let name = format!("user.{i:050}");
        w.fs.setxattr(&w.cx, &f, name.as_bytes(), b"", SetXattr::Any).unwrap();
    }
    let list = w.fs.listxattr(&w.cx, &f).unwrap();
    assert_eq!(list.iter().filter(|&&b| b == 0).count(), 21);
}

#[test]
fn trusted_attributes_are_listed_to_the_super_user_alone() {
    let (w, _dir) = world(HostOptions::default());
    // On a link too, which has attributes of its own.
    let link = w.fs.symlink(&w.cx, w.at("l"), b"f").unwrap().node;
    let f = w.file("f", b"").node;
    if w.fs.setxattr(&w.cx, &link, b"trusted.t", b"v", SetXattr::Any) == Err(Errno::EPERM) {
        println!("skipped: no right to set trusted attributes");
        return;
    }
    assert_eq!(w.fs.getxattr(&w.cx, &link, b"trusted.t").unwrap(), b"v");
    assert_eq!(w.fs.getxattr(&w.cx, &f, b"trusted.t"), Err(Errno::ENODATA));
    assert_eq!(w.fs.listxattr(&w.cx, &link).unwrap(), b"trusted.t\0");
    let user = vfscale::Context { uid: 1234, gid: 1234, groups: None, pid: 0 };
    assert_eq!(w.fs.listxattr(&user, &link).unwrap(), b"");
}

/// A short answer would mean the end of the file, and a client's kernel would fill up with zeros.
#[test]
fn an_error_in_the_middle_of_a_read_is_an_error() {
    // The memory of this process as a file. Before the heap lies a gap of random size, which no
    // other thread fills.
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let lines: Vec<_> = maps.lines().collect();
    let range = |line: &str| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
    };
    let heap = lines.iter().position(|line| line.ends_with("[heap]"));
    let ranges = heap.and_then(|i| range(lines[i - 1]).zip(range(lines[i])));
    let Some(((_, end), (_, _))) = ranges.filter(|((_, end), (start, _))| end < start) else {
        println!("skipped: no gap before the heap");
        return;
    };
    let w = World::new(HostFs::new(Path::new("/proc/self"), HostOptions::default()).unwrap());
    let memory = w.open(&w.lookup("mem").unwrap().node, OpenFlags::READ).unwrap();
    let mut buf = [0; 8192];
    assert_eq!(w.fs.read(&memory, end - 4096, &mut buf[..4096]), Ok(4096));
    assert_eq!(w.fs.read(&memory, end - 4096, &mut buf), Err(Errno::EIO));
}

#[test]
fn changes_on_the_host_are_seen() {
    let (w, dir) = world(HostOptions::default());
    let f = w.file("f", b"1").node;
    fs::write(dir.path().join("f"), "three").unwrap();
    assert_eq!(w.attr(&f).size, 5);
    let root = w.open_dir(&w.root);
    assert_eq!(w.list_some(&root, 0, 10).len(), 3);
    fs::write(dir.path().join("g"), "").unwrap();
    assert_eq!(w.list_some(&root, 0, 10).len(), 4, "a listing from the start is new");
    assert!(Path::new(dir.path()).exists());
}

#[test]
fn many_threads_with_few_descriptors() {
    for options in [BY_NAME, HostOptions { file_handles: true, ..BY_NAME }] {
        let (w, _dir) = world(options);
        let dirs: Vec<_> = (0..4).map(|i| w.mkdir(&format!("d{i}")).node).collect();
        std::thread::scope(|scope| {
            for t in 0..4 {
                let (w, dirs) = (&w, &dirs);
                scope.spawn(move || {
                    for i in 0..150 {
                        let (from, to) = (&dirs[(t + i) % 4], &dirs[(t + i + 1) % 4]);
                        let name = format!("f{t}");
                        let (entry, handle) = w.create_in(from, &name);
                        w.write(&handle, 0, name.as_bytes());
                        drop(handle);
                        let none = RenameFlags::empty();
                        w.move_known((from, &name), (to, &name), none, &entry.node, None);
                        assert_eq!(read(w, &entry.node), Ok(name.clone().into_bytes()));
                        let at = Place { dir: to, name: name.as_bytes() };
                        w.fs.unlink(&w.cx, at, &entry.node).unwrap();
                    }
                });
            }
        });
        assert!(w.fs.cached_fds() <= w.fs.fd_limit());
        for dir in &dirs {
            assert!(w.names(dir).is_empty());
        }
    }
}
