//! The examples of the guide: what they show through a mount, and the conformance kit.
//!
//! These tests mount. They need the right to (the super-user) and `/dev/fuse`, and fail, saying so, without.

#[path = "../examples/bundle.rs"]
mod bundle;
#[path = "../examples/from_fuser.rs"]
mod from_fuser;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vfscale::{FileSystem, Options, Vfs};
use vfscale_fuse::{MountOptions, Mounted, serve};

use self::bundle::Bundle;

fn mount<F: FileSystem>(fs: F, point: &Path) -> Mounted {
    let vfs = Arc::new(Vfs::new(fs, Options::default()).expect("the backend"));
    let options = MountOptions::parse("ro").expect("the options");
    serve(vfs, point, &options, |stats| format!("{stats:?}"))
        .expect("this test needs the right to mount")
}

fn sample() -> Bundle {
    Bundle::new(&[
        ("README", b"hello\n"),
        ("empty", b""),
        ("docs/guide", b"write, mount, test, tune\n"),
        ("docs/more/deep", &[7; 100_000]),
    ])
}

/// All below `dir`: type and permission bits, size, and content or target.
fn tree(dir: &Path) -> BTreeMap<PathBuf, (u32, u64, Vec<u8>)> {
    let (mut tree, mut dirs) = (BTreeMap::new(), vec![PathBuf::new()]);
    while let Some(at) = dirs.pop() {
        for entry in fs::read_dir(dir.join(&at)).expect("a directory") {
            let entry = entry.expect("an entry");
            let (path, meta) = (at.join(entry.file_name()), entry.metadata().expect("stat"));
            let content = if meta.is_dir() {
                dirs.push(path.clone());
                Vec::new()
            } else if meta.is_symlink() {
                fs::read_link(entry.path()).expect("readlink").into_os_string().into_encoded_bytes()
            } else {
                fs::read(entry.path()).expect("read")
            };
            let size = if meta.is_dir() { 0 } else { meta.len() };
            tree.insert(path, (meta.mode(), size, content));
        }
    }
    tree
}

#[test]
fn bundle_passes_the_conformance_kit() {
    vfscale::conformance::run_read_only(sample).assert_passed();
    vfscale::conformance::run_read_only(|| Bundle::new(&[])).assert_passed();
}

#[test]
fn bundle_is_served() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mounted = mount(sample(), dir.path());
    let seen = tree(dir.path());
    let names: Vec<_> = seen.keys().map(|path| path.to_str().unwrap()).collect();
    assert_eq!(names, ["README", "docs", "docs/guide", "docs/more", "docs/more/deep", "empty"]);
    assert_eq!(seen[Path::new("README")].2, b"hello\n");
    assert_eq!(seen[Path::new("docs/more/deep")].2, [7; 100_000]);
    assert!(fs::write(dir.path().join("README"), "no").is_err());
    mounted.unmount().expect("nothing uses it");
}

#[test]
fn the_example_is_as_short_as_the_guide_says() {
    let lines = include_str!("../examples/bundle.rs").lines().count();
    assert!(lines <= 150, "{lines} lines");
}

fn source() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| dir.path().join(name);
    fs::create_dir_all(path("a/b")).unwrap();
    fs::write(path("a/b/small"), "small").unwrap();
    fs::write(path("a/large"), vec![3; 300_000]).unwrap();
    fs::hard_link(path("a/large"), path("linked")).unwrap();
    std::os::unix::fs::symlink("a/b/small", path("link")).unwrap();
    dir
}

#[test]
fn before_and_after_show_the_same() {
    let source = source();
    let points = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let before = from_fuser::before::Mirror::new(source.path());
    let session = fuser::spawn_mount(before, points[0].path(), &fuser::Config::default())
        .expect("this test needs the right to mount");
    let mounted = mount(from_fuser::after::Mirror::new(source.path()), points[1].path());
    let expected = tree(source.path());
    assert_eq!(expected.len(), 6);
    std::thread::scope(|scope| {
        for point in points.iter().cycle().take(6) {
            let expected = &expected;
            scope.spawn(move || assert_eq!(&tree(point.path()), expected));
        }
    });
    // What the table of paths could not know.
    let ino = |name: &str| fs::metadata(points[1].path().join(name)).unwrap().ino();
    assert_eq!(ino("a/large"), ino("linked"));
    mounted.unmount().expect("nothing uses it");
    drop(session);
}

#[test]
fn after_passes_the_conformance_kit() {
    let source = source();
    vfscale::conformance::run_read_only(|| from_fuser::after::Mirror::new(source.path()))
        .assert_passed();
}
