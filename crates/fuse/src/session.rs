//! A mount from its beginning to its end.
//!
//! # Who ends it
//! Whoever unmounts: [`Mounted::unmount`], or anybody outside. Either way the kernel closes the connection, each server thread sees
//! that and leaves. The threads own the session; it goes with the last of them, which takes back what the client still held (a
//! kernel forgets nothing at an unmount), lets go of the [`Vfs`], and only then wakes those in [`Mounted::wait`]. So a session
//! ends the same whether or not anybody holds its [`Mounted`], and after an end the `Vfs` is its owner's alone.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};
use std::{fmt, io};

use vfscale::sync::rcu;
use vfscale::{FileSystem, Vfs};

use crate::adapter::{DEVICE, Device, KernelMount};
use crate::crew::Crew;
use crate::dispatch::Rules;
use crate::front_end::FrontEnd;
use crate::stats::Report;
use crate::{FuseStats, MountError, MountOptions, server};

/// How long what was freed may wait for its grace period while nothing else happens: deleted files keep their space meanwhile.
const DRAIN_EVERY: Duration = Duration::from_millis(250);

/// How long [`Mounted::unmount`] waits for the threads after the kernel has let go.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// What the threads of a session own together.
struct Session<F: FileSystem> {
    front: FrontEnd<F>,
    rules: Rules,
    device: Device,
    crew: Crew,
    /// The last field: dropped when all else is.
    ended: SetOnDrop,
}

impl<F: FileSystem> Session<F> {
    fn serve(&self, clone_fd: bool) {
        // Refused (an ordinary user may not open the device): all share one.
        let own = clone_fd.then(|| self.device.clone_connection().ok()).flatten();
        let device = own.as_ref().unwrap_or(&self.device);
        if let Err(error) = server::run(&self.front, &self.rules, device, &self.crew) {
            tracing::error!(%error, "a server thread lost the connection");
        }
    }
}

impl<F: FileSystem> Drop for Session<F> {
    fn drop(&mut self) {
        self.front.end();
        self.ended.0.state().last = self.front.stats();
    }
}

/// A session without its backend's type.
trait AnySession: Send + Sync {
    fn stats(&self) -> FuseStats;
}

impl<F: FileSystem> AnySession for Session<F> {
    fn stats(&self) -> FuseStats {
        self.front.stats()
    }
}

/// Outlives the session: whether it is over, and what was left of it.
#[derive(Debug, Default)]
struct Ended {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    over: bool,
    last: FuseStats,
}

impl Ended {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) {
        drop(self.changed.wait_while(self.state(), |state| !state.over));
    }

    /// `false` if it was not over in time.
    fn wait_for(&self, timeout: Duration) -> bool {
        let wait = self.changed.wait_timeout_while(self.state(), timeout, |state| !state.over);
        wait.unwrap_or_else(PoisonError::into_inner).0.over
    }
}

#[derive(Debug)]
struct SetOnDrop(Arc<Ended>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.state().over = true;
        self.0.changed.notify_all();
    }
}

/// Mounts `vfs` on the directory `mountpoint`, starts its server threads, and returns once the mount answers.
///
/// `report` makes the text of the root's attribute [`STATS_XATTR`](crate::STATS_XATTR), by which the live numbers are read from
/// outside.
///
/// # Errors
/// [`MountError`] tells the step that failed. Nothing is left mounted then.
pub fn serve<F: FileSystem>(
    vfs: Arc<Vfs<F>>,
    mountpoint: &Path,
    options: &MountOptions,
    report: impl Fn(&FuseStats) -> String + Send + Sync + 'static,
) -> Result<Mounted, MountError> {
    check(mountpoint)?;
    let report: Report = Box::new(report);
    let front = FrontEnd::new(vfs, report).map_err(MountError::Root)?;
    let (mount, device) = KernelMount::new(mountpoint, options)?;
    let only = options.allow_root && !options.allow_other;
    let rules = Rules {
        only: only.then(|| rustix::process::geteuid().as_raw()),
        keep_cache: options.kernel_cache,
    };
    let ended = Arc::new(Ended::default());
    let session = Session {
        front,
        rules,
        device,
        crew: Crew::default(),
        ended: SetOnDrop(Arc::clone(&ended)),
    };
    let session = Arc::new(session);
    let weak: Weak<dyn AnySession> = Arc::<Session<F>>::downgrade(&session);
    let mounted = Mounted { session: weak, ended, mount, gone: AtomicBool::new(false) };
    let clone_fd = options.clone_fd;
    for number in 0..options.thread_count() {
        let session = Arc::clone(&session);
        let thread = thread::Builder::new().name(format!("vfscale-{number}"));
        // On error `mounted` is dropped and unmounts; those already started leave.
        thread.spawn(move || session.serve(clone_fd)).map_err(MountError::Threads)?;
    }
    drop(session); // the threads' alone now
    let until = Arc::clone(&mounted.ended);
    let drainer = thread::Builder::new().name("vfscale-drain".to_owned());
    drainer.spawn(move || drain(&until)).map_err(MountError::Threads)?;
    // The first request goes all the way to the backend and back.
    let point = mounted.mount.point();
    point.metadata().map_err(|source| MountError::Mount { point: point.to_owned(), source })?;
    Ok(mounted)
}

/// Garbage is freed in batches by the threads that make it; a batch that does not fill is freed from here.
fn drain(ended: &Ended) {
    while !ended.wait_for(DRAIN_EVERY) {
        if rcu::stats().pending > 0 {
            rcu::barrier();
        }
    }
}

/// Says clearly what would otherwise fail somewhere inside.
fn check(mountpoint: &Path) -> Result<(), MountError> {
    let point = || mountpoint.to_owned();
    let meta =
        mountpoint.metadata().map_err(|source| MountError::Mount { point: point(), source })?;
    if !meta.is_dir() {
        return Err(MountError::NotADirectory(point()));
    }
    let device = std::fs::File::options().read(true).write(true).open(DEVICE);
    device.map(drop).map_err(MountError::Device)
}

/// A mounted file system. Dropping it unmounts.
pub struct Mounted {
    session: Weak<dyn AnySession>,
    ended: Arc<Ended>,
    mount: KernelMount,
    /// Taken out of sight: what is at the mount point now is somebody else's.
    gone: AtomicBool,
}

impl Mounted {
    /// Where it is mounted.
    #[must_use]
    pub fn point(&self) -> &Path {
        self.mount.point()
    }

    /// What the client holds now; once the session is over, what it had at the end.
    #[must_use]
    pub fn stats(&self) -> FuseStats {
        let session = self.session.upgrade();
        session.map_or_else(|| self.ended.state().last, |session| session.stats())
    }

    /// Did the session end, by whomever?
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.state().over
    }

    /// Waits until it is unmounted, by whomever.
    pub fn wait(&self) {
        self.ended.wait();
    }

    /// As [`wait`](Self::wait), for a limited time. `false` if it is still mounted then.
    #[must_use]
    pub fn wait_for(&self, timeout: Duration) -> bool {
        self.ended.wait_for(timeout)
    }

    /// Unmounts, unless somebody uses the mount: then it stays as it is.
    ///
    /// # Errors
    /// [`MountError::Busy`]; [`MountError::Unmount`] for anything else.
    pub fn try_unmount(&self) -> Result<(), MountError> {
        if self.has_ended() {
            return Ok(()); // from outside; somebody else's mount may be there by now
        }
        if self.gone.load(Relaxed) {
            return Err(MountError::Busy(self.point().to_owned()));
        }
        match self.mount.unmount() {
            Ok(()) => {
                self.gone.store(true, Relaxed);
                self.expect_end()
            }
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                Err(MountError::Busy(self.point().to_owned()))
            }
            // Unmounted from outside just now, and the threads are on their way.
            Err(_) if self.wait_for(Duration::from_millis(200)) => Ok(()),
            Err(source) => Err(MountError::Unmount { point: self.point().to_owned(), source }),
        }
    }

    fn expect_end(&self) -> Result<(), MountError> {
        let start = Instant::now();
        if self.wait_for(END_TIMEOUT) {
            return Ok(());
        }
        let text = format!("requests are still under way after {:?}", start.elapsed());
        let source = io::Error::new(io::ErrorKind::TimedOut, text);
        Err(MountError::Unmount { point: self.point().to_owned(), source })
    }

    /// Takes the mount out of sight at once. Those who use it go on; the session ends with the last of them.
    ///
    /// # Errors
    /// [`MountError::Unmount`].
    pub fn detach(&self) -> Result<(), MountError> {
        if self.has_ended() || self.gone.load(Relaxed) {
            return Ok(());
        }
        let failed = |source| MountError::Unmount { point: self.point().to_owned(), source };
        self.mount.detach().map_err(failed)?;
        self.gone.store(true, Relaxed);
        Ok(())
    }

    /// Unmounts and ends the session.
    ///
    /// # Errors
    /// [`MountError::Busy`] if somebody uses the mount; it is [detached](Self::detach) then, and ends with the last user.
    pub fn unmount(self) -> Result<(), MountError> {
        self.try_unmount() // and if not, `drop` detaches
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.try_unmount().is_err()
            && let Err(error) = self.detach()
        {
            tracing::error!(%error, "left mounted");
        }
    }
}

impl fmt::Debug for Mounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mounted").field("mount", &self.mount).field("stats", &self.stats()).finish()
    }
}
