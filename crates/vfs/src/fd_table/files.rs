//! A table that several owners may share, and the look-up that counts nothing while they do not.
//!
//! # Why
//! Most tables have one owner. Who alone can reach a table needs no reference on what is in it: nobody else could close it.
//!
//! # A race, step by step
//!   T1 `fdget`                           T2 drops its `Files`
//!                                        closes 5, opens another file as 5
//!                                        count of owners 2 -> 1 (Release)
//!   reads 1 (Acquire)
//!   reads slot 5: the other file
//! A relaxed look could read the slot as it was before, and use a file which is closed (R5.7).
//!
//! # Orderings
//!   FD-1  the drop of an owner (Release, `Arc`'s) -> the look at the count of owners (Acquire)

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::FdTable;
use crate::file::OpenFile;

/// An owner of a descriptor table. A clone shares the table (`CLONE_FILES`); [`FdTable::fork`] copies it.
///
/// ```
/// # use vfscale::*;
/// let mut files = Files::new(FdTable::new(1024));
/// assert!(files.fdget(0).is_none());
/// let mut shared = files.clone();
/// std::thread::spawn(move || assert!(shared.fdget(0).is_none()));
/// ```
#[derive(Clone, Debug)]
pub struct Files(Arc<FdTable>);

impl Files {
    /// The first owner of `table`.
    #[must_use]
    pub fn new(table: FdTable) -> Files {
        Files(Arc::new(table))
    }

    /// Has the table other owners?
    #[inline]
    #[must_use]
    pub fn is_shared(&self) -> bool {
        // No `Weak` is ever made, so that the strong count tells all.
        let shared = Arc::strong_count(&self.0) != 1;
        // FD-1 Acquire: what the last other owner did to the table comes before what we read in it.
        fence(Ordering::Acquire);
        shared
    }

    /// The file behind `fd` for a moment (`fdget`): with no reference taken if the table has no other owner.
    ///
    /// As long as the answer lives this owner can neither close the descriptor nor make another owner: the borrow sees to that.
    #[inline]
    #[must_use]
    pub fn fdget(&mut self, fd: u32) -> Option<Fd<'_>> {
        if self.is_shared() {
            return Some(Fd(Lent::Counted(self.0.fget(fd)?)));
        }
        // Relaxed: nobody else can reach the table, and whoever did has been waited for by FD-1.
        let id = self.0.slot(fd)?.load(vfscale_sync::Ordering::Relaxed)?;
        Some(Fd(Lent::Borrowed(ManuallyDrop::new(OpenFile::from_id(id)), PhantomData)))
    }
}

impl Deref for Files {
    type Target = FdTable;

    fn deref(&self) -> &FdTable {
        &self.0
    }
}

/// An open file, lent by its table or counted. See [`Files::fdget`].
#[derive(Debug)]
pub struct Fd<'a>(Lent<'a>);

#[derive(Debug)]
enum Lent<'a> {
    Counted(OpenFile),
    /// The table's own reference.
    Borrowed(ManuallyDrop<OpenFile>, PhantomData<&'a mut FdTable>),
}

impl Fd<'_> {
    /// Was a reference taken for it?
    #[must_use]
    pub fn is_counted(&self) -> bool {
        matches!(self.0, Lent::Counted(_))
    }
}

impl Deref for Fd<'_> {
    type Target = OpenFile;

    fn deref(&self) -> &OpenFile {
        match &self.0 {
            Lent::Counted(file) => file,
            Lent::Borrowed(file, _) => file,
        }
    }
}
