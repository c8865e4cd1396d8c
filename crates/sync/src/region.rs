//! Ranges of address space: reserved whole, given memory as they fill.
//!
//! A pool wants all its slots in one range, so that an id becomes an address by one multiplication, and must not pay for
//! slots it has not used. The range is reserved without memory first and made accessible from its start in steps.
//!
//! # Who writes
//! One thread at a time: growing takes `&mut`. Whoever shows others that there is more does so by an ordering of its own.

use std::ptr::NonNull;

/// Large pages begin at multiples of this.
#[cfg(not(any(miri, not(unix))))]
const LARGE_PAGE: usize = 2 << 20;

/// A range of address space of our own.
///
/// # Invariants
/// `base` begins `len` bytes that belong to this value until it is dropped. The first `committed` bytes may be read and
/// written; they were zero when they were committed.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
    committed: usize,
}

// SAFETY: plain memory, not tied to a thread.
unsafe impl Send for Region {}
// SAFETY: `&Region` gives out an address and numbers.
unsafe impl Sync for Region {}

impl Region {
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How many bytes from the start may be used.
    pub(crate) fn committed(&self) -> usize {
        self.committed
    }

    /// A range whose `len` bytes are all zero and usable.
    #[cfg(not(shuttle))]
    pub(crate) fn zeroed(len: usize) -> Option<Region> {
        let mut region = Region::reserve(len)?;
        region.commit(region.len).then_some(region)
    }
}

#[cfg(all(unix, not(miri)))]
mod system {
    use super::{LARGE_PAGE, NonNull, Region};
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

    impl Region {
        /// A range of at least `len` bytes, none of them usable yet.
        pub(crate) fn reserve(len: usize) -> Option<Region> {
            let page = rustix::param::page_size();
            let align = if len >= LARGE_PAGE { LARGE_PAGE } else { page };
            let len = len.max(1).checked_next_multiple_of(align)?;
            // Room to begin at a large page.
            let slack = align - page;
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // SAFETY: a new anonymous mapping at a place of the kernel's choice.
            let start = unsafe {
                mmap_anonymous(std::ptr::null_mut(), len + slack, ProtFlags::empty(), flags)
            }
            .ok()?
            .cast::<u8>();
            let before = start.align_offset(align);
            let base = start.wrapping_add(before);
            unmap(start, before);
            unmap(base.wrapping_add(len), slack - before);
            if align == LARGE_PAGE {
                advise_large(base, len);
            }
            Some(Region { base: NonNull::new(base)?, len, committed: 0 })
        }

        /// Makes at least the first `bytes` usable. False if the system has no memory to promise, or the range is shorter.
        pub(crate) fn commit(&mut self, bytes: usize) -> bool {
            if bytes <= self.committed {
                return true;
            }
            let end = bytes.next_multiple_of(rustix::param::page_size());
            if end > self.len {
                return false;
            }
            let start = self.base.as_ptr().wrapping_add(self.committed).cast();
            let access = MprotectFlags::READ | MprotectFlags::WRITE;
            // SAFETY: pages of our own mapping, not accessible before, so nothing refers to them.
            if unsafe { mprotect(start, end - self.committed, access) }.is_err() {
                return false;
            }
            self.committed = end;
            true
        }
    }

    impl Drop for Region {
        fn drop(&mut self) {
            unmap(self.base.as_ptr(), self.len);
        }
    }

    /// Gives pages back that belong to the caller and that nothing refers to.
    fn unmap(start: *mut u8, len: usize) {
        if len > 0 {
            // SAFETY: pages of a mapping of ours (the callers').
            let result = unsafe { munmap(start.cast(), len) };
            debug_assert!(result.is_ok(), "munmap of our own mapping: {result:?}");
        }
    }

    /// Random access to a large range misses the TLB less with large pages. Only a wish: errors are ignored.
    fn advise_large(start: *mut u8, len: usize) {
        #[cfg(target_os = "linux")]
        // SAFETY: pages of our own mapping; the advice does not change their content.
        let _ =
            unsafe { rustix::mm::madvise(start.cast(), len, rustix::mm::Advice::LinuxHugepage) };
        #[cfg(not(target_os = "linux"))]
        let _ = (start, len);
    }
}

/// Where memory cannot be reserved without being had: the allocator, at once.
#[cfg(any(miri, not(unix)))]
mod system {
    use super::{NonNull, Region};
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    fn layout(len: usize) -> Option<Layout> {
        Layout::from_size_align(len, 4096).ok()
    }

    impl Region {
        /// A range of at least `len` bytes, none of them usable yet.
        pub(crate) fn reserve(len: usize) -> Option<Region> {
            let len = len.max(1).checked_next_multiple_of(4096)?;
            // SAFETY: `len` is not zero.
            let base = unsafe { alloc_zeroed(layout(len)?) };
            Some(Region { base: NonNull::new(base)?, len, committed: 0 })
        }

        /// Makes at least the first `bytes` usable. False if the range is shorter.
        pub(crate) fn commit(&mut self, bytes: usize) -> bool {
            let fits = bytes <= self.len;
            if fits {
                self.committed = self.committed.max(bytes);
            }
            fits
        }
    }

    impl Drop for Region {
        fn drop(&mut self) {
            if let Some(layout) = layout(self.len) {
                // SAFETY: from `alloc_zeroed` with the same layout.
                unsafe { dealloc(self.base.as_ptr(), layout) };
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_region_fills_from_its_start() {
        let mut region = Region::reserve(3 << 20).unwrap();
        assert_eq!(region.committed(), 0);
        assert!(region.commit(10_000));
        assert!(region.committed() >= 10_000);
        assert!(region.commit(3 << 20));
        assert!(!region.commit(64 << 20));
        let last = region.base().as_ptr().wrapping_add((3 << 20) - 1);
        // SAFETY: inside the committed bytes of a region nobody else has; zero is a valid `u8`.
        let last = unsafe { &mut *last };
        assert_eq!(*last, 0);
        *last = 1;
        assert_eq!(*last, 1);
    }

    #[test]
    fn a_region_too_large_to_exist_is_refused() {
        assert!(Region::reserve(usize::MAX - 4096).is_none());
        assert!(Region::reserve(isize::MAX as usize).is_none());
    }
}
