//! Readers that say when they are *not* reading.
//!
//! # Why
//! A thread that reads all the time (a server's loop) opens and closes a section per request, at two stores each. Instead it
//! can be in one section for good and say, between requests, that it holds nothing: one store for any number of reads.
//!
//! # What keeps it right
//! References are lent from `&Qsbr`, and saying so takes `&mut Qsbr`: the compiler sees to it that nothing is held. A guard
//! from [`pin`](super::pin) may still exist beside it; then nothing is said, and the answer tells.
//!
//! # Protocol
//! Saying so is the entry into a new section without leaving the old one first: the same store, Release, and the same light
//! fence (RCU-1, RCU-2 of `domain`). A writer that waits for the old section sees the new number.
//!
//! # Distrust
//! A thread that stops saying so keeps everybody's garbage, as a section does that lasts. Before it blocks it goes
//! [`offline`](Qsbr::offline).
//!
//! # Source
//! Quiescent-state-based reclamation, as in the kernel's classic RCU and user-space RCU's QSBR flavour.

use super::{Guard, imp, pin};

/// The running thread as a reader that says when it holds nothing.
///
/// ```
/// use vfscale_sync::rcu::{self, RcuCell};
///
/// let cell = RcuCell::empty();
/// let mut reader = rcu::Qsbr::register();
/// cell.replace(Some(Box::new(1)), reader.guard());
/// for _request in 0..3 {
///     let value = cell.load(reader.guard());
///     assert_eq!(value, Some(&1));
///     assert!(reader.quiescent());
/// }
/// reader.synchronize();
/// ```
///
/// What was lent does not outlive it:
/// ```compile_fail,E0502
/// # use vfscale_sync::rcu::{self, RcuCell};
/// # let cell = RcuCell::<u32>::empty();
/// let mut reader = rcu::Qsbr::register();
/// let value = cell.load(reader.guard());
/// reader.quiescent();
/// drop(value);
/// ```
#[derive(Debug)]
#[must_use = "dropped, the thread reads in sections again"]
pub struct Qsbr {
    section: Guard,
}

impl Qsbr {
    /// Makes the running thread one that is always reading, until this is dropped.
    pub fn register() -> Qsbr {
        Qsbr { section: pin() }
    }

    /// What every function of this module wants to see. Costs nothing.
    #[inline]
    pub fn guard(&self) -> &Guard {
        &self.section
    }

    /// Says that the thread holds nothing that it has read: grace periods that wait for it go on. Also the moment at which
    /// deferred calls may run. False if a guard of this thread is open beside: nothing was said then.
    #[inline]
    pub fn quiescent(&mut self) -> bool {
        imp::renew()
    }

    /// Runs `f`, which may block, while the thread counts as not reading. `f` may open sections of its own.
    pub fn offline<R>(&mut self, f: impl FnOnce() -> R) -> R {
        /// Goes on reading, also after a panic.
        struct Online;
        impl Drop for Online {
            fn drop(&mut self) {
                imp::enter();
            }
        }
        imp::leave();
        let _online = Online;
        f()
    }

    /// Waits for a grace period, as [`synchronize`](super::synchronize), meanwhile not reading.
    ///
    /// # Panics
    /// If a guard of this thread is open beside: it would wait for itself.
    pub fn synchronize(&mut self) {
        self.offline(super::synchronize);
    }
}
