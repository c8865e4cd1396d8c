//! One bucket: a 64-bit word that is head, lock, filter and sequence at once.
//!
//! # Word
//! | bits | what |
//! |---|---|
//! | 0..32 | HEAD, the id of the first node, 0 for none |
//! | 32 | LOCKED |
//! | 33 | MOVED: the chain lives in the next table |
//! | 34..42 | FILTER: bit `hash >> 29` of every node of the chain, perhaps of nodes that have left |
//! | 42..64 | LEFT, how many nodes have left this chain, modulo 2^22 |
//!
//! # Who writes
//! LOCKED clear: anyone, setting LOCKED by compare-exchange. LOCKED set: the holder alone, by stores. MOVED is never cleared.
//!
//! # Orderings
//! - HX-1 every store by the holder (Release) -> a reader's load (Acquire): nodes are whole before they can be found.
//! - HX-4 the holder's last store (Release) -> the next holder's exchange (Acquire): the chain's links.

// unmodelled file: as `hash_index/mod.rs`.

use crate::backoff::{Backoff, Turn};
use crate::prim::{AtomicU64, Ordering};
use crate::{AtomicId, Id};

const LOCKED: u64 = 1 << 32;
const MOVED: u64 = 1 << 33;
const FILTER_SHIFT: u32 = 34;
const FILTER: u64 = 0xff << FILTER_SHIFT;
const LEFT_ONE: u64 = 1 << 42;
const HEAD: u64 = u32::MAX as u64;

/// A value of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(u64);

impl Word {
    /// Whether the chain is in the next table.
    #[inline]
    pub(super) fn is_moved(self) -> bool {
        self.0 & MOVED != 0
    }

    /// Whether a node of this hash may be in the chain. False is certain for the moment of the load.
    #[inline]
    pub(super) fn may_hold(self, hash: u32) -> bool {
        self.0 & filter_bit(hash) != 0
    }

    /// The first node.
    #[inline]
    pub(super) fn head<T>(self) -> Option<Id<T>> {
        Id::from_raw((self.0 & HEAD) as u32)
    }

    /// Whether a walk between the loads of `self` and `later` stayed in one chain: no node has left it, and it was not moved.
    #[inline]
    pub(super) fn is_same_chain(self, later: Word) -> bool {
        // LEFT are the topmost bits.
        (self.0 ^ later.0) < LEFT_ONE && !later.is_moved()
    }
}

#[inline]
fn filter_bit(hash: u32) -> u64 {
    1 << (FILTER_SHIFT + (hash >> 29))
}

/// A bucket. All zero bits are an empty one.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Bucket {
    word: AtomicU64,
}

/// The bucket's chain is in the next table.
#[derive(Debug)]
pub(super) struct Moved;

impl Bucket {
    #[cfg(shuttle)]
    pub(super) const fn new() -> Self {
        Bucket { word: AtomicU64::new(0) }
    }

    #[inline]
    pub(super) fn load(&self) -> Word {
        // HX-1 Acquire.
        Word(self.word.load(Ordering::Acquire))
    }

    /// Takes the lock, unless the chain has moved.
    #[inline]
    pub(super) fn lock(&self) -> Result<Locked<'_>, Moved> {
        let word = self.word.load(Ordering::Relaxed);
        // HX-4 Acquire, and HX-1 for the nodes.
        if word & (LOCKED | MOVED) == 0
            && self
                .word
                .compare_exchange(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        {
            return Ok(Locked { bucket: self, word });
        }
        self.lock_slow()
    }

    #[cold]
    fn lock_slow(&self) -> Result<Locked<'_>, Moved> {
        let mut backoff = Backoff::new();
        loop {
            // Acquire: MOVED sends us to the next table, which was linked before (HX-5).
            let word = self.word.load(Ordering::Acquire);
            if word & MOVED != 0 {
                return Err(Moved);
            }
            // HX-4, HX-1 Acquire.
            if word & LOCKED == 0
                && self
                    .word
                    .compare_exchange_weak(
                        word,
                        word | LOCKED,
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    )
                    .is_ok()
            {
                return Ok(Locked { bucket: self, word });
            }
            if backoff.pause() == Turn::Park {
                wait_long();
            }
        }
    }
}

/// The holder has lost its processor. There is no bit left to tell it that we sleep, so we sleep for a fixed time: holders
/// run for less than a microsecond once they run.
#[cold]
fn wait_long() {
    #[cfg(not(shuttle))]
    std::thread::sleep(std::time::Duration::from_micros(20));
    #[cfg(shuttle)]
    crate::prim::yield_now();
}

/// A bucket whose lock we hold. Changes are made in a copy of the word, and seen by others when the lock is dropped.
pub(super) struct Locked<'a> {
    bucket: &'a Bucket,
    /// Without LOCKED.
    word: u64,
}

impl Locked<'_> {
    pub(super) fn head<T>(&self) -> Option<Id<T>> {
        Word(self.word).head()
    }

    pub(super) fn set_head<T>(&mut self, head: Option<Id<T>>) {
        self.word = self.word & !HEAD | u64::from(head.map_or(0, Id::to_raw));
    }

    /// Puts a node first; `next` is its link in this table.
    pub(super) fn push<T>(&mut self, id: Id<T>, hash: u32, next: &AtomicId<T>) {
        // HX-2 Release: whoever follows this link, coming from a chain the node was in before, sees that it left.
        next.store(self.head(), Ordering::Release);
        self.set_head(Some(id));
        self.word |= filter_bit(hash);
    }

    /// Starts the filter anew, for `hashes`.
    pub(super) fn set_filter(&mut self, hashes: impl Iterator<Item = u32>) {
        self.word = hashes.fold(self.word & !FILTER, |word, hash| word | filter_bit(hash));
    }

    /// A node has left the chain.
    pub(super) fn note_left(&mut self) {
        self.word = self.word.wrapping_add(LEFT_ONE);
    }

    /// The chain is whole in the next table. The old chain stays as it is for readers inside it.
    pub(super) fn mark_moved(&mut self) {
        self.word |= MOVED;
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        // HX-1, HX-2, HX-4 Release.
        self.bucket.word.store(self.word, Ordering::Release);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn bucket() -> Bucket {
        Bucket { word: AtomicU64::new(0) }
    }

    #[test]
    fn the_filter_answers_for_the_hashes_it_was_given() {
        let bucket = bucket();
        let mut locked = bucket.lock().unwrap();
        locked.set_filter([0, 7 << 29].into_iter());
        locked.set_head(Id::<u8>::from_raw(u32::MAX));
        drop(locked);
        let word = bucket.load();
        assert!(word.may_hold(5) && word.may_hold(7 << 29 | 1) && !word.may_hold(1 << 29));
        assert_eq!(word.head::<u8>().map(Id::to_raw), Some(u32::MAX));
        assert!(!word.is_moved());
    }

    #[test]
    fn only_leaving_and_moving_change_the_chain() {
        let bucket = bucket();
        let before = bucket.load();
        bucket.lock().unwrap().set_head(Id::<u8>::from_raw(1));
        assert!(before.is_same_chain(bucket.load()));
        bucket.lock().unwrap().note_left();
        assert!(!before.is_same_chain(bucket.load()));
        let before = bucket.load();
        bucket.lock().unwrap().mark_moved();
        assert!(!before.is_same_chain(bucket.load()));
        assert!(bucket.lock().is_err());
    }

    #[test]
    fn the_count_of_leavers_wraps_without_spilling() {
        let bucket = Bucket { word: AtomicU64::new(!(LOCKED | MOVED)) };
        let before = bucket.load();
        bucket.lock().unwrap().note_left();
        let after = bucket.load();
        assert!(!before.is_same_chain(after));
        assert_eq!(after.0, before.0 & (LEFT_ONE - 1));
    }
}
