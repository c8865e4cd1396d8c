//! Forms of the combining lock under list batching that were wrong once. Each must fail here: a checker that lets one pass is
//! broken. `docs/lessons/list_batch.md` lists them.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom_refuted_list`
#![cfg(loom)]

mod loom_common;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::fence;
use loom::thread;
use loom_common::{check, leak};
use vfscale_sync::Ordering::{Acquire, Relaxed, Release, SeqCst};
use vfscale_sync::wait::{WaitWord, wait, wake_one};

/// How the holder, or the sleeper, differs from the right form.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The head sleeps on the lock while the waker clears the flag.
    SleepOnLock,
    /// The holder's half of the barrier is missing.
    NoLightFence,
    /// The sleeper's half is.
    NoHeavyFence,
}

/// A lock whose unlock is a store and a look at a flag, as in `combining`.
struct FlagLock {
    lock: WaitWord,
    flag: WaitWord,
}

impl FlagLock {
    fn try_lock(&self) -> bool {
        self.lock.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }

    fn lock(&self, fault: Fault) {
        while !self.try_lock() {
            self.flag.store(1, Relaxed);
            if fault != Fault::NoHeavyFence {
                fence(SeqCst);
            }
            if self.lock.load(Relaxed) == 0 {
                continue;
            }
            match fault {
                Fault::SleepOnLock => wait(&self.lock, 1),
                _ => wait(&self.flag, 1),
            }
        }
    }

    fn unlock(&self, fault: Fault) {
        self.lock.store(0, Release);
        if fault != Fault::NoLightFence {
            fence(SeqCst);
        }
        if self.flag.load(Relaxed) == 1 && self.flag.swap(0, Relaxed) == 1 {
            match fault {
                Fault::SleepOnLock => wake_one(&self.lock),
                _ => wake_one(&self.flag),
            }
        }
    }
}

/// A holder, one who sleeps, and a third who takes the lock between the wake-up and the sleep.
fn three_at_a_flag_lock(fault: Fault) {
    let lock = leak(FlagLock { lock: WaitWord::new(1), flag: WaitWord::new(0) });
    let sleeper = thread::spawn(move || {
        lock.lock(fault);
        lock.unlock(fault);
    });
    let third = thread::spawn(move || {
        if lock.try_lock() {
            lock.unlock(fault);
        }
    });
    lock.unlock(fault);
    sleeper.join().unwrap();
    third.join().unwrap();
}

/// The right word and both halves of the barrier.
#[test]
fn sleeping_on_the_flag_holds() {
    check("sleeping_on_the_flag_holds", Some(3), || three_at_a_flag_lock(Fault::None));
}

/// The waker clears the flag and wakes whoever sleeps on the lock, before anybody does; the third
/// thread takes the lock; the sleeper finds it held and sleeps; the third sees no flag.
#[test]
#[should_panic(expected = "deadlock")]
fn sleeping_on_the_lock_while_the_waker_clears_a_flag_is_refuted() {
    check("sleeping_on_the_lock_while_the_waker_clears_a_flag_is_refuted", Some(3), || {
        three_at_a_flag_lock(Fault::SleepOnLock);
    });
}

/// The holder reads the flag before its unlock is seen.
#[test]
#[should_panic(expected = "deadlock")]
fn an_unlock_without_its_fence_is_refuted() {
    check("an_unlock_without_its_fence_is_refuted", Some(3), || {
        three_at_a_flag_lock(Fault::NoLightFence);
    });
}

/// The sleeper reads the lock before its flag is seen.
#[test]
#[should_panic(expected = "deadlock")]
fn a_sleeper_without_its_fence_is_refuted() {
    check("a_sleeper_without_its_fence_is_refuted", Some(3), || {
        three_at_a_flag_lock(Fault::NoHeavyFence);
    });
}

/// When the combiner tells a waiter that its operation is done.
#[derive(Clone, Copy, PartialEq)]
enum Done {
    /// Last of all, and Release.
    Right,
    /// By a plain store, as the thread had it.
    Relaxed,
    /// Before it has read the link to the next waiter.
    BeforeTheLink,
}

/// A waiter whose operation a combiner does; its node is on its stack, which is used for something
/// else as soon as it may go.
fn combiner_and_waiter(done: Done) {
    struct Node {
        phase: WaitWord,
        /// The link to the next waiter; later whatever stands there.
        frame: UnsafeCell<u32>,
        list: UnsafeCell<u32>,
    }
    // SAFETY: the model's question.
    unsafe impl Sync for Node {}
    let node = Arc::new(Node {
        phase: WaitWord::new(0),
        frame: UnsafeCell::new(7),
        list: UnsafeCell::new(0),
    });
    let combiner = {
        let node = node.clone();
        thread::spawn(move || {
            // SAFETY: the model's question.
            let link = || node.frame.with(|frame| assert_eq!(unsafe { *frame }, 7, "not a link"));
            // SAFETY: the model's question.
            node.list.with_mut(|list| unsafe { *list = 1 });
            if done != Done::BeforeTheLink {
                link();
            }
            node.phase.store(1, if done == Done::Relaxed { Relaxed } else { Release });
            if done == Done::BeforeTheLink {
                link();
            }
        })
    };
    while node.phase.load(Acquire) == 0 {
        thread::yield_now();
    }
    // SAFETY: the model's question.
    node.list.with(|list| assert_eq!(unsafe { *list }, 1, "not done on return"));
    // SAFETY: the model's question.
    node.frame.with_mut(|frame| unsafe { *frame = 0 });
    combiner.join().unwrap();
}

/// The right order (CB-3).
#[test]
fn done_as_the_last_touch_holds() {
    check("done_as_the_last_touch_holds", None, || combiner_and_waiter(Done::Right));
}

/// The waiter returns and does not see its entry on the list.
#[test]
#[should_panic(expected = "Causality violation")]
fn a_plain_store_of_done_is_refuted() {
    check("a_plain_store_of_done_is_refuted", None, || combiner_and_waiter(Done::Relaxed));
}

/// The combiner reads a frame that is gone.
#[test]
#[should_panic(expected = "Causality violation")]
fn reading_a_node_after_done_is_refuted() {
    check("reading_a_node_after_done_is_refuted", None, || {
        combiner_and_waiter(Done::BeforeTheLink);
    });
}
