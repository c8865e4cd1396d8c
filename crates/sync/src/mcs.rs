//! A queue of waiting threads, each asleep on its own stack.
//!
//! # Why
//! Strictly first come, first served, and a waiter touches only its own line: neither a futex queue
//! (a woken waiter goes to its end again) nor a ticket (everybody spins on one word, and on a
//! sleeping neighbour) gives both.
//!
//! # Shape
//! `tail` points at the last node. A node points at the one behind it. The first node's owner is
//! the *head*: it alone may do what the queue is for, then passes the place on.
//!
//! # A hand-over, step by step
//! ```text
//!  T1 head                               T2 waits
//!                                        swaps itself into `tail`, links itself behind T1
//!                                        WAITING -> PARKED, sleeps on its state
//!  swaps T2's state: PARKED -> HEAD      may return from a stray wake-up now, and its frame may be gone
//!  wakes T2's address, which it does
//!  not read through
//! ```
//!
//! # Orderings
//! - MQ-1 node made, swap of `tail` (Release) -> the next arrival's swap (Acquire): it links itself
//!   into a finished node
//! - MQ-2 link (Release) -> the head's read of it (Acquire): the node behind is finished
//! - MQ-3 state becomes HEAD (Release) -> the waiter's read of it (Acquire): the former head's last
//!   touch of the node comes before the frame is used for something else (no checker of ours sees
//!   the lack of it), and all it did as head comes before too

use core::ptr;

use crate::backoff::Backoff;
use crate::park::{park32, wake32};
use crate::prim::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::prim::{AtomicPtr, AtomicU32, const_fn};

const WAITING: u32 = 0;
/// Asleep, or about to be.
const PARKED: u32 = 1;
const HEAD: u32 = 2;

struct Node {
    next: AtomicPtr<Node>,
    state: AtomicU32,
}

/// The queue. One word.
///
/// # Invariants
/// Every node that `tail` or a `next` leads to lives on the stack of a thread inside
/// [`McsQueue::at_head`], which does not return before no pointer leads to its node any more.
#[derive(Debug)]
pub(crate) struct McsQueue {
    tail: AtomicPtr<Node>,
}

impl McsQueue {
    const_fn! {
        pub(crate) fn new() -> Self {
            Self { tail: AtomicPtr::new(ptr::null_mut()) }
        }
    }

    /// Whether a thread was in the queue a moment ago.
    pub(crate) fn is_busy(&self) -> bool {
        // Relaxed: only a hint.
        !self.tail.load(Relaxed).is_null()
    }

    /// Waits for its turn, runs `f` as the head, and passes the place on (also when `f` panics).
    pub(crate) fn at_head<R>(&self, f: impl FnOnce() -> R) -> R {
        let node = Node { next: AtomicPtr::new(ptr::null_mut()), state: AtomicU32::new(WAITING) };
        let turn = Turn { queue: self, node: &node };
        turn.wait();
        f()
    }
}

/// One thread's place in the queue, given up on drop.
struct Turn<'a> {
    queue: &'a McsQueue,
    node: &'a Node,
}

impl Turn<'_> {
    fn node_pointer(&self) -> *mut Node {
        // Others only ever make shared references of it.
        ptr::from_ref(self.node).cast_mut()
    }

    fn wait(&self) {
        // MQ-1 AcqRel: our node is finished; so is the one before.
        let before = self.queue.tail.swap(self.node_pointer(), AcqRel);
        if before.is_null() {
            return;
        }
        // SAFETY: by the queue's invariant the node lives: its owner cannot leave before it has
        // seen our link, since `tail` no longer leads to it.
        let before = unsafe { &*before };
        // MQ-2 Release: our node is finished.
        before.next.store(self.node_pointer(), Release);
        let mut backoff = Backoff::new();
        // MQ-3 Acquire: all that the former head did.
        while self.node.state.load(Acquire) != HEAD {
            if backoff.spin() {
                continue;
            }
            // Relaxed: on success nothing is published; on failure the loop reads again.
            let _ = self.node.state.compare_exchange(WAITING, PARKED, Relaxed, Relaxed);
            park32(&self.node.state, PARKED);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // MQ-2 Acquire: the node behind is finished.
        let mut next = self.node.next.load(Acquire);
        if next.is_null() {
            let us = self.node_pointer();
            // MQ-3 Release: what we did as head, for who finds the queue empty (its swap is MQ-1's
            // Acquire).
            if self.queue.tail.compare_exchange(us, ptr::null_mut(), Release, Relaxed).is_ok() {
                return;
            }
            // Somebody is between its swap and its link.
            let mut backoff = Backoff::new();
            while next.is_null() {
                backoff.pause_awake();
                // MQ-2 Acquire: as above.
                next = self.node.next.load(Acquire);
            }
        }
        // SAFETY: by the queue's invariant the node lives until its owner has seen HEAD, which only
        // we write.
        let state = unsafe { &raw const (*next).state };
        // SAFETY: as above; the swap is the last touch.
        // MQ-3 AcqRel: what we did as head.
        let old = unsafe { (*state).swap(HEAD, AcqRel) };
        if old == PARKED {
            wake32(state, 1);
        }
    }
}
