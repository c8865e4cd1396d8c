//! One holder at a time, and no waiter forgotten.
use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

#[test]
fn locks_tries_and_unlocks() {
    let mut mutex = QMutex::new(1);
    {
        let mut guard = mutex.lock();
        assert!(mutex.try_lock().is_none());
        assert_eq!(format!("{mutex:?} {guard:?}"), "QMutex { value: <locked> } 1");
        *guard = 2;
    }
    assert_eq!(mutex.try_lock().as_deref(), Some(&2));
    assert_eq!(format!("{mutex:?}"), "QMutex { value: 2 }");
    *mutex.get_mut() += 1;
    assert_eq!(mutex.into_inner(), 3);
}

#[test]
fn holds_what_has_no_size() {
    let mutex: &QMutex<[u8]> = &QMutex::new([1, 2, 3]);
    mutex.lock()[1] = 9;
    assert_eq!(*mutex.lock(), [1, 9, 3]);
}

#[test]
fn a_panic_unlocks() {
    let mutex = QMutex::new(0);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _guard = mutex.lock();
        panic!("while locked");
    }));
    assert!(panicked.is_err());
    assert!(mutex.try_lock().is_some());
}

/// Two halves that are only equal outside the critical section.
fn halves_stay_equal(threads: u64, rounds: u64, hold: Duration) {
    let mutex = QMutex::new((0_u64, 0_u64));
    crate::testing::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for round in 0..rounds {
                    let mut pair = mutex.lock();
                    assert_eq!(pair.0, pair.1);
                    pair.0 += 1;
                    if round % 8 == 0 && !hold.is_zero() {
                        thread::sleep(hold);
                    }
                    pair.1 += 1;
                }
            });
        }
    });
    assert_eq!(*mutex.lock(), (threads * rounds, threads * rounds));
}

#[test]
fn one_thread_at_a_time() {
    halves_stay_equal(4, 50_000, Duration::ZERO);
}

/// Holders sleep, so that waiters queue and sleep too: a lost wake-up would hang here.
#[test]
fn waiters_sleep_while_the_holder_does() {
    halves_stay_equal(8, 120, Duration::from_micros(200));
}

/// A waiter gets its turn against threads that take the lock again at once.
#[test]
fn r4_7_a_waiter_is_served_among_the_greedy() {
    let mutex = QMutex::new(false);
    crate::testing::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| while !*mutex.lock() {});
        }
        for _ in 0..50 {
            drop(mutex.lock());
        }
        *mutex.lock() = true;
    });
}
