//! How a thread waits before it goes to sleep.
//!
//! # Why
//! A lock holder in user space loses its processor at any moment, so spinning has to end. Three
//! rounds of pauses catch a holder that is running; seven yields catch one that shares our
//! processor; after that sleep.
//!
//! # Steps
//! 8, 16, 32 pauses · 7 yields · [`Turn::Park`] from then on
//!
//! # Who uses it
//! every slow path of this crate. The step counts are measured: three rounds of pauses are the knee
//! (none costs 40 % of a contended lock's rate, five gain nothing), and without the yields the
//! worst wait of eight threads on two processors grows a hundredfold.
//!
//! # Under a model
//! one yield, then park: a model explores schedules, so the length of a wait means nothing to it.

use crate::prim::{spin_loop, yield_now};
use crate::stats::{self, Event};

/// Rounds of pauses: 8, 16, 32. From 0.3 to 1.3 us where a pause takes 40 ns: a few transfers of a
/// line, so that who is in the lock's line does several operations before it goes on.
/// Measured: 2, 4, 8 halves the rate of a read-write lock with two threads; 32, 64, 128 raises it by
/// half once more, and takes 15 to 25 % from threads that think between two operations.
const SPIN_ROUNDS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 3 };
/// Yields after the pauses.
const YIELD_ROUNDS: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 7 };

/// What a waiter does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "Park means that spinning on is a waste"]
pub enum Turn {
    /// The pause is over: look again.
    Again,
    /// Nothing came of it in time: go to sleep, or keep yielding where there is nothing to sleep
    /// on.
    Park,
}

/// The progress of one wait.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering::{Acquire, Release}};
/// use vfscale_sync::backoff::{Backoff, Turn};
///
/// let ready = AtomicBool::new(false);
/// std::thread::scope(|scope| {
///     scope.spawn(|| ready.store(true, Release));
///     let mut backoff = Backoff::new();
///     while !ready.load(Acquire) {
///         if backoff.pause() == Turn::Park {
///             std::thread::yield_now(); // or sleep, where somebody wakes us
///         }
///     }
/// });
/// ```
#[derive(Debug, Default)]
pub struct Backoff {
    round: u32,
}

impl Backoff {
    /// A wait that has not begun.
    #[must_use]
    pub const fn new() -> Self {
        Self { round: 0 }
    }

    /// Pauses or yields for one step, then says whether to look again or to sleep.
    ///
    /// When it answers [`Turn::Park`] it has not waited.
    #[inline]
    pub fn pause(&mut self) -> Turn {
        if self.spin() {
            return Turn::Again;
        }
        if self.round < SPIN_ROUNDS + YIELD_ROUNDS {
            self.round += 1;
            stats::count(Event::Spin);
            yield_now();
            return Turn::Again;
        }
        Turn::Park
    }

    /// Only the pauses: `false`, without having waited, once they are used up.
    ///
    /// For a waiter that must announce itself before it gives its processor away.
    #[inline]
    pub fn spin(&mut self) -> bool {
        if self.round >= SPIN_ROUNDS {
            return false;
        }
        self.round += 1;
        stats::count(Event::Spin);
        for _ in 0..4u32 << self.round {
            spin_loop();
        }
        true
    }

    /// One step of a wait that cannot sleep, because the other side never wakes anybody: it is
    /// between two instructions of its own.
    #[inline]
    pub fn pause_awake(&mut self) {
        if self.pause() == Turn::Park {
            yield_now();
        }
    }
}
