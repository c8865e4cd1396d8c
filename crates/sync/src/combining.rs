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
//! holds the operation. Whole: [`Combining::lock`] lends the structure itself; in the queue its
//! node asks for the lock.
//!
//! # Fairness
//! The lock is `asym_lock`, whose unlock is a plain store and whose gate the head closes when it
//! has been passed. The head leaves after one batch.
//!
//! # A waiter's node
//! WAITING -> PARKED (asleep) -> DONE with the answer, or HEAD (the caller is the head now). The
//! swap to DONE or HEAD is the last touch: the stack frame may be gone right after. Wakes go by
//! address, after the unlock.
//!
//! # Orderings
//! - CB-2 node made, swap of `tail` and link (Release) -> the next arrival's swap, the head's read
//!   of the link (Acquire)
//! - CB-3 DONE or HEAD (Release) -> the waiter's read of its phase (Acquire): the waiter finds its
//!   operation done
//!
//! The structure itself is ordered by the lock (AL-1).
//!
//! # Distrust
//! An operation that panics in the queue ends the process: those behind it could not be told. Done
//! directly, it unlocks.
//!
//! # Source
//! list_batch thread (2016), with the corrections of its review. We differ: waiters sleep, the lock
//! may be taken past the queue.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr;

use crate::asym_lock::AsymLock;
use crate::backoff::Backoff;
use crate::lockdep::{self, Mode};
use crate::park::{park32, wake32};
use crate::prim::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::prim::{AtomicPtr, AtomicU32, const_fn};
use crate::stats::{self, Event};

/// Operations that one head does for others before it leaves, where nothing else is said.
///
/// The thread tried 64, and found 128 a little better. It bounds how long the head is kept from its
/// own work.
pub const DEFAULT_BATCH: usize = 128;

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

/// A structure behind a combining lock, whose head does up to `BATCH` operations for others.
///
/// All words that the lock needs, and the start of the structure, lie on one cache line.
///
/// ```
/// use vfscale_sync::combining::{Apply, Combining};
///
/// #[derive(Default)]
/// struct Highest(u64);
///
/// impl Apply for Highest {
///     type Op = u64;
///
///     fn apply(&mut self, seen: u64) -> bool {
///         let is_new = seen > self.0;
///         self.0 = self.0.max(seen);
///         is_new
///     }
/// }
///
/// static HIGHEST: Combining<Highest> = Combining::new(Highest(0));
///
/// std::thread::scope(|scope| {
///     for n in 1..=4 {
///         scope.spawn(move || HIGHEST.run(n));
///     }
/// });
/// assert_eq!(HIGHEST.lock().0, 4);
/// assert!(!HIGHEST.run(3), "nothing new");
/// ```
///
/// # Invariants
/// `state` is reached only by the holder of `lock`, or through `&mut self`. Every node that `tail` or a `next` leads to lives on the stack of a thread that waits for its
/// phase, or leads the queue and has not left it.
#[repr(C, align(64))]
pub struct Combining<S: Apply, const BATCH: usize = DEFAULT_BATCH> {
    lock: AsymLock,
    tail: AtomicPtr<Node<S::Op>>,
    class: lockdep::Class,
    state: UnsafeCell<S>,
}

// SAFETY: by the first invariant one thread at a time reaches `state`; operations are `Send` by
// their trait.
unsafe impl<S: Apply + Send, const BATCH: usize> Sync for Combining<S, BATCH> {}

impl<S: Apply, const BATCH: usize> Combining<S, BATCH> {
    const_fn! {
        /// An unlocked lock around `state`.
        #[must_use]
        #[cfg_attr(feature = "lockdep", track_caller)]
        pub fn new(state: S) -> Self {
            Self {
                lock: AsymLock::new(),
                tail: AtomicPtr::new(ptr::null_mut()),
                class: lockdep::Class::here(),
                state: UnsafeCell::new(state),
            }
        }
    }

    /// A structure behind a lock of the form without a barrier, for models.
    #[cfg(loom)]
    pub fn new_symmetric(state: S) -> Self {
        Self { lock: AsymLock::symmetric(), ..Self::new(state) }
    }

    /// Does `op`, or has it done; answers what [`Apply::apply`] answered. Its effect is there on
    /// return.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn run(&self, op: S::Op) -> bool {
        match self.lock_at_once() {
            Ok(mut locked) => {
                stats::count(Event::ListDirect);
                locked.apply(op)
            }
            Err(asked) => self.run_slow(op, asked),
        }
    }

    /// Takes the lock if it is free and no waiter is to have it first; else the caller goes on to wait.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub(crate) fn lock_at_once(&self) -> Result<CombiningGuard<'_, S, BATCH>, lockdep::Asked> {
        let asked = lockdep::ask(self.class.key(), Mode::Exclusive);
        if self.lock.try_lock() { Ok(self.guard(asked)) } else { Err(asked) }
    }

    /// [`Combining::run`], after `lock_at_once`.
    #[cold]
    pub(crate) fn run_slow(&self, op: S::Op, asked: lockdep::Asked) -> bool {
        lockdep::contended();
        if self.lock.lock_for_a_while() {
            stats::count(Event::ListDirect);
            return self.guard(asked).apply(op);
        }
        let node = Node::new(Some(op));
        match self.queue(&node) {
            Queued::Done(changed) => changed,
            Queued::Head => self.lead(&node, op, asked),
        }
    }

    /// Takes the lock and lends the structure.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn lock(&self) -> CombiningGuard<'_, S, BATCH> {
        self.lock_at_once().unwrap_or_else(|asked| {
            self.lock_slow();
            self.guard(asked)
        })
    }

    #[cold]
    fn lock_slow(&self) {
        lockdep::contended();
        if self.lock.lock_for_a_while() {
            return;
        }
        let node = Node::new(None);
        match self.queue(&node) {
            Queued::Done(_) => {
                unreachable!("a node without an operation is never done for its owner")
            }
            Queued::Head => {
                self.lock.lock_as_head();
                let woken = self.next_of(&node).and_then(|next| settle(next, phase::HEAD));
                if let Some(address) = woken {
                    wake32(address, 1);
                }
            }
        }
    }

    /// Takes the lock if it is free and no waiter is to have it first.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn try_lock(&self) -> Option<CombiningGuard<'_, S, BATCH>> {
        let taken = self.lock.try_lock();
        lockdep::tried(self.class.key(), Mode::Exclusive, taken);
        // Not `then_some`: a guard made for a lock that was not had would unlock the holder's.
        taken.then(|| CombiningGuard { owner: self, _thread: PhantomData })
    }

    /// The structure, without locking.
    pub fn get_mut(&mut self) -> &mut S {
        self.state.get_mut()
    }

    /// The caller has the lock.
    #[inline]
    fn guard(&self, asked: lockdep::Asked) -> CombiningGuard<'_, S, BATCH> {
        asked.taken(self.class.key(), Mode::Exclusive);
        CombiningGuard { owner: self, _thread: PhantomData }
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

    /// Does our own operation as head, then a batch of those behind us, then passes the lead on.
    fn lead(&self, own: &Node<S::Op>, op: S::Op, asked: lockdep::Asked) -> bool {
        self.lock.lock_as_head();
        let mut locked = self.guard(asked);
        stats::count(Event::ListBatch);
        let bomb = EndProcess;
        let changed = locked.apply(op);
        bomb.defuse();
        let mut wakes = Wakes::<BATCH>::new();
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
                    let changed = locked.apply(op);
                    bomb.defuse();
                    combined += 1;
                    done = Some((next, changed));
                }
                Some(_) | None => {
                    wakes.head = settle(next, phase::HEAD);
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
            // CB-2 Release: what we did as head comes before the next head finds the queue empty.
            // The lock's flag, which we set back, is among it: the next head's store to it is then
            // the later one, and no unlock misses that it sleeps.
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

impl<S: Apply + fmt::Debug, const BATCH: usize> fmt::Debug for Combining<S, BATCH> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Combining");
        match self.try_lock() {
            Some(locked) => out.field("state", &*locked),
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
    // CB-3 Release: the operation and all that the head did.
    let old = unsafe { (*address).swap(phase, Release) };
    (old == phase::PARKED).then_some(address)
}

/// The structure of a [`Combining`], locked. Unlocks when dropped, also while unwinding.
#[must_use = "dropping the guard unlocks"]
pub struct CombiningGuard<'a, S: Apply, const BATCH: usize = DEFAULT_BATCH> {
    owner: &'a Combining<S, BATCH>,
    /// Stays in its thread.
    _thread: PhantomData<*mut ()>,
}

// SAFETY: a shared guard lends `&S` and nothing else.
unsafe impl<S: Apply + Sync, const BATCH: usize> Sync for CombiningGuard<'_, S, BATCH> {}

impl<S: Apply, const BATCH: usize> Deref for CombiningGuard<'_, S, BATCH> {
    type Target = S;

    #[inline]
    fn deref(&self) -> &S {
        // SAFETY: the guard exists, so the lock is ours (first invariant of `Combining`).
        unsafe { &*self.owner.state.get() }
    }
}

impl<S: Apply, const BATCH: usize> DerefMut for CombiningGuard<'_, S, BATCH> {
    #[inline]
    fn deref_mut(&mut self) -> &mut S {
        // SAFETY: the lock is ours, and `&mut self` makes this the only borrow.
        unsafe { &mut *self.owner.state.get() }
    }
}

impl<S: Apply, const BATCH: usize> Drop for CombiningGuard<'_, S, BATCH> {
    #[inline]
    fn drop(&mut self) {
        lockdep::released(self.owner.class.key());
        self.owner.lock.unlock();
    }
}

impl<S: Apply + fmt::Debug, const BATCH: usize> fmt::Debug for CombiningGuard<'_, S, BATCH> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Addresses of sleepers, collected under the lock and woken after it: those of a batch, and the
/// next head's.
struct Wakes<const BATCH: usize> {
    addresses: [*const AtomicU32; BATCH],
    len: usize,
    head: Option<*const AtomicU32>,
}

impl<const BATCH: usize> Wakes<BATCH> {
    fn new() -> Self {
        Self { addresses: [ptr::null(); BATCH], len: 0, head: None }
    }

    fn add(&mut self, sleeper: Option<*const AtomicU32>) {
        if let Some(address) = sleeper {
            self.addresses[self.len] = address;
            self.len += 1;
        }
    }

    fn wake(&self) {
        for &address in self.head.iter().chain(&self.addresses[..self.len]) {
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
