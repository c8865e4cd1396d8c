//! The operations on a directory and one component, on an inode, and on an open file.

mod attr;
mod create;
mod file;
mod inodes;
mod remove;
mod rename;
