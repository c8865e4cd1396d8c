//! Scalable primitives for concurrent Rust.
#![cfg_attr(not(feature = "std"), no_std)]

pub mod backoff;
mod lockref;
mod park;
mod prim;
mod raw_lock;
mod seqcount;
pub mod wait;

pub use lockref::{Get, LockRef, LockRefGuard, Put, PutReturn};
pub use prim::Ordering;
pub use seqcount::{SeqCount, SeqLock, SeqLockRead, SeqLockWrite, SeqWrite};
