//! Wrong input: one clear line, a non-zero exit, nothing left behind.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use common::{Daemon, can_mount, copy_program, is_mounted, run, run_words, scratch, vfscale};

#[test]
fn a_command_line_without_sense_is_refused_in_one_line() {
    run_words::<&str>([]).expect_refusal(2, "a command is missing");
    run_words(["frobnicate"]).expect_refusal(2, "frobnicate");
    run_words(["exec"]).expect_refusal(2, "<SRC>");
    run_words(["exec", "."]).expect_refusal(2, "CMD");
    run_words(["exec", ".", "--"]).expect_refusal(2, "CMD");
    run_words(["exec", "--no-such-flag", ".", "--", "true"]).expect_refusal(2, "--no-such-flag");
    run_words(["exec", "--max-names", "many", ".", "--", "true"]).expect_refusal(2, "many");
    run_words(["exec", "--max-names", "-1", ".", "--", "true"]).expect_refusal(2, "-1");
    run_words(["mount", "."]).expect_refusal(2, "<MNT>");
    run_words(["walk", "--threads", "0", "."]).expect_refusal(2, "--threads");
    run_words(["walk", "--threads", "9999", "."]).expect_refusal(2, "--threads");
    run_words(["walk", "--rounds", "0", "."]).expect_refusal(2, "--rounds");
    run_words(["walk", "--files", "0", "mem:"]).expect_refusal(2, "--files");
    run_words(["umount"]).expect_refusal(2, "<MNT>");
}

#[test]
fn help_and_version_go_to_standard_output() {
    let ran = run_words(["--version"]).expect_code(0);
    assert_eq!(ran.stdout, format!("vfscale {}\n", env!("CARGO_PKG_VERSION")));
    let ran = run_words(["--help"]).expect_code(0);
    for word in ["exec", "mount", "umount", "stat", "walk", "Exit codes"] {
        assert!(ran.stdout.contains(word), "no {word}: {}", ran.stdout);
    }
    for command in ["exec", "mount", "umount", "stat", "walk"] {
        let ran = run_words([command, "--help"]).expect_code(0);
        assert!(ran.stdout.contains("Usage: vfscale"), "{}", ran.stdout);
        assert_eq!(ran.stderr, "");
    }
}

#[test]
fn a_source_that_is_none_is_refused() {
    let dir = scratch();
    let path = |name: &str| dir.path().join(name).to_str().expect("plain").to_owned();
    fs::write(path("file"), "x").expect("written");
    std::os::unix::fs::symlink("loop", path("loop")).expect("linked");
    for (source, text) in [
        (path("missing"), "No such file or directory"),
        (path("file"), "not a directory"),
        (path("file/below"), "Not a directory"),
        (path("loop"), "symbolic links"),
        (path(&"x".repeat(300)), "File name too long"),
        (String::new(), "empty path"),
        ("mem:size=1".into(), "`mem:` takes nothing"),
    ] {
        let code = if source.starts_with("mem:") { 2 } else { 1 };
        run_words(["walk", &source]).expect_refusal(code, text);
        run_words(["exec", &source, "--", "true"]).expect_refusal(code, text);
        run_words(["mount", &source, &path("")]).expect_refusal(code, text);
    }
}

#[test]
fn a_name_in_a_message_cannot_write_on_the_terminal() {
    let dir = scratch();
    let odd = dir.path().join("a\nvfscale: all is well\x1b[2J");
    let odd = odd.to_str().expect("plain");
    run_words(["walk", odd]).expect_refusal(1, "a\\nvfscale: all is well\\u{1b}[2J");
    run_words(["stat", odd]).expect_refusal(1, "\\u{1b}");
}

#[test]
fn a_mount_point_that_cannot_be_is_refused() {
    if !can_mount() {
        return;
    }
    let dir = scratch();
    let root = dir.path().canonicalize().expect("it exists");
    let path = |name: &str| root.join(name).to_str().expect("plain").to_owned();
    fs::create_dir_all(path("src/below/deep")).expect("made");
    fs::create_dir(path("mnt")).expect("made");
    fs::write(path("file"), "x").expect("written");
    std::os::unix::fs::symlink("src", path("alias")).expect("linked");
    let mount = |source: &str, place: &str| run_words(["mount", &path(source), &path(place)]);
    mount("src", "missing").expect_refusal(1, "No such file or directory");
    mount("src", "file").expect_refusal(1, "not a directory");
    mount("src", "src").expect_refusal(1, "the same directory");
    mount("src", "alias").expect_refusal(1, "the same directory");
    mount("alias", "src/below/deep").expect_refusal(1, "inside");
    run_words(["mount", "mem:", ""]).expect_refusal(2, "<MNT>");
    run_words(["mount", &path("src"), &path("mnt"), "-o", "no_such_option"])
        .expect_refusal(2, "no_such_option");
    run_words(["exec", &path("src"), "-o", "threads=x", "--", "true"]).expect_refusal(2, "threads");
    run_words(["exec", "/", "--", "true"]).expect_refusal(1, "root");
    run_words(["mount", "mem:", "/"]).expect_refusal(1, "root");
    run_words(["exec", "/dev", "--", "true"]).expect_refusal(1, "/dev/fuse");
    run_words(["exec", "/proc/self", "--", "true"]).expect_refusal(1, "/proc/self/fd");
    run_words(["mount", "mem:", "/proc"]).expect_refusal(1, "/proc/self/fd");

    let daemon = Daemon::mount("mem:", &root.join("mnt"), &[]);
    mount("src", "mnt").expect_refusal(1, "already a vfscale mount");
    drop(daemon);
    for name in ["src", "src/below/deep", "mnt"] {
        assert!(!is_mounted(&root.join(name)), "{name}");
    }
}

#[test]
fn a_json_file_that_cannot_be_is_refused_before_the_run() {
    let dir = scratch();
    let json = dir.path().join("missing/out.json");
    let json = json.to_str().expect("plain");
    run_words(["walk", "--json", json, "mem:"]).expect_refusal(1, "out.json");
    if can_mount() {
        let touched = dir.path().join("touched");
        let touched = touched.to_str().expect("plain");
        run_words(["exec", "--json", json, "mem:", "--", "touch", touched])
            .expect_refusal(1, "out.json");
        assert!(!fs::exists(touched).expect("asked"));
    }
}

#[test]
fn without_the_fuse_device_the_message_names_walk() {
    if !can_mount() {
        return;
    }
    // In a mount namespace of its own, /dev is empty.
    let dir = scratch();
    let script = format!(
        "mount -t tmpfs none /dev && {} exec {} -- true",
        env!("CARGO_BIN_EXE_vfscale"),
        dir.path().display()
    );
    let ran = run(Command::new("unshare").args(["-m", "sh", "-c", &script]));
    ran.expect_refusal(1, "vfscale walk");
}

#[test]
fn without_privileges_the_message_says_what_is_missing() {
    if !can_mount() {
        return;
    }
    let dir = scratch();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("opened to all");
    // The build directory may be closed to others; a copy of the program is not.
    let program = dir.path().join("vfscale");
    copy_program(&program);
    let as_nobody = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        run(command.args(words))
    };
    as_nobody(&["exec", "mem:", "--", "true"]).expect_refusal(1, "root");
    // Being root is not what counts.
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-sys_admin"]).arg(&program);
    run(command.args(["exec", "mem:", "--", "true"])).expect_refusal(1, "CAP_SYS_ADMIN");
    as_nobody(&["umount", "/proc"]).expect_refusal(1, "left alone");
    as_nobody(&["walk", "--files", "200", "mem:"]).expect_code(0);

    fs::create_dir(dir.path().join("closed")).expect("made");
    fs::set_permissions(dir.path().join("closed"), fs::Permissions::from_mode(0o000))
        .expect("closed");
    let closed = dir.path().join("closed");
    let closed = closed.to_str().expect("plain");
    as_nobody(&["walk", closed]).expect_refusal(1, "Permission denied");
    let ran = as_nobody(&["walk", dir.path().to_str().expect("plain")]).expect_code(0);
    assert!(ran.stdout.contains("EACCES"), "{}", ran.stdout);
    assert_eq!(vfscale().arg("--version").output().expect("runs").status.code(), Some(0));
}
