//! An owned box, or nothing, that readers see whole while writers replace it.
//!
//! # A race, step by step
//! ```text
//!  reader                                writer
//!  pins
//!  loads the pointer: A
//!                                        swaps B in, takes A out, defers its end
//!  reads A, drops the guard
//!                                        the grace period is over: A is freed
//! ```
//!
//! # Orderings
//! - RC-1 swap (Release) -> load, and the next swap (Acquire): the value is whole
//! - RCU-1, RCU-2 of `domain`: the reader's section ends before the value is freed

// unmodelled file: frees by way of the static registry; ThreadSanitizer and `tests/soak.rs` look at it.

use super::Guard;
use crate::prim::{AtomicPtr, Ordering};
use std::mem::size_of;
use std::ptr;

/// A place for an owned `T`. Readers under a guard see the old value or the new one; the old one is freed after a grace
/// period.
///
/// ```
/// use vfscale_sync::rcu::{self, RcuCell};
///
/// static ROUTES: RcuCell<Vec<&str>> = RcuCell::empty();
///
/// let guard = rcu::pin();
/// ROUTES.replace(Some(Box::new(vec!["default"])), &guard);
/// let routes = ROUTES.load(&guard).expect("there are some");
/// ROUTES.replace(None, &guard);
/// assert_eq!(routes, &["default"], "it is kept for this section");
/// ```
///
/// Writers may race: each frees what it took out. Who needs "replace what I have just read" holds a lock of its own.
///
/// # Invariants
/// The pointer is null or from `Box::into_raw`; it is freed by who swaps it out, after a grace period, or by `&mut self`.
#[derive(Debug)]
pub struct RcuCell<T> {
    ptr: AtomicPtr<T>,
}

// SAFETY: moving the cell moves the box.
unsafe impl<T: Send> Send for RcuCell<T> {}
// SAFETY: `&RcuCell` lends `&T` to any thread (T: Sync) and lets any thread drop the `T` later (T: Send).
unsafe impl<T: Send + Sync> Sync for RcuCell<T> {}

impl<T> RcuCell<T> {
    /// A cell with nothing in it.
    #[cfg(not(loom))]
    pub const fn empty() -> Self {
        RcuCell { ptr: AtomicPtr::new(ptr::null_mut()) }
    }

    /// A cell with nothing in it.
    #[cfg(loom)]
    pub fn empty() -> Self {
        RcuCell { ptr: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Whether there is nothing in it now.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // Relaxed: nothing is read through the pointer.
        self.ptr.load(Ordering::Relaxed).is_null()
    }

    /// Takes the value out; nobody else can be looking.
    pub fn take_mut(&mut self) -> Option<Box<T>> {
        // Relaxed: `&mut self` is ordered after every other use.
        let old = self.ptr.swap(ptr::null_mut(), Ordering::Relaxed);
        if old.is_null() {
            return None;
        }
        // SAFETY: type invariant; no reader, since we hold the cell exclusively and guards borrow it.
        Some(unsafe { Box::from_raw(old) })
    }
}

impl<T: Send + Sync + 'static> RcuCell<T> {
    /// What is in the cell, for as long as the guard lives.
    #[inline]
    pub fn load<'g>(&'g self, _guard: &'g Guard) -> Option<&'g T> {
        // RC-1 Acquire: the value whole, after the swap that published it.
        let current = self.ptr.load(Ordering::Acquire);
        // SAFETY: type invariant; who swaps it out frees it after this guard's section (RCU-2).
        unsafe { current.as_ref() }
    }

    /// Puts `new` in; what was there is freed after a grace period.
    pub fn replace(&self, new: Option<Box<T>>, guard: &Guard) {
        let new = new.map_or(ptr::null_mut(), Box::into_raw);
        // RC-1 Release: the value is whole before it is seen. Acquire: the old value's content comes to us before its drop.
        let old = self.ptr.swap(new, Ordering::AcqRel);
        if !old.is_null() {
            let old = Unlinked(old);
            guard.defer(size_of::<T>(), move || drop(old));
        }
    }
}

impl<T> Drop for RcuCell<T> {
    fn drop(&mut self) {
        drop(self.take_mut());
    }
}

impl<T> Default for RcuCell<T> {
    fn default() -> Self {
        RcuCell::empty()
    }
}

/// A pointer that was swapped out of a cell: ours to free.
struct Unlinked<T>(*mut T);

// SAFETY: owns the `T`, like a box.
unsafe impl<T: Send> Send for Unlinked<T> {}

impl<T> Drop for Unlinked<T> {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw` (cell invariant), taken out by the one swap that returned it.
        drop(unsafe { Box::from_raw(self.0) });
    }
}
