//! Planted mistakes are found, with both places, and right orders are not.
use crate::{
    BiasedRwLock, Combiner, Fresh, LockRef, Pool, QMutex, QRwLock, SeqLock, Slot, lockdep,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

/// The complaint about what `f` does, in a thread of its own.
fn complaint(f: impl FnOnce() + Send) -> Option<String> {
    let outcome =
        crate::testing::scope(|s| s.spawn(|| catch_unwind(AssertUnwindSafe(f))).join().unwrap());
    let panic = outcome.err()?;
    let text = panic.downcast_ref::<String>().cloned().expect("a complaint is a text");
    assert!(text.starts_with("lockdep: "), "{text}");
    Some(text)
}

#[test]
fn two_locks_in_two_orders_are_found_with_four_places() {
    let (a, b) = (QMutex::new(1), QRwLock::new(2));
    let first = line!() + 1;
    assert_eq!(complaint(|| drop((a.lock(), b.read()))), None);
    assert_eq!(complaint(|| drop((a.lock(), b.write()))), None, "the same order");
    let text = complaint(|| {
        let _b = b.write();
        let _a = a.lock();
    })
    .expect("the other order");
    for line in [first, first + 3, first + 4] {
        assert!(text.contains(&format!("tests.rs:{line}:")), "line {line} is not in: {text}");
    }
    let again = complaint(|| {
        let _b = b.write();
        let _a = a.lock();
    });
    assert_eq!(again, None, "one complaint is enough");
}

#[test]
fn a_circle_of_three_is_found() {
    let (a, b, c) = (QMutex::new(1), QMutex::new(2), QMutex::new(3));
    assert_eq!(complaint(|| drop((a.lock(), b.lock()))), None);
    assert_eq!(complaint(|| drop((b.lock(), c.lock()))), None);
    let text = complaint(|| drop((c.lock(), a.lock()))).expect("a circle");
    assert_eq!(text.matches("was held").count(), 2, "both steps: {text}");
}

#[test]
fn a_lock_taken_twice_is_found_before_it_hangs() {
    let (mutex, rw, seq) = (QMutex::new(1), QRwLock::new(2), SeqLock::new());
    let mut counted = LockRef::new(1, 3);
    assert!(complaint(|| drop((mutex.lock(), mutex.lock()))).unwrap().contains("for itself"));
    assert!(complaint(|| drop((rw.write(), rw.read()))).unwrap().contains("for itself"));
    assert!(complaint(|| drop((seq.write(), seq.write()))).unwrap().contains("for itself"));
    assert!(complaint(|| drop((counted.lock(), counted.lock()))).unwrap().contains("for itself"));
    assert!(complaint(|| drop((rw.read(), rw.read()))).unwrap().contains("take it nested"));
    assert_eq!(complaint(|| drop((rw.read(), rw.read_nested()))), None);
    *counted.get_mut() += 1;
}

#[test]
fn what_is_only_tried_adds_no_order() {
    let (a, b) = (QMutex::new(1), QMutex::new(2));
    assert_eq!(complaint(|| drop((a.lock(), b.try_lock().unwrap()))), None);
    assert_eq!(complaint(|| drop((b.lock(), a.lock()))), None);
}

#[test]
fn notes_and_closures_are_held_too() {
    let (biased, combiner) = (BiasedRwLock::new(1), Combiner::<_, 8>::new(2));
    drop(biased.read());
    assert_eq!(complaint(|| combiner.run(|_| drop(biased.read()))), None);
    let text = complaint(|| {
        let _note = biased.read();
        combiner.run(|two| *two += 1);
    });
    assert!(text.expect("the other order").contains("two orders"));
}

#[test]
fn a_guard_that_was_sent_away_is_no_longer_held_here() {
    let (a, b) = (QRwLock::new(1), QRwLock::new(2));
    let outcome = complaint(|| {
        let guard = a.write();
        crate::testing::scope(|s| {
            s.spawn(move || drop(guard));
        });
        drop(b.write());
        drop(a.write());
    });
    assert_eq!(outcome, None);
    assert_eq!(complaint(|| drop((b.write(), a.write()))), None, "a was not held beside b");
}

/// Two lockrefs in one slot.
struct Pair {
    outer: LockRef,
    inner: LockRef,
}

impl Slot for Pair {
    fn new() -> Self {
        Pair { outer: LockRef::new(1, ()), inner: LockRef::new(1, ()) }
    }
}

static PAIRS: Pool<Pair> = Pool::new(64);

#[test]
fn lockrefs_in_slots_are_of_one_class_by_their_place() {
    assert_eq!(size_of::<LockRef>(), 8, "still one word");
    let (one, other): (Fresh<Pair>, Fresh<Pair>) = (PAIRS.alloc().unwrap(), PAIRS.alloc().unwrap());
    assert_eq!(complaint(|| drop((one.outer.lock(), one.inner.lock()))), None);
    let text = complaint(|| drop((other.inner.lock(), other.outer.lock()))).expect("another slot");
    assert!(text.contains("LockRef in") && text.contains("Pair at byte 8"), "{text}");
    // Parent and child are of one class: their order is the tree's.
    assert_eq!(complaint(|| drop((one.outer.lock(), other.outer.lock()))), None);
    assert_eq!(complaint(|| drop((other.outer.lock(), one.outer.lock()))), None);
}

#[test]
fn a_lockref_that_is_gone_is_forgotten() {
    let fixed = QMutex::new(());
    for round in 0..2 {
        // At one address both times.
        let object = Box::new(LockRef::new(1, ()));
        let outcome = if round == 0 {
            complaint(|| drop((fixed.lock(), object.lock())))
        } else {
            complaint(|| drop((object.lock(), fixed.lock())))
        };
        assert_eq!(outcome, None);
    }
}

/// The thread's debug case: with every lock checked, references still go past the lock.
#[test]
fn the_lock_free_way_stays_lock_free() {
    let object = LockRef::new(1, ());
    let text = complaint(|| {
        // Would be a lock taken twice, if it took the lock.
        let mutex = QMutex::new(());
        let _held = mutex.lock();
        for _ in 0..1_000 {
            object.get();
            let _ = object.put_return();
        }
    });
    assert_eq!(text, None);
    let name = format!("{:#x}", std::ptr::from_ref(&object).addr());
    assert!(lockdep::report().iter().all(|class| !class.name.contains(&name)), "it was locked");
}

#[test]
fn waiting_and_holding_are_measured() {
    static LOCK: QMutex<u32> = QMutex::new(0);
    let place = format!("{}:{}", file!(), line!() - 1);
    crate::testing::scope(|s| {
        let held = LOCK.lock();
        s.spawn(|| *LOCK.lock() += 1);
        thread::sleep(Duration::from_millis(20));
        drop(held);
    });
    let classes = lockdep::report();
    let class = classes.iter().find(|class| class.name.contains(&place)).expect("it was taken");
    assert_eq!((class.taken, class.contended), (2, 1), "{class}");
    assert!(class.waited >= Duration::from_millis(5), "{class}");
    assert!(class.longest >= Duration::from_millis(20) && class.held >= class.longest, "{class}");
    assert!((class.contention() - 50.0).abs() < 0.1 && class.utilisation() > 0.0, "{class}");
}
