//! Guards that own their lock, for who cannot borrow it.
//!
//! An unlock may touch the lock after others can take it. So a guard gives its lock back before it
//! gives up its share of the [`Arc`]: that is the order in which Rust drops, body first, then fields.

use alloc::sync::Arc;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr;

use super::{Announce, OrBit, QRwLock};

impl<T: ?Sized, S: Announce> QRwLock<T, S> {
    /// As [`QRwLock::read`], with a guard that keeps the lock alive.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use vfscale_sync::QRwLock;
    ///
    /// let guard = Arc::new(QRwLock::new(7)).read_arc();
    /// assert_eq!(std::thread::spawn(move || *guard).join().unwrap(), 7);
    /// ```
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn read_arc(self: &Arc<Self>) -> ArcQRwLockReadGuard<T, S> {
        self.raw.read();
        ArcQRwLockReadGuard { lock: self.clone() }
    }

    /// As [`QRwLock::write`], with a guard that keeps the lock alive.
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn write_arc(self: &Arc<Self>) -> ArcQRwLockWriteGuard<T, S> {
        self.raw.write();
        ArcQRwLockWriteGuard { lock: self.clone() }
    }

    /// As [`QRwLock::try_read`], with a guard that keeps the lock alive.
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn try_read_arc(self: &Arc<Self>) -> Option<ArcQRwLockReadGuard<T, S>> {
        self.raw.try_read().then(|| ArcQRwLockReadGuard { lock: self.clone() })
    }

    /// As [`QRwLock::try_write`], with a guard that keeps the lock alive.
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn try_write_arc(self: &Arc<Self>) -> Option<ArcQRwLockWriteGuard<T, S>> {
        self.raw.try_write().then(|| ArcQRwLockWriteGuard { lock: self.clone() })
    }
}

/// Shared access to the value of a [`QRwLock`] that lives at least as long.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct ArcQRwLockReadGuard<T: ?Sized, S: Announce = OrBit> {
    lock: Arc<QRwLock<T, S>>,
}

impl<T: ?Sized, S: Announce> Deref for ArcQRwLockReadGuard<T, S> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so we are counted and WRITER is not set (invariant of
        // `QRwLock`).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized, S: Announce> Drop for ArcQRwLockReadGuard<T, S> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unlock_shared();
    }
}

/// Exclusive access to the value of a [`QRwLock`] that lives at least as long.
///
/// It lends `&mut T`; since the lock inside is `Sync` only for `T: Send + Sync`, so is the guard.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct ArcQRwLockWriteGuard<T: ?Sized, S: Announce = OrBit> {
    lock: Arc<QRwLock<T, S>>,
}

impl<T: ?Sized, S: Announce> ArcQRwLockWriteGuard<T, S> {
    /// As [`QRwLockWriteGuard::downgrade`](super::QRwLockWriteGuard::downgrade).
    pub fn downgrade(guard: Self) -> ArcQRwLockReadGuard<T, S> {
        let guard = ManuallyDrop::new(guard);
        // SAFETY: the field is moved out of a guard that is not used or dropped any more.
        let lock = unsafe { ptr::read(&raw const guard.lock) };
        lock.raw.downgrade();
        ArcQRwLockReadGuard { lock }
    }
}

impl<T: ?Sized, S: Announce> Deref for ArcQRwLockWriteGuard<T, S> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so WRITER is ours (invariant of `QRwLock`), and `&self` rules
        // out our own `&mut T`.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized, S: Announce> DerefMut for ArcQRwLockWriteGuard<T, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists, so WRITER is ours (invariant of `QRwLock`), and `&mut self`
        // makes this the only borrow.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized, S: Announce> Drop for ArcQRwLockWriteGuard<T, S> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unlock_exclusive();
    }
}

impl<T: ?Sized + fmt::Debug, S: Announce> fmt::Debug for ArcQRwLockReadGuard<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug, S: Announce> fmt::Debug for ArcQRwLockWriteGuard<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
