//! Mounts above and below the served directory. Each test has a mount namespace of its own, so
//! nothing is left behind; without the right to make one it says so and passes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::UnshareFlags;
use vfscale::conformance::{RDWR, World, absent};
use vfscale::{Context, Errno, FileSystem, OpenFlags, Options, Place, RenameFlags, Vfs, WalkFlags};
use vfscale_backends::{HostFs, HostOptions};

/// Runs in a thread whose mounts nobody else sees.
fn private(test: fn(&Path)) {
    // Removed outside, where nothing is mounted on it and this thread has its rights.
    let dir = tempfile::tempdir().unwrap();
    let run = || {
        #[allow(
            deprecated,
            reason = "the flags do not touch the descriptors that the warning is about"
        )]
        let unshared = rustix::thread::unshare(UnshareFlags::NEWNS);
        let own = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        if unshared.is_err() || mount_change("/", own).is_err() {
            println!("skipped: no right to make a mount namespace");
            return;
        }
        mount_tmpfs(dir.path());
        test(dir.path());
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap());
}

fn mount_tmpfs(at: &Path) {
    mount("tmpfs", at, "tmpfs", MountFlags::empty(), c"size=1m").unwrap();
}

fn few(file_handles: bool) -> HostOptions {
    HostOptions { fd_limit: Some(2), file_handles, ..HostOptions::default() }
}

#[test]
fn a_mount_over_the_source_changes_nothing() {
    private(|dir| {
        fs::create_dir(dir.join("sub")).unwrap();
        fs::write(dir.join("sub/f"), "below").unwrap();
        for file_handles in [true, false] {
            let w = World::new(HostFs::new(dir, few(file_handles)).unwrap());
            mount_tmpfs(dir);
            assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
            for i in 0..5 {
                w.mkdir(&format!("d{i}"));
                let sub = w.lookup("sub").unwrap().node;
                let f = w.lookup_in(&sub, "f").unwrap().node;
                let handle = w.open(&f, OpenFlags::READ).unwrap();
                assert_eq!(w.read_handle(&handle), b"below");
            }
            assert_eq!(w.names(&w.root).len(), 6);
            assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
            rustix::mount::unmount(dir, rustix::mount::UnmountFlags::DETACH).unwrap();
            for i in 0..5 {
                w.rmdir(&format!("d{i}")).unwrap();
            }
        }
    });
}

#[test]
fn a_mount_below_is_another_file_system() {
    private(|dir| {
        let below = dir.join("below");
        fs::create_dir(&below).unwrap();
        mount_tmpfs(&below);
        fs::write(dir.join("f"), "above").unwrap();
        fs::write(below.join("f"), "below").unwrap();
        for file_handles in [true, false] {
            let w = World::new(HostFs::new(dir, few(file_handles)).unwrap());
            let mounted = w.lookup("below").unwrap();
            let (above, inner) = (w.lookup("f").unwrap(), w.lookup_in(&mounted.node, "f").unwrap());
            assert_ne!(above.key, inner.key);
            for _ in 0..3 {
                let read = |node| w.read_handle(&w.open(node, OpenFlags::READ).unwrap());
                assert_eq!(read(&above.node), b"above");
                assert_eq!(read(&inner.node), b"below");
                w.lookup("f").unwrap();
            }
            let across = w.rename_in((&w.root, "f"), (&mounted.node, "g"), RenameFlags::empty());
            assert_eq!(across, Err(Errno::EXDEV));
            let at = Place { dir: &mounted.node, name: b"g" };
            assert_eq!(w.fs.link(&w.cx, &above.node, at).map(drop), Err(Errno::EXDEV));
            w.create_in(&mounted.node, "made");
            fs::remove_file(below.join("made")).unwrap();
        }
    });
}

/// Two files with one number and one device would be one file with two names.
#[test]
fn a_mount_below_has_numbers_of_its_own() {
    private(|dir| {
        let below = dir.join("below");
        fs::create_dir(&below).unwrap();
        fs::write(dir.join("f"), "").unwrap();
        mount_tmpfs(&below);
        fs::create_dir(below.join("d")).unwrap();
        fs::write(below.join("f"), "").unwrap();
        let host = |path: &Path| fs::symlink_metadata(path).unwrap().ino();
        assert_eq!(host(&dir.join("f")), host(&below.join("f")), "the case is there");
        for file_handles in [true, false] {
            let w = World::new(HostFs::new(dir, few(file_handles)).unwrap());
            let above = w.lookup("f").unwrap();
            let mounted = w.lookup("below").unwrap();
            let inner = w.lookup_in(&mounted.node, "f").unwrap();
            let d = w.lookup_in(&mounted.node, "d").unwrap();
            assert_eq!(above.attr.ino, host(&dir.join("f")), "at home they are the host's");
            let mut all =
                [above.attr.ino, w.attr(&w.root).ino, mounted.attr.ino, inner.attr.ino, d.attr.ino];
            all.sort_unstable();
            assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{all:?}");
            assert_eq!(w.attr(&inner.node).ino, inner.attr.ino);
            let (made, handle) = w.create_in(&mounted.node, "made");
            assert_eq!(w.fs.getattr(&made.node, Some(&handle)).unwrap().ino, made.attr.ino);
            fs::remove_file(below.join("made")).unwrap();
            let listed = |node, name: &str| {
                let list = w.list_some(&w.open_dir(node), 0, usize::MAX);
                list.iter().find(|entry| entry.name == name.as_bytes()).unwrap().ino
            };
            assert_eq!(listed(&mounted.node, "f"), inner.attr.ino);
            assert_eq!(listed(&mounted.node, "d"), d.attr.ino);
            assert_eq!(listed(&mounted.node, "."), mounted.attr.ino);
            assert_eq!(listed(&d.node, ".."), mounted.attr.ino);
            assert_eq!(listed(&w.root, "f"), above.attr.ino);
        }
    });
}

/// Though the same file was reached through the writable mount before.
#[test]
fn a_read_only_view_is_not_written_through_another() {
    private(|dir| {
        let (data, view) = (dir.join("data"), dir.join("view"));
        fs::create_dir(&data).unwrap();
        fs::create_dir(&view).unwrap();
        fs::write(data.join("f"), "kept").unwrap();
        rustix::mount::mount_bind(&data, &view).unwrap();
        let read_only = MountFlags::BIND | MountFlags::RDONLY;
        rustix::mount::mount_remount(&view, read_only, "").unwrap();
        for file_handles in [true, false] {
            let vfs = Vfs::new(HostFs::new(dir, few(file_handles)).unwrap(), Options::default());
            let (vfs, cx) = (vfs.unwrap(), Context::root());
            let root = vfs.root();
            let find = |path: &[u8]| vfs.walk(&cx, &root, path, WalkFlags::empty()).unwrap();
            let (written, viewed) = (find(b"/data/f"), find(b"/view/f"));
            assert!(vfs.open(&cx, &written.inode, RDWR).is_ok());
            assert_eq!(vfs.open(&cx, &viewed.inode, RDWR).map(drop), Err(Errno::EROFS));
            let made = vfs.mkdir(&cx, &find(b"/view").dentry, b"d", 0o755);
            assert_eq!(made.map(drop), Err(Errno::EROFS));
            let ino = |path: &[u8]| vfs.stat(&cx, path).unwrap().ino;
            assert_eq!(ino(b"/view/f"), ino(b"/data/f"), "as on the host");
        }
    });
}

#[test]
fn a_directory_bound_inside_itself() {
    private(|dir| {
        let (a, inside) = (dir.join("a"), dir.join("a/b"));
        fs::create_dir_all(&inside).unwrap();
        rustix::mount::mount_bind(&a, &inside).unwrap();
        for file_handles in [true, false] {
            let w = World::new(HostFs::new(dir, few(file_handles)).unwrap());
            let a = w.lookup("a").unwrap();
            let again = w.lookup_in(&a.node, "b").unwrap();
            assert_ne!(again.key, a.key);
            for _ in 0..3 {
                let lowest = w.lookup_in(&again.node, "b").unwrap();
                assert_eq!(w.names(&lowest.node), [b""; 0]);
                w.lookup_in(&a.node, "b").unwrap();
            }
        }
    });
}

/// A read-only view of the same file system: a handle from there would open on the writable mount.
#[test]
fn a_read_only_view_below_stays_read_only() {
    private(|dir| {
        let (data, view) = (dir.join("data"), dir.join("view"));
        fs::create_dir(&data).unwrap();
        fs::create_dir(&view).unwrap();
        fs::write(data.join("f"), "kept").unwrap();
        rustix::mount::mount_bind(&data, &view).unwrap();
        let read_only = MountFlags::BIND | MountFlags::RDONLY;
        rustix::mount::mount_remount(&view, read_only, "").unwrap();
        let w = World::new(HostFs::new(dir, few(true)).unwrap());
        let seen = w.lookup("view").unwrap().node;
        let f = w.lookup_in(&seen, "f").unwrap().node;
        for _ in 0..3 {
            assert_eq!(w.open(&f, RDWR).map(drop), Err(Errno::EROFS));
            let at = Place { dir: &seen, name: b"new" };
            assert_eq!(w.fs.create(&w.cx, at, 0o644, RDWR).map(drop), Err(Errno::EROFS));
            w.lookup("data").unwrap();
            w.mkdir_in(&w.lookup("data").unwrap().node, "d");
            fs::remove_dir(data.join("d")).unwrap();
        }
        assert_eq!(fs::read(data.join("f")).unwrap(), b"kept");
    });
}

/// An ordinary user serves its own directory: no handles, no other identities, and what it may not
/// stays refused.
#[test]
fn an_ordinary_user_serves_what_it_may() {
    private(|dir| {
        let (uid, gid) = (rustix::fs::Uid::from_raw(65_534), rustix::fs::Gid::from_raw(65_534));
        let own = dir.join("own");
        fs::create_dir(&own).unwrap();
        rustix::fs::chown(&own, Some(uid), Some(gid)).unwrap();
        fs::write(own.join("foreign"), "secret").unwrap();
        rustix::fs::chmod(own.join("foreign"), rustix::fs::Mode::RUSR).unwrap();
        // This thread alone; the test ends with it.
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        let w = World::new(HostFs::new(&own, few(true)).unwrap());
        assert!(!w.fs.uses_file_handles());
        let cx = Context { uid: 0, gid: 0, groups: None, pid: 0 };
        let (made, handle) = w.fs.create(&cx, w.at("f"), 0o640, RDWR).unwrap();
        assert_eq!((made.attr.uid, made.attr.gid), (65_534, 65_534));
        w.write(&handle, 0, b"mine");
        drop(handle);
        for i in 0..4 {
            w.mkdir(&format!("d{i}"));
        }
        assert_eq!(w.content("f"), b"mine");
        let foreign = w.lookup("foreign").unwrap().node;
        assert_eq!(w.open(&foreign, OpenFlags::READ).map(drop), Err(Errno::EACCES));
        absent(w.lookup("none"));
    });
}
