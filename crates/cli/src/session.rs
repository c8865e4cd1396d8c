//! One served mount, from the backend to the unmount: what `exec` and `mount` have in common.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use clap::ValueEnum as _;
use rustix::mount::UnmountFlags;
use rustix::thread::CapabilitySet;
use vfscale::{FileSystem, Options, Vfs};
use vfscale_backends::MemFs;
use vfscale_fuse::{FuseStats, MountError, MountOptions, Mounted, Passthrough};

use crate::args::{CacheArg, MAX_NAMES, PassthroughArg, ServeArgs};
use crate::error::CliError;
use crate::mountinfo;
use crate::source::{Access, Source, open_host};
use crate::summary::{Rest, Summary};
use crate::umount::{Unmounted, unmount_within};

/// How long a mount that is in use may take to become free before it is detached.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// Who can see a mount at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeenBy {
    /// Everybody in the system; other users have access only with `allow_other`.
    Everybody,
    /// One command and its children, in a namespace of their own. They may change their user, and find SRC as they would without
    /// the mount: by modes and owners.
    CommandAlone,
}

/// What to serve, and how.
#[derive(Debug)]
pub(crate) struct Plan {
    source: Source,
    mount: MountOptions,
    core: Options,
}

impl Plan {
    /// Checks the options.
    ///
    /// # Errors
    /// If one is unknown or has no sense.
    pub(crate) fn new(source: Source, args: &ServeArgs, seen_by: SeenBy) -> Result<Plan, CliError> {
        let mut mount = MountOptions::default();
        let (mut cache, mut max_names) = (None, None);
        for option in args.options.iter().flat_map(|list| list.split(',')).map(str::trim) {
            let wrong = |needs| CliError::Usage(format!("mount option '{option}': needs {needs}"));
            match option.split_once('=') {
                Some(("cache", value)) => {
                    let value = CacheArg::from_str(value, false);
                    cache = Some(value.map_err(|_| wrong("never, auto or always"))?);
                }
                Some(("max_names", value)) => {
                    max_names = Some(value.parse().map_err(|_| wrong("a number"))?);
                }
                _ => mount.apply(option).map_err(|error| CliError::Usage(error.to_string()))?,
            }
        }
        if seen_by == SeenBy::CommandAlone {
            mount.allow_other = true;
        }
        if let Some(passthrough) = args.passthrough {
            mount.passthrough = match passthrough {
                PassthroughArg::Auto => Passthrough::Auto,
                PassthroughArg::On => Passthrough::On,
                PassthroughArg::Off => Passthrough::Off,
            };
        }
        if mount.passthrough == Passthrough::On && source == Source::Mem {
            let text = "passthrough is for files of a directory; mem: has none";
            return Err(CliError::Usage(text.into()));
        }
        let careful = MountOptions::default();
        if mount.subtype != careful.subtype {
            // `umount` and `stat` know our mounts by it.
            return Err(CliError::Usage("the subtype of a vfscale mount is always vfscale".into()));
        }
        if mount.fsname == careful.fsname {
            mount.fsname = source.name();
        }
        // Nobody but the mount can change what is in memory; a directory of the host may change behind our back.
        let cache = args.cache.or(cache).unwrap_or(CacheArg::Auto);
        let mut core = match (cache, &source) {
            (CacheArg::Never | CacheArg::Auto, Source::Host { .. }) | (CacheArg::Never, _) => {
                Options::default()
            }
            (CacheArg::Auto, Source::Mem) | (CacheArg::Always, _) => Options::exclusive(),
        };
        if cache == CacheArg::Never {
            for ttl in [&mut core.entry_ttl, &mut core.attr_ttl, &mut core.negative_ttl] {
                *ttl = Duration::ZERO;
            }
        }
        mount.kernel_cache |= cache == CacheArg::Always;
        core.max_names = args.max_names.or(max_names).unwrap_or(MAX_NAMES);
        Ok(Plan { source, mount, core })
    }

    /// What is served.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Opens the backend, mounts it on `place`, and hands the session to `body`, which ends with its end.
    ///
    /// # Errors
    /// If the source cannot be opened or mounted, and those of `body`.
    pub(crate) fn serve<R>(
        self,
        place: &Path,
        body: impl FnOnce(&mut dyn Serving) -> Result<R, CliError>,
    ) -> Result<R, CliError> {
        match &self.source {
            Source::Host { given, path } => {
                let access =
                    if self.mount.read_only { Access::ReadOnly } else { Access::ReadWrite };
                let fs = open_host(given, path, access)?;
                body(&mut Session::start(fs, place, &self)?)
            }
            Source::Mem => body(&mut Session::start(MemFs::new(), place, &self)?),
        }
    }
}

/// Is this an option of a list that the command heeds itself?
pub(crate) fn is_own_option(option: &str) -> bool {
    matches!(option.split_once('='), Some(("cache" | "max_names", _)))
}

/// Checks that this process can mount: the kernel's FUSE device is there, and the capability to use it.
///
/// # Errors
/// If not, with the reason.
pub(crate) fn check_can_mount() -> Result<(), CliError> {
    let not_permitted = || CliError::NotPermitted("mounting needs root (CAP_SYS_ADMIN)".to_owned());
    match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(not_permitted()),
        Err(error) => {
            return Err(CliError::NoFuse(format!(
                "no usable /dev/fuse ({}): is the kernel's fuse module loaded, and the device passed into this container?",
                crate::error::reason(&error)
            )));
        }
    }
    let capable = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
    if capable { Ok(()) } else { Err(not_permitted()) }
}

/// A mount at work, whatever its backend.
pub(crate) trait Serving {
    /// The numbers now.
    fn summary(&self) -> Summary;
    /// Whether the mount is gone, unmounted by somebody else.
    fn has_ended(&self) -> bool;
    /// Takes away what others have mounted on top of it: for a mount in a namespace that is nobody's but ours by now.
    fn uncover(&self);
    /// Unmounts within [`GRACE`], waits for the server threads, and tells what was left over.
    ///
    /// # Errors
    /// If the mount stays.
    fn stop(&mut self) -> Result<(Unmounted, Rest), CliError>;
}

/// A mount at work.
struct Session<F: FileSystem> {
    reporter: Arc<Reporter<F>>,
    /// Empty once stopped.
    running: Option<(Arc<Vfs<F>>, Mounted)>,
}

impl<F: FileSystem> Session<F> {
    fn start(fs: F, place: &Path, plan: &Plan) -> Result<Session<F>, CliError> {
        let vfs = Vfs::new(fs, plan.core.clone())
            .map_err(|error| CliError::Other(format!("{}: {error}", plan.source.name())))?;
        let vfs = Arc::new(vfs);
        let reporter = Arc::new(Reporter {
            source: plan.source.name(),
            place: place.display().to_string(),
            start: Instant::now(),
            vfs: Arc::downgrade(&vfs),
        });
        let live = Arc::clone(&reporter);
        let report = move |fuse: &FuseStats| live.json(fuse);
        let mounted = vfscale_fuse::serve(Arc::clone(&vfs), place, &plan.mount, report)
            .map_err(cannot_mount)?;
        Ok(Session { reporter, running: Some((vfs, mounted)) })
    }
}

impl<F: FileSystem> Serving for Session<F> {
    fn summary(&self) -> Summary {
        match &self.running {
            Some((_, mounted)) => self.reporter.summary(&mounted.stats()),
            None => Summary::default(),
        }
    }

    fn has_ended(&self) -> bool {
        self.running.as_ref().is_none_or(|(_, mounted)| mounted.has_ended())
    }

    fn uncover(&self) {
        let Some((_, mounted)) = &self.running else { return };
        let (place, device) = (mounted.point(), mounted.device());
        while !mounted.is_on_top() && mountinfo::is_listed(place, device).unwrap_or(false) {
            if rustix::mount::unmount(place, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).is_err()
            {
                return; // what is in the way stands above the directory that the mount is in
            }
        }
    }

    fn stop(&mut self) -> Result<(Unmounted, Rest), CliError> {
        let Some((vfs, mounted)) = self.running.take() else {
            return Ok((Unmounted::Clean, Rest::default()));
        };
        let unmounted = unmount_within(&mounted, GRACE).map_err(cannot_unmount)?;
        // The server threads give back all that the kernel held and leave.
        if matches!(unmounted, Unmounted::Lingering(_)) || !mounted.wait_for(GRACE) {
            // Or somebody outside took the mount out of sight while it was in use. Its users lose it when this process ends.
            let stats = vfs.stats();
            // The root is the core's own as long as there is a core.
            let (names, inodes) = (stats.names.saturating_sub(1), stats.inodes.saturating_sub(1));
            return Ok((unmounted, Rest { names, inodes, files: stats.files }));
        }
        drop(mounted);
        let rest = match last_owner(vfs).map(Vfs::unmount) {
            Ok(Ok(())) => Rest::default(),
            Ok(Err(busy)) => Rest { names: busy.names, inodes: busy.inodes, files: busy.files },
            Err(error) => return Err(error),
        };
        Ok((unmounted, rest))
    }
}

/// The value itself, once the last server thread has left the stage behind the session's end.
fn last_owner<T>(mut shared: Arc<T>) -> Result<T, CliError> {
    let deadline = Instant::now() + GRACE;
    loop {
        match Arc::try_unwrap(shared) {
            Ok(value) => return Ok(value),
            Err(_) if Instant::now() > deadline => {
                return Err(CliError::Other("a server thread did not end".into()));
            }
            Err(still_shared) => shared = still_shared,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Says what the user can do about a refused mount.
fn cannot_mount(error: MountError) -> CliError {
    match &error {
        MountError::Mount { source, .. } | MountError::Device(source)
            if source.kind() == ErrorKind::PermissionDenied =>
        {
            CliError::NotPermitted("mounting needs root (CAP_SYS_ADMIN)".to_owned())
        }
        MountError::Mount { point, source } if source.kind() == ErrorKind::ResourceBusy => {
            CliError::path(point, "in use by another mount")
        }
        MountError::Mount { point, source } => {
            CliError::path(point, format!("cannot be mounted on: {}", crate::error::reason(source)))
        }
        _ => CliError::Other(error.to_string()),
    }
}

fn cannot_unmount(error: MountError) -> CliError {
    match error {
        MountError::Unmount { point, source } => CliError::path(
            &point,
            format!("cannot be unmounted: {}", crate::error::reason(&source)),
        ),
        error => CliError::Other(error.to_string()),
    }
}

impl<F: FileSystem> Drop for Session<F> {
    fn drop(&mut self) {
        // Only after an error or a panic is anything left to stop, and that is what gets reported.
        let _ = self.stop();
    }
}

/// Gathers the numbers, for us and for who asks the mount itself. It does not keep the core alive.
struct Reporter<F: FileSystem> {
    source: String,
    place: String,
    start: Instant,
    vfs: Weak<Vfs<F>>,
}

impl<F: FileSystem> Reporter<F> {
    fn summary(&self, fuse: &FuseStats) -> Summary {
        let Some(vfs) = self.vfs.upgrade() else { return Summary::default() };
        Summary {
            source: self.source.clone(),
            mountpoint: Some(self.place.clone()),
            seconds: self.start.elapsed().as_secs_f64(),
            ..Summary::gather(&vfs, Some(fuse))
        }
    }

    fn json(&self, fuse: &FuseStats) -> String {
        // Numbers and strings always have a JSON form.
        serde_json::to_string(&self.summary(fuse)).unwrap_or_default()
    }
}
