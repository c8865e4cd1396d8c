//! Without the standard library: the program says how its threads sleep.
//!
//! # Word
//! UNSET -> SETTING -> SET, once. Until then a sleep is a pause, so that slow paths spin.
//!
//! # Orderings
//! - PH-1 registration (Release) -> use (Acquire): the parker

// unmodelled file: for systems without `std`, where loom does not run; `tests/no_std.rs` drives it.

use core::cell::UnsafeCell;

use crate::prim::Ordering::{Acquire, Relaxed, Release};
use crate::prim::{AtomicU32, spin_loop};

/// How threads sleep on a system that this crate does not know: a kernel, an RTOS.
///
/// Three calls over whatever wait queues the system has, keyed by an address. The usual body is a
/// table of wait queues, hashed by address, each with its lock.
///
/// # Contract
/// `park` and `wake` of one address are ordered by one lock (that of their queue). A sleeper asks
/// `still` under it, after it has taken its place in the queue or before anybody can be woken: then
/// no wake-up is lost. All may return early, or wake too many.
///
/// Only without feature `std`, which brings its own way to sleep.
///
#[cfg_attr(feature = "std", doc = "```ignore")]
#[cfg_attr(not(feature = "std"), doc = "```")]
/// use std::sync::{Condvar, Mutex}; // stands for the system's own wait queue
/// use vfscale_sync::wait::{Parker, set_parker};
///
/// /// One queue for everybody: each wake-up is for all, whatever they sleep on.
/// struct OneQueue {
///     wakes: Mutex<u64>,
///     bell: Condvar,
/// }
///
/// impl Parker for OneQueue {
///     fn park(&self, _: usize, still: &dyn Fn() -> bool) {
///         let wakes = self.wakes.lock().unwrap();
///         if still() {
///             drop(self.bell.wait(wakes).unwrap());
///         }
///     }
///
///     fn wake(&self, _: usize, _: u32) {
///         *self.wakes.lock().unwrap() += 1;
///         self.bell.notify_all();
///     }
/// }
///
/// static QUEUE: OneQueue = OneQueue { wakes: Mutex::new(0), bell: Condvar::new() };
/// set_parker(&QUEUE);
/// ```
pub trait Parker: Sync {
    /// Puts the calling thread to sleep until [`Parker::wake`] of `address` comes, unless `still`
    /// answers `false`: then it returns at once.
    ///
    /// `still` reads one atomic word and may be called in any context.
    fn park(&self, address: usize, still: &dyn Fn() -> bool);

    /// Wakes up to `n` of those who sleep on `address`. What was there may be gone: the address is
    /// only a key.
    fn wake(&self, address: usize, n: u32);

    /// Gives the processor to another thread for a moment; pauses if there is nothing to give it
    /// to.
    fn relax(&self) {
        spin_loop();
    }
}

const UNSET: u32 = 0;
const SETTING: u32 = 1;
const SET: u32 = 2;

/// # Invariants
/// `parker` is written once, by the thread that made `state` SETTING, and read by those who saw SET
/// (PH-1).
struct Hook {
    state: AtomicU32,
    parker: UnsafeCell<Option<&'static dyn Parker>>,
}

// SAFETY: by the invariant its only write comes before all reads; a parker is `Sync`.
unsafe impl Sync for Hook {}

static HOOK: Hook = Hook { state: AtomicU32::new(UNSET), parker: UnsafeCell::new(None) };

/// Registers the parker that all slow paths of this crate sleep with, for good.
///
/// Call it before a second thread uses the crate: a thread that does not know the parker yet wakes
/// nobody. Without one, waiting threads spin.
///
/// # Panics
/// If there is one already.
pub fn set_parker(parker: &'static dyn Parker) {
    // Relaxed: nothing is handed over yet.
    let first = HOOK.state.compare_exchange(UNSET, SETTING, Relaxed, Relaxed);
    assert!(first.is_ok(), "wait::set_parker: there is a parker already");
    // SAFETY: we made the state SETTING, so the one write is ours, and nobody reads before SET.
    unsafe { *HOOK.parker.get() = Some(parker) };
    // PH-1 Release: the parker comes before SET.
    HOOK.state.store(SET, Release);
}

fn parker() -> Option<&'static dyn Parker> {
    // PH-1 Acquire: the parker, if there is one.
    if HOOK.state.load(Acquire) != SET {
        return None;
    }
    // SAFETY: SET, so it was written and is never written again.
    unsafe { *HOOK.parker.get() }
}

pub(super) fn park(address: *const u32, _: u32, still_expected: impl Fn() -> bool) {
    match parker() {
        Some(parker) => parker.park(address.addr(), &still_expected),
        None => spin_loop(),
    }
}

pub(super) fn wake(address: *const u32, n: u32) {
    if let Some(parker) = parker() {
        parker.wake(address.addr(), n);
    }
}

/// What a yield is here.
pub(crate) fn relax() {
    match parker() {
        Some(parker) => parker.relax(),
        None => spin_loop(),
    }
}
