//! Which types may be sent and shared, settled when this file is compiled: for a value that may be sent but not shared (`Cell`),
//! one that may be shared but not sent (a guard of std's mutex), and one that may neither (`Rc`).
//!
//! What else must not compile stands in `src/misuse.rs`.
#![cfg(all(feature = "std", not(any(loom, shuttle))))]
#![allow(missing_docs)]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::MutexGuard;
use vfscale_sync::combining::{Apply, Combining};
use vfscale_sync::rcu::{Guard, RcuCell};
use vfscale_sync::wait::WaitWord;
use vfscale_sync::{
    AtomicId, FileRef, Fresh, Held, HeldSlot, Id, IdLinks, LockRef, LockRefGuard, Pool, Put,
    QMutex, QMutexGuard, QRwLock, QRwLockReadGuard, QRwLockWriteGuard, SeqCount, SeqLock, Slot,
};

/// May be sent, not shared.
type Sent = Cell<u8>;
/// May be shared, not sent.
type Shared = MutexGuard<'static, u8>;
/// Neither.
type Neither = Rc<u8>;

macro_rules! is {
    ($($bound:ident: $($type:ty),+;)+) => { $($(
        const _: fn() = || {
            fn is<T: ?Sized + $bound>() {}
            is::<$type>();
        };
    )+)+ };
}

/// Compiles only if the type is not one: else two implementations fit.
macro_rules! is_not {
    ($($bound:ident: $($type:ty),+;)+) => { $($(
        const _: fn() = || {
            trait Fits<Which> {
                fn fits() {}
            }
            struct AnyType;
            struct OneThatIs;
            impl<T: ?Sized> Fits<AnyType> for T {}
            impl<T: ?Sized + $bound> Fits<OneThatIs> for T {}
            let _ = <$type as Fits<_>>::fits;
        };
    )+)+ };
}

struct Thing {
    lockref: LockRef,
}

impl Slot for Thing {
    fn new() -> Self {
        Thing { lockref: LockRef::new(1, ()) }
    }
}

static THINGS: Pool<Thing> = Pool::new(1);

impl HeldSlot for Thing {
    fn lockref(&self) -> &LockRef {
        &self.lockref
    }

    fn pool() -> &'static Pool<Self> {
        &THINGS
    }

    fn put(id: Id<Self>) {
        assert!(matches!(THINGS.slot(id).lockref.put_or_lock(), Put::StillLive));
    }
}

struct Sum<T>(T);

impl<T> Apply for Sum<T> {
    type Op = u8;

    fn apply(&mut self, _: u8) -> bool {
        true
    }
}

is! {
    Send: LockRef<Sent>, QRwLock<Sent>, QMutex<Sent>, Combining<Sum<Sent>>, RcuCell<u8>, FileRef, SeqCount, SeqLock,
        WaitWord, Id<Neither>, AtomicId<Neither>, IdLinks<Thing>, Pool<Thing>, Held<Thing>, Fresh<Thing>;
    Sync: LockRef<Sent>, LockRefGuard<'static, u8>, QRwLock<u8>, QRwLockReadGuard<'static, u8>,
        QRwLockWriteGuard<'static, u8>, QMutex<Sent>, QMutexGuard<'static, u8>, Combining<Sum<Sent>>, RcuCell<u8>,
        FileRef, SeqCount, SeqLock, WaitWord, Id<Neither>, AtomicId<Neither>, IdLinks<Thing>, Pool<Thing>, Held<Thing>;
}

is_not! {
    Send: LockRef<Shared>, LockRef<Neither>, LockRefGuard<'static, Neither>, QRwLock<Shared>, QRwLock<Neither>,
        QRwLockReadGuard<'static, Sent>, QRwLockWriteGuard<'static, Neither>, QMutex<Shared>, QMutexGuard<'static, Neither>,
        Combining<Sum<Shared>>, RcuCell<Neither>, RcuCell<Shared>, Guard;
    Sync: LockRef<Shared>, LockRef<Neither>, LockRefGuard<'static, Sent>, QRwLock<Sent>, QRwLock<Shared>,
        QRwLockReadGuard<'static, Sent>, QRwLockWriteGuard<'static, Sent>, QMutex<Shared>, QMutexGuard<'static, Sent>,
        Combining<Sum<Shared>>, RcuCell<Sent>, RcuCell<Shared>, Guard;
}

/// The rest of this file is settled before it runs.
#[test]
fn a_guard_goes_where_its_value_may() {
    let lock = LockRef::new(1, 1u8);
    let mut guard = lock.lock();
    std::thread::scope(|scope| {
        scope.spawn(|| *guard += 1);
    });
    drop(guard);
    assert_eq!(*lock.lock(), 2);
}
