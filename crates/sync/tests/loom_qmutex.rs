//! The mutex whose sleeper pays for its unlock, and the lock under it, in both forms. A lost
//! wake-up is a deadlock, which loom reports.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom_qmutex`
#![cfg(loom)]

mod loom_common;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use loom_common::check;
use vfscale_sync::QMutex;

/// A number that loom watches.
#[derive(Default)]
struct Number(UnsafeCell<u32>);

// SAFETY: only reached under the mutex of each model; loom fails if it is not so.
unsafe impl Send for Number {}

impl Number {
    fn add(&self, n: u32) -> u32 {
        // SAFETY: as above.
        self.0.with_mut(|number| unsafe {
            *number += n;
            *number
        })
    }
}

type New = fn(Number) -> QMutex<Number>;
const FORMS: [(&str, New); 2] = [("store", QMutex::new), ("exchange", QMutex::new_symmetric)];

/// Each of `n` threads locks once; all of it is there at the end.
fn threads_that_lock(n: u32, new: New) {
    let mutex = Arc::new(new(Number::default()));
    let others: Vec<_> = (1..n)
        .map(|_| {
            let mutex = mutex.clone();
            thread::spawn(move || {
                mutex.lock().add(1);
            })
        })
        .collect();
    mutex.lock().add(1);
    for other in others {
        other.join().unwrap();
    }
    assert_eq!(mutex.lock().add(0), n);
}

/// A holder and a head that sleeps.
#[test]
fn two_lock() {
    for (form, new) in FORMS {
        check(&format!("two_lock, unlock by {form}"), None, move || threads_that_lock(2, new));
    }
}

/// A holder, a head and one behind it; or a third that takes the lock while the head falls asleep.
#[test]
fn three_lock() {
    for (form, new) in FORMS {
        check(&format!("three_lock, unlock by {form}"), Some(3), move || threads_that_lock(3, new));
    }
}

/// A holder that unlocks, locks and unlocks again against a head: it sleeps twice, and the gate
/// closes.
#[test]
fn one_locks_twice() {
    for (form, new) in FORMS {
        check(&format!("one_locks_twice, unlock by {form}"), Some(4), move || {
            let mutex = Arc::new(new(Number::default()));
            let other = {
                let mutex = mutex.clone();
                thread::spawn(move || {
                    mutex.lock().add(1);
                })
            };
            mutex.lock().add(1);
            mutex.lock().add(1);
            other.join().unwrap();
            assert_eq!(mutex.lock().add(0), 3);
        });
    }
}

/// A try never waits, and finds what the last holder left.
#[test]
fn a_try_among_locks() {
    for (form, new) in FORMS {
        check(&format!("a_try_among_locks, unlock by {form}"), None, move || {
            let mutex = Arc::new(new(Number::default()));
            let other = {
                let mutex = mutex.clone();
                thread::spawn(move || {
                    mutex.lock().add(1);
                })
            };
            let tried = mutex.try_lock().map_or(0, |number| {
                number.add(1);
                1
            });
            other.join().unwrap();
            assert_eq!(mutex.lock().add(0), 1 + tried);
        });
    }
}
