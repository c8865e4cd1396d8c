//! `vfscale mount --background`: back at the prompt once the mount works, while the server goes on.
//!
//! A process with threads cannot fork and go on, and the parent has to know how it went. So the server is this program once more, in a
//! session of its own (`--detached`). It says on a pipe what it would say on the terminal: a line when the mount works. With that line
//! the parent ends with 0; without one the server has failed, has said why, and its exit code becomes the parent's. A parent that is gone by
//! then has broken the pipe, and the server ends: nobody waits for the mount.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use rustix::fs::{Mode, OFlags};

use crate::args::MountArgs;
use crate::error::CliError;

/// Starts the server and waits until its mount works.
///
/// # Errors
/// If it cannot be started, or ends without an exit code.
pub(crate) fn start(args: &MountArgs) -> Result<u8, CliError> {
    let program = Path::new("/proc/self/exe");
    let mut server = Command::new(program);
    server.arg0("vfscale").args(["mount", "--detached"]).args(args.serve.words());
    if let Some(pid_file) = &args.pid_file {
        server.arg("--pid-file").arg(pid_file);
    }
    server.arg("--").arg(&args.source).arg(&args.mountpoint);
    server.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut server = server.spawn().map_err(|error| CliError::io(program, error))?;
    let mut line = String::new();
    let out = server.stdout.take().expect("it is a pipe");
    let heard = BufReader::new(out).read_line(&mut line);
    if heard.is_ok() && line.ends_with('\n') {
        return Ok(0);
    }
    let status = server.wait().map_err(|error| CliError::io(program, error))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).filter(|&code| code != 0);
    code.ok_or_else(|| CliError::Other(format!("the server ended early: {status}")))
}

/// The mount works, and the parent has heard so: lets go of the terminal and of the directory we were started in.
///
/// # Errors
/// If `/dev/null` cannot take the place of the terminal.
pub(crate) fn let_go() -> Result<(), CliError> {
    let null = Path::new("/dev/null");
    let failed = |error| CliError::io(null, error);
    let opened = rustix::fs::open(null, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let opened = opened.map_err(io::Error::from).map_err(failed)?;
    rustix::stdio::dup2_stdout(&opened).map_err(io::Error::from).map_err(failed)?;
    rustix::stdio::dup2_stderr(&opened).map_err(io::Error::from).map_err(failed)?;
    std::env::set_current_dir("/").map_err(|error| CliError::io(Path::new("/"), error))
}

/// A file with the server's process number; it goes with the mount.
#[derive(Debug)]
pub(crate) struct PidFile(PathBuf);

impl PidFile {
    /// Writes it, readable by its owner alone. A symbolic link is not followed.
    ///
    /// # Errors
    /// If that fails.
    pub(crate) fn write(path: &Path) -> Result<PidFile, CliError> {
        let failed = |error| CliError::io(path, error);
        let absolute = std::path::absolute(path).map_err(failed)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(&absolute, flags, Mode::RUSR | Mode::WUSR);
        let mut file = fs::File::from(file.map_err(io::Error::from).map_err(failed)?);
        let pid_file = PidFile(absolute);
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(pid_file)
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
