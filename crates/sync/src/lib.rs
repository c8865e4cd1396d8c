//! Scalable primitives for concurrent Rust.
#![cfg_attr(not(feature = "std"), no_std)]

mod prim;

pub use prim::Ordering;
