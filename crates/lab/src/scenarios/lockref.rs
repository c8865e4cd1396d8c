//! lockref thread: a reference taken and dropped on one shared object.
//!
//! The thread's claim is that one compare-exchange on (lock, count) beats `lock; count += 1; unlock`. The arms: ours; the lock
//! and count it replaces, with three locks; the count alone, as `Arc` has it, which can neither refuse a dying object nor hand
//! over its lock, and as `Weak` has it, which can refuse; and a control that shares nothing, which is what the loop itself costs.

use std::fmt::Debug;
use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use vfscale_sync::{LockRef, Put, PutReturn};

use super::{Padded, padded};
use crate::sample::Worker;
use crate::scenario::{Arm, Scenario, Subject, expect};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "lockref",
    question: "what does it cost to take and drop a reference on one object that several threads share?",
    source: "lockref thread, 2013",
    operation: "get + put",
    threads: &[1, 2, 8],
    think_ns: &[0],
    arms: &[
        Arm {
            name: "lockref",
            what: "vfscale_sync::LockRef: get, put_return",
            make: |_| Box::new(Ours(LockRef::new(1, ()))),
        },
        Arm {
            name: "std",
            what: "std Mutex around a count: lock, change, unlock, twice",
            make: |_| Box::new(Locked(Mutex::new(1_i64))),
        },
        Arm {
            name: "parking_lot",
            what: "the same with parking_lot's Mutex",
            make: |_| Box::new(Locked(parking_lot::Mutex::new(1_i64))),
        },
        Arm {
            name: "spin",
            what: "the same with spin's Mutex",
            make: |_| Box::new(Locked(spin::Mutex::<i64>::new(1))),
        },
        Arm {
            name: "weak",
            what: "std Weak: upgrade, drop; refuses a dead object, has no lock",
            make: |_| Box::new(Upgraded::new()),
        },
        Arm {
            name: "arc",
            what: "std Arc: clone, drop; no lock, no refusal",
            make: |_| Box::new(Plain(Arc::new(0))),
        },
        Arm {
            name: "control",
            what: "a count of the thread's own: the loop without sharing",
            make: |setup| Box::new(Alone(padded(setup.threads))),
        },
    ],
};

#[derive(Debug)]
struct Ours(LockRef);

impl Subject for Ours {
    fn work(&self, worker: &mut Worker<'_>) {
        let object = black_box(&self.0);
        worker.repeat::<1024>(|| {
            object.get();
            if object.put_return() == PutReturn::Busy {
                put_locked(object);
            }
        });
    }

    fn check(&self, _: &[u64]) -> Result<(), String> {
        expect("the count", 1, i64::from(self.0.count()))
    }
}

/// What a caller of `put_return` does when the fast path gives up.
#[cold]
fn put_locked(object: &LockRef) {
    if let Put::LastLocked(_) = object.put_or_lock() {
        unreachable!("the object itself holds one reference");
    }
}

/// A lock around a number.
trait Count: Sync + Debug {
    fn add(&self, change: i64) -> i64;
}

impl Count for Mutex<i64> {
    fn add(&self, change: i64) -> i64 {
        let mut count = self.lock().unwrap_or_else(PoisonError::into_inner);
        *count += change;
        *count
    }
}

impl Count for parking_lot::Mutex<i64> {
    fn add(&self, change: i64) -> i64 {
        let mut count = self.lock();
        *count += change;
        *count
    }
}

impl Count for spin::Mutex<i64> {
    fn add(&self, change: i64) -> i64 {
        let mut count = self.lock();
        *count += change;
        *count
    }
}

#[derive(Debug)]
struct Locked<L>(L);

impl<L: Count> Subject for Locked<L> {
    fn work(&self, worker: &mut Worker<'_>) {
        let Locked(count) = black_box(self);
        worker.repeat::<1024>(|| {
            count.add(1);
            count.add(-1);
        });
    }

    fn check(&self, _: &[u64]) -> Result<(), String> {
        expect("the count", 1, self.0.add(0))
    }
}

#[derive(Debug)]
struct Upgraded {
    object: Arc<u64>,
    weak: Weak<u64>,
}

impl Upgraded {
    fn new() -> Upgraded {
        let object = Arc::new(0);
        Upgraded { weak: Arc::downgrade(&object), object }
    }
}

impl Subject for Upgraded {
    fn work(&self, worker: &mut Worker<'_>) {
        let weak = black_box(&self.weak);
        worker.repeat::<1024>(|| drop(black_box(weak.upgrade())));
    }

    fn check(&self, _: &[u64]) -> Result<(), String> {
        expect("the count", 1, Arc::strong_count(&self.object) as i64)
    }
}

#[derive(Debug)]
struct Plain(Arc<u64>);

impl Subject for Plain {
    fn work(&self, worker: &mut Worker<'_>) {
        let object = black_box(&self.0);
        worker.repeat::<1024>(|| drop(black_box(Arc::clone(object))));
    }

    fn check(&self, _: &[u64]) -> Result<(), String> {
        expect("the count", 1, Arc::strong_count(&self.0) as i64)
    }
}

#[derive(Debug)]
struct Alone(Vec<Padded>);

impl Subject for Alone {
    fn work(&self, worker: &mut Worker<'_>) {
        let count = black_box(&self.0[worker.number]);
        // Two changes, as for the others.
        worker.repeat::<1024>(|| {
            count.add_alone(3);
            count.add_alone(2_u64.wrapping_neg());
        });
    }

    /// Each pair of changes leaves one more, so this arm also checks the loop's own arithmetic.
    fn check(&self, done: &[u64]) -> Result<(), String> {
        let each = self.0.iter().zip(done);
        each.into_iter().try_for_each(|(count, &done)| {
            expect("a thread's count", done as i64, count.get() as i64)
        })
    }
}
