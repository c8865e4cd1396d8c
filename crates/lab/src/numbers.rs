//! The statistics: medians, fairness, and how far a ratio can be trusted.

/// The middle, or the mean of the two middles. `None` without values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.is_empty() {
        None
    } else if sorted.len().is_multiple_of(2) {
        Some(f64::midpoint(sorted[middle - 1], sorted[middle]))
    } else {
        Some(sorted[middle])
    }
}

/// The lowest and the highest. `None` without values.
pub(crate) fn extremes(values: &[f64]) -> Option<(f64, f64)> {
    let low = values.iter().copied().reduce(f64::min)?;
    Some((low, values.iter().copied().reduce(f64::max)?))
}

/// Jain's index: 1 if all got the same, 1/n if one got everything.
pub(crate) fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

/// A median with the interval that holds it 95 times in 100.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Estimate {
    /// Of these values, by drawing as many of them with repetition, often (a percentile bootstrap). `None` without values.
    pub(crate) fn of(values: &[f64]) -> Option<Estimate> {
        Estimate::drawn(|dice| {
            let drawn: Vec<f64> = values.iter().map(|_| values[dice.below(values.len())]).collect();
            median(&drawn)
        })
        .zip(median(values))
        .map(|((low, high), median)| Estimate { median, low, high })
    }

    /// Of the ratio of two medians whose values are not pairs: two runs at different times.
    pub(crate) fn of_unpaired(above: &[f64], below: &[f64]) -> Option<Estimate> {
        let middle = median(above)? / median(below)?;
        let draw = |values: &[f64], dice: &mut Dice| {
            let drawn: Vec<f64> = values.iter().map(|_| values[dice.below(values.len())]).collect();
            median(&drawn)
        };
        let (low, high) = Estimate::drawn(|dice| Some(draw(above, dice)? / draw(below, dice)?))?;
        Some(Estimate { median: middle, low, high })
    }

    fn drawn(mut once: impl FnMut(&mut Dice) -> Option<f64>) -> Option<(f64, f64)> {
        const DRAWS: usize = 2_000;
        // The same dice each time: the same points give the same interval.
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
        let mut medians: Vec<f64> = (0..DRAWS).map_while(|_| once(&mut dice)).collect();
        medians.sort_by(f64::total_cmp);
        let at = |share: f64| medians.get((share * (DRAWS - 1) as f64) as usize).copied();
        at(0.025).zip(at(0.975))
    }
}

/// Numbers without pattern (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        ((u128::from(mixed) * end as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[]), None);
        assert_eq!(extremes(&[4.0, 1.0, 2.0]), Some((1.0, 4.0)));
    }

    #[test]
    fn jain_is_one_for_equals_and_a_share_for_a_tyrant() {
        assert!((jain(&[3.0, 3.0, 3.0]) - 1.0).abs() < 1e-12);
        assert!((jain(&[8.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
    }

    #[test]
    fn the_interval_holds_the_median_and_narrows_with_more_values() {
        let values = |n: u32| -> Vec<f64> {
            (0..n).map(|i| 1.0 + f64::from(i * 7919 % 101) / 100.0).collect()
        };
        let few = Estimate::of(&values(8)).expect("values");
        let many = Estimate::of(&values(200)).expect("values");
        assert!(few.low <= few.median && few.median <= few.high, "{few:?}");
        assert!(many.low < 1.5 && 1.5 < many.high, "{many:?}");
        assert!(many.high - many.low < few.high - few.low, "{many:?} and {few:?}");
        assert_eq!(Estimate::of(&[]), None);
    }

    #[test]
    fn unpaired_runs_of_one_distribution_differ_by_nothing() {
        let run: Vec<f64> = (0..30).map(|i| 10.0 + f64::from(i % 5) * 0.1).collect();
        let slower: Vec<f64> = run.iter().map(|value| value * 1.2).collect();
        let same = Estimate::of_unpaired(&run, &run).expect("values");
        let other = Estimate::of_unpaired(&slower, &run).expect("values");
        assert!(same.low <= 1.0 && 1.0 <= same.high, "{same:?}");
        assert!(other.low > 1.15 && other.high < 1.25, "{other:?}");
    }
}
