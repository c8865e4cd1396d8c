//! How often the client knows each inode: the lookup counts, exact.
//!
//! # Why
//! Each reply that tells a client a node id gives it one count; a FORGET gives some back. While the count is above 0 the inode
//! must live, and at 0 it must be free to go. The client alone decides when, so the number is never trusted: a FORGET above the
//! count changes nothing.
//!
//! # Shape
//! One [`Cell`] per slot of the inode pool, in chunks that double in size and are made on demand; no lock over them. A cell's word:
//! bit 63 BUSY · bit 62 DIRECTORY · bits 0..62 COUNT.
//!
//! # Who writes
//! BUSY clear: anyone, by compare-exchange. BUSY set: the one who set it, alone; `generation` and `parked` belong to it too. It
//! does no more than read or write these and clear BUSY: it neither waits nor calls anybody.
//!
//! # Lookup against forget, step by step
//! ```text
//!   L  a lookup, about to answer node N       F  a FORGET of all counts the client knows of N
//!   holds a reference on the inode
//!                                             sets BUSY, COUNT == n: takes `parked`, word = 0
//!   COUNT is 0: sets BUSY, parks a reference
//!     of its own, word = 1
//!                                             drops the reference it took: the inode lives by L's
//! ```
//! In the other order F finds COUNT = n + 1 and leaves 1. Either way the client's count after L's answer is 1. Raising from 0
//! needs a living reference in the caller's hand ([`NodeTable::raise`] asks for a second one to park); nothing revives an inode
//! from the table.
//!
//! # Orderings
//!   NT-1  clearing BUSY (Release) -> setting BUSY (Acquire): `generation` and `parked` of the one before
//!   NT-2  clearing BUSY (Release) -> reading a count above 0 (Acquire): `generation` of who raised it from 0

use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::{hint, thread};

const BUSY: u64 = 1 << 63;
const DIRECTORY: u64 = 1 << 62;
/// 2^62 lookups of one inode without a forget take a century at a billion a second.
const COUNT: u64 = DIRECTORY - 1;

/// Cells in the first chunk; each later chunk is as big as all before it.
const FIRST: usize = 1 << 10;
/// Enough chunks for every 32-bit slot.
const CHUNKS: usize = 23;

/// A reference kept as a number while the client knows the inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parked {
    /// From [`vfscale::DentryRef::into_raw`].
    Directory(u32),
    /// From [`vfscale::InodeRef::into_raw`].
    Other(u32),
}

/// What a forget did.
#[must_use = "a reference that left the table has to be dropped"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lowered {
    /// The client still knows the node.
    Kept,
    /// It does not any more: the table's reference comes back.
    Last(Parked),
    /// The client never had as many counts. Nothing changed.
    Refused,
}

#[derive(Debug)]
struct Cell {
    word: AtomicU64,
    generation: AtomicU32,
    parked: AtomicU32,
}

impl Cell {
    const fn new() -> Cell {
        Cell { word: AtomicU64::new(0), generation: AtomicU32::new(0), parked: AtomicU32::new(0) }
    }

    /// Sets BUSY and answers with the word before.
    fn lock(&self) -> u64 {
        let mut tries = 0;
        loop {
            let word = self.word.load(Relaxed); // re-checked by the compare-exchange
            // NT-1 Acquire: we see what the last holder wrote.
            if word & BUSY == 0
                && self.word.compare_exchange_weak(word, word | BUSY, Acquire, Relaxed).is_ok()
            {
                return word;
            }
            pause(&mut tries);
        }
    }

    /// Clears BUSY.
    fn unlock(&self, word: u64) {
        debug_assert!(word & BUSY == 0);
        // NT-1, NT-2 Release: publishes `generation` and `parked`.
        self.word.store(word, Release);
    }

    fn parked(&self, word: u64) -> Parked {
        let raw = self.parked.load(Relaxed); // ours: BUSY is set
        if word & DIRECTORY != 0 { Parked::Directory(raw) } else { Parked::Other(raw) }
    }
}

/// The holder of BUSY is a handful of instructions from clearing it, unless it was preempted.
fn pause(tries: &mut u32) {
    *tries += 1;
    if *tries < 32 {
        hint::spin_loop();
    } else {
        thread::yield_now();
    }
}

/// The counts of one session.
#[derive(Debug)]
pub(crate) struct NodeTable {
    chunks: [OnceLock<Box<[Cell]>>; CHUNKS],
}

/// Where a slot's cell is: chunk, place in it, size of the chunk.
fn place(slot: u32) -> (usize, usize, usize) {
    let slot = slot as usize;
    if slot < FIRST {
        return (0, slot, FIRST);
    }
    let size = 1 << slot.ilog2();
    ((slot / FIRST).ilog2() as usize + 1, slot - size, size)
}

impl NodeTable {
    pub(crate) const fn new() -> NodeTable {
        NodeTable { chunks: [const { OnceLock::new() }; CHUNKS] }
    }

    fn cell(&self, slot: u32) -> Option<&Cell> {
        let (chunk, index, _) = place(slot);
        self.chunks[chunk].get()?.get(index)
    }

    fn cell_or_make(&self, slot: u32) -> &Cell {
        let (chunk, index, size) = place(slot);
        &self.chunks[chunk].get_or_init(|| (0..size).map(|_| Cell::new()).collect())[index]
    }

    /// Gives the client one more count of the inode in `slot`, on which the caller holds a reference. If it is the first, the
    /// table keeps what `park` makes. A reference that turned out not to be needed comes back.
    #[must_use = "a reference that comes back has to be dropped"]
    pub(crate) fn raise(
        &self,
        slot: u32,
        generation: u32,
        park: impl FnOnce() -> Parked,
    ) -> Option<Parked> {
        let cell = self.cell_or_make(slot);
        let mut tries = 0;
        let mut word = cell.word.load(Relaxed); // re-checked by the compare-exchange
        loop {
            if word & COUNT != 0 && word & BUSY == 0 {
                // Relaxed: a count above 0 keeps the slot's inode, so the cell speaks of ours already; we publish nothing.
                match cell.word.compare_exchange_weak(word, word + 1, Relaxed, Relaxed) {
                    Ok(_) => return None,
                    Err(now) => word = now,
                }
            } else if word & BUSY != 0 {
                pause(&mut tries);
                word = cell.word.load(Relaxed);
            } else {
                return Self::raise_first(cell, generation, park);
            }
        }
    }

    /// The count was 0 when last seen.
    #[cold]
    fn raise_first(cell: &Cell, generation: u32, park: impl FnOnce() -> Parked) -> Option<Parked> {
        // Made before the lock, so that nothing but stores happen under it.
        let parked = park();
        let word = cell.lock();
        if word & COUNT != 0 {
            cell.unlock(word + 1); // somebody else was first
            return Some(parked);
        }
        let (raw, kind) = match parked {
            Parked::Directory(raw) => (raw, DIRECTORY),
            Parked::Other(raw) => (raw, 0),
        };
        // Relaxed: ours until `unlock` publishes them.
        cell.generation.store(generation, Relaxed);
        cell.parked.store(raw, Relaxed);
        cell.unlock(kind | 1);
        None
    }

    /// Takes `count` counts from the client.
    pub(crate) fn lower(&self, slot: u32, generation: u32, count: u64) -> Lowered {
        let Some(cell) = self.cell(slot) else { return Lowered::Refused };
        let word = cell.lock();
        let known = word & COUNT;
        if count == 0 || known < count || cell.generation.load(Relaxed) != generation {
            cell.unlock(word);
            return Lowered::Refused;
        }
        if known > count {
            cell.unlock(word - count);
            return Lowered::Kept;
        }
        let parked = cell.parked(word);
        cell.unlock(0);
        Lowered::Last(parked)
    }

    /// Does the client know the inode that had this generation in this slot?
    ///
    /// While a forget is at work on the cell the answer may still be yes; the caller takes a reference by other means anyway.
    pub(crate) fn knows(&self, slot: u32, generation: u32) -> bool {
        // NT-2 Acquire: the generation is that of who raised the count from 0.
        self.cell(slot).is_some_and(|cell| {
            cell.word.load(Acquire) != 0 && cell.generation.load(Relaxed) == generation
        })
    }

    /// Takes every count from the client; `each` gets the references. Only when no more requests come.
    pub(crate) fn clear(&self, mut each: impl FnMut(Parked)) {
        for cell in self.cells() {
            if cell.word.load(Relaxed) == 0 {
                continue;
            }
            let word = cell.lock();
            let parked = (word & COUNT != 0).then(|| cell.parked(word));
            cell.unlock(0);
            parked.into_iter().for_each(&mut each);
        }
    }

    /// Nodes the client knows, and the sum of their counts. Walks the table: a statistic is paid by who asks, not by each lookup.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let counts = self.cells().map(|cell| cell.word.load(Relaxed) & COUNT);
        counts
            .filter(|&count| count != 0)
            .fold((0, 0), |(nodes, sum), count| (nodes + 1, sum + count))
    }

    fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.chunks.iter().filter_map(OnceLock::get).flat_map(|chunk| chunk.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicI64;

    #[test]
    fn chunks_join_without_gap() {
        let mut expected = (0, 0);
        for slot in 0..40_000u32 {
            let (chunk, index, size) = place(slot);
            assert_eq!((chunk, index), expected);
            expected = if index + 1 == size { (chunk + 1, 0) } else { (chunk, index + 1) };
        }
        assert_eq!(place(u32::MAX).0, CHUNKS - 1);
        assert_eq!(place(u32::MAX).1, place(u32::MAX).2 - 1);
    }

    fn raise(table: &NodeTable, slot: u32, generation: u32, parked: Parked) {
        assert_eq!(table.raise(slot, generation, || parked), None);
    }

    #[test]
    fn counts_are_exact() {
        let table = NodeTable::new();
        assert_eq!(table.lower(9, 1, 1), Lowered::Refused);
        raise(&table, 9, 1, Parked::Other(9));
        assert_eq!(table.raise(9, 1, || unreachable!("parks only the first time")), None);
        assert!(table.knows(9, 1));
        assert!(!table.knows(9, 2));
        assert_eq!(table.totals(), (1, 2));
        for refused in [table.lower(9, 1, 3), table.lower(9, 2, 1), table.lower(9, 1, 0)] {
            assert_eq!(refused, Lowered::Refused);
        }
        assert_eq!(table.totals(), (1, 2));
        assert_eq!(table.lower(9, 1, 1), Lowered::Kept);
        assert_eq!(table.lower(9, 1, 1), Lowered::Last(Parked::Other(9)));
        assert_eq!(table.lower(9, 1, 1), Lowered::Refused);
        assert!(!table.knows(9, 1));
        // The slot is used anew, by a directory.
        raise(&table, 9, 2, Parked::Directory(4));
        assert_eq!(table.lower(9, 1, 1), Lowered::Refused);
        assert_eq!(table.lower(9, 2, 1), Lowered::Last(Parked::Directory(4)));
        assert_eq!(table.totals(), (0, 0));
    }

    #[test]
    fn clearing_gives_everything_back() {
        let table = NodeTable::new();
        for slot in 1..5000 {
            raise(&table, slot, 1, Parked::Other(slot));
            raise(&table, slot, 1, Parked::Other(slot));
        }
        assert_eq!(table.totals(), (4999, 9998));
        let mut back = Vec::new();
        table.clear(|parked| back.push(parked));
        assert!(back.into_iter().eq((1..5000).map(Parked::Other)));
        assert_eq!(table.totals(), (0, 0));
    }

    /// Threads raise, and lower what they raised, all on the same few slots. No lower is refused, and every reference that was
    /// parked comes back once.
    #[test]
    fn lookups_race_forgets() {
        const THREADS: u32 = 4;
        let table = NodeTable::new();
        let references = AtomicI64::new(0);
        let start = Barrier::new(THREADS as usize);
        let dropped = || {
            references.fetch_sub(1, Relaxed);
        };
        let work = |seed: u32| {
            start.wait();
            let mut random = seed;
            let mut mine = [0u64; 4];
            let lower = |slot: usize, count: u64| match table.lower(slot as u32 + 1, 1, count) {
                Lowered::Last(_) => dropped(),
                Lowered::Kept => {}
                Lowered::Refused => panic!("these counts are ours"),
            };
            for _ in 0..20_000 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let slot = (random >> 30) as usize;
                if random & (1 << 20) != 0 || mine[slot] == 0 {
                    let back = table.raise(slot as u32 + 1, 1, || {
                        references.fetch_add(1, Relaxed);
                        Parked::Other(1)
                    });
                    if back.is_some() {
                        dropped();
                    }
                    mine[slot] += 1;
                } else {
                    lower(slot, mine[slot]);
                    mine[slot] = 0;
                }
            }
            for (slot, count) in mine.into_iter().enumerate().filter(|&(_, count)| count != 0) {
                lower(slot, count);
            }
        };
        thread::scope(|scope| {
            let work = &work;
            for seed in 0..THREADS {
                scope.spawn(move || work(seed));
            }
        });
        assert_eq!(table.totals(), (0, 0));
        assert_eq!(references.into_inner(), 0);
    }
}
