//! lockref thread: a reference taken and dropped on one shared object.
//!
//! The thread's claim is that one compare-exchange on (lock, count) beats `lock; count += 1; unlock`. The arms: ours; the lock
//! and count it replaces; the count alone, as `Arc` has it, which can neither refuse a dying object nor hand over its lock; and a
//! control that shares nothing, which is what the loop itself costs.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use vfscale_sync::{LockRef, Put, PutReturn};

use crate::scenario::{Arm, Scenario, Subject, until};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "lockref",
    question: "what does it cost to take and drop a reference on one object that several threads share?",
    operation: "get + put",
    arms: &[
        Arm {
            name: "lockref",
            what: "vfscale_sync::LockRef: get, put_return",
            make: |_| Box::new(Ours(LockRef::new(1, ()))),
        },
        Arm {
            name: "mutex",
            what: "std Mutex around a count: lock, change, unlock, twice",
            make: |_| Box::new(Locked(Mutex::new(1))),
        },
        Arm {
            name: "arc",
            what: "std Arc: clone, drop; no lock, no refusal",
            make: |_| Box::new(Plain(Arc::new(0))),
        },
        Arm {
            name: "control",
            what: "a count of the thread's own: the loop without sharing",
            make: |threads| Box::new(Alone::new(threads)),
        },
    ],
};

#[derive(Debug)]
struct Ours(LockRef);

impl Subject for Ours {
    fn work(&self, _: usize, stop: &AtomicBool) -> u64 {
        let object = black_box(&self.0);
        until(stop, || {
            object.get();
            if object.put_return() == PutReturn::Busy {
                put_locked(object);
            }
        })
    }

    fn check(&self, _: &[u64]) -> Result<(), String> {
        expect(1, i64::from(self.0.count()))
    }
}

/// What a caller of `put_return` does when the fast path gives up.
#[cold]
fn put_locked(object: &LockRef) {
    if let Put::LastLocked(_) = object.put_or_lock() {
        unreachable!("the object itself holds one reference");
    }
}

#[derive(Debug)]
struct Locked(Mutex<i64>);

impl Locked {
    fn add(&self, change: i64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += change;
    }
}

impl Subject for Locked {
    fn work(&self, _: usize, stop: &AtomicBool) -> u64 {
        let object = black_box(self);
        until(stop, || {
            object.add(1);
            object.add(-1);
        })
    }

    fn check(&self, _: &[u64]) -> Result<(), String> {
        expect(1, *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug)]
struct Plain(Arc<u64>);

impl Subject for Plain {
    fn work(&self, _: usize, stop: &AtomicBool) -> u64 {
        let object = black_box(&self.0);
        until(stop, || drop(black_box(Arc::clone(object))))
    }

    fn check(&self, _: &[u64]) -> Result<(), String> {
        expect(1, Arc::strong_count(&self.0) as i64)
    }
}

/// A count on a pair of cache lines of its own: neighbours are fetched together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(AtomicU64);

#[derive(Debug)]
struct Alone(Vec<Padded>);

impl Alone {
    fn new(threads: usize) -> Alone {
        Alone((0..threads).map(|_| Padded::default()).collect())
    }
}

impl Subject for Alone {
    fn work(&self, thread: usize, stop: &AtomicBool) -> u64 {
        let Padded(count) = black_box(&self.0[thread]);
        // Relaxed load and store: nobody else writes here. Two changes, as for the others.
        let add =
            |n: u64| count.store(count.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        until(stop, || {
            add(3);
            add(2_u64.wrapping_neg());
        })
    }

    /// Each pair of changes leaves one more, so this arm also checks the loop's own arithmetic.
    fn check(&self, done: &[u64]) -> Result<(), String> {
        self.0.iter().zip(done).try_for_each(|(count, &done)| {
            expect(done as i64, count.0.load(Ordering::Relaxed) as i64)
        })
    }
}

fn expect(wanted: i64, found: i64) -> Result<(), String> {
    if wanted == found { Ok(()) } else { Err(format!("the count is {found}, not {wanted}")) }
}
