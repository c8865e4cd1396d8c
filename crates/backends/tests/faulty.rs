//! Faults strike when they should, and the core keeps none of them.

use std::time::{Duration, Instant};

use vfscale::{Context, Errno, OpenFlags, Options, Vfs};
use vfscale_backends::{Call, Fault, Faulty, MemFs, Rule};

const CX: Context = Context::root();
const RDWR: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

fn mount() -> Vfs<Faulty<MemFs>> {
    Vfs::new(Faulty::new(MemFs::new()), Options::exclusive()).expect("a mount")
}

#[test]
fn a_failed_lookup_is_not_remembered() {
    let vfs = mount();
    vfs.mkdir_path(&CX, b"/d", 0o755).unwrap();
    vfs.shrink_all();
    vfs.fs().add(Rule::new(Fault::Fail(Errno::EIO)).on(Call::Lookup).from(1).times(2));
    assert!(vfs.stat(&CX, b"/d").is_ok());
    vfs.shrink_all();
    let before = vfs.stats().names;
    for _ in 0..2 {
        assert_eq!(vfs.stat(&CX, b"/d"), Err(Errno::EIO));
        assert_eq!(vfs.stats().names, before);
    }
    assert!(vfs.stat(&CX, b"/d").is_ok());
}

/// A change that failed for a reason that leaves the result open is asked about the next time.
#[test]
fn a_failed_change_is_asked_about() {
    let vfs = mount();
    vfs.mkdir_path(&CX, b"/d", 0o755).unwrap();
    vfs.fs().add(Rule::new(Fault::Fail(Errno::EIO)).on(Call::Rename).times(1));
    vfs.fs().add(Rule::new(Fault::Fail(Errno::EIO)).on(Call::Remove).times(1));
    let flags = vfscale::RenameFlags::empty();
    assert_eq!(vfs.rename_path(&CX, b"/d", b"/e", flags), Err(Errno::EIO));
    assert_eq!(vfs.rmdir_path(&CX, b"/d"), Err(Errno::EIO));
    assert!(vfs.stat(&CX, b"/d").is_ok());
    assert_eq!(vfs.stat(&CX, b"/e"), Err(Errno::ENOENT));
    vfs.rename_path(&CX, b"/d", b"/e", flags).unwrap();
    assert!(vfs.stat(&CX, b"/e").is_ok());
}

#[test]
fn late_calls_keep_nobody_else() {
    let vfs = mount();
    for dir in [b"/slow", b"/fast"] {
        vfs.mkdir_path(&CX, dir, 0o755).unwrap();
    }
    let late = Duration::from_millis(300);
    vfs.fs().add(Rule::new(Fault::Delay(late)).on(Call::Lookup).times(1));
    std::thread::scope(|scope| {
        let started = Instant::now();
        let slow = scope.spawn(|| vfs.stat(&CX, b"/slow/x"));
        while vfs.fs().struck() == 0 {
            std::thread::yield_now();
        }
        // What is cached, what is not, and what is made elsewhere does not wait for it.
        let mut rounds = 0;
        while !slow.is_finished() {
            assert!(vfs.stat(&CX, b"/slow").is_ok());
            let name = format!("/fast/{rounds}");
            vfs.mkdir_path(&CX, name.as_bytes(), 0o755).unwrap();
            rounds += 1;
        }
        assert!(rounds > 1, "all waited");
        assert_eq!(slow.join().unwrap(), Err(Errno::ENOENT));
        assert!(started.elapsed() >= late);
    });
}

#[test]
fn short_reads_and_writes_come_through_as_they_are() {
    let vfs = mount();
    let (_, file) = vfs.create(&CX, &vfs.root(), b"f", 0o644, RDWR).unwrap();
    vfs.fs().add(Rule::new(Fault::Short).on(Call::Write).from(1).times(1));
    vfs.fs().add(Rule::new(Fault::Short).on(Call::Read).times(1));
    assert_eq!(vfs.write(&file, 0, &[1; 100]), Ok(100));
    assert_eq!(vfs.write(&file, 100, &[2; 9]), Ok(5));
    // The size is the backend's, not what the writer wished for.
    assert_eq!(vfs.stat(&CX, b"/f").unwrap().size, 105);
    let mut buf = [0; 100];
    assert_eq!(vfs.read(&file, 0, &mut buf), Ok(50));
    assert_eq!(vfs.read(&file, 50, &mut buf), Ok(55));
}

#[test]
fn short_listings_go_on_where_they_ended() {
    let vfs = mount();
    for name in [b"/a", b"/b", b"/c"] {
        vfs.mkdir_path(&CX, name, 0o755).unwrap();
    }
    vfs.fs().add(Rule::new(Fault::Short).on(Call::Readdir));
    let root = vfs.root().inode().unwrap();
    let dir = vfs.open(&CX, &root, OpenFlags::READ | OpenFlags::DIRECTORY).unwrap();
    let (mut cookie, mut names) = (0, Vec::new());
    loop {
        let before = cookie;
        vfs.readdir(&dir, before, &mut |entry| {
            cookie = entry.next;
            names.push(entry.name.to_vec());
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        if cookie == before {
            break;
        }
    }
    assert_eq!(names.len(), 5);
}

/// An old absence is believed as long as the options say so, and no longer.
#[test]
fn stale_answers_last_as_long_as_they_are_believed() {
    let options = {
        let mut options = Options::exclusive();
        options.negative_ttl = Duration::from_millis(20);
        options.attr_ttl = Duration::ZERO;
        options
    };
    let vfs = Vfs::new(Faulty::new(MemFs::new()), options).unwrap();
    let (_, file) = vfs.create(&CX, &vfs.root(), b"f", 0o644, RDWR).unwrap();
    vfs.write(&file, 0, b"1234").unwrap();
    vfs.shrink_all();
    assert_eq!(vfs.stat(&CX, b"/f").unwrap().size, 4);
    vfs.fs().add(Rule::new(Fault::Stale).on(Call::Getattr).times(1));
    assert_eq!(vfs.getattr(&file.inode(), None).unwrap().size, 0, "as it was when it was made");
    assert_eq!(vfs.getattr(&file.inode(), None).unwrap().size, 4);
    vfs.fs().clear();
    vfs.shrink_all();
    drop(file);
    vfs.shrink_all();
    vfs.fs().add(Rule::new(Fault::Stale).on(Call::Lookup).times(1));
    assert_eq!(vfs.stat(&CX, b"/f"), Err(Errno::ENOENT));
    let asked = Instant::now();
    while vfs.stat(&CX, b"/f").is_err() {
        assert!(asked.elapsed() < Duration::from_secs(5), "the absence is believed for ever");
        std::thread::sleep(Duration::from_millis(5));
    }
}
