//! Reclaim: every policy keeps the limits, keeps what is used, and drops what is absent first. The lessons R3.11 to R3.14 by name.

#[path = "../../sync/src/testing.rs"]
mod testing;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use vfscale::{
    Attr, Context, Entry, Errno, FileSystem, FileType, InodeKey, OpenFlags, Options, Place,
    Pressure, PressureSource, Reclaim, Result, Vfs,
};
use vfscale_backends::MemFs;

const CX: Context = Context::root();
const POLICIES: [Reclaim; 3] = [Reclaim::Lru, Reclaim::Clock, Reclaim::Sieve];

/// A computed tree: every directory has any name `d…` as a directory and `f…` as a file, and nothing else. Counts what it is asked.
#[derive(Default)]
struct Computed(Arc<AtomicU64>);

fn entry(kind: FileType, ino: u64) -> Entry<(FileType, u64)> {
    Entry { key: InodeKey { ino, tag: 0 }, attr: Attr::new(ino, kind), node: (kind, ino) }
}

impl FileSystem for Computed {
    type Node = (FileType, u64);
    type Handle = ();

    fn root(&self) -> Result<Entry<Self::Node>> {
        Ok(entry(FileType::Directory, 1))
    }

    fn lookup(&self, _: &Context, at: Place<'_, Self::Node>) -> Result<Entry<Self::Node>> {
        self.0.fetch_add(1, Relaxed);
        let number = at.name.iter().fold(at.dir.1, |hash, &b| {
            (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17)
        });
        match at.name[0] {
            b'd' => Ok(entry(FileType::Directory, number)),
            b'f' => Ok(entry(FileType::Regular, number)),
            _ => Err(Errno::ENOENT),
        }
    }

    fn getattr(&self, node: &Self::Node, _: Option<&()>) -> Result<Attr> {
        Ok(Attr::new(node.1, node.0))
    }
}

struct World {
    vfs: Arc<Vfs<Computed>>,
    asked: Arc<AtomicU64>,
}

impl World {
    fn new(policy: Reclaim, change: impl FnOnce(&mut Options)) -> World {
        let mut options = Options::exclusive();
        options.reclaim = policy;
        change(&mut options);
        let fs = Computed::default();
        let asked = fs.0.clone();
        World { vfs: Arc::new(Vfs::new(fs, options).unwrap()), asked }
    }

    fn stat(&self, path: &str) -> Result<Attr> {
        self.vfs.stat(&CX, path.as_bytes())
    }

    /// Looks at `names` paths, whatever becomes of it.
    fn visit(&self, names: u64, path: impl Fn(u64) -> String) {
        (0..names).for_each(|i| assert!(matches!(self.stat(&path(i)), Ok(_) | Err(Errno::ENOENT))));
    }

    /// How often the backend is asked while `run` runs.
    fn asks(&self, run: impl FnOnce(&World)) -> u64 {
        let before = self.asked.load(Relaxed);
        run(self);
        self.asked.load(Relaxed) - before
    }

    fn end(self) {
        let World { vfs, .. } = self;
        Arc::into_inner(vfs).expect("nobody else has it").unmount().expect("nothing is in use");
    }
}

#[test]
fn every_policy_keeps_the_limit_on_names() {
    for policy in POLICIES {
        let world = World::new(policy, |options| options.max_names = 2_000);
        for i in 0..20_000 {
            world.stat(&format!("/d{}/f{i}", i / 500)).unwrap();
        }
        let stats = world.vfs.stats();
        assert!(stats.names_peak <= 2_000, "{policy:?}: {}", stats.names_peak);
        assert!(stats.names > 1_000, "{policy:?} keeps what it may: {}", stats.names);
        assert!(stats.lru_freed >= 18_000, "{policy:?}: {}", stats.lru_freed);
        world.end();
    }
}

#[test]
fn every_policy_keeps_what_is_used_through_a_scan() {
    for policy in POLICIES {
        let world = World::new(policy, |options| options.max_names = 4_000);
        let hot = |world: &World| world.visit(1_000, |i| format!("/f-hot{i}"));
        hot(&world);
        for round in 0..20 {
            hot(&world);
            world.visit(1_000, |i| format!("/f{round}-{i}"));
        }
        let asked = world.asks(hot);
        assert!(asked < 50, "{policy:?} forgot {asked} of 1000 names that were used all the time");
        world.end();
    }
}

#[test]
fn every_policy_frees_everything_that_is_not_in_use() {
    for policy in POLICIES {
        let world = World::new(policy, |_| ());
        for i in 0..3_000 {
            let kind = if i % 2 == 0 { 'f' } else { 'x' };
            let _ = world.stat(&format!("/d{}/d{}/{kind}{i}", i / 1_000, i / 100));
        }
        let held = world.vfs.lookup(&CX, &world.vfs.root(), b"f-held").unwrap();
        assert!(world.vfs.stats().negative == 1_500);
        let freed = world.vfs.shrink_all();
        let stats = world.vfs.stats();
        assert_eq!((stats.names, stats.inodes, stats.negative), (2, 2, 0), "{policy:?}");
        assert_eq!(freed, 3_000 + 3 + 30, "{policy:?}");
        assert_eq!(stats.negative_freed, 1_500, "{policy:?}");
        drop(held);
        assert_eq!(world.vfs.shrink(10), 1, "{policy:?}: it waits among the unused ones again");
        world.end();
    }
}

#[test]
fn the_limit_on_bytes_counts_inodes_and_long_names() {
    for policy in POLICIES {
        const MAX: u64 = 1 << 20;
        let world = World::new(policy, |options| options.max_bytes = MAX);
        let mut most = 0;
        for i in 0..6_000 {
            world.stat(&format!("/f{}{i}", "long".repeat(40))).unwrap();
            most = most.max(world.vfs.stats().bytes);
        }
        assert!(most <= MAX && most > MAX / 2, "{policy:?}: {most} bytes");
        world.vfs.shrink_all();
        // The root has neither a name nor a neighbour.
        let left = world.vfs.stats().bytes;
        assert!(left < 400, "{policy:?}: {left} bytes for the root");
        world.end();
    }
}

#[test]
fn a_limit_of_zero_is_none_and_one_of_one_is_one() {
    let world = World::new(Reclaim::Lru, |options| {
        options.max_names = 0;
        options.max_negative = 0;
        options.max_negative_per_dir = 0;
    });
    world.visit(3_000, |i| format!("/x{i}"));
    assert_eq!(world.vfs.stats().names, 3_001);
    world.end();
    for policy in POLICIES {
        let world = World::new(policy, |options| {
            options.max_names = 1;
            options.max_negative = 1;
            options.max_negative_per_dir = 1;
        });
        for i in 0..100 {
            world.stat(&format!("/d{i}/f{i}")).unwrap();
            assert_eq!(world.stat(&format!("/x{i}")), Err(Errno::ENOENT));
        }
        // The clock makes a bounded number of steps for each name that comes, in an index that other tests fill, too.
        let most = if policy == Reclaim::Clock { 100 } else { 5 };
        assert!(world.vfs.stats().names_peak <= most, "{policy:?}: {:?}", world.vfs.stats());
        world.end();
    }
}

#[test]
fn absences_go_before_names() {
    for policy in POLICIES {
        let world = World::new(policy, |options| options.max_negative = 0);
        world.visit(100, |i| format!("/f{i}"));
        world.visit(100, |i| format!("/x{i}"));
        assert_eq!(world.vfs.shrink(100), 100);
        let stats = world.vfs.stats();
        assert_eq!(
            (stats.names, stats.negative, stats.negative_freed),
            (101, 0, 100),
            "{policy:?}"
        );
        world.end();
    }
}

#[test]
fn an_absence_that_is_asked_for_outlives_one_that_is_not() {
    for policy in POLICIES {
        let world = World::new(policy, |options| options.max_negative = 1_000);
        let probed = |world: &World| world.visit(200, |i| format!("/d/x-h{i}"));
        probed(&world);
        for round in 0..20 {
            probed(&world);
            world.visit(300, |i| format!("/x{round}-{i}"));
        }
        assert!(world.vfs.stats().negative_peak <= 1_000, "{policy:?}");
        let asked = world.asks(probed);
        assert!(asked < 20, "{policy:?} forgot {asked} of 200 absences");
        world.end();
    }
}

/// A name that turns positive where it waited among the absent ones is not swept with them.
#[test]
fn what_is_created_where_it_was_absent_is_kept_as_a_name() {
    for policy in POLICIES {
        let mut options = Options::exclusive();
        options.reclaim = policy;
        let vfs = Vfs::new(MemFs::new(), options).unwrap();
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        for i in 0..200 {
            let path = format!("/n{i}");
            assert_eq!(vfs.stat(&CX, path.as_bytes()), Err(Errno::ENOENT));
            drop(vfs.open_path(&CX, path.as_bytes(), flags, 0o644).unwrap());
        }
        for i in 0..100 {
            assert_eq!(vfs.stat(&CX, format!("/gone{i}").as_bytes()), Err(Errno::ENOENT));
        }
        let before = vfs.stats();
        assert_eq!((before.negative, before.names), (100, 301), "{policy:?}");
        assert_eq!(vfs.shrink(100), 100, "{policy:?}");
        assert_eq!((vfs.stats().negative, vfs.stats().names), (0, 201), "{policy:?}");
        // And back: unlinked where they wait, they count as absent and go first.
        for i in 0..50 {
            vfs.unlink_path(&CX, format!("/n{i}").as_bytes()).unwrap();
        }
        assert_eq!(vfs.stats().negative, 50, "{policy:?}");
        vfs.shrink(50);
        assert_eq!((vfs.stats().negative, vfs.stats().names), (0, 151), "{policy:?}");
        vfs.unmount().unwrap();
    }
}

/// Removing a tree, or looking for millions of names in one directory, must not leave a directory that is mostly absences; and nobody who
/// walks it holds a lock over all of them: a sweep ends after a batch, so a lookup beside it waits for no more than that.
#[test]
fn r3_11_one_directory_does_not_fill_up_with_absences() {
    for policy in POLICIES {
        let world = World::new(policy, |options| options.max_negative_per_dir = 500);
        world.visit(20_000, |i| format!("/d-full/x{i}"));
        let full = world.vfs.stats();
        assert!(full.negative_peak <= 500, "{policy:?}: {}", full.negative_peak);
        assert!(full.negative > 300, "{policy:?} keeps what it may: {}", full.negative);
        // Another directory has a limit of its own.
        world.visit(100, |i| format!("/d-other/x{i}"));
        assert_eq!(world.vfs.stats().negative, full.negative + 100, "{policy:?}");
        let asked = world.asks(|world| world.visit(100, |i| format!("/d-other/x{i}")));
        assert_eq!(asked, 0, "{policy:?}");
        world.end();
    }
    let mut options = Options::exclusive();
    options.max_negative_per_dir = 100;
    let vfs = Vfs::new(MemFs::new(), options).unwrap();
    for i in 0..1_000 {
        let path = format!("/n{i}");
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        drop(vfs.open_path(&CX, path.as_bytes(), flags, 0o644).unwrap());
        vfs.unlink_path(&CX, path.as_bytes()).unwrap();
    }
    assert!(vfs.stats().negative_peak <= 100, "{}", vfs.stats().negative_peak);
    vfs.unmount().unwrap();
}

/// Both sides of the lesson: random absences do not grow without bound on an idle machine, and the probes of a build, a quarter of them
/// for names that are not there, are answered from the cache while they do.
#[test]
fn r3_12_absences_are_bounded_and_the_probes_of_a_build_stay() {
    for policy in POLICIES {
        let world = World::new(policy, |options| {
            options.max_names = 20_000;
            options.max_negative = 5_000;
        });
        // Each source looks for each of its headers in ten directories, and finds it in the last.
        let build = |world: &World| {
            for source in 0..20 {
                for header in 0..10 {
                    let name = (source * 3 + header) % 50;
                    for dir in 0..10 {
                        let kind = if dir == 9 { 'f' } else { 'x' };
                        let _ = world.stat(&format!("/d{dir}/{kind}{name}.h"));
                    }
                }
            }
        };
        build(&world);
        for flood in 0..5 {
            world.visit(5_000, |i| format!("/x{flood}-{i}"));
            let asked = world.asks(build);
            assert!(asked < 100, "{policy:?}: {asked} of 2000 lookups of the build asked again");
        }
        assert!(world.vfs.stats().negative_peak <= 5_000, "{policy:?}");
        world.end();
    }
}

/// The same names on many mounts stand in other chains, and those of a mount that ends go with it.
#[test]
fn r3_13_the_same_names_on_many_mounts_do_not_share_chains() {
    let worlds: Vec<World> = (0..40).map(|_| World::new(Reclaim::Clock, |_| ())).collect();
    for world in &worlds {
        world.visit(200, |i| format!("/f{i}"));
    }
    // Of all these names the clock of one mount takes its own alone.
    assert_eq!(worlds[0].vfs.shrink(u64::MAX), 200);
    for world in &worlds[1..] {
        assert_eq!(world.vfs.stats().names, 201);
        assert_eq!(world.asks(|world| world.visit(200, |i| format!("/f{i}"))), 0);
    }
    worlds.into_iter().for_each(World::end);
}

/// Where an absence is not to be believed for a moment, a miss leaves nothing behind.
#[test]
fn r3_14_a_miss_that_may_not_be_remembered_leaves_nothing() {
    let world = World::new(Reclaim::Lru, |options| options.negative_ttl = Duration::ZERO);
    let asked = world.asks(|world| world.visit(1_000, |_| "/x".to_owned()));
    let stats = world.vfs.stats();
    assert_eq!((asked, stats.names, stats.negative, stats.negative_peak), (1_000, 1, 0, 0));
    assert_eq!((stats.negative_refused, stats.lru_scanned), (1_000, 0));
    world.end();
}

/// More threads than processors look up, hold on and let go, while two of them shrink all the time.
#[test]
fn shrinking_beside_lookups_loses_nothing() {
    for policy in POLICIES {
        let world = World::new(policy, |options| {
            options.max_names = 300;
            options.max_negative = 50;
            options.max_negative_per_dir = 20;
        });
        let (stop, start) = (AtomicBool::new(false), Barrier::new(8));
        testing::scope(|scope| {
            for thread in 0_u64..8 {
                let (world, stop, start) = (&world, &stop, &start);
                scope.spawn(move || {
                    start.wait();
                    let end = Instant::now() + Duration::from_millis(250);
                    let mut at = thread;
                    while !stop.load(Relaxed) {
                        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let (dir, name) = (at >> 40 & 7, at >> 50 & 63);
                        match thread {
                            0 => drop(world.vfs.shrink(at >> 60)),
                            1 if at >> 61 == 0 => drop(world.vfs.shrink_all()),
                            _ if at >> 63 == 0 => {
                                let missing = world.stat(&format!("/d{dir}/x{name}"));
                                assert_eq!(missing, Err(Errno::ENOENT));
                            }
                            _ => {
                                let attr = world.stat(&format!("/d{dir}/f{name}")).unwrap();
                                assert_eq!(attr.kind, FileType::Regular);
                            }
                        }
                        if Instant::now() > end {
                            stop.store(true, Relaxed);
                        }
                    }
                });
            }
        });
        world.vfs.shrink_all();
        let stats = world.vfs.stats();
        assert_eq!((stats.names, stats.inodes, stats.negative), (1, 1, 0), "{policy:?}");
        world.end();
    }
}

mod pressure {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    struct Files(PathBuf);

    impl Files {
        fn new(name: &str) -> Files {
            let dir = std::env::temp_dir().join(format!("vfscale-{name}-{}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            Files(dir)
        }

        fn write(&self, name: &str, text: &str) {
            // Never half a file for whoever reads it just now.
            fs::write(self.0.join("new"), text).unwrap();
            fs::rename(self.0.join("new"), self.0.join(name)).unwrap();
        }

        fn stalls(&self) -> PressureSource {
            PressureSource::new(Some(self.0.join("stalls")), None)
        }

        fn cgroup(&self) -> PressureSource {
            PressureSource::new(None, Some(self.0.clone()))
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn psi(some: &str, full: &str) -> String {
        let line = |who, avg| format!("{who} avg10={avg} avg60=0.00 avg300=0.00 total=123\n");
        line("some", some) + &line("full", full)
    }

    #[test]
    fn stalls_are_read() {
        let files = Files::new("psi");
        assert_eq!(files.stalls().read(), Pressure::None, "no file");
        for (text, pressure) in [
            (psi("0.00", "0.00"), Pressure::None),
            (psi("9.99", "1.00"), Pressure::None),
            (psi("10.00", "9.00"), Pressure::Some),
            (psi("60.12", "10.50"), Pressure::Severe),
            (String::new(), Pressure::None),
            ("some avg10=much\nfull".to_owned(), Pressure::None),
            ("\0\0".to_owned(), Pressure::None),
            (psi("NaN", "-5"), Pressure::None),
        ] {
            files.write("stalls", &text);
            assert_eq!(files.stalls().read(), pressure, "{text:?}");
        }
    }

    #[test]
    fn the_limit_of_a_cgroup_is_read() {
        let files = Files::new("cgroup");
        assert_eq!(files.cgroup().read(), Pressure::None, "no files");
        for (current, max, high, stat, pressure) in [
            ("100", "max", "max", "", Pressure::None),
            ("100", "1000", "max", "", Pressure::None),
            ("900", "1000", "max", "", Pressure::Some),
            ("970\n", "1000\n", "max\n", "", Pressure::Severe),
            ("900", "1000", "max", "anon 5\ninactive_file 300\n", Pressure::None),
            ("500", "1000", "520", "", Pressure::Some),
            ("5", "0", "max", "", Pressure::Severe),
            ("many", "1000", "max", "", Pressure::None),
            ("999", "-1", "", "", Pressure::None),
        ] {
            files.write("memory.current", current);
            files.write("memory.max", max);
            files.write("memory.high", high);
            files.write("memory.stat", stat);
            assert_eq!(files.cgroup().read(), pressure, "{current} of {max}, {high}, {stat}");
        }
    }

    #[test]
    fn the_system_is_asked_without_harm() {
        let source = PressureSource::system();
        // Whatever it says here, it says it twice the same way or higher: reading changes nothing.
        let _ = source.read();
        assert_eq!(source.is_empty(), source == PressureSource::default());
    }

    #[test]
    fn a_mount_gives_way() {
        let world = World::new(Reclaim::Lru, |_| ());
        world.visit(800, |i| format!("/f{i}"));
        assert_eq!(world.vfs.relieve(Pressure::None), 0);
        assert_eq!(world.vfs.relieve(Pressure::Some), 801 / 8);
        assert_eq!(world.vfs.relieve(Pressure::Severe), (801 - 100) / 2);
        world.end();
    }

    #[test]
    fn a_watch_relieves_and_ends() {
        let files = Files::new("watch");
        files.write("stalls", &psi("0", "0"));
        let world = World::new(Reclaim::Sieve, |_| ());
        world.visit(1_000, |i| format!("/f{i}"));
        let every = Duration::from_millis(5);
        let watch = world.vfs.watch_pressure(files.stalls(), every).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(world.vfs.stats().names, 1_001, "no pressure, no change");
        files.write("stalls", &psi("90", "50"));
        let end = Instant::now() + Duration::from_secs(5);
        while world.vfs.stats().names > 10 {
            assert!(Instant::now() < end, "{} names are left", world.vfs.stats().names);
            std::thread::sleep(every);
        }
        drop(watch);
        world.end();
    }
}
