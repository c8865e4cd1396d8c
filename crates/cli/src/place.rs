//! Where to mount: checks on MNT, and the temporary directory of `exec mem:`.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::mount::UnmountFlags;

use crate::error::CliError;
use crate::mountinfo;
use crate::source::{self, Source};
use crate::umount::is_dead;

/// Checks that `given` can carry a mount of `source`, and answers with its canonical path.
///
/// The daemon would wait for itself if its own lookups in SRC ran into its mount, so MNT must be neither SRC nor below it. SRC
/// below MNT is fine: the backend opens SRC before the mount covers it and never goes by the path again.
///
/// # Errors
/// If it is no directory, one that cannot be covered, carries a mount of ours already, or is SRC or below it.
pub(crate) fn check(given: &Path, source: &Source) -> Result<PathBuf, CliError> {
    let failed = |error| CliError::io(given, error);
    // Ask the mount table first: a dead mount answers no other question.
    if let Ok(path) = mountinfo::locate(given)
        && mountinfo::mounted_on(&path).map_err(failed)?.is_some_and(|mount| mount.is_ours())
    {
        let what = if is_dead(&path) {
            format!(
                "holds the mount of a process that is gone; `vfscale umount {}` removes it",
                given.display()
            )
        } else {
            "already a vfscale mount".to_owned()
        };
        return Err(CliError::path(given, what));
    }
    let path = source::directory(given)?;
    refuse_own_ground(given, &path)?;
    if let Source::Host { given: source, path: source_path } = source {
        let root = fs::metadata(source_path).map_err(|error| CliError::io(source, error))?;
        // Compare objects and not only names: SRC may also be reached through a bind mount.
        for (height, above) in path.ancestors().enumerate() {
            let attributes = fs::metadata(above).map_err(failed)?;
            if (attributes.dev(), attributes.ino()) == (root.dev(), root.ino()) {
                let what = if height == 0 { "the same directory as" } else { "inside" };
                return Err(CliError::path(
                    given,
                    format!(
                        "{what} {}, which it is to show: the mount would wait for itself",
                        source.display()
                    ),
                ));
            }
        }
    }
    Ok(path)
}

/// Checks that a mount on `path`, given as `given`, would hide nothing that the server of the mount needs itself: it would wait for
/// its own answer. A mount on `/` hides nothing, but could not be reached to unmount it: every process goes on from the root it has.
///
/// # Errors
/// If `path` is such a place.
pub(crate) fn refuse_own_ground(given: &Path, path: &Path) -> Result<(), CliError> {
    if path == Path::new("/") {
        let what = "the root of all files cannot be covered by a mount; name a directory below it";
        return Err(CliError::path(given, what));
    }
    for needed in ["/dev/fuse", "/proc/self/fd"] {
        if fs::canonicalize(needed).is_ok_and(|needed| needed.starts_with(path)) {
            let what = format!("vfscale itself needs {needed} and cannot cover it by a mount");
            return Err(CliError::path(given, what));
        }
    }
    Ok(())
}

/// A directory made for one mount, in a mount namespace of our own. Removed when dropped, with whatever is still mounted on it, but
/// never with anything in it.
#[derive(Debug)]
pub(crate) struct TemporaryPlace {
    path: PathBuf,
}

impl TemporaryPlace {
    /// Makes an empty directory.
    ///
    /// # Errors
    /// If that fails.
    pub(crate) fn create() -> Result<TemporaryPlace, CliError> {
        let parent = std::env::temp_dir();
        let made = tempfile::Builder::new().prefix("vfscale-").tempdir_in(&parent);
        let made = made.map_err(|error| {
            // The error's own text names the path a second time.
            let system = error.raw_os_error().map(std::io::Error::from_raw_os_error);
            CliError::io(&parent, system.unwrap_or(error))
        })?;
        // The crate would remove a whole tree; while something is mounted there, that would be the user's files.
        let path = made.keep();
        let mut place = TemporaryPlace { path };
        // The mount table holds canonical paths; should this fail, dropping the place removes it.
        place.path =
            fs::canonicalize(&place.path).map_err(|error| CliError::io(&place.path, error))?;
        Ok(place)
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryPlace {
    fn drop(&mut self) {
        let mut removed = fs::remove_dir(&self.path);
        if removed.as_ref().is_err_and(|error| error.kind() == ErrorKind::ResourceBusy) {
            // Nobody else sees these mounts, and who still uses one keeps what it has.
            let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
            while rustix::mount::unmount(&self.path, flags).is_ok() {}
            removed = fs::remove_dir(&self.path);
        }
        if let Err(error) = removed {
            crate::say(&CliError::io(&self.path, error).to_string());
        }
    }
}
