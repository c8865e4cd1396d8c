//! Descriptors are a budget of the whole process, so these tests have a process of their own and
//! run one after the other.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use vfscale::conformance::World;
use vfscale::{FileSystem, OpenFlags, Place};
use vfscale_backends::{HostFs, HostOptions};

fn open_descriptors() -> usize {
    // The listing's own descriptor is one of them.
    fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

fn fill(dir: &Path, files: usize) {
    for i in 0..files {
        fs::write(dir.join(format!("{i:05}")), "").unwrap();
    }
}

/// Looks up every file and keeps all nodes, as a core does that has room for them.
fn walk(w: &World<HostFs>) -> Vec<<HostFs as FileSystem>::Node> {
    let find = |name: &Vec<u8>| w.fs.lookup(&w.cx, Place { dir: &w.root, name }).unwrap().node;
    w.names(&w.root).iter().map(find).collect()
}

fn a_walk_stays_under_the_stated_bound(dir: &Path, file_handles: bool) {
    let before = open_descriptors();
    let options = HostOptions { fd_limit: Some(64), file_handles, ..HostOptions::default() };
    let w = World::new(HostFs::new(dir, options).unwrap());
    assert_eq!(w.fs.fd_limit(), 64);
    let own = open_descriptors() - before;
    assert!(own <= 3, "root, its mount, /proc: {own}");
    let nodes = walk(&w);
    assert_eq!(nodes.len(), FILES);
    assert_eq!(w.fs.cached_fds(), 64, "what may be kept is kept");
    assert!(open_descriptors() <= before + own + 64);
    // Each of them can still be reached.
    for node in &nodes {
        assert_eq!(w.attr(node).size, 0);
    }
    assert!(open_descriptors() <= before + own + 64);
    drop(nodes);
    assert_eq!(open_descriptors(), before + own, "nothing outlives its object");
    drop(w);
    assert_eq!(open_descriptors(), before);
}

const FILES: usize = 5_000;

fn clients_can_open_nearly_all_that_the_process_may(dir: &Path) {
    const LIMIT: u64 = 256;
    let old = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), maximum: old.maximum }).unwrap();
    let w = World::new(HostFs::new(dir, HostOptions::default()).unwrap());
    assert_eq!(w.fs.fd_limit(), 128);
    let nodes = walk(&w);
    let open = |node| w.open(node, OpenFlags::READ);
    let handles: Vec<_> = nodes.iter().map_while(|node| open(node).ok()).collect();
    assert!(handles.len() > 230, "only {} openings", handles.len());
    // To close a file is possible with no descriptor left.
    let rest: Vec<_> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
    assert_eq!(w.fs.flush(&handles[0]), Ok(()));
    drop((handles, rest));
    assert!(nodes.iter().all(|node| open(node).is_ok()));
    setrlimit(Resource::Nofile, old).unwrap();
}

#[test]
fn descriptors_are_a_budget() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), FILES);
    a_walk_stays_under_the_stated_bound(dir.path(), true);
    a_walk_stays_under_the_stated_bound(dir.path(), false);
    clients_can_open_nearly_all_that_the_process_may(dir.path());
}
