//! What a `vfscale` core can serve: a memory file system and a directory of the host, and two for trying things out.
//!
//! - [`MemFs`] keeps everything in memory, within a stated limit.
//! - [`HostFs`] passes a directory of the host through, without a descriptor for each known file.
//! - [`Faulty`] wraps another backend and goes wrong on request.
//! - [`SynthFs`] computes a tree of any size, to read.
//!
//! All pass [`vfscale::conformance`] (`tests/conformance.rs`), which a backend of your own can be run against, too.
#![deny(unsafe_code)]

pub mod faulty;
pub mod host;
mod locks;
pub mod mem;
pub mod synth;

pub use faulty::{Call, Fault, Faulty, FaultyNode, Rule};
pub use host::{HostError, HostFs, HostOptions};
pub use mem::{MemFs, MemOptions};
pub use synth::{SynthFs, SynthNode, SynthOptions};
