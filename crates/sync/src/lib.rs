//! Primitives for what many threads share: counted references, locks, lists, lookups, and the moment at which memory
//! may be freed.
//!
//! They are what the Linux kernel's file system layer grew when one lock around everything stopped scaling, brought to
//! user space, where a lock's holder can lose its processor at any moment: waiters here queue and sleep. All of them are
//! safe to use; each one's page says what it promises, and what to distrust.
//!
//! ```
//! use vfscale_sync::{Get, LockRef, Put};
//!
//! // A count and a lock in one word, for an object that a cache may evict.
//! let refs = LockRef::new(1, ());
//!
//! // A lookup: takes a reference without the lock, unless the object is being torn down.
//! assert_eq!(refs.get_not_dead(), Get::Taken);
//! assert!(matches!(refs.put_or_lock(), Put::StillLive));
//!
//! // The last one out holds the lock, and decides.
//! let Put::LastLocked(mut last) = refs.put_or_lock() else { unreachable!() };
//! last.mark_dead();
//! drop(last);
//! assert_eq!(refs.get_not_dead(), Get::Refused);
//! ```
//!
//! # Which one
//!
//! | the job | take | because |
//! |---|---|---|
//! | objects of a cache, which wait unused until they are evicted | [`LockRef`]; [`Counted`] does the memory too | a reference is one compare-exchange, and no lookup brings back what is being evicted |
//! | objects that a table finds without a lock and the last user closes | [`FileRef`] | a reference is one addition, refused once the object is dead |
//! | data that is read often and written now and then | [`QRwLock`] | first come, first served: neither side starves |
//! | data that is read all the time and hardly ever written | [`BiasedRwLock`] in place, [`rcu::RcuCell`] if it is replaced whole | readers write nothing that other readers read |
//! | a few words that belong together | [`SeqCount`] beside a lock, [`SeqLock`] without one | readers write nothing, and notice that they must read again |
//! | anything else that one thread at a time may use | [`QMutex`] | unlocking is a plain store |
//! | a list that everybody adds to and takes off | [`ListBatch`]; [`ShardedList`] if its order does not matter | the lock's holder works for those who wait; a part for each thread |
//! | another structure with short, contended operations | [`Combiner`] for closures, [`combining`] for small commands | as above |
//! | a lookup by hash while others insert, rename and grow | [`HashIndex`] | a lookup stores nothing |
//! | links that may be stale, followed without `unsafe` | [`Pool`], [`Id`], [`Held`] | slots are used again, but never unmapped |
//! | freeing what readers may still be looking at | [`rcu`] | a reader writes one word of its own |
//! | sleeping until a word of one's own changes | [`wait`], with [`backoff`] before it | no lock and no condition variable per object |
//! | two sides that must see each other, one of them rare | [`fence`] | the frequent side only keeps the compiler from reordering |
//! | counting what many threads do | [`stats::Counters`] | each thread adds to a shard of its own |
//!
//! A lock in use for microseconds, by one thread most of the time, is served as well by `std::sync`.
//!
//! # What they promise
//!
//! | | what happens before what | who may be passed by others |
//! |---|---|---|
//! | [`LockRef`] | uses under a reference before its drop, and all drops before the teardown; an unlock before the next lock | anybody: the compare-exchange decides |
//! | [`FileRef`] | uses before the put, and all puts before the last one's answer | nobody waits |
//! | [`QRwLock`] | a writer before later holders; readers before the next writer | a newcomer passes only while it has not queued, for a bounded time; the queue is first come, first served |
//! | [`BiasedRwLock`] | as [`QRwLock`] | as there; a writer waits for the readers that are in, and holds new ones off |
//! | [`QMutex`], [`ListBatch`], [`Combiner`] | an operation before the next | newcomers pass the head of the queue until it has slept and lost once; then nobody does |
//! | [`SeqCount`], [`SeqLock`] | a write before the reads that begin after it | readers repeat while writers write; those of a [`SeqLock`] may lock |
//! | [`rcu`] | readers of an old version before its reclamation | nobody waits but [`rcu::synchronize`], and a thread with too much garbage |
//!
//! Nothing is poisoned: a panic under a lock unlocks it, and leaves the data as it was. Guards unlock when they are dropped;
//! a guard that is forgotten keeps its lock, or its section and with it everybody's garbage, for ever.
//!
//! # Features
//!
//! | feature | default | what it brings |
//! |---|---|---|
//! | `std` | yes | threads that sleep in the system, the asymmetric barrier, and everything that numbers threads: [`rcu`] for the whole process, [`Pool`], [`HashIndex`], lists, [`Counted`], [`FileRef`], [`BiasedRwLock`] |
//! | `alloc` | with `std` | [`fence`]; [`rcu::Domain`] for readers who register by hand, where there are 64-bit atomics |
//! | `arc_lock` | | guards of [`QRwLock`] that own their lock |
//! | `lock_api` | | [`QRwLock`] behind the traits of `lock_api` 0.5 |
//! | `lockdep` | | panics when locks are taken in two orders, and measures waiting and holding by class; for tests |
//! | `stats` | | counts fast ways, slow ways, spins and sleeps: [`stats::snapshot`] |
//! | `portable` | | [`LockRef`] with a lock for everything, as where there are no 64-bit atomics: to test that anywhere |
//!
//! `lockdep` and `stats` are free while they are off: not one instruction.
//!
//! # Without the standard library
//!
//! `default-features = false` leaves [`LockRef`], [`QRwLock`], [`QMutex`], [`Combiner`], [`SeqCount`], [`SeqLock`], [`wait`] and
//! [`backoff`]. They need a 32-bit compare-exchange; without a 64-bit one [`LockRef`] takes a lock for everything. Waiters spin
//! until the program says how its threads sleep (`wait::set_parker`). CI compiles for `thumbv7m-none-eabi` and
//! `x86_64-unknown-none`, and runs the tests of this part on a host.
//!
//! # Where
//!
//! Rust 1.95 or later. Tested on Linux on x86-64. The orderings are checked by models that do not depend on the processor; where
//! the system has no barrier for all processors of a process, [`fence`] is a full fence on both sides.
#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// This page is about all of the crate, also where less of it is built.
#![cfg_attr(not(feature = "std"), allow(rustdoc::broken_intra_doc_links))]

#[cfg(feature = "alloc")]
extern crate alloc;

#[cfg(all(feature = "std", not(target_has_atomic = "64")))]
compile_error!("feature `std` needs 64-bit atomics, which this target lacks: go without it");

mod asym_lock;
pub mod backoff;
#[cfg(all(feature = "std", not(loom)))]
#[expect(unreachable_pub, reason = "public under a model, where `tests/loom_biased.rs` drives it")]
mod biased;
#[cfg(all(feature = "std", loom))]
#[doc(hidden)]
pub mod biased;
#[cfg(all(feature = "std", not(loom)))]
#[expect(unreachable_pub, reason = "public under a model, which brings its own rows")]
mod biased_rwlock;
#[cfg(all(feature = "std", loom))]
#[doc(hidden)]
pub mod biased_rwlock;
mod combiner;
pub mod combining;
#[cfg(feature = "std")]
mod counted;
#[cfg(feature = "alloc")]
pub mod fence;
#[cfg(feature = "std")]
mod file_ref;
#[cfg(all(feature = "std", not(loom)))]
mod hash_index;
#[cfg(all(feature = "std", not(loom)))]
mod held;
mod id;
#[cfg(all(feature = "std", not(loom)))]
mod id_list;
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
mod list_batch;
#[cfg(all(feature = "lockdep", not(any(loom, shuttle))))]
pub mod lockdep;
#[cfg(not(all(feature = "lockdep", not(any(loom, shuttle)))))]
mod lockdep;
mod lockref;
mod mcs;
#[cfg(all(doctest, feature = "std"))]
mod misuse;
#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../README.md")]
mod readme {}
#[cfg(all(feature = "std", not(loom)))]
mod mutex;
mod name_bytes;
mod park;
#[cfg(all(feature = "std", not(loom)))]
mod pool;
mod prim;
mod qmutex;
mod qrwlock;
mod raw_lock;
#[cfg(feature = "std")]
pub mod rcu;
#[cfg(all(feature = "alloc", not(feature = "std"), target_has_atomic = "64"))]
#[path = "rcu/bare.rs"]
pub mod rcu;
#[cfg(all(feature = "std", not(loom)))]
mod region;
mod seqcount;
#[cfg(not(loom))]
mod shard_mark;
#[cfg(loom)]
#[doc(hidden)]
pub mod shard_mark;
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
mod sharded_list;
pub mod stats;
#[cfg(all(test, not(any(loom, shuttle))))]
mod testing;
#[cfg(all(feature = "std", not(loom)))]
mod thread_slot;
pub mod wait;

/// Forms that are kept for comparison, without a promise to keep them.
#[cfg(feature = "std")]
pub mod experimental {
    pub use crate::file_ref::reserved::ReservedXchg;
}
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
mod walked_list;

#[cfg(all(feature = "std", not(loom)))]
pub use biased_rwlock::{BiasedRwLock, BiasedRwLockReadGuard, BiasedRwLockWriteGuard};
pub use combiner::Combiner;
#[cfg(feature = "std")]
pub use counted::{AtZero, Countable, Counted, CountedLink, Evict};
#[cfg(feature = "std")]
pub use file_ref::{CasRef, FileRef, GetFile, PutFile};
pub use id::{AtomicId, Id};
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
pub use list_batch::{ListBatch, ListCursor, ListOp};
pub use lockref::{Get, LockRef, LockRefGuard, Put, PutReturn};
pub use name_bytes::NameBytes;
pub use prim::Ordering;
pub use qmutex::{QMutex, QMutexGuard};
#[cfg(all(feature = "lock_api", not(any(loom, shuttle))))]
pub use qrwlock::RawQRwLock;
pub use qrwlock::{
    Announce, ByteCas, MappedQRwLockReadGuard, MappedQRwLockWriteGuard, OrBit, QRwLock,
    QRwLockReadGuard, QRwLockWriteGuard, WordCas,
};
#[cfg(all(feature = "arc_lock", not(any(loom, shuttle))))]
pub use qrwlock::{ArcQRwLockReadGuard, ArcQRwLockWriteGuard};
pub use seqcount::{SeqCount, SeqLock, SeqLockRead, SeqLockWrite, SeqWrite};

#[cfg(all(feature = "std", not(loom)))]
pub use hash_index::{Chained, FindOrInsert, HashIndex, HashLinks};
#[cfg(all(feature = "std", not(loom)))]
pub use held::{Held, HeldSlot};
#[cfg(all(feature = "std", not(loom)))]
pub use id_list::{IdLinks, IdList, ListAdapter};
#[cfg(all(feature = "std", not(loom)))]
pub use pool::{Fresh, Pool, Slot};
pub use shard_mark::ShardMark;
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
pub use sharded_list::{ShardedAdapter, ShardedCursor, ShardedList};
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
pub use walked_list::WalkedList;
