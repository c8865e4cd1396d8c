//! Sessions whose beginning fails on the way.

use std::cell::Cell;
use std::time::Instant;

use vfscale::Options;
use vfscale_backends::MemFs;

use super::*;

thread_local! {
    /// So many threads this one may still start.
    static MAY_START: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// What the system answers when it has no thread to give.
pub(super) fn may_start(name: &str) -> io::Result<()> {
    let left = MAY_START.get();
    let Some(left) = left.checked_sub(1) else {
        return Err(io::Error::new(io::ErrorKind::WouldBlock, format!("no thread for {name}")));
    };
    MAY_START.set(left);
    Ok(())
}

/// Of four server threads and one that drains, none, some, or all but the last can be started.
#[test]
fn a_session_without_its_threads_is_unmounted_at_once() {
    for threads in [0, 1, 3, 4] {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().metadata().unwrap();
        let vfs = Arc::new(Vfs::new(MemFs::new(), Options::default()).unwrap());
        let options = MountOptions::parse("threads=4").unwrap();
        let start = Instant::now();
        MAY_START.set(threads);
        let result = serve(Arc::clone(&vfs), dir.path(), &options, |_| String::new());
        MAY_START.set(usize::MAX);
        assert!(matches!(result, Err(MountError::Threads(_))), "{threads}: {result:?}");
        assert!(start.elapsed() < Duration::from_secs(3), "took {:?}", start.elapsed());
        use std::os::unix::fs::MetadataExt;
        assert_eq!(dir.path().metadata().unwrap().dev(), below.dev(), "still mounted");
        Arc::into_inner(vfs).expect("the session let go of it").unmount().unwrap();
    }
}
