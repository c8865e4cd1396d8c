//! Loom's atomics, made to explore every order.
//!
//! loom 0.7.3 remembers one access per atomic that a store may race with: the last. If this thread
//! has just read the word, that is its own read, and the race of its store with an earlier read of
//! another thread goes unnoticed. So "read, then write" (every compare-exchange loop, a sequence
//! counter's writer) loses schedules: a model of `seqcount` never once began its read after a
//! write.
//!
//! Here each access is preceded by a store to a word of its own, unordered and without meaning. All
//! accesses then depend on each other in the eyes of the search, which tries them in every order;
//! what a read may return is still loom's to say.
//!
//! An atomic that ends is written to once more, see `ends`. Each ordering passes through [`super::weaken`] with the place that asked for it.

use core::fmt;
use core::panic::Location;
use core::sync::atomic::Ordering;

use loom::sync::atomic as model;

use super::weaken::{Operand, access};

macro_rules! ordered {
    ($name:ident $(<$param:ident>)?, $value:ty) => {
        pub(crate) struct $name $(<$param>)? {
            word: model::$name $(<$param>)?,
            turn: model::AtomicBool,
        }

        #[allow(dead_code, reason = "the whole interface, whoever uses which part")]
        impl $(<$param>)? $name $(<$param>)? {
            #[track_caller]
            pub(crate) fn new(value: $value) -> Self {
                Self { word: model::$name::new(value), turn: model::AtomicBool::new(false) }
            }

            /// The word, after a point where any other thread may come first.
            #[track_caller]
            fn turn(&self) -> &model::$name $(<$param>)? {
                self.turn.store(false, Ordering::Relaxed);
                &self.word
            }

            #[track_caller]
            pub(crate) fn load(&self, order: Ordering) -> $value {
                self.turn().load(access(Location::caller(), Operand::Load, order))
            }

            #[track_caller]
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                self.turn().store(value, access(Location::caller(), Operand::Store, order));
            }

            #[track_caller]
            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                self.turn().swap(value, access(Location::caller(), Operand::Rmw, order))
            }

            #[track_caller]
            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let success = access(Location::caller(), Operand::Success, success);
                let failure = access(Location::caller(), Operand::Failure, failure);
                self.turn().compare_exchange(current, new, success, failure)
            }

            #[track_caller]
            pub(crate) fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let success = access(Location::caller(), Operand::Success, success);
                let failure = access(Location::caller(), Operand::Failure, failure);
                self.turn().compare_exchange_weak(current, new, success, failure)
            }
        }

        impl $(<$param>)? fmt::Debug for $name $(<$param>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.word.fmt(f)
            }
        }
    };
}

/// The end of an atomic is a plain write to its memory: every access by another thread has to come before it. So loom sees a
/// node that is touched after its owner was told to go, and a count whose last drop acquires nothing. (Not for flags, whose
/// loom type cannot do it.)
macro_rules! ends {
    ($name:ident $(<$param:ident>)?) => {
        impl $(<$param>)? Drop for $name $(<$param>)? {
            fn drop(&mut self) {
                // A schedule that failed is over already.
                if !std::thread::panicking() {
                    self.word.with_mut(|_| {});
                }
            }
        }
    };
}

macro_rules! ordered_number {
    ($name:ident, $value:ty) => {
        ordered!($name, $value);
        ends!($name);

        #[allow(dead_code, reason = "the whole interface, whoever uses which part")]
        impl $name {
            #[track_caller]
            pub(crate) fn fetch_add(&self, n: $value, order: Ordering) -> $value {
                self.turn().fetch_add(n, access(Location::caller(), Operand::Rmw, order))
            }

            #[track_caller]
            pub(crate) fn fetch_sub(&self, n: $value, order: Ordering) -> $value {
                self.turn().fetch_sub(n, access(Location::caller(), Operand::Rmw, order))
            }

            #[track_caller]
            pub(crate) fn fetch_and(&self, bits: $value, order: Ordering) -> $value {
                self.turn().fetch_and(bits, access(Location::caller(), Operand::Rmw, order))
            }

            #[track_caller]
            pub(crate) fn fetch_or(&self, bits: $value, order: Ordering) -> $value {
                self.turn().fetch_or(bits, access(Location::caller(), Operand::Rmw, order))
            }

            #[track_caller]
            pub(crate) fn fetch_max(&self, n: $value, order: Ordering) -> $value {
                self.turn().fetch_max(n, access(Location::caller(), Operand::Rmw, order))
            }
        }
    };
}

ordered!(AtomicBool, bool);
ordered!(AtomicPtr<T>, *mut T);
ends!(AtomicPtr<T>);
ordered_number!(AtomicU32, u32);
ordered_number!(AtomicU64, u64);
ordered_number!(AtomicUsize, usize);
