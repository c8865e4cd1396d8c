//! A tree that is computed: more names than any memory holds, and a cache in front that stays small.

use vfscale::{Context, Errno, FileType, OpenFlags, Options, Vfs};
use vfscale_backends::{SynthFs, SynthOptions};

const CX: Context = Context::root();

fn mount(options: SynthOptions, max_names: u64) -> Vfs<SynthFs> {
    let mut cache = Options::exclusive();
    cache.max_names = max_names;
    Vfs::new(SynthFs::new(options).expect("a tree"), cache).expect("a mount")
}

#[test]
fn a_thousand_million_names() {
    let vfs = mount(SynthOptions::default(), 0);
    assert_eq!(vfs.fs().objects(), 1_001_001_001);
    let last = vfs.stat(&CX, b"/d999/d999/f999").unwrap();
    assert_eq!((last.ino, last.kind), (1_001_001_001, FileType::Regular));
    assert_eq!(vfs.stat(&CX, b"/d7/d3/f63").unwrap(), vfs.stat(&CX, b"/d7/d3/f0").unwrap());
    for absent in ["d1000", "d01", "d", "f1", "d-1", "d1x", "d18446744073709551616"] {
        assert_eq!(vfs.stat(&CX, format!("/{absent}").as_bytes()), Err(Errno::ENOENT), "{absent}");
    }
}

#[test]
fn the_cache_stays_within_its_limit() {
    const LIMIT: u64 = 2_000;
    let vfs = mount(SynthOptions { fanout: 100, ..SynthOptions::default() }, LIMIT);
    let mut random = 1_u64;
    for _ in 0..40_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
        let [a, b, c] = [40, 47, 54].map(|shift| (random >> shift) % 100);
        let path = format!("/d{a}/d{b}/f{c}");
        let attr = vfs.stat(&CX, path.as_bytes()).unwrap();
        if c != 63 {
            assert_eq!(attr.ino, 1 + 100 + 10_000 + a * 10_000 + b * 100 + c + 1);
        }
        // A walk holds a few, and a trim works in batches.
        assert!(vfs.stats().names <= LIMIT + 1_100, "{} names", vfs.stats().names);
    }
    assert!(vfs.stats().lru_freed > 10_000);
    vfs.unmount().expect("nothing is left");
}

#[test]
fn content_is_the_same_from_everywhere() {
    let vfs = mount(SynthOptions { fanout: 3, depth: 1, file_bytes: 5_000 }, 0);
    let found = vfs.lookup(&CX, &vfs.root(), b"f1").unwrap();
    let file = vfs.open(&CX, &found.inode, OpenFlags::READ).unwrap();
    let size = found.attr.size as usize;
    let mut whole = vec![0; size + 10];
    assert_eq!(vfs.read(&file, 0, &mut whole), Ok(size));
    for (at, &expected) in whole[..size].iter().enumerate().take(70) {
        let mut byte = [0];
        vfs.read(&file, at as u64, &mut byte).unwrap();
        assert_eq!(byte[0], expected, "at {at}");
    }
    assert!(whole[..size].iter().collect::<std::collections::HashSet<_>>().len() > 50);
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let size = |fanout, depth| {
        let options = SynthOptions { fanout, depth, file_bytes: 1 };
        SynthFs::new(options).map(|fs| fs.objects())
    };
    assert_eq!(size(0, 3), Err(Errno::EINVAL));
    assert_eq!(size(3, 0), Err(Errno::EINVAL));
    assert_eq!(size(1 << 32, 2), Err(Errno::EOVERFLOW));
    assert_eq!(size(1, 5), Ok(6));
}
