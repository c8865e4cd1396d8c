//! Sleeping on half a word, and waking by address.
//!
//! # Why
//! Every slow path ends here: [`park`] sleeps while a 32-bit word, or one half of a 64-bit one,
//! holds a value.
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
//! [`wake`] takes a raw pointer and never reads through it: the object may be gone already. A
//! thread that sleeps on whatever lives there now is woken for no reason, which the contract
//! allows.
//!
//! # One width
//! The kernel compares 32 bits. Rust code reads and writes the word in one width only.
//!
//! # Three bodies
//! futex (Linux with `std`) · a table with a condition variable per sleeper (loom, shuttle), which
//! loses a wake-up exactly when the protocol does · a pause or yield (elsewhere), so that the
//! caller's loop spins
//!
//! # Not modelled
//! The table's mutex orders waker and sleeper; a futex promises no such thing to Rust. So every
//! caller takes its orderings from its own words.

use crate::prim::{AtomicU32, AtomicU64};
#[cfg(feature = "std")]
use std::time::Instant;

/// The half of a 64-bit word that a sleeper compares: the less significant one.
pub(crate) const LOW_HALF: u64 = 0xffff_ffff;

/// Sleeps while the half of `word` that `mask` covers equals `expected` (given in place, not
/// shifted).
///
/// `mask` is one aligned half. The caller has made sure that the other half cannot matter: it is
/// frozen, or meaningless.
#[cold]
pub(crate) fn park(word: &AtomicU64, mask: u64, expected: u64) {
    debug_assert!(mask == LOW_HALF || mask == !LOW_HALF, "a futex compares one aligned half");
    debug_assert_eq!(expected & !mask, 0, "the expected value has bits outside its half");
    imp::park(word, mask, expected);
}

/// Wakes up to `n` sleepers of that half. Only the address is used.
#[cold]
pub(crate) fn wake(word: *const AtomicU64, mask: u64, n: u32) {
    imp::wake(half_address(word, mask), n);
}

/// Sleeps while `word` equals `expected`.
#[cold]
pub(crate) fn park32(word: &AtomicU32, expected: u32) {
    imp::park32(word, expected);
}

/// How a sleep with a deadline ended.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "TimedOut means that sleeping on is not wanted"]
pub enum Sleep {
    /// Woken, or the word differs, or for no reason: look again.
    Over,
    /// The deadline has passed.
    TimedOut,
}

/// Sleeps while `word` equals `expected`, but not beyond `deadline`.
#[cfg(feature = "std")]
#[cold]
pub(crate) fn park32_until(word: &AtomicU32, expected: u32, deadline: Instant) -> Sleep {
    imp::park32_until(word, expected, deadline)
}

/// Wakes up to `n` sleepers of `word`. Only the address is used.
#[cold]
pub(crate) fn wake32(word: *const AtomicU32, n: u32) {
    imp::wake(word.cast(), n);
}

/// Where the kernel finds the half that `mask` covers.
fn half_address(word: *const AtomicU64, mask: u64) -> *const u32 {
    let low_first = cfg!(target_endian = "little");
    let offset = usize::from((mask == LOW_HALF) != low_first);
    word.cast::<u32>().wrapping_add(offset)
}

#[cfg(all(feature = "std", target_os = "linux", not(any(loom, shuttle))))]
mod imp {
    use super::{AtomicU32, AtomicU64, Sleep, half_address};
    use std::time::{Duration, Instant};

    pub(super) fn park(word: &AtomicU64, mask: u64, expected: u64) {
        let expected = if mask == super::LOW_HALF { expected } else { expected >> 32 };
        futex_wait(half_address(word, mask), expected as u32, None);
    }

    pub(super) fn park32(word: &AtomicU32, expected: u32) {
        futex_wait(core::ptr::from_ref(word).cast(), expected, None);
    }

    pub(super) fn park32_until(word: &AtomicU32, expected: u32, deadline: Instant) -> Sleep {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Sleep::TimedOut;
        }
        futex_wait(core::ptr::from_ref(word).cast(), expected, Some(left));
        // The clock decides, not the kernel's answer: `Over` sends the caller round once more, and
        // here again.
        if Instant::now() < deadline { Sleep::Over } else { Sleep::TimedOut }
    }

    fn futex_wait(address: *const u32, expected: u32, at_most: Option<Duration>) {
        let at_most = at_most.map(|time| libc::timespec {
            // Beyond what the kernel counts is for ever, or a wake-up for no reason.
            tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: time.subsec_nanos() as libc::c_long,
        });
        let at_most = at_most.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: the kernel reads 32 bits at `address`, which lies inside an atomic word that the
        // caller borrows for the whole call, and the time, which is null or lives in this frame; it
        // writes nothing. Every outcome (woken, value differs, interrupted, too late) means the
        // same to the caller: look again.
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
        // SAFETY: a private wake uses `address` as a key and does not read through it, so it may
        // even be stale.
        unsafe {
            libc::syscall(libc::SYS_futex, address, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, n);
        }
    }
}

#[cfg(all(not(all(feature = "std", target_os = "linux")), not(any(loom, shuttle))))]
mod imp {
    use super::{AtomicU32, AtomicU64};

    /// Nothing to sleep on: give the processor away where that is possible, and let the caller look
    /// again.
    pub(super) fn park(_: &AtomicU64, _: u64, _: u64) {
        crate::prim::yield_now();
    }

    pub(super) fn park32(_: &AtomicU32, _: u32) {
        crate::prim::yield_now();
    }

    #[cfg(feature = "std")]
    pub(super) fn park32_until(
        _: &AtomicU32,
        _: u32,
        deadline: std::time::Instant,
    ) -> super::Sleep {
        crate::prim::yield_now();
        if std::time::Instant::now() < deadline {
            super::Sleep::Over
        } else {
            super::Sleep::TimedOut
        }
    }

    pub(super) fn wake(_: *const u32, _: u32) {}
}

#[cfg(any(loom, shuttle))]
mod imp {
    use super::{AtomicU32, AtomicU64, Sleep, half_address};
    use crate::prim::Ordering::Relaxed;
    use std::time::Instant;

    #[cfg(loom)]
    use loom as model;
    #[cfg(not(loom))]
    use shuttle as model;

    use model::sync::{Condvar, Mutex};
    // Not the model's: a deadlock that the model reports unwinds through the sleepers, and no word
    // of theirs may take part.
    use std::sync::Arc;

    struct Sleeper {
        address: usize,
        ticket: u64,
        bell: Arc<Condvar>,
    }

    #[derive(Default)]
    struct Table {
        tickets: u64,
        sleepers: Vec<Sleeper>,
    }

    model::lazy_static! {
        static ref TABLE: Mutex<Table> = Mutex::new(Table::default());
    }

    impl Table {
        fn push(&mut self, address: *const u32) -> (u64, Arc<Condvar>) {
            self.tickets += 1;
            let bell = Arc::new(Condvar::new());
            let (address, ticket) = (address.addr(), self.tickets);
            self.sleepers.push(Sleeper { address, ticket, bell: bell.clone() });
            (ticket, bell)
        }

        fn place_of(&self, ticket: u64) -> Option<usize> {
            self.sleepers.iter().position(|s| s.ticket == ticket)
        }
    }

    /// Compares and enqueues in one step under the table's lock, as the kernel does under its
    /// bucket's.
    fn sleep(address: *const u32, still_expected: impl FnOnce() -> bool) {
        let mut table = TABLE.lock().unwrap();
        if !still_expected() {
            return;
        }
        let (ticket, bell) = table.push(address);
        while table.place_of(ticket).is_some() {
            table = bell.wait(table).unwrap();
        }
    }

    /// The deadline passes as soon as the model lets us run again, unless a waker took us off the
    /// table first.
    pub(super) fn park32_until(word: &AtomicU32, expected: u32, _: Instant) -> Sleep {
        let mut table = TABLE.lock().unwrap();
        // Relaxed: as in `park`.
        if word.load(Relaxed) != expected {
            return Sleep::Over;
        }
        let (ticket, _) = table.push(core::ptr::from_ref(word).cast());
        drop(table);
        model::thread::yield_now();
        let mut table = TABLE.lock().unwrap();
        match table.place_of(ticket) {
            Some(at) => {
                table.sleepers.remove(at);
                Sleep::TimedOut
            }
            None => Sleep::Over,
        }
    }

    pub(super) fn park(word: &AtomicU64, mask: u64, expected: u64) {
        // Relaxed: a waker takes the table's lock after its store, so a sleeper that comes later
        // sees that store.
        sleep(half_address(word, mask), || word.load(Relaxed) & mask == expected);
    }

    pub(super) fn park32(word: &AtomicU32, expected: u32) {
        // Relaxed: as above.
        sleep(core::ptr::from_ref(word).cast(), || word.load(Relaxed) == expected);
    }

    pub(super) fn wake(address: *const u32, n: u32) {
        let mut table = TABLE.lock().unwrap();
        for _ in 0..n {
            let Some(at) = table.sleepers.iter().position(|s| s.address == address.addr()) else {
                break;
            };
            table.sleepers.remove(at).bell.notify_one();
        }
    }
}

#[cfg(all(test, feature = "std", not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::prim::Ordering::Relaxed;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn a_deadline_ends_a_sleep_and_is_no_earlier() {
        let word = AtomicU32::new(7);
        let deadline = Instant::now() + Duration::from_millis(30);
        while park32_until(&word, 7, deadline) == Sleep::Over {}
        assert!(Instant::now() >= deadline);
        assert_eq!(park32_until(&word, 7, deadline), Sleep::TimedOut, "already past");
    }

    #[test]
    fn a_word_that_differs_ends_it_at_once() {
        let word = AtomicU32::new(8);
        let start = Instant::now();
        assert_eq!(park32_until(&word, 7, start + Duration::from_secs(60)), Sleep::Over);
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_wake_up_ends_it_before_the_deadline() {
        let word = AtomicU32::new(0);
        thread::scope(|s| {
            s.spawn(|| {
                thread::sleep(Duration::from_millis(10));
                // Relaxed: the futex hands nothing over, and nothing else is read.
                word.store(1, Relaxed);
                wake32(&raw const word, 1);
            });
            let far = Instant::now() + Duration::from_secs(60);
            while word.load(Relaxed) == 0 {
                assert_eq!(park32_until(&word, 0, far), Sleep::Over);
            }
        });
    }

    #[test]
    fn a_deadline_beyond_all_times_is_none() {
        let word = AtomicU32::new(0);
        let far = Instant::now() + Duration::from_secs(u64::from(u32::MAX) * 1000);
        thread::scope(|s| {
            s.spawn(|| {
                thread::sleep(Duration::from_millis(5));
                word.store(1, Relaxed);
                wake32(&raw const word, 1);
            });
            while word.load(Relaxed) == 0 {
                assert_eq!(park32_until(&word, 0, far), Sleep::Over);
            }
        });
    }
}
