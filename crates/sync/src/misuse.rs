//! What must not compile: each example is a mistake that a type refuses, with the compiler's own number for it.
//!
//! A reference from a section does not outlive the section:
//! ```compile_fail,E0505
//! let cell = vfscale_sync::rcu::RcuCell::<u8>::empty();
//! let guard = vfscale_sync::rcu::pin();
//! let seen = cell.load(&guard);
//! drop(guard);
//! assert!(seen.is_none());
//! ```
//! A section stays on its thread:
//! ```compile_fail,E0277
//! let guard = vfscale_sync::rcu::pin();
//! std::thread::spawn(move || drop(guard));
//! ```
//! What waits for a grace period may be freed by any thread:
//! ```compile_fail,E0277
//! let guard = vfscale_sync::rcu::pin();
//! let mine = std::rc::Rc::new(1);
//! guard.defer(8, move || drop(mine));
//! ```
//! and after the frame that made it is gone:
//! ```compile_fail,E0597
//! let guard = vfscale_sync::rcu::pin();
//! let local = 1;
//! let here = &local;
//! guard.defer(8, move || assert_eq!(*here, 1));
//! ```
//! A file's reference is dropped inside a section:
//! ```compile_fail,E0061
//! let refs = vfscale_sync::FileRef::new();
//! let _ = refs.put();
//! ```
//! The last drop is not overlooked:
//! ```compile_fail
//! #![deny(unused_must_use)]
//! let refs = vfscale_sync::FileRef::new();
//! refs.put(&vfscale_sync::rcu::pin());
//! ```
//! nor a get that was refused:
//! ```compile_fail
//! #![deny(unused_must_use)]
//! vfscale_sync::LockRef::new(1, ()).get_not_dead();
//! ```
//! A value under a lock is not used after it:
//! ```compile_fail,E0505
//! let refs = vfscale_sync::LockRef::new(1, 5u8);
//! let guard = refs.lock();
//! let value = &*guard;
//! drop(guard);
//! assert_eq!(*value, 5);
//! ```
//! A guard does not outlive its lock:
//! ```compile_fail,E0597
//! let guard = {
//!     let lock = vfscale_sync::QRwLock::new(1);
//!     lock.read()
//! };
//! assert_eq!(*guard, 1);
//! ```
//! A reader does not write:
//! ```compile_fail,E0594
//! let lock = vfscale_sync::QRwLock::new(1);
//! *lock.read() = 2;
//! ```
//! Readers share a value only if it may be shared:
//! ```compile_fail,E0277
//! let lock = vfscale_sync::QRwLock::new(std::cell::Cell::new(1));
//! std::thread::scope(|scope| {
//!     scope.spawn(|| lock.read().set(2));
//! });
//! ```
//! A value under a lock that somebody holds does not begin a new life:
//! ```compile_fail,E0599
//! vfscale_sync::LockRef::new(1, 5u8).reset(1);
//! ```
//! A sequence lock's writer is one at a time, so its guard is not copied:
//! ```compile_fail,E0599
//! let lock = vfscale_sync::SeqLock::new();
//! let _both = lock.write().clone();
//! ```
