//! Scalable primitives for concurrent Rust.
#![cfg_attr(not(feature = "std"), no_std)]

pub mod backoff;
#[cfg(feature = "std")]
pub mod fence;
mod lockref;
mod mcs;
mod park;
mod prim;
mod qrwlock;
mod raw_lock;
#[cfg(feature = "std")]
pub mod rcu;
mod seqcount;
#[cfg(feature = "std")]
mod thread_slot;
pub mod wait;

pub use lockref::{Get, LockRef, LockRefGuard, Put, PutReturn};
pub use prim::Ordering;
pub use qrwlock::{QRwLock, QRwLockReadGuard, QRwLockWriteGuard};
pub use seqcount::{SeqCount, SeqLock, SeqLockRead, SeqLockWrite, SeqWrite};
