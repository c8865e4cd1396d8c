//! Grace periods under every schedule of the smallest cases, and the protocols that must fail.
//!
//! Both sides of the asymmetric fence are `fence(SeqCst)` here.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom_rcu`
#![cfg(loom)]

mod loom_common;

use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicU64, AtomicUsize, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;
use loom_common::check;
use vfscale_sync::rcu::domain::{Domain, Reader};

/// Two objects and the link to one of them. To free an object is to write to its cell: loom reports a reader that reads it at
/// the same time, or without being ordered before.
struct Shared {
    link: AtomicUsize,
    objects: [UnsafeCell<u32>; 3],
}

impl Shared {
    fn new() -> Self {
        Shared { link: AtomicUsize::new(0), objects: [const { 1 }; 3].map(UnsafeCell::new) }
    }

    fn read(&self) {
        let at = self.link.load(Acquire);
        // SAFETY: the cell reports what would be a race.
        self.objects[at].with(|object| unsafe { assert_eq!(*object, 1, "freed while read") });
    }

    fn unlink(&self) -> usize {
        let at = self.link.load(Relaxed);
        self.link.store(at + 1, Release);
        at
    }

    fn free(&self, at: usize) {
        // SAFETY: the cell reports what would be a race.
        self.objects[at].with_mut(|object| unsafe { *object = 0 });
    }
}

struct World {
    domain: Domain,
    readers: Vec<Reader>,
    writers: Mutex<()>,
    shared: Shared,
}

impl World {
    fn new(readers: usize) -> Arc<Self> {
        Arc::new(World {
            domain: Domain::new(),
            readers: (0..readers).map(|_| Reader::new()).collect(),
            writers: Mutex::new(()),
            shared: Shared::new(),
        })
    }

    fn section(&self, reader: usize) {
        self.readers[reader].enter(&self.domain);
        self.shared.read();
        self.readers[reader].leave();
    }

    /// One whole grace period, as the registry runs it.
    fn grace_period(&self) {
        let _lock = self.writers.lock().unwrap();
        let number = self.domain.start_locked();
        for reader in &self.readers {
            while !reader.is_quiet(number) {
                thread::yield_now();
            }
        }
        self.domain.complete_locked(number);
    }
}

/// RCU-1 and RCU-2: what a section reads is not freed under it.
#[test]
fn a_reader_keeps_what_it_reads() {
    check("a_reader_keeps_what_it_reads", None, || {
        let world = World::new(1);
        let reader = {
            let world = world.clone();
            thread::spawn(move || world.section(0))
        };
        let old = world.shared.unlink();
        world.grace_period();
        world.shared.free(old);
        reader.join().unwrap();
    });
}

/// A second section of the same reader covers up for the first: the store on entry must be Release (RCU-2).
#[test]
fn a_second_section_does_not_hide_the_first() {
    check("a_second_section_does_not_hide_the_first", Some(3), || {
        let world = World::new(1);
        let reader = {
            let world = world.clone();
            thread::spawn(move || {
                world.section(0);
                world.section(0);
            })
        };
        let old = world.shared.unlink();
        world.grace_period();
        world.shared.free(old);
        reader.join().unwrap();
    });
}

/// A reader that renews its section without leaving it: QSBR's quiescent state.
#[test]
fn a_renewed_section_does_not_hide_the_first() {
    check("a_renewed_section_does_not_hide_the_first", None, || {
        let world = World::new(1);
        let reader = {
            let world = world.clone();
            thread::spawn(move || {
                let reader = &world.readers[0];
                reader.enter(&world.domain);
                world.shared.read();
                reader.enter(&world.domain);
                world.shared.read();
                reader.leave();
            })
        };
        let old = world.shared.unlink();
        world.grace_period();
        world.shared.free(old);
        reader.join().unwrap();
    });
}

/// Two grace periods in a row, each freeing.
#[test]
fn grace_periods_follow_each_other() {
    check("grace_periods_follow_each_other", Some(3), || {
        let world = World::new(1);
        let reader = {
            let world = world.clone();
            thread::spawn(move || world.section(0))
        };
        for _ in 0..2 {
            let old = world.shared.unlink();
            world.grace_period();
            world.shared.free(old);
        }
        reader.join().unwrap();
    });
}

#[test]
fn two_readers_are_both_waited_for() {
    check("two_readers_are_both_waited_for", Some(2), || {
        let world = World::new(2);
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                let world = world.clone();
                thread::spawn(move || world.section(reader))
            })
            .collect();
        let old = world.shared.unlink();
        world.grace_period();
        world.shared.free(old);
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

/// One thread unlinks and frees if a number is over; another runs the grace periods, from before the unlink on. `earlier` is
/// how many grace periods too early the first believes it may free.
fn share(world: &Arc<World>, earlier: u64) {
    let reader = {
        let world = world.clone();
        thread::spawn(move || world.section(0))
    };
    let runner = {
        let world = world.clone();
        thread::spawn(move || {
            world.grace_period();
            world.grace_period();
        })
    };
    let old = world.shared.unlink();
    let snapshot = world.domain.snapshot() - earlier;
    if world.domain.is_complete(snapshot) {
        world.shared.free(old);
    }
    runner.join().unwrap();
    reader.join().unwrap();
}

/// RCU-3 and RCU-4: a grace period that another thread runs is as good as one's own, if it began late enough.
#[test]
fn a_shared_grace_period_began_after_the_snapshot() {
    check("a_shared_grace_period_began_after_the_snapshot", Some(2), || share(&World::new(1), 0));
}

/// RCU-3: the next grace period is enough for who held the writers' lock; that it is over is seen without the lock.
#[test]
fn the_next_grace_period_is_enough_under_the_lock() {
    check("the_next_grace_period_is_enough_under_the_lock", Some(3), || {
        let world = World::new(1);
        let reader = {
            let world = world.clone();
            thread::spawn(move || world.section(0))
        };
        let (old, number) = {
            let _lock = world.writers.lock().unwrap();
            (world.shared.unlink(), world.domain.snapshot_locked())
        };
        let runner = {
            let world = world.clone();
            thread::spawn(move || world.grace_period())
        };
        if world.domain.is_complete(number) {
            world.shared.free(old);
        }
        runner.join().unwrap();
        reader.join().unwrap();
    });
}

/// One less would do only if no grace period were between its barrier and its number.
#[test]
#[should_panic(expected = "Causality violation")]
fn a_snapshot_one_too_low_is_refuted() {
    check("a_snapshot_one_too_low_is_refuted", Some(2), || share(&World::new(1), 1));
}

/// The same protocol written out, with one part of it wrong.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The counter is raised before the barrier.
    BumpFirst,
    /// The reader's half of the barrier is missing.
    NoLightFence,
    /// The writer's half is.
    NoHeavyFence,
    /// The store on entry is relaxed.
    RelaxedEntry,
    /// The store on leaving is.
    RelaxedLeave,
}

fn by_hand(fault: Fault, sections: usize) {
    let world = Arc::new((AtomicU64::new(1), AtomicU64::new(0), Shared::new()));
    let reader = {
        let world = world.clone();
        thread::spawn(move || {
            let (grace, active, shared) = &*world;
            for _ in 0..sections {
                let order = if fault == Fault::RelaxedEntry { Relaxed } else { Release };
                active.store(grace.load(Relaxed), order);
                if fault != Fault::NoLightFence {
                    fence(SeqCst);
                }
                shared.read();
                active.store(0, if fault == Fault::RelaxedLeave { Relaxed } else { Release });
            }
        })
    };
    let (grace, active, shared) = &*world;
    let old = shared.unlink();
    if fault == Fault::BumpFirst {
        grace.store(2, Relaxed);
        // loom switches threads at accesses, not at fences: without this it would never stop between the two.
        thread::yield_now();
    }
    if fault != Fault::NoHeavyFence {
        fence(SeqCst);
    }
    if fault != Fault::BumpFirst {
        grace.store(2, Release);
    }
    loop {
        let seen = active.load(Acquire);
        if seen == 0 || seen >= 2 {
            break;
        }
        thread::yield_now();
    }
    shared.free(old);
    reader.join().unwrap();
}

/// The twin is faithful: without a fault it passes.
#[test]
fn by_hand_and_right_it_holds() {
    check("by_hand_and_right_it_holds", Some(3), || by_hand(Fault::None, 2));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn the_counter_before_the_barrier_is_refuted() {
    check("the_counter_before_the_barrier_is_refuted", None, || by_hand(Fault::BumpFirst, 1));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_reader_without_its_fence_is_refuted() {
    check("a_reader_without_its_fence_is_refuted", None, || by_hand(Fault::NoLightFence, 1));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_writer_without_its_fence_is_refuted() {
    check("a_writer_without_its_fence_is_refuted", None, || by_hand(Fault::NoHeavyFence, 1));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_relaxed_entry_after_an_earlier_section_is_refuted() {
    check("a_relaxed_entry_is_refuted", Some(3), || by_hand(Fault::RelaxedEntry, 2));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_relaxed_leave_is_refuted() {
    check("a_relaxed_leave_is_refuted", None, || by_hand(Fault::RelaxedLeave, 1));
}
