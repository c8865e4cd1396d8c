//! The system calls that no safe wrapper covers: signals taken synchronously, a private mount namespace, and what a child gets back.
//!
//! Signals are never handled, only waited for. The main thread blocks the ones it cares about before any other thread starts, so
//! every thread inherits the mask, and then fetches them one at a time with [`wait_signal`]. That answers two questions a handler
//! makes hard: who sent the signal (the terminal sends to the whole foreground group, so the child has it already), and whether a
//! child ended between a check and a sleep (a blocked `SIGCHLD` stays pending).
#![allow(unsafe_code, reason = "thin wrappers of system calls that rustix does not offer safely")]

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit};

/// A signal that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Its number.
    pub(crate) signal: i32,
    /// A process sent it; otherwise the kernel did, as for a key on the terminal or a child that ended.
    pub(crate) from_process: bool,
}

/// The signals that a command waits for.
const WAITED: [i32; 7] = [
    libc::SIGCHLD,
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

fn set_of(signals: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` is valid for writes, and `sigemptyset` initialises all of it.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: initialised by the call before.
    let mut set = unsafe { set.assume_init() };
    for &signal in signals {
        // SAFETY: `set` is an initialised set; a number that is no signal is refused.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    set
}

/// Blocks the signals that [`wait_signal`] takes, in this thread and all that it starts from now on, and ignores `SIGXFSZ`.
///
/// A child would inherit both; [`Inherited::restore_in`] gives it what we were started with.
pub(crate) fn block_signals() {
    let set = set_of(&WAITED);
    // SAFETY: `set` is initialised; no old mask is asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    // A parent may have left SIGCHLD ignored; then children would vanish without a status.
    // SAFETY: the default action is no handler, so nothing of ours can run in a signal context.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    // A client's write beyond our limit on the size of files must fail for the client (`EFBIG`), and not end the server.
    // SAFETY: to ignore is no handler either.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Whether this process was started with `signal` ignored, as `nohup` does with `SIGHUP`.
///
/// The kernel keeps a blocked signal even if it is ignored, so whoever waits for it must ask.
pub(crate) fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no new action is given, and `action` is valid for writes.
    let failed = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } != 0;
    // SAFETY: zeroed is a valid value of this plain structure, and the call only fills it in.
    !failed && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Takes one of the blocked signals: waits for it, at most for `timeout`.
pub(crate) fn wait_signal(timeout: Duration) -> Option<Taken> {
    take_signal(&set_of(&WAITED), timeout)
}

/// Takes one of these signals, which must be among the blocked ones, if it is there already.
pub(crate) fn pending_signal(among: &[i32]) -> Option<Taken> {
    take_signal(&set_of(among), Duration::ZERO)
}

fn take_signal(set: &libc::sigset_t, timeout: Duration) -> Option<Taken> {
    let wait = libc::timespec {
        tv_sec: timeout.as_secs().min(i32::MAX as u64) as libc::time_t,
        tv_nsec: timeout.subsec_nanos() as libc::c_long,
    };
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: `set` is a reference, `wait` is initialised, `info` is valid for writes.
    let signal = unsafe { libc::sigtimedwait(set, info.as_mut_ptr(), &raw const wait) };
    if signal <= 0 {
        // The time is over, or a signal outside the set interrupted us: either way the caller looks around and comes back.
        return None;
    }
    // SAFETY: zeroed before, and the kernel filled it in since the call succeeded; every bit pattern of it is valid.
    let info = unsafe { info.assume_init() };
    // The kernel's own senders have positive codes (SI_KERNEL, CLD_EXITED); those of processes are zero or below.
    Some(Taken { signal, from_process: info.si_code <= 0 })
}

/// Gives this process a mount namespace of its own, in which nothing it mounts is seen outside.
///
/// Unmounts outside still reach the copies in here (where the system shares mounts at all), so that a long command does not pin
/// what others want to be rid of.
///
/// Must run before any thread is started: a namespace belongs to a thread, and only new threads inherit it.
///
/// # Errors
/// `EPERM` without the capability to do so.
pub(crate) fn private_mounts() -> io::Result<()> {
    use rustix::mount::{MountPropagationFlags, mount_change};
    // SAFETY: the contract is about descriptor tables (`UnshareFlags::FILES`), which stay shared here.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)?;
    Ok(())
}

/// What this process found when it started and changes for itself; a child gets it back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inherited {
    umask: Mode,
    open_files: Rlimit,
    signals: libc::sigset_t,
    ignores_too_large: bool,
}

impl Inherited {
    /// Reads the values. Must run before [`block_signals`], and before another thread creates files: reading the umask means
    /// setting it for an instant.
    pub(crate) fn capture() -> Inherited {
        let umask = rustix::process::umask(Mode::empty());
        rustix::process::umask(umask);
        let mut signals = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: no new mask is given, and `signals` is valid for writes.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), signals.as_mut_ptr());
        }
        // SAFETY: all zeros is a valid (empty) set, and the call only fills it in.
        let signals = unsafe { signals.assume_init() };
        let open_files = rustix::process::getrlimit(Resource::Nofile);
        Inherited { umask, open_files, signals, ignores_too_large: is_ignored(libc::SIGXFSZ) }
    }

    /// Lets the process open as many files as it may: the descriptor cache of a host backend lives on that.
    pub(crate) fn raise_open_files(&self) {
        let wanted = Rlimit { current: self.open_files.maximum, maximum: self.open_files.maximum };
        // A refusal leaves the limit as it was, and the descriptor cache takes its size from the limit it finds.
        let _ = rustix::process::setrlimit(Resource::Nofile, wanted);
    }

    /// Makes `command` start with the values found at the start.
    ///
    /// All of them matter: programs that use `select` break on descriptors above 1023, and a shell whose `SIGCHLD` stays blocked
    /// never hears of its children, or of a file that grew too large.
    pub(crate) fn restore_in(&self, command: &mut Command) {
        let Inherited { umask, open_files, signals, ignores_too_large } = *self;
        let restore = move || {
            rustix::process::umask(umask);
            rustix::process::setrlimit(Resource::Nofile, open_files)?;
            if !ignores_too_large {
                // SAFETY: the default action is no handler.
                unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
            }
            // SAFETY: `signals` is an initialised set; no old mask is asked for.
            unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const signals, std::ptr::null_mut());
            }
            Ok(())
        };
        // SAFETY: between fork and exec only async-signal-safe work is allowed: the closure makes a few system calls, copies
        // plain integers, and neither allocates nor takes a lock.
        unsafe { command.pre_exec(restore) };
    }
}
