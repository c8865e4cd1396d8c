//! Each of our backends against `vfscale::conformance`.

use vfscale::conformance::{self, Report, Suite};
use vfscale_backends::{Faulty, HostFs, HostOptions, MemFs, SynthFs, SynthOptions};

/// A host directory of its own for each case; all go at the end.
fn host(options: HostOptions) -> Report {
    let mut dirs = Vec::new();
    conformance::run(|| {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let fs = HostFs::new(dir.path(), options).expect("the backend");
        dirs.push(dir);
        fs
    })
}

#[test]
fn mem() {
    conformance::run(MemFs::new).assert_passed();
}

#[test]
fn faulty_without_faults() {
    conformance::run(|| Faulty::new(MemFs::new())).assert_passed();
}

#[test]
fn host_directory() {
    host(HostOptions::default()).assert_passed();
}

/// As without the right to open file handles, and with so few descriptors that most objects are reopened all the time.
#[test]
fn host_by_name() {
    let options = HostOptions { fd_limit: Some(3), file_handles: false, ..HostOptions::default() };
    host(options).assert_passed();
}

#[test]
fn host_read_only() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| dir.path().join(name);
    for sub in ["a", "a/b", "c"] {
        std::fs::create_dir(path(sub)).unwrap();
    }
    for (name, size) in [("a/empty", 0), ("a/b/small", 10), ("c/large", 70_000), ("top", 7)] {
        std::fs::write(path(name), vec![b'x'; size]).unwrap();
    }
    std::fs::hard_link(path("top"), path("c/again")).unwrap();
    std::os::unix::fs::symlink("../top", path("a/link")).unwrap();
    let options = HostOptions { read_only: true, ..HostOptions::default() };
    conformance::run_read_only(|| HostFs::new(dir.path(), options).expect("the backend"))
        .assert_passed();
}

#[test]
fn synth() {
    for (fanout, depth) in [(1000, 3), (3, 4), (100, 1), (1, 20)] {
        let options = SynthOptions { fanout, depth, ..SynthOptions::default() };
        conformance::run_read_only(|| SynthFs::new(options).expect("a tree")).assert_passed();
    }
}

/// The kit must notice what it is for.
#[test]
fn every_case_that_fails_is_named() {
    use vfscale_backends::{Call, Fault, Rule};
    let report = Suite::full().without("attrs").without("renames::exchange").run(|| {
        let fs = Faulty::new(MemFs::new());
        fs.add(Rule::new(Fault::Short).on(Call::Read));
        fs.add(Rule::new(Fault::Stale).on(Call::Rename));
        fs
    });
    let failed = |name| report.failed.iter().any(|failure| failure.case == name);
    assert!(failed("data::write_then_read") && failed("renames::plain"), "{report}");
    assert!(report.failed.len() > 10, "{report}");
    assert!(report.passed.contains(&"names::symbolic_links"), "{report}");
    assert!(report.left_out.contains(&"renames::exchange") && report.left_out.len() > 5);
    let told = report.to_string();
    assert!(report.failed.iter().all(|failure| told.contains(failure.case)));
}

#[test]
#[should_panic(expected = "no case and no family is named renames::nothing")]
fn a_case_that_is_not_there_cannot_be_left_out() {
    let _ = Suite::full().without("renames::nothing").run(MemFs::new);
}
