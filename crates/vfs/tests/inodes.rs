//! The walk over all inodes of a mount, beside others who make and drop them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use vfscale::{Context, Options, Vfs};
use vfscale_backends::MemFs;

const CX: Context = Context::root();

fn mount() -> Vfs<MemFs> {
    Vfs::new(MemFs::new(), Options::exclusive()).expect("a mount")
}

fn make(vfs: &Vfs<MemFs>, name: &str) -> vfscale::InodeRef {
    vfs.mknod(&CX, &vfs.root(), name.as_bytes(), 0o10_0644, 0).expect("mknod").inode
}

fn seen(vfs: &Vfs<MemFs>) -> BTreeMap<u64, u32> {
    let mut seen = BTreeMap::new();
    vfs.for_each_inode(|inode| {
        *seen.entry(inode.key().ino).or_default() += 1;
        ControlFlow::Continue(())
    });
    seen
}

#[test]
fn each_comes_once_and_a_break_ends_it() {
    let (vfs, other) = (mount(), mount());
    for i in 0..50 {
        make(&vfs, &format!("f{i}"));
        make(&other, &format!("f{i}"));
    }
    let all = seen(&vfs);
    assert_eq!((all.len(), all.values().max()), (51, Some(&1)), "of this mount alone");
    let mut rounds = 0;
    vfs.for_each_inode(|_| {
        rounds += 1;
        if rounds == 7 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(rounds, 7);
}

/// The body drops the last references: the walk goes on behind what is gone.
#[test]
fn the_body_may_free_what_it_is_shown() {
    let vfs = mount();
    for i in 0..200 {
        make(&vfs, &format!("f{i}"));
    }
    let mut rounds = 0;
    vfs.for_each_inode(|inode| {
        rounds += 1;
        drop(inode);
        vfs.shrink(10);
        ControlFlow::Continue(())
    });
    assert!((20..=201).contains(&rounds), "{rounds}");
    assert_eq!(seen(&vfs).len() as u64, vfs.stats().inodes);
    vfs.unmount().expect("nothing is left");
}

#[test]
fn what_stays_is_seen_once_while_others_come_and_go() {
    let vfs = mount();
    let stay: Vec<_> = (0..100).map(|i| make(&vfs, &format!("stay{i}"))).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let makers: Vec<_> = (0..3)
            .map(|maker| {
                let (vfs, stop) = (&vfs, &stop);
                scope.spawn(move || {
                    let mut round = 0_u32;
                    while !stop.load(Relaxed) {
                        let name = format!("/m{maker}-{}", round % 20);
                        drop(make(vfs, &name[1..]));
                        vfs.unlink_path(&CX, name.as_bytes()).expect("unlink");
                        round += 1;
                    }
                })
            })
            .collect();
        for _ in 0..100 {
            let seen = seen(&vfs);
            for inode in &stay {
                assert_eq!(seen.get(&inode.key().ino), Some(&1));
            }
        }
        stop.store(true, Relaxed);
        for maker in makers {
            maker.join().unwrap();
        }
    });
    drop(stay);
    vfs.unmount().expect("nothing is left");
}
