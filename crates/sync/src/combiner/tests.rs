//! Every closure runs once, and its owner gets the answer, or the panic.
use super::*;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

type Sums = BTreeMap<usize, u64>;

/// `threads` that each add 1 to `rounds` to a sum of their own; now and then one sleeps inside.
fn sums_are_exact<const BATCH: usize>(threads: usize, rounds: u64, sleeps: bool) {
    let mut combiner = Combiner::<Sums, BATCH>::new(Sums::new());
    crate::testing::scope(|scope| {
        for me in 0..threads {
            let combiner = &combiner;
            scope.spawn(move || {
                let mut expected = 0;
                for round in 1..=rounds {
                    expected += round;
                    // Borrows from this frame, and answers with something that owns memory.
                    let before = &expected;
                    let text = combiner.run(|sums| {
                        let sum = sums.entry(me).or_default();
                        *sum += round;
                        if sleeps && round % 16 == 0 {
                            thread::sleep(Duration::from_micros(100));
                        }
                        assert_eq!(*sum, *before);
                        sum.to_string()
                    });
                    assert_eq!(text, expected.to_string());
                }
            });
        }
    });
    let expected = rounds * (rounds + 1) / 2;
    assert!(combiner.get_mut().values().all(|sum| *sum == expected));
    assert_eq!(combiner.run_here(|sums| sums.len()), threads);
}

#[test]
fn answers_come_back() {
    sums_are_exact::<128>(4, 5_000, false);
}

#[test]
fn answers_come_back_from_sleeping_combiners() {
    sums_are_exact::<128>(8, 150, true);
    sums_are_exact::<1>(6, 100, true);
}

/// Every second closure panics, most of them in another thread's batch. Each panic arrives where it
/// belongs, and nowhere else.
#[test]
fn a_panic_goes_to_its_owner() {
    let combiner = Combiner::<usize>::new(0);
    crate::testing::scope(|scope| {
        let locked = combiner.inner.lock();
        for me in 0..10 {
            let combiner = &combiner;
            scope.spawn(move || {
                let run = || {
                    combiner.run(|count| {
                        *count += 1;
                        if me % 2 == 1 {
                            std::panic::resume_unwind(Box::new(me));
                        }
                        me
                    })
                };
                match catch_unwind(AssertUnwindSafe(run)) {
                    Ok(answer) => assert_eq!((answer, me % 2), (me, 0)),
                    Err(panic) => assert_eq!(panic.downcast_ref(), Some(&me)),
                }
            });
        }
        thread::sleep(Duration::from_millis(30));
        drop(locked);
    });
    assert_eq!(combiner.run(|count| *count), 10);
}

/// What a closure captured and what it answered is dropped once each.
#[test]
fn nothing_is_lost_or_dropped_twice() {
    let token = std::sync::Arc::new(());
    let combiner = Combiner::<Vec<std::sync::Arc<()>>, 2>::new(Vec::new());
    crate::testing::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let (kept, answered) = (token.clone(), token.clone());
                    drop(combiner.run(move |all| {
                        all.push(kept);
                        answered
                    }));
                }
            });
        }
    });
    assert_eq!(std::sync::Arc::strong_count(&token), 1 + 6 * 200);
    drop(combiner);
    assert_eq!(std::sync::Arc::strong_count(&token), 1);
}
