//! What a `BiasedRwLock` allows, with the bias and without.
use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64 as StdAtomicU64};
use std::thread;

fn is_note<T>(guard: &BiasedRwLockReadGuard<'_, T>) -> bool {
    matches!(guard.hold, Hold::Note(_))
}

#[test]
fn the_second_reader_leaves_a_note_and_the_first_does_not() {
    static LOCK: BiasedRwLock<u32> = BiasedRwLock::new(3);
    let first = LOCK.read();
    assert!(!is_note(&first));
    let second = LOCK.read();
    assert!(is_note(&second));
    // This thread's slot for the lock is in use.
    let third = LOCK.read();
    assert!(!is_note(&third));
    assert_eq!(*first + *second + *third, 9);
}

#[test]
fn a_note_keeps_writers_out_and_a_writer_keeps_notes_out() {
    let mut lock = BiasedRwLock::new(1);
    drop(lock.read());
    let note = lock.read();
    assert!(is_note(&note));
    assert!(lock.try_write().is_none());
    let other = crate::testing::scope(|s| s.spawn(|| is_note(&lock.read())).join().unwrap());
    assert!(other, "a writer that only tried has left the bias");
    drop(note);

    let mut writer = lock.try_write().expect("free");
    *writer += 1;
    assert!(lock.try_read().is_none());
    drop(writer);
    *lock.get_mut() += 1;
    assert_eq!((*lock.read(), format!("{:?}", lock.read())), (3, "3".into()));
    assert_eq!(lock.into_inner(), 3);
}

#[test]
fn the_bias_is_forbidden_for_a_while_after_it_was_taken() {
    let lock = BiasedRwLock::new(0);
    drop(lock.read());
    let begun = clock::now();
    crate::testing::scope(|s| {
        let note = lock.read();
        assert!(is_note(&note));
        s.spawn(|| drop(lock.write()));
        // The writer has taken the bias and waits for us.
        while lock.bias.load(Relaxed) != NONE {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(5));
        drop(note);
    });
    let (not_before, now) = (lock.not_before.load(Relaxed), clock::now());
    assert!(not_before > begun + 5_000_000 * INHIBIT, "it took 5 ms at least");
    lock.not_before.store(now + 1_000_000_000_000, Relaxed);
    drop(lock.read());
    assert!(!is_note(&lock.read()), "too early");
    lock.not_before.store(now, Relaxed);
    drop(lock.read());
    assert!(is_note(&lock.read()));
}

#[test]
fn a_guard_may_be_dropped_elsewhere() {
    let lock = BiasedRwLock::new(0);
    drop(lock.read());
    for _ in 0..100 {
        let note = lock.read();
        crate::testing::scope(|s| {
            s.spawn(|| drop(note));
            *lock.write() += 1;
        });
    }
    assert_eq!(*lock.read(), 100);
}

#[test]
fn no_reader_sees_half_of_a_write() {
    let lock = BiasedRwLock::new((0u64, 0u64));
    let (done, notes) = (AtomicBool::new(false), StdAtomicU64::new(0));
    crate::testing::scope(|s| {
        for _ in 0..5 {
            s.spawn(|| {
                let mut mine = 0;
                while !done.load(Relaxed) {
                    let pair = lock.read();
                    assert_eq!(pair.0, pair.1);
                    mine += u64::from(is_note(&pair));
                }
                notes.fetch_add(mine, Relaxed);
            });
        }
        for round in 0..300 {
            let mut pair = lock.write();
            pair.0 += 1;
            thread::yield_now();
            pair.1 += 1;
            drop(pair);
            if round % 3 == 0 {
                thread::sleep(Duration::from_micros(300));
            }
        }
        done.store(true, Relaxed);
    });
    assert_eq!(*lock.read(), (300, 300));
    assert!(notes.into_inner() > 0, "no reader ever left a note");
}
