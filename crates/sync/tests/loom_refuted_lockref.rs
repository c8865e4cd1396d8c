//! Forms of the lockref and of its users that were wrong once. Each must fail here: a checker that lets one pass is broken.
//! `docs/lessons/lockref.md` lists them.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom_refuted_lockref`
#![cfg(loom)]

mod loom_common;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::thread;
use loom_common::{check, leak};
use vfscale_sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use vfscale_sync::wait::{WaitWord, wait, wake_one};
use vfscale_sync::{Get, LockRef, PutReturn, SeqCount};

const HELD: u32 = 1;

/// Whether a get looks at the lock.
#[derive(Clone, Copy, PartialEq)]
enum Counts {
    OnlyWhileFree,
    Always,
}

/// A lock and a count in one word; a holder who works with the count, and a get.
fn a_holder_and_a_get(counts: Counts) {
    const ONE: u32 = 2;
    let word = Arc::new(WaitWord::new(ONE));
    let getter = {
        let word = word.clone();
        thread::spawn(move || {
            if counts == Counts::Always {
                word.fetch_add(ONE, AcqRel);
                return;
            }
            loop {
                let seen = word.load(Relaxed);
                let free = seen & HELD == 0;
                if free && word.compare_exchange(seen, seen + ONE, AcqRel, Relaxed).is_ok() {
                    return;
                }
                thread::yield_now();
            }
        })
    };
    loop {
        let seen = word.load(Relaxed);
        if seen & HELD == 0 && word.compare_exchange(seen, seen | HELD, Acquire, Relaxed).is_ok() {
            // The holder knows the count, and unlocks with what it made of it.
            word.swap(seen, Release);
            break;
        }
        thread::yield_now();
    }
    getter.join().unwrap();
    assert_eq!(word.load(Relaxed), 2 * ONE, "a reference was lost");
}

/// The count has to stand still under the lock (review of 2013).
#[test]
#[should_panic(expected = "a reference was lost")]
fn counting_under_anothers_lock_is_refuted() {
    check("counting_under_anothers_lock_is_refuted", None, || a_holder_and_a_get(Counts::Always));
}

/// The right form.
#[test]
fn counting_only_while_the_lock_is_free_holds() {
    check("counting_only_while_the_lock_is_free_holds", None, || {
        a_holder_and_a_get(Counts::OnlyWhileFree);
    });
}

/// A cache entry of count zero, a reclaimer that has seen the zero without the lock, and a finder.
fn reclaim(look_again: bool) {
    struct Object {
        refs: LockRef,
        alive: UnsafeCell<bool>,
    }
    // SAFETY: the model's question.
    unsafe impl Sync for Object {}
    let object = Arc::new(Object { refs: LockRef::new(0, ()), alive: UnsafeCell::new(true) });
    let finder = {
        let object = object.clone();
        thread::spawn(move || {
            if object.refs.get_not_dead() == Get::Taken {
                // SAFETY: the model's question.
                object.alive.with(|alive| assert!(unsafe { *alive }, "used after teardown"));
                if object.refs.put_return() == PutReturn::Busy {
                    object.refs.lock().dec();
                }
            }
        })
    };
    if object.refs.count() == 0 {
        let mut guard = object.refs.lock();
        if !look_again || guard.count() == 0 {
            guard.mark_dead();
            drop(guard);
            // SAFETY: the model's question.
            object.alive.with_mut(|alive| unsafe { *alive = false });
        }
    }
    finder.join().unwrap();
}

/// A zero read from outside allows nothing: somebody took the entry up again before the lock.
#[test]
#[should_panic(expected = "ausality violation")]
fn killing_after_a_look_without_the_lock_is_refuted() {
    check("killing_after_a_look_without_the_lock_is_refuted", None, || reclaim(false));
}

/// The right form.
#[test]
fn killing_after_a_look_under_the_lock_holds() {
    check("killing_after_a_look_under_the_lock_holds", None, || reclaim(true));
}

/// How a child's parent is found without a lock.
#[derive(Clone, Copy, PartialEq)]
enum Looks {
    Once,
    /// Takes the reference, then looks whether it is the parent still.
    Again,
}

/// A child moves from one parent to another, which then loses its last reference; somebody asks
/// for the parent.
fn get_parent(looks: Looks) {
    struct World {
        parent: WaitWord,
        dirs: [LockRef; 2],
        moved: AtomicU32,
    }
    let world = Arc::new(World {
        parent: WaitWord::new(0),
        dirs: [LockRef::new(1, ()), LockRef::new(1, ())],
        moved: AtomicU32::new(0),
    });
    let mover = {
        let world = world.clone();
        thread::spawn(move || {
            world.parent.store(1, Release);
            world.moved.store(1, Release);
        })
    };
    // The question is asked after the move or during it.
    let asked_after = world.moved.load(Acquire) == 1;
    let seen = world.parent.load(Acquire);
    if world.dirs[seen as usize].get_not_dead() == Get::Taken {
        let moved_since = world.moved.load(Acquire) == 1;
        let still = looks == Looks::Once || world.parent.load(Acquire) == seen;
        if still && (asked_after || moved_since) {
            assert_eq!(
                seen, 1,
                "not the parent: the child had moved before the reference was ours"
            );
        }
    }
    mover.join().unwrap();
}

/// Moved between the look and the reference.
#[test]
#[should_panic(expected = "not the parent")]
fn a_parent_that_is_not_looked_at_again_is_refuted() {
    check("a_parent_that_is_not_looked_at_again_is_refuted", None, || get_parent(Looks::Once));
}

/// The right form.
#[test]
fn a_parent_that_is_looked_at_again_holds() {
    check("a_parent_that_is_looked_at_again_holds", None, || get_parent(Looks::Again));
}

/// What tells that parent and name belong together.
#[derive(Clone, Copy, PartialEq)]
enum Judge {
    /// The parent is the same before and after.
    SameParent,
    /// The sequence number is.
    Sequence,
}

/// A child moves away and back under another name; somebody reads its parent and its name.
fn parent_and_name(judge: Judge) {
    struct Child {
        seq: SeqCount,
        parent: WaitWord,
        name: WaitWord,
    }
    let child =
        Arc::new(Child { seq: SeqCount::new(), parent: WaitWord::new(0), name: WaitWord::new(0) });
    let mover = {
        let child = child.clone();
        thread::spawn(move || {
            // To parent 1 as 1, back to parent 0 as 2.
            for (parent, name) in [(1, 1), (0, 2)] {
                let _write = child.seq.write();
                child.parent.store(parent, Release);
                child.name.store(name, Release);
            }
        })
    };
    let start = child.seq.begin();
    let parent = child.parent.load(Acquire);
    let name = child.name.load(Acquire);
    let accepted = match judge {
        Judge::SameParent => child.parent.load(Acquire) == parent,
        Judge::Sequence => !child.seq.retry(start),
    };
    if accepted {
        assert!([(0, 0), (1, 1), (0, 2)].contains(&(parent, name)), "a pair that never was");
    }
    mover.join().unwrap();
}

/// Moved away and back in between.
#[test]
#[should_panic(expected = "a pair that never was")]
fn the_same_parent_twice_is_refuted() {
    check("the_same_parent_twice_is_refuted", Some(3), || parent_and_name(Judge::SameParent));
}

/// The right form.
#[test]
fn the_same_sequence_number_holds() {
    check("the_same_sequence_number_holds", Some(3), || parent_and_name(Judge::Sequence));
}

/// What a thread that has slept takes the lock with.
fn three_at_a_sleep_bit(after_sleep: u32) {
    const SLEEPERS: u32 = 2;
    let word = leak(WaitWord::new(HELD));
    let unlock = |word: &WaitWord| {
        if word.swap(0, Release) & SLEEPERS != 0 {
            wake_one(word);
        }
    };
    let sleepers: Vec<_> = (0..2)
        .map(|_| {
            thread::spawn(move || {
                let mut bits = HELD;
                while word.compare_exchange(0, bits, Acquire, Relaxed).is_err() {
                    let marked = word.compare_exchange(HELD, HELD | SLEEPERS, Relaxed, Relaxed);
                    if marked == Err(0) {
                        continue;
                    }
                    wait(word, HELD | SLEEPERS);
                    bits = after_sleep;
                }
                unlock(word);
            })
        })
        .collect();
    unlock(word);
    for sleeper in sleepers {
        sleeper.join().unwrap();
    }
}

/// Two sleep; the one that is woken takes the lock with the sleep bit cleared; nobody wakes the
/// other.
#[test]
#[should_panic(expected = "deadlock")]
fn clearing_the_sleep_bit_when_woken_is_refuted() {
    check("clearing_the_sleep_bit_when_woken_is_refuted", Some(3), || three_at_a_sleep_bit(1));
}

/// The right form, as in `lockref`.
#[test]
fn keeping_the_sleep_bit_when_woken_holds() {
    check("keeping_the_sleep_bit_when_woken_holds", Some(3), || three_at_a_sleep_bit(3));
}
