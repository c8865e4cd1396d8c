//! Serves a [`vfscale::Vfs`], over any backend, as a mounted file system through `/dev/fuse`.
//!
//! ```no_run
//! use std::{path::Path, sync::Arc};
//! use vfscale_fuse::{MountOptions, serve};
//!
//! # fn go<F: vfscale::FileSystem>(backend: F) -> Result<(), Box<dyn std::error::Error>> {
//! let vfs = Arc::new(vfscale::Vfs::new(backend, vfscale::Options::default())?);
//! let mounted = serve(vfs, Path::new("/mnt"), &MountOptions::parse("ro")?, |stats| format!("{stats:?}"))?;
//! mounted.wait(); // until somebody says `umount /mnt`
//! # Ok(()) }
//! ```
//!
//! # Floors
//! ```text
//!   session      mount, threads, end               the public face
//!   server       receive -> answer -> reply        crew        which threads wait, which sleep
//!   dispatch     kinds of requests                 wire        bytes of the protocol
//!   front_end    operations in Rust's types        transport   one message in, one out
//!   nodes        node ids, lookup counts           adapter     the kernel's end: the one file that names `fuser`
//!                                                  backing     files that the kernel reads and writes itself
//! ```
#![deny(unsafe_code)]

mod adapter;
mod backing;
mod crew;
mod dispatch;
mod error;
mod front_end;
mod node_table;
mod nodes;
mod options;
mod server;
mod session;
mod stats;
mod sys;
mod transport;
mod wire;

pub use error::MountError;
pub use front_end::STATS_XATTR;
pub use options::{MountOptions, OptionError, Passthrough};
pub use session::{Mounted, serve};
pub use stats::FuseStats;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide.md")]
struct Guide;
