//! What waits for a grace period, and in what containers.
//!
//! # Why
//! To defer must cost less than to free, or writers would wait instead. A closure of three words lies in the bag itself; a batch
//! is tied to a grace period as a whole; vectors are used again.
//!
//! # Who writes
//! The bag's owner, see `local`: nothing here is shared, and nothing is ordered.

use super::domain::Domain;
use std::collections::VecDeque;
use std::mem::{MaybeUninit, align_of, size_of};

/// A closure that runs later, on whatever thread. Up to three words are kept in place; larger ones are boxed.
///
/// # Invariants
/// `data` holds what `call` expects: the closure itself, or a box of it. `call` is called once or never.
pub(super) struct Deferred {
    call: unsafe fn(*mut Data),
    data: Data,
}

type Data = MaybeUninit<[usize; 3]>;

// SAFETY: only made from closures that are `Send`.
unsafe impl Send for Deferred {}

impl Deferred {
    #[inline]
    pub(super) fn new<F: FnOnce() + Send + 'static>(f: F) -> Self {
        let mut data = Data::uninit();
        if size_of::<F>() <= size_of::<Data>() && align_of::<F>() <= align_of::<Data>() {
            // SAFETY: it fits in size and alignment, as just compared.
            unsafe { data.as_mut_ptr().cast::<F>().write(f) };
            Deferred { call: call_in_place::<F>, data }
        } else {
            // SAFETY: a pointer to a sized type is one word.
            unsafe { data.as_mut_ptr().cast::<*mut F>().write(Box::into_raw(Box::new(f))) };
            Deferred { call: call_boxed::<F>, data }
        }
    }

    #[inline]
    pub(super) fn run(mut self) {
        // SAFETY: type invariant; `self` is consumed, so this is the only call.
        unsafe { (self.call)(&mut self.data) }
    }
}

/// # Safety
/// `data` holds an `F` that nobody else takes.
unsafe fn call_in_place<F: FnOnce()>(data: *mut Data) {
    // SAFETY: the contract.
    let f = unsafe { data.cast::<F>().read() };
    f();
}

/// # Safety
/// `data` holds a pointer from `Box::<F>::into_raw` that nobody else takes.
unsafe fn call_boxed<F: FnOnce()>(data: *mut Data) {
    // SAFETY: the contract.
    let raw = unsafe { data.cast::<*mut F>().read() };
    // SAFETY: the contract.
    let f = unsafe { Box::from_raw(raw) };
    f();
}

/// Deferred calls that may run when one grace period is over.
pub(super) struct Sealed {
    /// A snapshot of the domain taken after the last of them was deferred.
    pub(super) grace: u64,
    pub(super) items: Vec<Deferred>,
    pub(super) bytes: usize,
}

/// A thread's garbage, in the order it came.
pub(super) struct Bag {
    /// Not yet tied to a grace period.
    open: Vec<Deferred>,
    open_bytes: usize,
    /// Somebody waits for what is in `open`: seal it at the next chance, though it be small.
    hurry: bool,
    sealed: VecDeque<Sealed>,
    sealed_items: usize,
    sealed_bytes: usize,
    /// From so many items or bytes in `open` on the owner should see to the bag.
    look_items: usize,
    look_bytes: usize,
    /// Empty vectors with room, kept for `open`: an allocator may do much work for one so large.
    spare: Vec<Vec<Deferred>>,
}

impl Bag {
    /// From so many items or bytes on a bag is worth a grace period of its own. Small batches make barriers collide, large
    /// ones leave the slots they hold cold in the cache when they are reused.
    pub(super) const BATCH: usize = if cfg!(miri) { 32 } else { 1024 };
    pub(super) const BATCH_BYTES: usize = 1 << 20;

    /// From so many items or bytes on the thread waits for readers rather than adding more.
    const LIMIT: usize = Self::BATCH * 8;
    const LIMIT_BYTES: usize = Self::BATCH_BYTES * 32;

    pub(super) const fn new() -> Self {
        Bag {
            open: Vec::new(),
            open_bytes: 0,
            hurry: false,
            sealed: VecDeque::new(),
            sealed_items: 0,
            sealed_bytes: 0,
            look_items: Self::BATCH,
            look_bytes: Self::BATCH_BYTES,
            spare: Vec::new(),
        }
    }

    /// Adds a call. True if the owner should see to the bag when it leaves its section.
    #[inline(always)]
    pub(super) fn push(&mut self, bytes: usize, f: impl FnOnce() + Send + 'static) -> bool {
        if self.open.len() == self.open.capacity() {
            self.grow();
        }
        self.open.push(Deferred::new(f));
        self.open_bytes = self.open_bytes.saturating_add(bytes);
        self.open.len() >= self.look_items || self.open_bytes >= self.look_bytes
    }

    #[cold]
    fn grow(&mut self) {
        self.open.reserve(Self::BATCH);
    }

    pub(super) fn hurry(&mut self) {
        self.hurry = true;
    }

    pub(super) fn is_over_limit(&self) -> bool {
        self.sealed_items + self.open.len() >= Self::LIMIT
            || self.sealed_bytes + self.open_bytes >= Self::LIMIT_BYTES
    }

    /// Ties the open items to the grace period that `snapshot` names, if they are enough or somebody waits for them. Returns
    /// the grace period to run now, if any: one batch waits for the next, and is often over by then, since a grace period
    /// that another thread runs counts for all.
    pub(super) fn seal(&mut self, all: bool, snapshot: impl FnOnce() -> u64) -> Option<u64> {
        let eager = all || std::mem::take(&mut self.hurry);
        let enough = self.open.len() >= Self::BATCH || self.open_bytes >= Self::BATCH_BYTES;
        if !self.open.is_empty() && (eager || enough) {
            let items = std::mem::replace(&mut self.open, self.spare.pop().unwrap_or_default());
            let bytes = std::mem::take(&mut self.open_bytes);
            self.sealed_items += items.len();
            self.sealed_bytes += bytes;
            self.set_look();
            self.sealed.push_back(Sealed { grace: snapshot(), items, bytes });
        }
        let is_due = eager || self.sealed.len() > 1 || self.sealed_bytes >= Self::BATCH_BYTES;
        self.sealed.back().filter(|_| is_due).map(|sealed| sealed.grace)
    }

    /// The grace period that frees the oldest sealed items.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.sealed.front().map(|sealed| sealed.grace)
    }

    /// Takes out the oldest sealed items whose grace period is over.
    pub(super) fn take_ready(&mut self, domain: &Domain) -> Option<Sealed> {
        if domain.is_complete(self.oldest()?) { self.take_sealed() } else { None }
    }

    /// Takes out the oldest sealed items.
    pub(super) fn take_sealed(&mut self) -> Option<Sealed> {
        let sealed = self.sealed.pop_front()?;
        self.sealed_items -= sealed.items.len();
        self.sealed_bytes -= sealed.bytes;
        self.set_look();
        Some(sealed)
    }

    /// At a batch, or where the limit is reached before that.
    fn set_look(&mut self) {
        self.look_items = Self::BATCH.min(Self::LIMIT.saturating_sub(self.sealed_items));
        self.look_bytes =
            Self::BATCH_BYTES.min(Self::LIMIT_BYTES.saturating_sub(self.sealed_bytes));
    }

    /// Keeps the memory of a vector that has been run empty.
    pub(super) fn keep(&mut self, empty: Vec<Deferred>) {
        debug_assert!(empty.is_empty());
        if self.spare.len() < 2 && empty.capacity() <= Self::BATCH * 2 {
            self.spare.push(empty);
        }
    }
}
