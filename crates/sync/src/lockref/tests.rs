//! What a `LockRef` does, one thread at a time, then many at once for a moment.
use super::*;
use std::sync::atomic::{AtomicU32, AtomicU64 as StdU64};
use std::thread;
use std::time::Duration;

#[test]
fn is_one_word() {
    assert_eq!(size_of::<LockRef>(), 8);
    static IN_STATIC: LockRef = LockRef::new(1, ());
    assert_eq!(IN_STATIC.count(), 1);
}

#[test]
fn counts_up_and_down() {
    let refs = LockRef::new(1, ());
    refs.get();
    assert_eq!(refs.count(), 2);
    assert_eq!(refs.put_return(), PutReturn::Left(1));
    assert_eq!(refs.put_return(), PutReturn::Left(0));
    assert_eq!(refs.put_return(), PutReturn::Busy);
    assert_eq!(refs.get_not_zero(), Get::Refused);
    assert_eq!(refs.get_not_dead(), Get::Taken);
    assert_eq!(refs.get_not_zero(), Get::Taken);
    assert_eq!(refs.count(), 2);
}

#[test]
fn the_last_put_returns_locked_and_unchanged() {
    let refs = LockRef::new(2, 5);
    assert!(matches!(refs.put_or_lock(), Put::StillLive));
    let Put::LastLocked(mut guard) = refs.put_or_lock() else { panic!("one reference is left") };
    assert_eq!((guard.count(), *guard), (1, 5));
    *guard = 6;
    assert!(refs.try_lock().is_none());
    assert_eq!(guard.dec(), 0);
    drop(guard);
    assert_eq!((refs.count(), *refs.lock()), (0, 6));
}

#[test]
fn a_locked_word_is_busy_for_put_return() {
    let refs = LockRef::new(3, ());
    let guard = refs.lock();
    assert_eq!(refs.put_return(), PutReturn::Busy);
    drop(guard);
    assert_eq!(refs.put_return(), PutReturn::Left(2));
}

#[test]
fn dead_stays_dead() {
    let refs = LockRef::new(0, ());
    let mut guard = refs.lock();
    guard.mark_dead();
    guard.inc();
    assert!(guard.is_dead());
    assert!(guard.dec() < 0);
    drop(guard);
    assert!(refs.is_dead());
    assert_eq!(refs.get_not_dead(), Get::Refused);
    assert_eq!(refs.get_not_zero(), Get::Refused);
    assert_eq!(refs.put_return(), PutReturn::Busy);
    assert!(matches!(refs.put_or_lock(), Put::LastLocked(guard) if guard.is_dead()));
    refs.reset(1);
    assert_eq!(refs.get_not_dead(), Get::Taken);
    assert_eq!(refs.count(), 2);
}

#[test]
fn a_full_count_saturates_and_stays() {
    let refs = LockRef::new(i32::MAX as u32 - 1, ());
    refs.get();
    assert_eq!(refs.count(), i32::MAX);
    refs.get();
    assert_eq!(refs.get_not_dead(), Get::Taken);
    assert_eq!(refs.count(), i32::MAX);
    assert!(matches!(refs.put_or_lock(), Put::StillLive));
    assert_eq!(refs.put_return(), PutReturn::Left(i32::MAX as u32));
    let mut guard = refs.lock();
    guard.inc();
    assert_eq!(guard.dec(), i32::MAX);
}

#[test]
#[should_panic(expected = "dropped twice")]
fn a_drop_below_zero_is_caught() {
    LockRef::new(0, ()).lock().dec();
}

#[test]
fn the_count_stands_still_under_the_lock() {
    let refs = LockRef::new(1, 0u64);
    let rounds = 20_000;
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                for _ in 0..rounds {
                    refs.get();
                    match refs.put_or_lock() {
                        Put::StillLive => {}
                        Put::LastLocked(_) => panic!("the first reference was never dropped"),
                    }
                }
            });
        }
        for _ in 0..2 {
            s.spawn(|| {
                for _ in 0..rounds / 4 {
                    let mut guard = refs.lock();
                    *guard += 1;
                    let frozen = guard.count();
                    for _ in 0..20 {
                        assert_eq!(refs.count(), frozen);
                    }
                }
            });
        }
    });
    assert_eq!((refs.count(), *refs.lock()), (1, rounds / 2));
}

#[test]
fn sleepers_are_all_woken() {
    let refs = LockRef::new(0, 0);
    let guard = refs.lock();
    thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                let mut guard = refs.lock();
                *guard += 1;
                // Long enough for the others to fall asleep.
                thread::sleep(Duration::from_millis(2));
            });
        }
        thread::sleep(Duration::from_millis(20));
        drop(guard);
    });
    assert_eq!(*refs.lock(), 8);
}

/// Threads take and drop references of an object that dies when the last one goes; one teardown,
/// and no reference after it.
#[test]
fn one_teardown_per_life() {
    for _ in 0..300 {
        let refs = LockRef::new(1, ());
        let teardowns = AtomicU32::new(0);
        let taken = StdU64::new(0);
        let put = || match refs.put_or_lock() {
            Put::StillLive => {}
            Put::LastLocked(mut guard) => {
                assert_eq!(guard.dec(), 0);
                guard.mark_dead();
                teardowns.fetch_add(1, Relaxed);
            }
        };
        thread::scope(|s| {
            let users = [(); 3].map(|()| {
                s.spawn(|| {
                    for _ in 0..50 {
                        if refs.get_not_zero() == Get::Refused {
                            assert!(refs.is_dead());
                            return;
                        }
                        assert_eq!(teardowns.load(Relaxed), 0, "a reference after the teardown");
                        taken.fetch_add(1, Relaxed);
                        put();
                    }
                })
            });
            s.spawn(put).join().unwrap();
            users.into_iter().for_each(|user| user.join().unwrap());
        });
        assert_eq!(teardowns.load(Relaxed), 1);
        assert!(refs.is_dead());
    }
}
