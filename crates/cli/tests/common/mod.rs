//! What the tests of the command share: running it, waiting for it, and leaving nothing behind.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::ffi::OsStr;
use std::hash::Hasher as _;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The command under test.
pub(crate) fn vfscale() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vfscale"));
    command.stdin(Stdio::null());
    command
}

/// Copies the command to where other users reach it.
///
/// By another process: a child that another test starts meanwhile would inherit our descriptor, and while a program is open for
/// writing anywhere it cannot be started.
#[track_caller]
pub(crate) fn copy_program(to: &Path) {
    run(Command::new("cp").arg(env!("CARGO_BIN_EXE_vfscale")).arg(to)).expect_code(0);
}

/// Whether this machine can mount. Without root or `/dev/fuse` the test fails and says so, unless `VFSCALE_NO_FUSE=1` asks to
/// skip: a run that tested no mount must not look like one that did.
#[must_use]
pub(crate) fn can_mount() -> bool {
    if std::env::var_os("VFSCALE_NO_FUSE").is_some_and(|value| value == "1") {
        eprintln!("skipped: VFSCALE_NO_FUSE=1");
        return false;
    }
    assert!(
        rustix::process::geteuid().is_root(),
        "this test mounts, which needs root; VFSCALE_NO_FUSE=1 skips it"
    );
    assert!(
        Path::new("/dev/fuse").exists(),
        "this test mounts, which needs /dev/fuse; VFSCALE_NO_FUSE=1 skips it"
    );
    true
}

/// Whether a program is installed; says so if it is not.
#[must_use]
pub(crate) fn installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// The outcome of a finished command, as text.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Panics with everything the command said unless it ended with `code`.
    #[track_caller]
    pub(crate) fn expect_code(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Panics unless the command failed with `code` and exactly one line on standard error, which begins with `vfscale: ` and
    /// contains `text`.
    #[track_caller]
    pub(crate) fn expect_refusal(self, code: i32, text: &str) {
        let lines: Vec<&str> = self.stderr.lines().collect();
        let one_line = matches!(lines.as_slice(), [line] if line.starts_with("vfscale: "));
        assert!(
            self.code == Some(code) && one_line && self.stderr.contains(text),
            "wanted code {code} and one line with {text:?}: {self:#?}"
        );
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs a command to its end.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Ran {
    command.output().expect("the command starts").into()
}

/// Runs `vfscale` with these words.
#[track_caller]
pub(crate) fn run_words<I: AsRef<OsStr>>(words: impl IntoIterator<Item = I>) -> Ran {
    run(vfscale().args(words))
}

/// Runs a shell script inside a mount of `source`.
#[track_caller]
pub(crate) fn exec_script(source: impl AsRef<OsStr>, script: &str) -> Ran {
    run(vfscale().arg("exec").arg("--quiet").arg(source).args(["--", "sh", "-ec", script]))
}

/// Sends a signal.
#[track_caller]
pub(crate) fn signal(process: &Child, signal: Signal) {
    let pid = Pid::from_raw(process.id() as i32).expect("a process number");
    kill_process(pid, signal).expect("the process is there");
}

/// Waits for the end of a process, at most for `limit`.
#[track_caller]
pub(crate) fn wait(process: &mut Child, limit: Duration) -> ExitStatus {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = process.try_wait().expect("the child can be waited for") {
            return status;
        }
        if Instant::now() > deadline {
            let _ = process.kill();
            let _ = process.wait();
            panic!("still running after {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until `done`, at most for five seconds.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !done() {
        assert!(Instant::now() < deadline, "not within five seconds: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether something is mounted on exactly this directory, in this namespace.
pub(crate) fn is_mounted(path: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    table.lines().any(|line| line.split(' ').nth(4).map(Path::new) == Some(path))
}

/// A running `vfscale mount`, ended and unmounted whatever happens to the test.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) process: Child,
    pub(crate) place: PathBuf,
}

impl Daemon {
    /// Mounts, and waits for the line that says so.
    #[track_caller]
    pub(crate) fn mount(source: impl AsRef<OsStr>, place: &Path, more: &[&str]) -> Daemon {
        let mut command = vfscale();
        command.arg("mount").arg(source).arg(place).args(more);
        let mut process = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let place = place.canonicalize().expect("the place exists");
        let mut line = String::new();
        let out = process.stdout.take().expect("piped");
        BufReader::new(out).read_line(&mut line).expect("its first line");
        let daemon = Daemon { process, place };
        assert!(line.contains("is mounted on"), "its first line is {line:?}");
        daemon
    }

    /// Waits for the end and answers with the exit code and what was said on standard error.
    #[track_caller]
    pub(crate) fn finish(mut self, limit: Duration) -> (Option<i32>, String) {
        let status = wait(&mut self.process, limit);
        let mut said = String::new();
        if let Some(mut stderr) = self.process.stderr.take() {
            let _ = std::io::Read::read_to_string(&mut stderr, &mut said);
        }
        (status.code(), said)
    }
}

impl Daemon {
    /// As [`finish`](Daemon::finish), where by now somebody else's mount is at its place.
    #[track_caller]
    pub(crate) fn finish_beside(mut self, limit: Duration) -> (Option<i32>, String) {
        self.place = PathBuf::new();
        self.finish(limit)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // Gone already after a test that passed.
        let flags = rustix::mount::UnmountFlags::DETACH | rustix::mount::UnmountFlags::NOFOLLOW;
        if is_mounted(&self.place) {
            let _ = rustix::mount::unmount(&self.place, flags);
        }
    }
}

/// A fresh directory for one test.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("vfscale-test-").tempdir().expect("a temporary directory")
}

/// Panics, naming what differs, unless both trees hold the same names with the same type, permissions, owner, links, size,
/// modification time and content.
#[track_caller]
pub(crate) fn expect_same_trees(left: &Path, right: &Path) {
    let (left, right) = (fingerprint(left), fingerprint(right));
    let only = |one: &[String], other: &[String]| -> Vec<String> {
        one.iter().filter(|line| !other.contains(line)).take(10).cloned().collect()
    };
    let (here, there) = (only(&left, &right), only(&right, &left));
    assert!(here.is_empty() && there.is_empty(), "only here: {here:#?}\nonly there: {there:#?}");
}

fn fingerprint(root: &Path) -> Vec<String> {
    let mut out = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(&dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            let attributes = std::fs::symlink_metadata(&path).expect("its attributes");
            let (mut links, mut size) = (attributes.nlink(), attributes.size());
            let content = if attributes.is_symlink() {
                std::fs::read_link(&path).expect("a link").into_os_string().into_encoded_bytes()
            } else if attributes.is_dir() {
                waiting.push(path.clone());
                // Those of a directory are its file system's business.
                (links, size) = (0, 0);
                Vec::new()
            } else {
                std::fs::read(&path).expect("a file")
            };
            out.push(format!(
                "{:?}: {:o} {}:{} links {links} size {size} mtime {}.{:09} content {:016x}",
                path.strip_prefix(root).expect("below the root"),
                attributes.mode(),
                attributes.uid(),
                attributes.gid(),
                attributes.mtime(),
                attributes.mtime_nsec(),
                digest(&content),
            ));
        }
    }
    out.sort();
    out
}

fn digest(content: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(content);
    hasher.finish()
}
