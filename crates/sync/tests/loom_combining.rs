//! The combining lock under list batching, under every schedule of the smallest cases. A lost
//! wake-up is a deadlock, which loom reports; an operation done twice or not at all shows in the
//! sum.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom_combining`
#![cfg(loom)]

mod loom_common;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;
use loom_common::check;
use vfscale_sync::Combiner;
use vfscale_sync::combining::{Apply, Combining};

/// A sum that loom watches, and a copy of it that is read without the lock, as a slot's links are.
struct Sum {
    total: UnsafeCell<u32>,
    copy: Arc<AtomicU32>,
}

impl Apply for Sum {
    type Op = u32;

    fn apply(&mut self, op: u32) -> bool {
        // SAFETY: locked; loom fails if it is not so.
        self.total.with_mut(|total| unsafe { *total += op });
        // Relaxed: what orders it is the return from the queue (CB-3) or our own program.
        self.copy.store(self.copy.load(Relaxed) + op, Relaxed);
        true
    }
}

#[derive(Clone)]
struct Shared {
    sum: Arc<Combining<Sum, 1>>,
    copy: Arc<AtomicU32>,
}

fn new_shared() -> Shared {
    let copy = Arc::new(AtomicU32::new(0));
    let sum = Sum { total: UnsafeCell::new(0), copy: copy.clone() };
    Shared { sum: Arc::new(Combining::new(sum)), copy }
}

/// Adds a part of its own digit, and finds it in the copy on return.
fn add(shared: &Shared, part: u32) {
    assert!(shared.sum.run(part));
    assert_ne!(shared.copy.load(Relaxed) & part, 0, "our own operation is not there on return");
}

fn total(shared: &Shared) -> u32 {
    // SAFETY: locked.
    shared.sum.lock().total.with(|total| unsafe { *total })
}

fn spawn(shared: &Shared, f: impl FnOnce(&Shared) + 'static) -> thread::JoinHandle<()> {
    let shared = shared.clone();
    thread::spawn(move || f(&shared))
}

/// One holder, one head that sleeps on the flag.
#[test]
fn two_operations() {
    check("two_operations", None, || {
        let shared = new_shared();
        let other = spawn(&shared, |shared| add(shared, 1));
        add(&shared, 16);
        other.join().unwrap();
        assert_eq!(total(&shared), 17);
    });
}

/// A holder, a head, and one behind it: done by the head (a batch is one under a model) or by
/// itself.
#[test]
fn two_queued_and_a_combiner() {
    check("two_queued_and_a_combiner", Some(3), || {
        let shared = new_shared();
        let first = spawn(&shared, |shared| add(shared, 1));
        let second = spawn(&shared, |shared| add(shared, 16));
        add(&shared, 256);
        first.join().unwrap();
        second.join().unwrap();
        assert_eq!(total(&shared), 273);
    });
}

/// One that wants the whole structure stands in the queue among operations.
#[test]
fn a_borrower_in_the_queue() {
    check("a_borrower_in_the_queue", Some(3), || {
        let shared = new_shared();
        let first = spawn(&shared, |shared| add(shared, 1));
        let whole = spawn(&shared, |shared| {
            assert!(shared.sum.lock().apply(16));
        });
        add(&shared, 256);
        first.join().unwrap();
        whole.join().unwrap();
        assert_eq!(total(&shared), 273);
    });
}

/// A number on one thread's stack that another reaches.
struct Lent(UnsafeCell<u32>);

// SAFETY: only reached by the closure while its owner waits, and by the owner otherwise; loom fails
// if it is not so.
unsafe impl Sync for Lent {}

impl Lent {
    fn get(&self) -> u32 {
        // SAFETY: see the type.
        self.0.with(|number| unsafe { *number })
    }

    fn set(&self, n: u32) {
        // SAFETY: see the type.
        self.0.with_mut(|number| unsafe { *number = n });
    }
}

/// Closures go with the node and their answers come back with DONE: loom watches both, on the
/// stacks of the threads that wait.
#[test]
fn closures_and_answers_cross_threads() {
    check("closures_and_answers_cross_threads", Some(2), || {
        let sum = Arc::new(Combiner::<_, 1>::new(0_u32));
        let add = |sum: &Combiner<u32, 1>, n: u32| {
            let (given, taken) = (Lent(UnsafeCell::new(n)), Lent(UnsafeCell::new(0)));
            let after = sum.run(|sum| {
                *sum += given.get();
                taken.set(n);
                *sum
            });
            assert_eq!(taken.get(), n);
            assert_ne!(after & n, 0);
        };
        let others = [1, 16].map(|n| {
            let sum = sum.clone();
            thread::spawn(move || add(&sum, n))
        });
        add(&sum, 256);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(sum.run_here(|sum| *sum), 273);
    });
}
