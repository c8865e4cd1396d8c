//! The bytes of one regular file: a size and a sparse map of pages.
//!
//! # Invariants
//! - A page that is absent reads as zeros and is a hole. A page that is present but reserved
//!   (`None`) reads as zeros, counts as used, and is a hole too: it is the promise of `fallocate`
//!   without the memory.
//! - Bytes of the last page behind the size are zero, so a file may grow without a look at its
//!   pages.
//! - Each page in the map was counted in `Space`, and is given back when it leaves.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use vfscale::{Errno, Result, SeekFor};

use super::PAGE;
use super::space::Space;

/// The largest size, as `off_t` has it.
pub(super) const SIZE_MAX: u64 = i64::MAX as u64;

type Page = Option<Box<[u8; PAGE as usize]>>;

#[derive(Debug)]
pub(super) struct Content {
    size: u64,
    pages: BTreeMap<u64, Page>,
    space: Arc<Space>,
}

/// The pieces of `offset..offset + len`, one for each page it touches: page number and the range
/// within.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (u64, Range<usize>)> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (page, from) = (at / PAGE, at % PAGE);
        let to = PAGE.min(end - page * PAGE);
        at = page * PAGE + to;
        Some((page, from as usize..to as usize))
    })
}

impl Content {
    pub(super) fn new(space: &Arc<Space>) -> Content {
        Content { size: 0, pages: BTreeMap::new(), space: Arc::clone(space) }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Pages in use, holes not counted.
    pub(super) fn page_count(&self) -> u64 {
        self.pages.len() as u64
    }

    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let len = (buf.len() as u64).min(self.size.saturating_sub(offset));
        let mut done = 0;
        for (page, range) in pieces(offset, len) {
            let out = &mut buf[done..done + range.len()];
            done += range.len();
            match self.pages.get(&page) {
                Some(Some(bytes)) => out.copy_from_slice(&bytes[range]),
                _ => out.fill(0),
            }
        }
        done
    }

    /// Writes what fits; answers with less than asked only when space or the largest size ends, and
    /// then with at least 1.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Result<usize> {
        if data.is_empty() {
            return Ok(0);
        }
        if offset >= SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        let len = (data.len() as u64).min(SIZE_MAX - offset);
        let mut done = 0;
        for (page, range) in pieces(offset, len) {
            match self.page_mut(page) {
                Ok(bytes) => {
                    bytes[range.clone()].copy_from_slice(&data[done..done + range.len()]);
                    done += range.len();
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        self.size = self.size.max(offset + done as u64);
        Ok(done)
    }

    /// The page to write to: present, and backed by memory.
    fn page_mut(&mut self, page: u64) -> Result<&mut [u8; PAGE as usize]> {
        use std::collections::btree_map::Entry::{Occupied, Vacant};
        let slot = match self.pages.entry(page) {
            Occupied(slot) => slot.into_mut(),
            Vacant(slot) => {
                self.space.take_pages(1)?;
                slot.insert(None)
            }
        };
        Ok(slot.get_or_insert_with(zeroed_page))
    }

    pub(super) fn set_size(&mut self, size: u64) -> Result<()> {
        if size > SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        if size < self.size {
            let kept = size.div_ceil(PAGE);
            self.drop_pages(kept..u64::MAX);
            self.zero(size..kept * PAGE);
        }
        self.size = size;
        Ok(())
    }

    /// Turns a range into a hole; the size stays.
    pub(super) fn punch(&mut self, range: Range<u64>) {
        let (first, last) = (range.start.div_ceil(PAGE), range.end / PAGE);
        if first < last {
            self.drop_pages(first..last);
        }
        // What is left are at most two pages of which the range covers a part.
        self.zero(range);
    }

    /// Fills a range with zeros where it has pages; whole pages stay reserved, without their
    /// memory.
    pub(super) fn zero(&mut self, range: Range<u64>) {
        for (&page, bytes) in self.pages.range_mut(range.start / PAGE..range.end.div_ceil(PAGE)) {
            let from = range.start.saturating_sub(page * PAGE) as usize;
            let to = (range.end - page * PAGE).min(PAGE) as usize;
            if to - from == PAGE as usize {
                *bytes = None;
            } else if let Some(bytes) = bytes {
                bytes[from..to].fill(0);
            }
        }
    }

    /// Makes sure that writing to the range finds its pages; takes all of them or none.
    pub(super) fn reserve(&mut self, range: Range<u64>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let pages = range.start / PAGE..range.end.div_ceil(PAGE);
        let present = self.pages.range(pages.clone()).count() as u64;
        self.space.take_pages(pages.end - pages.start - present)?;
        for page in pages {
            self.pages.entry(page).or_insert(None);
        }
        Ok(())
    }

    /// Grows to `size` if it is smaller.
    pub(super) fn grow(&mut self, size: u64) {
        debug_assert!(size <= SIZE_MAX);
        self.size = self.size.max(size);
    }

    pub(super) fn seek(&self, offset: u64, what: SeekFor) -> Result<u64> {
        if offset >= self.size {
            return Err(Errno::ENXIO);
        }
        match what {
            SeekFor::Data => {
                let mut data = self.pages.range(offset / PAGE..).filter(|(_, page)| page.is_some());
                let (&page, _) = data.next().ok_or(Errno::ENXIO)?;
                Ok((page * PAGE).max(offset))
            }
            SeekFor::Hole => {
                let mut next = offset / PAGE;
                for (&page, bytes) in self.pages.range(next..) {
                    if page != next || bytes.is_none() {
                        break;
                    }
                    next += 1;
                }
                // The end of the file counts as a hole.
                Ok((next * PAGE).max(offset).min(self.size))
            }
        }
    }

    fn drop_pages(&mut self, range: Range<u64>) {
        let gone = self.pages.extract_if(range, |_, _| true).count();
        self.space.give_back_pages(gone as u64);
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.space.give_back_pages(self.page_count());
    }
}

fn zeroed_page() -> Box<[u8; PAGE as usize]> {
    Box::new([0; PAGE as usize])
}

#[cfg(test)]
#[path = "content_tests.rs"]
mod tests;
