//! A table of buckets, and the way to the one that replaces it.
//!
//! # Who writes
//! `next`: the writer who begins a resize, once. `cursor`: every writer who helps claims some buckets. `moved`: the same,
//! when it has moved them; who brings it to the number of buckets completes the resize (HX-6).

// unmodelled file: as `hash_index/mod.rs`.

use super::bucket::Bucket;
use crate::prim::{AtomicPtr, AtomicUsize, Ordering};
use crate::rcu::Guard;
use std::ptr;

/// Buckets under one mask.
///
/// # Invariants
/// A table is reached through the index or its predecessor under a guard, and freed a grace period after the index stopped
/// naming it. `next` is null or from `Box::into_raw`, and outlives this table.
pub(super) struct Table {
    buckets: Buckets,
    mask: u32,
    /// Which of a node's two links this table's chains use. The next table uses the other.
    pub(super) parity: usize,
    next: AtomicPtr<Table>,
    /// The first bucket that nobody has claimed to move.
    cursor: AtomicUsize,
    /// How many buckets have been moved.
    moved: AtomicUsize,
}

impl Table {
    /// An empty table of `buckets`, a power of two. `None` if there is no memory.
    pub(super) fn new(buckets: usize, parity: usize) -> Option<Box<Table>> {
        debug_assert!(buckets.is_power_of_two() && buckets <= 1 << 31);
        Some(Box::new(Table {
            buckets: Buckets::new(buckets)?,
            mask: (buckets - 1) as u32,
            parity,
            next: AtomicPtr::new(ptr::null_mut()),
            cursor: AtomicUsize::new(0),
            moved: AtomicUsize::new(0),
        }))
    }

    pub(super) fn len(&self) -> usize {
        self.mask as usize + 1
    }

    pub(super) fn bytes(&self) -> usize {
        self.len() * size_of::<Bucket>()
    }

    /// The bucket of `hash`.
    #[inline]
    pub(super) fn bucket(&self, hash: u32) -> &Bucket {
        &self.buckets.slice()[(hash & self.mask) as usize]
    }

    /// Bucket `index`.
    pub(super) fn at(&self, index: usize) -> &Bucket {
        &self.buckets.slice()[index]
    }

    /// The table that this one's chains move to, if any.
    #[inline]
    pub(super) fn next<'g>(&'g self, _guard: &'g Guard) -> Option<&'g Table> {
        // HX-5 Acquire: the table whole.
        let next = self.next.load(Ordering::Acquire);
        // SAFETY: null or a table that outlives this one (type invariant).
        unsafe { next.as_ref() }
    }

    /// Names the table that this one's chains will move to. Called once.
    pub(super) fn set_next(&self, next: Box<Table>) {
        // HX-5 Release: the table is whole before a reader, sent by MOVED, follows.
        self.next.store(Box::into_raw(next), Ordering::Release);
    }

    /// The raw pointer behind [`Table::next`].
    pub(super) fn next_ptr(&self) -> *mut Table {
        self.next.load(Ordering::Acquire)
    }

    /// Claims up to `step` buckets for the caller to move.
    pub(super) fn claim(&self, step: usize) -> std::ops::Range<usize> {
        // Relaxed: hands out numbers; the buckets' locks order what is done with them.
        if self.cursor.load(Ordering::Relaxed) >= self.len() {
            return 0..0;
        }
        let start = self.cursor.fetch_add(step, Ordering::Relaxed).min(self.len());
        start..(start + step).min(self.len())
    }

    /// Notes that `count` claimed buckets have been moved. True for the caller who completes the table.
    pub(super) fn note_moved(&self, count: usize) -> bool {
        // HX-6 AcqRel: who completes the table comes after all that was moved.
        let before = self.moved.fetch_add(count, Ordering::AcqRel);
        count > 0 && before + count == self.len()
    }
}

/// Zeroed memory straight from the system: a large table costs nothing until its buckets are used, and lies in large pages.
#[cfg(not(shuttle))]
struct Buckets {
    region: crate::region::Region,
    len: usize,
}

#[cfg(not(shuttle))]
impl Buckets {
    fn new(len: usize) -> Option<Self> {
        let region = crate::region::Region::zeroed(len.checked_mul(size_of::<Bucket>())?)?;
        Some(Buckets { region, len })
    }

    #[inline]
    fn slice(&self) -> &[Bucket] {
        let start = self.region.base().as_ptr().cast();
        // SAFETY: `len` buckets of a region that is ours, aligned to a page; zeroed memory is an empty bucket (an atomic
        // integer), and all access is through shared references.
        unsafe { std::slice::from_raw_parts(start, self.len) }
    }
}

/// Under a model an atomic is more than its bits.
#[cfg(shuttle)]
struct Buckets(Box<[Bucket]>);

#[cfg(shuttle)]
impl Buckets {
    fn new(len: usize) -> Option<Self> {
        Some(Buckets((0..len).map(|_| Bucket::new()).collect()))
    }

    fn slice(&self) -> &[Bucket] {
        &self.0
    }
}
