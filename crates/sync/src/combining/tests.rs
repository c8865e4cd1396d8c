//! Every operation is done once, by whomever, and is there when its owner goes on.
use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// A set of small numbers that remembers the order of what was done.
#[derive(Debug, Default)]
struct Set {
    members: Vec<bool>,
    done: Vec<(usize, bool, ThreadId)>,
}

impl Apply for Set {
    /// Member, and whether to add or remove it.
    type Op = (usize, bool);

    fn apply(&mut self, (member, add): (usize, bool)) -> bool {
        if self.members.len() <= member {
            self.members.resize(member + 1, false);
        }
        self.done.push((member, add, thread::current().id()));
        core::mem::replace(&mut self.members[member], add) != add
    }
}

#[test]
fn an_operation_answers_whether_it_changed_anything() {
    let mut set = Combining::<Set>::new(Set::default());
    assert!(set.run((3, true)));
    assert!(!set.run((3, true)));
    assert!(set.run((3, false)));
    assert_eq!(set.lock().done.len(), 3);
    assert_eq!(set.get_mut().members.len(), 4);
}

fn own_changes_are_seen(threads: usize, rounds: usize, hold: Duration) {
    let set = Combining::<Set>::new(Set::default());
    crate::testing::scope(|s| {
        for me in 0..threads {
            let set = &set;
            s.spawn(move || {
                for round in 0..rounds {
                    assert!(set.run((me, true)));
                    assert!(set.run((me, false)));
                    if round % 16 == me {
                        let set = set.lock();
                        assert!(!set.members[me]);
                        if !hold.is_zero() {
                            thread::sleep(hold);
                        }
                    }
                }
            });
        }
    });
    let done = &set.lock().done;
    assert_eq!(done.len(), threads * rounds * 2);
    for me in 0..threads {
        let own = done.iter().filter(|(member, _, _)| *member == me);
        let in_order = own.enumerate().all(|(i, (_, add, _))| *add == (i % 2 == 0));
        assert!(in_order, "order of one thread");
    }
    assert!(set.tail.load(Relaxed).is_null());
}

#[test]
fn all_is_done_once_and_in_order() {
    own_changes_are_seen(4, 8_000, Duration::ZERO);
}

/// Holders sleep, so that waiters queue and park: a lost wake-up would hang here.
#[test]
fn queued_operations_are_done_while_holders_sleep() {
    own_changes_are_seen(6, 200, Duration::from_micros(200));
}

/// More waiters than a batch cannot be made with threads; a holder that sleeps makes one long queue
/// instead.
#[test]
fn a_queue_behind_a_sleeping_holder_is_served() {
    let set = Combining::<Set>::new(Set::default());
    let holding = AtomicBool::new(false);
    crate::testing::scope(|s| {
        s.spawn(|| {
            let _locked = set.lock();
            holding.store(true, Release);
            thread::sleep(Duration::from_millis(30));
        });
        while !holding.load(Acquire) {
            thread::yield_now();
        }
        for me in 0..12 {
            let set = &set;
            s.spawn(
                move || {
                    if me % 4 == 3 { set.lock().apply((me, true)) } else { set.run((me, true)) }
                },
            );
        }
    });
    let members = &set.lock().members;
    assert!(members.len() == 12 && members.iter().all(|m| *m));
}

#[test]
fn a_panic_in_a_direct_operation_unlocks() {
    struct Bad;
    impl Apply for Bad {
        type Op = bool;
        fn apply(&mut self, fail: bool) -> bool {
            assert!(!fail, "on purpose");
            true
        }
    }
    let bad = Combining::<Bad>::new(Bad);
    assert!(crate::testing::scope(|s| s.spawn(|| bad.run(true)).join()).is_err());
    assert!(bad.run(false));
}

/// One who holds the lock until `waiters` wait, and some time more, while each of these does `f`.
fn behind_a_sleeping_holder<const BATCH: usize>(
    set: &Combining<Set, BATCH>,
    waiters: usize,
    f: impl Fn(usize) + Sync,
) {
    let started = AtomicUsize::new(0);
    crate::testing::scope(|s| {
        let locked = set.lock();
        for me in 0..waiters {
            let (started, f) = (&started, &f);
            s.spawn(move || {
                started.fetch_add(1, Relaxed);
                f(me);
            });
        }
        while started.load(Relaxed) < waiters {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(40));
        drop(locked);
    });
}

/// R4.1: the frame of a waiter is used for something else at once, and stays as its owner left it.
#[test]
fn r4_1_a_node_is_not_touched_after_it_was_done() {
    #[inline(never)]
    fn reuse_the_stack(n: u64) {
        let frame = core::hint::black_box([n; 64]);
        for _ in 0..50 {
            core::hint::spin_loop();
        }
        assert!(core::hint::black_box(&frame).iter().all(|word| *word == n));
    }
    let set = Combining::<Set>::new(Set::default());
    for _ in 0..5 {
        behind_a_sleeping_holder(&set, 8, |me| {
            for n in 0..200 {
                set.run((me, n % 2 == 0));
                reuse_the_stack(n);
            }
        });
    }
    assert_eq!(set.lock().done.len(), 5 * 8 * 200);
}

/// R4.3: nobody does more than one batch for others, and its own.
#[test]
fn r4_3_the_head_leaves_after_a_batch() {
    const BATCH: usize = 2;
    let set = Combining::<Set, BATCH>::new(Set::default());
    behind_a_sleeping_holder(&set, 16, |me| assert!(set.run((me, true))));
    let done = &set.lock().done;
    assert_eq!(done.len(), 16);
    for (_, _, by) in done {
        let share = done.iter().filter(|(_, _, other)| other == by).count();
        assert!(share <= 1 + BATCH, "one thread did {share} operations");
    }
}

/// A queue behind a sleeping holder is done by few threads: there is combining at all. A busy
/// machine may keep the waiters from queueing in time, so there are several attempts.
#[test]
fn a_queue_is_combined() {
    let for_others = || {
        let set = Combining::<Set>::new(Set::default());
        behind_a_sleeping_holder(&set, 16, |me| assert!(set.run((me, true))));
        let done = &set.lock().done;
        let doers: std::collections::HashSet<_> = done.iter().map(|(_, _, by)| *by).collect();
        done.len() - doers.len()
    };
    assert!((0..20).any(|_| for_others() >= 4), "nearly everybody did its own");
}

/// R4.5: while the holder sleeps, waiters use next to no processor time.
#[test]
#[cfg(all(feature = "std", target_os = "linux"))]
fn r4_5_waiters_sleep_while_the_combiner_does() {
    use rustix::time::{ClockId, clock_gettime};
    let set = Combining::<Set>::new(Set::default());
    behind_a_sleeping_holder(&set, 6, |me| {
        let used = || clock_gettime(ClockId::ThreadCPUTime);
        let before = used();
        assert!(set.run((me, true)));
        let after = used();
        let micros =
            (after.tv_sec - before.tv_sec) * 1_000_000 + (after.tv_nsec - before.tv_nsec) / 1_000;
        assert!(micros < 15_000, "{micros} µs of processor time in a wait of 40 ms");
    });
}
