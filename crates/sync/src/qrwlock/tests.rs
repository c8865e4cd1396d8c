//! What a `QRwLock` allows, and that nobody starves.
use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn is_small_and_fits_a_static() {
    assert_eq!(size_of::<QRwLock<()>>(), 16);
    static IN_STATIC: QRwLock<u32> = QRwLock::new(3);
    assert_eq!(*IN_STATIC.read(), 3);
}

#[test]
fn readers_share_and_writers_do_not() {
    let mut lock = QRwLock::new(1);
    {
        let a = lock.read();
        let b = lock.try_read().expect("readers share");
        assert_eq!(*a + *b, 2);
        assert!(lock.try_write().is_none());
    }
    {
        let mut w = lock.write();
        *w = 2;
        assert!(lock.try_read().is_none());
        assert!(lock.try_write().is_none());
        assert!(format!("{lock:?}").contains("locked"));
    }
    *lock.get_mut() += 1;
    assert_eq!(*lock.try_write().expect("free"), 3);
    assert_eq!(lock.into_inner(), 3);
}

#[test]
fn a_panicking_holder_leaves_the_lock_usable() {
    let lock = QRwLock::new(0);
    let broken = thread::scope(|s| {
        s.spawn(|| {
            let _guard = lock.write();
            panic!("on purpose");
        })
        .join()
    });
    assert!(broken.is_err());
    assert_eq!(*lock.read(), 0);
}

#[test]
fn a_waiting_writer_holds_newcomers_off() {
    let lock = QRwLock::new(0);
    let first = lock.read();
    thread::scope(|s| {
        s.spawn(|| *lock.write() = 1);
        while !lock.is_contended() {
            thread::yield_now();
        }
        // The writer queues; it announces itself as soon as it is head, which it is.
        while lock.try_read().is_some() {
            thread::yield_now();
        }
        let late = s.spawn(|| *lock.read());
        thread::sleep(Duration::from_millis(20));
        drop(first);
        assert_eq!(late.join().unwrap(), 1, "the late reader passed a waiting writer");
    });
}

#[test]
fn no_update_is_lost_and_no_reader_sees_half_of_one() {
    let lock = QRwLock::new((0u64, 0u64));
    let rounds = 4_000;
    thread::scope(|s| {
        for seed in 0..6u64 {
            let lock = &lock;
            s.spawn(move || {
                for i in 0..rounds {
                    if (i + seed) % 4 == 0 {
                        let mut pair = lock.write();
                        pair.0 += 1;
                        pair.1 += 1;
                    } else {
                        let pair = lock.read();
                        assert_eq!(pair.0, pair.1);
                    }
                }
            });
        }
    });
    assert_eq!(*lock.read(), (6 * rounds / 4, 6 * rounds / 4));
    assert!(!lock.is_contended());
}

/// Holders sleep, so that every waiter parks: a lost wake-up would hang here.
#[test]
fn sleeping_waiters_are_woken() {
    let lock = QRwLock::new(0u32);
    thread::scope(|s| {
        for n in 0..6 {
            let lock = &lock;
            s.spawn(move || {
                for i in 0..10 {
                    if (n + i) % 2 == 0 {
                        let mut value = lock.write();
                        *value += 1;
                        thread::sleep(Duration::from_micros(300));
                    } else {
                        let _value = lock.read();
                        thread::sleep(Duration::from_micros(300));
                    }
                }
            });
        }
    });
    assert_eq!(*lock.read(), 30);
    let word = lock.word.load(Relaxed);
    assert_eq!(word & !PARKED, 0, "the lock is free");
}

/// One writer against readers that never pause: it gets its turns.
#[test]
fn a_writer_does_not_starve_among_readers() {
    let lock = QRwLock::new(0u64);
    let done = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                while !done.load(Relaxed) {
                    let _value = lock.read();
                    reads.fetch_add(1, Relaxed);
                }
            });
        }
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(200) {
            *lock.write() += 1;
        }
        done.store(true, Relaxed);
    });
    assert!(*lock.read() > 20, "{} writes beside {reads:?} reads", *lock.read());
}
