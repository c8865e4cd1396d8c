//! `vfscale mount`, `umount` and `stat`: how a mount begins, answers, and ends.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Daemon, can_mount, is_mounted, run, run_words, scratch, vfscale, wait_until};
use rustix::mount::UnmountFlags;
use rustix::process::Signal;

const PROMPTLY: Duration = Duration::from_secs(10);

fn places() -> (tempfile::TempDir, std::path::PathBuf, std::path::PathBuf) {
    let dir = scratch();
    let root = dir.path().canonicalize().expect("it exists");
    let (src, mnt) = (root.join("src"), root.join("mnt"));
    fs::create_dir(&src).expect("made");
    fs::create_dir(&mnt).expect("made");
    (dir, src, mnt)
}

#[test]
fn serves_a_directory_until_a_signal() {
    if !can_mount() {
        return;
    }
    for ending in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (_dir, src, mnt) = places();
        fs::write(src.join("a"), "hello").expect("written");
        let daemon = Daemon::mount(&src, &mnt, &[]);
        assert_eq!(fs::read_to_string(mnt.join("a")).expect("read"), "hello");
        fs::write(mnt.join("b"), "world").expect("written");
        assert_eq!(fs::read_to_string(src.join("b")).expect("read"), "world");
        common::signal(&daemon.process, ending);
        let (code, said) = daemon.finish(PROMPTLY);
        assert_eq!((code, said.as_str()), (Some(0), ""));
        assert!(!is_mounted(&mnt));
    }
}

#[test]
fn an_unmount_from_outside_ends_it() {
    if !can_mount() {
        return;
    }
    let (_dir, src, mnt) = places();
    let daemon = Daemon::mount(&src, &mnt, &[]);
    run(vfscale().arg("umount").arg(&mnt)).expect_code(0);
    assert_eq!(daemon.finish(Duration::from_secs(2)).0, Some(0));

    let daemon = Daemon::mount("mem:", &mnt, &[]);
    rustix::mount::unmount(&mnt, rustix::mount::UnmountFlags::empty()).expect("unmounted");
    assert_eq!(daemon.finish(Duration::from_secs(2)).0, Some(0));
    assert!(!is_mounted(&mnt));
}

#[test]
fn umount_removes_what_a_killed_daemon_left() {
    if !can_mount() {
        return;
    }
    let (_dir, src, mnt) = places();
    let mut daemon = Daemon::mount(&src, &mnt, &[]);
    // Somebody stands in the dead mount, which keeps a plain unmount from working.
    let open = fs::File::open(&mnt).expect("opened");
    daemon.process.kill().expect("killed");
    daemon.process.wait().expect("gone");
    wait_until("the connection is dead", || fs::metadata(&mnt).is_err());

    let place = mnt.to_str().expect("plain");
    run(vfscale().args(["mount", "mem:", place])).expect_refusal(1, "vfscale umount");
    run(vfscale().args(["stat", place])).expect_refusal(1, "vfscale umount");
    run(vfscale().args(["exec", place, "--", "true"])).expect_refusal(1, "vfscale umount");
    run(vfscale().arg("umount").arg(&mnt)).expect_code(0);
    assert!(!is_mounted(&mnt));
    drop(open);
}

#[test]
fn umount_refuses_what_is_busy_or_not_ours() {
    if !can_mount() {
        return;
    }
    let (_dir, src, mnt) = places();
    run(vfscale().arg("umount").arg(&mnt)).expect_refusal(1, "not a mount point");
    run_words(["umount", "/proc"]).expect_refusal(1, "left alone");
    assert!(is_mounted(std::path::Path::new("/proc")));

    let daemon = Daemon::mount(&src, &mnt, &[]);
    let open = fs::File::open(&mnt).expect("opened");
    run(vfscale().arg("umount").arg(&mnt)).expect_refusal(1, "in use");
    assert!(is_mounted(&mnt));
    run(vfscale().args(["umount", "--lazy"]).arg(&mnt)).expect_code(0);
    assert!(!is_mounted(&mnt));
    drop(open);
    assert_eq!(daemon.finish(Duration::from_secs(3)).0, Some(0));
}

#[test]
fn a_busy_mount_is_detached_on_a_signal() {
    if !can_mount() {
        return;
    }
    let (_dir, src, mnt) = places();
    let daemon = Daemon::mount(&src, &mnt, &[]);
    let open = fs::File::open(&mnt).expect("opened");
    common::signal(&daemon.process, Signal::TERM);
    let (code, said) = daemon.finish(PROMPTLY);
    assert_eq!(code, Some(0));
    assert!(said.contains("detached"), "{said}");
    assert!(!is_mounted(&mnt));
    drop(open);
}

#[test]
fn stat_shows_live_numbers() {
    if !can_mount() {
        return;
    }
    let (_dir, src, mnt) = places();
    let daemon = Daemon::mount(&src, &mnt, &["--max-names", "4321"]);
    for number in 0..50 {
        fs::write(mnt.join(format!("f{number}")), "x").expect("written");
    }
    let ran = run(vfscale().arg("stat").arg(&mnt)).expect_code(0);
    assert!(ran.stdout.contains("limit 4,321"), "{}", ran.stdout);
    let ran = run(vfscale().args(["stat", "--json"]).arg(&mnt)).expect_code(0);
    let data: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(data["mountpoint"], mnt.to_str().expect("plain"));
    assert!(data["cache"]["names"].as_u64() >= Some(50), "{}", ran.stdout);
    assert!(data["fuse"]["requests"].as_u64() >= Some(100), "{}", ran.stdout);
    assert!(data["fuse"]["lookup_counts"].as_u64() >= Some(50), "{}", ran.stdout);
    run(vfscale().arg("stat").arg(&src)).expect_refusal(1, "not the root of a vfscale mount");
    run(vfscale().arg("stat").arg(mnt.join("f1"))).expect_refusal(1, "not the root");
    // Numbers that somebody made up, on a directory of their own.
    let made_up = mnt.join("made-up");
    fs::create_dir(&made_up).expect("made");
    let flags = rustix::fs::XattrFlags::empty();
    let text = ran.stdout.as_bytes();
    rustix::fs::setxattr(&made_up, "user.vfscale.stats", text, flags).expect("set");
    run(vfscale().args(["stat", "--json"]).arg(&made_up)).expect_refusal(1, "not the root");
    let below = src.join("made-up");
    run(vfscale().arg("stat").arg(&below)).expect_refusal(1, "not the root");

    common::signal(&daemon.process, Signal::USR1);
    std::thread::sleep(Duration::from_millis(300));
    common::signal(&daemon.process, Signal::TERM);
    let (code, said) = daemon.finish(PROMPTLY);
    assert_eq!(code, Some(0));
    assert!(said.contains("lookups") && said.contains("fuse"), "{said}");
}

#[test]
fn options_reach_the_mount() {
    if !can_mount() {
        return;
    }
    let (_dir, src, mnt) = places();
    fs::write(src.join("a"), "x").expect("written");
    let options = |more: &[&str]| {
        let daemon = Daemon::mount(&src, &mnt, more);
        let table = fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
        let place = mnt.to_str().expect("plain");
        let line = table.lines().find(|line| line.contains(place)).expect("mounted").to_owned();
        let written = fs::write(mnt.join("a"), "y").map_err(|error| error.raw_os_error());
        drop(daemon);
        (line, written)
    };
    let (line, written) = options(&[]);
    assert!(line.contains("nosuid") && line.contains("nodev"), "{line}");
    assert!(line.contains("fuse.vfscale") && line.contains("default_permissions"), "{line}");
    assert_eq!(written, Ok(()));
    let (line, written) = options(&["-o", "ro,allow_other", "-o", "suid,dev"]);
    assert!(!line.contains("nosuid") && !line.contains("nodev"), "{line}");
    assert!(line.contains("allow_other"), "{line}");
    assert_eq!(written, Err(Some(libc::EROFS)));
}

#[test]
fn a_source_below_the_mount_point_works() {
    if !can_mount() {
        return;
    }
    let (_dir, src, _) = places();
    fs::write(src.join("a"), "below").expect("written");
    let above = src.parent().expect("it has one").to_owned();
    let daemon = Daemon::mount(&src, &above, &[]);
    assert_eq!(fs::read_to_string(above.join("a")).expect("read"), "below");
    common::signal(&daemon.process, Signal::TERM);
    assert_eq!(daemon.finish(PROMPTLY).0, Some(0));
}

#[test]
fn a_mount_started_with_hangups_ignored_survives_one() {
    if !can_mount() {
        return;
    }
    let (_dir, src, mnt) = places();
    let script = format!(
        "trap '' HUP; exec {} mount {} {}",
        env!("CARGO_BIN_EXE_vfscale"),
        src.display(),
        mnt.display()
    );
    let process =
        Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).spawn().expect("starts");
    let daemon = Daemon { process, place: mnt.clone() };
    wait_until("mounted", || is_mounted(&mnt));
    wait_until("answers", || fs::read_dir(&mnt).is_ok());
    common::signal(&daemon.process, Signal::HUP);
    std::thread::sleep(Duration::from_millis(300));
    assert!(is_mounted(&mnt));
    common::signal(&daemon.process, Signal::TERM);
    assert_eq!(daemon.finish(PROMPTLY).0, Some(0));
}

/// Where one daemon served, another one serves at once. The first looks every 200 ms whether it is still mounted.
#[test]
fn the_next_mount_at_the_same_place_is_left_alone() {
    if !can_mount() {
        return;
    }
    let (dir, src, mnt) = places();
    let other = dir.path().join("other");
    fs::create_dir(&other).expect("made");
    fs::write(other.join("here"), "the second").expect("written");
    let mut first = Daemon::mount(&src, &mnt, &[]);
    for _ in 0..3 {
        run(vfscale().arg("umount").arg(&mnt)).expect_code(0);
        let second = Daemon::mount(&other, &mnt, &[]);
        assert_eq!(first.finish_beside(PROMPTLY).0, Some(0));
        assert_eq!(fs::read_to_string(mnt.join("here")).expect("served"), "the second");
        first = second;
    }
}

#[test]
fn a_file_that_grows_too_large_for_the_daemon_is_the_clients_error() {
    if !can_mount() {
        return;
    }
    let (_dir, src, mnt) = places();
    // Of a file that is passed through the kernel measures the writer's limit alone.
    let script = format!(
        "ulimit -f 8; exec {} mount --passthrough off {} {}",
        env!("CARGO_BIN_EXE_vfscale"),
        src.display(),
        mnt.display()
    );
    let process =
        Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).spawn().expect("starts");
    let daemon = Daemon { process, place: mnt.clone() };
    wait_until("mounted", || is_mounted(&mnt));
    let written = fs::write(mnt.join("large"), vec![1; 100_000]);
    assert_eq!(written.map_err(|error| error.raw_os_error()), Err(Some(libc::EFBIG)));
    fs::write(mnt.join("small"), "served on").expect("written");
    common::signal(&daemon.process, Signal::TERM);
    assert_eq!(daemon.finish(PROMPTLY).0, Some(0));
}

/// Case B04: a descriptor for each known file would end such a walk with "too many open files", for everybody.
#[test]
fn b04_a_walk_of_many_files_takes_few_descriptors() {
    const FILES: usize = 5_000;
    if !can_mount() {
        return;
    }
    let (_dir, src, mnt) = places();
    for n in 0..FILES {
        fs::write(src.join(n.to_string()), "x").expect("written");
    }
    let script = format!(
        "ulimit -n 1024; exec {} mount {} {}",
        env!("CARGO_BIN_EXE_vfscale"),
        src.display(),
        mnt.display()
    );
    let process =
        Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).spawn().expect("starts");
    let daemon = Daemon { process, place: mnt.clone() };
    wait_until("mounted", || is_mounted(&mnt));
    let names = || (0..FILES).map(|n| mnt.join(n.to_string()));
    assert!(names().all(|name| fs::metadata(name).is_ok_and(|meta| meta.len() == 1)));
    let held = fs::read_dir(format!("/proc/{}/fd", daemon.process.id())).expect("it runs").count();
    assert!(held < 600, "{held} descriptors");
    // And then there is still room for what clients open.
    let open: Vec<_> =
        names().take(400).map(|name| fs::File::open(name).expect("opened")).collect();
    assert!(names().all(|name| fs::read(name).is_ok_and(|data| data == b"x")));
    drop(open);
    common::signal(&daemon.process, Signal::TERM);
    assert_eq!(daemon.finish(PROMPTLY).0, Some(0));
}

/// The mount of `mem:` on `mnt`, with another daemon's mount of `src` beneath it or above it.
fn stack(dir: &Path, src: &Path, mnt: &Path, beneath: bool) -> (Daemon, Daemon) {
    let root = dir.canonicalize().expect("it exists");
    let (other, aside) = (root.join("other"), root.join("aside"));
    fs::create_dir(&other).expect("made");
    fs::create_dir(&aside).expect("made");
    let theirs = Daemon::mount(src, &other, &[]);
    let ours = Daemon::mount("mem:", mnt, &[]);
    // The command itself covers no vfscale mount.
    if beneath {
        rustix::mount::mount_move(mnt, &aside).expect("moved aside");
    }
    rustix::mount::mount_bind(&other, mnt).expect("bound");
    if beneath {
        rustix::mount::mount_move(&aside, mnt).expect("moved back");
    }
    (ours, theirs)
}

#[test]
fn a_signal_takes_no_mount_but_the_daemons_own() {
    if !can_mount() {
        return;
    }
    // Detached from outside while it is in use, a mount brings to light what is beneath it.
    let (dir, src, mnt) = places();
    fs::write(src.join("theirs"), "x").expect("written");
    let (ours, theirs) = stack(dir.path(), &src, &mnt, true);
    let open = fs::File::create(mnt.join("ours")).expect("created");
    run(vfscale().args(["umount", "--lazy"]).arg(&mnt)).expect_code(0);
    assert!(mnt.join("theirs").exists());
    common::signal(&ours.process, Signal::TERM);
    let (code, said) = ours.finish_beside(PROMPTLY);
    assert_eq!(code, Some(0));
    assert!(said.contains("detached"), "{said}");
    // The open file; the root is there as long as the core is, and no rest.
    assert!(said.contains("1 names, 1 inodes, 1 files"), "{said}");
    assert!(mnt.join("theirs").exists(), "the mount beneath was taken");
    drop(open);
    rustix::mount::unmount(&mnt, UnmountFlags::DETACH).expect("unmounted");
    drop(theirs);

    // And one that covers it is not its own either.
    let (dir, src, mnt) = places();
    fs::write(src.join("theirs"), "x").expect("written");
    let (ours, theirs) = stack(dir.path(), &src, &mnt, false);
    common::signal(&ours.process, Signal::TERM);
    let (code, said) = ours.finish_beside(PROMPTLY);
    assert_eq!(code, Some(0));
    assert!(said.contains("beneath another mount"), "{said}");
    assert!(mnt.join("theirs").exists(), "the mount on top was taken");
    rustix::mount::unmount(&mnt, UnmountFlags::DETACH).expect("unmounted");
    run(vfscale().arg("umount").arg(&mnt)).expect_code(0);
    assert!(!is_mounted(&mnt));
    drop(theirs);
}
