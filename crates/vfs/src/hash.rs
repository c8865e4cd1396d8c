//! The hash of a name in its directory, taken in the pass that finds where the name ends.
//!
//! # Why
//! A walk must look at each byte of a path for the slash and once more for the hash. Done eight bytes at a time and together, a component
//! of up to seven bytes costs one load and two multiplications.
//!
//! # The hash
//! `h = (parent ^ add) * mul`, then for each word of eight bytes, the last one filled up with zeros, `h = fold((h ^ word) * mul)`, where `fold`
//! adds the two halves of the 128-bit product without carry. A name holds no NUL, so the zeros tell no two names apart wrongly; a
//! name of eight bytes is followed by a word of zeros, so that whole words need no case of their own.
//!
//! `add` and `mul` are the mount's secret. Names are chosen by whoever uses the mount: without the secret nobody can choose
//! ones that meet.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Secrets of this process.
static RANDOM: LazyLock<RandomState> = LazyLock::new(RandomState::new);

const SLASHES: u64 = 0x2f2f_2f2f_2f2f_2f2f;
const ONES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = 0x8080_8080_8080_8080;

/// How a mount hashes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashKey {
    pub(crate) add: u64,
    /// Odd.
    pub(crate) mul: u64,
}

impl HashKey {
    /// A new secret.
    pub(crate) fn new() -> HashKey {
        static MADE: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only to be another one each time.
        let salt = MADE.fetch_add(1, Relaxed);
        HashKey { add: RANDOM.hash_one((salt, 0)), mul: RANDOM.hash_one((salt, 1)) | 1 }
    }

    /// The component of `path` that begins at `at`: where it ends (at a slash, or with the path), and its hash under `parent`. The path
    /// holds no NUL.
    #[inline]
    pub(crate) fn cut(self, parent: u32, path: &[u8], at: usize) -> (usize, u32) {
        let mut hash = (u64::from(parent) ^ self.add).wrapping_mul(self.mul);
        let mut at = at;
        loop {
            let word = word_at(path, at);
            // The lowest mark is exact; those above it may be borrowed.
            let ends = marks_zero(word) | marks_zero(word ^ SLASHES);
            if ends == 0 {
                hash = self.mix(hash, word);
                at += 8;
                continue;
            }
            let mark = ends & ends.wrapping_neg();
            // The bytes below the one that is marked by its top bit.
            hash = self.mix(hash, word & ((mark >> 7) - 1));
            return (at + (mark.trailing_zeros() / 8) as usize, short(hash));
        }
    }

    /// The hash of a whole name.
    #[inline]
    pub(crate) fn name(self, parent: u32, name: &[u8]) -> u32 {
        let (end, hash) = self.cut(parent, name, 0);
        debug_assert_eq!(end, name.len(), "a name holds neither slash nor NUL");
        hash
    }

    /// The hash of two numbers.
    #[inline]
    pub(crate) fn pair(self, a: u64, b: u64) -> u32 {
        short(self.mix(self.mix(self.add, a), b))
    }

    #[inline]
    fn mix(self, hash: u64, word: u64) -> u64 {
        let product = u128::from(hash ^ word) * u128::from(self.mul);
        product as u64 ^ (product >> 64) as u64
    }
}

#[inline]
fn short(hash: u64) -> u32 {
    (hash ^ (hash >> 32)) as u32
}

/// The top bit of each byte that is zero, and perhaps of some above the lowest such byte.
#[inline]
fn marks_zero(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & TOPS
}

/// Eight bytes from `at` on, the first lowest, zeros beyond the end.
#[inline]
fn word_at(bytes: &[u8], at: usize) -> u64 {
    if let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        return u64::from_le_bytes(*word);
    }
    let left = bytes.len().saturating_sub(at);
    match bytes.last_chunk() {
        Some(last) => u64::from_le_bytes(*last) >> 8 >> (56 - 8 * left),
        None => bytes.iter().skip(at).rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}

/// Whether a NUL is in it.
#[inline]
pub(crate) fn holds_nul(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks();
    words.iter().any(|word| marks_zero(u64::from_le_bytes(*word)) != 0) || rest.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_component_ends_where_it_ends_and_hashes_as_the_name_alone() {
        let key = HashKey::new();
        for len in 1..40 {
            let name: Vec<u8> = (0..len).map(|i| b'\x30' + (i * 37 % 200) as u8).collect();
            let hash = key.name(5, &name);
            for before in 0..10 {
                for after in [&b""[..], b"/", b"/x", b"//", b"/longer than a word", b"/.."] {
                    let path = [&b"/".repeat(before), name.as_slice(), after].concat();
                    let end = before + name.len();
                    assert_eq!(key.cut(5, &path, before), (end, hash), "{}", path.escape_ascii());
                }
            }
        }
        assert_eq!(key.cut(5, b"a/", 2).0, 2, "nothing is left");
    }

    #[test]
    fn bytes_beside_slash_and_nul_end_nothing() {
        let key = HashKey::new();
        for byte in 1..=255_u8 {
            let name = [b'a', byte, b'a', byte, byte, b'b', byte, byte, byte, b'c'];
            let ends = if byte == b'/' { 1 } else { name.len() };
            assert_eq!(key.cut(0, &name, 0).0, ends, "byte {byte:#x}");
            assert!(!holds_nul(&name));
            for at in 0..name.len() {
                let mut name = name;
                name[at] = 0;
                assert!(holds_nul(&name));
            }
        }
    }

    #[test]
    fn hashes_spread_over_few_bits() {
        let key = HashKey::new();
        // Names that differ in one place, directories that differ in one bit.
        let names = (0..2048).map(|i| format!("file-{i:05}.txt"));
        let hashes: Vec<u32> =
            names.flat_map(|n| [1, 2, 3].map(|p| key.name(p, n.as_bytes()))).collect();
        for shift in [0, 20] {
            let mut load = [0_u32; 4096];
            hashes.iter().for_each(|hash| load[(hash >> shift & 4095) as usize] += 1);
            // 1.5 on the average: fifteen in one place would be one chance in 10^9.
            assert!(load.iter().all(|&n| n < 15), "a crowd of {:?}", load.iter().max());
        }
        let numbers = (0..4096_u64).flat_map(|i| [key.pair(i, 0), key.pair(i << 32, 1)]);
        assert!(numbers.collect::<HashSet<_>>().len() > 8180);
    }

    #[test]
    fn another_key_hashes_otherwise() {
        let [one, two] = [(), ()].map(|()| HashKey::new());
        let same = (0..1000_u32).filter(|i| one.name(*i, b"name") == two.name(*i, b"name"));
        assert!(same.count() < 2);
    }
}
