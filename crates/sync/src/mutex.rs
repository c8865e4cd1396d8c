//! A mutex for this crate's own cold paths.
//!
//! The standard library's would do, but for three things: it is not instrumented under thread sanitizer, so whatever it guards
//! is reported as a race; it poisons, which means nothing where no critical section runs foreign code; and a model checker does
//! not see it.

#[cfg(not(any(loom, shuttle)))]
pub(crate) use native::{Mutex, MutexGuard};

#[cfg(shuttle)]
pub(crate) use model::{Mutex, MutexGuard};

#[cfg(not(any(loom, shuttle)))]
mod native {
    use crate::lockdep::{self, Mode};
    use crate::raw_lock::RawLock;
    use std::cell::UnsafeCell;
    use std::marker::PhantomData;
    use std::ops::{Deref, DerefMut};

    /// # Invariants
    /// `value` is reached only by the holder of `lock`.
    pub(crate) struct Mutex<T> {
        lock: RawLock,
        class: lockdep::Class,
        value: UnsafeCell<T>,
    }

    // SAFETY: the lock lets one thread at a time reach the value, so it is sent, not shared.
    unsafe impl<T: Send> Sync for Mutex<T> {}

    impl<T> Mutex<T> {
        #[cfg_attr(feature = "lockdep", track_caller)]
        pub(crate) const fn new(value: T) -> Self {
            let class = lockdep::Class::here();
            Mutex { lock: RawLock::new(), class, value: UnsafeCell::new(value) }
        }

        #[cfg_attr(feature = "lockdep", track_caller)]
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            lockdep::acquire(self.class.key(), Mode::Exclusive, || self.lock.lock());
            MutexGuard { mutex: self, _thread: PhantomData }
        }

        #[cfg_attr(feature = "lockdep", track_caller)]
        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            let taken = self.lock.try_lock();
            lockdep::tried(self.class.key(), Mode::Exclusive, taken);
            // Not `then_some`: a guard made for a lock that was not had would unlock the holder's when dropped.
            taken.then(|| MutexGuard { mutex: self, _thread: PhantomData })
        }
    }

    /// Holds the lock. Unlocks when dropped, also while unwinding.
    pub(crate) struct MutexGuard<'a, T> {
        mutex: &'a Mutex<T>,
        /// Not `Send`, nor `Sync` for a `T` that is not.
        _thread: PhantomData<*mut T>,
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            // SAFETY: we hold the lock.
            unsafe { &*self.mutex.value.get() }
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: we hold the lock, and lend from `&mut self`.
            unsafe { &mut *self.mutex.value.get() }
        }
    }

    impl<T> Drop for MutexGuard<'_, T> {
        fn drop(&mut self) {
            lockdep::released(self.mutex.class.key());
            self.mutex.lock.unlock();
        }
    }
}

#[cfg(shuttle)]
mod model {
    pub(crate) use shuttle::sync::MutexGuard;

    /// The model's own, without poison.
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("a model ends with the first panic")
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn one_thread_at_a_time() {
        static MUTEX: Mutex<(u64, u64)> = Mutex::new((0, 0));
        crate::testing::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let mut pair = MUTEX.lock();
                        assert_eq!(pair.0, pair.1);
                        pair.0 += 1;
                        pair.1 += 1;
                    }
                });
            }
        });
        assert_eq!(*MUTEX.lock(), (40_000, 40_000));
    }

    #[test]
    fn a_panic_unlocks() {
        let mutex = Mutex::new(0);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _guard = mutex.lock();
            // Twice: the first refusal must not have unlocked it.
            assert!(mutex.try_lock().is_none());
            assert!(mutex.try_lock().is_none());
            panic!("while locked");
        }));
        assert!(panicked.is_err());
        assert!(mutex.try_lock().is_some());
    }
}
