//! A mount from its beginning to its end.
//!
//! # Who ends it
//! Whoever unmounts: [`Mounted::unmount`], or anybody outside. Either way the kernel closes the connection, each server thread sees
//! that and leaves. The threads own the session; it goes with the last of them, which takes back what the client still held (a
//! kernel forgets nothing at an unmount), lets go of the [`Vfs`], and only then wakes those in [`Mounted::wait`]. So a session
//! ends the same whether or not anybody holds its [`Mounted`], and after an end the `Vfs` is its owner's alone.
//!
//! # Whose mount is it?
//! An unmount goes by a path, and what is on top there may be somebody else's: mounted over ours, or in its place after ours was
//! unmounted from outside, or what was beneath it. So before each take-down the device number of what is on top is compared with
//! that of our mount. The system gives a number anew once its mount has gone; but ours is not gone as long as the connection
//! stands, so the number is looked at first and the connection after it. A mount without a connection answers nobody, and if it has our
//! number it is ours, or as dead.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;
use std::{fmt, io};

use vfscale::sync::rcu;
use vfscale::{FileSystem, Vfs};

use crate::adapter::{DEVICE, Device, KernelMount, Wanted};
use crate::backing::Backing;
use crate::crew::Crew;
use crate::dispatch::Rules;
use crate::front_end::FrontEnd;
use crate::stats::Report;
use crate::{FuseStats, MountError, MountOptions, Passthrough, server};

/// How long what was freed may wait for its grace period while nothing else happens: deleted files keep their space meanwhile.
const DRAIN_EVERY: Duration = Duration::from_millis(250);

/// How long [`Mounted::unmount`] waits for the threads after the kernel has let go.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// So many mounts of one session on one place are unmounted in one go.
const MOST_LAYERS: usize = 64;

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
    fn is_connected(&self) -> bool;
}

impl<F: FileSystem> AnySession for Session<F> {
    fn stats(&self) -> FuseStats {
        self.front.stats()
    }

    fn is_connected(&self) -> bool {
        self.device.is_connected()
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
    let mut front = FrontEnd::new(vfs, report).map_err(MountError::Root)?;
    let wanted = Wanted {
        access_lists: front.keeps_access_lists(),
        passthrough: options.passthrough != Passthrough::Off,
    };
    let (mount, device, agreed) = KernelMount::new(mountpoint, options, wanted)?;
    let only = options.allow_root && !options.allow_other;
    let passthrough = agreed.passthrough && device.may_register();
    if passthrough {
        front.back(Backing::new(device.share().map_err(MountError::Device)?));
    }
    let rules = Rules {
        only: only.then(|| rustix::process::geteuid().as_raw()),
        keep_cache: options.kernel_cache,
        access_lists: agreed.access_lists,
        passthrough,
        long_setxattr: agreed.long_setxattr,
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
    let mounted = Mounted { session: weak, ended, mount };
    if options.passthrough == Passthrough::On && !passthrough {
        return Err(MountError::Passthrough);
    }
    // On error `mounted` is dropped: it unmounts, those already started leave, and the session, which is theirs alone, ends.
    start_threads(session, options).map_err(MountError::Threads)?;
    let until = Arc::clone(&mounted.ended);
    spawn("vfscale-drain".to_owned(), move || drain(&until)).map_err(MountError::Threads)?;
    // The first request goes all the way to the backend and back.
    let point = mounted.mount.point();
    point.metadata().map_err(|source| MountError::Mount { point: point.to_owned(), source })?;
    Ok(mounted)
}

/// Hands `session` over to its threads; if one cannot be started, to those that were.
fn start_threads<F: FileSystem>(
    session: Arc<Session<F>>,
    options: &MountOptions,
) -> io::Result<()> {
    let clone_fd = options.clone_fd;
    for number in 0..options.thread_count() {
        let session = Arc::clone(&session);
        spawn(format!("vfscale-{number}"), move || session.serve(clone_fd))?;
    }
    Ok(())
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    #[cfg(test)]
    tests::may_start(&name)?;
    thread::Builder::new().name(name).spawn(work).map(drop)
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
}

impl Mounted {
    /// Where it is mounted.
    #[must_use]
    pub fn point(&self) -> &Path {
        self.mount.point()
    }

    /// The device number of the mounted file system, major and minor, as `stat` and the list of mounts show it.
    #[must_use]
    pub fn device(&self) -> (u32, u32) {
        self.mount.number()
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

    /// Is the mount the one on top at its place? Else an unmount would take somebody else's.
    #[must_use]
    pub fn is_on_top(&self) -> bool {
        // In this order: see the module's header.
        self.mount.has_our_number_on_top() && (self.is_connected() || self.mount.is_dead())
    }

    fn is_connected(&self) -> bool {
        self.session.upgrade().is_some_and(|session| session.is_connected())
    }

    /// Unmounts, unless somebody uses the mount: then it stays as it is.
    ///
    /// # Errors
    /// [`MountError::Busy`], also if it is in use and out of sight already; [`MountError::Lingering`];
    /// [`MountError::Unmount`] for anything else.
    pub fn try_unmount(&self) -> Result<(), MountError> {
        // It may have been bound over itself, and then there are several layers of it.
        for _ in 0..MOST_LAYERS {
            if !self.is_on_top() {
                break;
            }
            match self.mount.unmount() {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return self.busy(),
                // Unmounted from outside just now.
                Err(_) if !self.is_on_top() => break,
                Err(source) => {
                    return Err(MountError::Unmount { point: self.point().to_owned(), source });
                }
            }
        }
        self.out_of_sight()
    }

    /// It is not on top any more: over, or covered, or mounted or used somewhere else.
    fn out_of_sight(&self) -> Result<(), MountError> {
        if self.is_connected() { self.busy() } else { self.expect_end() }
    }

    fn busy(&self) -> Result<(), MountError> {
        Err(MountError::Busy(self.point().to_owned()))
    }

    /// Nobody uses it any more: the threads are on their way.
    fn expect_end(&self) -> Result<(), MountError> {
        if self.wait_for(END_TIMEOUT) {
            return Ok(());
        }
        Err(MountError::Lingering { point: self.point().to_owned(), after: END_TIMEOUT })
    }

    /// Takes the mount out of sight at once. Those who use it go on; the session ends with the last of them.
    ///
    /// Does nothing if it is out of sight already, or covered by another mount.
    ///
    /// # Errors
    /// [`MountError::Unmount`].
    pub fn detach(&self) -> Result<(), MountError> {
        self.take_away(KernelMount::detach)
    }

    /// Takes the mount from all who use it: their calls fail from now on, and the session ends.
    ///
    /// Does nothing if it is out of sight already, or covered by another mount.
    ///
    /// # Errors
    /// [`MountError::Unmount`].
    pub fn abort(&self) -> Result<(), MountError> {
        self.take_away(KernelMount::abort)
    }

    fn take_away(&self, how: fn(&KernelMount) -> io::Result<()>) -> Result<(), MountError> {
        if !self.is_on_top() {
            return Ok(());
        }
        match how(&self.mount) {
            Err(source) if self.is_on_top() => {
                Err(MountError::Unmount { point: self.point().to_owned(), source })
            }
            _ => Ok(()),
        }
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
        if self.is_on_top()
            && self.try_unmount().is_err()
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

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
