//! `vfscale mount --background`, `mount.vfscale` and `mount -a`: a mount that goes on without whoever asked for it.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::{
    Daemon, can_mount, installed, is_mounted, run, run_words, scratch, vfscale, wait_until,
};

/// A directory with `src` and `mnt` in it. What is mounted there goes with it.
struct Places {
    root: PathBuf,
    _dir: tempfile::TempDir,
}

impl Places {
    fn new() -> Places {
        let dir = scratch();
        let root = dir.path().canonicalize().expect("it exists");
        for name in ["src", "mnt"] {
            fs::create_dir(root.join(name)).expect("made");
        }
        fs::write(root.join("src/file"), "content").expect("written");
        Places { root, _dir: dir }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        let flags = rustix::mount::UnmountFlags::DETACH;
        while rustix::mount::unmount(self.at("mnt"), flags).is_ok() {}
    }
}

#[test]
fn it_comes_back_when_the_mount_works() {
    if !can_mount() {
        return;
    }
    let places = Places::new();
    let (mnt, pid_file) = (places.at("mnt"), places.at("pid"));
    let mut command = vfscale();
    command.args(["mount", "--background", "--pid-file", "pid", "src", "mnt"]);
    command.args(["-o", "fsname=some thing,max_names=777", "--passthrough=off"]);
    // To its end, that of both its pipes included: the server holds on to neither.
    let ran = run(command.current_dir(&places.root)).expect_code(0);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""));
    assert_eq!(fs::read_to_string(mnt.join("file")).expect("served"), "content");

    let pid = fs::read_to_string(&pid_file).expect("written");
    let process = Path::new("/proc").join(pid.trim());
    let words = fs::read_to_string(process.join("cmdline")).expect("it runs");
    assert!(words.starts_with("vfscale\0mount\0--detached\0"), "{words:?}");
    assert_eq!(fs::read_link(process.join("cwd")).expect("it runs"), Path::new("/"));
    assert_eq!(fs::metadata(&pid_file).expect("there").permissions().mode() & 0o777, 0o600);
    let stat = run(vfscale().args(["stat", "--json"]).arg(&mnt)).expect_code(0).stdout;
    assert!(stat.contains("\"max_names\":777"), "{stat}");

    run(vfscale().arg("umount").arg(&mnt)).expect_code(0);
    wait_until("the server and its file are gone", || !process.exists() && !pid_file.exists());
}

#[test]
fn its_failures_are_those_of_the_foreground() {
    if !can_mount() {
        return;
    }
    let places = Places::new();
    let place = |name: &str| places.at(name).to_str().expect("plain").to_owned();
    let (src, mnt) = (place("src"), place("mnt"));
    for (words, code, text) in [
        (&["/nowhere", &mnt][..], 1, "No such file"),
        (&[&src, "/nowhere"], 1, "No such file"),
        (&[&src, &src], 1, "the same directory"),
        (&["-o", "frobnicate", &src, &mnt], 2, "unknown mount option 'frobnicate'"),
        (&["-o", "cache=often", &src, &mnt], 2, "never, auto or always"),
        (&["-o", "max_names=many", &src, &mnt], 2, "needs a number"),
        (&["--passthrough", "on", "mem:", &mnt], 2, "mem: has none"),
        (&["--pid-file", "/nowhere/pid", &src, &mnt], 1, "No such file"),
    ] {
        run_words(["mount", "-b"].iter().chain(words)).expect_refusal(code, text);
        run_words(["mount"].iter().chain(words)).expect_refusal(code, text);
        assert!(!is_mounted(&places.at("mnt")));
    }
    symlink("src/file", places.at("link")).expect("linked");
    run_words(["mount", "-b", "--pid-file", &place("link"), &src, &mnt]).expect_refusal(1, "link");
    assert_eq!(fs::read_to_string(places.at("src/file")).expect("there"), "content");
}

/// In a mount namespace of its own, where `/sbin` holds nothing but the helper.
#[test]
fn a_line_in_fstab_mounts() {
    if !can_mount() || !installed("unshare") || !installed("mount") {
        return;
    }
    let places = Places::new();
    fs::create_dir(places.at("sbin")).expect("made");
    fs::create_dir(places.at("my mnt")).expect("made");
    symlink(env!("CARGO_BIN_EXE_vfscale"), places.at("sbin/mount.vfscale")).expect("linked");
    let root = places.root.display();
    let fstab = format!(
        "{root}/src {root}/mnt vfscale ro,allow_other,nofail,x-test.option 0 0\n\
         mem: {root}/my\\040mnt vfscale defaults,max_names=1000 0 0\n"
    );
    fs::write(places.at("fstab"), fstab).expect("written");
    let script = "cd \"$0\"
        fail() { echo \"$1\" >&2; exit 1; }
        ours() { grep ' fuse.vfscale ' /proc/self/mountinfo | grep -F \" $0/\"; }
        mount --bind sbin /sbin
        mount -T fstab -a
        test content = \"$(cat mnt/file)\" || fail 'not served'
        if touch mnt/new 2> said; then fail 'not read-only'; fi
        grep -q 'Read-only' said || fail \"$(cat said)\"
        ours | grep \"$0/mnt ro,nosuid,nodev\" | grep -q allow_other || fail \"$(ours)\"
        echo more > 'my mnt/file'
        mount -T fstab -a
        test 2 = $(ours | wc -l) || fail \"mounted twice: $(ours)\"
        umount mnt 'my mnt'
        if mount -t vfscale -o frobnicate src mnt 2> said; then fail 'a wrong option'; fi
        grep -q \"vfscale: unknown mount option 'frobnicate'\" said || fail \"$(cat said)\"
        mount -f -t vfscale src mnt
        test 0 = $(ours | wc -l) || fail \"still mounted: $(ours)\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", script]).arg(&places.root);
    let ran = run(&mut command);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
}

/// What somebody changes on the host is seen at once, within the timeout, or not at all.
#[test]
fn a_preset_says_how_long_things_are_believed() {
    if !can_mount() {
        return;
    }
    for (preset, at_once, later) in
        [("never", true, true), ("auto", false, true), ("always", false, false)]
    {
        let places = Places::new();
        let (src, mnt) = (places.at("src"), places.at("mnt"));
        let _daemon = Daemon::mount(&src, &mnt, &["--cache", preset]);
        let seen = || (mnt.join("new").exists(), mnt.join("file").metadata().expect("there").len());
        assert_eq!(seen(), (false, 7));
        fs::write(src.join("new"), "").expect("written");
        fs::write(src.join("file"), "longer than that").expect("written");
        let (old, new) = ((false, 7), (true, 16));
        assert_eq!(seen(), if at_once { new } else { old }, "{preset}");
        std::thread::sleep(Duration::from_millis(1100));
        assert_eq!(seen(), if later { new } else { old }, "{preset}");
        // Through the mount it is always seen at once.
        fs::write(mnt.join("file"), "changed").expect("written");
        fs::write(mnt.join("more"), "").expect("written");
        assert_eq!(mnt.join("file").metadata().expect("there").len(), 7);
        assert!(mnt.join("more").exists());
    }
}
