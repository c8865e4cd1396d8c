//! Turns, rounds and what they measured.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::machine;
use crate::scenario::{Arm, Scenario};

/// How much of everything.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Length of one turn.
    pub(crate) turn: Duration,
    /// Turns of each arm.
    pub(crate) rounds: u32,
    /// The thread counts.
    pub(crate) threads: Vec<usize>,
}

/// One turn of one arm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// Nanoseconds per operation of one thread, the mean over the threads.
    pub(crate) ns: f64,
    /// Operations per second of all threads together.
    pub(crate) rate: f64,
    /// The operations of the thread that got the fewest, as a share of an equal share.
    pub(crate) worst_share: f64,
}

/// All turns of one arm with one number of threads.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) arm: &'static str,
    pub(crate) threads: usize,
    pub(crate) turns: Vec<Turn>,
}

/// All rows of one scenario.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) scenario: &'static Scenario,
    pub(crate) rows: Vec<Row>,
}

impl Row {
    /// Lowest, middle and highest nanoseconds.
    pub(crate) fn spread(&self) -> [f64; 3] {
        let mut sorted: Vec<f64> = self.turns.iter().map(|turn| turn.ns).collect();
        sorted.sort_by(f64::total_cmp);
        [sorted[0], median(&sorted), sorted[sorted.len() - 1]]
    }

    /// Middle operations per second.
    pub(crate) fn rate(&self) -> f64 {
        let mut sorted: Vec<f64> = self.turns.iter().map(|turn| turn.rate).collect();
        sorted.sort_by(f64::total_cmp);
        median(&sorted)
    }

    /// The worst share of any turn.
    pub(crate) fn worst_share(&self) -> f64 {
        self.turns.iter().map(|turn| turn.worst_share).fold(1.0, f64::min)
    }
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    } else {
        sorted[middle]
    }
}

/// Runs all arms with all thread counts. Every second pass goes through the arms backwards.
pub(crate) fn run(
    scenario: &'static Scenario,
    arms: &[&'static Arm],
    plan: &Plan,
) -> Result<Outcome, String> {
    let mut rows = Vec::new();
    for &threads in &plan.threads {
        let mut turns: Vec<Vec<Turn>> = arms.iter().map(|_| Vec::new()).collect();
        for round in 0..plan.rounds {
            let forwards: Vec<usize> = (0..arms.len()).collect();
            let order: Vec<usize> =
                if round % 2 == 0 { forwards } else { forwards.into_iter().rev().collect() };
            for at in order {
                turns[at].push(turn(arms[at], threads, plan.turn)?);
            }
        }
        for (arm, turns) in arms.iter().zip(turns) {
            rows.push(Row { arm: arm.name, threads, turns });
        }
    }
    Ok(Outcome { scenario, rows })
}

/// One turn: fresh object, threads pinned, started together, stopped together, counts checked.
fn turn(arm: &Arm, threads: usize, length: Duration) -> Result<Turn, String> {
    let subject = (arm.make)(threads);
    let stop = AtomicBool::new(false);
    let start = Barrier::new(threads + 1);
    let measured: Vec<(u64, Duration)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                let (subject, stop, start) = (&*subject, &stop, &start);
                scope.spawn(move || {
                    machine::pin(number);
                    start.wait();
                    let begun = Instant::now();
                    let done = subject.work(number, stop);
                    (done, begun.elapsed())
                })
            })
            .collect();
        start.wait();
        thread::sleep(length);
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    let done: Vec<u64> = measured.iter().map(|(done, _)| *done).collect();
    subject.check(&done).map_err(|why| format!("{} with {threads} threads: {why}", arm.name))?;

    // A worker that got no processor before the end has done nothing; that is a share of 0, not a division by it.
    let total: u64 = done.iter().sum();
    let spent: Duration = measured.iter().map(|(_, time)| *time).sum();
    let longest = measured.iter().map(|(_, time)| *time).max().unwrap_or_default();
    let fewest = done.iter().min().copied().unwrap_or_default();
    Ok(Turn {
        ns: spent.as_nanos() as f64 / total.max(1) as f64,
        rate: total as f64 / longest.as_secs_f64(),
        worst_share: fewest as f64 * threads as f64 / total.max(1) as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ns: &[f64]) -> Row {
        let turns = ns.iter().map(|&ns| Turn { ns, rate: 1e9 / ns, worst_share: 1.0 }).collect();
        Row { arm: "a", threads: 1, turns }
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(row(&[4.0, 1.0, 2.0, 9.0]).spread(), [1.0, 3.0, 9.0]);
        assert_eq!(row(&[4.0, 1.0, 2.0]).spread(), [1.0, 2.0, 4.0]);
    }

    /// Every scenario at toy size: the arms run, and their own checks hold.
    #[test]
    fn all_scenarios_run_at_toy_size() {
        let plan = Plan { turn: Duration::from_millis(5), rounds: 2, threads: vec![1, 2, 3] };
        for scenario in crate::scenarios::ALL {
            let arms = scenario.select(&[]).expect("all arms");
            let result = run(scenario, &arms, &plan).expect("a scenario that checks out");
            assert_eq!(result.rows.len(), arms.len() * plan.threads.len());
            assert!(result.rows.iter().all(|row| row.turns.len() == 2 && row.rate() > 0.0));
        }
    }

    #[test]
    fn an_unknown_arm_is_refused() {
        let error = crate::scenarios::ALL[0].select(&["nobody".to_owned()]).unwrap_err();
        assert!(error.contains("nobody"), "{error}");
    }
}
