//! A short byte string that may be read while it is being replaced.
//!
//! # Why
//! A name inside an object is read by walkers without a lock while a rename writes it. Racing plain accesses are undefined in
//! Rust whatever is done with the result, so the bytes live in atomic words, loaded and stored one by one. A reader may see a
//! mix of two names; it compares, and then checks the object's sequence to learn whether what it compared was one name.
//!
//! # Who writes
//! Whoever holds the lock that orders writers of the object; readers are at any time in between.
//!
//! # Orderings
//! All relaxed: the sequence that every reader checks orders them.
//!
//! # Source
//! kernel dentries, whose names are compared during a rename under the same check (`d_seq`).

use crate::prim::{AtomicU32, Ordering};
use core::fmt;

const WORD: usize = size_of::<u32>();

/// Up to `WORDS * 4` bytes. The length is kept by who owns the name.
///
/// ```
/// use vfscale_sync::NameBytes;
///
/// static NAME: NameBytes<4> = NameBytes::new();
///
/// NAME.store(b"passwd");
/// assert!(NAME.eq(b"passwd"));
/// assert!(!NAME.eq(b"shadow"));
/// ```
pub struct NameBytes<const WORDS: usize> {
    words: [AtomicU32; WORDS],
}

impl<const WORDS: usize> NameBytes<WORDS> {
    /// How many bytes fit.
    pub const CAPACITY: usize = WORDS * WORD;

    /// All zero.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        NameBytes { words: [const { AtomicU32::new(0) }; WORDS] }
    }

    /// All zero.
    #[cfg(loom)]
    pub fn new() -> Self {
        NameBytes { words: core::array::from_fn(|_| AtomicU32::new(0)) }
    }

    /// Writes `name`, and zeros up to the next word. Racing readers see some mixture.
    ///
    /// # Panics
    /// If `name` does not fit.
    pub fn store(&self, name: &[u8]) {
        assert!(name.len() <= Self::CAPACITY, "{} bytes do not fit {}", name.len(), Self::CAPACITY);
        for (word, bytes) in self.words.iter().zip(name.chunks(WORD)) {
            word.store(pack(bytes), Ordering::Relaxed);
        }
    }

    /// Whether the first `name.len()` bytes are `name`. False if so many do not fit.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "compares a prefix: not the equality of two names"
    )]
    pub fn eq(&self, name: &[u8]) -> bool {
        if name.len() > Self::CAPACITY {
            return false;
        }
        let (whole, rest) = name.as_chunks::<WORD>();
        for (word, bytes) in self.words.iter().zip(whole) {
            if word.load(Ordering::Relaxed) != u32::from_le_bytes(*bytes) {
                return false;
            }
        }
        // The tail is stored with zeros behind it, but a longer name may have been: compare what is asked for.
        let bits = 8 * rest.len() as u32;
        let Some(word) = self.words.get(whole.len()) else { return true };
        let tail = match name.last_chunk() {
            // The last four bytes, the tail on top. Shifted in two steps: an empty tail is 32 away.
            Some(last) => u32::from_le_bytes(*last) >> 8 >> (24 - bits),
            None => pack(rest),
        };
        word.load(Ordering::Relaxed) & ((1 << bits) - 1) == tail
    }

    /// Copies the first `len` bytes to the start of `out`.
    ///
    /// # Panics
    /// If `len` is more than fits here or in `out`.
    pub fn copy_to(&self, len: usize, out: &mut [u8]) {
        assert!(len <= Self::CAPACITY, "{len} bytes of {}", Self::CAPACITY);
        for (word, bytes) in self.words.iter().zip(out[..len].chunks_mut(WORD)) {
            let loaded = word.load(Ordering::Relaxed).to_le_bytes();
            bytes.copy_from_slice(&loaded[..bytes.len()]);
        }
    }
}

/// Up to four bytes, the first lowest, zeros behind.
#[inline]
fn pack(bytes: &[u8]) -> u32 {
    match *bytes {
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
        [a, b, c] => u32::from_le_bytes([a, b, c, 0]),
        [a, b] => u32::from_le_bytes([a, b, 0, 0]),
        [a] => u32::from(a),
        _ => 0,
    }
}

impl<const WORDS: usize> Default for NameBytes<WORDS> {
    fn default() -> Self {
        NameBytes::new()
    }
}

impl<const WORDS: usize> fmt::Debug for NameBytes<WORDS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for word in &self.words {
            write!(f, "{}", word.load(Ordering::Relaxed).to_le_bytes().escape_ascii())?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_length_come_back() {
        let name: Vec<u8> = (1..=36).collect();
        let bytes = NameBytes::<9>::new();
        // Downwards, so that each leaves the tail of a longer one behind it.
        for len in (0..=36).rev() {
            bytes.store(&name[..len]);
            assert!(bytes.eq(&name[..len]), "length {len}");
            let mut out = [0xff; 40];
            bytes.copy_to(len, &mut out);
            assert_eq!(out[..len], name[..len]);
            assert!(out[len..].iter().all(|b| *b == 0xff), "wrote beyond {len}");
            for at in 0..len {
                let mut other = name[..len].to_vec();
                other[at] ^= 0x80;
                assert!(!bytes.eq(&other), "length {len}, byte {at}");
            }
        }
        assert!(!bytes.eq(&[0; 37]));
    }

    #[test]
    #[should_panic(expected = "do not fit")]
    fn a_name_too_long_is_refused() {
        NameBytes::<1>::new().store(b"abcde");
    }
}
