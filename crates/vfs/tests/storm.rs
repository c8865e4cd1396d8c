//! Eight threads do everything at once in a small tree, with hardly any names allowed to stay; at the end nothing may be left.
//!
//! `VFSCALE_STORM_SECONDS` sets how long (2 by default).

#[path = "../../sync/src/testing.rs"]
mod testing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use vfscale::{
    Context, Errno, FdTable, InodeRef, OpenFlags, Options, Reclaim, RenameFlags, Vfs, WalkFlags,
};
use vfscale_backends::MemFs;

const THREADS: u64 = 8;

/// What a thread in the midst of others may be told, besides success.
fn expected(error: Errno) -> bool {
    matches!(
        error,
        Errno::ENOENT
            | Errno::EEXIST
            | Errno::ENOTEMPTY
            | Errno::EISDIR
            | Errno::ENOTDIR
            | Errno::EINVAL
            | Errno::ESTALE
            | Errno::EBADF
            | Errno::EPERM
    )
}

/// xorshift: the same numbers in every run of a thread.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn path(&mut self) -> Vec<u8> {
        let mut path = Vec::new();
        for _ in 0..=self.below(3) {
            path.extend(format!("/n{}", self.below(6)).bytes());
        }
        path
    }
}

/// A front end's way with nodes: a count in an integer, given back later.
fn remember_and_forget(inode: InodeRef) {
    let (slot, generation) = (inode.slot(), inode.generation());
    let raw = inode.into_raw();
    assert!(InodeRef::find(slot, generation).is_some(), "it is held");
    drop(InodeRef::from_raw(raw));
}

fn one_step(vfs: &Vfs<MemFs>, fds: &FdTable, random: &mut Random) -> Result<(), Errno> {
    let cx = Context::root();
    let path = random.path();
    match random.below(14) {
        0 | 1 => vfs.mkdir_path(&cx, &path, 0o755),
        2 | 3 => {
            let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
            let file = vfs.open_path(&cx, &path, flags, 0o644)?;
            vfs.write(&file, random.below(100), b"storm")?;
            let fd = fds.install(file)?;
            let again = fds.fget(fd).ok_or(Errno::EBADF)?;
            let closed = fds.close(fd);
            let mut buf = [0; 8];
            vfs.read(&again, 0, &mut buf)?;
            closed.map(drop)
        }
        4 => vfs.unlink_path(&cx, &path),
        5 => vfs.rmdir_path(&cx, &path),
        6 | 7 => vfs.rename_path(&cx, &path, &random.path(), RenameFlags::empty()),
        8 => vfs.rename_path(&cx, &path, &random.path(), RenameFlags::EXCHANGE),
        9 => vfs.link_path(&cx, &path, &random.path()),
        10 => {
            let walked = vfs.walk(&cx, &vfs.root(), &path, WalkFlags::NOFOLLOW)?;
            let text = vfs.path_of(&walked.dentry);
            assert!(text.starts_with(b"/"));
            remember_and_forget(walked.inode);
            Ok(())
        }
        11 => vfs.readdir_all(&cx, &path).map(drop),
        12 => {
            // A number that some other thread's file may have: got, or not, but never another kind of thing.
            if let Some(file) = fds.fget(random.below(8) as u32) {
                assert!(file.flags().contains(OpenFlags::READ));
            }
            Ok(())
        }
        _ => vfs.stat(&cx, &path).map(drop),
    }
}

/// Once for each way to reclaim, one after the other.
#[test]
fn nothing_is_left_after_a_storm() {
    let seconds =
        std::env::var("VFSCALE_STORM_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(2);
    let policies = [Reclaim::Lru, Reclaim::Clock, Reclaim::Sieve];
    let each = Duration::from_secs(seconds) / policies.len() as u32;
    policies.into_iter().for_each(|policy| storm(policy, each));
}

fn storm(policy: Reclaim, length: Duration) {
    let mut options = Options::exclusive();
    options.max_names = 100;
    options.max_negative = 30;
    options.max_negative_per_dir = 8;
    options.reclaim = policy;
    let vfs = Arc::new(Vfs::new(MemFs::new(), options).unwrap());
    let fds = FdTable::new(64);
    let stop = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    testing::scope(|scope| {
        for thread in 0..THREADS {
            let (vfs, fds, stop, done) = (&vfs, &fds, &stop, &done);
            scope.spawn(move || {
                let mut random = Random(0x9e37_79b9 + thread);
                while !stop.load(Ordering::Relaxed) {
                    match one_step(vfs, fds, &mut random) {
                        Ok(()) => {
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => assert!(expected(error), "{error:?}"),
                    }
                    if random.below(1000) == 0 {
                        vfs.shrink(random.below(20));
                    }
                }
            });
        }
        let (stop, done) = (&stop, &done);
        scope.spawn(move || {
            let end = Instant::now() + length;
            let mut last = 0;
            while Instant::now() < end {
                std::thread::sleep(Duration::from_secs(1).min(end - Instant::now()));
                let now = done.load(Ordering::Relaxed);
                assert!(now > last, "no step in a second: somebody waits for ever");
                last = now;
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
    println!(
        "{} steps by {THREADS} threads in {length:?}, {policy:?}",
        done.load(Ordering::Relaxed)
    );
    assert!(fds.is_empty());
    vfs.shrink_all();
    let stats = vfs.stats();
    println!("{stats:#?}");
    assert_eq!((stats.names, stats.negative, stats.inodes, stats.files), (1, 0, 1, 0));
    assert!(stats.lookups_rcu > 0 && stats.lookups_backend > 0 && stats.negative_hits > 0);
    assert!(stats.lru_freed > 0 && stats.renames > 0);
    let vfs = Arc::into_inner(vfs).expect("the threads are gone");
    vfs.unmount().unwrap();
    let rcu = vfscale::sync::rcu::stats();
    assert_eq!(rcu.pending, 0, "garbage is drained");
}
