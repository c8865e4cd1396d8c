//! Peers whose own interface is unsafe, behind a safe one. Nothing of ours is here.

use std::sync::atomic::{AtomicPtr, Ordering};

use crossbeam_epoch::{Atomic, Owned, Shared};
use intrusive_collections::{LinkedList, LinkedListLink, UnsafeRef, intrusive_adapter};
use seize::{Collector, Guard as _};

/// What a reader that holds crossbeam's guard sees.
#[inline]
pub(crate) fn crossbeam_value(shared: Shared<'_, u64>) -> u64 {
    // SAFETY: loaded under the guard that it borrows, and freed only after the last guard that could have seen it.
    *unsafe { shared.deref() }
}

/// Puts a new value in and lets crossbeam free the old one.
#[inline]
pub(crate) fn crossbeam_replace<T>(cell: &Atomic<T>, new: T) {
    let guard = crossbeam_epoch::pin();
    let old = cell.swap(Owned::new(new), Ordering::AcqRel, &guard);
    // SAFETY: the swap unlinked it, so it is retired once, and new readers do not find it.
    unsafe { guard.defer_destroy(old) };
}

/// Frees what is in the cell, at the end.
pub(crate) fn crossbeam_clear<T>(cell: &mut Atomic<T>) {
    // SAFETY: the cell is borrowed mutably, so no reader is left and nobody else takes it.
    let last = unsafe { std::mem::take(cell).try_into_owned() };
    drop(last);
}

/// One pointer that seize protects.
#[derive(Debug)]
pub(crate) struct SeizeCell<T = u64> {
    collector: Collector,
    pointer: AtomicPtr<T>,
}

impl<T> SeizeCell<T> {
    pub(crate) fn new(value: T) -> SeizeCell<T> {
        SeizeCell {
            collector: Collector::new(),
            pointer: AtomicPtr::new(Box::into_raw(Box::new(value))),
        }
    }

    #[inline]
    pub(crate) fn replace(&self, new: T) {
        let guard = self.collector.enter();
        let old = guard.swap(&self.pointer, Box::into_raw(Box::new(new)), Ordering::AcqRel);
        // SAFETY: the swap unlinked it, so it is retired once, and it came from a box.
        unsafe { guard.defer_retire(old, seize::reclaim::boxed) };
    }

    /// Runs `run` in one section.
    pub(crate) fn within(&self, run: &mut dyn FnMut()) {
        let _guard = self.collector.enter();
        run();
    }
}

impl SeizeCell<u64> {
    #[inline]
    pub(crate) fn value(&self) -> u64 {
        let guard = self.collector.enter();
        // SAFETY: never null, and protected by the guard.
        *unsafe { &*guard.protect(&self.pointer, Ordering::Acquire) }
    }
}

impl<T> Drop for SeizeCell<T> {
    fn drop(&mut self) {
        // SAFETY: no reader is left, and the value was never retired.
        drop(unsafe { Box::from_raw(*self.pointer.get_mut()) });
    }
}

/// An element of the intrusive list, on a line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Node {
    link: LinkedListLink,
}

intrusive_adapter!(NodeAdapter = UnsafeRef<Node>: Node { link => LinkedListLink });

type List = LinkedList<NodeAdapter>;

/// A lock of a list.
pub(crate) trait ListLock: Sync {
    fn new() -> Self;
    fn locked<R: Send>(&self, run: impl FnOnce(&mut Lent) -> R + Send) -> R;
}

/// The list while its lock is held.
pub(crate) struct Lent(List);

// SAFETY: it goes from thread to thread with its lock, and it only lends its nodes, see `LockedList`.
unsafe impl Send for Lent {}

impl ListLock for parking_lot::Mutex<Lent> {
    fn new() -> Self {
        parking_lot::Mutex::new(Lent(List::default()))
    }

    #[inline]
    fn locked<R: Send>(&self, run: impl FnOnce(&mut Lent) -> R + Send) -> R {
        run(&mut self.lock())
    }
}

impl ListLock for lamlock::Lock<Lent> {
    fn new() -> Self {
        lamlock::Lock::new(Lent(List::default()))
    }

    #[inline]
    fn locked<R: Send>(&self, run: impl FnOnce(&mut Lent) -> R + Send) -> R {
        self.run(run).expect("nobody panics under the lock")
    }
}

/// A peer's lock around an intrusive list, and the nodes that may be on it.
///
/// # Invariants
/// Only nodes of `nodes` are ever on the list, on no other one, and their links are touched only under the lock.
pub(crate) struct LockedList<L> {
    lock: L,
    nodes: Box<[Node]>,
}

// SAFETY: see the invariant; the lock is `Sync`.
unsafe impl<L: Sync> Sync for LockedList<L> {}

impl<L> std::fmt::Debug for LockedList<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockedList").field("nodes", &self.nodes.len()).finish_non_exhaustive()
    }
}

/// A node, lent to the closure that links or unlinks it.
struct Lend<'a>(&'a Node);

// SAFETY: its link is touched only under the lock, whoever runs the closure.
unsafe impl Send for Lend<'_> {}

impl Lend<'_> {
    /// All of it: a closure that names the field would take that alone, which may not be sent.
    fn node(&self) -> &Node {
        self.0
    }
}

impl<L: ListLock> LockedList<L> {
    pub(crate) fn new(nodes: usize) -> LockedList<L> {
        LockedList { lock: L::new(), nodes: (0..nodes).map(|_| Node::default()).collect() }
    }

    /// Puts node `at` in front.
    #[inline]
    pub(crate) fn add(&self, at: usize) {
        let lend = Lend(&self.nodes[at]);
        self.lock.locked(move |list| {
            let node = lend.node();
            assert!(!node.link.is_linked(), "it is on the list already");
            // SAFETY: the nodes live as long as the list, and are only lent.
            list.0.push_front(unsafe { UnsafeRef::from_raw(node) });
        });
    }

    /// Takes node `at` off; false if it is not on the list.
    #[inline]
    pub(crate) fn del(&self, at: usize) -> bool {
        let lend = Lend(&self.nodes[at]);
        self.lock.locked(move |list| {
            let node = lend.node();
            // SAFETY: a linked node of ours is on this list, see the invariant.
            node.link.is_linked() && unsafe { list.0.cursor_mut_from_ptr(node) }.remove().is_some()
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.lock.locked(|list| list.0.iter().count())
    }
}

impl<L> Drop for LockedList<L> {
    fn drop(&mut self) {
        for node in &self.nodes {
            // SAFETY: the list goes too, unread: it holds references only.
            unsafe { node.link.force_unlink() };
        }
    }
}
