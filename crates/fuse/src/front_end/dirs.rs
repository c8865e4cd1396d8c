//! Listing directories.
//!
//! A listing goes out in pieces of as many entries as a reply holds. The plain form takes entries as the backend tells them. The
//! "plus" form also looks each one up, which must not happen while the backend lists (both may want the same lock); so the
//! piece is collected first. Sizes are known by then, so exactly the entries that fit are looked up and counted: none is looked
//! up and then left out.

use std::ops::ControlFlow;

use vfscale::{Context, DirEntry, FileSystem, FileType, Result};

use super::{FrontEnd, Given};

/// One listed entry, with its name for as long as the piece lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// The name.
    pub(crate) name: Box<[u8]>,
    /// The inode number.
    pub(crate) ino: u64,
    /// The type, if the listing tells.
    pub(crate) kind: Option<FileType>,
    /// Where the listing goes on behind this entry.
    pub(crate) next: u64,
}

/// A listed entry and, if it could be found, the node it means.
#[derive(Debug)]
pub(crate) struct PlusEntry<'a, F: FileSystem> {
    /// The entry.
    pub(crate) listed: Listed,
    /// The node. `None` for `.` and `..`, which take no count, and for a name that went or failed meanwhile.
    pub(crate) given: Option<Given<'a, F>>,
}

impl<F: FileSystem> FrontEnd<F> {
    /// Lists from `cookie` on until `emit` breaks.
    pub(crate) fn readdir(
        &self,
        file: u64,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.vfs.readdir(&self.file(file)?, cookie, emit)
    }

    /// Lists from `cookie` on until `fits` refuses an entry, by the length of its name, and looks all of them up in `node`.
    pub(crate) fn readdir_plus(
        &self,
        cx: &Context,
        node: u64,
        file: u64,
        cookie: u64,
        mut fits: impl FnMut(usize) -> bool,
    ) -> Result<Vec<PlusEntry<'_, F>>> {
        let mut piece = Vec::new();
        self.readdir(file, cookie, &mut |entry| {
            if !fits(entry.name.len()) {
                return ControlFlow::Break(());
            }
            let DirEntry { name, ino, kind, next } = entry;
            piece.push(Listed { name: name.into(), ino, kind, next });
            ControlFlow::Continue(())
        })?;
        let dir = self.nodes.dir(node)?;
        let look_up = |listed: Listed| {
            let found = match &*listed.name {
                b"." | b".." => None,
                name => self.vfs.lookup(cx, &dir, name).ok(),
            };
            PlusEntry { given: found.map(|found| self.give(&found)), listed }
        };
        Ok(piece.into_iter().map(look_up).collect())
    }
}
