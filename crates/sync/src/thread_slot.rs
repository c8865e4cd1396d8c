//! Small dense numbers for threads, reused when a thread ends.
//!
//! # Why
//! A statistic, a free list or a list head per thread wants an index into a short array, not a thread id. The numbers are
//! dense (the lowest free one is given first), so that a program with eight threads touches eight shards however many threads
//! it has started and ended.
//!
//! # Sole ownership
//! While a thread holds a number no other thread has it, and the thread that gets it next *happens after* the last one (the
//! registry's mutex, `TS-1`). So data behind a number may be written with plain loads and stores by its owner.
//!
//! # Ends of threads
//! The number goes back in a thread-local destructor. Other destructors of the same thread may still run after that: they see
//! [`NONE`], as do all threads under a model checker, and must take the shared path that everything indexed by thread has.

/// What [`current`] says when this thread has no number: use the shared path.
pub(crate) const NONE: usize = usize::MAX;

#[cfg(not(any(loom, shuttle)))]
pub(crate) use native::{current, given};

/// Under a model no thread has a number: the code below takes its shared path.
#[cfg(shuttle)]
pub(crate) fn current() -> usize {
    NONE
}

/// No number is ever given under a model.
#[cfg(shuttle)]
pub(crate) fn given() -> usize {
    0
}

#[cfg(not(any(loom, shuttle)))]
mod native {
    use super::NONE;
    use crate::mutex::Mutex;
    use crate::prim::{AtomicUsize, Ordering};
    use std::cell::Cell;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    /// Not asked for yet.
    const UNSET: usize = usize::MAX - 1;

    struct Registry {
        /// Numbers given back, the lowest on top.
        free: BinaryHeap<Reverse<usize>>,
        /// The lowest number never given.
        next: usize,
    }

    static REGISTRY: Mutex<Registry> = Mutex::new(Registry { free: BinaryHeap::new(), next: 0 });

    /// `Registry::next`, for readers without the lock.
    static GIVEN: AtomicUsize = AtomicUsize::new(0);

    /// Gives the number back when the thread ends.
    struct Owned(usize);

    impl Drop for Owned {
        fn drop(&mut self) {
            // First: whoever runs later in this thread must not use a number that may have a new owner.
            NUMBER.set(NONE);
            // TS-1 (mutex): all this thread did with its number comes before the next owner.
            let mut registry = REGISTRY.lock();
            registry.free.push(Reverse(self.0));
        }
    }

    thread_local! {
        // Without a destructor, so that the fast path is one load and one compare.
        static NUMBER: Cell<usize> = const { Cell::new(UNSET) };
        static OWNED: Owned = Owned(take());
    }

    fn take() -> usize {
        // TS-1 (mutex): after everything the last owner did.
        let mut registry = REGISTRY.lock();
        if let Some(Reverse(number)) = registry.free.pop() {
            return number;
        }
        registry.next += 1;
        // Relaxed: who looks at what belongs to a number is ordered after its owner by other means.
        GIVEN.store(registry.next, Ordering::Relaxed);
        registry.next - 1
    }

    /// All numbers ever given are below this.
    pub(crate) fn given() -> usize {
        GIVEN.load(Ordering::Relaxed)
    }

    /// The number of the running thread, or [`NONE`].
    #[inline]
    pub(crate) fn current() -> usize {
        let number = NUMBER.get();
        if number == UNSET { first_time() } else { number }
    }

    #[cold]
    fn first_time() -> usize {
        // The registry's lock may be counted, by thread: whatever runs in here takes the shared path.
        NUMBER.set(NONE);
        let number = OWNED.try_with(|owned| owned.0).unwrap_or(NONE);
        NUMBER.set(number);
        number
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Barrier;

    #[test]
    fn a_number_is_stable_within_a_thread() {
        assert_eq!(current(), current());
        assert_ne!(current(), NONE);
    }

    #[test]
    fn live_threads_have_different_numbers() {
        let together = Barrier::new(8);
        let seen: HashSet<_> = crate::testing::scope(|scope| {
            let number = || {
                let number = current();
                together.wait();
                number
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(number)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(seen.len(), 8);
    }

    #[test]
    fn numbers_of_ended_threads_are_reused() {
        let highest = (0..200).map(|_| std::thread::spawn(current).join().unwrap()).max().unwrap();
        // Other tests of this binary run beside this one, so not exactly the number of live threads.
        assert!(highest < 150, "number {highest} after 200 threads, one at a time");
    }
}
