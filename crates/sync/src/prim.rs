//! The atomics facade: one switch between `core`, loom and shuttle.
//!
//! Every atomic, cell, spin hint and yield of this crate comes from here, so that a model checker sees all of them. Nothing in
//! this crate names `core::sync::atomic` directly.

#[cfg(not(any(loom, shuttle)))]
mod imp {
    pub(crate) use core::hint::spin_loop;
    #[cfg(target_has_atomic = "64")]
    #[allow(unused_imports, reason = "the whole interface, whoever uses which part")]
    pub(crate) use core::sync::atomic::AtomicU64;
    #[allow(unused_imports, reason = "the whole interface, whoever uses which part")]
    pub(crate) use core::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, compiler_fence, fence,
    };

    /// Gives the processor to another thread, where there are threads.
    #[inline]
    pub(crate) fn yield_now() {
        #[cfg(feature = "std")]
        std::thread::yield_now();
        #[cfg(not(feature = "std"))]
        crate::park::relax();
    }
}

#[cfg(loom)]
mod ordered;

#[cfg(loom)]
mod weaken;

#[cfg(loom)]
mod imp {
    #[allow(unused_imports, reason = "the whole interface, whoever uses which part")]
    pub(crate) use super::ordered::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
    pub(crate) use super::weaken::fence;
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::thread::yield_now;

    /// Under a model every compiler fence is a full fence: the other half of the asymmetric barrier is one too.
    #[allow(dead_code, reason = "the whole interface, whoever uses which part")]
    #[track_caller]
    pub(crate) fn compiler_fence(_: core::sync::atomic::Ordering) {
        fence(core::sync::atomic::Ordering::SeqCst);
    }
}

#[cfg(all(shuttle, not(loom)))]
mod imp {
    pub(crate) use shuttle::hint::spin_loop;
    #[allow(unused_imports, reason = "the whole interface, whoever uses which part")]
    pub(crate) use shuttle::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence,
    };
    pub(crate) use shuttle::thread::yield_now;

    #[allow(dead_code, reason = "the whole interface, whoever uses which part")]
    pub(crate) fn compiler_fence(_: core::sync::atomic::Ordering) {
        fence(core::sync::atomic::Ordering::SeqCst);
    }
}

/// Asks for the line of `target` to be ours to write, without waiting for it. A hint: it changes nothing that a program can
/// see.
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
#[inline(always)]
pub(crate) fn prefetch_write<T>(target: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch has no effect on memory or registers, and the reference makes the address valid anyway. Processors
    // without the instruction do nothing.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) target, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{}]", in(reg) target, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = target;
}

pub use core::sync::atomic::Ordering;
pub(crate) use imp::*;

/// A constructor that is `const` except under a model, whose atomics are made at run time.
macro_rules! const_fn {
    ($(#[$attr:meta])* $vis:vis fn $($rest:tt)*) => {
        #[cfg(not(any(loom, shuttle)))]
        $(#[$attr])*
        $vis const fn $($rest)*

        #[cfg(any(loom, shuttle))]
        $(#[$attr])*
        $vis fn $($rest)*
    };
}
pub(crate) use const_fn;
