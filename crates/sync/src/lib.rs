//! Scalable primitives for concurrent Rust.
#![cfg_attr(not(any(feature = "std", test)), no_std)]

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
#[cfg(all(feature = "alloc", not(feature = "std")))]
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
