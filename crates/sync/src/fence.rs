//! A memory barrier whose price is paid by one side alone.
//!
//! # Why
//! Two threads that each store to one word and then load the other's word need a full barrier between the two, on both
//! sides, or both may read the old value. Where one side runs a million times for every run of the other, that is unfair:
//! a full barrier costs as much as the whole read section. Linux lets the rare side force a barrier on every processor that
//! runs this process, so the frequent side only has to keep the compiler from reordering.
//!
//! # Use
//! ```text
//! frequent side                 rare side
//! mine.store(..)                theirs.store(..)
//! light()                       heavy()
//! theirs.load(..)               mine.load(..)
//! ```
//! At least one of the two loads sees the other side's store, as if both had called `fence(SeqCst)`.
//!
//! # How it is chosen
//! The first call of [`heavy`] or [`prepare`] asks the system for the barrier and registers for it. Until then, where it is
//! refused (a seccomp filter, an old kernel, another system), under a model checker, Miri or thread sanitizer, both sides
//! are real `fence(SeqCst)`. Going from the second form to the first is always right: a side that still issues a full fence
//! does more than it must.
//!
//! # Orderings
//! Those who use it name them: AL-2, BL-1, BR-1, RCU-1. `light` alone orders nothing, and two frequent sides do not see each other.
//!
//! # Source
//! Linux `membarrier(2)` with its private expedited command; asymmetric fences as in user-space RCU and in folly.

// unmodelled file: how the system's barrier is chosen; under a model both sides are full fences.

use crate::prim::{Ordering, fence};

#[cfg(all(feature = "std", not(any(loom, shuttle))))]
pub(crate) use native::is_chosen;
#[cfg(not(any(loom, shuttle)))]
pub use native::{decline, heavy, is_asymmetric, light, prepare};

#[cfg(any(loom, shuttle))]
pub use model::{heavy, is_asymmetric, light, prepare};

#[cfg(not(any(loom, shuttle)))]
mod native {
    use super::{Ordering, fence};
    use crate::prim::{AtomicU32, compiler_fence};

    const UNKNOWN: u32 = 0;
    const SYMMETRIC: u32 = 1;
    const ASYMMETRIC: u32 = 2;

    /// Which form is in use. Written once; on a line of its own, since every read section of the process loads it.
    static FORM: crossbeam_utils::CachePadded<AtomicU32> =
        crossbeam_utils::CachePadded::new(AtomicU32::new(UNKNOWN));

    /// The frequent side: free of processor instructions where the system carries the other half.
    #[inline(always)]
    pub fn light() {
        // Relaxed: any stale answer is UNKNOWN, and that means a real fence.
        if FORM.load(Ordering::Relaxed) == ASYMMETRIC {
            compiler_fence(Ordering::SeqCst);
        } else {
            core::hint::cold_path();
            fence(Ordering::SeqCst);
        }
    }

    /// The rare side: a full barrier here and on every processor that runs a thread of this process.
    ///
    /// # Panics
    /// If the system granted the barrier earlier and refuses it now (for example through a seccomp filter installed later):
    /// going on would free memory under readers.
    pub fn heavy() {
        prepare();
        fence(Ordering::SeqCst);
        if FORM.load(Ordering::Relaxed) == ASYMMETRIC {
            system::barrier();
            // The kernel's barrier is one for this thread too; this one tells the compiler.
            compiler_fence(Ordering::SeqCst);
        }
    }

    /// Chooses the form, if that has not been done. Threads that will call [`light`] should call this first, or they pay for
    /// full fences until somebody calls [`heavy`].
    pub fn prepare() {
        if FORM.load(Ordering::Relaxed) == UNKNOWN {
            let form = if system::register() { ASYMMETRIC } else { SYMMETRIC };
            // A race is harmless: registration is idempotent. But the answer must stay the one that was first acted on.
            let _ = FORM.compare_exchange(UNKNOWN, form, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Both sides are to be real fences for the life of this process, if nothing else has been chosen; answers whether that
    /// is so. For a process that will give up the system call later, and to compare the two forms.
    pub fn decline() -> bool {
        let _ = FORM.compare_exchange(UNKNOWN, SYMMETRIC, Ordering::AcqRel, Ordering::Relaxed);
        FORM.load(Ordering::Relaxed) == SYMMETRIC
    }

    /// Whether [`light`] is free of processor instructions by now. Chooses nothing.
    #[cfg(feature = "std")]
    #[inline(always)]
    pub(crate) fn is_chosen() -> bool {
        // Relaxed: once chosen it stays; before, the caller does more than it must.
        FORM.load(Ordering::Relaxed) == ASYMMETRIC
    }

    /// Whether [`light`] is free of processor instructions on this machine.
    pub fn is_asymmetric() -> bool {
        prepare();
        FORM.load(Ordering::Relaxed) == ASYMMETRIC
    }

    #[cfg(all(
        feature = "std",
        any(target_os = "linux", target_os = "android"),
        not(any(miri, tsan))
    ))]
    mod system {
        use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

        pub(super) fn register() -> bool {
            let offered = membarrier_query();
            offered.contains_command(MembarrierCommand::PrivateExpedited)
                && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
        }

        pub(super) fn barrier() {
            if let Err(error) = membarrier(MembarrierCommand::PrivateExpedited) {
                panic!("membarrier was granted to this process and is now refused: {error}");
            }
        }
    }

    #[cfg(not(all(
        feature = "std",
        any(target_os = "linux", target_os = "android"),
        not(any(miri, tsan))
    )))]
    mod system {
        pub(super) fn register() -> bool {
            false
        }

        pub(super) fn barrier() {
            unreachable!("only called where `register` said yes");
        }
    }
}

#[cfg(any(loom, shuttle))]
mod model {
    use super::{Ordering, fence};

    /// The frequent side; under a model a full fence.
    #[cfg_attr(loom, track_caller)]
    pub fn light() {
        fence(Ordering::SeqCst);
    }

    /// The rare side; under a model a full fence.
    #[cfg_attr(loom, track_caller)]
    pub fn heavy() {
        fence(Ordering::SeqCst);
    }

    /// Nothing to choose under a model.
    pub fn prepare() {}

    /// Never, under a model.
    pub fn is_asymmetric() -> bool {
        false
    }
}
