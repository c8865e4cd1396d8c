//! A memory file system through the kernel: what programs see of it.
//!
//! These tests mount. They need the right to (the super-user) and `/dev/fuse`, and fail, saying so, without.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, thread};

use vfscale::{Options, Vfs};
use vfscale_backends::MemFs;
use vfscale_fuse::{FuseStats, MountError, MountOptions, Mounted, STATS_XATTR, serve};

/// A mount in a directory of its own; both go away with it, also when a test fails.
struct TestMount {
    mounted: Option<Mounted>,
    vfs: Option<Arc<Vfs<MemFs>>>,
    dir: tempfile::TempDir,
}

impl TestMount {
    fn new() -> TestMount {
        TestMount::with("")
    }

    fn with(list: &str) -> TestMount {
        assert!(Path::new("/dev/fuse").exists(), "this test needs /dev/fuse");
        let dir = tempfile::tempdir().unwrap();
        let vfs = Arc::new(Vfs::new(MemFs::new(), Options::default()).unwrap());
        let options = MountOptions::parse(list).unwrap();
        let report = |stats: &FuseStats| format!("{{\"nodes\":{}}}", stats.nodes);
        let mounted = serve(Arc::clone(&vfs), dir.path(), &options, report);
        let mounted = mounted.expect("this test needs the right to mount");
        TestMount { mounted: Some(mounted), vfs: Some(vfs), dir }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Unmounts, and checks that nothing is left in use.
    fn finish(mut self) {
        // A program that another test starts has our descriptors too, between its fork and its exec.
        eventually("nobody uses the mount", || self.try_unmount().is_ok());
        self.mounted.take().unwrap().unmount().unwrap();
        let vfs = Arc::into_inner(self.vfs.take().unwrap()).expect("the session let go of it");
        vfs.unmount().unwrap();
    }
}

impl Deref for TestMount {
    type Target = Mounted;

    fn deref(&self) -> &Mounted {
        self.mounted.as_ref().unwrap()
    }
}

impl Drop for TestMount {
    fn drop(&mut self) {
        // Before the directory below it goes.
        drop(self.mounted.take());
    }
}

fn names_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn kind_of<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

fn errno_of<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

/// Asks again and again, since the kernel does some things later.
fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(5), "never came about: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn files_hold_what_is_written() {
    let mount = TestMount::new();
    let path = mount.at("file");
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    fs::write(&path, &data).unwrap();
    assert_eq!(fs::read(&path).unwrap(), data);
    assert_eq!(fs::metadata(&path).unwrap().len(), data.len() as u64);

    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.write_all_at(b"in the middle", 1_000_000).unwrap();
    let mut back = [0; 13];
    file.read_exact_at(&mut back, 1_000_000).unwrap();
    assert_eq!(&back, b"in the middle");
    file.set_len(10).unwrap();
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    assert_eq!(fs::read(&path).unwrap(), data[..10]);
    drop(file);
    eventually("the file is released", || mount.stats().open_files == 0);
    mount.finish();
}

#[test]
fn append_and_truncate() {
    let mount = TestMount::new();
    let path = mount.at("log");
    for line in ["one\n", "two\n", "three\n"] {
        let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\nthree\n");
    let mut file = OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    file.write_all(b"new").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(kind_of(File::create_new(&path)), ErrorKind::AlreadyExists);
    drop(file);
    mount.finish();
}

#[test]
fn directories_and_their_errors() {
    let mount = TestMount::new();
    fs::create_dir_all(mount.at("a/b/c")).unwrap();
    fs::write(mount.at("a/file"), "x").unwrap();
    assert_eq!(names_in(&mount.at("a")), ["b", "file"]);
    assert_eq!(kind_of(fs::remove_dir(mount.at("a"))), ErrorKind::DirectoryNotEmpty);
    assert_eq!(kind_of(fs::remove_file(mount.at("a/b"))), ErrorKind::IsADirectory);
    assert_eq!(kind_of(fs::remove_dir(mount.at("a/file"))), ErrorKind::NotADirectory);
    assert_eq!(kind_of(fs::metadata(mount.at("a/file/x"))), ErrorKind::NotADirectory);
    assert_eq!(kind_of(fs::metadata(mount.at("a/none"))), ErrorKind::NotFound);
    assert_eq!(kind_of(fs::create_dir(mount.at("a"))), ErrorKind::AlreadyExists);
    assert_eq!(errno_of(fs::metadata(mount.at(&"n".repeat(256)))), libc::ENAMETOOLONG);
    fs::write(mount.at(&"n".repeat(255)), "long").unwrap();
    fs::remove_dir_all(mount.at("a")).unwrap();
    // Absence is remembered, and forgotten when the name appears.
    assert_eq!(kind_of(fs::metadata(mount.at("a"))), ErrorKind::NotFound);
    fs::write(mount.at("a"), "now a file").unwrap();
    assert_eq!(fs::read_to_string(mount.at("a")).unwrap(), "now a file");
    mount.finish();
}

#[test]
fn names_are_bytes() {
    let mount = TestMount::new();
    let name = OsStr::from_bytes(b"caf\xe9 \n \xff");
    fs::write(mount.dir.path().join(name), "bytes").unwrap();
    let listed: Vec<_> =
        fs::read_dir(mount.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(listed, [name]);
    assert_eq!(fs::read(mount.dir.path().join(name)).unwrap(), b"bytes");
    mount.finish();
}

#[test]
fn renames_move_names() {
    let mount = TestMount::new();
    fs::create_dir(mount.at("d")).unwrap();
    fs::write(mount.at("a"), "a").unwrap();
    fs::write(mount.at("b"), "b").unwrap();
    let ino = fs::metadata(mount.at("a")).unwrap().ino();
    fs::rename(mount.at("a"), mount.at("d/a")).unwrap();
    assert_eq!(fs::metadata(mount.at("d/a")).unwrap().ino(), ino);
    fs::rename(mount.at("d/a"), mount.at("b")).unwrap();
    assert_eq!(fs::read_to_string(mount.at("b")).unwrap(), "a");
    assert_eq!(names_in(mount.dir.path()), ["b", "d"]);
    // A directory with what is open and known in it.
    fs::write(mount.at("d/inside"), "still here").unwrap();
    let mut open = File::open(mount.at("d/inside")).unwrap();
    fs::rename(mount.at("d"), mount.at("e")).unwrap();
    assert_eq!(fs::read_to_string(mount.at("e/inside")).unwrap(), "still here");
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here");
    fs::create_dir(mount.at("e/sub")).unwrap();
    assert_eq!(errno_of(fs::rename(mount.at("e"), mount.at("e/sub/e"))), libc::EINVAL);

    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let rename =
        |from: &str, to: &str, flags| renameat_with(CWD, mount.at(from), CWD, mount.at(to), flags);
    let taken = rename("b", "e", RenameFlags::NOREPLACE);
    assert_eq!(taken, Err(rustix::io::Errno::EXIST));
    rename("b", "e", RenameFlags::EXCHANGE).unwrap();
    assert!(mount.at("b").is_dir());
    assert_eq!(fs::read_to_string(mount.at("e")).unwrap(), "a");
    drop(open);
    mount.finish();
}

#[test]
fn two_names_are_one_inode() {
    let mount = TestMount::new();
    fs::create_dir(mount.at("d")).unwrap();
    fs::write(mount.at("one"), "first").unwrap();
    fs::hard_link(mount.at("one"), mount.at("d/two")).unwrap();
    let (one, two) =
        (fs::metadata(mount.at("one")).unwrap(), fs::metadata(mount.at("d/two")).unwrap());
    assert_eq!(one.ino(), two.ino());
    assert_eq!((one.nlink(), two.nlink()), (2, 2));
    OpenOptions::new().append(true).open(mount.at("one")).unwrap().write_all(b" more").unwrap();
    assert_eq!(fs::read_to_string(mount.at("d/two")).unwrap(), "first more");
    fs::remove_file(mount.at("one")).unwrap();
    assert_eq!(fs::metadata(mount.at("d/two")).unwrap().nlink(), 1);
    assert_eq!(errno_of(fs::hard_link(mount.at("d"), mount.at("e"))), libc::EPERM);
    mount.finish();
}

/// The number in `stat`, in the listing and after the kernel forgot the file is the backend's, always the same.
#[test]
fn inode_numbers_stay() {
    let mount = TestMount::new();
    fs::write(mount.at("file"), "x").unwrap();
    let file = File::open(mount.at("file")).unwrap();
    let first = fs::metadata(mount.at("file")).unwrap().ino();
    thread::sleep(Duration::from_millis(1100)); // the kernel asks again after a second
    assert_eq!(fs::metadata(mount.at("file")).unwrap().ino(), first);
    assert_eq!(file.metadata().unwrap().ino(), first);
    drop(file);
    drop_caches(&mount);
    let listed = fs::read_dir(mount.dir.path()).unwrap().next().unwrap().unwrap();
    assert_eq!(std::os::unix::fs::DirEntryExt::ino(&listed), first);
    drop(listed); // it keeps the directory open
    assert_eq!(fs::metadata(mount.at("file")).unwrap().ino(), first);
    mount.finish();
}

#[test]
fn an_unlinked_file_lives_until_closed() {
    let mount = TestMount::new();
    let path = mount.at("gone");
    let mut file =
        File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
    file.write_all(b"before").unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(kind_of(fs::metadata(&path)), ErrorKind::NotFound);
    file.write_all(b", after").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "before, after");
    let meta = file.metadata().unwrap();
    assert_eq!((meta.nlink(), meta.len()), (0, 13));
    // Another file of the name is another file.
    fs::write(&path, "other").unwrap();
    assert_ne!(fs::metadata(&path).unwrap().ino(), meta.ino());
    drop(file);
    mount.finish();
}

#[test]
fn a_deleted_file_gives_its_space_back() {
    for list in ["", "threads=3,noclone_fd"] {
        let mount = TestMount::with(list);
        let free = || rustix::fs::statvfs(mount.dir.path()).unwrap().f_bfree;
        let before = free();
        fs::write(mount.at("big"), vec![1; 1 << 20]).unwrap();
        assert!(free() <= before - 256);
        fs::remove_file(mount.at("big")).unwrap();
        // Nothing else happens on the mount: the space does not wait for that.
        eventually("the space is back", || free() >= before);
        mount.finish();
    }
}

#[test]
fn links_modes_owners_times() {
    let mount = TestMount::new();
    symlink("to/nowhere", mount.at("link")).unwrap();
    assert_eq!(fs::read_link(mount.at("link")).unwrap(), Path::new("to/nowhere"));
    assert!(fs::symlink_metadata(mount.at("link")).unwrap().is_symlink());
    assert_eq!(kind_of(File::open(mount.at("link"))), ErrorKind::NotFound);

    let path = mount.at("file");
    let file = File::create(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode(), 0o104_751);
    std::os::unix::fs::chown(&path, Some(1000), Some(2000)).unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (1000, 2000));
    let time = std::time::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    file.set_times(fs::FileTimes::new().set_modified(time).set_accessed(time)).unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (1_000_000_000, 123_456_789));
    assert_eq!((meta.atime(), meta.atime_nsec()), (1_000_000_000, 123_456_789));
    assert!(meta.created().unwrap().elapsed().unwrap() < Duration::from_secs(60));

    rustix::fs::mknodat(
        rustix::fs::CWD,
        mount.at("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o640),
        0,
    )
    .unwrap();
    assert_eq!(fs::metadata(mount.at("pipe")).unwrap().mode(), 0o010_640);
    drop(file);
    mount.finish();
}

/// Each entry is listed once, though names go while the listing is under way.
#[test]
fn ten_thousand_names_listed_while_some_go() {
    const NAMES: usize = 10_000;
    let mount = TestMount::new();
    fs::create_dir(mount.at("d")).unwrap();
    for i in 0..NAMES {
        File::create(mount.at(&format!("d/a-rather-long-file-name-{i}"))).unwrap();
    }
    assert_eq!(names_in(&mount.at("d")).len(), NAMES);
    let mut seen = HashSet::new();
    for (i, entry) in fs::read_dir(mount.at("d")).unwrap().enumerate() {
        let entry = entry.unwrap();
        assert!(seen.insert(entry.file_name()), "{:?} listed twice", entry.file_name());
        if i % 2 == 0 {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    assert_eq!(seen.len(), NAMES);
    assert_eq!(names_in(&mount.at("d")).len(), NAMES / 2);
    // As `ls -l` does it, so that the kernel asks for attributes along with the names.
    let total: u64 =
        fs::read_dir(mount.at("d")).unwrap().map(|e| e.unwrap().metadata().unwrap().nlink()).sum();
    assert_eq!(total, NAMES as u64 / 2);
    fs::remove_dir_all(mount.at("d")).unwrap();
    mount.finish();
}

#[test]
fn extended_attributes() {
    use rustix::fs::{
        XattrFlags, getxattr, getxattr_query, listxattr, listxattr_query, removexattr, setxattr,
    };
    use rustix::io::Errno;
    let mount = TestMount::new();
    let path = mount.at("file");
    fs::write(&path, "").unwrap();
    let mut buf = [0u8; 256];
    setxattr(&path, "user.one", b"value", XattrFlags::CREATE).unwrap();
    assert_eq!(setxattr(&path, "user.one", b"x", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(setxattr(&path, "user.two", b"x", XattrFlags::REPLACE), Err(Errno::NODATA));
    setxattr(&path, "user.two", b"", XattrFlags::empty()).unwrap();
    // A length of 0 asks how long it is.
    assert_eq!(getxattr_query(&path, "user.one"), Ok(5));
    assert_eq!(getxattr(&path, "user.one", &mut [0u8; 4]), Err(Errno::RANGE));
    assert_eq!(getxattr(&path, "user.one", &mut buf), Ok(5));
    assert_eq!(&buf[..5], b"value");
    assert_eq!(getxattr(&path, "user.none", &mut buf), Err(Errno::NODATA));
    let len = listxattr(&path, &mut buf).unwrap();
    let mut names: Vec<_> = buf[..len].split(|&b| b == 0).filter(|name| !name.is_empty()).collect();
    names.sort();
    assert_eq!(names, [b"user.one", b"user.two"]);
    assert_eq!(listxattr_query(&path), Ok(18));
    removexattr(&path, "user.one").unwrap();
    assert_eq!(removexattr(&path, "user.one"), Err(Errno::NODATA));
    mount.finish();
}

#[test]
fn live_numbers_are_an_attribute_of_the_root() {
    use rustix::fs::{XattrFlags, getxattr, getxattr_query, listxattr, removexattr, setxattr};
    let mount = TestMount::new();
    let (root, mut buf) = (mount.dir.path(), [0u8; 4096]);
    let len = getxattr_query(root, STATS_XATTR).unwrap();
    assert_eq!(getxattr(root, STATS_XATTR, &mut buf[..len]), Ok(len));
    assert_eq!(std::str::from_utf8(&buf[..len]).unwrap().trim_end(), "{\"nodes\":1}");
    assert_eq!(listxattr(root, &mut buf), Ok(0));
    let refused = Err(rustix::io::Errno::PERM);
    assert_eq!(setxattr(root, STATS_XATTR, b"", XattrFlags::empty()), refused);
    assert_eq!(removexattr(root, STATS_XATTR), refused);
    // Only the root has it.
    fs::create_dir(mount.at("d")).unwrap();
    let none = getxattr(mount.at("d"), STATS_XATTR, &mut buf);
    assert_eq!(none, Err(rustix::io::Errno::NODATA));
    mount.finish();
}

#[test]
fn holes_and_copies() {
    use rustix::fs::{FallocateFlags, copy_file_range, fallocate, seek};
    let mount = TestMount::new();
    let file =
        File::options().create_new(true).read(true).write(true).open(mount.at("sparse")).unwrap();
    file.set_len(1 << 40).unwrap();
    file.write_all_at(b"data", 1 << 30).unwrap();
    assert_eq!(seek(&file, rustix::fs::SeekFrom::Data(0)), Ok(1 << 30));
    assert_eq!(seek(&file, rustix::fs::SeekFrom::Hole(0)), Ok(0));
    let hole = seek(&file, rustix::fs::SeekFrom::Hole(1 << 30)).unwrap();
    assert!(hole > 1 << 30 && hole <= (1 << 30) + (1 << 20));
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, flags, 1 << 30, 4).unwrap();
    let mut back = *b"____";
    file.read_exact_at(&mut back, 1 << 30).unwrap();
    assert_eq!(back, [0; 4]);

    fs::write(mount.at("from"), "0123456789").unwrap();
    let (from, to) = (File::open(mount.at("from")).unwrap(), File::create(mount.at("to")).unwrap());
    let copied = copy_file_range(&from, Some(&mut 2), &to, Some(&mut 1), 5).unwrap();
    assert_eq!(copied, 5);
    assert_eq!(fs::read(mount.at("to")).unwrap(), b"\x0023456");
    drop((file, from, to));
    mount.finish();
}

/// The kernel forgets what nobody uses when it is told to drop its caches; then the client knows the root alone.
fn drop_caches(mount: &TestMount) {
    eventually("all nodes but the root are forgotten", || {
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        mount.stats().nodes == 1
    });
}

#[test]
fn forgotten_nodes_are_given_back() {
    let mount = TestMount::new();
    for dir in 0..10 {
        fs::create_dir(mount.at(&format!("d{dir}"))).unwrap();
        for file in 0..20 {
            fs::write(mount.at(&format!("d{dir}/f{file}")), "x").unwrap();
        }
    }
    let stats = mount.stats();
    assert!(stats.nodes > 200, "{stats:?}");
    assert!(stats.lookup_counts >= stats.nodes - 1, "{stats:?}");
    drop_caches(&mount);
    let stats = mount.stats();
    assert_eq!((stats.lookup_counts, stats.refused_forgets), (0, 0));
    // And everything is found again.
    assert_eq!(fs::read_to_string(mount.at("d9/f19")).unwrap(), "x");
    // The listing with attributes counts too.
    let listed =
        fs::read_dir(mount.at("d3")).unwrap().map(|e| e.unwrap().metadata().unwrap().len());
    assert_eq!(listed.sum::<u64>(), 20);
    drop_caches(&mount);
    assert_eq!(mount.stats().refused_forgets, 0);
    mount.finish();
}

/// Threads look up, list, create, rename and remove in one directory while the kernel is told to forget. At the end no count
/// is left over and no forget was refused.
#[test]
fn lookups_race_forgets() {
    let mount = TestMount::with("threads=4");
    fs::create_dir(mount.at("d")).unwrap();
    let stop = Instant::now() + Duration::from_secs(2);
    thread::scope(|scope| {
        for worker in 0..4 {
            let mount = &mount;
            scope.spawn(move || {
                for round in 0u32.. {
                    if Instant::now() > stop {
                        break;
                    }
                    let own = mount.at(&format!("d/own-{worker}"));
                    let shared = mount.at(&format!("d/shared-{}", round % 5));
                    fs::write(&own, "x").unwrap();
                    fs::rename(&own, &shared).unwrap();
                    let _ = fs::read(mount.at(&format!("d/shared-{}", (round + 1) % 5)));
                    for entry in fs::read_dir(mount.at("d")).unwrap() {
                        let _ = entry.unwrap().metadata();
                    }
                    let _ = fs::remove_file(mount.at(&format!("d/shared-{}", (round + 2) % 5)));
                }
            });
        }
        while Instant::now() < stop {
            fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
            thread::sleep(Duration::from_millis(30));
        }
    });
    drop_caches(&mount);
    let stats = mount.stats();
    assert_eq!((stats.lookup_counts, stats.refused_forgets, stats.open_files), (0, 0, 0));
    mount.finish();
}

#[test]
fn stores_through_a_mapping_of_an_appending_file_stay_in_place() {
    // `dd conv=notrunc oflag=append` maps nothing; a database's write-ahead log may. Tested by way of the page cache: the mapping
    // itself needs unsafe code, so a program that has it does the storing.
    let python = std::process::Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|out| out.status.success()) {
        println!("skipped: no python3 to store through a mapping with");
        return;
    }
    let mount = TestMount::new();
    let path = mount.at("mapped");
    fs::write(&path, vec![b'.'; 8192]).unwrap();
    let script = "import mmap,os,sys\n\
        f=os.open(sys.argv[1],os.O_RDWR|os.O_APPEND)\n\
        m=mmap.mmap(f,8192)\n\
        m[10:14]=b'here'\n\
        m.flush(); m.close(); os.close(f)\n";
    let status = std::process::Command::new("python3").args(["-c", script]).arg(&path).status();
    assert!(status.unwrap().success());
    let content = fs::read(&path).unwrap();
    assert_eq!(content.len(), 8192);
    assert_eq!(&content[8..16], b"..here..");
    mount.finish();
}

#[test]
fn a_truncating_open_clears_set_uid() {
    let mount = TestMount::with("allow_other");
    let path = mount.at("program");
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
    fs::set_permissions(mount.dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // The mount's own directory is the super-user's; its parent must let others pass.
    use std::os::unix::process::CommandExt;
    let mut shell = std::process::Command::new("sh");
    let status = shell.args(["-c", "> \"$0\""]).arg(&path).uid(12345).gid(12345).status().unwrap();
    assert!(status.success());
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.len(), meta.mode() & 0o7777), (0, 0o777));
    mount.finish();
}

#[test]
fn options_reach_the_kernel() {
    let mount = TestMount::with("ro,noexec,fsname=some where,subtype=test,threads=1");
    assert_eq!(errno_of(File::create(mount.at("x"))), libc::EROFS);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let point = mount.point().to_str().unwrap().to_owned();
    let line = mounts.lines().find(|line| line.contains(&point)).unwrap();
    for part in ["ro,nosuid,nodev,noexec", " - fuse.test some\\040where ", "default_permissions"] {
        assert!(line.contains(part), "{part:?} is not in {line:?}");
    }
    assert!(!line.contains("allow_other"), "{line}");
    mount.finish();
}

/// A working directory that was removed is still a directory, in which nothing can be made.
#[test]
fn a_removed_directory_in_use() {
    use rustix::fs::{Mode, OFlags, openat};
    let mount = TestMount::new();
    fs::create_dir(mount.at("d")).unwrap();
    let dir = File::open(mount.at("d")).unwrap();
    fs::remove_dir(mount.at("d")).unwrap();
    let create = openat(&dir, "x", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU);
    assert_eq!(create.unwrap_err(), rustix::io::Errno::NOENT);
    let meta = dir.metadata().unwrap();
    assert!(meta.is_dir());
    let mut dirent = rustix::fs::Dir::read_from(&dir).unwrap();
    assert!(dirent.all(|entry| entry.unwrap().file_name().to_bytes().starts_with(b".")));
    // Another directory of the name is another one.
    fs::create_dir(mount.at("d")).unwrap();
    assert_ne!(fs::metadata(mount.at("d")).unwrap().ino(), meta.ino());
    drop((dir, dirent));
    mount.finish();
}

#[test]
fn a_mount_over_a_mount_uncovers_it_again() {
    let below = TestMount::new();
    fs::write(below.at("below"), "").unwrap();
    let vfs = Arc::new(Vfs::new(MemFs::new(), Options::default()).unwrap());
    let options = MountOptions::default();
    let above = serve(vfs, below.dir.path(), &options, |_| String::new()).unwrap();
    let open = File::create(below.at("above")).unwrap();
    assert_eq!(names_in(below.dir.path()), ["above"]);
    above.detach().unwrap();
    above.detach().unwrap();
    assert!(matches!(above.try_unmount(), Err(MountError::Busy(_))));
    drop(above); // in use, and not there any more: nothing is unmounted in its place
    assert_eq!(names_in(below.dir.path()), ["below"]);
    drop(open);
    below.finish();
}

#[test]
fn busy_mounts_are_kept_or_detached() {
    let mut mount = TestMount::new();
    fs::write(mount.at("file"), "used").unwrap();
    let mut file = File::open(mount.at("file")).unwrap();
    assert!(matches!(mount.try_unmount(), Err(MountError::Busy(_))));
    assert_eq!(fs::read_to_string(mount.at("file")).unwrap(), "used");
    assert!(!mount.has_ended());
    mount.detach().unwrap();
    assert_eq!(names_in(mount.dir.path()), [""; 0]);
    // Its user goes on until done.
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "used");
    assert!(!mount.wait_for(Duration::from_millis(50)));
    drop(file);
    mount.wait();
    assert!(mount.has_ended());
    assert_eq!(mount.stats().nodes, 1);
    drop(mount.mounted.take());
    Arc::into_inner(mount.vfs.take().unwrap()).unwrap().unmount().unwrap();
}

#[test]
fn an_unmount_from_outside_ends_the_session() {
    let mount = TestMount::new();
    fs::write(mount.at("file"), "x").unwrap();
    rustix::mount::unmount(mount.dir.path(), rustix::mount::UnmountFlags::empty()).unwrap();
    assert!(mount.wait_for(Duration::from_secs(2)));
    assert!(mount.stats().requests > 0);
    mount.finish();
}

/// Aborted but in use, a mount stays, and answers nobody. It is still ours to take away.
#[test]
fn a_mount_whose_connection_was_aborted_is_unmounted() {
    let mount = TestMount::new();
    let below = mount.dir.path().parent().unwrap().metadata().unwrap().dev();
    let file = File::create(mount.at("file")).unwrap();
    let forced = rustix::mount::unmount(mount.dir.path(), rustix::mount::UnmountFlags::FORCE);
    assert_eq!(forced, Err(rustix::io::Errno::BUSY));
    assert!(mount.wait_for(Duration::from_secs(2)));
    assert_eq!(errno_of(fs::metadata(mount.dir.path())), libc::ENOTCONN);
    assert!(matches!(mount.try_unmount(), Err(MountError::Busy(_))));
    drop(file);
    let path = mount.dir.path().to_owned();
    assert!(mount.is_on_top());
    mount.try_unmount().unwrap();
    assert!(!mount.is_on_top());
    assert_eq!(fs::metadata(path).unwrap().dev(), below);
    mount.finish();
}

/// Bound over itself, or at another place as well, a mount is not gone when its uppermost layer is.
#[test]
fn a_mount_in_several_places() {
    let mount = TestMount::new();
    fs::write(mount.at("file"), "x").unwrap();
    let root = mount.dir.path();
    rustix::mount::mount_bind(root, root).unwrap();
    let other = tempfile::tempdir().unwrap();
    rustix::mount::mount_bind(root, other.path()).unwrap();
    let start = Instant::now();
    assert!(matches!(mount.try_unmount(), Err(MountError::Busy(_))));
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(names_in(root), [""; 0]);
    // Out of sight where it was made, it serves on elsewhere.
    assert_eq!(fs::read_to_string(other.path().join("file")).unwrap(), "x");
    rustix::mount::unmount(other.path(), rustix::mount::UnmountFlags::empty()).unwrap();
    mount.wait();
    mount.finish();
}

#[test]
fn what_cannot_be_mounted_on_is_refused() {
    let vfs = || Arc::new(Vfs::new(MemFs::new(), Options::default()).unwrap());
    let refused = |path: &Path| {
        serve(vfs(), path, &MountOptions::default(), |_| String::new()).map(drop).unwrap_err()
    };
    let dir = tempfile::tempdir().unwrap();
    let (none, file) = (dir.path().join("none"), dir.path().join("file"));
    fs::write(&file, "").unwrap();
    assert!(matches!(refused(&none), MountError::Mount { .. }));
    assert!(matches!(refused(&file), MountError::NotADirectory(_)));
    assert!(refused(&file).to_string().ends_with("is not a directory"));
}
