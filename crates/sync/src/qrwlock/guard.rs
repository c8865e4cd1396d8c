//! What holds a [`QRwLock`], and gives it back when dropped.

use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use super::{Announce, OrBit, QRwLock, RawQRwLock};

/// Shared access to the value of a [`QRwLock`].
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct QRwLockReadGuard<'a, T: ?Sized, S: Announce = OrBit> {
    lock: &'a QRwLock<T, S>,
}

impl<'a, T: ?Sized, S: Announce> QRwLockReadGuard<'a, T, S> {
    /// The caller is counted as a reader, and hands its place over.
    pub(super) fn of(lock: &'a QRwLock<T, S>) -> Self {
        Self { lock }
    }

    /// Keeps the lock for a part of the value.
    ///
    /// ```
    /// use vfscale_sync::{QRwLock, QRwLockReadGuard};
    ///
    /// let pair = QRwLock::new((1, "one"));
    /// let name = QRwLockReadGuard::map(pair.read(), |pair| &pair.1);
    /// assert_eq!(*name, "one");
    /// ```
    pub fn map<U: ?Sized>(
        guard: Self,
        part: impl FnOnce(&T) -> &U,
    ) -> MappedQRwLockReadGuard<'a, U, S> {
        // If `part` panics the guard unlocks as usual.
        let part = NonNull::from(part(&*guard));
        MappedQRwLockReadGuard::of(&ManuallyDrop::new(guard).lock.raw, part)
    }

    /// As [`QRwLockReadGuard::map`], if there is such a part.
    ///
    /// # Errors
    /// The guard itself, if `part` answers `None`.
    pub fn try_map<U: ?Sized>(
        guard: Self,
        part: impl FnOnce(&T) -> Option<&U>,
    ) -> Result<MappedQRwLockReadGuard<'a, U, S>, Self> {
        match part(&*guard).map(NonNull::from) {
            Some(part) => Ok(MappedQRwLockReadGuard::of(&ManuallyDrop::new(guard).lock.raw, part)),
            None => Err(guard),
        }
    }
}

impl<T: ?Sized, S: Announce> Deref for QRwLockReadGuard<'_, T, S> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so we are counted and WRITER is not set (invariant of
        // `QRwLock`).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized, S: Announce> Drop for QRwLockReadGuard<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unlock_shared();
    }
}

/// Exclusive access to the value of a [`QRwLock`].
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct QRwLockWriteGuard<'a, T: ?Sized, S: Announce = OrBit> {
    lock: &'a QRwLock<T, S>,
    /// A guard lends its `T`, so it may be sent or shared only as `&mut T` may.
    exclusive: PhantomData<&'a mut T>,
}

impl<'a, T: ?Sized, S: Announce> QRwLockWriteGuard<'a, T, S> {
    /// The caller has set WRITER, and hands it over.
    pub(super) fn of(lock: &'a QRwLock<T, S>) -> Self {
        Self { lock, exclusive: PhantomData }
    }

    /// Goes on with shared access; nobody writes in between. Readers who wait at the head come in, a
    /// writer who waits there goes on holding newcomers off.
    ///
    /// ```
    /// use vfscale_sync::{QRwLock, QRwLockWriteGuard};
    ///
    /// let lock = QRwLock::new(1);
    /// let mut value = lock.write();
    /// *value += 1;
    /// let value = QRwLockWriteGuard::downgrade(value);
    /// assert!(lock.try_write().is_none(), "nobody changes it before we have looked");
    /// assert_eq!(*value, 2);
    /// ```
    pub fn downgrade(guard: Self) -> QRwLockReadGuard<'a, T, S> {
        let lock = ManuallyDrop::new(guard).lock;
        lock.raw.downgrade();
        QRwLockReadGuard::of(lock)
    }

    /// Keeps the lock for a part of the value.
    pub fn map<U: ?Sized>(
        mut guard: Self,
        part: impl FnOnce(&mut T) -> &mut U,
    ) -> MappedQRwLockWriteGuard<'a, U, S> {
        // If `part` panics the guard unlocks as usual.
        let part = NonNull::from(part(&mut *guard));
        MappedQRwLockWriteGuard::of(&ManuallyDrop::new(guard).lock.raw, part)
    }

    /// As [`QRwLockWriteGuard::map`], if there is such a part.
    ///
    /// # Errors
    /// The guard itself, if `part` answers `None`.
    pub fn try_map<U: ?Sized>(
        mut guard: Self,
        part: impl FnOnce(&mut T) -> Option<&mut U>,
    ) -> Result<MappedQRwLockWriteGuard<'a, U, S>, Self> {
        match part(&mut *guard).map(NonNull::from) {
            Some(part) => Ok(MappedQRwLockWriteGuard::of(&ManuallyDrop::new(guard).lock.raw, part)),
            None => Err(guard),
        }
    }
}

impl<T: ?Sized, S: Announce> Deref for QRwLockWriteGuard<'_, T, S> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so WRITER is ours (invariant of `QRwLock`), and `&self` rules
        // out our own `&mut T`.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized, S: Announce> DerefMut for QRwLockWriteGuard<'_, T, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists, so WRITER is ours (invariant of `QRwLock`), and `&mut self`
        // makes this the only borrow.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized, S: Announce> Drop for QRwLockWriteGuard<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unlock_exclusive();
    }
}

/// Shared access to a part of the value of a [`QRwLock`]: made by [`QRwLockReadGuard::map`].
///
/// # Invariants
/// `part` lies in the value of the lock that `raw` belongs to, and we are counted there as a reader.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct MappedQRwLockReadGuard<'a, T: ?Sized, S: Announce = OrBit> {
    raw: &'a RawQRwLock<S>,
    part: NonNull<T>,
    shared: PhantomData<&'a T>,
}

// SAFETY: it is a `&T` that unlocks when dropped, which any thread may do.
unsafe impl<T: ?Sized + Sync, S: Announce> Send for MappedQRwLockReadGuard<'_, T, S> {}
// SAFETY: it is a `&T` to who shares it.
unsafe impl<T: ?Sized + Sync, S: Announce> Sync for MappedQRwLockReadGuard<'_, T, S> {}

impl<'a, T: ?Sized, S: Announce> MappedQRwLockReadGuard<'a, T, S> {
    fn of(raw: &'a RawQRwLock<S>, part: NonNull<T>) -> Self {
        Self { raw, part, shared: PhantomData }
    }

    /// Keeps the lock for a part of the part.
    pub fn map<U: ?Sized>(
        guard: Self,
        part: impl FnOnce(&T) -> &U,
    ) -> MappedQRwLockReadGuard<'a, U, S> {
        let part = NonNull::from(part(&*guard));
        MappedQRwLockReadGuard::of(ManuallyDrop::new(guard).raw, part)
    }
}

impl<T: ?Sized, S: Announce> Deref for MappedQRwLockReadGuard<'_, T, S> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so we are counted as a reader (type invariant) and nobody writes.
        unsafe { self.part.as_ref() }
    }
}

impl<T: ?Sized, S: Announce> Drop for MappedQRwLockReadGuard<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        self.raw.unlock_shared();
    }
}

/// Exclusive access to a part of the value of a [`QRwLock`]: made by [`QRwLockWriteGuard::map`].
///
/// # Invariants
/// `part` lies in the value of the lock that `raw` belongs to, whose WRITER is ours.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct MappedQRwLockWriteGuard<'a, T: ?Sized, S: Announce = OrBit> {
    raw: &'a RawQRwLock<S>,
    part: NonNull<T>,
    exclusive: PhantomData<&'a mut T>,
}

// SAFETY: it is a `&mut T` that unlocks when dropped, which any thread may do.
unsafe impl<T: ?Sized + Send, S: Announce> Send for MappedQRwLockWriteGuard<'_, T, S> {}
// SAFETY: it is a `&T` to who shares it.
unsafe impl<T: ?Sized + Sync, S: Announce> Sync for MappedQRwLockWriteGuard<'_, T, S> {}

impl<'a, T: ?Sized, S: Announce> MappedQRwLockWriteGuard<'a, T, S> {
    fn of(raw: &'a RawQRwLock<S>, part: NonNull<T>) -> Self {
        Self { raw, part, exclusive: PhantomData }
    }

    /// Keeps the lock for a part of the part.
    pub fn map<U: ?Sized>(
        mut guard: Self,
        part: impl FnOnce(&mut T) -> &mut U,
    ) -> MappedQRwLockWriteGuard<'a, U, S> {
        let part = NonNull::from(part(&mut *guard));
        MappedQRwLockWriteGuard::of(ManuallyDrop::new(guard).raw, part)
    }
}

impl<T: ?Sized, S: Announce> Deref for MappedQRwLockWriteGuard<'_, T, S> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so WRITER is ours (type invariant), and `&self` rules out our own
        // `&mut T`.
        unsafe { self.part.as_ref() }
    }
}

impl<T: ?Sized, S: Announce> DerefMut for MappedQRwLockWriteGuard<'_, T, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists, so WRITER is ours (type invariant), and `&mut self` makes this the
        // only borrow.
        unsafe { self.part.as_mut() }
    }
}

impl<T: ?Sized, S: Announce> Drop for MappedQRwLockWriteGuard<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        self.raw.unlock_exclusive();
    }
}

macro_rules! shows_its_value {
    ($($guard:ident)*) => {$(
        impl<T: ?Sized + fmt::Debug, S: Announce> fmt::Debug for $guard<'_, T, S> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }

        impl<T: ?Sized + fmt::Display, S: Announce> fmt::Display for $guard<'_, T, S> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }
    )*};
}

shows_its_value!(QRwLockReadGuard QRwLockWriteGuard MappedQRwLockReadGuard MappedQRwLockWriteGuard);
