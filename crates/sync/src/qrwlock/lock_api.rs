//! The raw lock as `lock_api` knows it, for who has code written against that.

use super::Announce;
use super::raw::RawQRwLock;

// SAFETY: one writer or many readers at a time, see `super::QRwLock`. Any thread may unlock.
unsafe impl<S: Announce> ::lock_api::RawRwLock for RawQRwLock<S> {
    const INIT: Self = Self::unlocked();

    type SharedGuard = ();
    type ExclusiveGuard = ();

    #[inline]
    fn lock_shared(&self) {
        self.read();
    }

    #[inline]
    fn try_lock_shared(&self) -> Option<()> {
        self.try_read().then_some(())
    }

    #[inline]
    unsafe fn unlock_shared(&self, (): ()) {
        Self::unlock_shared(self);
    }

    #[inline]
    fn lock_exclusive(&self) {
        self.write();
    }

    #[inline]
    fn try_lock_exclusive(&self) -> Option<()> {
        self.try_write().then_some(())
    }

    #[inline]
    unsafe fn unlock_exclusive(&self, (): ()) {
        Self::unlock_exclusive(self);
    }

    fn is_locked(&self) -> bool {
        Self::is_locked(self)
    }

    fn is_locked_exclusive(&self) -> bool {
        self.is_write_locked()
    }
}

// SAFETY: nobody writes between the exclusive and the shared hold.
unsafe impl<S: Announce> ::lock_api::RawRwLockDowngrade for RawQRwLock<S> {
    #[inline]
    unsafe fn downgrade(&self, (): ()) {
        Self::downgrade(self);
    }
}

#[cfg(feature = "std")]
mod timed {
    use super::{Announce, RawQRwLock};
    use std::time::{Duration, Instant};

    // SAFETY: `Some` is answered only with the lock held.
    unsafe impl<S: Announce> ::lock_api::RawRwLockTimed for RawQRwLock<S> {
        type Duration = Duration;
        type Instant = Instant;

        fn try_lock_shared_for(&self, timeout: Duration) -> Option<()> {
            match Instant::now().checked_add(timeout) {
                Some(deadline) => self.try_lock_shared_until(deadline),
                None => {
                    self.read();
                    Some(())
                }
            }
        }

        fn try_lock_shared_until(&self, deadline: Instant) -> Option<()> {
            self.read_until(deadline).then_some(())
        }

        fn try_lock_exclusive_for(&self, timeout: Duration) -> Option<()> {
            match Instant::now().checked_add(timeout) {
                Some(deadline) => self.try_lock_exclusive_until(deadline),
                None => {
                    self.write();
                    Some(())
                }
            }
        }

        fn try_lock_exclusive_until(&self, deadline: Instant) -> Option<()> {
            self.write_until(deadline).then_some(())
        }
    }
}
