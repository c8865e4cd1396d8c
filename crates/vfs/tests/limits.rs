//! However many names go by, the cache stays under its limit.

#[path = "../../sync/src/testing.rs"]
mod testing;

use vfscale::{
    Attr, Context, Entry, Errno, FileSystem, FileType, InodeKey, Options, Place, Result, Vfs,
};

/// A computed tree: every directory has any name `d…` as a directory and `f…` as a file, and nothing else.
struct Computed;

fn entry(kind: FileType, ino: u64) -> Entry<u64> {
    let attr = Attr::new(ino, kind);
    Entry { key: InodeKey { ino, tag: 0 }, attr, node: ino }
}

impl FileSystem for Computed {
    type Node = u64;
    type Handle = ();

    fn root(&self) -> Result<Entry<u64>> {
        Ok(entry(FileType::Directory, 1))
    }

    fn lookup(&self, _: &Context, at: Place<'_, u64>) -> Result<Entry<u64>> {
        let number = at.name.iter().fold(*at.dir, |hash, &b| {
            (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17)
        });
        match at.name[0] {
            b'd' => Ok(entry(FileType::Directory, number)),
            b'f' => Ok(entry(FileType::Regular, number)),
            _ => Err(Errno::ENOENT),
        }
    }

    fn getattr(&self, node: &u64, _: Option<&()>) -> Result<Attr> {
        Ok(entry(FileType::Regular, *node).attr)
    }
}

fn names_go_by(names: u64, limit: u64, threads: u64) {
    let mut options = Options::exclusive();
    options.max_names = limit;
    let vfs = Vfs::new(Computed, options).unwrap();
    testing::scope(|scope| {
        for thread in 0..threads {
            let vfs = &vfs;
            scope.spawn(move || {
                for i in (thread..names).step_by(threads as usize) {
                    // A third of the names is absent.
                    let kind = if i % 3 == 0 { 'x' } else { 'f' };
                    let path = format!("/d{}/{kind}{i}", i / 1000);
                    let found = vfs.stat(&Context::root(), path.as_bytes());
                    assert_eq!(found.is_ok(), kind == 'f', "{path}");
                }
            });
        }
    });
    let stats = vfs.stats();
    println!(
        "{names} names, limit {limit}: peak {} names, {} inodes, {} bytes; scanned {} for {} freed",
        stats.names_peak, stats.inodes_peak, stats.bytes_peak, stats.lru_scanned, stats.lru_freed
    );
    assert!(stats.names_peak <= limit, "{} > {limit}", stats.names_peak);
    assert!(stats.lru_freed >= names - limit);
    assert!(stats.lru_scanned < 4 * stats.lru_freed, "the shrinker looks at few it does not free");
    vfs.unmount().unwrap();
}

#[test]
fn many_names_stay_under_the_limit() {
    names_go_by(50_000, 5_000, 2);
    names_go_by(2_000, 100, 4);
}

/// The figure of the README: one million names, a limit of 100,000.
#[test]
fn a_million_names_stay_under_a_tenth() {
    names_go_by(1_000_000, 100_000, 2);
}
