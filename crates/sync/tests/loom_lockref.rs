//! `LockRef` under every schedule of the smallest cases.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom_lockref`
#![cfg(loom)]

mod loom_common;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use loom_common::check;
use vfscale_sync::{Get, LockRef, Put, PutReturn};

/// What stands for the object: loom fails when a use and the teardown are not ordered.
struct Object {
    refs: LockRef<UnsafeCell<u32>>,
    body: UnsafeCell<u32>,
}

impl Object {
    fn new(count: u32) -> Arc<Self> {
        Arc::new(Self { refs: LockRef::new(count, UnsafeCell::new(0)), body: UnsafeCell::new(0) })
    }

    fn use_it(&self) {
        // SAFETY: the model's question: a reference keeps the teardown away.
        self.body.with(|body| assert_ne!(unsafe { *body }, DESTROYED, "used after teardown"));
    }

    fn put(&self) {
        match self.refs.put_or_lock() {
            Put::StillLive => {}
            Put::LastLocked(mut guard) => {
                if guard.dec() == 0 {
                    guard.mark_dead();
                    drop(guard);
                    // SAFETY: dead, and the last reference was ours.
                    self.body.with_mut(|body| unsafe { *body = DESTROYED });
                }
            }
        }
    }
}

const DESTROYED: u32 = 0xdead;

/// LR-1: two users drop, the last one tears down; a third comes by with a stale id.
#[test]
fn the_last_put_tears_down_after_all_uses() {
    check("the_last_put_tears_down_after_all_uses", Some(3), || {
        let object = Object::new(2);
        let users: Vec<_> = (0..2)
            .map(|_| {
                let object = object.clone();
                thread::spawn(move || {
                    object.use_it();
                    object.put();
                })
            })
            .collect();
        if object.refs.get_not_dead() == Get::Taken {
            object.use_it();
            object.put();
        }
        for user in users {
            user.join().unwrap();
        }
        assert!(object.refs.is_dead());
        assert_eq!(object.refs.get_not_dead(), Get::Refused);
    });
}

/// `put_return` to zero leaves a cache entry that `get_not_dead` takes up again, unless a reclaimer
/// killed it first.
#[test]
fn zero_is_alive_until_a_reclaimer_says_otherwise() {
    check("zero_is_alive_until_a_reclaimer_says_otherwise", Some(3), || {
        let object = Object::new(1);
        let reclaimer = {
            let object = object.clone();
            thread::spawn(move || {
                let mut guard = object.refs.lock();
                if guard.count() == 0 {
                    guard.mark_dead();
                    drop(guard);
                    // SAFETY: killed at zero, so nobody uses it.
                    object.body.with_mut(|body| unsafe { *body = DESTROYED });
                }
            })
        };
        let finder = {
            let object = object.clone();
            thread::spawn(move || {
                if object.refs.get_not_dead() == Get::Taken {
                    object.use_it();
                    drop_locked_or_not(&object);
                }
            })
        };
        object.use_it();
        drop_locked_or_not(&object);
        reclaimer.join().unwrap();
        finder.join().unwrap();
        let count = object.refs.count();
        assert!(count == 0 || object.refs.is_dead(), "{count} references are left");
    });
}

fn drop_locked_or_not(object: &Object) {
    if let PutReturn::Busy = object.refs.put_return() {
        object.refs.lock().dec();
    }
}

/// LR-2, and the count that stands still: a holder works on the value while another counts and a
/// third waits for the lock.
#[test]
fn the_lock_excludes_and_freezes_the_count() {
    check("the_lock_excludes_and_freezes_the_count", Some(2), || {
        let object = Object::new(1);
        let counter = {
            let object = object.clone();
            thread::spawn(move || {
                object.refs.get();
                let _ = object.refs.put_or_lock();
            })
        };
        let locker = {
            let object = object.clone();
            thread::spawn(move || add_one(&object))
        };
        add_one(&object);
        counter.join().unwrap();
        locker.join().unwrap();
        let guard = object.refs.lock();
        assert_eq!(guard.count(), 1);
        // SAFETY: locked.
        guard.with(|value| assert_eq!(unsafe { *value }, 2));
    });
}

fn add_one(object: &Object) {
    let guard = object.refs.lock();
    let frozen = guard.count();
    // SAFETY: locked; loom fails if it is not so.
    guard.with_mut(|value| unsafe { *value += 1 });
    assert_eq!(object.refs.count(), frozen, "the count moved under the lock");
}

/// The sleep bit: three lockers; whoever is woken keeps the bit for the other. A lost wake-up is a
/// deadlock, which loom reports.
#[test]
fn the_sleep_bit_is_handed_on() {
    check("the_sleep_bit_is_handed_on", Some(2), || {
        let object = Object::new(1);
        let lockers: Vec<_> = (0..2)
            .map(|_| {
                let object = object.clone();
                thread::spawn(move || add_one(&object))
            })
            .collect();
        add_one(&object);
        for locker in lockers {
            locker.join().unwrap();
        }
        // SAFETY: locked.
        object.refs.lock().with(|value| assert_eq!(unsafe { *value }, 3));
    });
}

/// LR-3: whoever gets a reference from a stale id sees what was written before the new life began; also if there are too many
/// references to count them.
#[test]
fn a_reference_from_a_stale_id_sees_the_new_life() {
    struct Slot {
        refs: LockRef,
        body: UnsafeCell<u32>,
    }
    // SAFETY: the model's question.
    unsafe impl Sync for Slot {}
    for count in [1, u32::MAX] {
        let name = format!("a_reference_from_a_stale_id_sees_the_new_life, {count}");
        check(&name, Some(3), move || {
            let slot =
                Arc::new(Slot { refs: LockRef::new(0, ()), body: UnsafeCell::new(DESTROYED) });
            slot.refs.lock().mark_dead();
            let finders: Vec<_> = (0..2)
                .map(|_| {
                    let slot = slot.clone();
                    thread::spawn(move || {
                        if slot.refs.get_not_dead() == Get::Taken {
                            // SAFETY: the model's question.
                            slot.body.with(|body| assert_eq!(unsafe { *body }, 7));
                        }
                    })
                })
                .collect();
            // SAFETY: nobody has a reference.
            slot.body.with_mut(|body| unsafe { *body = 7 });
            slot.refs.reset(count);
            for finder in finders {
                finder.join().unwrap();
            }
        });
    }
}
