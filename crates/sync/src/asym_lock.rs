//! The lock under [`QMutex`] and `combining`: unlocking is a plain store, and the sleeper pays.
//!
//! # Why
//! A lock that lets its waiters sleep must learn at unlock whether somebody does. An exchange of
//! the lock word tells, and costs as much as taking the lock did. Sleepers are rare, so here they
//! alone pay: with a barrier on every processor of the process ([`crate::fence`]).
//!
//! # Words
//! `word`: FREE · HELD · HELD+ASLEEP (see below) · GATED (free, but for the head alone)
//! `flag`: ASLEEP the head sleeps on this word · GATED it has been passed often enough
//!
//! # Who writes
//! `word`: FREE to HELD anyone, GATED to HELD the head; back the holder; ASLEEP the head. `flag`:
//! the head; the holder clears ASLEEP when it wakes. There is one head at a time: the owner keeps a
//! queue, and its first thread alone calls [`AsymLock::lock_as_head`].
//!
//! # A race, step by step
//! ```text
//!  T1 holder                             T2 head
//!  word := FREE                          flag := ASLEEP
//!  light                                 heavy
//!  reads `flag`: wakes if ASLEEP         tries again if `word` is free
//!                                        sleeps while `flag` is unchanged
//! ```
//! T1 sees ASLEEP or T2 sees the lock free. T2 sleeps on the flag, which T1 clears, not on the
//! lock, which a third thread may take again before T2 is asleep.
//!
//! # Without the barrier
//! Where the system has none, T2 adds ASLEEP to HELD and T1 exchanges `word`: it finds the bit, or
//! T2 finds the lock free. A process begins in this form and goes over to the other when a sleeper
//! asks for the barrier. A sleeper knows which is in use. A holder that has not heard yet exchanges,
//! and looks at the flag too.
//!
//! # Fairness
//! Newcomers may pass the queue while the lock is free. A head that slept and still did not get it
//! closes the gate: the next unlock leaves GATED, which a newcomer's compare-exchange does not
//! take. So the gate costs the fast path no look at a second word: reading the line before the
//! compare-exchange would fetch it twice.
//!
//! # Orderings
//! - AL-1 unlock (Release) -> lock (Acquire): what the lock guards
//! - AL-2 holder: free, light, reads `flag` -> sleeper: sets `flag`, heavy, reads `word`
//! - AL-3 sleeper: sets `flag`, then ASLEEP in `word` (Release) -> the holder's exchange (Acquire):
//!   it finds the flag set, and clears it
//!
//! # Distrust
//! The holder reads `flag` after it unlocked, so an object must not be freed by its own unlock. A
//! safe owner cannot do so: the holder borrows it.
//!
//! # Source
//! Our own, after what was measured: strict queueing is seven times slower on two processors, and
//! an exchange at unlock doubles the free case.
//!
//! [`QMutex`]: crate::QMutex

use crate::backoff::{Backoff, Turn};
use crate::park::{park32, wake32};
use crate::prim::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::prim::{AtomicU32, compiler_fence, const_fn};
use crate::stats::{self, Event};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Only the head may take the lock, or will be the only one from the next unlock on.
const GATED: u32 = 2;
/// The head sleeps.
const ASLEEP: u32 = 4;

/// A mutual exclusion without data, guard or queue: its owner has them.
#[derive(Debug)]
pub(crate) struct AsymLock {
    word: AtomicU32,
    flag: AtomicU32,
    /// A model says which form it is about.
    #[cfg(loom)]
    is_asymmetric: bool,
}

impl AsymLock {
    const_fn! {
        pub(crate) fn new() -> Self {
            Self {
                word: AtomicU32::new(FREE),
                flag: AtomicU32::new(0),
                #[cfg(loom)]
                is_asymmetric: true,
            }
        }
    }

    /// A lock whose unlock exchanges.
    #[cfg(loom)]
    pub(crate) fn symmetric() -> Self {
        Self { is_asymmetric: false, ..Self::new() }
    }

    /// Takes the lock if it is free and the gate open.
    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        // AL-1 Acquire: what the last holder left.
        self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    /// Tries while it is worth it; then the caller queues.
    pub(crate) fn lock_for_a_while(&self) -> bool {
        stats::count(Event::QmutexContended);
        // Somebody waits, so the process has a use for the barrier from here on.
        #[cfg(feature = "std")]
        crate::fence::prepare();
        let mut backoff = Backoff::new();
        while backoff.pause() == Turn::Again {
            // Relaxed: only a look, which leaves the line with its holder; `try_lock` decides.
            match self.word.load(Relaxed) {
                FREE if self.try_lock() => return true,
                GATED => return false,
                _ => {}
            }
        }
        false
    }

    /// The head of the queue takes the lock, in competition with newcomers until it has lost too
    /// often.
    pub(crate) fn lock_as_head(&self) {
        let mut gate = 0;
        loop {
            let mut backoff = Backoff::new();
            loop {
                if self.take_as_head() {
                    return;
                }
                if backoff.pause() == Turn::Park {
                    break;
                }
            }
            self.sleep(gate);
            gate = GATED;
        }
    }

    fn take_as_head(&self) -> bool {
        // Relaxed: only a look, as above.
        let free = self.word.load(Relaxed);
        // AL-1 Acquire: what the last holder left.
        let taken =
            free & HELD == 0 && self.word.compare_exchange(free, HELD, Acquire, Relaxed).is_ok();
        if taken {
            // Relaxed: opens the gate and forgets our sleep. The next unlock, or the next head, is
            // ours or comes after ours; a waker that clears ASLEEP now wakes nobody, or that head.
            self.flag.store(0, Relaxed);
        }
        taken
    }

    #[cold]
    fn sleep(&self, gate: u32) {
        // Relaxed: ordered by the fence (AL-2) or by the change of `word` (AL-3).
        self.flag.store(ASLEEP | gate, Relaxed);
        if self.announce() {
            park32(&self.flag, ASLEEP | gate);
        }
    }

    /// Makes sure that the next unlock learns of our sleep; `false` if it may be past already.
    fn announce(&self) -> bool {
        #[cfg(feature = "std")]
        crate::fence::prepare();
        if self.is_asymmetric() {
            // AL-2: set, heavy, read.
            #[cfg(feature = "std")]
            crate::fence::heavy();
            // Relaxed: ordered by the fence.
            return self.word.load(Relaxed) & HELD != 0;
        }
        // Relaxed: the compare-exchange decides.
        let mut word = self.word.load(Relaxed);
        while word & HELD != 0 {
            // AL-3 Release: the flag. Also if ASLEEP is there already, from an earlier sleep: the
            // exchange at unlock must come after *this* change, or it need not find the flag.
            // unmodelled release: under loom the flag is there for all as soon as it is stored.
            match self.word.compare_exchange(word, HELD | ASLEEP, Release, Relaxed) {
                Ok(_) => return true,
                Err(found) => word = found,
            }
        }
        false
    }

    /// Gives the lock back. Only the holder may.
    #[inline]
    pub(crate) fn unlock(&self) {
        // Relaxed: a gate that closes now takes effect at the next unlock. One we find closed is
        // that of a head which cannot leave before it had the lock.
        let free = self.flag.load(Relaxed) & GATED;
        let told = if self.is_asymmetric() {
            // AL-1 Release: what the lock guards.
            self.word.store(free, Release);
            0
        } else {
            // AL-1 Release: what the lock guards. AL-3 Acquire: the flag, if we are told of it.
            // unmodelled acquire: the flag is taken back by a read-modify-write, which under loom always finds the newest.
            self.word.swap(free, AcqRel)
        };
        // AL-2: free, light, read. Light means for the compiler alone: either the sleeper has the
        // barrier, or it tells us by `word`.
        compiler_fence(SeqCst);
        // Relaxed: ordered by the fence.
        let sleeper = told | self.flag.load(Relaxed);
        if sleeper & ASLEEP != 0 {
            self.wake_head();
        }
    }

    #[cold]
    fn wake_head(&self) {
        // Relaxed: the flag carries no data. Who clears the bit wakes.
        if self.flag.fetch_and(!ASLEEP, Relaxed) & ASLEEP != 0 {
            wake32(&raw const self.flag, 1);
        }
    }

    /// Whether an unlock may be a plain store.
    #[inline(always)]
    fn is_asymmetric(&self) -> bool {
        #[cfg(loom)]
        return self.is_asymmetric;
        #[cfg(shuttle)]
        return true;
        #[cfg(all(feature = "std", not(any(loom, shuttle))))]
        return crate::fence::is_chosen();
        #[cfg(all(not(feature = "std"), not(any(loom, shuttle))))]
        return false;
    }
}

#[cfg(all(test, feature = "std", not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    /// R4.7, deterministic: a head that slept and was passed has the lock to itself from the next
    /// unlock on, however eagerly another thread tries.
    #[test]
    fn r4_7_a_head_that_was_passed_closes_the_gate() {
        let lock = AsymLock::new();
        let (had, done) = (AtomicBool::new(false), AtomicBool::new(false));
        assert!(lock.try_lock());
        crate::testing::scope(|scope| {
            scope.spawn(|| {
                lock.lock_as_head();
                had.store(true, Release);
                while !done.load(Acquire) {
                    thread::yield_now();
                }
                lock.unlock();
            });
            while lock.flag.load(Relaxed) != ASLEEP {
                thread::yield_now();
            }
            // Wakes it without unlocking, which to the head is as if a third thread had been
            // faster.
            lock.wake_head();
            while lock.flag.load(Relaxed) != ASLEEP | GATED {
                thread::yield_now();
            }
            lock.unlock();
            let mut passed = 0;
            loop {
                // Looked at first: what is taken after this was taken past the head.
                let over = had.load(Acquire);
                passed += u32::from(lock.try_lock());
                if passed > 0 {
                    lock.unlock();
                }
                if over || passed > 0 {
                    break;
                }
            }
            done.store(true, Release);
            assert_eq!(passed, 0, "taken past a head that had closed the gate");
        });
        assert_eq!((lock.word.load(Relaxed), lock.flag.load(Relaxed)), (FREE, 0));
    }

    /// The gate opens when the head has had its turn.
    #[test]
    fn the_gate_opens_again() {
        let lock = AsymLock::new();
        lock.flag.store(GATED, Relaxed);
        assert!(lock.try_lock());
        lock.unlock();
        assert!(!lock.try_lock() && !lock.lock_for_a_while());
        lock.lock_as_head();
        lock.unlock();
        assert!(lock.try_lock());
    }
}
