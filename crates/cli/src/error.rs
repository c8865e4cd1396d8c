//! What can go wrong in the command line, and the exit code it ends with.
//!
//! Every failure is one line on standard error, `vfscale: ` and this text, so a message says what was wrong with which object
//! and, where there is one, the way out. Exit codes: 2 for a command line that makes no sense, 1 for everything else that fails.
//! (`exec` answers with its command's code; see [`crate::exec`].)

use std::io;
use std::path::{Path, PathBuf};

use vfscale::Errno;

/// A failure of one of the commands.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// A path cannot be used.
    #[error("{}: {what}", path.display())]
    Path {
        /// The path as the user gave it.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The kernel's FUSE device cannot be used.
    #[error("{0}; `vfscale walk SRC` needs no FUSE")]
    NoFuse(String),
    /// The process may not do what the command needs.
    #[error("{0}; `vfscale walk SRC` needs no privileges")]
    NotPermitted(String),
    /// Anything else, said in full.
    #[error("{0}")]
    Other(String),
}

impl CliError {
    /// The exit code of a process that fails with this.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            CliError::Usage(_) => 2,
            _ => 1,
        }
    }

    /// `path` cannot be used, and `what` says why.
    pub(crate) fn path(path: &Path, what: impl Into<String>) -> CliError {
        CliError::Path { path: path.to_owned(), what: what.into() }
    }

    /// A system call on `path` failed.
    pub(crate) fn io(path: &Path, error: impl Into<io::Error>) -> CliError {
        CliError::path(path, reason(&error.into()))
    }

    /// An operation of the core on `path` failed.
    pub(crate) fn errno(path: &Path, error: Errno) -> CliError {
        CliError::io(path, io::Error::from_raw_os_error(error.raw()))
    }
}

/// The system's words for an error, without the number that `std` appends.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
