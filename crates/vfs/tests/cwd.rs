//! The calls of a process: relative paths, masks, positions, who may what, and what is refused.

use std::io::SeekFrom;
use std::sync::Arc;

use vfscale::{
    AccessMode, Context, Cwd, Errno, FileType, OpenFlags, Options, RenameFlags, Result, SetTime,
    Stream, Timestamp, Vfs,
};
use vfscale_backends::MemFs;

const READ: OpenFlags = OpenFlags::READ;
const WRITE: OpenFlags = OpenFlags::WRITE;
const BOTH: OpenFlags = READ.union(WRITE);
const CREATE: OpenFlags = BOTH.union(OpenFlags::CREATE);

fn root() -> Cwd<MemFs> {
    let vfs = Vfs::new(MemFs::new(), Options::exclusive()).unwrap();
    Cwd::new(Arc::new(vfs), Context::root())
}

fn user(root: &Cwd<MemFs>, uid: u32, groups: &[u32]) -> Cwd<MemFs> {
    let cx = Context { uid, gid: uid, groups: Some(groups.to_vec()), pid: 0 };
    Cwd::new(root.vfs().clone(), cx)
}

fn touch(cwd: &Cwd<MemFs>, path: &[u8], perm: u32) {
    cwd.open(path, CREATE, perm).unwrap().write(b"text").unwrap();
}

fn mode(cwd: &Cwd<MemFs>, path: &[u8]) -> u32 {
    cwd.lstat(path).unwrap().perm
}

#[test]
fn paths_begin_where_the_directory_is() {
    let mut cwd = root();
    cwd.mkdir(b"a", 0o755).unwrap();
    cwd.mkdir(b"a/b", 0o755).unwrap();
    touch(&cwd, b"/a/b/file", 0o644);
    assert_eq!(cwd.getcwd().unwrap(), b"/");
    cwd.chdir(b"a").unwrap();
    assert_eq!(cwd.stat(b"b/file").unwrap().size, 4);
    assert_eq!(cwd.stat(b"/a/b/file").unwrap().size, 4);
    assert_eq!(cwd.stat(b"a/b/file"), Err(Errno::ENOENT));
    cwd.chdir(b"./b/../b").unwrap();
    assert_eq!(cwd.getcwd().unwrap(), b"/a/b");
    cwd.rename(b"file", b"../moved", RenameFlags::empty()).unwrap();
    cwd.link(b"../moved", b"again").unwrap();
    cwd.symlink(b"../moved", b"soft").unwrap();
    assert_eq!(cwd.readlink(b"soft").unwrap(), b"../moved");
    assert_eq!(cwd.stat(b"soft").unwrap().nlink, 2);
    assert_eq!(cwd.lstat(b"soft").unwrap().kind, FileType::Symlink);
    let mut names: Vec<_> =
        cwd.readdir(b".").unwrap().into_iter().map(|entry| entry.name).collect();
    names.sort();
    assert_eq!(names, [b"again".to_vec(), b"soft".to_vec()]);
    // A link that leads nowhere names, from where it stands, what is made.
    cwd.symlink(b"../new", b"hanging").unwrap();
    cwd.chdir(b"/").unwrap();
    touch(&cwd, b"a/b/hanging", 0o644);
    assert_eq!(cwd.stat(b"/a/new").unwrap().size, 4);
    // A directory moves with those that stand in it.
    let mut inside = cwd.clone();
    inside.chdir(b"a/b").unwrap();
    cwd.rename(b"a/b", b"c", RenameFlags::empty()).unwrap();
    assert_eq!(inside.getcwd().unwrap(), b"/c");
    assert_eq!(cwd.getcwd().unwrap(), b"/", "a clone goes its own way");
    inside.unlink(b"soft").unwrap();
    assert_eq!(inside.rmdir(b"../a"), Err(Errno::ENOTEMPTY));
    assert!(format!("{inside:?}").contains("022"), "{inside:?}");
}

#[test]
fn a_directory_that_is_gone_is_said_to_be() {
    let mut cwd = root();
    cwd.mkdir(b"gone", 0o755).unwrap();
    cwd.chdir(b"gone").unwrap();
    cwd.rmdir(b"../gone").unwrap();
    assert_eq!(cwd.getcwd(), Err(Errno::ENOENT));
    assert_eq!(cwd.mkdir(b"x", 0o755), Err(Errno::ENOENT));
    assert_eq!(cwd.stat(b"x"), Err(Errno::ENOENT));
    assert_eq!(cwd.open(b"x", CREATE, 0o644).map(drop), Err(Errno::ENOENT));
    cwd.chdir(b"/").unwrap();
    assert_eq!(cwd.getcwd().unwrap(), b"/");
}

#[test]
fn an_open_directory_is_where_paths_begin() {
    let cwd = root();
    cwd.mkdir(b"d", 0o755).unwrap();
    touch(&cwd, b"d/f", 0o644);
    let dir = cwd.open(b"d", READ | OpenFlags::DIRECTORY, 0).unwrap();
    assert_eq!(dir.kind(), FileType::Directory);
    let at = cwd.at(&dir).unwrap();
    assert_eq!(at.stat(b"f").unwrap().size, 4);
    cwd.rename(b"d", b"e", RenameFlags::empty()).unwrap();
    at.unlink(b"f").unwrap();
    assert_eq!(cwd.readdir(b"e").unwrap(), []);
    let file = cwd.open(b"f", CREATE, 0o644).unwrap();
    assert_eq!(cwd.at(&file).map(drop), Err(Errno::ENOTDIR));
    assert_eq!(root().at(&dir).map(drop), Err(Errno::EXDEV), "another mount's");
    cwd.chmod(b"e", 0o700).unwrap();
    assert_eq!(user(&cwd, 7, &[]).at(&dir).map(drop), Err(Errno::EACCES));
}

#[test]
fn files_have_a_position() {
    let cwd = root();
    let file = cwd.open(b"f", CREATE, 0o644).unwrap();
    assert_eq!(file.write(b"0123456789"), Ok(10));
    assert_eq!(file.seek(SeekFrom::Current(-6)), Ok(4));
    let mut buf = [0; 4];
    assert_eq!((file.read(&mut buf), &buf), (Ok(4), b"4567"));
    assert_eq!((file.pread(1, &mut buf), &buf), (Ok(4), b"1234"));
    assert_eq!((file.read(&mut buf), &buf[..2]), (Ok(2), &b"89"[..]), "pread moves nothing");
    assert_eq!(file.read(&mut buf), Ok(0), "the end");
    assert_eq!(file.pwrite(2, b"xx"), Ok(2));
    assert_eq!(file.seek(SeekFrom::End(5)), Ok(15));
    assert_eq!(file.write(b"!"), Ok(1));
    assert_eq!(file.stat().unwrap().size, 16);
    assert_eq!((file.pread(10, &mut buf), buf), (Ok(4), [0; 4]), "a hole");
    file.truncate(3).unwrap();
    assert_eq!(file.stat().unwrap().size, 3);
    assert_eq!(file.seek(SeekFrom::Start(0)), Ok(0));
    assert_eq!((file.read(&mut buf), &buf[..3]), (Ok(3), &b"01x"[..]));
    file.sync(true).unwrap();

    let append = cwd.open(b"f", WRITE | OpenFlags::APPEND, 0).unwrap();
    append.write(b"end").unwrap();
    assert_eq!(append.seek(SeekFrom::Current(0)), Ok(6));
    append.pwrite(0, b".").unwrap();
    assert_eq!(cwd.stat(b"f").unwrap().size, 7);
    assert_eq!(append.read(&mut buf), Err(Errno::EBADF));
    let read_only = cwd.open(b"f", READ, 0).unwrap();
    assert_eq!(read_only.write(b"x"), Err(Errno::EBADF));
    assert_eq!(read_only.truncate(0), Err(Errno::EINVAL));
    // Wrong places.
    assert_eq!(file.seek(SeekFrom::Current(-100)), Err(Errno::EINVAL));
    assert_eq!(file.seek(SeekFrom::End(i64::MIN)), Err(Errno::EINVAL));
    assert_eq!(file.seek(SeekFrom::Start(u64::MAX)), Err(Errno::EOVERFLOW));
    assert_eq!(file.seek(SeekFrom::End(i64::MAX)), Err(Errno::EOVERFLOW));
    assert_eq!(file.seek(SeekFrom::Current(0)), Ok(3), "a refused place is not taken");
}

#[test]
fn a_directory_is_listed_in_pieces() {
    let cwd = root();
    (0..25).for_each(|i| touch(&cwd, format!("f{i}").as_bytes(), 0o644));
    let dir = cwd.open(b".", READ, 0).unwrap();
    let pieces = |dir: &Stream<MemFs>| {
        let mut names = Vec::new();
        loop {
            let piece = dir.readdir(4).unwrap();
            assert!(piece.len() <= 4);
            if piece.is_empty() {
                return names;
            }
            names.extend(piece.into_iter().map(|entry| entry.name));
        }
    };
    let mut names = pieces(&dir);
    assert_eq!(dir.readdir(4).unwrap(), [], "the end stays the end");
    assert_eq!(dir.seek(SeekFrom::Start(0)), Ok(0));
    assert_eq!(pieces(&dir), names);
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 25);
    dir.seek(SeekFrom::Start(0)).unwrap();
    dir.readdir(10).unwrap();
    let middle = dir.seek(SeekFrom::Current(0)).unwrap();
    let rest = pieces(&dir);
    dir.seek(SeekFrom::Start(middle)).unwrap();
    assert_eq!((rest.len(), pieces(&dir)), (15, rest));

    let mut buf = [0; 8];
    assert_eq!(dir.read(&mut buf), Err(Errno::EISDIR));
    assert_eq!(dir.pread(0, &mut buf), Err(Errno::EISDIR));
    assert_eq!(dir.write(b"x"), Err(Errno::EBADF));
    assert_eq!(dir.seek(SeekFrom::End(0)), Err(Errno::EINVAL));
    assert_eq!(dir.seek(SeekFrom::Current(1)), Err(Errno::EINVAL));
    assert_eq!(cwd.open(b"f0", READ, 0).unwrap().readdir(4), Err(Errno::ENOTDIR));
    assert_eq!(dir.readdir(0).unwrap(), []);
}

#[test]
fn the_mask_is_taken_off_what_is_new() {
    let mut cwd = root();
    assert_eq!(cwd.set_umask(0o7027), 0o022);
    touch(&cwd, b"file", 0o6666);
    cwd.mkdir(b"dir", 0o7777).unwrap();
    cwd.mknod(b"pipe", FileType::Fifo.mode_bits() | 0o666, 0).unwrap();
    assert_eq!((mode(&cwd, b"file"), mode(&cwd, b"dir")), (0o6640, 0o1750));
    assert_eq!(mode(&cwd, b"pipe"), 0o640);
    assert_eq!(cwd.set_umask(0), 0o027, "bits that no mask has are left out");
    // It is no filter for what is there.
    cwd.set_umask(0o777);
    cwd.chmod(b"file", 0o604).unwrap();
    touch(&cwd, b"file", 0o666);
    assert_eq!(mode(&cwd, b"file"), 0o604);
}

#[test]
fn a_set_gid_directory_hands_its_group_down() {
    let root = root();
    root.mkdir(b"/g", 0o777).unwrap();
    root.chown(b"/g", Some(1), Some(50)).unwrap();
    root.chmod(b"/g", 0o2777).unwrap();
    let user = user(&root, 7, &[9]);
    touch(&user, b"/g/file", 0o644);
    user.mkdir(b"/g/dir", 0o755).unwrap();
    assert_eq!(user.stat(b"/g/file").map(|attr| (attr.uid, attr.gid)), Ok((7, 50)));
    assert_eq!(user.stat(b"/g/dir").map(|attr| (attr.gid, attr.perm)), Ok((50, 0o2755)));
    // Who is not in the group leaves no set-gid program of it.
    user.chmod(b"/g/file", 0o2755).unwrap();
    assert_eq!(mode(&root, b"/g/file"), 0o755);
}

#[test]
fn only_the_owner_changes_attributes() {
    let root = root();
    root.mkdir(b"/d", 0o777).unwrap();
    root.chmod(b"/d", 0o777).unwrap();
    let (owner, member, other) = (user(&root, 7, &[30]), user(&root, 8, &[7]), user(&root, 9, &[]));
    touch(&owner, b"/d/f", 0o660);
    owner.chmod(b"/d/f", 0o660).unwrap();
    let at = |sec| Some(SetTime::At(Timestamp { sec, nsec: 0 }));
    let now = Some(SetTime::Now);
    for cwd in [&member, &other] {
        assert_eq!(cwd.chmod(b"/d/f", 0o777), Err(Errno::EPERM));
        assert_eq!(cwd.chown(b"/d/f", Some(8), None), Err(Errno::EPERM));
        assert_eq!(cwd.chown(b"/d/f", None, Some(7)), Err(Errno::EPERM));
        assert_eq!(cwd.utimes(b"/d/f", at(5), None), Err(Errno::EPERM));
    }
    // A member of the group may write, which is enough for the time of now and for the size.
    assert_eq!(member.utimes(b"/d/f", now, now), Ok(()));
    assert_eq!(member.truncate(b"/d/f", 2), Ok(()));
    assert_eq!(other.utimes(b"/d/f", now, now), Err(Errno::EACCES));
    assert_eq!(other.truncate(b"/d/f", 1), Err(Errno::EACCES));
    assert_eq!(owner.stat(b"/d/f").unwrap().size, 2);
    // The owner may give it to a group of its own, and to nobody else.
    assert_eq!(owner.chown(b"/d/f", Some(8), None), Err(Errno::EPERM));
    assert_eq!(owner.chown(b"/d/f", None, Some(31)), Err(Errno::EPERM));
    assert_eq!(owner.chown(b"/d/f", Some(7), Some(30)), Ok(()));
    assert_eq!(owner.utimes(b"/d/f", at(5), at(6)), Ok(()));
    assert_eq!(root.stat(b"/d/f").map(|a| (a.gid, a.mtime.sec)), Ok((30, 6)));
    assert_eq!(root.chown(b"/d/f", Some(9), None), Ok(()));
    assert_eq!(owner.truncate(b"/d", 0), Err(Errno::EISDIR));
    // Not even the owner, where the mode says so; once open, it is open.
    touch(&owner, b"/d/g", 0o600);
    let open = owner.open(b"/d/g", BOTH, 0).unwrap();
    owner.chmod(b"/d/g", 0o444).unwrap();
    assert_eq!(owner.truncate(b"/d/g", 0), Err(Errno::EACCES));
    assert_eq!(open.truncate(1), Ok(()));
    // A link itself.
    owner.symlink(b"f", b"/d/l").unwrap();
    root.lchown(b"/d/l", Some(3), None).unwrap();
    assert_eq!((root.lstat(b"/d/l").unwrap().uid, root.stat(b"/d/l").unwrap().uid), (3, 9));
}

#[test]
fn the_first_class_that_fits_decides_and_directories_are_searched() {
    let root = root();
    root.mkdir(b"/d", 0o755).unwrap();
    touch(&root, b"/d/f", 0o644);
    root.chown(b"/d/f", Some(7), Some(30)).unwrap();
    root.chmod(b"/d/f", 0o047).unwrap();
    let (owner, member, other) =
        (user(&root, 7, &[30]), user(&root, 8, &[30]), user(&root, 9, &[]));
    let all = AccessMode::all();
    for (cwd, may) in [(&owner, AccessMode::empty()), (&member, AccessMode::READ), (&other, all)] {
        for mode in [AccessMode::READ, AccessMode::WRITE, AccessMode::EXECUTE] {
            let wanted = if may.contains(mode) { Ok(()) } else { Err(Errno::EACCES) };
            assert_eq!(cwd.access(b"/d/f", mode), wanted, "{:?} {mode:?}", cwd.context());
        }
        assert_eq!(cwd.access(b"/d/f", AccessMode::empty()), Ok(()), "it exists");
    }
    assert_eq!(owner.open(b"/d/f", READ, 0).map(drop), Err(Errno::EACCES));
    assert_eq!(member.open(b"/d/f", READ, 0).map(drop), Ok(()));
    assert_eq!(member.open(b"/d/f", READ | OpenFlags::TRUNCATE, 0).map(drop), Err(Errno::EACCES));
    assert_eq!(other.open(b"/d/f", BOTH, 0).map(drop), Ok(()));
    assert_eq!(other.open(b"/d/f", READ | OpenFlags::NOATIME, 0).map(drop), Err(Errno::EPERM));
    // The super-user does everything, but runs only what somebody may run.
    assert_eq!(root.access(b"/d/f", all), Ok(()));
    root.chmod(b"/d/f", 0).unwrap();
    assert_eq!(root.access(b"/d/f", AccessMode::READ | AccessMode::WRITE), Ok(()));
    assert_eq!(root.access(b"/d/f", AccessMode::EXECUTE), Err(Errno::EACCES));
    // To read a directory is one right, to pass through it another.
    root.chmod(b"/d", 0o711).unwrap();
    assert_eq!(other.readdir(b"/d"), Err(Errno::EACCES));
    assert_eq!(other.stat(b"/d/f").map(|attr| attr.size), Ok(4));
    root.chmod(b"/d", 0o744).unwrap();
    assert_eq!(other.readdir(b"/d").map(|all| all.len()), Ok(1));
    assert_eq!(other.stat(b"/d/f"), Err(Errno::EACCES));
    let mut there = other.clone();
    assert_eq!(there.chdir(b"/d"), Err(Errno::EACCES));
    assert_eq!(there.getcwd().unwrap(), b"/");
    there.set_context(Context::root());
    assert_eq!(there.chdir(b"/d"), Ok(()));
    assert_eq!(other.mknod(b"/d/x", FileType::Fifo.mode_bits() | 0o600, 0), Err(Errno::EACCES));
    let device = FileType::CharDevice.mode_bits() | 0o600;
    root.chmod(b"/d", 0o777).unwrap();
    assert_eq!(other.mknod(b"/d/x", device, 0x103), Err(Errno::EPERM));
    assert_eq!(root.mknod(b"/d/x", device, 0x103), Ok(()));
}

#[test]
fn sticky_directories_and_moved_directories_ask_the_owner() {
    let root = root();
    for dir in [&b"/tmp"[..], b"/to"] {
        root.mkdir(dir, 0o777).unwrap();
        root.chmod(dir, 0o777).unwrap();
    }
    root.chmod(b"/tmp", 0o1777).unwrap();
    let (a, b) = (user(&root, 7, &[]), user(&root, 8, &[]));
    touch(&a, b"/tmp/a", 0o666);
    touch(&b, b"/tmp/b", 0o666);
    let plain = RenameFlags::empty();
    assert_eq!(b.unlink(b"/tmp/a"), Err(Errno::EPERM));
    assert_eq!(b.rename(b"/tmp/a", b"/tmp/c", plain), Err(Errno::EPERM));
    assert_eq!(b.rename(b"/tmp/b", b"/tmp/a", plain), Err(Errno::EPERM), "it would go");
    assert_eq!(b.rename(b"/tmp/b", b"/tmp/a", RenameFlags::EXCHANGE), Err(Errno::EPERM));
    assert_eq!(b.rename(b"/tmp/b", b"/to/b", plain), Ok(()));
    assert_eq!(a.unlink(b"/tmp/a"), Ok(()));
    // A directory gets another `..` where it goes: who may not write it may not move it, but give it another name.
    a.mkdir(b"/to/dir", 0o755).unwrap();
    assert_eq!(b.rename(b"/to/dir", b"/to/other", plain), Ok(()));
    assert_eq!(b.rename(b"/to/other", b"/tmp/dir", plain), Err(Errno::EACCES));
    assert_eq!(a.rename(b"/to/other", b"/tmp/dir", plain), Ok(()));
    assert_eq!(b.rmdir(b"/tmp/dir"), Err(Errno::EPERM));
}

#[test]
fn wrong_input_is_refused_and_changes_nothing() {
    let cwd = root();
    touch(&cwd, b"f", 0o644);
    cwd.mkdir(b"d", 0o755).unwrap();
    cwd.symlink(b"loop", b"loop").unwrap();
    let long = vec![b'n'; 256];
    let deep = b"d/".repeat(2_048);
    let names: [(&[u8], Errno); 7] = [
        (b"", Errno::ENOENT),
        (b"nul\0", Errno::EINVAL),
        (&long, Errno::ENAMETOOLONG),
        (&deep, Errno::ENAMETOOLONG),
        (b"f/x", Errno::ENOTDIR),
        (b"absent/x", Errno::ENOENT),
        (b"loop/x", Errno::ELOOP),
    ];
    for (path, error) in names {
        let text = path.escape_ascii().to_string();
        let short = &text[..text.len().min(20)];
        let answers: [(&str, Result<()>); 12] = [
            ("stat", cwd.stat(path).map(drop)),
            ("open", cwd.open(path, CREATE, 0o644).map(drop)),
            ("mkdir", cwd.mkdir(path, 0o755)),
            ("mknod", cwd.mknod(path, 0o644, 0)),
            ("symlink", cwd.symlink(b"t", path)),
            ("link", cwd.link(b"f", path)),
            ("unlink", cwd.unlink(path)),
            ("rmdir", cwd.rmdir(path)),
            ("rename", cwd.rename(b"f", path, RenameFlags::empty())),
            ("rename", cwd.rename(path, b"x", RenameFlags::empty())),
            ("chmod", cwd.chmod(path, 0)),
            ("chdir", cwd.clone().chdir(path)),
        ];
        for (call, answer) in answers {
            assert_eq!(answer, Err(error), "{call} of {short:?}");
        }
    }
    let flags = |path: &[u8], flags| cwd.open(path, flags, 0o644).map(drop);
    assert_eq!(flags(b"new", CREATE | OpenFlags::DIRECTORY), Err(Errno::EINVAL));
    assert_eq!(flags(b"d", CREATE), Err(Errno::EISDIR));
    assert_eq!(flags(b"d", WRITE), Err(Errno::EISDIR));
    assert_eq!(flags(b"f", READ | OpenFlags::DIRECTORY), Err(Errno::ENOTDIR));
    assert_eq!(flags(b"f", CREATE | OpenFlags::EXCLUSIVE), Err(Errno::EEXIST));
    assert_eq!(flags(b"loop", READ | OpenFlags::NOFOLLOW), Err(Errno::ELOOP));
    assert_eq!(flags(b"loop", CREATE), Err(Errno::ELOOP));
    assert_eq!(flags(b"new/", CREATE), Err(Errno::EISDIR));
    assert_eq!(cwd.symlink(b"", b"new"), Err(Errno::ENOENT));
    assert_eq!(cwd.readlink(b"f"), Err(Errno::EINVAL));
    assert_eq!(cwd.link(b"d", b"new"), Err(Errno::EPERM));
    assert_eq!(cwd.mknod(b"new", FileType::Directory.mode_bits() | 0o755, 0), Err(Errno::EINVAL));
    assert_eq!(cwd.clone().chdir(b"f"), Err(Errno::ENOTDIR));
    assert_eq!(cwd.readdir(b"f"), Err(Errno::ENOTDIR));
    assert_eq!(cwd.rmdir(b"."), Err(Errno::EINVAL));
    assert_eq!(cwd.unlink(b"d"), Err(Errno::EISDIR));
    assert_eq!(cwd.rename(b"d", b"d/in", RenameFlags::empty()), Err(Errno::EINVAL));
    let mut names: Vec<_> =
        cwd.readdir(b"/").unwrap().into_iter().map(|entry| entry.name).collect();
    names.sort();
    assert_eq!(names, [&b"d"[..], b"f", b"loop"]);
    assert!(cwd.statfs().unwrap().namelen == 255);
}
