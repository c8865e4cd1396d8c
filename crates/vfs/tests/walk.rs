//! What paths mean.

use vfscale::{Context, Errno, FileType, OpenFlags, Options, RenameFlags, SetAttr, Vfs, WalkFlags};
use vfscale_backends::MemFs;

const CX: Context = Context::root();

fn tree() -> Vfs<MemFs> {
    let vfs = Vfs::new(MemFs::new(), Options::exclusive()).unwrap();
    for dir in ["/a", "/a/b", "/a/b/c"] {
        vfs.mkdir_path(&CX, dir.as_bytes(), 0o755).unwrap();
    }
    write(&vfs, "/a/b/c/file", b"hello");
    vfs.symlink_path(&CX, b"b/c", b"/a/link").unwrap();
    vfs.symlink_path(&CX, b"/a/b", b"/abs").unwrap();
    vfs.symlink_path(&CX, b"file", b"/a/b/c/last").unwrap();
    vfs.symlink_path(&CX, b"nowhere", b"/dangling").unwrap();
    vfs.symlink_path(&CX, b"loop2", b"/loop1").unwrap();
    vfs.symlink_path(&CX, b"loop1", b"/loop2").unwrap();
    vfs
}

fn write(vfs: &Vfs<MemFs>, path: &str, data: &[u8]) {
    let flags = OpenFlags::WRITE | OpenFlags::CREATE;
    let file = vfs.open_path(&CX, path.as_bytes(), flags, 0o644).unwrap();
    assert_eq!(vfs.write(&file, 0, data), Ok(data.len()));
}

fn size(vfs: &Vfs<MemFs>, path: &str) -> Result<u64, Errno> {
    vfs.stat(&CX, path.as_bytes()).map(|attr| attr.size)
}

#[test]
fn paths_lead_where_posix_says() {
    let vfs = tree();
    // Twice: from the backend, then from the cache.
    for _ in 0..2 {
        for path in [
            "/a/b/c/file",
            "a/b/c/file",
            "//a/./b//c/file",
            "/a/b/../b/c/file",
            "/../a/b/c/file",
            "/a/link/file",
            "/abs/c/file",
            "/a/b/c/last",
            "/a/link/../c/last",
        ] {
            assert_eq!(size(&vfs, path), Ok(5), "{path}");
        }
        assert_eq!(size(&vfs, "/a/x"), Err(Errno::ENOENT));
        assert_eq!(size(&vfs, "/x/y"), Err(Errno::ENOENT));
        assert_eq!(size(&vfs, "/dangling"), Err(Errno::ENOENT));
        assert_eq!(size(&vfs, "/a/b/c/file/x"), Err(Errno::ENOTDIR));
        assert_eq!(size(&vfs, "/a/b/c/file/"), Err(Errno::ENOTDIR));
        assert_eq!(size(&vfs, "/a/b/c/file/."), Err(Errno::ENOTDIR));
        assert_eq!(size(&vfs, "/a/b/c/last/"), Err(Errno::ENOTDIR));
        assert_eq!(size(&vfs, "/loop1"), Err(Errno::ELOOP));
        assert_eq!(vfs.stat(&CX, b"/a/link/").map(|a| a.kind), Ok(FileType::Directory));
        assert_eq!(vfs.stat(&CX, b"/a/link").map(|a| a.kind), Ok(FileType::Directory));
        assert_eq!(vfs.lstat(&CX, b"/a/link").map(|a| a.kind), Ok(FileType::Symlink));
        assert_eq!(vfs.lstat(&CX, b"/a/link/").map(|a| a.kind), Ok(FileType::Directory));
        assert_eq!(vfs.lstat(&CX, b"/dangling").map(|a| a.kind), Ok(FileType::Symlink));
    }
    let root = vfs.root();
    let file = vfs.walk(&CX, &root, b"/a/b/c/file", WalkFlags::empty()).unwrap();
    assert_eq!(vfs.path_of(&file.dentry), b"/a/b/c/file");
    assert_eq!(vfs.path_of(&root), b"/");
    assert_eq!(
        vfs.walk(&CX, &root, b"/a/b/c/file", WalkFlags::DIRECTORY).map(drop),
        Err(Errno::ENOTDIR)
    );
}

#[test]
fn names_have_their_limits() {
    let vfs = tree();
    let long = "n".repeat(255);
    write(&vfs, &format!("/a/{long}"), b"123");
    vfs.shrink_all();
    assert_eq!(size(&vfs, &format!("/a/{long}")), Ok(3));
    assert_eq!(size(&vfs, &format!("/a/{long}")), Ok(3));
    assert_eq!(size(&vfs, &format!("/a/{long}n")), Err(Errno::ENAMETOOLONG));
    assert_eq!(size(&vfs, &"/a".repeat(2048)), Err(Errno::ENAMETOOLONG));
    assert_eq!(
        size(&vfs, &format!("{}/a", "/.".repeat(2046))),
        Ok(vfs.stat(&CX, b"/a").unwrap().size)
    );
    assert_eq!(vfs.stat(&CX, b"/a\0b"), Err(Errno::EINVAL));
    for bad in [&b"."[..], b"..", b"x/y", b"x\0", b""] {
        assert!(vfs.mkdir(&CX, &vfs.root(), bad, 0o755).is_err(), "{}", bad.escape_ascii());
    }
    let odd = b"/a/\xff\xc3\x80\n\\";
    vfs.mkdir_path(&CX, odd, 0o755).unwrap();
    assert!(vfs.readdir_all(&CX, b"/a").unwrap().iter().any(|e| e.name == odd[3..]));
    vfs.rmdir_path(&CX, odd).unwrap();
}

#[test]
fn a_directory_that_may_not_be_searched_ends_the_walk() {
    let vfs = tree();
    let change = SetAttr { perm: Some(0o700), ..SetAttr::default() };
    vfs.setattr_path(&CX, b"/a/b", &change).unwrap();
    let user = Context { uid: 7, gid: 7, groups: None, pid: 0 };
    for _ in 0..2 {
        assert_eq!(vfs.stat(&user, b"/a/b/c"), Err(Errno::EACCES));
        assert!(vfs.stat(&user, b"/a/b").is_ok());
        assert!(vfs.stat(&CX, b"/a/b/c").is_ok());
    }
}

#[test]
fn odd_ends_of_paths_answer_as_a_kernel_does() {
    let vfs = tree();
    let create = OpenFlags::READ | OpenFlags::CREATE;
    let open = |path: &[u8]| vfs.open_path(&CX, path, create, 0o644).map(drop);
    assert_eq!(vfs.stat(&CX, b"").map(drop), Err(Errno::ENOENT));
    assert_eq!(open(b"/a"), Err(Errno::EISDIR));
    assert_eq!(open(b"/loop1"), Err(Errno::ELOOP));
    assert_eq!(open(b"/a/b/c/fresh/"), Err(Errno::EISDIR));
    assert_eq!(open(b"/dangling"), Ok(()));
    assert_eq!(vfs.lstat(&CX, b"/nowhere").map(|a| a.kind), Ok(FileType::Regular));
    assert_eq!(vfs.rmdir_path(&CX, b"/a/b/."), Err(Errno::EINVAL));
    assert_eq!(vfs.rmdir_path(&CX, b"/a/b/.."), Err(Errno::ENOTEMPTY));
    assert_eq!(vfs.unlink_path(&CX, b"/a/b/."), Err(Errno::EISDIR));
    assert_eq!(vfs.mkdir_path(&CX, b"/none/.", 0o755), Err(Errno::ENOENT));
    assert_eq!(vfs.mkdir_path(&CX, b"/a/.", 0o755), Err(Errno::EEXIST));
    assert_eq!(vfs.mkdir_path(&CX, b"/", 0o755), Err(Errno::EEXIST));
    assert_eq!(vfs.rename_path(&CX, b"/a/.", b"/z", RenameFlags::empty()), Err(Errno::EBUSY));
    assert_eq!(
        vfs.mknod(&CX, &vfs.root(), b"plain", 0o644, 0).map(|f| f.attr.kind),
        Ok(FileType::Regular)
    );
}

#[test]
fn a_user_does_on_paths_what_the_modes_allow() {
    let vfs = tree();
    let chmod = |path: &[u8], perm, uid| {
        let change = SetAttr { perm: Some(perm), uid: Some(uid), ..SetAttr::default() };
        vfs.setattr_path(&CX, path, &change).unwrap();
    };
    let user = Context { uid: 7, gid: 7, groups: None, pid: 0 };
    chmod(b"/a/b", 0o755, 0);
    assert_eq!(vfs.mkdir_path(&user, b"/a/b/new", 0o755), Err(Errno::EACCES));
    assert_eq!(
        vfs.mkdir_path(&user, b"/a/b/c", 0o755),
        Err(Errno::EEXIST),
        "what exists comes first"
    );
    assert_eq!(vfs.rmdir_path(&user, b"/a/b/c"), Err(Errno::EACCES));
    assert_eq!(vfs.rename_path(&user, b"/a/b/c", b"/x", RenameFlags::empty()), Err(Errno::EACCES));
    let write = OpenFlags::WRITE;
    assert_eq!(vfs.open_path(&user, b"/a/b/c/file", write, 0).map(drop), Err(Errno::EACCES));
    assert!(vfs.open_path(&user, b"/a/b/c/file", OpenFlags::READ, 0).is_ok());
    // A sticky directory that all may change: each only the names of its own.
    chmod(b"/a/b/c", 0o1777, 0);
    assert_eq!(vfs.unlink_path(&user, b"/a/b/c/file"), Err(Errno::EPERM));
    chmod(b"/a/b/c/file", 0o600, 7);
    assert_eq!(vfs.unlink_path(&user, b"/a/b/c/file"), Ok(()));
    assert!(vfs.open_path(&user, b"/a/b/c/own", write | OpenFlags::CREATE, 0o600).is_ok());
}

#[test]
fn what_changes_is_seen_at_once() {
    let vfs = tree();
    assert_eq!(size(&vfs, "/a/new"), Err(Errno::ENOENT));
    assert_eq!(size(&vfs, "/a/new"), Err(Errno::ENOENT), "known to be absent");
    write(&vfs, "/a/new", b"12");
    assert_eq!(size(&vfs, "/a/new"), Ok(2));
    write(&vfs, "/a/new", b"1234");
    assert_eq!(size(&vfs, "/a/new"), Ok(4));
    vfs.link_path(&CX, b"/a/new", b"/a/second").unwrap();
    assert_eq!(vfs.stat(&CX, b"/a/new").unwrap().nlink, 2);
    vfs.unlink_path(&CX, b"/a/new").unwrap();
    assert_eq!(size(&vfs, "/a/new"), Err(Errno::ENOENT));
    assert_eq!(vfs.stat(&CX, b"/a/second").unwrap().nlink, 1);

    // A directory moves with all below it; `..` follows.
    let deep = vfs.walk(&CX, &vfs.root(), b"/a/b/c", WalkFlags::DIRECTORY).unwrap();
    vfs.rename_path(&CX, b"/a/b/c", b"/moved", RenameFlags::empty()).unwrap();
    assert_eq!(vfs.path_of(&deep.dentry), b"/moved");
    assert_eq!(size(&vfs, "/moved/file"), Ok(5));
    assert_eq!(size(&vfs, "/a/b/c/file"), Err(Errno::ENOENT));
    let up = vfs.walk(&CX, &deep.dentry, b"..", WalkFlags::DIRECTORY).unwrap();
    assert_eq!(vfs.path_of(&up.dentry), b"/");

    assert_eq!(vfs.rename_path(&CX, b"/a", b"/a/b/x", RenameFlags::empty()), Err(Errno::EINVAL));
    assert_eq!(vfs.rename_path(&CX, b"/a/b", b"/a", RenameFlags::empty()), Err(Errno::ENOTEMPTY));
    assert_eq!(vfs.rename_path(&CX, b"/a/b", b"/a", RenameFlags::EXCHANGE), Err(Errno::EINVAL));
    let both = RenameFlags::EXCHANGE | RenameFlags::NOREPLACE;
    assert_eq!(vfs.rename_path(&CX, b"/a", b"/moved", both), Err(Errno::EINVAL));
    assert_eq!(vfs.rename_path(&CX, b"/a", b"/moved", RenameFlags::NOREPLACE), Err(Errno::EEXIST));
    vfs.rename_path(&CX, b"/moved", b"/a/second", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(size(&vfs, "/a/second/file"), Ok(5));
    assert_eq!(size(&vfs, "/moved"), Ok(4));
    assert_eq!(vfs.path_of(&deep.dentry), b"/a/second");

    assert_eq!(vfs.rmdir_path(&CX, b"/a/second"), Err(Errno::ENOTEMPTY));
    assert_eq!(vfs.unlink_path(&CX, b"/a/second"), Err(Errno::EISDIR));
    assert_eq!(vfs.rmdir_path(&CX, b"/moved"), Err(Errno::ENOTDIR));
    // A directory that is gone takes no new names, however it is held.
    vfs.mkdir_path(&CX, b"/gone", 0o755).unwrap();
    let gone = vfs.walk(&CX, &vfs.root(), b"/gone", WalkFlags::DIRECTORY).unwrap();
    vfs.rmdir_path(&CX, b"/gone").unwrap();
    assert_eq!(vfs.mkdir(&CX, &gone.dentry, b"x", 0o755).map(drop), Err(Errno::ENOENT));
    assert_eq!(vfs.lookup(&CX, &gone.dentry, b"x").map(drop), Err(Errno::ENOENT));
}

#[test]
fn an_open_file_outlives_its_name() {
    let vfs = tree();
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let file = vfs.open_path(&CX, b"/a/b/c/file", flags, 0).unwrap();
    vfs.unlink_path(&CX, b"/a/b/c/file").unwrap();
    write(&vfs, "/a/b/c/file", b"another");
    assert_eq!(vfs.write(&file, 5, b"!"), Ok(1));
    let mut buf = [0; 16];
    assert_eq!(vfs.read(&file, 0, &mut buf), Ok(6));
    assert_eq!(&buf[..6], b"hello!");
    let attr = vfs.getattr(&file.inode(), Some(&file)).unwrap();
    assert_eq!((attr.nlink, attr.size), (0, 6));
    assert_eq!(size(&vfs, "/a/b/c/file"), Ok(7));
    let read_only = vfs.open_path(&CX, b"/a/b/c/file", OpenFlags::READ, 0).unwrap();
    assert_eq!(vfs.write(&read_only, 0, b"x"), Err(Errno::EBADF));
    let exclusive = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
    assert_eq!(vfs.open_path(&CX, b"/a/b/c/file", exclusive, 0o600).map(drop), Err(Errno::EEXIST));
    drop((file, read_only));
    vfs.unmount().unwrap();
}

#[test]
fn a_mount_that_is_in_use_says_so() {
    let vfs = tree();
    let held = vfs.walk(&CX, &vfs.root(), b"/a/b", WalkFlags::DIRECTORY).unwrap();
    let busy = vfs.unmount().unwrap_err();
    assert_eq!((busy.names, busy.inodes, busy.files), (3, 3, 0), "/, a, b");
    drop(held);
}
