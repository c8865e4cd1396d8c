//! The biased lock under every schedule of the smallest cases, and twins that must fail.
//!
//! Both sides of the asymmetric fence are `fence(SeqCst)` here.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom_biased`
#![cfg(loom)]

mod loom_common;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::thread;
use loom_common::check;
use vfscale_sync::biased::Biased;

/// Written by whoever is inside; loom reports two at a time, and one that is not ordered after the other.
struct Inside(UnsafeCell<u32>);

// SAFETY: the cell reports what would be a race.
unsafe impl Sync for Inside {}

impl Inside {
    fn new() -> Self {
        Inside(UnsafeCell::new(0))
    }

    fn visit(&self) {
        // SAFETY: the cell reports what would be a race.
        self.0.with_mut(|visits| unsafe { *visits += 1 });
    }

    fn visits(&self) -> u32 {
        // SAFETY: the cell reports what would be a race.
        self.0.with(|visits| unsafe { *visits })
    }
}

fn race(thieves: usize, visits: u32) {
    let biased = Arc::new(Biased::new(Inside::new()));
    let thieves: Vec<_> = (0..thieves)
        .map(|_| {
            let biased = biased.clone();
            thread::spawn(move || biased.steal(|inside| inside.visit()))
        })
        .collect();
    for _ in 0..visits {
        // SAFETY: the only caller.
        unsafe { biased.own(|inside| inside.visit()) };
    }
    let all = visits + thieves.len() as u32;
    for thief in thieves {
        thief.join().unwrap();
    }
    assert_eq!(biased.steal(|inside| inside.visits()), all);
}

#[test]
fn owner_and_thief_exclude_each_other() {
    check("owner_and_thief_exclude_each_other", Some(3), || race(1, 2));
}

#[test]
fn two_thieves_exclude_each_other() {
    check("two_thieves_exclude_each_other", Some(2), || race(2, 0));
}

/// A thief that comes again finds an owner that gave way and is coming back.
#[test]
fn a_thief_comes_again() {
    check("a_thief_comes_again", Some(4), || {
        let biased = Arc::new(Biased::new(Inside::new()));
        let thief = {
            let biased = biased.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    biased.steal(|inside| inside.visit());
                }
            })
        };
        // SAFETY: the only caller.
        unsafe { biased.own(|inside| inside.visit()) };
        thief.join().unwrap();
        assert_eq!(biased.steal(|inside| inside.visits()), 3);
    });
}

/// The same protocol written out, with one part of it wrong.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The owner's half of the barrier is missing.
    NoLightFence,
    /// The thief's half is.
    NoHeavyFence,
}

fn by_hand(fault: Fault) {
    let shared = Arc::new((AtomicU32::new(0), AtomicU32::new(0), Inside::new()));
    let thief = {
        let shared = shared.clone();
        thread::spawn(move || {
            let (busy, stolen, inside) = &*shared;
            stolen.store(1, Relaxed);
            if fault != Fault::NoHeavyFence {
                loom::sync::atomic::fence(SeqCst);
            }
            while busy.load(Acquire) != 0 {
                thread::yield_now();
            }
            inside.visit();
            stolen.store(0, Release);
        })
    };
    let (busy, stolen, inside) = &*shared;
    for _ in 0..2 {
        busy.store(1, Relaxed);
        if fault != Fault::NoLightFence {
            loom::sync::atomic::fence(SeqCst);
        }
        if stolen.load(Acquire) == 0 {
            inside.visit();
        }
        busy.store(0, Release);
    }
    thief.join().unwrap();
}

/// The twin is faithful: without a fault it passes.
#[test]
fn by_hand_and_right_it_holds() {
    check("by_hand_and_right_it_holds", Some(3), || by_hand(Fault::None));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn an_owner_without_its_fence_is_refuted() {
    check("an_owner_without_its_fence_is_refuted", Some(3), || by_hand(Fault::NoLightFence));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_thief_without_its_fence_is_refuted() {
    check("a_thief_without_its_fence_is_refuted", Some(3), || by_hand(Fault::NoHeavyFence));
}
