//! Limits and depths that only a file system in memory has.

use vfscale::conformance::{RDWR, World};
use vfscale::{Errno, FileSystem, Place, RenameFlags, SetXattr, StatFs};
use vfscale_backends::{MemFs, MemOptions};

const PAGE: u64 = 4096;

fn world(pages: u64, inodes: u64) -> World<MemFs> {
    let options = MemOptions { size_limit_bytes: Some(pages * PAGE), inode_limit: Some(inodes) };
    World::new(MemFs::with_options(options))
}

fn used(w: &World<MemFs>) -> (u64, u64) {
    let StatFs { blocks, bfree, files, ffree, .. } = w.fs.statfs().unwrap();
    (blocks - bfree, files - ffree)
}

#[test]
fn space_ends_and_comes_back() {
    let w = world(4, 100);
    let (_, handle) = w.create("a");
    assert_eq!(w.fs.write(&handle, 0, &[1; 6 * PAGE as usize]), Ok(4 * PAGE as usize));
    assert_eq!(w.fs.write(&handle, 4 * PAGE, b"x"), Err(Errno::ENOSPC));
    assert_eq!(used(&w), (4, 2));
    let (_, other) = w.create("b");
    assert_eq!(w.fs.fallocate(&other, 0, 0, 1), Err(Errno::ENOSPC));
    // An open file keeps its pages until it is closed.
    w.unlink("a").unwrap();
    assert_eq!(used(&w).0, 4);
    drop(handle);
    assert_eq!(used(&w), (0, 2));
    w.write(&other, 0, b"fits");
}

#[test]
fn what_is_replaced_gives_its_space_back() {
    let w = world(10, 100);
    w.file("a", &[1; 3 * PAGE as usize]);
    w.file("b", &[1; 5 * PAGE as usize]);
    w.rename("a", "b", RenameFlags::empty()).unwrap();
    assert_eq!(used(&w), (3, 2));
}

#[test]
fn inodes_end_and_come_back() {
    let w = world(10, 3);
    w.mkdir("a");
    w.create("b");
    let full = Err(Errno::ENOSPC);
    assert_eq!(w.fs.mkdir(&w.cx, w.at("c"), 0o755).map(drop), full);
    assert_eq!(w.fs.symlink(&w.cx, w.at("c"), b"t").map(drop), full);
    assert_eq!(w.fs.create(&w.cx, w.at("c"), 0o644, RDWR).map(drop), full);
    assert_eq!(w.attr(&w.root).nlink, 3, "what failed left no trace");
    w.rmdir("a").unwrap();
    w.create("c");
}

#[test]
fn extended_attributes_are_counted() {
    let w = world(20, 100);
    let f = w.file("f", b"").node;
    let set = |name: &[u8], len| w.fs.setxattr(&w.cx, &f, name, &vec![7; len], SetXattr::Any);
    assert_eq!(set(b"user.a", 65_537), Err(Errno::from_raw(7)));
    set(b"user.a", 65_536).unwrap();
    assert_eq!(used(&w).0, 16);
    assert_eq!(set(b"user.b", 65_536), Err(Errno::ENOSPC));
    assert_eq!(w.fs.getxattr(&w.cx, &f, b"user.b"), Err(Errno::ENODATA));
    set(b"user.a", 10).unwrap();
    assert_eq!(used(&w).0, 0);
    set(b"user.b", 50_000).unwrap();
    w.unlink("f").unwrap();
    drop(f);
    assert_eq!(used(&w), (0, 1));
}

#[test]
fn a_deep_tree_goes_without_recursion() {
    const DEPTH: usize = 100_000;
    let w = world(10, 1_000_000);
    let mut at = w.mkdir("d").node;
    for _ in 0..DEPTH {
        at = w.mkdir_in(&at, "d").node;
    }
    assert_eq!(used(&w).1, DEPTH as u64 + 2);
    drop(at);
    drop(w);
}

#[test]
fn numbers_are_not_used_twice() {
    let w = world(10, 10);
    let first = w.file("f", b"").attr.ino;
    w.unlink("f").unwrap();
    assert_ne!(w.file("f", b"").attr.ino, first);
}

/// Moves, removals and creations that lock the same directories in every order. Nothing may hang,
/// and each name is in one place.
#[test]
fn renames_and_removals_at_once() {
    let w = World::new(MemFs::new());
    let (p, q) = (w.mkdir("p").node, w.mkdir("q").node);
    let x = w.mkdir_in(&p, "x").node;
    w.create_in(&p, "z");
    const ROUNDS: usize = 1500;
    let none = RenameFlags::empty();
    std::thread::scope(|scope| {
        let (w, p, q, x) = (&w, &p, &q, &x);
        for _ in 0..2 {
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let _ = w.rename_in((p, "x"), (q, "x"), none);
                    let _ = w.rename_in((q, "x"), (p, "x"), none);
                }
            });
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let _ = w.rename_in((p, "z"), (x, "z"), none);
                    let _ = w.rename_in((x, "z"), (q, "z"), none);
                    let _ = w.rename_in((q, "z"), (p, "z"), none);
                    // Refused, whoever comes first: into its own subtree.
                    let _ = w.rename_in((p, "x"), (x, "ring"), none);
                }
            });
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    for dir in [p, q] {
                        let at = Place { dir, name: b"y" };
                        let _ = w.fs.mkdir(&w.cx, at, 0o755);
                        let _ = w.fs.rmdir(&w.cx, at, dir);
                        let _ = w.rename_in((dir, "y"), (p, "y2"), none);
                    }
                    let _ = w.rename_in((p, "y2"), (q, "y"), RenameFlags::EXCHANGE);
                }
            });
        }
    });
    let all: Vec<_> = [&p, &q, &x].into_iter().flat_map(|dir| w.names(dir)).collect();
    for name in [b"x", b"z"] {
        assert_eq!(all.iter().filter(|n| n == &name).count(), 1, "{all:?}");
    }
    for dir in [&p, &q] {
        let subdirs = w.list_some(&w.open_dir(dir), 0, 100);
        let subdirs = subdirs.iter().filter(|e| e.kind == Some(vfscale::FileType::Directory));
        assert_eq!(w.attr(dir).nlink as usize, subdirs.count());
    }
}
