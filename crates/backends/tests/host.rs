//! What only a host directory has to get right: staying inside, and finding its objects again.

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use support::{RDWR, World, absent};
use tempfile::TempDir;
use vfscale::{Errno, FileSystem, OpenFlags, Place, RenameFlags, SetAttr, SetXattr};
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
    w.rename("a", "moved", RenameFlags::empty()).unwrap();
    evict(&w);
    assert_eq!(read(&w, &f.node), Ok(b"deep".to_vec()));
    w.rename_in((&b.node, "f"), (&w.root, "g"), RenameFlags::empty()).unwrap();
    evict(&w);
    assert_eq!(read(&w, &f.node), Ok(b"deep".to_vec()));
    // Both sides of an exchange, one of them a directory with something below.
    w.rename_in((&w.root, "g"), (&w.root, "moved"), RenameFlags::EXCHANGE).unwrap();
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
    // The core keeps the node that it had, and that one has learnt.
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
    let _ = w.lookup_in(&b.node, "a");
    for node in [&a.node, &b.node] {
        evict(&w);
        assert_eq!(w.fs.getattr(node, None).map(drop), Err(Errno::ESTALE));
    }
    assert_eq!(w.lookup("b").unwrap().key, b.key);
    assert_eq!(w.lookup_in(&b.node, "a").unwrap().key, a.key);
    evict(&w);
    assert_eq!(w.attr(&a.node).ino, a.attr.ino);
}

#[test]
fn by_name_a_hard_link_outlives_the_name_it_was_found_by() {
    let (w, _dir) = world(BY_NAME);
    let f = w.file("f", b"kept");
    w.fs.link(&w.cx, &f.node, w.at("g")).unwrap();
    w.unlink("g").unwrap();
    evict(&w);
    assert_eq!(w.fs.getattr(&f.node, None).map(drop), Err(Errno::ESTALE));
    assert_eq!(w.lookup("f").unwrap().key, f.key);
    evict(&w);
    assert_eq!(read(&w, &f.node), Ok(b"kept".to_vec()));
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
                        w.rename_in((from, &name), (to, &name), RenameFlags::empty()).unwrap();
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
