//! What a `vfscale` core can serve: a memory file system and a directory of the host.
//!
//! - [`MemFs`] keeps everything in memory, within a stated limit.
//! - [`HostFs`] passes a directory of the host through, without a descriptor for each known file.
//!
//! Both implement [`vfscale::FileSystem`] and pass one conformance test (`tests/conformance.rs`),
//! which is also the place to look up what the core expects of a backend of your own.
#![deny(unsafe_code)]

pub mod host;
mod locks;
pub mod mem;

pub use host::{HostError, HostFs, HostOptions};
pub use mem::{MemFs, MemOptions};
