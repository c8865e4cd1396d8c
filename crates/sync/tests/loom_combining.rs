//! The combining lock under list batching, under every schedule of the smallest cases. A lost wake-up is a deadlock, which loom
//! reports; an operation done twice or not at all shows in the sum.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom_combining`
#![cfg(loom)]

mod loom_common;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use loom_common::check;
use vfscale_sync::combining::{Apply, Combining};

/// A sum that loom watches, and the parts it consists of.
struct Sum {
    total: UnsafeCell<u32>,
}

impl Apply for Sum {
    type Op = u32;

    fn apply(&mut self, op: u32) -> bool {
        // SAFETY: locked; loom fails if it is not so.
        self.total.with_mut(|total| unsafe { *total += op });
        true
    }
}

type Shared = Arc<Combining<Sum>>;

fn new_shared() -> Shared {
    Arc::new(Combining::new(Sum { total: UnsafeCell::new(0) }))
}

fn total(shared: &Shared) -> u32 {
    // SAFETY: locked.
    shared.with(|sum| sum.total.with(|total| unsafe { *total }))
}

fn spawn(shared: &Shared, f: impl FnOnce(&Shared) + 'static) -> thread::JoinHandle<()> {
    let shared = shared.clone();
    thread::spawn(move || f(&shared))
}

/// CB-1 and CB-4: one holder, one head that sleeps on the flag.
#[test]
fn two_operations() {
    check("two_operations", None, || {
        let shared = new_shared();
        let other = spawn(&shared, |shared| assert!(shared.run(1)));
        assert!(shared.run(16));
        assert!(total(&shared) >= 16, "our own operation is not there");
        other.join().unwrap();
        assert_eq!(total(&shared), 17);
    });
}

/// A holder, a head, and one behind it: done by the head (a batch is one under a model) or by itself.
#[test]
fn two_queued_and_a_combiner() {
    check("two_queued_and_a_combiner", Some(3), || {
        let shared = new_shared();
        let first = spawn(&shared, |shared| assert!(shared.run(1)));
        let second = spawn(&shared, |shared| assert!(shared.run(16)));
        assert!(shared.run(256));
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
        let first = spawn(&shared, |shared| assert!(shared.run(1)));
        let whole = spawn(&shared, |shared| {
            shared.with(|sum| assert!(sum.apply(16)));
        });
        assert!(shared.run(256));
        first.join().unwrap();
        whole.join().unwrap();
        assert_eq!(total(&shared), 273);
    });
}
