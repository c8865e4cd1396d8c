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
    use super::{AtomicU32, AtomicU64, half_address};

    pub(super) fn park(word: &AtomicU64, mask: u64, expected: u64) {
        let expected = if mask == super::LOW_HALF { expected } else { expected >> 32 };
        futex_wait(half_address(word, mask), expected as u32);
    }

    pub(super) fn park32(word: &AtomicU32, expected: u32) {
        futex_wait(core::ptr::from_ref(word).cast(), expected);
    }

    fn futex_wait(address: *const u32, expected: u32) {
        let forever = core::ptr::null::<libc::timespec>();
        // SAFETY: the kernel reads 32 bits at `address`, which lies inside an atomic word that the
        // caller borrows for the whole call; it writes nothing. Every outcome (woken, value
        // differs, interrupted) means the same to the caller: look again.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                address,
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                expected,
                forever,
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

    pub(super) fn wake(_: *const u32, _: u32) {}
}

#[cfg(any(loom, shuttle))]
mod imp {
    use super::{AtomicU32, AtomicU64, half_address};
    use crate::prim::Ordering::Relaxed;

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

    /// Compares and enqueues in one step under the table's lock, as the kernel does under its
    /// bucket's.
    fn sleep(address: *const u32, still_expected: impl FnOnce() -> bool) {
        let mut table = TABLE.lock().unwrap();
        if !still_expected() {
            return;
        }
        table.tickets += 1;
        let ticket = table.tickets;
        let bell = Arc::new(Condvar::new());
        table.sleepers.push(Sleeper { address: address.addr(), ticket, bell: bell.clone() });
        while table.sleepers.iter().any(|s| s.ticket == ticket) {
            table = bell.wait(table).unwrap();
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
