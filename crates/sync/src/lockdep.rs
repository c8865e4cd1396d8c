//! Finds locks that are taken in two orders, before two threads do so at the same time.
//!
//! # Why
//! A deadlock needs two threads at the wrong moment; the mistake behind it is there in every run. So
//! with feature `lockdep` each lock of this crate notes which locks its thread holds already, and the
//! first time that an order contradicts an earlier one the thread panics with all four places.
//!
//! # Classes
//! All locks that were made at one place in the source are one class; an order between two classes
//! holds for all their locks. A lock may have the name of its class as a field. A [`LockRef`] has not: it
//! stays one word, and its lock-free way stays as it is. It is known by its address: a slot's by its
//! pool and the place in the slot, any other by itself, until it is dropped.
//!
//! # What is checked
//! - a thread takes a lock of class B while it holds one of class A, after B came before A, directly or
//!   over others: reported
//! - a thread takes a lock that it holds: reported, also two shared holds, between which a writer may
//!   come, but for the nested form that is made for it
//! - two locks of one class at a time: not checked, since their order is that of something else (a
//!   parent before its child)
//! - what was only tried is held, but adds no order: it did not wait
//!
//! # What is measured
//! For each class how often it was taken, how often not at once, and how long it was waited for and
//! held: [`report`].
//!
//! # Off
//! Every function here is empty and every field has no size: the same instructions as if it were not
//! there.
//!
//! # Source
//! kernel lockdep and lock_stat; lockmeter (1999) for contention and utilisation.
//!
//! [`LockRef`]: crate::LockRef

#[cfg(all(feature = "lockdep", not(any(loom, shuttle))))]
mod graph;
#[cfg(all(feature = "lockdep", not(any(loom, shuttle))))]
mod held;
#[cfg(all(test, feature = "lockdep", not(any(loom, shuttle))))]
mod tests;

#[cfg(all(feature = "lockdep", not(any(loom, shuttle))))]
pub use graph::{ClassReport, report};
#[cfg(not(all(feature = "lockdep", not(any(loom, shuttle)))))]
pub(crate) use off::*;
#[cfg(all(feature = "lockdep", not(any(loom, shuttle))))]
pub(crate) use on::*;

/// How a lock is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "some are used only with some features")]
pub(crate) enum Mode {
    Exclusive,
    Shared,
    /// Shared, and allowed beside a shared hold of the same thread.
    Nested,
}

#[cfg(all(feature = "lockdep", not(any(loom, shuttle))))]
mod on {
    use super::{Mode, graph, held};
    use core::panic::Location;
    use core::sync::atomic::AtomicU32;
    use std::time::Instant;

    /// The class of a lock that can carry it: the place where it was made.
    #[derive(Debug)]
    pub(crate) struct Class {
        pub(super) place: &'static Location<'static>,
        /// Its number, once known; 0 before.
        pub(super) number: AtomicU32,
    }

    impl Class {
        #[track_caller]
        pub(crate) const fn here() -> Self {
            Self { place: Location::caller(), number: AtomicU32::new(0) }
        }

        /// This lock.
        pub(crate) fn key(&self) -> Key<'_> {
            Key { class: Some(self), address: std::ptr::from_ref(self).addr() }
        }
    }

    /// One lock: where it is, and its class if it carries it.
    #[derive(Clone, Copy)]
    pub(crate) struct Key<'a> {
        pub(super) class: Option<&'a Class>,
        pub(super) address: usize,
    }

    /// A lock that is known by its address alone.
    pub(crate) fn by_address<T>(lock: &T) -> Key<'_> {
        Key { class: None, address: std::ptr::from_ref(lock).addr() }
    }

    /// A lock that was asked for, and that its order allows.
    #[derive(Clone, Copy)]
    pub(crate) struct Asked {
        class: u32,
        place: &'static Location<'static>,
        begun: Instant,
    }

    /// Asks for a lock that may have to be waited for.
    #[track_caller]
    pub(crate) fn ask(key: Key<'_>, mode: Mode) -> Asked {
        let (class, place) = (graph::class_of(key), Location::caller());
        held::check(key.address, class, mode, place);
        held::note_contended(false);
        Asked { class, place, begun: Instant::now() }
    }

    impl Asked {
        /// It was taken.
        pub(crate) fn taken(self, key: Key<'_>, mode: Mode) {
            let waited = held::was_contended().then(|| self.begun.elapsed());
            held::push(key.address, self.class, mode, self.place, waited);
        }
    }

    /// Takes a lock by `take`, which may wait.
    #[track_caller]
    pub(crate) fn acquire<R>(key: Key<'_>, mode: Mode, take: impl FnOnce() -> R) -> R {
        let asked = ask(key, mode);
        let outcome = take();
        asked.taken(key, mode);
        outcome
    }

    /// Takes a lock by `take`, which may wait in vain.
    #[track_caller]
    pub(crate) fn acquire_if(key: Key<'_>, mode: Mode, take: impl FnOnce() -> bool) -> bool {
        let asked = ask(key, mode);
        let taken = take();
        if taken {
            asked.taken(key, mode);
        }
        taken
    }

    /// A lock was taken without waiting.
    #[track_caller]
    pub(crate) fn tried(key: Key<'_>, mode: Mode, taken: bool) {
        if taken {
            held::push(key.address, graph::class_of(key), mode, Location::caller(), None);
        }
    }

    /// The lock is about to be given back.
    pub(crate) fn released(key: Key<'_>) {
        held::pop(key.address);
    }

    /// The lock was not free at once.
    pub(crate) fn contended() {
        held::note_contended(true);
    }

    /// The lock of this address is gone.
    pub(crate) fn forget<T>(lock: &T) {
        graph::forget(std::ptr::from_ref(lock).addr());
    }

    /// From `base` on lie slots of `size` bytes, of the type with this name.
    pub(crate) fn slots(base: usize, len: usize, size: usize, name: &'static str) {
        graph::add_slots(base, len, size, name);
    }
}

#[cfg(not(all(feature = "lockdep", not(any(loom, shuttle)))))]
mod off {
    use super::Mode;
    use core::marker::PhantomData;

    /// Nothing.
    #[derive(Debug)]
    pub(crate) struct Class;

    impl Class {
        #[inline(always)]
        pub(crate) const fn here() -> Self {
            Self
        }

        #[inline(always)]
        pub(crate) fn key(&self) -> Key<'_> {
            Key(PhantomData)
        }
    }

    /// Nothing.
    #[derive(Clone, Copy)]
    pub(crate) struct Key<'a>(PhantomData<&'a ()>);

    #[inline(always)]
    pub(crate) fn by_address<T>(_: &T) -> Key<'_> {
        Key(PhantomData)
    }

    /// Nothing.
    #[derive(Clone, Copy)]
    pub(crate) struct Asked;

    #[inline(always)]
    pub(crate) fn ask(_: Key<'_>, _: Mode) -> Asked {
        Asked
    }

    impl Asked {
        #[inline(always)]
        pub(crate) fn taken(self, _: Key<'_>, _: Mode) {}
    }

    #[inline(always)]
    pub(crate) fn acquire<R>(_: Key<'_>, _: Mode, take: impl FnOnce() -> R) -> R {
        take()
    }

    #[inline(always)]
    #[allow(dead_code, reason = "for locks with a deadline")]
    pub(crate) fn acquire_if(_: Key<'_>, _: Mode, take: impl FnOnce() -> bool) -> bool {
        take()
    }

    #[inline(always)]
    pub(crate) fn tried(_: Key<'_>, _: Mode, _: bool) {}

    #[inline(always)]
    pub(crate) fn released(_: Key<'_>) {}

    #[inline(always)]
    pub(crate) fn contended() {}

    #[inline(always)]
    #[allow(dead_code, reason = "for pools")]
    pub(crate) fn slots(_: usize, _: usize, _: usize, _: &'static str) {}
}
