//! One mount by the built binary, which ends with its owner; or no mount at all, to see whether a suite passes where it must.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Backend, Bench};
use crate::run::{Outcome, output};

/// A mounted file system.
#[derive(Debug)]
pub(crate) struct Mount {
    vfscale: PathBuf,
    at: PathBuf,
    /// None if it has ended, or never was.
    daemon: Option<Child>,
    log: PathBuf,
}

impl Mount {
    /// Mounts a fresh `backend` below the suite's scratch directory and waits until it answers.
    ///
    /// All users may enter, and set-id bits and devices work: the suites look at those too.
    pub(crate) fn new(bench: &Bench, name: &str, backend: Backend) -> Outcome<Mount> {
        let base = bench.scratch.join(name);
        let (source, at) = (base.join("source"), base.join("mount"));
        std::fs::create_dir_all(&source)?;
        std::fs::create_dir_all(&at)?;
        let source = match backend {
            Backend::Host => source.as_os_str(),
            Backend::Mem => OsStr::new("mem:"),
            Backend::Native => "".as_ref(),
        };
        let log = base.join("daemon.log");
        let mut mount = Mount { vfscale: bench.vfscale.clone(), at, daemon: None, log };
        if backend == Backend::Native {
            return Ok(mount);
        }
        let log = File::create(&mount.log)?;
        let daemon = Command::new(&bench.vfscale)
            .arg("mount")
            .arg(source)
            .arg(&mount.at)
            .args(["-o", "allow_other,suid,dev"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .map_err(|error| format!("cannot run {}: {error}", bench.vfscale.display()))?;
        mount.daemon = Some(daemon);
        mount.wait_until_it_answers()?;
        Ok(mount)
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> &Path {
        &self.at
    }

    fn wait_until_it_answers(&mut self) -> Outcome {
        let parent = self.at.parent().expect("a mount point below the scratch directory");
        let outside = std::fs::metadata(parent)?.dev();
        let give_up = Instant::now() + Duration::from_secs(20);
        while Instant::now() < give_up {
            if let Some(daemon) = &mut self.daemon
                && let Some(status) = daemon.try_wait()?
            {
                self.daemon = None;
                return Err(format!("mount ended at once ({status}): {}", self.said()).into());
            }
            if std::fs::metadata(&self.at).is_ok_and(|inside| inside.dev() != outside) {
                return Ok(());
            }
            sleep(Duration::from_millis(20));
        }
        Err(format!("no mount after 20 s: {}", self.said()).into())
    }

    /// Unmounts and checks that the daemon ended well.
    pub(crate) fn unmount(mut self) -> Outcome {
        self.end()
    }

    fn end(&mut self) -> Outcome {
        let Some(mut daemon) = self.daemon.take() else { return Ok(()) };
        let unmounted = output(Command::new(&self.vfscale).arg("umount").arg(&self.at));
        let give_up = Instant::now() + Duration::from_secs(10);
        let status = loop {
            if let Some(status) = daemon.try_wait()? {
                break status;
            }
            if Instant::now() > give_up {
                // It does not go by itself: end it, then take its dead mount away.
                daemon.kill()?;
                daemon.wait()?;
                let _ = output(Command::new(&self.vfscale).arg("umount").arg(&self.at));
                return Err(format!("the daemon did not end: {}", self.said()).into());
            }
            sleep(Duration::from_millis(20));
        };
        unmounted?;
        if status.success() && !self.said().contains("still held") {
            Ok(())
        } else {
            Err(format!("the daemon ended with {status}: {}", self.said()).into())
        }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default().trim().to_owned()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(why) = self.end() {
            eprintln!("  {}: {why}", self.at.display());
        }
    }
}

/// Whether something is mounted on or below `dir`.
pub(crate) fn anything_below(dir: &Path) -> bool {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    table
        .split(|&byte| byte == b'\n')
        .filter_map(|line| line.split(|&byte| byte == b' ').nth(4))
        .any(|point| Path::new(OsStr::from_bytes(point)).starts_with(dir))
}
