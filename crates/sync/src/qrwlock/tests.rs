//! What a `QRwLock` allows, and that nobody starves.
use super::raw::{PARKED, READER, WAITING};
use super::*;
use crate::prim::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn is_small_and_fits_a_static() {
    #[cfg(not(feature = "lockdep"))]
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
    let broken = crate::testing::scope(|s| {
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
    crate::testing::scope(|s| {
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
    crate::testing::scope(|s| {
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
    crate::testing::scope(|s| {
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
    let word = lock.raw.word.load(Relaxed);
    assert_eq!(word & !PARKED, 0, "the lock is free");
}

/// One writer against readers that never pause: it gets its turns.
#[test]
fn a_writer_does_not_starve_among_readers() {
    let lock = QRwLock::new(0u64);
    let done = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    crate::testing::scope(|s| {
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

/// R2.1 The head of the queue against writers that never queue, step by step: the form of 2015 and the
/// one before it starve it, today's does not.
#[test]
fn r2_1_a_stream_of_fast_writers_and_the_head_of_the_queue() {
    fn passed<S: Announce>() -> usize {
        let lock = QRwLock::<u32, S>::with_announce(0);
        let mut passed = 0;
        for _ in 0..1_000 {
            let Some(fast) = lock.try_write() else { return passed };
            passed += 1;
            // The head gets its chance while the fast writer is in, and may be asleep after.
            S::announce(&lock.raw.word);
            drop(fast);
        }
        passed
    }
    assert_eq!(passed::<OrBit>(), 1, "nobody passes a writer who waits");
    assert_eq!(passed::<ByteCas>(), 1_000, "the byte is never free when the head looks");
    assert_eq!(passed::<WordCas>(), 1_000, "as the byte");
}

/// R2.1 with threads: once the head has announced itself, no writer takes the lock past it.
#[test]
fn r2_1_no_writer_passes_one_that_waits() {
    let lock = QRwLock::new(0);
    for round in 0..200 {
        let held = lock.write();
        crate::testing::scope(|s| {
            s.spawn(|| *lock.write() += 1);
            while lock.raw.word.load(Relaxed) & WAITING == 0 {
                thread::yield_now();
            }
            drop(held);
            if let Some(value) = lock.try_write() {
                assert_eq!(*value, round + 1, "passed a writer who waits");
            }
        });
    }
}

/// R2.2 with all forms: a reader that comes while a writer waits stays behind it.
#[test]
fn r2_2_a_late_reader_stays_behind_a_waiting_writer() {
    fn holds<S: Announce>() {
        let lock = QRwLock::<u32, S>::with_announce(0);
        let first = lock.read();
        crate::testing::scope(|s| {
            s.spawn(|| *lock.write() = 1);
            while lock.raw.word.load(Relaxed) & WAITING == 0 {
                thread::yield_now();
            }
            assert!(lock.try_read().is_none());
            let late = s.spawn(|| *lock.read());
            drop(first);
            assert_eq!(late.join().unwrap(), 1);
        });
    }
    holds::<OrBit>();
    holds::<ByteCas>();
    holds::<WordCas>();
}

/// R2.3
#[test]
fn r2_3_a_nested_reader_passes_a_waiting_writer() {
    let lock = QRwLock::new(0);
    let outer = lock.read();
    crate::testing::scope(|s| {
        s.spawn(|| *lock.write() = 1);
        while lock.raw.word.load(Relaxed) & WAITING == 0 {
            thread::yield_now();
        }
        assert!(lock.try_read().is_none());
        assert_eq!(*lock.read_nested(), 0);
        drop(outer);
    });
    assert_eq!(*lock.read(), 1);
}

/// R2.3 The only one a nested reader waits for is a writer who holds the lock; it sleeps and is woken.
#[test]
fn r2_3_a_nested_reader_waits_for_a_holder() {
    let lock = QRwLock::new(0);
    for round in 0..20 {
        let mut held = lock.write();
        crate::testing::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| assert_eq!(*lock.read_nested(), round + 1));
            }
            s.spawn(|| assert_eq!(*lock.read(), round + 1));
            thread::sleep(Duration::from_millis(2));
            *held = round + 1;
            drop(held);
        });
    }
}

/// R2.5 A reader may add itself between a writer's lock and unlock: the unlock leaves it alone.
#[test]
fn r2_5_unlocking_keeps_the_readers_in_the_word() {
    let lock = QRwLock::new(());
    let writer = lock.write();
    lock.raw.word.fetch_add(READER, Relaxed);
    drop(writer);
    assert_eq!(lock.raw.word.load(Relaxed), READER);
}

/// R2.6 Readers that add and subtract themselves in vain do not keep a writer out.
#[test]
fn r2_6_readers_that_come_in_vain_do_not_stop_a_writer() {
    let lock = QRwLock::new(0u32);
    let done = AtomicBool::new(false);
    crate::testing::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                while !done.load(Relaxed) {
                    // What a reader does that looks too late: add first, then take back.
                    let old = lock.raw.word.fetch_add(READER, Relaxed);
                    assert!(old < 1 << 31);
                    lock.raw.sub_reader();
                }
            });
        }
        for _ in 0..200 {
            *lock.write() += 1;
        }
        done.store(true, Relaxed);
    });
    assert_eq!(*lock.read(), 200);
}

/// R2.7
#[test]
fn r2_7_too_many_readers_are_refused_and_counted_out_again() {
    let lock = QRwLock::new(());
    let before = 1 << 31;
    lock.raw.word.store(before, Relaxed);
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(lock.read())));
    assert!(refused.is_err());
    let refused =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(lock.read_nested())));
    assert!(refused.is_err());
    assert!(lock.try_read().is_none());
    assert_eq!(lock.raw.word.load(Relaxed), before);
}

/// R2.8 First come, first served behind a holder.
#[test]
fn r2_8_the_queue_is_first_come_first_served() {
    let lock = QRwLock::new(Vec::new());
    let held = lock.write();
    crate::testing::scope(|s| {
        for number in 0..6 {
            let (lock, last) = (&lock, lock.raw.queue.last());
            s.spawn(move || lock.write().push(number));
            while lock.raw.queue.last() == last {
                thread::yield_now();
            }
        }
        drop(held);
    });
    assert_eq!(lock.into_inner(), [0, 1, 2, 3, 4, 5]);
}

#[cfg(feature = "std")]
#[test]
fn a_time_limit_ends_a_wait_and_leaves_no_trace() {
    let lock = QRwLock::new(0);
    let soon = Duration::from_millis(10);
    {
        let _held = lock.write();
        crate::testing::scope(|s| {
            // One of them is the head, the other waits behind it.
            s.spawn(|| assert!(lock.try_read_for(soon).is_none()));
            s.spawn(|| assert!(lock.try_write_for(soon).is_none()));
        });
        assert!(!lock.is_contended());
        assert_eq!(lock.raw.word.load(Relaxed) & !PARKED, raw::WRITER);
    }
    {
        let _held = lock.read();
        assert!(lock.try_write_for(soon).is_none());
        assert!(lock.try_read_for(soon).is_some(), "a writer who gave up holds nobody off");
    }
    assert!(lock.try_write_for(Duration::MAX).is_some());
    assert!(lock.try_read_for(Duration::MAX).is_some());
    assert!(lock.try_write_until(Instant::now()).is_some(), "free: no waiting, no deadline");
}

/// Those in the middle of the queue give up; those behind are still served.
#[cfg(feature = "std")]
#[test]
fn who_waits_behind_one_that_gave_up_is_served() {
    let lock = QRwLock::new(0);
    let gone = AtomicU64::new(0);
    let held = lock.write();
    crate::testing::scope(|s| {
        for number in 0..9 {
            let (lock, gone) = (&lock, &gone);
            s.spawn(move || {
                let limit = Duration::from_millis(5 + number);
                match number % 3 {
                    0 => *lock.write() += 1,
                    1 => assert!(lock.try_write_for(limit).is_none()),
                    _ => assert!(lock.try_read_for(limit).is_none()),
                }
                gone.fetch_add(1, Relaxed);
            });
        }
        while gone.load(Relaxed) < 6 {
            thread::yield_now();
        }
        drop(held);
    });
    assert_eq!(*lock.read(), 3);
    assert!(!lock.is_contended());
}

/// Deadlines that pass just as the turn comes, on more threads than processors.
#[cfg(feature = "std")]
#[test]
fn deadlines_among_hand_overs_lose_nobody() {
    let lock = QRwLock::new(0u64);
    let written = AtomicU64::new(0);
    crate::testing::scope(|s| {
        for seed in 0..6 {
            let (lock, written) = (&lock, &written);
            s.spawn(move || {
                for i in 0..2_000u64 {
                    let limit = Duration::from_nanos((i * 7919 + seed * 104_729) % 60_000);
                    match (i + seed) % 4 {
                        0 => {
                            *lock.write() += 1;
                            written.fetch_add(1, Relaxed);
                        }
                        1 => drop(lock.try_read_for(limit)),
                        2 => {
                            if let Some(mut value) = lock.try_write_for(limit) {
                                *value += 1;
                                written.fetch_add(1, Relaxed);
                                thread::yield_now();
                            }
                        }
                        _ => drop(lock.read()),
                    }
                }
            });
        }
    });
    assert_eq!(*lock.read(), written.load(Relaxed));
    assert!(!lock.is_contended());
    assert!(lock.try_write().is_some());
}

#[test]
fn a_downgrade_lets_readers_in_and_no_writer_between() {
    let lock = QRwLock::new(0);
    for round in 1..50 {
        let mut value = lock.write();
        crate::testing::scope(|s| {
            s.spawn(|| assert_eq!(*lock.read(), round));
            s.spawn(|| {
                let mut value = lock.write();
                assert_eq!(*value, round);
                *value = round;
            });
            if round % 2 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
            *value = round;
            let value = QRwLockWriteGuard::downgrade(value);
            thread::yield_now();
            assert_eq!(*value, round);
        });
    }
}

#[test]
fn mapped_guards_hold_the_lock() {
    let lock = QRwLock::new((1, String::from("one")));
    {
        let name = QRwLockReadGuard::map(lock.read(), |pair| &pair.1);
        let bytes = MappedQRwLockReadGuard::map(name, |name| name.as_bytes());
        assert_eq!(&*bytes, b"one");
        assert!(lock.try_write().is_none());
    }
    {
        let name = QRwLockWriteGuard::map(lock.write(), |pair| &mut pair.1);
        let mut name = MappedQRwLockWriteGuard::map(name, |name| name.as_mut_str());
        name.make_ascii_uppercase();
        assert!(lock.try_read().is_none());
        assert_eq!(format!("{name} {name:?}"), "ONE \"ONE\"");
    }
    let whole = QRwLockReadGuard::try_map(lock.read(), |_| None::<&u32>).unwrap_err();
    assert_eq!(whole.1, "ONE");
    drop(whole);
    let whole = QRwLockWriteGuard::try_map(lock.write(), |_| None::<&mut u32>).unwrap_err();
    assert!(lock.try_read().is_none());
    drop(whole);
    assert!(QRwLockReadGuard::try_map(lock.read(), |pair| Some(&pair.0)).is_ok());
    assert!(lock.try_write().is_some());
}

#[test]
fn a_mapping_that_panics_unlocks_once() {
    let lock = QRwLock::new(0);
    for write in [false, true] {
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            if write {
                drop(QRwLockWriteGuard::map(lock.write(), |_| -> &mut u32 {
                    panic!("on purpose")
                }));
            } else {
                drop(QRwLockReadGuard::map(lock.read(), |_| -> &u32 { panic!("on purpose") }));
            }
        }));
        assert!(broken.is_err());
        assert_eq!(lock.raw.word.load(Relaxed), 0);
    }
}

#[cfg(feature = "arc_lock")]
#[test]
fn owned_guards_keep_their_lock_alive() {
    use std::sync::Arc;

    for _ in 0..500 {
        let lock = Arc::new(QRwLock::new(1));
        let held = lock.write_arc();
        assert!(lock.try_read_arc().is_none() && lock.try_write_arc().is_none());
        let waiting = thread::spawn(move || *lock.read_arc());
        let mut held = thread::spawn(move || held).join().unwrap();
        *held += 1;
        let held = ArcQRwLockWriteGuard::downgrade(held);
        // The last share goes with one of the guards, whose unlock may still wake the other.
        assert_eq!(*held, 2);
        drop(held);
        assert_eq!(waiting.join().unwrap(), 2);
    }
}

#[cfg(feature = "lock_api")]
#[cfg(feature = "std")]
#[test]
fn code_written_against_lock_api_works() {
    use ::lock_api::{RwLock, RwLockWriteGuard};

    static LOCK: RwLock<RawQRwLock, u32> = RwLock::new(1);
    let soon = Duration::from_millis(2);
    {
        let outer = LOCK.read();
        assert_eq!(*outer + *LOCK.read(), 2);
        assert!(LOCK.is_locked() && !LOCK.is_locked_exclusive());
        assert!(LOCK.try_write_for(soon).is_none());
    }
    let mut value = LOCK.write();
    *value += 1;
    assert!(LOCK.is_locked_exclusive() && LOCK.try_read().is_none());
    assert!(LOCK.try_read_until(Instant::now() + soon).is_none());
    let value = RwLockWriteGuard::downgrade(value);
    assert_eq!((*value, *LOCK.try_read().unwrap()), (2, 2));
    drop(value);
    assert!(LOCK.try_write_until(Instant::now()).is_some() && LOCK.try_read_for(soon).is_some());
}
