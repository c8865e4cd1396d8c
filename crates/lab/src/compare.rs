//! Is one run slower than another?
//!
//! Two runs at different times have no pairs, so the medians are compared, with an interval drawn from both. A row counts as slower only if
//! its median, its best turn and the whole interval say so: one disturbed round changes none of them, and two runs of the same
//! build stay quiet.

use std::path::Path;

use crate::Error;
use crate::numbers::{Estimate, extremes};
use crate::record::{Document, Row};

/// The median and the best turn must be slower by this factor.
const SLOWER: f64 = 1.12;
/// And the interval must lie above this one.
const CERTAIN: f64 = 1.05;

/// One row that both runs have.
#[derive(Debug)]
struct Change<'a> {
    row: &'a Row,
    ratio: Estimate,
    /// Ratio of the best turns.
    best: f64,
}

impl Change<'_> {
    fn is_slower(&self) -> bool {
        self.ratio.median > SLOWER && self.best > SLOWER && self.ratio.low > CERTAIN
    }
}

/// Prints the rows that both files have; fails if one is slower in the second.
pub(crate) fn run(before: &Path, after: &Path) -> Result<(), Error> {
    let (before, after) = (Document::read(before)?, Document::read(after)?);
    let changes = changes(&before, &after);
    if changes.is_empty() {
        return Err(Error::Usage("the two runs have no arm and case in common".to_owned()));
    }
    println!(
        "{:<16}{:<16}{:>8}{:>7}{:>9}{:>16}{:>8}",
        "scenario", "arm", "threads", "think", "ratio", "95 % interval", "best"
    );
    for change in &changes {
        let Estimate { median, low, high } = change.ratio;
        println!(
            "{:<16}{:<16}{:>8}{:>7}{median:>9.3}{:>16}{:>8.3}{}",
            change.row.case.scenario,
            change.row.arm,
            change.row.case.threads,
            change.row.case.think_ns,
            format!("{low:.3}-{high:.3}"),
            change.best,
            if change.is_slower() { "  SLOWER" } else { "" }
        );
    }
    match changes.iter().filter(|change| change.is_slower()).count() {
        0 => Ok(()),
        slower => Err(Error::Missed(format!("{slower} of {} rows are slower", changes.len()))),
    }
}

fn changes<'a>(before: &Document, after: &'a Document) -> Vec<Change<'a>> {
    let change = |row: &'a Row| {
        let old = before.find(&row.case, &row.arm)?.values("ns");
        let new = row.values("ns");
        let best = extremes(&new)?.0 / extremes(&old)?.0;
        Some(Change { row, ratio: Estimate::of_unpaired(&new, &old)?, best })
    };
    after.rows.iter().filter_map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine;
    use crate::record::{Case, Turn};

    /// A run whose turns vary by some percent, as they do.
    fn run_of(factor: f64, seed: u32) -> Document {
        let mut document = Document::new(machine::describe());
        let case = Case { scenario: "s".to_owned(), threads: 1, think_ns: 0 };
        let turns = (0..10)
            .map(|turn| {
                let noise = f64::from((turn * 37 + seed * 11) % 17) / 17.0 * 0.08;
                let outlier = if turn == seed % 10 { 1.6 } else { 1.0 };
                Turn::from([("ns".to_owned(), 5.0 * factor * (1.0 + noise) * outlier)])
            })
            .collect();
        document.rows.push(Row {
            case,
            arm: "a".to_owned(),
            oversubscribed: false,
            rejected: 0,
            disturbed: 0,
            turns,
        });
        document
    }

    #[test]
    fn a_fifth_slower_is_seen_and_noise_is_not() {
        for seed in 0..10 {
            let slower = |factor| {
                let (before, after) = (run_of(1.0, seed), run_of(factor, seed + 3));
                changes(&before, &after)[0].is_slower()
            };
            assert!(slower(1.2), "seed {seed}");
            assert!(!slower(1.0), "seed {seed}");
            assert!(!slower(0.8), "seed {seed}");
        }
    }

    #[test]
    fn a_broken_file_is_told_from_a_run() {
        let dir = std::env::temp_dir().join(format!("vfscale-lab-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let (good, bad) = (dir.join("good.json"), dir.join("bad.json"));
        run_of(1.0, 1).write(&good).expect("written");
        run(&good, &good).expect("the same run is not slower than itself");
        for text in ["", "{", "[1, 2]", "{\"format\": 2}"] {
            std::fs::write(&bad, text).expect("written");
            let error = run(&good, &bad).expect_err("not a run");
            assert!(matches!(error, Error::Usage(_)), "{error}");
            assert!(error.to_string().contains("bad.json"), "{error}");
        }
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
