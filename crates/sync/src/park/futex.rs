//! Linux: the kernel compares the word and enqueues the sleeper in one step, so no wake is lost in between.

use super::Sleep;
use std::time::{Duration, Instant};

pub(super) fn park(address: *const u32, expected: u32, _: impl Fn() -> bool) {
    wait(address, expected, None);
}

pub(super) fn park_until(
    address: *const u32,
    expected: u32,
    _: impl Fn() -> bool,
    deadline: Instant,
) -> Sleep {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Sleep::TimedOut;
    }
    wait(address, expected, Some(left));
    // The clock decides, not the kernel's answer: `Over` sends the caller round once more, and here
    // again.
    if Instant::now() < deadline { Sleep::Over } else { Sleep::TimedOut }
}

fn wait(address: *const u32, expected: u32, at_most: Option<Duration>) {
    let at_most = at_most.map(|time| libc::timespec {
        // Beyond what the kernel counts is for ever, or a wake-up for no reason.
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos() as libc::c_long,
    });
    let at_most = at_most.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: the kernel reads 32 bits at `address`, which lies inside an atomic word that the
    // caller borrows for the whole call, and the time, which is null or lives in this frame; it
    // writes nothing. Every outcome (woken, value differs, interrupted, too late) means the same to
    // the caller: look again.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            address,
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            at_most,
        );
    }
}

pub(super) fn wake(address: *const u32, n: u32) {
    let n = i32::try_from(n).unwrap_or(i32::MAX);
    // SAFETY: a private wake uses `address` as a key and does not read through it, so it may even
    // be stale.
    unsafe {
        libc::syscall(libc::SYS_futex, address, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, n);
    }
}
