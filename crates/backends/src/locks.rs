//! A lock that ignores poison.
//!
//! No lock of the host backend guards a change that a panic could leave half done in a way that matters more than the panic itself,
//! and one request that panics must not take the whole file system with it.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn lock<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
