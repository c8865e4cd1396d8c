//! A table of descriptors: small numbers that stand for open files.
//!
//! # `fget`, step by step
//! Under RCU: load the slot, count a reference on the file it names if that still lives, load the slot again. Only if the slot
//! still names the same file is it the right one; else the reference is dropped and the look-up begins anew. Without the second look
//! a descriptor closed and opened again in between could yield a file that was never in its slot (R5.2).
//!
//! Slots stand in blocks that double in size and never move, so growing disturbs no reader, copies nothing and waits for no grace
//! period.
//!
//! # Who writes
//! Which numbers are taken is known under one lock, and so are `close`, `dup2` and `close_range`: none of them sees another half
//! done. A number that is taken while its slot is empty is *reserved*, by whoever holds its [`Reserved`]: that one fills the slot
//! without the lock. What leaves a slot is dropped after the lock.
//!
//! # Source
//! The kernel's `fs/file.c`. We differ: blocks instead of one array that is copied when it grows.

mod files;
mod numbers;

use std::sync::OnceLock;

use vfscale_sync::{AtomicId, Ordering, QRwLock, QRwLockWriteGuard, rcu};

pub use self::files::{Fd, Files};
use self::numbers::Numbers;
use crate::file::{File, OpenFile, close_pending};
use crate::{Errno, Result};

/// The first block has this many slots; each further one as many as all before it.
const FIRST_BLOCK: u32 = 64;
const BLOCKS: usize = 26;

/// `close_range` gives the lock up after so many, for others to come in between.
const CLOSE_AT_ONCE: usize = 1024;

/// Descriptors of open files. Dropping it closes them all.
pub struct FdTable {
    blocks: [OnceLock<Box<[AtomicId<File>]>>; BLOCKS],
    limit: u32,
    numbers: QRwLock<Numbers>,
}

impl FdTable {
    /// An empty table that holds at most `limit` descriptors.
    #[must_use]
    pub fn new(limit: u32) -> FdTable {
        let limit = limit.min(FIRST_BLOCK << (BLOCKS - 1));
        FdTable {
            blocks: [const { OnceLock::new() }; BLOCKS],
            limit,
            numbers: QRwLock::new(Numbers::default()),
        }
    }

    /// The block of `fd`, its size and the place in it.
    #[inline]
    fn place(fd: u32) -> (usize, u32, u32) {
        let block = (fd / FIRST_BLOCK).checked_ilog2().map_or(0, |log| log + 1);
        let first = if block == 0 { 0 } else { FIRST_BLOCK << (block - 1) };
        let size = if block == 0 { FIRST_BLOCK } else { first };
        (block as usize, size, fd - first)
    }

    #[inline]
    fn slot(&self, fd: u32) -> Option<&AtomicId<File>> {
        let (block, _, index) = FdTable::place(fd);
        self.blocks.get(block)?.get()?.get(index as usize)
    }

    /// The slot of `fd`, whose block is made if this is the first of it.
    fn slot_or_grow(&self, fd: u32) -> &AtomicId<File> {
        let (block, size, index) = FdTable::place(fd);
        let slots =
            self.blocks[block].get_or_init(|| (0..size).map(|_| AtomicId::none()).collect());
        &slots[index as usize]
    }

    fn numbers(&self) -> QRwLockWriteGuard<'_, Numbers> {
        self.numbers.write()
    }

    /// Takes the lowest free number from `from` on, before there is a file for it (`get_unused_fd_flags`).
    ///
    /// # Errors
    /// `EMFILE` if none below the table's limit is free; `EINVAL` if `from` is not below it.
    pub fn reserve(&self, from: u32) -> Result<Reserved<'_>> {
        if from >= self.limit && from != 0 {
            return Err(Errno::EINVAL);
        }
        let fd = self.numbers().take(from, self.limit).ok_or(Errno::EMFILE)?;
        Ok(Reserved { table: self, fd })
    }

    /// Gives `file` the lowest free number.
    ///
    /// # Errors
    /// `EMFILE` if the table is full.
    pub fn install(&self, file: OpenFile) -> Result<u32> {
        Ok(self.reserve(0)?.install(file))
    }

    /// One more number for the file behind `fd`: the lowest free one from `from` on (`dup`, `F_DUPFD`).
    ///
    /// # Errors
    /// `EBADF` if nothing is open there; `EMFILE`, `EINVAL` as for [`reserve`](Self::reserve).
    pub fn dup(&self, fd: u32, from: u32) -> Result<u32> {
        let file = self.fget(fd).ok_or(Errno::EBADF)?;
        Ok(self.reserve(from)?.install(file))
    }

    /// Makes `to` stand for the file behind `from`, in one step: nobody finds `to` closed in between. What it stood for before is
    /// the caller's to drop, and closes once its last user does.
    ///
    /// With both the same, nothing changes.
    ///
    /// # Errors
    /// `EBADF` if nothing is open at `from` or `to` is not below the table's limit; `EBUSY` if `to` is reserved by somebody who has
    /// not filled it yet.
    pub fn dup2(&self, from: u32, to: u32) -> Result<Option<OpenFile>> {
        if to >= self.limit {
            return Err(Errno::EBADF);
        }
        let mut numbers = self.numbers();
        // Under the lock a slot keeps what it has, so this file stays open, and `from` is not another's meanwhile.
        let id = self.slot(from).and_then(|slot| slot.load(Ordering::Acquire));
        let id = id.ok_or(Errno::EBADF)?;
        if from == to {
            return Ok(None);
        }
        let slot = self.slot_or_grow(to);
        let taken = !numbers.take_exactly(to);
        if taken && slot.load(Ordering::Acquire).is_none() {
            return Err(Errno::EBUSY);
        }
        let again = OpenFile::again(id);
        let before = slot.swap(Some(again.into_id()), Ordering::AcqRel);
        drop(numbers);
        Ok(before.map(OpenFile::from_id))
    }

    /// [`dup2`](Self::dup2) which refuses two equal numbers.
    ///
    /// # Errors
    /// Those of `dup2`; `EINVAL` if both are the same.
    pub fn dup3(&self, from: u32, to: u32) -> Result<Option<OpenFile>> {
        if from == to { Err(Errno::EINVAL) } else { self.dup2(from, to) }
    }

    /// Takes a reference on the file behind `fd`, if it is open (`fget`).
    #[inline]
    #[must_use]
    pub fn fget(&self, fd: u32) -> Option<OpenFile> {
        let slot = self.slot(fd)?;
        loop {
            let guard = rcu::pin();
            let id = slot.load(Ordering::Acquire)?;
            // Refused: it is being closed, and the slot will tell so.
            let file = OpenFile::try_get(id, &guard);
            if file.is_some() && slot.load(Ordering::Acquire) == Some(id) {
                return file;
            }
            // Ours may have become the last reference, and closing may block: with no guard held.
            drop(guard);
            drop(file);
        }
    }

    /// The first open file at `from` or above, with its number (`fget_task_next`): to look at a whole table while others use it.
    #[must_use]
    pub fn fget_next(&self, from: u32) -> Option<(u32, OpenFile)> {
        let mut fd = from;
        loop {
            let (block, size, index) = FdTable::place(fd);
            if self.blocks.get(block)?.get().is_some() {
                if let Some(file) = self.fget(fd) {
                    return Some((fd, file));
                }
                fd = fd.checked_add(1)?;
            } else {
                fd = fd.checked_add(size - index)?;
            }
        }
    }

    /// Frees the number and answers with the file it stood for; that closes once its last user drops it.
    ///
    /// # Errors
    /// `EBADF` if nothing is open there, or the number is only reserved.
    pub fn close(&self, fd: u32) -> Result<OpenFile> {
        let slot = self.slot(fd).ok_or(Errno::EBADF)?;
        let mut numbers = self.numbers();
        let id = slot.swap(None, Ordering::AcqRel).ok_or(Errno::EBADF)?;
        numbers.release(fd);
        drop(numbers);
        Ok(OpenFile::from_id(id))
    }

    /// Closes all descriptors from `first` to `last`, both included, and answers how many there were. Reserved numbers stay.
    ///
    /// Each file whose last reference this was is closed before it returns. One thousand at a time leave the table in one step.
    ///
    /// # Errors
    /// `EINVAL` if `last` is below `first`.
    pub fn close_range(&self, first: u32, last: u32) -> Result<usize> {
        if last < first {
            return Err(Errno::EINVAL);
        }
        let (mut closed, mut fd) = (0, first);
        let mut files = Vec::new();
        loop {
            let mut numbers = self.numbers();
            let end = last.saturating_add(1).min(numbers.end());
            while fd < end && files.len() < CLOSE_AT_ONCE {
                let id = self.slot(fd).and_then(|slot| slot.swap(None, Ordering::AcqRel));
                if let Some(id) = id {
                    numbers.release(fd);
                    files.push(OpenFile::from_id(id));
                }
                fd += 1;
            }
            drop(numbers);
            closed += files.len();
            files.clear();
            if fd >= end {
                close_pending();
                return Ok(closed);
            }
        }
    }

    /// A table of its own with the same files behind the same numbers (`dup_fd`). What is only reserved is free in the copy.
    #[must_use]
    pub fn fork(&self) -> FdTable {
        let mut copy = FdTable::new(self.limit);
        let numbers = self.numbers();
        for fd in 0..numbers.end() {
            // Under the lock a slot keeps what it has.
            if let Some(id) = self.slot(fd).and_then(|slot| slot.load(Ordering::Acquire)) {
                copy.numbers.get_mut().take_exactly(fd);
                // Relaxed: whoever is handed the copy gets it whole.
                let again = OpenFile::again(id).into_id();
                copy.slot_or_grow(fd).store(Some(again), Ordering::Relaxed);
            }
        }
        drop(numbers);
        copy
    }

    /// Number of descriptors, reserved ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.numbers().count()
    }

    /// Nothing is open or reserved.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for FdTable {
    fn drop(&mut self) {
        for slot in self.blocks.iter().filter_map(OnceLock::get).flatten() {
            drop(slot.swap(None, Ordering::AcqRel).map(OpenFile::from_id));
        }
        close_pending();
    }
}

/// A number that is taken and has no file yet. Dropped, it is free again.
///
/// Until it is [installed](Self::install), the number answers `EBADF` to those who use or close it and `EBUSY` to [`FdTable::dup2`].
#[must_use = "dropping it frees the number"]
pub struct Reserved<'a> {
    table: &'a FdTable,
    fd: u32,
}

impl Reserved<'_> {
    /// The number.
    #[must_use]
    pub fn fd(&self) -> u32 {
        self.fd
    }

    /// Puts `file` there (`fd_install`), without a lock, and answers with the number. From now on anybody may use and close it.
    pub fn install(self, file: OpenFile) -> u32 {
        let reserved = std::mem::ManuallyDrop::new(self);
        let slot = reserved.table.slot_or_grow(reserved.fd);
        // The number is ours alone until this store; Release: who reads it finds the file filled in.
        slot.store(Some(file.into_id()), Ordering::Release);
        reserved.fd
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.table.numbers().release(self.fd);
    }
}

impl std::fmt::Debug for Reserved<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Reserved").field(&self.fd).finish()
    }
}

impl std::fmt::Debug for FdTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FdTable").field("limit", &self.limit).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_every_number_once() {
        let mut expected = (0, 0);
        for fd in 0..5_000 {
            let (block, size, index) = FdTable::place(fd);
            assert_eq!((block, index), expected, "descriptor {fd}");
            expected = if index + 1 == size { (block + 1, 0) } else { (block, index + 1) };
        }
    }
}
