//! `vfscale exec`: exit codes, signals, where the command finds itself, and what is left afterwards.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{
    can_mount, copy_program, exec_script, expect_same_trees, installed, is_mounted, run, run_words,
    scratch, vfscale, wait,
};
use rustix::process::Signal;

const PROMPTLY: Duration = Duration::from_secs(10);

#[test]
fn ends_with_the_commands_code() {
    if !can_mount() {
        return;
    }
    let dir = scratch();
    for code in [0, 1, 3, 125, 255] {
        exec_script(dir.path(), &format!("exit {code}")).expect_code(code);
        exec_script("mem:", &format!("exit {code}")).expect_code(code);
    }
    assert!(!is_mounted(dir.path()));
}

#[test]
fn ends_with_128_and_the_signal() {
    if !can_mount() {
        return;
    }
    let dir = scratch();
    exec_script(dir.path(), "kill -TERM $$").expect_code(128 + 15);
    exec_script(dir.path(), "kill -KILL $$").expect_code(128 + 9);
}

#[test]
fn says_127_and_126_like_env() {
    if !can_mount() {
        return;
    }
    let dir = scratch();
    let plain = dir.path().join("plain");
    fs::write(&plain, "not a program").expect("written");
    let exec = |command: &str| run(vfscale().arg("exec").arg(dir.path()).arg("--").arg(command));
    exec("no-such-command-here").expect_refusal(127, "no-such-command-here");
    exec("./no-such-file").expect_refusal(127, "No such file");
    exec("./plain").expect_refusal(126, "Permission denied");
    exec("/").expect_refusal(126, "Permission denied");
    assert!(!is_mounted(dir.path()));
}

#[test]
fn finds_commands_by_path_and_relative_to_the_mount() {
    if !can_mount() {
        return;
    }
    let dir = scratch();
    let tool = dir.path().join("tool");
    fs::write(&tool, "#!/bin/sh\necho found \"$@\"\n").expect("written");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).expect("made executable");
    let exec = || {
        let mut command = vfscale();
        command.args(["exec", "--quiet"]).arg(dir.path()).arg("--");
        command
    };
    assert_eq!(run(exec().args(["./tool", "a b"])).expect_code(0).stdout, "found a b\n");
    let by_path = run(exec().arg("tool").env("PATH", "/nowhere:."));
    assert_eq!(by_path.expect_code(0).stdout, "found\n");
}

#[test]
fn the_command_stands_in_the_mount_under_the_sources_own_path() {
    if !can_mount() {
        return;
    }
    let dir = scratch();
    let path = dir.path().canonicalize().expect("it exists");
    let script = "pwd; stat -f -c %T .; grep -c \" $PWD .*fuse.vfscale\" /proc/self/mountinfo; echo \"$PWD\"";
    let ran = exec_script(&path, script).expect_code(0);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    let here = path.to_str().expect("plain");
    assert_eq!(lines[0], here);
    assert!(lines[1].starts_with("fuse"), "{}", lines[1]);
    assert_eq!(lines[2..], ["1", here]);
    // An absolute path into SRC goes through the mount as well, and lands in SRC.
    exec_script(&path, &format!("echo hello > {here}/made")).expect_code(0);
    assert_eq!(fs::read_to_string(path.join("made")).expect("made"), "hello\n");
}

#[test]
fn a_source_relative_to_the_working_directory_will_do() {
    if !can_mount() {
        return;
    }
    let dir = scratch();
    fs::create_dir(dir.path().join("sub")).expect("made");
    let mut command = vfscale();
    command.current_dir(dir.path()).args(["exec", "--quiet", ".", "--", "ls"]);
    assert_eq!(run(&mut command).expect_code(0).stdout, "sub\n");
    let mut command = vfscale();
    command.current_dir(dir.path().join("sub")).args(["exec", "--quiet", "..", "--", "ls"]);
    assert_eq!(run(&mut command).expect_code(0).stdout, "sub\n");
}

#[test]
fn standard_streams_pass_through() {
    if !can_mount() {
        return;
    }
    let mut command = vfscale();
    command.args(["exec", "--quiet", "mem:", "--", "sh", "-c", "cat; echo problem >&2"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("starts");
    let mut input = process.stdin.take().expect("piped");
    std::io::Write::write_all(&mut input, b"bytes \xff\0 in").expect("written");
    drop(input);
    let output = process.wait_with_output().expect("ends");
    assert_eq!(output.stdout, b"bytes \xff\0 in");
    assert_eq!(output.stderr, b"problem\n");
}

#[test]
fn a_terminated_exec_passes_the_signal_on_and_unmounts() {
    if !can_mount() {
        return;
    }
    let dir = scratch();
    let mut command = vfscale();
    let script =
        "trap 'echo got it; exit 7' TERM; touch ready; for i in $(seq 200); do sleep 0.05; done";
    command.args(["exec", "--quiet"]).arg(dir.path()).args(["--", "sh", "-c", script]);
    let mut process = command.stdout(Stdio::piped()).spawn().expect("starts");
    common::wait_until("ready", || dir.path().join("ready").exists());
    common::signal(&process, Signal::TERM);
    assert_eq!(wait(&mut process, PROMPTLY).code(), Some(7));
    assert!(!is_mounted(dir.path()));
}

#[test]
fn an_interrupt_of_the_group_waits_for_the_command() {
    if !can_mount() {
        return;
    }
    let dir = scratch();
    let mut command = vfscale();
    let script = "trap 'sleep 0.2; touch cleaned; exit 5' INT; touch ready; for i in $(seq 200); do sleep 0.05; done";
    command.args(["exec", "--quiet"]).arg(dir.path()).args(["--", "sh", "-c", script]);
    let mut process = command.process_group(0).spawn().expect("starts");
    common::wait_until("ready", || dir.path().join("ready").exists());
    let group = rustix::process::Pid::from_raw(process.id() as i32).expect("a process number");
    rustix::process::kill_process_group(group, Signal::INT).expect("sent");
    assert_eq!(wait(&mut process, PROMPTLY).code(), Some(5));
    assert!(dir.path().join("cleaned").exists());
}

#[test]
fn the_command_gets_the_callers_umask_limits_and_signal_mask() {
    if !can_mount() {
        return;
    }
    // Seven digits are signals 1 to 28; above 31 are some of the C library's own.
    let signals = "grep -E \"Sig(Blk|Ign)\" /proc/self/status | grep -Eo \".{7}$\"";
    let script = format!(
        "umask 027; ulimit -Sn 77; {signals}; exec {} exec --quiet mem: -- sh -c \
        'umask; ulimit -Sn; touch f; mkdir d; stat -c %a f d; {signals}'",
        env!("CARGO_BIN_EXE_vfscale")
    );
    let ran = run(Command::new("sh").arg("-c").arg(script)).expect_code(0);
    let (before, after) = ran.stdout.split_once("0027\n").expect("the umask");
    assert!(before.starts_with("0000000\n"), "{before}");
    assert_eq!(after, format!("77\n640\n750\n{before}"));
}

#[test]
fn a_process_left_behind_does_not_keep_the_mount() {
    if !can_mount() {
        return;
    }
    let dir = scratch();
    let start = Instant::now();
    let script = "sleep 4 <&- >&- 2>&- & exit 3";
    let ran = exec_script(dir.path(), script).expect_code(3);
    assert!(start.elapsed() < Duration::from_secs(3), "took {:?}", start.elapsed());
    assert!(ran.stderr.contains("detached"), "{ran:?}");
}

#[test]
fn a_signal_during_set_up_ends_the_run_before_the_command() {
    if !can_mount() {
        return;
    }
    let dir = scratch();
    let touched = dir.path().join("touched");
    // It is sent while it is blocked, so it is there already when we start.
    let script = |before: &str, signal: &str| {
        let (program, touched) = (env!("CARGO_BIN_EXE_vfscale"), touched.display());
        let inner =
            format!("{before} kill -{signal} $$; exec {program} exec mem: -- touch {touched}");
        run(Command::new("env")
            .args(["--block-signal", "sh", "-c", &inner])
            .env("TMPDIR", dir.path()))
    };
    for (signal, code) in [("INT", 130), ("QUIT", 131), ("TERM", 143), ("HUP", 129)] {
        script("", signal).expect_refusal(code, "not started");
        assert!(!touched.exists());
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 0);
    }
    // Ignored, as after `nohup`, it means nothing.
    script("trap '' HUP;", "HUP").expect_code(0);
    assert!(touched.exists());
}

#[test]
fn what_the_command_mounts_on_its_own_directory_goes_with_it() {
    if !can_mount() {
        return;
    }
    let (dir, temporary) = (scratch(), scratch());
    for mounts in [
        "mount -t tmpfs none .",
        "mount --bind . .",
        "mount -t tmpfs none .; mount -t tmpfs none $PWD",
    ] {
        for source in [dir.path().to_str().expect("plain"), "mem:"] {
            let start = Instant::now();
            let mut command = vfscale();
            command.args(["exec", "-q", source, "--", "sh", "-ec", mounts]);
            let ran = run(command.env("TMPDIR", temporary.path())).expect_code(0);
            assert_eq!(ran.stderr, "", "{source}: {mounts}");
            assert!(start.elapsed() < Duration::from_secs(1), "took {:?}", start.elapsed());
            assert_eq!(fs::read_dir(temporary.path()).expect("listed").count(), 0);
        }
    }
}

#[test]
fn without_a_mount_point_as_root_the_message_says_so() {
    if !can_mount() {
        return;
    }
    // A root that is a plain directory, with the real one's directories bound into it, in a namespace of its own.
    let dir = scratch();
    copy_program(&dir.path().join("vfscale"));
    let script = "
        cd \"$0\"
        for d in bin dev etc lib lib64 proc usr; do
            if [ -d /$d ]; then mkdir $d; mount --rbind /$d $d; fi
        done
        mkdir tmp; exec chroot . /vfscale exec mem: -- true
    ";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-ec", script]).arg(dir.path());
    run(&mut command).expect_refusal(1, "no mount point");
}

#[test]
fn no_temporary_directory_is_left() {
    if !can_mount() {
        return;
    }
    let dir = scratch();
    let leftovers = || fs::read_dir(dir.path()).expect("listed").count();
    let exec = |words: &[&str]| run(vfscale().args(words).env("TMPDIR", dir.path()));
    exec(&["exec", "--quiet", "mem:", "--", "sh", "-c", "touch a; mkdir b"]).expect_code(0);
    assert_eq!(leftovers(), 0);
    exec(&["exec", "mem:", "--", "no-such-command-here"]).expect_code(127);
    assert_eq!(leftovers(), 0);
    exec(&["exec", "mem:", "-o", "no_such_option", "--", "true"]).expect_code(2);
    assert_eq!(leftovers(), 0);
}

/// Creates a repository, commits to it, changes it, and checks it.
const GIT: &str = "
    export HOME=$PWD GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
    git init -q x && cd x
    for i in 1 2 3 4 5; do mkdir d$i; for j in 1 2 3 4 5; do echo $i $j > d$i/f$j; done; done
    git add . && git commit -qm first
    git mv d1 moved && rm -r d2 && git add -A && git commit -qm second
    git checkout -q HEAD~1 && git checkout -q - && git gc -q
    git fsck --strict && test -z \"$(git status --porcelain)\" && git log --oneline | wc -l
";

#[test]
fn git_works_on_a_directory() {
    if !can_mount() || !installed("git") {
        return;
    }
    let dir = scratch();
    assert_eq!(exec_script(dir.path(), GIT).expect_code(0).stdout.trim(), "2");
    // What git wrote through the mount is a sound repository below it.
    let fsck =
        run(Command::new("git").arg("-C").arg(dir.path().join("x")).args(["fsck", "--strict"]));
    fsck.expect_code(0);
}

#[test]
fn git_works_in_memory() {
    if !can_mount() || !installed("git") {
        return;
    }
    assert_eq!(exec_script("mem:", GIT).expect_code(0).stdout.trim(), "2");
}

/// Files of many sizes and permissions, with links of both kinds and odd names.
fn make_files(root: &Path, count: usize) {
    for number in 0..count {
        let dir = root.join(format!("d{:02}/e{}", number % 20, number % 3));
        fs::create_dir_all(&dir).expect("made");
        let file = dir.join(format!("name {number} \u{e4}"));
        let content: Vec<u8> =
            (0..number * 37 % 9000).map(|byte| (byte * 31 + number) as u8).collect();
        fs::write(&file, content).expect("written");
        let mode = [0o644, 0o600, 0o755, 0o444, 0o4755][number % 5];
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("set");
        match number % 50 {
            7 => fs::hard_link(&file, dir.join(format!("hard {number}"))).expect("linked"),
            8 => std::os::unix::fs::symlink("../nowhere", dir.join(format!("soft {number}")))
                .expect("linked"),
            _ => {}
        }
    }
}

#[test]
fn a_tar_round_trip_changes_nothing() {
    if !can_mount() || !installed("tar") {
        return;
    }
    let dir = scratch();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir(&from).expect("made");
    fs::create_dir(&to).expect("made");
    make_files(&from, 500);
    // Out of one mount and into another: both directions of the traffic go through the core.
    let script = format!("tar --format=pax -cf {}/a.tar .", dir.path().display());
    exec_script(&from, &script).expect_code(0);
    let script = format!("tar xpf {}/a.tar", dir.path().display());
    exec_script(&to, &script).expect_code(0);
    expect_same_trees(&from, &to);

    // And through memory.
    let back = dir.path().join("back");
    fs::create_dir(&back).expect("made");
    let script = format!(
        "tar xpf {0}/a.tar && tar --format=pax -cf {0}/b.tar . && cd {0}/back && tar xpf ../b.tar",
        dir.path().display()
    );
    exec_script("mem:", &script).expect_code(0);
    expect_same_trees(&from, &back);
}

const SQLITE: &str = "
    sqlite3 a.db 'PRAGMA journal_mode=WAL' 'CREATE TABLE t(i INTEGER PRIMARY KEY, v BLOB)' > /dev/null
    sqlite3 a.db 'WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c WHERE n<2000) INSERT INTO t SELECT n, randomblob(500) FROM c'
    sqlite3 a.db 'PRAGMA journal_mode=DELETE' 'DELETE FROM t WHERE i%3=0' 'VACUUM' > /dev/null
    sqlite3 a.db 'PRAGMA integrity_check' 'SELECT count(*) FROM t'
";

#[test]
fn sqlite_works() {
    if !can_mount() || !installed("sqlite3") {
        return;
    }
    let dir = scratch();
    assert_eq!(exec_script(dir.path(), SQLITE).expect_code(0).stdout, "ok\n1334\n");
    assert_eq!(exec_script("mem:", SQLITE).expect_code(0).stdout, "ok\n1334\n");
}

#[test]
fn an_editors_save_by_rename_works() {
    if !can_mount() {
        return;
    }
    let script = "
        echo 0 > file; ln file other
        for i in 1 2 3 4 5 6 7 8 9 10; do
            cp -p file .file.swp; echo $i > .file.swp; sync .file.swp; mv .file.swp file
            test \"$(cat file)\" = $i
        done
        test \"$(cat other)\" = 0; test \"$(ls -A | wc -l)\" = 2; mv file file~; mv file~ file; cat file
    ";
    let dir = scratch();
    assert_eq!(exec_script(dir.path(), script).expect_code(0).stdout, "10\n");
    assert_eq!(exec_script("mem:", script).expect_code(0).stdout, "10\n");
}

/// Enough work, by several processes at once, that every mechanism has something to do.
const BUSY: &str = "
    for w in 1 2 3 4; do (
        for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
            mkdir -p w$w/d$i; echo $i > w$w/d$i/f; cat w$w/d$i/f > /dev/null; test ! -e w$w/d$i/none
            mv w$w/d$i/f w$w/d$i/g; rm w$w/d$i/g
        done
    ) & done; wait; ls -lR > /dev/null
";

#[test]
fn the_summary_shows_every_mechanism_at_work() {
    if !can_mount() {
        return;
    }
    let dir = scratch();
    let json = dir.path().join("summary.json");
    let src = dir.path().join("src");
    fs::create_dir(&src).expect("made");
    let mut command = vfscale();
    command.arg("exec").arg("--json").arg(&json).arg(&src).args(["--", "sh", "-c", BUSY]);
    let ran = run(&mut command).expect_code(0);
    for row in ["cache", "lookups", "lockref", "qrwlock", "inodes", "files", "rcu", "fuse", "left"]
    {
        assert!(ran.stderr.contains(&format!("\n  {row}")), "no row {row}: {}", ran.stderr);
    }
    let text = fs::read_to_string(&json).expect("written");
    let data: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for pointer in [
        "/cache/names_peak",
        "/cache/inodes_peak",
        "/cache/bytes_peak",
        "/lookups/backend",
        "/lookups/negative_hits",
        "/upkeep/renames",
        "/primitives/lockref_fast",
        "/primitives/qrwlock_reads",
        "/primitives/qrwlock_writes",
        "/primitives/file_gets",
        "/primitives/file_puts",
        "/primitives/rcu_deferred",
        "/fuse/requests",
        "/resident_peak_bytes",
    ] {
        let value = data.pointer(pointer).and_then(serde_json::Value::as_u64);
        assert!(value.is_some_and(|value| value > 0), "{pointer} is {value:?}: {text}");
    }
    let list = |name: &str| data["primitives"][name].as_u64().expect("a number");
    assert!(list("list_direct") + list("list_combined") > 0, "{text}");
    let lookups = |name: &str| data["lookups"][name].as_u64().expect("a number");
    assert!(lookups("rcu") + lookups("reference") > 0, "{text}");
    assert_eq!(data["outcome"]["exit_code"], 0);
    for left in ["names", "inodes", "files"] {
        assert_eq!(data["outcome"]["rest"][left], 0, "{text}");
    }
    assert_eq!(data["fuse"]["refused_forgets"], 0, "{text}");
}

#[test]
fn quiet_says_nothing_and_json_is_written_all_the_same() {
    if !can_mount() {
        return;
    }
    let dir = scratch();
    let json = dir.path().join("out.json");
    let json = json.to_str().expect("plain");
    let ran = run_words(["exec", "-q", "--json", json, "mem:", "--", "false"]).expect_code(1);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""));
    let data: serde_json::Value =
        serde_json::from_slice(&fs::read(json).expect("written")).expect("JSON");
    assert_eq!(data["outcome"]["exit_code"], 1);
    assert_eq!(data["source"], "mem:");
}

#[test]
fn a_limit_on_names_is_kept() {
    if !can_mount() {
        return;
    }
    let dir = scratch();
    let json = dir.path().join("out.json");
    let script = "for i in $(seq 600); do : > f$i; done; ls -l > /dev/null; echo 2 > /proc/sys/vm/drop_caches; ls > /dev/null";
    let mut command = vfscale();
    command.args(["exec", "-q", "--max-names", "100", "--json"]).arg(&json);
    command.args(["mem:", "--", "sh", "-c", script]);
    run(&mut command).expect_code(0);
    let data: serde_json::Value =
        serde_json::from_slice(&fs::read(&json).expect("written")).expect("JSON");
    assert_eq!(data["cache"]["max_names"], 100);
    // The kernel's own references pin names beyond the limit; once it forgets, the limit holds again.
    let names = data["cache"]["names"].as_u64().expect("a number");
    assert!(names <= 150, "{names} names are cached");
}
