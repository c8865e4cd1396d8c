//! Content: reading, writing, sizes, holes.

use crate::{Errno, FileSystem, OpenFlags, SeekFor, SetAttr};

use crate::conformance::world::{RDWR, World};

const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 0x10;

pub(crate) fn write_then_read<F: FileSystem>(w: &World<F>) {
    let (entry, handle) = w.create("f");
    let data: Vec<u8> = (0..300_000_u32).map(|i| (i % 251) as u8).collect();
    w.write(&handle, 5, &data);
    assert_eq!(w.attr(&entry.node).size, 300_005);
    assert!(w.attr(&entry.node).blocks * 512 >= 300_005);
    let mut back = vec![1; 300_010];
    assert_eq!(w.fs.read(&handle, 0, &mut back), Ok(300_005));
    assert_eq!(back[..5], [0; 5]);
    assert_eq!(back[5..300_005], data);
    let read_only = w.open(&entry.node, OpenFlags::READ).unwrap();
    assert_eq!(w.fs.write(&read_only, 0, b"x"), Err(Errno::EBADF));
    let write_only = w.open(&entry.node, OpenFlags::WRITE).unwrap();
    assert_eq!(w.fs.read(&write_only, 0, &mut back), Err(Errno::EBADF));
}

pub(crate) fn append_goes_to_the_end<F: FileSystem>(w: &World<F>) {
    let entry = w.file("f", b"foo\n");
    let handle = w.open(&entry.node, RDWR | OpenFlags::APPEND).unwrap();
    w.write(&handle, 0, b"bar\n");
    w.write(&handle, 0, b"baz\n");
    assert_eq!(w.content("f"), b"foo\nbar\nbaz\n");
    assert_eq!(w.read_handle(&handle), b"foo\nbar\nbaz\n");
    let flags = RDWR | OpenFlags::APPEND;
    let (_, made) = w.fs.create(&w.cx, w.at("g"), 0o644, flags).unwrap();
    w.write(&made, 0, b"one");
    w.write(&made, 0, b"two");
    assert_eq!(w.content("g"), b"onetwo");
}

pub(crate) fn truncate_on_open_is_seen_by_others<F: FileSystem>(w: &World<F>) {
    let entry = w.file("f", b"twenty-one characters");
    let first = w.open(&entry.node, RDWR).unwrap();
    let second = w.open(&entry.node, OpenFlags::WRITE | OpenFlags::TRUNCATE).unwrap();
    assert_eq!(w.fs.getattr(&entry.node, Some(&first)).unwrap().size, 0);
    w.write(&second, 0, b"BB");
    w.write(&first, 5, b"X");
    assert_eq!(w.content("f"), b"BB\0\0\0X");
}

pub(crate) fn truncate_down_then_up_reads_zeros<F: FileSystem>(w: &World<F>) {
    let entry = w.file("f", &[9; 10_000]);
    let size = |size| SetAttr { size: Some(size), ..Default::default() };
    w.set(&entry.node, size(100)).unwrap();
    assert_eq!(w.set(&entry.node, size(9_000)).unwrap().size, 9_000);
    let content = w.content("f");
    assert_eq!(content[..100], [9; 100]);
    assert!(content[100..].iter().all(|&b| b == 0));
    assert_eq!(content.len(), 9_000);
    // Far beyond any memory: a hole.
    let attr = w.set(&entry.node, size(1 << 40)).unwrap();
    assert_eq!(attr.size, 1 << 40);
    assert!(attr.blocks < 1000);
    let d = w.mkdir("d");
    assert_eq!(w.set(&d.node, size(0)).map(drop), Err(Errno::EISDIR));
    let pipe = w.fs.mknod(&w.cx, w.at("p"), 0o01_0644, 0).unwrap();
    assert_eq!(w.set(&pipe.node, size(0)).map(drop), Err(Errno::EINVAL));
}

pub(crate) fn read_only_mode_keeps_the_handle_writable<F: FileSystem>(w: &World<F>) {
    for (name, perm) in [("t", 0o444), ("u", 0)] {
        let (entry, handle) = w.fs.create(&w.cx, w.at(name), perm, RDWR).unwrap();
        assert_eq!(entry.attr.perm, perm);
        w.write(&handle, 0, b"data");
        assert_eq!(w.read_handle(&handle), b"data");
        let cut = SetAttr { size: Some(2), ..Default::default() };
        w.fs.setattr(&w.cx, &entry.node, Some(&handle), &cut).unwrap();
        assert_eq!(w.fs.getattr(&entry.node, Some(&handle)).unwrap().size, 2);
        w.unlink(name).unwrap();
    }
}

pub(crate) fn reads_past_the_end_are_empty<F: FileSystem>(w: &World<F>) {
    let (_, handle) = w.create("f");
    let mut buf = [1; 8];
    assert_eq!(w.fs.read(&handle, 0, &mut buf), Ok(0));
    w.write(&handle, 0, b"abc");
    assert_eq!(w.fs.read(&handle, 2, &mut buf), Ok(1));
    assert_eq!(w.fs.read(&handle, 3, &mut buf), Ok(0));
    assert_eq!(w.fs.read(&handle, 1 << 40, &mut buf), Ok(0));
    assert_eq!(w.fs.write(&handle, 0, b""), Ok(0));
}

pub(crate) fn seek_data_and_hole<F: FileSystem>(w: &World<F>) {
    const K: u64 = 1024;
    let (entry, handle) = w.create("f");
    w.write(&handle, 0, &[1; 4096]);
    w.write(&handle, 512 * K, &[1; 4096]);
    w.set(&entry.node, SetAttr { size: Some(K * K), ..Default::default() }).unwrap();
    let data = |at| w.fs.seek(&handle, at, SeekFor::Data);
    let hole = |at| w.fs.seek(&handle, at, SeekFor::Hole);
    assert_eq!([data(0), data(4 * K), data(300 * K)], [Ok(0), Ok(512 * K), Ok(512 * K)]);
    assert_eq!(data(514 * K), Ok(514 * K));
    assert_eq!(data(K * K - 1), Err(Errno::ENXIO));
    assert_eq!([hole(0), hole(4 * K), hole(514 * K)], [Ok(4 * K), Ok(4 * K), Ok(516 * K)]);
    assert_eq!(hole(K * K - 1), Ok(K * K - 1));
    for at in [K * K, K * K + 1] {
        assert_eq!([data(at), hole(at)], [Err(Errno::ENXIO); 2]);
    }
    let (_, empty) = w.create("empty");
    assert_eq!(w.fs.seek(&empty, 0, SeekFor::Data), Err(Errno::ENXIO));
}

pub(crate) fn allocate_modes<F: FileSystem>(w: &World<F>) {
    let (entry, handle) = w.create("f");
    let size = || w.attr(&entry.node).size;
    w.fs.fallocate(&handle, KEEP_SIZE, 0, 65_536).unwrap();
    assert_eq!(size(), 0);
    assert!(w.attr(&entry.node).blocks * 512 >= 65_536);
    w.fs.fallocate(&handle, 0, 0, 10_000).unwrap();
    assert_eq!(size(), 10_000);
    w.write(&handle, 0, &[5; 10_000]);
    w.fs.fallocate(&handle, PUNCH_HOLE | KEEP_SIZE, 4_000, 5_000).unwrap();
    let content = w.content("f");
    assert!(content[..4_000].iter().chain(&content[9_000..]).all(|&b| b == 5));
    assert!(content[4_000..9_000].iter().all(|&b| b == 0));
    w.fs.fallocate(&handle, ZERO_RANGE, 9_500, 1_000).unwrap();
    assert_eq!(size(), 10_500);
    assert!(w.content("f")[9_500..].iter().all(|&b| b == 0));
    assert_eq!(w.fs.fallocate(&handle, 1 << 20, 0, 1), Err(Errno::EOPNOTSUPP));
    assert_eq!(w.fs.fallocate(&handle, 0, 0, 0), Err(Errno::EINVAL));
}

pub(crate) fn copy_within_the_file_system<F: FileSystem>(w: &World<F>) {
    let (_, from) = w.create("a");
    let data: Vec<u8> = (0..20_000_u32).map(|i| (i % 250) as u8 + 1).collect();
    w.write(&from, 0, &data);
    let (_, to) = w.create("b");
    assert_eq!(w.fs.copy_range(&from, 100, &to, 7, 10_000), Ok(10_000));
    let copied = w.read_handle(&to);
    assert_eq!(copied[..7], [0; 7]);
    assert_eq!(copied[7..], data[100..10_100]);
    assert_eq!(w.fs.copy_range(&from, 19_000, &to, 0, 5_000), Ok(1_000));
    assert_eq!(w.fs.copy_range(&from, 30_000, &to, 0, 5_000), Ok(0));
    assert_eq!(w.fs.copy_range(&from, 0, &from, 100, 5_000), Err(Errno::EINVAL));
    assert_eq!(w.fs.copy_range(&from, 0, &from, 20_000, 5_000), Ok(5_000));
    assert_eq!(w.read_handle(&from)[20_000..], data[..5_000]);
}

pub(crate) fn open_checks_kinds<F: FileSystem>(w: &World<F>) {
    let (d, f) = (w.mkdir("d"), w.file("f", b""));
    let link = w.fs.symlink(&w.cx, w.at("l"), b"f").unwrap();
    let dir = OpenFlags::READ | OpenFlags::DIRECTORY;
    assert_eq!(w.open(&f.node, dir).map(drop), Err(Errno::ENOTDIR));
    assert_eq!(w.open(&d.node, RDWR).map(drop), Err(Errno::EISDIR));
    assert_eq!(w.open(&link.node, OpenFlags::READ).map(drop), Err(Errno::ELOOP));
    let handle = w.open(&d.node, dir).unwrap();
    assert_eq!(w.fs.read(&handle, 0, &mut [0; 4]), Err(Errno::EISDIR));
}

pub(crate) fn flush_and_sync<F: FileSystem>(w: &World<F>) {
    let (_, handle) = w.create("f");
    w.write(&handle, 0, b"x");
    for _ in 0..3 {
        w.fs.flush(&handle).unwrap();
    }
    w.fs.fsync(&handle, false).unwrap();
    w.fs.fsync(&handle, true).unwrap();
    w.fs.fsync(&w.open_dir(&w.root), false).unwrap();
    w.write(&handle, 1, b"y");
    assert_eq!(w.content("f"), b"xy");
}
