//! The form that the fget thread's replies proposed and nobody built: a pair of exchanges.
//!
//! # Why
//! An exchange never fails, so competitors cost no retries; and between the two the owner can look at
//! the count and refuse, which an addition cannot.
//!
//! # Word
//! the references, 0 is dead · RESERVED: somebody is between its two exchanges
//!
//! # An operation
//! ```text
//!  T1 get                                T2 put
//!  swaps in RESERVED: finds 1
//!                                        swaps in RESERVED: finds RESERVED, waits until it is gone
//!  stores 2
//!                                        swaps in RESERVED: finds 2, stores 1
//! ```
//!
//! # What follows
//! - It **blocks**: a thread that loses its processor between the two stops everybody else for that
//!   long. RESERVED is a lock in the word.
//! - Every writer has to go this way: an addition that lands in between would be overwritten, or would
//!   make RESERVED something else.
//! - A reader that finds RESERVED knows nothing, and waits.
//! - A refused get writes the line, twice.
//!
//! # Orderings
//! - XR-1 the store that ends an operation (Release) -> the exchange that begins the next (Acquire):
//!   all that was done before it, so uses come before destruction, and a cleared entry before the
//!   get that comes later
//!
//! # Source
//! Replies of the fget thread (2020).

use super::{GetFile, PutFile};
use crate::backoff::Backoff;
use crate::prim::Ordering::{Acquire, Relaxed, Release};
use crate::prim::{AtomicU64, const_fn};

/// Not reached by counting.
const RESERVED: u64 = u64::MAX;
/// More is refused.
const MAX: u64 = u64::MAX / 2;

/// An experimental reference count whose operations each swap a reserved value in and the result back.
///
/// For comparison: it blocks, as its module says. Take [`FileRef`](crate::FileRef).
///
/// ```
/// use vfscale_sync::experimental::ReservedXchg;
/// use vfscale_sync::{GetFile, PutFile};
///
/// let refs = ReservedXchg::new();
/// assert_eq!(refs.get(), GetFile::Taken);
/// assert_eq!(refs.put(), PutFile::StillLive);
/// assert_eq!(refs.put(), PutFile::Last);
/// assert_eq!(refs.get(), GetFile::Dead);
/// ```
#[derive(Debug)]
pub struct ReservedXchg(AtomicU64);

impl ReservedXchg {
    const_fn! {
        /// One reference.
        #[must_use]
        pub fn new() -> Self {
            Self(AtomicU64::new(1))
        }
    }

    /// Takes a reference if the object lives. The object must be readable: held, or found inside a
    /// read-side section. Blocks while another operation is under way.
    #[inline]
    pub fn get(&self) -> GetFile {
        match self.update(|count| if (1..MAX).contains(&count) { count + 1 } else { count }) {
            1..MAX => GetFile::Taken,
            _ => GetFile::Dead,
        }
    }

    /// Drops a reference. After [`PutFile::Last`] no get succeeds any more, and the caller destroys.
    /// Blocks while another operation is under way.
    ///
    /// # Panics
    /// If the object is dead: a reference was dropped twice.
    #[inline]
    pub fn put(&self) -> PutFile {
        match self.update(|count| count.saturating_sub(1)) {
            0 => panic!("ReservedXchg: put on a dead object: a reference was dropped twice"),
            1 => PutFile::Last,
            _ => PutFile::StillLive,
        }
    }

    /// Exchanges the count for another and answers the former. `next` must not panic or block.
    #[inline]
    fn update(&self, next: impl FnOnce(u64) -> u64) -> u64 {
        // XR-1 Acquire: what was done before.
        let mut count = self.0.swap(RESERVED, Acquire);
        if count == RESERVED {
            count = self.reserve_slow();
        }
        // XR-1 Release: what we did before. (loom does not put a plain store in order with exchanges of
        // other threads, and lets them find RESERVED for ever.)
        if cfg!(loom) {
            self.0.swap(next(count), Release);
        } else {
            // unmodelled: a model takes the exchange in its place.
            self.0.store(next(count), Release);
        }
        count
    }

    #[cold]
    fn reserve_slow(&self) -> u64 {
        let mut backoff = Backoff::new();
        loop {
            // Who is between its exchanges wakes nobody.
            backoff.pause_awake();
            // Relaxed: the exchange re-checks it. (For loom see `update`.)
            if cfg!(not(loom)) && self.0.load(Relaxed) == RESERVED {
                continue;
            }
            // XR-1 Acquire: as in `update`.
            let count = self.0.swap(RESERVED, Acquire);
            if count != RESERVED {
                return count;
            }
        }
    }

    /// How many references there were a moment ago. Blocks while an operation is under way.
    #[must_use]
    pub fn count(&self) -> u64 {
        let mut backoff = Backoff::new();
        loop {
            // Relaxed: a hint.
            match self.0.load(Relaxed) {
                RESERVED => backoff.pause_awake(),
                count => return count,
            }
        }
    }
}

impl Default for ReservedXchg {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn one_who_stops_between_the_exchanges_stops_everybody() {
        let refs = ReservedXchg::new();
        let through = AtomicBool::new(false);
        crate::testing::scope(|s| {
            // As if this thread had lost its processor.
            let count = refs.0.swap(RESERVED, Acquire);
            let other = s.spawn(|| {
                assert_eq!(refs.get(), GetFile::Taken);
                through.store(true, Relaxed);
            });
            thread::sleep(Duration::from_millis(30));
            assert!(!through.load(Relaxed), "it went past a reserved word");
            refs.0.store(count, Release);
            other.join().unwrap();
        });
        assert_eq!(refs.count(), 2);
    }

    #[test]
    fn no_count_is_lost() {
        let refs = ReservedXchg::new();
        crate::testing::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..20_000 {
                        assert_eq!(refs.get(), GetFile::Taken);
                        assert_eq!(refs.put(), PutFile::StillLive);
                    }
                });
            }
        });
        assert_eq!((refs.count(), refs.put(), refs.get()), (1, PutFile::Last, GetFile::Dead));
    }

    #[test]
    #[should_panic(expected = "dropped twice")]
    fn a_put_of_the_dead_is_caught() {
        let refs = ReservedXchg::new();
        assert_eq!(refs.put(), PutFile::Last);
        let _ = refs.put();
    }
}
