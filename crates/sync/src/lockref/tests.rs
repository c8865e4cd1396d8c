//! What a `LockRef` does, one thread at a time, then many at once for a moment. The same for both
//! words: R1.9. `r1_x` names the lesson of the kernel's that a test stands for.
use super::*;
use crate::prim::Ordering::Relaxed;
#[cfg(feature = "std")]
use crate::prim::Ordering::{Acquire, Release};
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

/// Every operation, from one below the last count that is counted, from the last, and from the
/// saturated one.
#[test]
fn r1_8_a_full_count_saturates_and_stays() {
    const FULL: u32 = i32::MAX as u32;
    for get in [
        (|refs| refs.get()) as fn(&LockRef),
        |refs| assert_eq!(refs.get_not_zero(), Get::Taken),
        |refs| assert_eq!(refs.get_not_dead(), Get::Taken),
        |refs| refs.lock().inc(),
    ] {
        let refs = LockRef::new(FULL - 2, ());
        get(&refs);
        assert_eq!(refs.count(), i32::MAX - 1);
        assert_eq!(refs.put_return(), PutReturn::Left(FULL - 2), "counted still");
        get(&refs);
        get(&refs);
        assert_eq!(refs.count(), i32::MAX);
        get(&refs);
        assert_eq!(refs.count(), i32::MAX);
    }
    for put in [
        (|refs| assert_eq!(refs.put_return(), PutReturn::Left(FULL))) as fn(&LockRef),
        |refs| assert!(matches!(refs.put_or_lock(), Put::StillLive)),
        |refs| assert_eq!(refs.lock().dec(), i32::MAX),
    ] {
        for saturated in [FULL, FULL + 1, u32::MAX] {
            let refs = LockRef::new(saturated, ());
            put(&refs);
            assert_eq!(refs.count(), i32::MAX);
            assert!(!refs.is_dead());
        }
    }
    let refs = LockRef::new(0, ());
    refs.reset(u32::MAX);
    assert_eq!(refs.count(), i32::MAX);
    refs.lock().mark_dead();
    assert_eq!(refs.get_not_dead(), Get::Refused, "death is above saturation");
}

/// Threads push a count over the edge together: it stops there, and no put brings it back.
#[test]
fn r1_8_threads_saturate_a_count_together() {
    for _ in 0..20 {
        let refs = LockRef::new(i32::MAX as u32 - 300, ());
        crate::testing::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..200 {
                        refs.get();
                        assert_eq!(refs.get_not_dead(), Get::Taken);
                        assert_ne!(refs.put_return(), PutReturn::Left(0));
                        assert!(refs.count() >= i32::MAX - 300, "wrapped");
                    }
                });
            }
        });
        assert_eq!(refs.count(), i32::MAX);
        crate::testing::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..200 {
                        assert!(matches!(refs.put_or_lock(), Put::StillLive));
                    }
                });
            }
        });
        assert_eq!(refs.count(), i32::MAX);
    }
}

#[test]
#[should_panic(expected = "dropped twice")]
fn a_drop_below_zero_is_caught() {
    LockRef::new(0, ()).lock().dec();
}

#[test]
#[should_panic(expected = "holds no reference")]
fn a_get_without_a_reference_is_caught() {
    let refs = LockRef::new(0, ());
    refs.lock().mark_dead();
    refs.get();
}

#[test]
fn r1_1_the_count_stands_still_under_the_lock() {
    let refs = LockRef::new(1, 0u64);
    let rounds = 20_000;
    crate::testing::scope(|s| {
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
    crate::testing::scope(|s| {
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
fn r1_7_one_teardown_per_life_and_no_reference_after_it() {
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
        crate::testing::scope(|s| {
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

/// An operation that finds the lock held for a moment waits and goes the fast way after all. One
/// that takes the lock instead makes others find it held: so the lock-free way is lost.
#[cfg(feature = "std")] // elsewhere a yield is a pause, and the wait too short to meet
#[test]
fn r1_6_an_operation_outwaits_a_short_hold() {
    const ROUNDS: u32 = 1000;
    let refs = LockRef::new(1, ());
    // Three steps a round: the lock is held, the getter begins, it is done.
    let turn = AtomicU32::new(0);
    let fast = crate::testing::scope(|s| {
        let getter = s.spawn(|| {
            let mut fast = 0;
            for round in 0..ROUNDS {
                while turn.load(Acquire) != 3 * round + 1 {
                    thread::yield_now();
                }
                turn.store(3 * round + 2, Release);
                match refs.word.change(Change::GET) {
                    Fast::Done(_) => fast += 1,
                    Fast::GaveUp | Fast::Stopped => refs.get(),
                }
                turn.store(3 * round + 3, Release);
            }
            fast
        });
        for round in 0..ROUNDS {
            while turn.load(Acquire) != 3 * round {
                thread::yield_now();
            }
            let guard = refs.lock();
            turn.store(3 * round + 1, Release);
            while turn.load(Acquire) != 3 * round + 2 {
                thread::yield_now();
            }
            // Long enough for the getter to see the lock, shorter than it waits.
            (0..20).for_each(|_| std::hint::spin_loop());
            drop(guard);
        }
        getter.join().unwrap()
    });
    assert_eq!(refs.count(), 1 + ROUNDS as i32);
    // Not all of them: a holder that loses its processor holds for long.
    assert!(fast >= ROUNDS / 2, "{fast} of {ROUNDS} operations went the fast way");
}

/// How operations ended while the phase had one value.
#[derive(Default)]
struct Tally {
    fast: StdU64,
    all: StdU64,
}

impl Tally {
    fn add(&self, fast: bool) {
        self.fast.fetch_add(u64::from(fast), Relaxed);
        self.all.fetch_add(1, Relaxed);
    }
}

/// Once a thread has fallen back to the lock others find it locked, and the kernel's lockref then
/// keeps to the lock until a quiet moment. There is none here: the load goes on while the lock is
/// held for some time, again and again, and afterwards.
#[test]
fn r1_6_the_fast_way_comes_back_after_the_lock_was_held() {
    const THREADS: usize = 3;
    const ENOUGH: u64 = 20_000;
    const BEFORE: usize = 0;
    const HELD: usize = 1;
    const AFTER: usize = 2;
    const END: usize = 3;
    let refs = LockRef::new(1, ());
    let phase = AtomicU32::new(BEFORE as u32);
    let tallies: [[Tally; 3]; THREADS] = Default::default();
    let enough = |phase: usize| {
        while tallies.iter().any(|own| own[phase].all.load(Relaxed) < ENOUGH) {
            thread::sleep(Duration::from_millis(1));
        }
    };
    crate::testing::scope(|s| {
        for own in &tallies {
            let (refs, phase) = (&refs, &phase);
            s.spawn(move || {
                loop {
                    let now = phase.load(Relaxed) as usize;
                    if now == END {
                        return;
                    }
                    // What `get` and `put_return` do, with the answer of the fast way in between.
                    let fast = matches!(refs.word.change(Change::GET), Fast::Done(_));
                    if !fast {
                        refs.lock().inc();
                    }
                    own[now].add(fast);
                    let fast = matches!(refs.word.change(Change::PUT), Fast::Done(_));
                    if !fast {
                        refs.lock().dec();
                    }
                    own[now].add(fast);
                }
            });
        }
        enough(BEFORE);
        phase.store(HELD as u32, Relaxed);
        for _ in 0..20 {
            let guard = refs.lock();
            thread::sleep(Duration::from_millis(2));
            drop(guard);
            // The others get in between, also where nobody sleeps and we would have it again at once.
            thread::sleep(Duration::from_millis(1));
        }
        phase.store(AFTER as u32, Relaxed);
        enough(AFTER);
        phase.store(END as u32, Relaxed);
    });
    let gave_up = |phase: usize| -> u64 {
        tallies.iter().map(|own| own[phase].all.load(Relaxed) - own[phase].fast.load(Relaxed)).sum()
    };
    let all =
        |phase: usize| -> u64 { tallies.iter().map(|own| own[phase].all.load(Relaxed)).sum() };
    assert_ne!(gave_up(HELD), 0, "the lock was held and nobody had to take it");
    // As good as before, give or take one operation in a hundred.
    let share = |phase: usize| 1.0 - gave_up(phase) as f64 / all(phase) as f64;
    assert!(share(AFTER) >= share(BEFORE) - 0.01, "{} after {}", share(AFTER), share(BEFORE));
    assert_eq!(refs.count(), 1);
}
