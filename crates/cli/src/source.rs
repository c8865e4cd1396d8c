//! What SRC names: a directory of the host, or a file system in memory.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use vfscale_backends::{HostError, HostFs, HostOptions};

use crate::error::CliError;

/// A SRC that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A directory of the host.
    Host {
        /// As the user gave it.
        given: PathBuf,
        /// Absolute and without symbolic links.
        path: PathBuf,
    },
    /// A file system in memory that starts empty.
    Mem,
}

impl Source {
    /// Reads SRC. `mem:` is the memory file system; a directory of that name is written `./mem:`.
    ///
    /// # Errors
    /// If it is missing, no directory, or cannot be reached.
    pub(crate) fn parse(given: &OsStr) -> Result<Source, CliError> {
        if given == "mem:" {
            return Ok(Source::Mem);
        }
        if given.as_encoded_bytes().starts_with(b"mem:") && !Path::new(given).exists() {
            return Err(CliError::Usage(format!(
                "{}: `mem:` takes nothing after the colon",
                given.display()
            )));
        }
        let given = PathBuf::from(given);
        let path = directory(&given)?;
        Ok(Source::Host { given, path })
    }

    /// SRC for a reader.
    pub(crate) fn name(&self) -> String {
        match self {
            Source::Host { given, .. } => given.display().to_string(),
            Source::Mem => "mem:".to_owned(),
        }
    }
}

/// Opens a checked directory as a backend. `given` is its name for messages.
///
/// # Errors
/// If it cannot be opened.
pub(crate) fn open_host(given: &Path, path: &Path, access: Access) -> Result<HostFs, CliError> {
    let options = HostOptions { read_only: access == Access::ReadOnly, ..HostOptions::default() };
    HostFs::new(path, options).map_err(|error| match error {
        HostError::Open { error, .. } => CliError::errno(given, error),
        error => CliError::Other(error.to_string()),
    })
}

/// Whether a source may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing will be changed.
    ReadOnly,
    /// Whatever the host allows.
    ReadWrite,
}

/// The canonical form of `given`, which must be a directory.
///
/// # Errors
/// If it is none.
pub(crate) fn directory(given: &Path) -> Result<PathBuf, CliError> {
    if given.as_os_str().is_empty() {
        return Err(CliError::path(Path::new("''"), "an empty path names no directory"));
    }
    let failed = |error: std::io::Error| match error.raw_os_error() {
        Some(libc::ENOTCONN) => CliError::path(
            given,
            format!(
                "the process that served this mount is gone; `vfscale umount {}` removes it",
                given.display()
            ),
        ),
        _ => CliError::io(given, error),
    };
    let attributes = std::fs::metadata(given).map_err(failed)?;
    if !attributes.is_dir() {
        return Err(CliError::path(given, "not a directory"));
    }
    std::fs::canonicalize(given).map_err(failed)
}
