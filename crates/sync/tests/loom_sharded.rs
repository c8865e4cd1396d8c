//! Which list a slot is on, while threads take it off and put it on another.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom_sharded`
#![cfg(loom)]

mod loom_common;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use loom_common::check;
use vfscale_sync::QMutex;
use vfscale_sync::shard_mark::ShardMark;

/// Two lists, each a count of members, and one slot. Loom watches the counts and the slot's link.
struct Lists {
    counts: [QMutex<u32>; 2],
    mark: ShardMark,
    link: UnsafeCell<u32>,
}

// SAFETY: the link is reached under the lock of the list that the mark names, or by who has found
// the slot on no list and is the one to put it on.
unsafe impl Send for Lists {}
// SAFETY: as above; loom fails if it is not so.
unsafe impl Sync for Lists {}

impl Lists {
    fn new() -> Arc<Self> {
        let lists = Arc::new(Self {
            counts: [QMutex::new(0), QMutex::new(0)],
            mark: ShardMark::new(),
            link: UnsafeCell::new(0),
        });
        lists.add(0);
        lists
    }

    fn add(&self, number: usize) {
        assert!(!self.mark.is_set());
        let mut count = self.counts[number].lock();
        // SAFETY: see the type.
        self.link.with_mut(|link| unsafe {
            assert_eq!(*link, 0, "put on while it is linked");
            *link = number as u32 + 1;
        });
        *count += 1;
        self.mark.set(number);
    }

    fn del(&self) -> bool {
        let Some((number, mut count)) = self.mark.lock(|number| self.counts.get(number)) else {
            return false;
        };
        // SAFETY: see the type.
        self.link.with_mut(|link| unsafe {
            assert_eq!(*link, number as u32 + 1, "taken off a list that it is not on");
            *link = 0;
        });
        *count -= 1;
        self.mark.clear();
        true
    }

    fn counts(&self) -> [u32; 2] {
        [*self.counts[0].lock(), *self.counts[1].lock()]
    }
}

/// One of two removals succeeds.
#[test]
fn two_take_off_one_slot() {
    check("two_take_off_one_slot", None, || {
        let lists = Lists::new();
        let other = {
            let lists = lists.clone();
            thread::spawn(move || lists.del())
        };
        let ours = lists.del();
        assert_ne!(ours, other.join().unwrap());
        assert_eq!(lists.counts(), [0, 0]);
    });
}

/// One moves the slot while the other takes it off, wherever it finds it.
#[test]
fn one_moves_and_one_takes_off() {
    check("one_moves_and_one_takes_off", Some(3), || {
        let lists = Lists::new();
        let mover = {
            let lists = lists.clone();
            thread::spawn(move || {
                if lists.del() {
                    lists.add(1);
                }
            })
        };
        let took_off = lists.del();
        mover.join().unwrap();
        let left: u32 = lists.counts().iter().sum();
        assert_eq!(left, u32::from(!took_off));
        assert_eq!(lists.mark.is_set(), !took_off);
    });
}

/// SM-1: who sees the slot on no list puts it on another, and finds the link as the removal left
/// it. No lock is common to the two.
#[test]
fn one_takes_off_and_one_puts_on() {
    check("one_takes_off_and_one_puts_on", None, || {
        let lists = Lists::new();
        let adder = {
            let lists = lists.clone();
            thread::spawn(move || {
                if !lists.mark.is_set() {
                    lists.add(1);
                }
            })
        };
        assert!(lists.del());
        adder.join().unwrap();
        assert_eq!(lists.counts()[0], 0);
        assert_eq!(lists.counts()[1], u32::from(lists.mark.is_set()));
    });
}
