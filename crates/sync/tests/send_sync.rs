//! Which types may be sent and shared, settled when this file is compiled: for a value that may be sent but not shared (`Cell`),
//! one that may be shared but not sent (a guard of std's mutex), and one that may neither (`Rc`).
//!
//! What else must not compile stands in `src/misuse.rs`.
#![cfg(all(feature = "std", not(any(loom, shuttle))))]
#![allow(missing_docs)]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::MutexGuard;
use vfscale_sync::backoff::Backoff;
use vfscale_sync::combining::{Apply, Combining, CombiningGuard};
use vfscale_sync::experimental::ReservedXchg;
use vfscale_sync::rcu::{
    Domain, DomainCell, Guard, Qsbr, RcuCell, RcuStats, Registration, Section, Stall,
};
use vfscale_sync::stats::{Counters, PrimitiveStats};
use vfscale_sync::wait::WaitWord;
use vfscale_sync::{
    AtomicId, BiasedRwLock, BiasedRwLockReadGuard, BiasedRwLockWriteGuard, CasRef, Chained,
    Combiner, Countable, Counted, CountedLink, FileRef, FindOrInsert, Fresh, HashIndex, HashLinks,
    Held, HeldSlot, Id, IdLinks, IdList, ListAdapter, ListBatch, ListCursor, ListOp, LockRef,
    LockRefGuard, MappedQRwLockReadGuard, MappedQRwLockWriteGuard, NameBytes, Pool, Put, QMutex,
    QMutexGuard, QRwLock, QRwLockReadGuard, QRwLockWriteGuard, SeqCount, SeqLock, SeqLockRead,
    SeqLockWrite, SeqWrite, ShardMark, ShardedAdapter, ShardedCursor, ShardedList, Slot,
    WalkedList,
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
    links: IdLinks<Thing>,
    mark: ShardMark,
    chained: HashLinks<Thing>,
}

impl Slot for Thing {
    fn new() -> Self {
        Thing {
            lockref: LockRef::new(1, ()),
            links: IdLinks::new(),
            mark: ShardMark::new(),
            chained: HashLinks::new(),
        }
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

impl Chained for Thing {
    fn links(&self) -> &HashLinks<Self> {
        &self.chained
    }

    fn hash(&self) -> u32 {
        0
    }
}

/// Names a list; never made, so what it contains does not matter.
struct OnList(#[expect(dead_code, reason = "see above")] Neither);

impl ListAdapter<Thing> for OnList {
    fn links(thing: &Thing) -> &IdLinks<Thing> {
        &thing.links
    }
}

impl ShardedAdapter<Thing> for OnList {
    fn mark(thing: &Thing) -> &ShardMark {
        &thing.mark
    }
}

impl Countable for Thing {}

struct Sum<T>(T);

impl<T> Apply for Sum<T> {
    type Op = u8;

    fn apply(&mut self, _: u8) -> bool {
        true
    }
}

// Atomics alone.
is! {
    Send: FileRef, CasRef, ReservedXchg, SeqCount, SeqWrite<'static>, SeqLock, SeqLockWrite<'static>,
        SeqLockRead<'static>, WaitWord, ShardMark, NameBytes<4>, Counters<2>, Backoff, Id<Neither>, AtomicId<Neither>,
        IdLinks<Thing>, HashLinks<Thing>, PrimitiveStats, RcuStats, Stall;
    Sync: FileRef, CasRef, ReservedXchg, SeqCount, SeqWrite<'static>, SeqLock, SeqLockWrite<'static>,
        SeqLockRead<'static>, WaitWord, ShardMark, NameBytes<4>, Counters<2>, Backoff, Id<Neither>, AtomicId<Neither>,
        IdLinks<Thing>, HashLinks<Thing>, PrimitiveStats, RcuStats, Stall;
}

// Slots are `Send` and `Sync`, so what is made of them is; the adapter of a list is only a name.
is! {
    Send: Pool<Thing>, Fresh<Thing>, Held<Thing>, Counted<Thing>, CountedLink<Thing>, HashIndex<Thing>,
        FindOrInsert<'static, Thing>, IdList<Thing, OnList>, WalkedList<Thing, OnList>, ListBatch<Thing, OnList>, ListOp<Thing>,
        ShardedList<Thing, OnList>;
    Sync: Pool<Thing>, Fresh<Thing>, Held<Thing>, Counted<Thing>, CountedLink<Thing>, HashIndex<Thing>,
        FindOrInsert<'static, Thing>, IdList<Thing, OnList>, WalkedList<Thing, OnList>, ListBatch<Thing, OnList>, ListOp<Thing>,
        ShardedList<Thing, OnList>;
}

// A lock in a cursor is given back by the thread that took it.
is_not! {
    Send: ListCursor<'static, Thing, OnList>, ShardedCursor<'static, Thing, OnList>;
}

// Locks: for one holder at a time a value is sent, for many it is shared too.
is! {
    Send: LockRef<Sent>, QRwLock<Sent>, BiasedRwLock<Sent>, QMutex<Sent>, Combining<Sum<Sent>>, Combiner<Sent>;
    Sync: LockRef<Sent>, QRwLock<u8>, BiasedRwLock<u8>, QMutex<Sent>, Combining<Sum<Sent>>, Combiner<Sent>;
}

is_not! {
    Send: LockRef<Shared>, LockRef<Neither>, QRwLock<Shared>, QRwLock<Neither>, BiasedRwLock<Shared>, QMutex<Shared>,
        Combining<Sum<Shared>>, Combiner<Shared>;
    Sync: LockRef<Shared>, LockRef<Neither>, QRwLock<Sent>, QRwLock<Shared>, BiasedRwLock<Sent>, BiasedRwLock<Shared>,
        QMutex<Shared>, Combining<Sum<Shared>>, Combiner<Shared>;
}

// Their guards: any thread may unlock, but for locks whose owner knows its thread. A reader's guard that is sent shares the value.
is! {
    Send: LockRefGuard<'static, Sent>, QRwLockReadGuard<'static, u8>, QRwLockWriteGuard<'static, u8>,
        MappedQRwLockReadGuard<'static, Shared>, MappedQRwLockWriteGuard<'static, Sent>,
        BiasedRwLockReadGuard<'static, u8>, BiasedRwLockWriteGuard<'static, u8>;
    Sync: LockRefGuard<'static, u8>, QRwLockReadGuard<'static, u8>, QRwLockWriteGuard<'static, u8>,
        MappedQRwLockReadGuard<'static, Shared>, MappedQRwLockWriteGuard<'static, Shared>,
        BiasedRwLockReadGuard<'static, u8>, BiasedRwLockWriteGuard<'static, u8>, QMutexGuard<'static, Shared>,
        CombiningGuard<'static, Sum<Shared>>;
}

is_not! {
    Send: LockRefGuard<'static, Neither>, LockRefGuard<'static, Shared>, QRwLockReadGuard<'static, Sent>,
        QRwLockWriteGuard<'static, Neither>, MappedQRwLockReadGuard<'static, Sent>,
        MappedQRwLockWriteGuard<'static, Shared>, BiasedRwLockReadGuard<'static, Sent>,
        BiasedRwLockWriteGuard<'static, Neither>, QMutexGuard<'static, u8>, CombiningGuard<'static, Sum<u8>>;
    Sync: LockRefGuard<'static, Sent>, QRwLockReadGuard<'static, Sent>, QRwLockWriteGuard<'static, Sent>,
        MappedQRwLockReadGuard<'static, Sent>, MappedQRwLockWriteGuard<'static, Sent>,
        BiasedRwLockReadGuard<'static, Sent>, BiasedRwLockWriteGuard<'static, Sent>, QMutexGuard<'static, Sent>,
        CombiningGuard<'static, Sum<Sent>>;
}

#[cfg(feature = "arc_lock")]
mod arc_lock {
    use super::{Sent, Shared};
    use vfscale_sync::{ArcQRwLockReadGuard, ArcQRwLockWriteGuard};

    // The last of them drops the value, so it is sent as well.
    is! {
        Send: ArcQRwLockReadGuard<u8>, ArcQRwLockWriteGuard<u8>;
        Sync: ArcQRwLockReadGuard<u8>, ArcQRwLockWriteGuard<u8>;
    }

    is_not! {
        Send: ArcQRwLockReadGuard<Sent>, ArcQRwLockReadGuard<Shared>, ArcQRwLockWriteGuard<Shared>;
        Sync: ArcQRwLockReadGuard<Sent>, ArcQRwLockReadGuard<Shared>, ArcQRwLockWriteGuard<Sent>;
    }
}

#[cfg(feature = "lock_api")]
is! {
    Send: vfscale_sync::RawQRwLock;
    Sync: vfscale_sync::RawQRwLock;
}

#[cfg(feature = "lockdep")]
is! {
    Send: vfscale_sync::lockdep::ClassReport;
    Sync: vfscale_sync::lockdep::ClassReport;
}

// RCU: a section of the process stays in its thread, one of a registered reader goes with that. What is freed later is sent.
is! {
    Send: RcuCell<u8>, Domain, DomainCell<'static, u8>, Registration<'static>, Section<'static, 'static>;
    Sync: RcuCell<u8>, Domain, DomainCell<'static, u8>, Registration<'static>, Section<'static, 'static>;
}

is_not! {
    Send: Guard, Qsbr, RcuCell<Neither>, RcuCell<Shared>, DomainCell<'static, Neither>, DomainCell<'static, Shared>;
    Sync: Guard, Qsbr, RcuCell<Sent>, RcuCell<Shared>, DomainCell<'static, Sent>, DomainCell<'static, Shared>;
}

/// The rest of this file is settled before it runs.
#[test]
fn a_guard_goes_where_its_value_may() {
    let lock = LockRef::new(1, 1u8);
    let mut guard = lock.lock();
    // Joined: ThreadSanitizer does not see how a scope ends.
    std::thread::scope(|scope| scope.spawn(|| *guard += 1).join().unwrap());
    drop(guard);
    assert_eq!(*lock.lock(), 2);
}
