//! How a writer at the head of the queue says that it waits: three ways, of which time has kept one.
//!
//! | way | kernel | a reader arrives meanwhile | a writer holds the lock |
//! |---|---|---|---|
//! | [`WordCas`] compare-exchange of the whole word | until 2015 | has to try again | has to wait: others may slip in first |
//! | [`ByteCas`] compare-exchange of the writer's byte | 2015 to 2017 | does not matter | has to wait: others may slip in first |
//! | [`OrBit`] set a bit, whatever is there | since 2017 | does not matter | does not matter |
//!
//! The first two can announce only while no writer holds the lock, and a stream of writers that take
//! it at once (they do not queue) may leave no such moment: the head starves (R2.1). They are kept
//! for comparison.

use super::raw::{WAITING, WRITER_BYTE};
use crate::prim::AtomicU32;
use crate::prim::Ordering::Relaxed;

/// How the head of the queue announces a writer. Sealed: [`OrBit`], [`ByteCas`] and [`WordCas`].
pub trait Announce: sealed::Announce {}

pub(super) mod sealed {
    use crate::prim::AtomicU32;

    pub trait Announce: 'static {
        /// Tries to set WAITING. False: not now.
        fn announce(word: &AtomicU32) -> bool;
    }
}

/// Sets the waiting bit at once, whoever holds the lock. The default.
#[derive(Debug)]
pub enum OrBit {}

/// Exchanges the writer's byte, once it is zero: readers do not disturb. A fast writer starves it.
///
/// On x86-64 and aarch64 this is one instruction sequence that the compiler does not see into. To the
/// language it is a read-modify-write of the whole word that leaves the other bytes as they are; no
/// width is mixed. Elsewhere, and under a model checker, it is the same as [`WordCas`].
#[derive(Debug)]
pub enum ByteCas {}

/// Exchanges the whole word, once the writer's byte is zero: every reader that comes or goes in between
/// makes it try again. A fast writer starves it.
#[derive(Debug)]
pub enum WordCas {}

impl Announce for OrBit {}
impl Announce for ByteCas {}
impl Announce for WordCas {}

impl sealed::Announce for OrBit {
    #[inline]
    fn announce(word: &AtomicU32) -> bool {
        // Relaxed: the bit carries no data, it only keeps others out.
        word.fetch_or(WAITING, Relaxed);
        true
    }
}

impl sealed::Announce for ByteCas {
    #[inline]
    fn announce(word: &AtomicU32) -> bool {
        byte_cas(word)
    }
}

impl sealed::Announce for WordCas {
    #[inline]
    fn announce(word: &AtomicU32) -> bool {
        word_cas(word)
    }
}

fn word_cas(word: &AtomicU32) -> bool {
    // Relaxed, here and below: the bit carries no data, it only keeps others out.
    let seen = word.load(Relaxed);
    seen & WRITER_BYTE == 0
        && word.compare_exchange_weak(seen, seen | WAITING, Relaxed, Relaxed).is_ok()
}

#[cfg(not(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(loom, shuttle, miri))
)))]
fn byte_cas(word: &AtomicU32) -> bool {
    word_cas(word)
}

#[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
fn byte_cas(word: &AtomicU32) -> bool {
    let byte = word.as_ptr().cast::<u8>();
    let found: u8;
    // SAFETY: `byte` is the least significant byte of a live atomic word (little-endian). The
    // instruction is atomic, and reads and writes nothing else; as the language sees it, it is one
    // read-modify-write of the whole word, relaxed or stronger.
    unsafe {
        core::arch::asm!(
            "lock cmpxchg byte ptr [{byte}], {waiting}",
            byte = in(reg) byte,
            waiting = in(reg_byte) WAITING as u8,
            inout("al") 0_u8 => found,
            options(nostack),
        );
    }
    found == 0
}

#[cfg(all(target_arch = "aarch64", not(any(loom, shuttle, miri))))]
fn byte_cas(word: &AtomicU32) -> bool {
    let offset = if cfg!(target_endian = "big") { 3 } else { 0 };
    let byte = word.as_ptr().cast::<u8>().wrapping_add(offset);
    let found: u32;
    // SAFETY: `byte` is the least significant byte of a live atomic word. The exclusive pair reads and
    // writes that byte alone, and is one atomic read-modify-write; as the language sees it, of the
    // whole word, relaxed.
    unsafe {
        core::arch::asm!(
            "2: ldxrb {found:w}, [{byte}]",
            "cbnz {found:w}, 3f",
            "stxrb {failed:w}, {waiting:w}, [{byte}]",
            "cbnz {failed:w}, 2b",
            "3:",
            byte = in(reg) byte,
            waiting = in(reg) WAITING,
            found = out(reg) found,
            failed = out(reg) _,
            options(nostack),
        );
    }
    found == 0
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::raw::{PARKED, READER, WRITER};
    use super::sealed::Announce;
    use super::{AtomicU32, ByteCas, OrBit, Relaxed, WAITING, WordCas};

    #[test]
    fn each_sets_the_bit_among_readers_and_nothing_else() {
        let among = (5 * READER) | PARKED;
        for announce in [OrBit::announce, ByteCas::announce, WordCas::announce] {
            let word = AtomicU32::new(among);
            assert!(announce(&word));
            assert_eq!(word.load(Relaxed), among | WAITING);
        }
    }

    #[test]
    fn only_the_bit_can_be_set_under_a_writer() {
        for (announce, expected) in [
            (OrBit::announce as fn(&_) -> _, true),
            (ByteCas::announce, false),
            (WordCas::announce, false),
        ] {
            let word = AtomicU32::new(WRITER);
            assert_eq!(announce(&word), expected);
            assert_eq!(word.load(Relaxed) & WAITING != 0, expected);
        }
    }

    /// The byte form against additions to the rest of the word: none is lost.
    #[test]
    fn the_byte_form_and_readers_share_a_word() {
        let word = AtomicU32::new(0);
        crate::testing::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..200_000 {
                    word.fetch_add(READER, Relaxed);
                    word.fetch_sub(READER, Relaxed);
                }
                word.fetch_add(READER, Relaxed);
            });
            for _ in 0..200_000 {
                assert!(ByteCas::announce(&word));
                word.fetch_and(!WAITING, Relaxed);
            }
        });
        assert_eq!(word.into_inner(), READER);
    }
}
