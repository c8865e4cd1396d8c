//! A lock whose holder does the waiting threads' operations for them.
//!
//! # Why
//! When many threads each want one short operation on one structure, handing the lock (and the
//! structure's cache lines) from thread to thread costs more than the operations. So a waiter
//! describes its operation and one thread, the head of the queue, does a batch.
//!
//! # Three ways in
//! Direct: the lock is free, or becomes so within three rounds of pauses and seven yields. This is
//! the normal case on few processors, where one thread that keeps the structure in its cache beats
//! any combiner; strict queueing was seven times slower there. Queued: a node on the caller's stack
//! holds the operation. Whole: [`Combining::with`] lends the structure itself; in the queue its
//! node asks for the lock.
//!
//! # Unlock, paid by the sleeper
//! The holder unlocks with a plain store and looks for a sleeper with a plain load. The sleeper
//! (only ever the head) pays for the missing barrier with [`crate::fence`]'s heavy side:
//! ```text
//!  T1 holder                             T2 head of the queue
//!  lock := free
//!  light                                 ASLEEP into `flag`
//!  reads `flag`: wakes if ASLEEP         heavy
//!                                        tries the lock again, sleeps while `flag` is unchanged
//! ```
//! T1 sees ASLEEP or T2 sees the lock free. T2 sleeps on the flag, which T1 clears, not on the
//! lock, which a third thread may take again before T2 is asleep.
//!
//! # Fairness
//! Newcomers may pass the queue while the lock is free. A head that was woken and still did not get
//! it closes the gate: from then on nobody takes the lock past the queue until it has had its turn.
//! The head leaves after one batch.
//!
//! # A waiter's node
//! WAITING -> PARKED (asleep) -> DONE with the answer, or HEAD (the caller is the head now). The
//! swap to DONE or HEAD is the last touch: the stack frame may be gone right after. Wakes go by
//! address, after the unlock.
//!
//! # Orderings
//! - CB-1 unlock (Release) -> lock (Acquire): the structure
//! - CB-2 node made, swap of `tail` and link (Release) -> the next arrival's swap, the head's read
//!   of the link (Acquire)
//! - CB-3 DONE or HEAD (Release) -> the waiter's read of its phase (Acquire): the waiter finds its
//!   operation done
//! - CB-4 holder: free, light, reads `flag` -> sleeper: sets `flag`, heavy, reads the lock
//!
//! # Distrust
//! An operation that panics in the queue ends the process: those behind it could not be told. Done
//! directly, it unlocks. The holder touches the lock after it unlocked, so never put it in an
//! object that its own unlock may free.
//!
//! # Source
//! list_batch thread (2016), with the corrections of its review. We differ: waiters sleep, the lock
//! may be taken past the queue.

use core::cell::UnsafeCell;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr;

use crate::backoff::{Backoff, Turn};
use crate::park::{park32, wake32};
use crate::prim::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::prim::{AtomicPtr, AtomicU32, const_fn};
use crate::stats::{self, Event};

/// Operations that one head does for others before it leaves.
pub const BATCH: usize = if cfg!(any(loom, shuttle)) { 1 } else { 128 };

const FREE: u32 = 0;
const HELD: u32 = 1;

/// In `flag`: the head sleeps.
const ASLEEP: u32 = 1;
/// In `flag`: the head has been passed often enough, nobody else takes the lock.
const GATED: u32 = 2;

/// A structure that operations are applied to.
pub trait Apply {
    /// An operation, as a waiter hands it over.
    type Op: Copy + Send;

    /// Does `op` and says whether it changed anything.
    fn apply(&mut self, op: Self::Op) -> bool;
}

/// Where a waiter stands.
mod phase {
    pub(super) const WAITING: u32 = 0;
    pub(super) const PARKED: u32 = 1;
    /// The waiter is the head of the queue.
    pub(super) const HEAD: u32 = 2;
    /// Its operation was done, and changed nothing.
    pub(super) const DONE_UNCHANGED: u32 = 3;
    /// Its operation was done.
    pub(super) const DONE_CHANGED: u32 = 4;
}

struct Node<Op> {
    next: AtomicPtr<Node<Op>>,
    phase: AtomicU32,
    /// `None` asks for the lock itself.
    op: Option<Op>,
}

/// How a queued thread's wait ended.
enum Queued {
    Head,
    Done(bool),
}

/// A structure behind a combining lock.
///
/// # Invariants
/// `state` is reached only by the thread that set `lock` to HELD, until it stores FREE (CB-1).
/// Every node that `tail` or a `next` leads to lives on the stack of a thread that waits for its
/// phase, or leads the queue and has not left it.
pub struct Combining<S: Apply> {
    lock: AtomicU32,
    flag: AtomicU32,
    tail: AtomicPtr<Node<S::Op>>,
    state: UnsafeCell<S>,
}

// SAFETY: by the first invariant one thread at a time reaches `state`; operations are `Send` by
// their trait.
unsafe impl<S: Apply + Send> Sync for Combining<S> {}

impl<S: Apply> Combining<S> {
    const_fn! {
        /// An unlocked lock around `state`.
        pub fn new(state: S) -> Self {
            Self {
                lock: AtomicU32::new(FREE),
                flag: AtomicU32::new(0),
                tail: AtomicPtr::new(ptr::null_mut()),
                state: UnsafeCell::new(state),
            }
        }
    }

    /// Does `op`, or has it done; answers what [`Apply::apply`] answered. Its effect is there on
    /// return.
    #[inline]
    pub fn run(&self, op: S::Op) -> bool {
        match self.try_lock() {
            Some(mut locked) => {
                stats::count(Event::ListDirect);
                locked.state().apply(op)
            }
            None => self.run_slow(op),
        }
    }

    #[cold]
    fn run_slow(&self, op: S::Op) -> bool {
        if let Some(mut locked) = self.lock_for_a_while() {
            stats::count(Event::ListDirect);
            return locked.state().apply(op);
        }
        let node = Node::new(Some(op));
        match self.queue(&node) {
            Queued::Done(changed) => changed,
            Queued::Head => self.lead(&node, op),
        }
    }

    /// Lends the structure, locked, to `f`.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut S) -> R) -> R {
        match self.try_lock() {
            Some(mut locked) => f(locked.state()),
            None => self.with_slow(f),
        }
    }

    #[cold]
    fn with_slow<R>(&self, f: impl FnOnce(&mut S) -> R) -> R {
        if let Some(mut locked) = self.lock_for_a_while() {
            return f(locked.state());
        }
        let node = Node::new(None);
        match self.queue(&node) {
            Queued::Done(_) => {
                unreachable!("a node without an operation is never done for its owner")
            }
            Queued::Head => {
                let mut locked = self.lock_as_head();
                let woken = self.next_of(&node).and_then(|next| settle(next, phase::HEAD));
                if let Some(address) = woken {
                    wake32(address, 1);
                }
                f(locked.state())
            }
        }
    }

    /// The structure, without locking.
    pub fn get_mut(&mut self) -> &mut S {
        self.state.get_mut()
    }

    #[inline]
    fn try_lock(&self) -> Option<Locked<'_, S>> {
        // Relaxed: the gate is about fairness; it takes effect soon.
        if self.flag.load(Relaxed) & GATED != 0 {
            return None;
        }
        self.take()
    }

    #[inline]
    fn take(&self) -> Option<Locked<'_, S>> {
        // CB-1 Acquire: the structure as the last holder left it.
        let taken = self.lock.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok();
        taken.then(|| Locked { owner: self })
    }

    /// Tries while it is worth it.
    fn lock_for_a_while(&self) -> Option<Locked<'_, S>> {
        let mut backoff = Backoff::new();
        while backoff.pause() == Turn::Again {
            if let Some(locked) = self.try_lock() {
                return Some(locked);
            }
        }
        None
    }

    /// Enters the queue and waits to be the head, or to be done.
    fn queue(&self, node: &Node<S::Op>) -> Queued {
        let us = ptr::from_ref(node).cast_mut();
        // CB-2 AcqRel: our node is finished; so is the one before.
        let before = self.tail.swap(us, AcqRel);
        if before.is_null() {
            return Queued::Head;
        }
        // SAFETY: by the invariant the node lives: whoever settles or leaves it first waits for our
        // link, since `tail` no longer leads to it.
        let before = unsafe { &*before };
        // CB-2 Release: our node is finished.
        before.next.store(us, Release);
        let mut backoff = Backoff::new();
        loop {
            // CB-3 Acquire: our operation is done, or the former head is through.
            match node.phase.load(Acquire) {
                phase::HEAD => return Queued::Head,
                phase::DONE_UNCHANGED => return Queued::Done(false),
                phase::DONE_CHANGED => return Queued::Done(true),
                _ => {}
            }
            if backoff.spin() {
                continue;
            }
            // Relaxed: on success nothing is published; on failure the loop reads again.
            let _ = node.phase.compare_exchange(phase::WAITING, phase::PARKED, Relaxed, Relaxed);
            park32(&node.phase, phase::PARKED);
        }
    }

    /// The head takes the lock, in competition with newcomers, until it has lost too often.
    fn lock_as_head(&self) -> Locked<'_, S> {
        let mut gate = 0;
        loop {
            let mut backoff = Backoff::new();
            loop {
                if let Some(locked) = self.take() {
                    // Relaxed: opens the gate and forgets our sleep. A waker that clears ASLEEP now
                    // wakes nobody, or the next head.
                    self.flag.store(0, Relaxed);
                    return locked;
                }
                if backoff.pause() == Turn::Park {
                    break;
                }
            }
            // CB-4: set, heavy, read the lock.
            self.flag.store(ASLEEP | gate, Relaxed);
            heavy();
            // Relaxed: ordered by the fence.
            if self.lock.load(Relaxed) == HELD {
                park32(&self.flag, ASLEEP | gate);
            }
            gate = GATED;
        }
    }

    /// Does our own operation as head, then a batch of those behind us, then passes the lead on.
    fn lead(&self, own: &Node<S::Op>, op: S::Op) -> bool {
        let mut locked = self.lock_as_head();
        stats::count(Event::ListBatch);
        let bomb = EndProcess;
        let changed = locked.state().apply(op);
        bomb.defuse();
        let mut wakes = Wakes::new();
        // A waiter's node is read one step longer than its operation takes: its link is needed to
        // go on.
        let mut done: Option<(*const Node<S::Op>, bool)> = None;
        let mut combined = 0usize;
        loop {
            let next = match done {
                None => self.next_of(own),
                // SAFETY: by the invariant the node lives until it is settled, which happens below.
                Some((node, _)) => self.next_of(unsafe { &*node }),
            };
            if let Some((node, changed)) = done.take() {
                let phase = if changed { phase::DONE_CHANGED } else { phase::DONE_UNCHANGED };
                wakes.add(settle(node, phase));
            }
            let Some(next) = next else { break };
            // SAFETY: by the invariant the node lives until it is settled.
            let op = unsafe { (*next).op };
            match op {
                Some(op) if combined < BATCH => {
                    let bomb = EndProcess;
                    let changed = locked.state().apply(op);
                    bomb.defuse();
                    combined += 1;
                    done = Some((next, changed));
                }
                Some(_) | None => {
                    wakes.add(settle(next, phase::HEAD));
                    break;
                }
            }
        }
        stats::count_n(Event::ListCombined, combined as u64);
        drop(locked);
        wakes.wake();
        changed
    }

    /// The node behind `node`. If there is none the queue is empty from here on, and `node` out of
    /// it.
    fn next_of(&self, node: &Node<S::Op>) -> Option<*const Node<S::Op>> {
        // CB-2 Acquire: the node behind is finished.
        let mut next = node.next.load(Acquire);
        if next.is_null() {
            let us = ptr::from_ref(node).cast_mut();
            // CB-2 Release: what we did as head, `flag` set back among it, comes before the next head finds the queue empty. Its
            // own store to `flag` is then the later one, and no unlock misses that it sleeps.
            if self.tail.compare_exchange(us, ptr::null_mut(), Release, Relaxed).is_ok() {
                return None;
            }
            // Somebody is between its swap and its link.
            let mut backoff = Backoff::new();
            while next.is_null() {
                backoff.pause_awake();
                // CB-2 Acquire: as above.
                next = node.next.load(Acquire);
            }
        }
        Some(next)
    }
}

impl<S: Apply + fmt::Debug> fmt::Debug for Combining<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Combining");
        match self.try_lock() {
            Some(mut locked) => out.field("state", &*locked.state()),
            None => out.field("state", &format_args!("<locked>")),
        };
        out.finish()
    }
}

impl<Op> Node<Op> {
    fn new(op: Option<Op>) -> Self {
        Self { next: AtomicPtr::new(ptr::null_mut()), phase: AtomicU32::new(phase::WAITING), op }
    }
}

/// Tells the owner of a node how its wait ends, as the last touch of the node; answers the address
/// to wake, if it sleeps.
fn settle<Op>(node: *const Node<Op>, phase: u32) -> Option<*const AtomicU32> {
    // SAFETY: by the invariant of `Combining` the node lives until its phase says otherwise, and
    // the head alone settles it, once.
    let address = unsafe { &raw const (*node).phase };
    // SAFETY: as above.
    // CB-3 AcqRel: the operation and all that the head did.
    let old = unsafe { (*address).swap(phase, AcqRel) };
    (old == phase::PARKED).then_some(address)
}

/// The lock, held.
struct Locked<'a, S: Apply> {
    owner: &'a Combining<S>,
}

impl<S: Apply> Locked<'_, S> {
    #[inline]
    fn state(&mut self) -> &mut S {
        // SAFETY: the guard exists, so HELD is ours (first invariant), and `&mut self` makes this
        // the only borrow.
        unsafe { &mut *self.owner.state.get() }
    }
}

impl<S: Apply> Drop for Locked<'_, S> {
    #[inline]
    fn drop(&mut self) {
        // CB-1 Release: the structure. CB-4: free, light, read the flag.
        self.owner.lock.store(FREE, Release);
        light();
        // Relaxed: ordered by the fence.
        if self.owner.flag.load(Relaxed) & ASLEEP != 0 {
            wake_head(&self.owner.flag);
        }
    }
}

#[cold]
fn wake_head(flag: &AtomicU32) {
    // Relaxed: the flag carries no data. Who clears the bit wakes.
    if flag.fetch_and(!ASLEEP, Relaxed) & ASLEEP != 0 {
        wake32(ptr::from_ref(flag), 1);
    }
}

#[cfg(feature = "std")]
use crate::fence::{heavy, light};

/// Without threads of our own to interrupt, both sides pay.
#[cfg(not(feature = "std"))]
use no_std_fence::{heavy, light};

#[cfg(not(feature = "std"))]
mod no_std_fence {
    use crate::prim::{Ordering::SeqCst, fence};

    #[inline]
    pub(super) fn light() {
        // CB-4 SeqCst: store before load.
        fence(SeqCst);
    }

    #[inline]
    pub(super) fn heavy() {
        // CB-4 SeqCst: store before load.
        fence(SeqCst);
    }
}

/// Addresses of sleepers, collected under the lock and woken after it.
struct Wakes {
    addresses: [*const AtomicU32; BATCH + 1],
    len: usize,
}

impl Wakes {
    fn new() -> Self {
        Self { addresses: [ptr::null(); BATCH + 1], len: 0 }
    }

    fn add(&mut self, sleeper: Option<*const AtomicU32>) {
        if let Some(address) = sleeper {
            self.addresses[self.len] = address;
            self.len += 1;
        }
    }

    fn wake(&self) {
        for &address in &self.addresses[..self.len] {
            wake32(address, 1);
        }
    }
}

/// Lives while the head runs an operation. A panic inside it panics again here, which ends the
/// process.
struct EndProcess;

impl EndProcess {
    fn defuse(self) {
        let _ = ManuallyDrop::new(self);
    }
}

impl Drop for EndProcess {
    fn drop(&mut self) {
        panic!("an operation panicked while other threads waited for theirs");
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
