//! Descriptor tables over a memory file system: numbers, sharing, and many at once (lessons R5.x).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use vfscale::{
    Context, Cwd, Errno, FdTable, Files, OpenFile, OpenFlags, Options, Vfs, close_pending,
};
use vfscale_backends::MemFs;

const CX: Context = Context::root();
const RDWR: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

fn mount() -> Vfs<MemFs> {
    Vfs::new(MemFs::new(), Options::exclusive()).expect("a mount")
}

fn open(vfs: &Vfs<MemFs>, name: &str) -> OpenFile {
    vfs.create(&CX, &vfs.root(), name.as_bytes(), 0o644, RDWR).expect("create").1
}

#[test]
fn numbers_are_reserved_filled_and_given_back() {
    let vfs = mount();
    let fds = FdTable::new(3);
    let a = open(&vfs, "a");
    let reserved = fds.reserve(0).unwrap();
    assert_eq!(reserved.fd(), 0);
    assert_eq!(fds.install(a.clone()), Ok(1));
    assert!(fds.fget(0).is_none());
    assert_eq!(fds.close(0).map(drop), Err(Errno::EBADF));
    assert_eq!(fds.dup2(1, 0).map(drop), Err(Errno::EBUSY));
    assert_eq!(fds.close_range(0, u32::MAX), Ok(1), "the reserved one stays");
    assert_eq!(fds.len(), 1);
    drop(reserved);
    assert!(fds.is_empty());
    for fd in 0..3 {
        assert_eq!(fds.install(a.clone()), Ok(fd));
    }
    assert_eq!(fds.install(a.clone()), Err(Errno::EMFILE));
    assert_eq!(fds.dup(0, 3), Err(Errno::EINVAL));
    assert_eq!(fds.dup2(0, 3).map(drop), Err(Errno::EBADF));
    assert_eq!(fds.close_range(2, 1), Err(Errno::EINVAL));
    fds.close(1).unwrap();
    assert_eq!(fds.dup(2, 0), Ok(1));
}

#[test]
fn dup_rules() {
    let vfs = mount();
    let fds = FdTable::new(1 << 20);
    let (a, b) = (open(&vfs, "a"), open(&vfs, "b"));
    fds.install(a.clone()).unwrap();
    fds.install(b.clone()).unwrap();
    assert_eq!(fds.dup(0, 700), Ok(700));
    assert_eq!(fds.dup2(0, 100_000), Ok(None));
    assert_eq!(fds.fget(100_000), Some(a.clone()));
    assert_eq!(fds.dup2(0, 1), Ok(Some(b)), "what was there before is the caller's");
    assert_eq!(fds.dup2(0, 0), Ok(None));
    assert_eq!(fds.dup3(0, 0), Err(Errno::EINVAL));
    assert_eq!(fds.dup2(5, 5), Err(Errno::EBADF));
    assert_eq!(fds.dup2(5, 0), Err(Errno::EBADF));
    let open: Vec<u32> = std::iter::successors(fds.fget_next(0), |(fd, _)| fds.fget_next(fd + 1))
        .map(|(fd, _)| fd)
        .collect();
    assert_eq!(open, [0, 1, 700, 100_000]);
    let copy = fds.fork();
    assert_eq!(fds.close_range(1, 800), Ok(2));
    assert_eq!((fds.len(), copy.len()), (2, 4));
    assert_eq!(copy.fget(700), Some(a));
}

#[test]
fn a_fork_copies_no_reservation() {
    let vfs = mount();
    let fds = FdTable::new(10);
    let reserved = fds.reserve(0).unwrap();
    fds.install(open(&vfs, "a")).unwrap();
    let copy = fds.fork();
    assert_eq!((copy.len(), copy.install(open(&vfs, "b"))), (1, Ok(0)));
    drop(reserved);
}

#[test]
fn what_is_put_later_closes_later() {
    let vfs = mount();
    let fds = FdTable::new(10);
    let fd = fds.install(open(&vfs, "a")).unwrap();
    assert_eq!(vfs.stats().files, 1);
    fds.close(fd).unwrap().put_later();
    assert!(fds.is_empty());
    // Another test's table may have closed it by now; what counts is that nothing stays open.
    close_pending();
    vfs.unmount().expect("no file is open");
}

/// d) A get followed by no second look would answer with what was never in the slot.
#[test]
fn r5_2_a_get_answers_only_what_was_in_the_slot() {
    let vfs = mount();
    let fds = FdTable::new(64);
    let (a, b) = (open(&vfs, "a"), open(&vfs, "b"));
    let (ours, theirs) = (fds.install(a.clone()).unwrap(), fds.install(b.clone()).unwrap());
    let (a, b) = (a.inode(), b.inode());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = [(ours, &a), (theirs, &b)]
            .into_iter()
            .map(|(fd, inode)| {
                let (fds, stop) = (&fds, &stop);
                scope.spawn(move || {
                    let mut seen = 0_u32;
                    while !stop.load(Relaxed) {
                        if let Some(file) = fds.fget(fd) {
                            assert_eq!(file.inode(), *inode);
                            seen += 1;
                        }
                    }
                    seen
                })
            })
            .collect();
        // The files' slots in the pool change places: each is closed and opened again.
        for _ in 0..2_000 {
            for (fd, inode) in [(ours, &a), (theirs, &b)] {
                drop(fds.close(fd).unwrap());
                let file = vfs.open(&CX, inode, RDWR).unwrap();
                assert_eq!(fds.install(file), Ok(fd));
            }
        }
        stop.store(true, Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

#[test]
fn r5_7_who_is_alone_borrows_and_who_is_not_counts() {
    let vfs = mount();
    let mut files = Files::new(FdTable::new(64));
    let fd = files.install(open(&vfs, "a")).unwrap();
    assert!(!files.fdget(fd).unwrap().is_counted());
    let other = files.clone();
    assert!(files.fdget(fd).unwrap().is_counted());
    for round in 0..300 {
        let other = other.clone();
        let vfs = &vfs;
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                drop(other.close(fd).unwrap());
                assert_eq!(other.install(open(vfs, &format!("f{round}"))), Ok(fd));
            });
            // Whenever it is found, it is whole.
            while !thread.is_finished() {
                if let Some(file) = files.fdget(fd) {
                    assert!(file.is_counted());
                    assert_eq!(vfs.write(&file, 0, b"x"), Ok(1));
                }
            }
            thread.join().unwrap();
        });
    }
    drop(other);
    let file = files.fdget(fd).unwrap();
    assert!(!file.is_counted());
    assert_eq!(vfs.write(&file, 0, b"xyz"), Ok(3));
}

/// Threads list one opening: each entry goes to one of them.
#[test]
fn r5_8_listing_on_from_a_position_is_one_at_a_time() {
    let vfs = Arc::new(mount());
    for i in 0..400 {
        open(&vfs, &format!("f{i}"));
    }
    let cwd = Cwd::new(vfs, CX);
    let dir = cwd.open(b"/", OpenFlags::READ | OpenFlags::DIRECTORY, 0).unwrap();
    let list = || {
        let next = || dir.readdir(3).unwrap();
        let lists = std::iter::repeat_with(next).take_while(|listed| !listed.is_empty());
        lists.flatten().map(|entry| entry.name).collect::<Vec<_>>()
    };
    let mut names = std::thread::scope(|scope| {
        let threads = [(); 4].map(|()| scope.spawn(list));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    names.sort();
    let all = names.len();
    names.dedup();
    assert_eq!((all, names.len()), (400, 400), "none twice, none lost");
}

/// Owners open 500 descriptors and close the whole range, again and again, while others look at all of them.
#[test]
fn r5_9_many_open_and_close_ranges_while_others_look() {
    const EACH: usize = 500;
    let vfs = mount();
    let inode = open(&vfs, "a").inode();
    let tables = [(); 2].map(|()| FdTable::new(4096));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let owners: Vec<_> = tables
            .iter()
            .map(|fds| {
                scope.spawn(|| {
                    for _ in 0..40 {
                        for _ in 0..EACH {
                            let file = vfs.open(&CX, &inode, RDWR).unwrap();
                            fds.install(file).unwrap();
                        }
                        assert_eq!(fds.close_range(0, u32::MAX), Ok(EACH));
                    }
                })
            })
            .collect();
        let lookers: Vec<_> = tables
            .iter()
            .flat_map(|fds| [fds, fds])
            .map(|fds| {
                let (stop, inode) = (&stop, &inode);
                scope.spawn(move || {
                    while !stop.load(Relaxed) {
                        let mut from = 0;
                        while let Some((fd, file)) = fds.fget_next(from) {
                            assert_eq!(file.inode(), *inode);
                            drop(file.clone());
                            from = fd + 1;
                        }
                    }
                })
            })
            .collect();
        for owner in owners {
            owner.join().unwrap();
        }
        stop.store(true, Relaxed);
        for looker in lookers {
            looker.join().unwrap();
        }
    });
    assert!(tables.iter().all(FdTable::is_empty));
    drop(inode);
    assert_eq!(vfs.stats().files, 0);
    vfs.unmount().expect("nothing is left");
}

/// `dup2` onto a number others use: they find the one file or the other, never none.
#[test]
fn dup2_leaves_no_gap() {
    let vfs = mount();
    let fds = FdTable::new(64);
    let files = ["a", "b"].map(|name| open(&vfs, name));
    let numbers = [0, 1].map(|i: usize| fds.install(files[i].clone()).unwrap());
    let target = fds.install(files[0].clone()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !stop.load(Relaxed) {
                let file = fds.fget(target).expect("it is always open");
                assert!(files.contains(&file));
            }
        });
        for round in 0..5_000 {
            drop(fds.dup2(numbers[round % 2], target).unwrap());
        }
        stop.store(true, Relaxed);
        reader.join().unwrap();
    });
}
