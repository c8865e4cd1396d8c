//! Public reports of faults in other people's file systems, each as a test of ours, under the number of its case.
//!
//! Each runs in a plain directory first, which shows that the test asks for what Linux does, then on mounts: of a host directory with
//! passthrough and without, and of memory. They need the right to mount (the super-user) and `/dev/fuse`, and fail, saying so, without.

mod common;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

use common::{Pair, as_user};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, SeekFrom, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
};
use rustix::io::Errno;
use vfscale::{Options, Vfs};
use vfscale_backends::MemFs;
use vfscale_fuse::{MountOptions, serve};

/// Runs a case in an empty directory of every kind.
fn everywhere(case: impl Fn(&Path)) {
    let open = |dir: &Path| fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    let plain = tempfile::tempdir().unwrap();
    open(plain.path());
    case(plain.path());
    for list in ["passthrough=on", "passthrough=off"] {
        case(&Pair::with(list).mount);
    }
    let dir = tempfile::tempdir().unwrap();
    let vfs = Vfs::new(MemFs::new(), Options::exclusive()).unwrap();
    let options = MountOptions::parse("allow_other").unwrap();
    let mounted = serve(vfs.into(), dir.path(), &options, |_| String::new()).unwrap();
    open(dir.path());
    case(dir.path());
    drop(mounted);
}

fn rename_with(from: &Path, to: &Path, flags: RenameFlags) -> rustix::io::Result<()> {
    rustix::fs::renameat_with(CWD, from, CWD, to, flags)
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

fn ino(path: impl AsRef<Path>) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

fn read_write() -> OpenOptions {
    let mut options = File::options();
    options.read(true).write(true);
    options
}

/// A listing counts nothing but what its reply made known.
#[test]
fn b02_listing_takes_no_references_that_nobody_gives_back() {
    let pair = Pair::new();
    for n in 0..300 {
        fs::write(pair.host.join(format!("{n}")), "").unwrap();
    }
    let list = || assert_eq!(fs::read_dir(&pair.mount).unwrap().count(), 300);
    list();
    let first = pair.mounted.stats();
    (0..20).for_each(|_| list());
    let last = pair.mounted.stats();
    assert!(last.nodes <= 301 && first.nodes <= 301, "{last:?}");
    // Once per listed node and listing with attributes, at most.
    assert!(last.lookup_counts <= 300 * 21, "{last:?}");
}

#[test]
fn b07_a_name_that_is_replaced_is_never_absent() {
    everywhere(|dir| {
        let (name, new) = (dir.join("v"), dir.join("v.tmp"));
        fs::write(&name, "0").unwrap();
        let (over, last) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                for i in 1..=300 {
                    fs::write(&new, i.to_string()).unwrap();
                    fs::rename(&new, &name).unwrap();
                }
                over.store(true, Relaxed);
            });
            while !over.load(Relaxed) {
                let seen: usize = text(&name).parse().expect("a whole value");
                assert!(last.swap(seen, Relaxed) <= seen, "an older value than before");
            }
        });
        assert_eq!(text(&name), "300");
    });
}

#[test]
fn b08_a_renamed_file_is_the_new_names() {
    everywhere(|dir| {
        let (a, b) = (dir.join("a"), dir.join("b"));
        fs::write(&a, "1").unwrap();
        let held = read_write().open(&a).unwrap();
        fs::rename(&a, &b).unwrap();
        fs::write(&b, "2").unwrap();
        held.write_all_at(b"3", 5).unwrap();
        assert_eq!(fs::read(&b).unwrap(), b"2\0\0\0\x003");
        assert_eq!(fs::read(&a).unwrap_err().kind(), ErrorKind::NotFound);
        fs::create_dir(dir.join("d1")).unwrap();
        fs::create_dir_all(dir.join("d2/x")).unwrap();
        let refused = fs::rename(dir.join("d1"), dir.join("d2")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::DirectoryNotEmpty);
        assert!(dir.join("d2/x").exists() && dir.join("d1").exists());
    });
}

#[test]
fn b09_a_directory_renamed_and_made_anew_is_empty() {
    everywhere(|dir| {
        let [d, e] = ["d", "e"].map(|name| dir.join(name));
        fs::create_dir(&d).unwrap();
        fs::write(d.join("bar"), "old").unwrap();
        fs::rename(&d, &e).unwrap();
        fs::remove_file(e.join("bar")).unwrap();
        fs::remove_dir(&e).unwrap();
        fs::create_dir(&d).unwrap();
        assert!(!d.join("bar").exists());
        File::create_new(d.join("bar")).unwrap();
        assert_eq!(text(d.join("bar")), "");
    });
}

#[test]
fn b10_dot_dot_leads_to_the_new_parent() {
    everywhere(|dir| {
        for name in ["a/b", "c"] {
            fs::create_dir_all(dir.join(name)).unwrap();
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held = rustix::fs::open(dir.join("a/b"), flags, Mode::empty()).unwrap();
        fs::rename(dir.join("a/b"), dir.join("c/b")).unwrap();
        let parent = rustix::fs::statat(&held, "..", AtFlags::empty()).unwrap();
        assert_eq!(parent.st_ino, ino(dir.join("c")));
        let made = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        rustix::fs::openat(&held, "../made", made, Mode::RUSR).unwrap();
        assert!(dir.join("c/made").exists() && !dir.join("a/made").exists());
    });
}

#[test]
fn b12_flags_of_a_rename_are_honoured() {
    everywhere(|dir| {
        let (a, b) = (dir.join("a"), dir.join("b"));
        fs::write(&a, "AAAA").unwrap();
        fs::write(&b, "BBBB").unwrap();
        let numbers = (ino(&a), ino(&b));
        rename_with(&a, &b, RenameFlags::EXCHANGE).unwrap();
        assert_eq!((text(&a), text(&b)), ("BBBB".into(), "AAAA".into()));
        assert_eq!((ino(&b), ino(&a)), numbers);
        assert_eq!(rename_with(&a, &b, RenameFlags::NOREPLACE), Err(Errno::EXIST));
        assert_eq!((ino(&b), ino(&a)), numbers);
        let missing = rename_with(&a, &dir.join("none"), RenameFlags::EXCHANGE);
        assert_eq!(missing, Err(Errno::NOENT));
        let both = RenameFlags::EXCHANGE | RenameFlags::NOREPLACE;
        assert_eq!(rename_with(&a, &b, both), Err(Errno::INVAL));
        let unknown = RenameFlags::from_bits_retain(1 << 10);
        assert_eq!(rename_with(&a, &b, unknown), Err(Errno::INVAL));
        fs::create_dir_all(dir.join("d/sub")).unwrap();
        fs::create_dir_all(dir.join("other")).unwrap();
        let (d, sub) = (dir.join("d"), dir.join("d/sub"));
        assert_eq!(rename_with(&d, &sub, RenameFlags::EXCHANGE), Err(Errno::INVAL));
        fs::write(dir.join("other/f"), "file").unwrap();
        rename_with(&sub, &dir.join("other/f"), RenameFlags::EXCHANGE).unwrap();
        assert_eq!(text(&sub), "file");
        assert_eq!(ino(dir.join("other/f/..")), ino(dir.join("other")));
        let links = |path: &Path| fs::metadata(path).unwrap().nlink();
        assert!(links(&d) == 2 && links(&dir.join("other")) == 3 || links(&d) == 1);
    });
}

#[test]
fn b13_a_rename_between_two_names_of_one_file_does_nothing() {
    everywhere(|dir| {
        let (a, b) = (dir.join("a"), dir.join("b"));
        fs::write(&a, "one").unwrap();
        fs::hard_link(&a, &b).unwrap();
        let seen = |path: &Path| {
            let meta = fs::metadata(path).unwrap();
            (meta.ino(), meta.nlink(), meta.ctime(), meta.ctime_nsec())
        };
        let before = seen(&a);
        fs::rename(&a, &b).unwrap();
        rename_with(&a, &b, RenameFlags::EXCHANGE).unwrap();
        assert_eq!((seen(&a), seen(&b), before.1), (before, before, 2));
    });
}

#[test]
fn b14_hard_links_are_one_file() {
    everywhere(|dir| {
        let (f, g) = (dir.join("f"), dir.join("g"));
        fs::write(&f, "12345").unwrap();
        fs::hard_link(&f, &g).unwrap();
        assert_eq!(ino(&f), ino(&g));
        OpenOptions::new().append(true).open(&f).unwrap().write_all(b"6789").unwrap();
        assert_eq!((fs::metadata(&g).unwrap().len(), text(&g)), (9, "123456789".into()));
        fs::set_permissions(&g, fs::Permissions::from_mode(0o600)).unwrap();
        let meta = fs::metadata(&f).unwrap();
        assert_eq!((meta.mode() & 0o777, meta.nlink()), (0o600, 2));
        let changed = |meta: &fs::Metadata| (meta.ctime(), meta.ctime_nsec());
        fs::remove_file(&f).unwrap();
        let left = fs::metadata(&g).unwrap();
        assert_eq!((left.nlink(), left.ino()), (1, meta.ino()));
        assert!(changed(&left) >= changed(&meta));
    });
}

#[test]
fn b16_listed_numbers_are_those_of_stat() {
    everywhere(|dir| {
        let d = dir.join("d");
        fs::create_dir(&d).unwrap();
        for n in 0..500 {
            fs::write(d.join(format!("{n}")), "").unwrap();
        }
        let open = rustix::fs::open(&d, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let mut listed = HashSet::new();
        // Small pieces, so that the kernel changes from listings with attributes to plain ones.
        let mut room = Vec::with_capacity(256);
        let mut pieces = rustix::fs::RawDir::new(open, room.spare_capacity_mut());
        while let Some(entry) = pieces.next() {
            let entry = entry.unwrap();
            let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
            assert_eq!(entry.ino(), ino(d.join(&name)), "{name:?}");
            assert!(listed.insert(name));
        }
        assert_eq!(listed.len(), 502);
    });
}

#[test]
fn b17_what_is_removed_while_listing_skips_nothing() {
    everywhere(|dir| {
        let d = dir.join("d");
        fs::create_dir(&d).unwrap();
        for n in 0..1_500 {
            fs::write(d.join(format!("{n}")), "").unwrap();
        }
        for entry in fs::read_dir(&d).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        fs::remove_dir(&d).unwrap();
    });
}

#[test]
fn b19_a_file_without_a_name_can_be_worked_on() {
    everywhere(|dir| {
        let path = dir.join("f");
        let file = read_write().create_new(true).open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        file.write_all_at(&[7; 100], 0).unwrap();
        assert_eq!((file.metadata().unwrap().nlink(), file.metadata().unwrap().len()), (0, 100));
        file.set_len(10).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
        rustix::fs::fchown(&file, None, Some(rustix::fs::Gid::from_raw(7))).unwrap();
        rustix::fs::fsetxattr(&file, "user.x", b"y", rustix::fs::XattrFlags::empty()).unwrap();
        let (meta, mut back) = (file.metadata().unwrap(), [0; 10]);
        assert_eq!((meta.len(), meta.gid(), meta.mode() & 0o777), (10, 7, 0o600));
        file.read_exact_at(&mut back, 0).unwrap();
        assert_eq!(back, [7; 10]);
        fs::write(&path, "another").unwrap();
        assert_ne!(ino(&path), meta.ino());
        assert_eq!(fs::read_dir(dir).unwrap().count(), 1, "nothing is hidden anywhere");
    });
}

#[test]
fn b20_a_file_made_read_only_can_be_written_by_its_maker() {
    everywhere(|dir| {
        for mode in [0o444, 0] {
            let path = dir.join("t");
            as_user((1000, 1000, &[]), || {
                let file = read_write().create_new(true).mode(mode).open(&path).unwrap();
                file.write_all_at(b"written", 0).unwrap();
                let mut back = [0; 7];
                file.read_exact_at(&mut back, 0).unwrap();
                file.set_len(3).unwrap();
                let again = read_write().open(&path).unwrap_err();
                assert_eq!((&back, again.kind()), (b"written", ErrorKind::PermissionDenied));
                fs::remove_file(&path).unwrap();
            });
        }
    });
}

#[test]
fn b21_a_truncating_open_truncates_for_all() {
    everywhere(|dir| {
        let path = dir.join("f");
        fs::write(&path, "twenty-one bytes long").unwrap();
        let first = read_write().open(&path).unwrap();
        let second = OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
        let lengths = [&first, &second].map(|file| file.metadata().unwrap().len());
        assert_eq!(lengths, [0, 0]);
        second.write_all_at(b"BB", 0).unwrap();
        first.write_all_at(b"X", 5).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"BB\0\0\0X");
    });
}

#[test]
fn b23_a_search_for_data_ends() {
    everywhere(|dir| {
        let size = 1 << 20;
        let file = read_write().create_new(true).open(dir.join("sparse")).unwrap();
        file.set_len(size).unwrap();
        file.write_all_at(&[1; 4096], 0).unwrap();
        file.write_all_at(&[1; 4096], 512 << 10).unwrap();
        let data = |at| rustix::fs::seek(&file, SeekFrom::Data(at));
        let hole = |at| rustix::fs::seek(&file, SeekFrom::Hole(at));
        assert_eq!((data(0), data(4096), data(300 << 10)), (Ok(0), Ok(512 << 10), Ok(512 << 10)));
        assert_eq!((hole(0), hole(514 << 10)), (Ok(4096), Ok(516 << 10)));
        assert_eq!((data(size - 1), hole(size - 1)), (Err(Errno::NXIO), Ok(size - 1)));
        assert_eq!((data(size), hole(size)), (Err(Errno::NXIO), Err(Errno::NXIO)));
        assert_eq!((data(size + 1), hole(size + 1)), (Err(Errno::NXIO), Err(Errno::NXIO)));
        let empty = File::create_new(dir.join("empty")).unwrap();
        assert_eq!(rustix::fs::seek(&empty, SeekFrom::Data(0)), Err(Errno::NXIO));
    });
}

#[test]
fn b24_times_are_set_left_or_now() {
    everywhere(|dir| {
        let path = dir.join("f");
        fs::write(&path, "").unwrap();
        let at = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        let (omit, now) = (at(0, UTIME_OMIT), at(0, UTIME_NOW));
        let set = |path: &Path, last_access, last_modification| {
            let times = Timestamps { last_access, last_modification };
            rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
        };
        let times = |path: &Path| {
            let meta = fs::symlink_metadata(path).unwrap();
            ((meta.atime(), meta.atime_nsec()), (meta.mtime(), meta.mtime_nsec()))
        };
        set(&path, at(1_000, 5), at(-1_000, 7)).unwrap();
        assert_eq!(times(&path), ((1_000, 5), (-1_000, 7)));
        set(&path, omit, at(4_000_000_000, 9)).unwrap();
        assert_eq!(times(&path), ((1_000, 5), (4_000_000_000, 9)));
        set(&path, omit, omit).unwrap();
        assert_eq!(times(&path), ((1_000, 5), (4_000_000_000, 9)));
        set(&path, now, omit).unwrap();
        assert!(times(&path).0.0 > 1_000_000_000 && times(&path).1 == (4_000_000_000, 9));
        let link = dir.join("dangling");
        symlink("nowhere", &link).unwrap();
        set(&link, at(1, 2), at(3, 4)).unwrap();
        assert_eq!(times(&link), ((1, 2), (3, 4)));
        // Who may write may say "now", and nothing else.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        as_user((1000, 1000, &[]), || {
            set(&path, now, now).unwrap();
            assert_eq!(set(&path, at(1, 1), at(1, 1)), Err(Errno::PERM));
        });
    });
}

#[test]
fn b26_names_are_bytes() {
    everywhere(|dir| {
        let long = [0xfe; 255];
        let names: [&[u8]; 6] = [b"\xff", b"\xc3", b"\x80.", b"new\nline", b"back\\slash", &long];
        let paths = names.map(|name| dir.join(OsStr::from_bytes(name)));
        for path in &paths {
            fs::write(path, "x").unwrap();
            rustix::fs::setxattr(path, "user.x", b"\xff", rustix::fs::XattrFlags::empty()).unwrap();
        }
        let listed: HashSet<Vec<u8>> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().as_bytes().to_vec())
            .collect();
        assert_eq!(listed, names.iter().map(|name| name.to_vec()).collect());
        let link = dir.join(OsStr::from_bytes(b"\xc3\x28"));
        symlink(&paths[0], &link).unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), paths[0]);
        fs::rename(&paths[0], dir.join(OsStr::from_bytes(b"\xfd"))).unwrap();
        assert!(!paths[0].exists() && fs::metadata(&paths[1]).unwrap().len() == 1);
    });
}

/// Makes something of this name.
type Make<'a> = &'a dyn Fn(&Path);

#[test]
fn b27_a_name_that_is_made_is_there() {
    everywhere(|dir| {
        let y = dir.join("y");
        fs::write(&y, "").unwrap();
        let ways: [(&str, Make<'_>); 6] = [
            ("create", &|x| drop(File::create_new(x).unwrap())),
            ("mkdir", &|x| fs::create_dir(x).unwrap()),
            ("symlink", &|x| symlink("y", x).unwrap()),
            ("link", &|x| fs::hard_link(&y, x).unwrap()),
            ("rename", &|x| fs::rename(&y, x).unwrap()),
            ("mkfifo", &|x| {
                rustix::fs::mknodat(CWD, x, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
            }),
        ];
        for (how, make) in ways {
            let x = dir.join(format!("by-{how}"));
            let kind = || fs::symlink_metadata(&x).map_err(|error| error.kind());
            assert_eq!(kind().unwrap_err(), ErrorKind::NotFound);
            make(&x);
            assert!(kind().is_ok(), "{how}");
            let _ = fs::remove_file(&x).or_else(|_| fs::remove_dir(&x));
            assert_eq!(kind().unwrap_err(), ErrorKind::NotFound, "{how}, and removed");
        }
    });
}
