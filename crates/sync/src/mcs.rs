//! A queue of waiting threads, each asleep on its own node.
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
//! # Giving up
//! Who waits for a limited time has its node on the heap. When the time is over it exchanges PARKED
//! for ABANDONED and goes; if HEAD was there first, it is the head. The head that finds ABANDONED
//! takes the node over, passes the place on from there, and frees it.
//!
//! # Orderings
//! - MQ-1 node made, swap of `tail` (Release) -> the next arrival's swap (Acquire): it links itself
//!   into a finished node
//! - MQ-2 link (Release) -> the head's read of it (Acquire): the node behind is finished
//! - MQ-3 state becomes HEAD (Release) -> the waiter's read of it (Acquire): the former head's last
//!   touch of the node comes before the frame is used for something else, and all it did as head
//!   comes before too
//! - MQ-4 state becomes ABANDONED (Release) -> the head's swap (Acquire): the waiter is done with the
//!   node, which the head frees
//!
//! # Source
//! Mellor-Crummey and Scott (1991). Giving up by a mark that the predecessor cleans up: Scott and
//! Scherer (2001), in a simpler form, since here only the node behind the head is ever removed.

use core::ptr;

use crate::backoff::Backoff;
use crate::park::{Deadline, Sleep, park32_within, wake32};
use crate::prim::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::prim::{AtomicPtr, AtomicU32, const_fn};
use crate::stats::{self, Event};

const WAITING: u32 = 0;
/// Asleep, or about to be.
const PARKED: u32 = 1;
const HEAD: u32 = 2;
/// Its owner is gone.
const ABANDONED: u32 = 3;

struct Node {
    next: AtomicPtr<Node>,
    state: AtomicU32,
    /// Stands for the memory of the node: a model sees when it is used too early or too late.
    #[cfg(loom)]
    memory: loom::cell::UnsafeCell<()>,
}

impl Node {
    fn new() -> Self {
        let node = Self {
            next: AtomicPtr::new(ptr::null_mut()),
            state: AtomicU32::new(WAITING),
            #[cfg(loom)]
            memory: loom::cell::UnsafeCell::new(()),
        };
        node.mine();
        node
    }

    /// The caller makes or frees the node.
    fn mine(&self) {
        #[cfg(loom)]
        self.memory.with_mut(|_| ());
    }

    /// The caller is about to touch the node for the last time.
    fn touched(&self) {
        #[cfg(loom)]
        self.memory.with(|_| ());
    }
}

/// The queue. One word.
///
/// # Invariants
/// Every node that `tail` or a `next` leads to lives: it belongs to a thread inside
/// [`McsQueue::at_head_within`], which neither returns nor frees it before no pointer leads to it any more,
/// or it is an abandoned one, on the heap, that the head in front of it has not come to yet.
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

    /// Where the last node is: another one, once somebody has joined the queue.
    #[cfg(test)]
    pub(crate) fn last(&self) -> usize {
        self.tail.load(Relaxed).addr()
    }

    /// Waits for its turn, runs `f` as the head, and passes the place on (also when `f` panics).
    pub(crate) fn at_head<R>(&self, f: impl FnOnce() -> R) -> R {
        let node = Node::new();
        // Without a deadline every wait ends at the head.
        let _ = self.wait(&node, None);
        let _turn = Turn { queue: self, node: &node };
        f()
    }

    /// As `at_head`, or `None`, without running `f`, if its turn did not come before the deadline.
    pub(crate) fn at_head_within<R>(&self, deadline: Deadline, f: impl FnOnce() -> R) -> Option<R> {
        #[cfg(feature = "std")]
        if deadline.is_some() {
            return self.at_head_in_time(deadline, f);
        }
        let _ = deadline;
        Some(self.at_head(f))
    }

    #[cfg(feature = "std")]
    fn at_head_in_time<R>(&self, deadline: Deadline, f: impl FnOnce() -> R) -> Option<R> {
        let node = Box::into_raw(Box::new(Node::new()));
        // SAFETY: just made; it is freed below, or by the head that finds it abandoned.
        if !self.wait(unsafe { &*node }, deadline) {
            return None;
        }
        // Dropped last, when the place is passed on: no pointer leads to the node then.
        // SAFETY: `node` is from `Box::into_raw`; as the head we did not abandon it, so it is ours.
        let node = unsafe { Box::from_raw(node) };
        let _turn = Turn { queue: self, node: &node };
        Some(f())
    }

    /// Joins the queue; whether the owner of `node` became its head. If not, the node is somebody else's now.
    fn wait(&self, node: &Node, deadline: Deadline) -> bool {
        // MQ-1 AcqRel: our node is finished; so is the one before.
        let before = self.tail.swap(pointer(node), AcqRel);
        if before.is_null() {
            return true;
        }
        // SAFETY: by the queue's invariant the node lives: whoever frees it first waits for our
        // link, since `tail` no longer leads to it.
        let before = unsafe { &*before };
        before.touched();
        // MQ-2 Release: our node is finished.
        before.next.store(pointer(node), Release);
        let mut backoff = Backoff::new();
        // MQ-3 Acquire: all that the former head did.
        while node.state.load(Acquire) != HEAD {
            if backoff.spin() {
                continue;
            }
            // Relaxed: on success nothing is published; on failure the loop reads again.
            let _ = node.state.compare_exchange(WAITING, PARKED, Relaxed, Relaxed);
            if park32_within(&node.state, PARKED, deadline) == Sleep::TimedOut && abandon(node) {
                return false;
            }
        }
        true
    }

    /// Passes the place on that `node` has, and the places of all behind it who gave up.
    fn pass_on(&self, node: &Node) {
        let mut next = self.behind(node);
        while !next.is_null() {
            stats::count(Event::Handoff);
            // SAFETY: by the queue's invariant the node lives until its owner has seen HEAD or the
            // head has seen ABANDONED, and we are the head, and only we write HEAD.
            let state = unsafe { &raw const (*next).state };
            // SAFETY: as above.
            unsafe { (*next).touched() };
            // SAFETY: as above; if the node has an owner, the swap is our last touch.
            // MQ-3 AcqRel: what we did as head. MQ-4: what a waiter did who is gone.
            match unsafe { (*state).swap(HEAD, AcqRel) } {
                // SAFETY: just found to be so.
                ABANDONED => next = unsafe { self.past_abandoned(next) },
                PARKED => return wake32(state, 1),
                _ => return,
            }
        }
    }

    /// Frees a node whose owner is gone, and answers the one behind it, as `behind`.
    ///
    /// # Safety
    /// The head has found it ABANDONED.
    unsafe fn past_abandoned(&self, node: *mut Node) -> *mut Node {
        #[cfg(feature = "std")]
        {
            // SAFETY: an abandoned node is from `Box::into_raw`; its owner left it to the head (caller).
            let node = unsafe { Box::from_raw(node) };
            let next = self.behind(&node);
            // No pointer leads to it any more.
            node.mine();
            next
        }
        #[cfg(not(feature = "std"))]
        unreachable!("without a clock nobody gives up, so not {node:?}")
    }

    /// The node behind `node`, or null, and then the queue is empty. Nothing leads to `node` afterwards.
    fn behind(&self, node: &Node) -> *mut Node {
        // MQ-2 Acquire: the node behind is finished.
        let mut next = node.next.load(Acquire);
        if next.is_null() {
            // MQ-3 Release: what we did as head, for who finds the queue empty (its swap is MQ-1's
            // Acquire).
            if self.tail.compare_exchange(pointer(node), ptr::null_mut(), Release, Relaxed).is_ok()
            {
                return next;
            }
            // Somebody is between its swap and its link.
            let mut backoff = Backoff::new();
            while next.is_null() {
                backoff.pause_awake();
                // MQ-2 Acquire: as above.
                next = node.next.load(Acquire);
            }
        }
        next
    }
}

/// Others only ever make shared references of it.
fn pointer(node: &Node) -> *mut Node {
    ptr::from_ref(node).cast_mut()
}

/// Whether the parked node, which lies on the heap, is the queue's now. If not, its owner is the head.
#[cfg(feature = "std")]
fn abandon(node: &Node) -> bool {
    node.touched();
    // MQ-4 Release: we are done with it. Relaxed: on failure the caller reads again.
    node.state.compare_exchange(PARKED, ABANDONED, Release, Relaxed).is_ok()
}

/// Without a clock nobody gives up.
#[cfg(not(feature = "std"))]
fn abandon(_: &Node) -> bool {
    false
}

/// The head's place, passed on when dropped.
struct Turn<'a> {
    queue: &'a McsQueue,
    node: &'a Node,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.queue.pass_on(self.node);
        self.node.mine();
    }
}
