//! Sleeping on a 32-bit word, and waking by address.
//!
//! # Why
//! Every slow path ends here: [`park32`] sleeps while a word holds a value, [`park_high_half`] while
//! the more significant half of a 64-bit one does.
//!
//! # Contract
//! The sleeper names the value it saw; if the word differs the call returns at once. It may also
//! return for no reason. So every caller loops over its own condition. A waker changes the word
//! first, then wakes.
//!
//! # Until a time
//! [`park32_until`] also says when its deadline has passed. A sleeper that gives up may have been
//! chosen by a waker at that very moment, so it looks at its condition once more, and takes or
//! hands on what it was woken for. Under a model the deadline passes at any moment, whatever the
//! clock says: the answer decides, never a clock of the caller's own.
//!
//! # By address
//! A wake takes a raw pointer and never reads through it: the object may be gone already. A thread
//! that sleeps on whatever lives there now is woken for no reason, which the contract allows.
//!
//! # One width
//! A futex compares 32 bits in the kernel. Rust code reads and writes the word in one width only,
//! so the other bodies ask the caller's closure instead.
//!
//! # Three bodies
//! `futex` (Linux with `std`) · `table`, a condition variable per sleeper (`std` elsewhere, and
//! models: it loses a wake-up exactly when the protocol does) · `hook` (without `std`), what the
//! program registered, or pauses, so that the caller's loop spins
//!
//! # Not modelled
//! The table's mutex orders waker and sleeper; a futex promises no such thing to Rust. So every
//! caller takes its orderings from its own words.

#[cfg(all(feature = "std", target_os = "linux", not(any(loom, shuttle))))]
mod futex;
#[cfg(all(any(not(feature = "std"), doc), not(any(loom, shuttle))))]
mod hook;
#[cfg(any(
    loom,
    shuttle,
    all(feature = "std", any(not(target_os = "linux"), all(test, not(tsan))))
))]
mod table;
#[cfg(all(test, feature = "std", not(any(loom, shuttle))))]
mod tests;

#[cfg(all(feature = "std", target_os = "linux", not(any(loom, shuttle))))]
use futex as imp;
#[cfg(all(not(feature = "std"), not(any(loom, shuttle))))]
use hook as imp;
#[cfg(any(loom, shuttle, all(feature = "std", not(target_os = "linux"))))]
use table as imp;

#[cfg(all(not(feature = "std"), not(any(loom, shuttle))))]
pub(crate) use hook::relax;
#[cfg(all(any(not(feature = "std"), doc), not(any(loom, shuttle))))]
pub use hook::{Parker, set_parker};

#[cfg(all(target_has_atomic = "64", not(feature = "portable")))]
pub(crate) use half::{park_high_half, wake_high_half};

use crate::prim::{AtomicU32, Ordering::Relaxed};
use crate::stats::{self, Event};
#[cfg(feature = "std")]
use std::time::Instant;

/// Sleeps while `word` equals `expected`.
#[cold]
pub(crate) fn park32(word: &AtomicU32, expected: u32) {
    stats::count(Event::Park);
    // Relaxed: compared once more by the caller, with its own ordering.
    imp::park(core::ptr::from_ref(word).cast(), expected, || word.load(Relaxed) == expected);
}

/// Wakes up to `n` sleepers of `word`. Only the address is used.
#[cold]
pub(crate) fn wake32(word: *const AtomicU32, n: u32) {
    imp::wake(word.cast(), n);
}

/// Until when to wait; `None` for as long as it takes, which is all there is without a clock.
#[cfg(feature = "std")]
pub(crate) type Deadline = Option<Instant>;
/// Until when to wait: without a clock, for as long as it takes.
#[cfg(not(feature = "std"))]
pub(crate) type Deadline = Option<core::convert::Infallible>;

/// How a sleep with a deadline ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "TimedOut means that sleeping on is not wanted"]
#[cfg_attr(not(feature = "std"), allow(unreachable_pub, reason = "public with a clock"))]
pub enum Sleep {
    /// Woken, or the word differs, or for no reason: look again.
    Over,
    /// The deadline has passed.
    #[cfg_attr(not(feature = "std"), allow(dead_code, reason = "there is no clock"))]
    TimedOut,
}

/// Sleeps while `word` equals `expected`, but not beyond the deadline, if there is one.
pub(crate) fn park32_within(word: &AtomicU32, expected: u32, deadline: Deadline) -> Sleep {
    #[cfg(feature = "std")]
    if let Some(deadline) = deadline {
        return park32_until(word, expected, deadline);
    }
    #[cfg(not(feature = "std"))]
    let _ = deadline;
    park32(word, expected);
    Sleep::Over
}

/// Sleeps while `word` equals `expected`, but not beyond `deadline`.
#[cfg(feature = "std")]
#[cold]
pub(crate) fn park32_until(word: &AtomicU32, expected: u32, deadline: Instant) -> Sleep {
    stats::count(Event::Park);
    let address = core::ptr::from_ref(word).cast();
    // Relaxed: as in `park32`.
    imp::park_until(address, expected, || word.load(Relaxed) == expected, deadline)
}

/// Sleeping on half a word: only where the lockref has one.
#[cfg(all(target_has_atomic = "64", not(feature = "portable")))]
mod half {
    use super::imp;
    use super::{Event, stats};
    use crate::prim::{AtomicU64, Ordering::Relaxed};

    /// Sleeps while the more significant half of `word` equals `expected`. The caller has made sure
    /// that the other half cannot matter: it is frozen, or meaningless.
    #[cold]
    pub(crate) fn park_high_half(word: &AtomicU64, expected: u32) {
        stats::count(Event::Park);
        // Relaxed: as in `park32`.
        imp::park(high_half(word), expected, || (word.load(Relaxed) >> 32) as u32 == expected);
    }

    /// Wakes up to `n` sleepers of that half. Only the address is used.
    #[cold]
    pub(crate) fn wake_high_half(word: *const AtomicU64, n: u32) {
        imp::wake(high_half(word), n);
    }

    /// Where the kernel finds the more significant half.
    fn high_half(word: *const AtomicU64) -> *const u32 {
        word.cast::<u32>().wrapping_add(usize::from(cfg!(target_endian = "little")))
    }
}
