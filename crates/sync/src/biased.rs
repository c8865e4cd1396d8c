//! A lock that is nearly free for one thread, at the expense of all others.
//!
//! # Why
//! A thread's garbage bag and free lists are its own, except in the rare moment when somebody must go through those of all
//! threads. The owner pays two stores and a compiler fence; a thief pays a barrier on every processor.
//!
//! # Words
//! `busy`: the owner is inside. `stolen`: a thief is inside, or wants to be.
//!
//! # Who writes
//! `busy`: the owner. `stolen`: a thief wins it by compare-exchange and clears it. The value: the one of them that is inside.
//!
//! # A race, step by step
//! ```text
//!   owner                         thief
//!   busy = 1                      stolen = 1
//!   light()                       heavy()
//!   stolen? yes: back off         busy? wait until it is 0
//! ```
//! At least one of them sees the other (BL-1). The owner gives way, so the thief waits only for a short visit to end.
//!
//! # Orderings
//! - BL-1 `light` in `own` -> `heavy` in `steal`: the asymmetric fence.
//! - BL-2 each clearing of `busy` (Release) -> the thief's look (Acquire); also when the owner merely backs off, since that
//!   store may be the one the thief reads. (Where `light` is a real fence, that fence would do; a compiler fence does not.)
//! - BL-3 the clearing of `stolen` (Release) -> the owner's look, and the next thief's (Acquire).
//!
//! # Distrust
//! Both sides wait by yielding, so visits are short, and a visitor never comes back inside.
//!
//! # Source
//! Biased locking, as Java's virtual machine had it, with `membarrier` in place of a safepoint.

use crate::fence;
use crate::prim::{AtomicU32, Ordering, yield_now};
use std::cell::UnsafeCell;

/// A value with one owner thread and rare thieves.
///
/// # Invariants
/// `value` is reached by the owner between setting `busy`, finding `stolen` clear after it, and clearing `busy`; by a thief
/// between winning `stolen`, finding `busy` clear after it, and clearing `stolen`; by nobody else.
pub struct Biased<T> {
    busy: AtomicU32,
    stolen: AtomicU32,
    value: UnsafeCell<T>,
}

impl<T> std::fmt::Debug for Biased<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Biased").finish_non_exhaustive()
    }
}

// SAFETY: one thread at a time reaches the value (type invariant), so it is sent, not shared.
unsafe impl<T: Send> Sync for Biased<T> {}

impl<T> Biased<T> {
    /// A value that nobody has touched yet.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Biased { busy: AtomicU32::new(0), stolen: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// A value that nobody has touched yet.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Biased { busy: AtomicU32::new(0), stolen: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Lends the value to the owner.
    ///
    /// # Safety
    /// The caller is the only thread that calls this now (the ownership passes with a happens-before edge), and `f` does not
    /// come back here.
    #[inline]
    pub unsafe fn own<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // Relaxed: the fence orders it against the load of `stolen`.
        self.busy.store(1, Ordering::Relaxed);
        // BL-1
        fence::light();
        // BL-3 Acquire: after what the last thief did.
        if self.stolen.load(Ordering::Acquire) != 0 {
            self.give_way();
        }
        // Also when `f` panics: a thief waits for it.
        let _busy = Release(&self.busy);
        // SAFETY: `busy` is set and there was no thief after we set it, so none enters before we clear it; no other owner and
        // no second visit of ours (contract).
        f(unsafe { &mut *self.value.get() })
    }

    #[cold]
    fn give_way(&self) {
        loop {
            // BL-2 Release. unmodelled release: under a model the light barrier before it is a full one, and releases.
            self.busy.store(0, Ordering::Release);
            while self.stolen.load(Ordering::Relaxed) != 0 {
                yield_now();
            }
            self.busy.store(1, Ordering::Relaxed);
            // BL-1
            fence::light();
            // BL-3 Acquire.
            if self.stolen.load(Ordering::Acquire) == 0 {
                return;
            }
        }
    }

    /// Lends the value to any thread; the owner waits meanwhile. `f` should be short, and must not come back here: it would
    /// wait for itself.
    pub fn steal<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // BL-3 Acquire: after what the last thief did. unmodelled acquire: the barrier that follows does it too.
        while self.stolen.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            yield_now();
        }
        // BL-1
        fence::heavy();
        // BL-2 Acquire: after what the owner did.
        while self.busy.load(Ordering::Acquire) != 0 {
            yield_now();
        }
        let release = Release(&self.stolen);
        // SAFETY: we won `stolen`, and the owner, seen outside, waits while it is set.
        let result = f(unsafe { &mut *self.value.get() });
        drop(release);
        result
    }
}

/// Lets the other side in again, also when this one panics.
struct Release<'a>(&'a AtomicU32);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        // BL-2 Release, of the owner: what it did, before a thief. BL-3 Release, of a thief: what it did, before the owner.
        self.0.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn owner_and_thieves_exclude_each_other() {
        let biased = Biased::new((0_u64, 0_u64));
        crate::testing::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..200_000 {
                    // SAFETY: the only caller.
                    unsafe {
                        biased.own(|pair| {
                            pair.0 += 1;
                            pair.1 += 1;
                        });
                    }
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        biased.steal(|pair| {
                            assert_eq!(pair.0, pair.1);
                            pair.0 += 1;
                            pair.1 += 1;
                        });
                    }
                });
            }
        });
        assert_eq!(biased.steal(|pair| *pair), (200_400, 200_400));
    }
}
