//! Files that the kernel reads and writes itself: nobody can tell, but by the requests that do not come.
//!
//! These tests mount. They need the right to (the super-user), `/dev/fuse` and Linux 6.9, and fail, saying so, without.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Pair, as_user};
use rustix::fs::FallocateFlags;

fn read_write() -> OpenOptions {
    let mut options = File::options();
    options.read(true).write(true);
    options
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(5), "never came about: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const TIMES: u64 = 1_000;
const BLOCK: usize = 4096;

/// How many requests so many writes make, and so many reads, past the page cache.
fn requests(list: &str) -> (u64, u64) {
    let pair = Pair::with(list);
    let [_, mount] = pair.both("file");
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = read_write().create_new(true).custom_flags(direct).open(mount).unwrap();
    let mut room = vec![7; 2 * BLOCK];
    let aligned = room.as_ptr().align_offset(BLOCK);
    let block = &mut room[aligned..][..BLOCK];
    let so_far = || pair.mounted.stats().requests;
    let start = so_far();
    (0..TIMES).for_each(|n| file.write_all_at(block, n % 16 * BLOCK as u64).unwrap());
    let written = so_far();
    (0..TIMES).for_each(|n| file.read_exact_at(block, n % 16 * BLOCK as u64).unwrap());
    assert!(block.iter().all(|&byte| byte == 7));
    (written - start, so_far() - written)
}

#[test]
fn data_goes_around_the_server() {
    let (writes, reads) = requests("passthrough=on");
    // Before each write the kernel asks whether the file has capabilities that the write would cost it.
    assert!(writes < TIMES + 20 && reads < 20, "{writes} and {reads} with passthrough");
    let (writes, reads) = requests("passthrough=off");
    assert!(writes >= 2 * TIMES && reads >= TIMES, "{writes} and {reads} without");
}

/// What was written is seen in the next `stat`, by a name that the kernel must look up anew, too.
#[test]
fn attributes_are_those_of_what_was_written() {
    let pair = Pair::with("passthrough=on");
    let [host, mount] = pair.both("file");
    fs::write(&host, "").unwrap();
    fs::hard_link(&host, pair.host.join("other")).unwrap();
    let mut file = OpenOptions::new().append(true).open(&mount).unwrap();
    for n in 1..=50u64 {
        file.write_all(b"0123456789").unwrap();
        assert_eq!(fs::metadata(&mount).unwrap().len(), n * 10);
        // Another name of the inode, which only the first time is new to the kernel; then the cache answers.
        assert_eq!(fs::metadata(pair.mount.join("other")).unwrap().len(), n * 10);
        let listed = fs::read_dir(&pair.mount).unwrap().map(|entry| entry.unwrap());
        listed.for_each(|entry| assert_eq!(entry.metadata().unwrap().len(), n * 10));
        fs::rename(pair.mount.join("other"), pair.mount.join("new")).unwrap();
        fs::rename(pair.mount.join("new"), pair.mount.join("other")).unwrap();
    }
    drop(file);
    eventually("the backing file is released", || pair.mounted.stats().passed_through == 0);
    // The core's own copy is not an old one either.
    assert_eq!(fs::metadata(pair.mount.join("other")).unwrap().len(), 500);
    assert_eq!(fs::metadata(&host).unwrap().len(), 500);
    // And what the host wrote is read at once by who has it open.
    let open = File::open(&mount).unwrap();
    File::options().write(true).open(&host).unwrap().write_all_at(b"HOST", 0).unwrap();
    let mut back = [0; 4];
    open.read_exact_at(&mut back, 0).unwrap();
    assert_eq!(&back, b"HOST");
}

/// All openings of an inode go one way, whatever their order, names and flags; the last lets go.
#[test]
fn openings_of_one_inode_share_a_backing_file() {
    let pair = Pair::with("passthrough=on");
    let [host, mount] = pair.both("file");
    fs::write(&host, "content").unwrap();
    fs::hard_link(&host, pair.host.join("other")).unwrap();
    let open = [
        File::open(&mount).unwrap(),
        read_write().open(pair.mount.join("other")).unwrap(),
        OpenOptions::new().append(true).open(&mount).unwrap(),
        read_write().custom_flags(rustix::fs::OFlags::SYNC.bits() as i32).open(&mount).unwrap(),
    ];
    assert_eq!((pair.mounted.stats().open_files, pair.mounted.stats().passed_through), (4, 1));
    open[2].write_at(b" and more", 0).unwrap();
    assert_eq!(fs::read(pair.mount.join("other")).unwrap(), b"content and more");
    // Still there without a name, and with new openings by `/proc`.
    fs::remove_file(&mount).unwrap();
    fs::remove_file(pair.mount.join("other")).unwrap();
    let mut back = [0; 16];
    open[0].read_exact_at(&mut back, 0).unwrap();
    assert_eq!(&back, b"content and more");
    drop(open);
    eventually("the backing file is released", || {
        let stats = pair.mounted.stats();
        (stats.open_files, stats.passed_through) == (0, 0)
    });
}

/// A mapping lives on when its descriptor is closed, and sees what others write.
#[test]
fn mappings_and_descriptors_agree() {
    const MAP: &str = "import mmap,os,sys\n\
        path=sys.argv[1]\n\
        with open(path,'r+b') as f: m=mmap.mmap(f.fileno(),8192)\n\
        m[5000]=109\n\
        with open(path,'rb') as f: assert f.read()[5000]==109\n\
        fd=os.open(path,os.O_WRONLY)\n\
        os.pwrite(fd,b'w',100)\n\
        os.close(fd)\n\
        assert m[100]==119\n";
    let pair = Pair::with("passthrough=on");
    let [host, mount] = pair.both("file");
    fs::write(&mount, [b'.'; 8192]).unwrap();
    let ran = Command::new("python3").args(["-c", MAP]).arg(&mount).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(fs::read(&host).unwrap()[5000], b'm');
    eventually("the mapping lets go", || pair.mounted.stats().passed_through == 0);
}

/// The same operations, drawn at random, natively and through mounts with and without: after each, everything that can be seen is
/// the same.
#[test]
fn random_operations_make_no_difference() {
    let pairs = [Pair::with("passthrough=on"), Pair::with("passthrough=off")];
    let native = tempfile::tempdir().unwrap();
    let dirs: Vec<PathBuf> = [native.path().to_owned()]
        .into_iter()
        .chain(pairs.iter().map(|pair| pair.mount.clone()))
        .collect();
    for seed in 1..=4u64 {
        let outcomes: Vec<Vec<String>> = dirs.iter().map(|dir| run(seed, dir)).collect();
        for (n, native) in outcomes[0].iter().enumerate() {
            assert_eq!(&outcomes[1][n], native, "with passthrough, seed {seed}, step {n}");
            assert_eq!(&outcomes[2][n], native, "without, seed {seed}, step {n}");
        }
    }
}

fn run(seed: u64, dir: &Path) -> Vec<String> {
    let mut state = seed;
    let mut draw = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let path = dir.join(format!("file{seed}"));
    let mut open = vec![read_write().create_new(true).open(&path).unwrap()];
    (0..600)
        .map(|step| {
            let at = draw(200_000);
            let which = draw(open.len() as u64) as usize;
            let file = &open[which];
            let done = match draw(10) {
                0..=2 => {
                    format!("{:?}", file.write_at(&vec![step as u8; draw(9_000) as usize], at))
                }
                3..=4 => {
                    let mut buf = vec![0; draw(20_000) as usize];
                    let read = file.read_at(&mut buf, at).unwrap();
                    format!(
                        "{read} {}",
                        buf.iter().fold(0u64, |sum, &b| sum * 31 % 1_000_003 + u64::from(b))
                    )
                }
                5 => format!("{:?}", file.set_len(at)),
                6 => {
                    let mode = [
                        FallocateFlags::empty(),
                        FallocateFlags::KEEP_SIZE,
                        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    ];
                    format!(
                        "{:?}",
                        rustix::fs::fallocate(file, mode[draw(3) as usize], at, 1 + draw(30_000))
                    )
                }
                7 => {
                    let mut how = read_write();
                    match draw(8) {
                        0 => how.truncate(true),
                        1 | 2 => how.append(true),
                        _ => &mut how,
                    };
                    open.push(how.open(&path).unwrap());
                    String::new()
                }
                8 if open.len() > 1 => {
                    open.swap_remove(which);
                    String::new()
                }
                _ => {
                    let target = &open[draw(open.len() as u64) as usize];
                    let (mut from, mut to) = (at, draw(200_000));
                    let copied = rustix::fs::copy_file_range(
                        file,
                        Some(&mut from),
                        target,
                        Some(&mut to),
                        5_000,
                    );
                    // Of a range within itself, or to a file that appends, the host's answer counts.
                    format!("{copied:?}")
                }
            };
            let (by_name, by_file) = (fs::metadata(&path).unwrap(), open[0].metadata().unwrap());
            assert_eq!(by_name.len(), by_file.len());
            assert_eq!(by_name.mtime_nsec(), by_file.mtime_nsec());
            format!("{done} {}", by_name.len())
        })
        .chain([format!("{:?}", fs::read(&path).unwrap())])
        .collect()
}

/// The kernel writes with the server's rights; a set-user-id bit goes by the writer's.
#[test]
fn a_write_by_another_user_clears_set_user_id() {
    let pair = Pair::with("passthrough=on,suid");
    let [host, mount] = pair.both("file");
    fs::write(&host, "program").unwrap();
    fs::set_permissions(&host, fs::Permissions::from_mode(0o6777)).unwrap();
    let mode = || fs::metadata(&host).unwrap().mode() & 0o7777;
    let open = || OpenOptions::new().write(true).open(&mount).unwrap();
    open().write_all_at(b"root", 0).unwrap();
    assert_eq!(mode(), 0o6777);
    let file = as_user((1000, 1000, &[]), open);
    // Set once more while it is open.
    for _ in 0..2 {
        as_user((1000, 1000, &[]), || file.write_all_at(b"user", 0).unwrap());
        assert_eq!(mode(), 0o777);
        fs::set_permissions(&mount, fs::Permissions::from_mode(0o6777)).unwrap();
    }
}

#[test]
fn a_backend_without_descriptors_is_served_as_ever() {
    let dir = tempfile::tempdir().unwrap();
    let vfs =
        vfscale::Vfs::new(vfscale_backends::MemFs::new(), vfscale::Options::default()).unwrap();
    let options = vfscale_fuse::MountOptions::parse("passthrough=on").unwrap();
    let mounted = vfscale_fuse::serve(vfs.into(), dir.path(), &options, |_| String::new()).unwrap();
    fs::write(dir.path().join("file"), "x").unwrap();
    let file = File::open(dir.path().join("file")).unwrap();
    assert_eq!((mounted.stats().open_files, mounted.stats().passed_through), (1, 0));
    drop(file);
}
