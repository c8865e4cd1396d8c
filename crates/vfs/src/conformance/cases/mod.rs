//! The cases, by what they are about.

pub(crate) mod attrs;
pub(crate) mod data;
pub(crate) mod dirs;
pub(crate) mod names;
pub(crate) mod read;
pub(crate) mod renames;
