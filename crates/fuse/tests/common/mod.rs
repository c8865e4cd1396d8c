//! What the tests on a host directory share: the directory and a mount of it, and acting as somebody else.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use vfscale::{Options, Vfs};
use vfscale_backends::{HostFs, HostOptions};
use vfscale_fuse::{MountOptions, Mounted, serve};

/// A host directory, and a mount of it, both open to everybody.
pub(crate) struct Pair {
    /// The first field: unmounted before the directories go.
    pub(crate) mounted: Mounted,
    pub(crate) host: PathBuf,
    pub(crate) mount: PathBuf,
    _dir: tempfile::TempDir,
}

impl Pair {
    pub(crate) fn new() -> Pair {
        Pair::with("")
    }

    /// With these options beside `allow_other`.
    pub(crate) fn with(list: &str) -> Pair {
        let dir = tempfile::tempdir().unwrap();
        let (host, mount) = (dir.path().join("host"), dir.path().join("mount"));
        for (path, mode) in [(dir.path(), 0o755), (&host, 0o777), (&mount, 0o755)] {
            let _ = fs::create_dir(path);
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let backend = HostFs::new(&host, HostOptions::default()).unwrap();
        let vfs = Arc::new(Vfs::new(backend, Options::default()).unwrap());
        let mut options = MountOptions::parse("allow_other").unwrap();
        options.apply(list).unwrap();
        let mounted = serve(vfs, &mount, &options, |_| String::new());
        let mounted = mounted.expect("this test needs the right to mount");
        Pair { mounted, host, mount, _dir: dir }
    }

    /// The same name on the host and in the mount.
    pub(crate) fn both(&self, name: &str) -> [PathBuf; 2] {
        [self.host.join(name), self.mount.join(name)]
    }
}

pub(crate) const NOBODY: u32 = 65_534;

/// Runs a shell script as this user, with `path` as its `$0`. Answers whether it succeeded and what it said.
pub(crate) fn shell(user: u32, script: &str, path: &Path) -> (bool, String) {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(path).current_dir("/").uid(user).gid(user);
    let out = shell.output().unwrap();
    (out.status.success(), String::from_utf8(out.stderr).unwrap())
}

/// Who asks: user, group, supplementary groups.
pub(crate) type Who<'a> = (u32, u32, &'a [u32]);

/// Does `work` in a thread that is `who`, for the system, and has no capabilities.
pub(crate) fn as_user<T: Send>((uid, gid, groups): Who<'_>, work: impl FnOnce() -> T + Send) -> T {
    let thread = || {
        let groups: Vec<Gid> = groups.iter().map(|&id| Gid::from_raw(id)).collect();
        set_thread_groups(&groups).unwrap();
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        set_thread_res_gid(gid, gid, gid).unwrap();
        set_thread_res_uid(uid, uid, uid).unwrap();
        work()
    };
    thread::scope(|scope| scope.spawn(thread).join().unwrap())
}
