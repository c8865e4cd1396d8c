//! A domain of one's own, whose readers register by hand: for a structure that must not wait for other people's readers, and
//! for programs without `std`, where nobody knows when a thread begins or ends.
//!
//! # What differs from the process's domain
//! - A thread that reads holds a [`Registration`]; a section is opened by [`Registration::pin`], and sections do not nest: the
//!   compiler sees to both.
//! - A writer waits. Nothing is deferred, so there is no garbage to bound.
//! - What is read lies in a [`DomainCell`], which knows its domain.
//!
//! # Orderings
//! - RCU-3, RCU-4 of `domain`: writers that meet share grace periods
//! - RCU-10 exchange of the cell's pointer (Release half) -> load of it (Acquire): the value is whole
//!
//! # Who waits for whom
//! A writer takes the writers' lock, raises the counter, copies the list of readers, and waits for each (see `domain`). A reader
//! that registers after the copy was made has taken the list's lock after the writer did, so it sees what was unlinked before.
//! No lock of the list is held while waiting: a thread may register while another is waited for.
//!
//! # Distrust
//! A registration that is forgotten (`mem::forget`) inside a section is waited for without end.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ptr;

use crossbeam_utils::CachePadded;

use super::domain::{self, Reader};
use crate::backoff::Backoff;
use crate::fence;
use crate::prim::AtomicPtr;
use crate::prim::Ordering::{AcqRel, Acquire};
use crate::qmutex::QMutex;

/// Readers that register by hand, and the grace periods that wait for them.
///
/// ```
/// use vfscale_sync::rcu::{Domain, DomainCell};
///
/// static CONFIG: Domain = Domain::new();
///
/// let cell = DomainCell::new(&CONFIG, 1);
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         let mut reader = CONFIG.register();
///         let section = reader.pin();
///         assert!((1..=2).contains(cell.load(&section)));
///     });
///     let mut me = CONFIG.register();
///     assert_eq!(*cell.replace(2, &mut me), 1); // waited for the reader
/// });
/// ```
pub struct Domain {
    protocol: domain::Domain,
    /// Held from the start of a grace period to its end.
    writers: QMutex<()>,
    readers: QMutex<Vec<Arc<CachePadded<Reader>>>>,
}

impl Domain {
    /// A domain without readers.
    #[must_use]
    pub const fn new() -> Self {
        Domain {
            protocol: domain::Domain::new(),
            writers: QMutex::new(()),
            readers: QMutex::new(Vec::new()),
        }
    }

    /// Makes the running thread one that may read. Costs an allocation: keep it.
    pub fn register(&self) -> Registration<'_> {
        fence::prepare();
        let reader = Arc::new(CachePadded::new(Reader::new()));
        self.readers.lock().push(Arc::clone(&reader));
        Registration { domain: self, reader }
    }

    /// Waits until every section that is open now has ended. The caller is in none: it lends its registration to show it. A
    /// thread without one has nothing to show, and calls [`Domain::synchronize_unregistered`].
    ///
    /// # Panics
    /// If the registration is with another domain.
    pub fn synchronize(&self, me: &mut Registration<'_>) {
        assert!(ptr::eq(self, me.domain), "a registration with another domain");
        self.wait();
    }

    /// As [`Domain::synchronize`], for a thread that does not read here. In a section of the running thread it never returns.
    pub fn synchronize_unregistered(&self) {
        self.wait();
    }

    fn wait(&self) {
        // RCU-4: of many writers that meet, two wait for readers.
        let enough = self.protocol.snapshot();
        let _turn = self.writers.lock();
        if self.protocol.is_complete(enough) {
            return;
        }
        let number = self.protocol.start_locked();
        let readers = self.readers.lock().clone();
        for reader in readers {
            let mut backoff = Backoff::new();
            while !reader.is_quiet(number) {
                // A reader wakes nobody.
                backoff.pause_awake();
            }
        }
        self.protocol.complete_locked(number);
    }

    /// How many grace periods have run to their end.
    pub fn grace_periods(&self) -> u64 {
        self.protocol.completed()
    }
}

impl Default for Domain {
    fn default() -> Self {
        Domain::new()
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain")
            .field("grace_periods", &self.grace_periods())
            .finish_non_exhaustive()
    }
}

/// A thread's leave to read in a [`Domain`]. May be sent to another thread between sections.
#[must_use = "dropped, it is given back"]
pub struct Registration<'d> {
    domain: &'d Domain,
    reader: Arc<CachePadded<Reader>>,
}

impl<'d> Registration<'d> {
    /// Opens a section. The next one needs this one's end.
    #[inline]
    pub fn pin(&mut self) -> Section<'d, '_> {
        self.reader.enter(&self.domain.protocol);
        Section { registration: self }
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        // Nothing is lent any more, but a section may have been lost, and a writer who has copied the list waits for it.
        self.reader.leave();
        self.domain.readers.lock().retain(|reader| !Arc::ptr_eq(reader, &self.reader));
    }
}

impl fmt::Debug for Registration<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("domain", &self.domain).finish_non_exhaustive()
    }
}

/// A section of reading in a [`Domain`].
///
/// A lost one (`mem::forget`) keeps writers waiting until its registration opens and ends another, or is dropped.
#[must_use = "the section ends when it is dropped"]
#[derive(Debug)]
pub struct Section<'d, 'r> {
    registration: &'r mut Registration<'d>,
}

impl Drop for Section<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        self.registration.reader.leave();
    }
}

/// A value that readers of a [`Domain`] follow, and that a writer replaces.
///
/// # Invariants
/// `value` is from `Box::into_raw`, and freed only after it was exchanged and a grace period of `domain` has passed, or when the
/// cell ends.
pub struct DomainCell<'d, T> {
    domain: &'d Domain,
    value: AtomicPtr<T>,
}

// SAFETY: it owns a `T` and lends `&T` to all threads.
unsafe impl<T: Send + Sync> Sync for DomainCell<'_, T> {}
// SAFETY: it owns a `T`, of which no reader is left when it is moved.
unsafe impl<T: Send + Sync> Send for DomainCell<'_, T> {}

impl<'d, T: Send + Sync> DomainCell<'d, T> {
    /// A cell that holds `value`.
    pub fn new(domain: &'d Domain, value: T) -> Self {
        DomainCell { domain, value: AtomicPtr::new(Box::into_raw(Box::new(value))) }
    }

    /// What is there now, readable until the section ends.
    ///
    /// # Panics
    /// If the section is one of another domain.
    #[inline]
    pub fn load<'g>(&'g self, section: &'g Section<'_, '_>) -> &'g T {
        assert!(ptr::eq(self.domain, section.registration.domain), "a section of another domain");
        // RCU-10 Acquire: the value is whole. unmodelled: as for `RcuCell`, whose model has it.
        let value = self.value.load(Acquire);
        // SAFETY: type invariant; the section was open before the load and is while the borrow lasts, so a grace period that
        // frees the value has not begun or waits for it (RCU-1).
        unsafe { &*value }
    }

    /// Puts a value in, waits for a grace period, and gives back the one that was there. The caller is in no section, which its
    /// registration shows.
    ///
    /// # Panics
    /// If the registration is with another domain.
    pub fn replace(&self, value: T, me: &mut Registration<'_>) -> Box<T> {
        assert!(ptr::eq(self.domain, me.domain), "a registration with another domain");
        // RCU-10 AcqRel: our value is whole, and so is the one that we take out. unmodelled: as above.
        let old = self.value.swap(Box::into_raw(Box::new(value)), AcqRel);
        self.domain.wait();
        // SAFETY: type invariant: we took it out, and the readers who may have seen it have ended their sections.
        unsafe { Box::from_raw(old) }
    }
}

impl<T> Drop for DomainCell<'_, T> {
    fn drop(&mut self) {
        // RCU-10 AcqRel: the last that was put in. unmodelled: as above.
        let value = self.value.swap(ptr::null_mut(), AcqRel);
        // SAFETY: type invariant; loads borrow the cell, so nobody reads any more.
        drop(unsafe { Box::from_raw(value) });
    }
}

impl<T> fmt::Debug for DomainCell<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DomainCell").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
    use std::thread;

    #[test]
    fn a_writer_waits_for_the_readers_of_its_domain_alone() {
        let (ours, other) = (Domain::new(), Domain::new());
        let cell = DomainCell::new(&ours, 1);
        let mut elsewhere = other.register();
        let _section = elsewhere.pin();
        let (reading, leave, replaced) =
            (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
        crate::testing::scope(|s| {
            s.spawn(|| {
                let mut me = ours.register();
                let section = me.pin();
                let seen = cell.load(&section);
                reading.store(true, SeqCst);
                while !leave.load(SeqCst) {
                    thread::yield_now();
                }
                assert_eq!(*seen, 1);
                assert!(!replaced.load(SeqCst), "the writer did not wait");
            });
            while !reading.load(SeqCst) {
                thread::yield_now();
            }
            s.spawn(|| {
                let old = cell.replace(2, &mut ours.register());
                replaced.store(true, SeqCst);
                assert_eq!(*old, 1);
            });
            thread::sleep(core::time::Duration::from_millis(20));
            leave.store(true, SeqCst);
        });
        assert_eq!((ours.grace_periods(), other.grace_periods()), (1, 0));
    }

    #[test]
    #[should_panic(expected = "another domain")]
    fn a_section_of_another_domain_is_refused() {
        let (ours, other) = (Domain::new(), Domain::new());
        let cell = DomainCell::new(&ours, 1);
        let _ = *cell.load(&other.register().pin());
    }

    /// Threads that come and go, read and replace; a value that is freed too early shows.
    #[test]
    fn nobody_reads_what_is_freed() {
        struct Pair(u64, u64);
        impl Drop for Pair {
            fn drop(&mut self) {
                (self.0, self.1) = (u64::MAX, 0);
            }
        }
        let domain = Domain::new();
        let cell = DomainCell::new(&domain, Pair(0, 0));
        let reads = AtomicU64::new(0);
        crate::testing::scope(|s| {
            let worker = |number: u64| {
                let (domain, cell, reads) = (&domain, &cell, &reads);
                s.spawn(move || {
                    for round in 0..40 {
                        let mut me = domain.register();
                        for _ in 0..50 {
                            let section = me.pin();
                            let pair = cell.load(&section);
                            assert_eq!(pair.0, pair.1, "freed under a reader");
                            reads.fetch_add(1, SeqCst);
                        }
                        let n = number * 1_000 + round;
                        let old = cell.replace(Pair(n, n), &mut me);
                        assert_eq!(old.0, old.1);
                    }
                })
            };
            let workers: Vec<_> = (0..4).map(worker).collect();
            // ThreadSanitizer sees a join, but not the end of a scope.
            workers.into_iter().for_each(|worker| worker.join().unwrap());
        });
        assert_eq!(reads.into_inner(), 8_000);
        assert!((40..=160).contains(&domain.grace_periods()), "{domain:?}");
        assert!(domain.readers.lock().is_empty());
    }

    #[test]
    fn a_lost_section_ends_with_its_registration() {
        let domain = Domain::new();
        let mut lost = domain.register();
        let _ = core::mem::ManuallyDrop::new(lost.pin());
        crate::testing::scope(|s| {
            let writer = s.spawn(|| domain.synchronize_unregistered());
            thread::sleep(core::time::Duration::from_millis(10));
            assert!(!writer.is_finished(), "the writer did not wait");
            drop(lost);
        });
        assert_eq!(domain.grace_periods(), 1);
    }
}
