//! A table of descriptors: small numbers that stand for open files.
//!
//! # `fget`, step by step
//! Under RCU: load the slot, count a reference on the file it names if that still lives, load the slot again. Only if the slot
//! still names the same file is it the right one; else the reference is dropped and the look-up begins anew. Without the second look
//! a descriptor closed and opened again in between could yield a file that was never in its slot (R5.2).
//!
//! Slots stand in blocks that double in size and never move, so growing disturbs no reader and copies nothing. Installing and
//! closing go through one lock, which knows the lowest free number.

use std::sync::OnceLock;

use vfscale_sync::{AtomicId, Ordering, QRwLock, QRwLockWriteGuard, rcu};

use crate::file::{File, OpenFile};
use crate::{Errno, Result};

/// The first block has this many slots; each further one as many as all before it.
const FIRST_BLOCK: u32 = 64;
const BLOCKS: usize = 26;

/// Descriptors of open files. Dropping it closes them all.
pub struct FdTable {
    blocks: [OnceLock<Box<[AtomicId<File>]>>; BLOCKS],
    limit: u32,
    free: QRwLock<FreeNumbers>,
}

/// Which numbers are free. A bit per number, and where to begin looking.
#[derive(Default)]
struct FreeNumbers {
    used: Vec<u64>,
    /// No number below is free.
    lowest: usize,
    count: usize,
}

impl FreeNumbers {
    fn take(&mut self, limit: u32) -> Option<u32> {
        let word = (self.lowest / 64..self.used.len()).find(|&i| self.used[i] != u64::MAX);
        let word = word.unwrap_or(self.used.len());
        let bit = self.used.get(word).map_or(0, |bits| bits.trailing_ones());
        let number = u32::try_from(word * 64).ok()?.checked_add(bit)?;
        if number >= limit {
            return None;
        }
        if word == self.used.len() {
            self.used.push(0);
        }
        self.used[word] |= 1 << bit;
        self.lowest = number as usize;
        self.count += 1;
        Some(number)
    }

    fn release(&mut self, number: u32) {
        let number = number as usize;
        self.used[number / 64] &= !(1 << (number % 64));
        self.lowest = self.lowest.min(number);
        self.count -= 1;
    }
}

impl FdTable {
    /// An empty table that holds at most `limit` descriptors.
    #[must_use]
    pub fn new(limit: u32) -> FdTable {
        let limit = limit.min(FIRST_BLOCK << (BLOCKS - 1));
        FdTable {
            blocks: [const { OnceLock::new() }; BLOCKS],
            limit,
            free: QRwLock::new(FreeNumbers::default()),
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

    fn free(&self) -> QRwLockWriteGuard<'_, FreeNumbers> {
        self.free.write()
    }

    /// Gives `file` the lowest free number (`fd_install`).
    ///
    /// # Errors
    /// `EMFILE` if the table is full.
    pub fn install(&self, file: OpenFile) -> Result<u32> {
        let fd = self.free().take(self.limit).ok_or(Errno::EMFILE)?;
        let (block, size, index) = FdTable::place(fd);
        let slots =
            self.blocks[block].get_or_init(|| (0..size).map(|_| AtomicId::none()).collect());
        // The number is ours alone until this store; Release: who reads it finds the file filled in.
        slots[index as usize].store(Some(file.into_id()), Ordering::Release);
        Ok(fd)
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

    /// Frees the number and answers with the file it stood for; that closes once its last user drops it.
    ///
    /// # Errors
    /// `EBADF` if nothing is open there.
    pub fn close(&self, fd: u32) -> Result<OpenFile> {
        let slot = self.slot(fd).ok_or(Errno::EBADF)?;
        let id = slot.swap(None, Ordering::AcqRel).ok_or(Errno::EBADF)?;
        self.free().release(fd);
        Ok(OpenFile::from_id(id))
    }

    /// Number of descriptors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.free().count
    }

    /// Nothing is open.
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

    #[test]
    fn the_lowest_free_number_comes_first() {
        let mut free = FreeNumbers::default();
        assert_eq!(
            (0..130).map(|_| free.take(130)).collect::<Option<Vec<_>>>(),
            Some((0..130).collect())
        );
        assert_eq!(free.take(130), None);
        for number in [70, 3, 129] {
            free.release(number);
        }
        assert_eq!([3, 70, 129].map(Some), [(); 3].map(|()| free.take(130)));
        assert_eq!(free.count, 130);
    }
}
