//! Every operation is done once, by whomever, and is there when its owner goes on.
use super::*;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

/// A set of small numbers that remembers the order of what was done.
#[derive(Debug, Default)]
struct Set {
    members: Vec<bool>,
    done: Vec<(usize, bool)>,
}

impl Apply for Set {
    /// Member, and whether to add or remove it.
    type Op = (usize, bool);

    fn apply(&mut self, (member, add): (usize, bool)) -> bool {
        if self.members.len() <= member {
            self.members.resize(member + 1, false);
        }
        self.done.push((member, add));
        core::mem::replace(&mut self.members[member], add) != add
    }
}

#[test]
fn an_operation_answers_whether_it_changed_anything() {
    let mut set = Combining::new(Set::default());
    assert!(set.run((3, true)));
    assert!(!set.run((3, true)));
    assert!(set.run((3, false)));
    assert_eq!(set.with(|set| set.done.len()), 3);
    assert_eq!(set.get_mut().members.len(), 4);
}

fn own_changes_are_seen(threads: usize, rounds: usize, hold: Duration) {
    let set = Combining::new(Set::default());
    thread::scope(|s| {
        for me in 0..threads {
            let set = &set;
            s.spawn(move || {
                for round in 0..rounds {
                    assert!(set.run((me, true)));
                    assert!(set.run((me, false)));
                    if round % 16 == me {
                        set.with(|set| {
                            assert!(!set.members[me]);
                            if !hold.is_zero() {
                                thread::sleep(hold);
                            }
                        });
                    }
                }
            });
        }
    });
    set.with(|set| {
        assert_eq!(set.done.len(), threads * rounds * 2);
        for me in 0..threads {
            let own = set.done.iter().filter(|(member, _)| *member == me);
            assert!(
                own.enumerate().all(|(i, (_, add))| *add == (i % 2 == 0)),
                "order of one thread"
            );
        }
    });
    assert!(set.tail.load(Relaxed).is_null());
    assert_eq!((set.lock.load(Relaxed), set.flag.load(Relaxed)), (FREE, 0));
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
    let set = Combining::new(Set::default());
    let holding = AtomicBool::new(false);
    thread::scope(|s| {
        s.spawn(|| {
            set.with(|_| {
                holding.store(true, Release);
                thread::sleep(Duration::from_millis(30));
            });
        });
        while !holding.load(Acquire) {
            thread::yield_now();
        }
        for me in 0..12 {
            let set = &set;
            s.spawn(move || {
                if me % 4 == 3 {
                    set.with(|set| set.apply((me, true)))
                } else {
                    set.run((me, true))
                }
            });
        }
    });
    set.with(|set| assert!(set.members.len() == 12 && set.members.iter().all(|m| *m)));
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
    let bad = Combining::new(Bad);
    assert!(thread::scope(|s| s.spawn(|| bad.run(true)).join()).is_err());
    assert!(bad.run(false));
}
