//! Which descriptor numbers are taken: a bit per number, and a bit per word of those that is full.
//!
//! The second row keeps the search for the lowest free number short: 64 words of it answer for a quarter of a million numbers.

/// Numbers that are taken, whether a file stands behind them or they are only reserved.
#[derive(Default)]
pub(super) struct Numbers {
    used: Vec<u64>,
    /// One bit per word of `used`: all 64 are taken.
    full: Vec<u64>,
    /// No number below is free.
    lowest: u32,
    count: usize,
}

impl Numbers {
    /// Takes the lowest free number from `from` on and below `limit`.
    pub(super) fn take(&mut self, from: u32, limit: u32) -> Option<u32> {
        let number = self.next_free(from.max(self.lowest)).filter(|&number| number < limit)?;
        self.mark(number);
        if from <= self.lowest {
            self.lowest = number + 1;
        }
        Some(number)
    }

    /// Takes this one; `false` if it was taken.
    pub(super) fn take_exactly(&mut self, number: u32) -> bool {
        let free = !self.is_taken(number);
        if free {
            self.mark(number);
        }
        free
    }

    pub(super) fn is_taken(&self, number: u32) -> bool {
        let word = self.used.get(number as usize / 64).copied().unwrap_or(0);
        word & (1 << (number % 64)) != 0
    }

    pub(super) fn release(&mut self, number: u32) {
        debug_assert!(self.is_taken(number), "descriptor {number} was not taken");
        let word = number as usize / 64;
        self.used[word] &= !(1 << (number % 64));
        self.full[word / 64] &= !(1 << (word % 64));
        self.lowest = self.lowest.min(number);
        self.count -= 1;
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// One more than the highest number ever taken, rounded up to a word.
    pub(super) fn end(&self) -> u32 {
        u32::try_from(self.used.len() * 64).unwrap_or(u32::MAX)
    }

    fn next_free(&self, from: u32) -> Option<u32> {
        let word = from as usize / 64;
        let Some(bits) = self.used.get(word) else { return Some(from) };
        let taken = bits | ((1 << (from % 64)) - 1);
        let (word, bit) = if taken != u64::MAX {
            (word, taken.trailing_ones())
        } else {
            let word = self.next_not_full(word + 1);
            (word, self.used.get(word).map_or(0, |bits| bits.trailing_ones()))
        };
        u32::try_from(word * 64).ok()?.checked_add(bit)
    }

    /// The first word from `word` on with a free number in it; behind the last, all have.
    fn next_not_full(&self, word: usize) -> usize {
        let mut skip = (1 << (word % 64)) - 1;
        for (group, full) in self.full.iter().enumerate().skip(word / 64) {
            let full = full | skip;
            if full != u64::MAX {
                return group * 64 + full.trailing_ones() as usize;
            }
            skip = 0;
        }
        self.used.len()
    }

    fn mark(&mut self, number: u32) {
        let word = number as usize / 64;
        if word >= self.used.len() {
            self.used.resize(word + 1, 0);
            self.full.resize(word / 64 + 1, 0);
        }
        self.used[word] |= 1 << (number % 64);
        if self.used[word] == u64::MAX {
            self.full[word / 64] |= 1 << (word % 64);
        }
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_lowest_free_number_comes_first() {
        let mut numbers = Numbers::default();
        for n in 0..130 {
            assert_eq!(numbers.take(0, 130), Some(n));
        }
        assert_eq!(numbers.take(0, 130), None);
        for number in [70, 3, 129] {
            numbers.release(number);
        }
        assert_eq!([3, 70, 129].map(Some), [(); 3].map(|()| numbers.take(0, 130)));
        assert_eq!(numbers.count(), 130);
    }

    /// Against a plain set, over more numbers than one word of full words stands for.
    #[test]
    fn agrees_with_a_set() {
        const LIMIT: u32 = 5_000;
        let mut numbers = Numbers::default();
        let mut free: BTreeSet<u32> = (0..LIMIT).collect();
        let mut random = 7_u64;
        for step in 0..60_000_u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
            let n = (random >> 33) as u32 % LIMIT;
            let from = if step % 3 == 0 { n } else { 0 };
            // It fills at first and is emptied and filled again around full words later.
            if !random.is_multiple_of(7) || step < 6_000 {
                let expected = free.range(from..).next().copied();
                assert_eq!(numbers.take(from, LIMIT), expected, "step {step}, from {from}");
                expected.map(|number| free.remove(&number));
            } else if numbers.is_taken(n) {
                numbers.release(n);
                assert!(free.insert(n));
            } else {
                assert!(numbers.take_exactly(n) && !numbers.take_exactly(n));
                assert!(free.remove(&n));
            }
            assert_eq!(numbers.count(), LIMIT as usize - free.len());
        }
    }
}
