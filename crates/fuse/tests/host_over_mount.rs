//! A host backend over a directory that is itself a FUSE mount.
//!
//! The test mounts. It needs the right to (the super-user) and `/dev/fuse`, and fails, saying so, without.

use std::fs;
use std::sync::Arc;

use vfscale::{Context, FileSystem, OpenFlags, Options, Place, Vfs};
use vfscale_backends::{HostFs, HostOptions, MemFs};
use vfscale_fuse::{MountOptions, serve};

/// A handle is worth only as long as the server below remembers the object, so none is used, not even to tell objects apart.
#[test]
fn objects_of_a_fuse_mount_are_reached_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let below = Arc::new(Vfs::new(MemFs::new(), Options::default()).unwrap());
    let mounted = serve(below, dir.path(), &MountOptions::default(), |_| String::new());
    let mounted = mounted.expect("this test needs the right to mount");
    {
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(dir.path().join("d/f"), "through both").unwrap();
        let options = HostOptions { fd_limit: Some(1), ..HostOptions::default() };
        let host = HostFs::new(dir.path(), options).unwrap();
        assert!(!host.uses_file_handles());
        let (cx, root) = (Context::root(), host.root().unwrap().node);
        let find = |dir, name: &str| host.lookup(&cx, Place { dir, name: name.as_bytes() });
        let d = find(&root, "d").unwrap();
        let f = find(&d.node, "f").unwrap();
        for _ in 0..3 {
            // One descriptor is kept, so each of these is reached from the root again.
            assert_eq!(find(&root, "d").unwrap().key, d.key);
            assert_eq!(find(&d.node, "f").unwrap().key, f.key);
            let handle = host.open(&cx, &f.node, OpenFlags::READ).unwrap();
            let mut content = [0; 100];
            let n = host.read(&handle, 0, &mut content).unwrap();
            assert_eq!(&content[..n], b"through both");
        }
    }
    mounted.unmount().unwrap();
}
