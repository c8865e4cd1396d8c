//! A word that threads sleep on, for users of this crate.
//!
//! # Why
//! A structure that keeps its own flags (an object under construction, say) lets others sleep until
//! a flag goes, without a lock or a condition variable per object.
//!
//! # Contract
//! [`wait`] returns at once if the word differs, and may return for no reason: loop over the
//! condition. A waker changes the word first, then wakes. Sleep on the word whose change is your
//! wake-up: a sleeper on any other word (on a lock, say, while the waker clears a flag) can miss it
//! when a third thread steps in between.
//!
//! # Without the standard library
//! a program registers how its threads sleep: `Parker`, `set_parker`. All primitives of this crate
//! then sleep that way; without one their slow paths spin.
//!
//! ```
//! use vfscale_sync::Ordering::{Acquire, Release};
//! use vfscale_sync::wait::{self, WaitWord};
//!
//! static READY: WaitWord = WaitWord::new(0);
//!
//! let maker = std::thread::spawn(|| {
//!     READY.store(1, Release);
//!     wait::wake_all(&READY);
//! });
//! while READY.load(Acquire) == 0 {
//!     wait::wait(&READY, 0);
//! }
//! maker.join().unwrap();
//! ```

#[cfg(feature = "std")]
pub use crate::park::Sleep;
#[cfg(feature = "std")]
use crate::park::park32_until;
#[cfg(all(any(not(feature = "std"), doc), not(any(loom, shuttle))))]
pub use crate::park::{Parker, set_parker};
use crate::park::{park32, wake32};
use crate::prim::{AtomicU32, Ordering, const_fn};
#[cfg(feature = "std")]
use std::time::Instant;

/// A 32-bit atomic that can be slept on.
#[derive(Debug)]
#[repr(transparent)]
pub struct WaitWord(AtomicU32);

impl WaitWord {
    const_fn! {
        /// A word that holds `value`.
        #[must_use]
        pub fn new(value: u32) -> Self {
            Self(AtomicU32::new(value))
        }
    }

    /// Reads the word.
    #[inline]
    #[cfg_attr(loom, track_caller)]
    pub fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }

    /// Writes the word. Sleepers notice when they are woken.
    #[inline]
    #[cfg_attr(loom, track_caller)]
    pub fn store(&self, value: u32, order: Ordering) {
        self.0.store(value, order);
    }

    /// Writes the word and answers what it held.
    #[inline]
    #[cfg_attr(loom, track_caller)]
    pub fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.0.swap(value, order)
    }

    /// Sets `bits` and answers what the word held.
    #[inline]
    #[cfg_attr(loom, track_caller)]
    pub fn fetch_or(&self, bits: u32, order: Ordering) -> u32 {
        self.0.fetch_or(bits, order)
    }

    /// Keeps only `bits` and answers what the word held.
    #[inline]
    #[cfg_attr(loom, track_caller)]
    pub fn fetch_and(&self, bits: u32, order: Ordering) -> u32 {
        self.0.fetch_and(bits, order)
    }

    /// Adds, wrapping, and answers what the word held.
    #[inline]
    #[cfg_attr(loom, track_caller)]
    pub fn fetch_add(&self, n: u32, order: Ordering) -> u32 {
        self.0.fetch_add(n, order)
    }

    /// Subtracts, wrapping, and answers what the word held.
    #[inline]
    #[cfg_attr(loom, track_caller)]
    pub fn fetch_sub(&self, n: u32, order: Ordering) -> u32 {
        self.0.fetch_sub(n, order)
    }

    /// Replaces `current` by `new`, or answers what the word holds instead.
    ///
    /// # Errors
    /// The value found, when it was not `current`.
    #[inline]
    #[cfg_attr(loom, track_caller)]
    pub fn compare_exchange(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.0.compare_exchange(current, new, success, failure)
    }
}

/// Sleeps while `word` holds `expected`; may return early.
pub fn wait(word: &WaitWord, expected: u32) {
    park32(&word.0, expected);
}

/// Sleeps while `word` holds `expected`, but not beyond `deadline`; may return early.
///
/// Whoever gives up looks at the word once more: a waker may have chosen it at that very moment,
/// and then nobody else was woken.
///
/// ```
/// use std::time::{Duration, Instant};
/// use vfscale_sync::wait::{self, Sleep, WaitWord};
///
/// let never = WaitWord::new(0);
/// let deadline = Instant::now() + Duration::from_millis(5);
/// while wait::wait_until(&never, 0, deadline) == Sleep::Over {}
/// assert!(Instant::now() >= deadline);
/// ```
#[cfg(feature = "std")]
pub fn wait_until(word: &WaitWord, expected: u32, deadline: Instant) -> Sleep {
    park32_until(&word.0, expected, deadline)
}

/// Wakes one sleeper, if there is one.
pub fn wake_one(word: &WaitWord) {
    wake32(&raw const word.0, 1);
}

/// Wakes all sleepers.
pub fn wake_all(word: &WaitWord) {
    wake32(&raw const word.0, u32::MAX);
}
