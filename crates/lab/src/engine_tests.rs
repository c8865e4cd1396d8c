use std::sync::atomic::AtomicU64;
use std::time::Instant;

use super::*;
use crate::scenario::{Subject, expect};

fn toy(rounds: u32) -> Plan {
    Plan { turn: Duration::from_millis(4), rounds, disturbance: f64::INFINITY }
}

fn go(scenario: &Scenario, threads: usize, plan: &Plan, stop: bool) -> Result<Vec<Row>, Error> {
    let arms = scenario.select(&[])?;
    let stop = AtomicBool::new(stop);
    let progress = indicatif::ProgressBar::hidden();
    let control = Control { stop: &stop, progress: &progress };
    run(scenario, &arms, (threads, scenario.think_ns[0]), plan, &control)
}

/// Every scenario at toy size: the arms run, and their own checks hold.
#[test]
fn all_scenarios_run_at_toy_size() {
    for scenario in crate::scenarios::ALL {
        for threads in [1, 2, 3] {
            let rows = go(scenario, threads, &toy(2), false).expect("a scenario that checks out");
            assert_eq!(rows.len(), scenario.arms.len());
            for row in rows {
                assert_eq!(row.turns.len(), 2, "{row:?}");
                assert!(row.values("rate").iter().all(|&rate| rate >= 0.0), "{row:?}");
            }
        }
    }
}

/// Adds with a load and a store, as no counter should.
#[derive(Debug)]
struct Lossy(AtomicU64);

impl Subject for Lossy {
    fn work(&self, worker: &mut Worker<'_>) {
        let begun = Instant::now();
        worker.repeat::<64>(|| {
            let value = self.0.load(Ordering::Relaxed);
            // So long that a second thread gets in between, also on one processor.
            if value.is_multiple_of(64) && begun.elapsed() < Duration::from_millis(3) {
                thread::yield_now();
            }
            self.0.store(value + 1, Ordering::Relaxed);
        });
    }

    fn check(&self, done: &[u64]) -> Result<(), String> {
        let total: u64 = done.iter().sum();
        expect("the count", total as i64, self.0.load(Ordering::Relaxed) as i64)
    }
}

const LOSSY: Scenario = Scenario {
    name: "lossy",
    question: "is a lost update noticed?",
    source: "the harness's own check",
    operation: "add",
    threads: &[2],
    think_ns: &[0],
    arms: &[Arm {
        name: "lossy",
        what: "load, add, store",
        make: |_| Box::new(Lossy(AtomicU64::new(0))),
    }],
};

#[test]
fn a_planted_lost_update_is_caught() {
    go(&LOSSY, 1, &toy(2), false).expect("one thread alone loses nothing");
    let error = go(&LOSSY, 4, &toy(8), false).expect_err("lost updates");
    assert!(matches!(error, Error::WrongAnswer(_)), "{error}");
    assert!(error.to_string().contains("the count is"), "{error}");
}

#[test]
fn an_unknown_arm_is_refused() {
    let error = crate::scenarios::ALL[0].select(&["nobody".to_owned()]).unwrap_err();
    assert!(error.to_string().contains("nobody"), "{error}");
}

#[test]
fn a_stopped_run_keeps_what_is_finished() {
    assert!(go(&LOSSY, 1, &toy(2), true).expect("no round, no error").is_empty());
}

#[test]
fn a_disturbed_round_is_repeated_a_bounded_number_of_times() {
    let plan = Plan { disturbance: -1.0, ..toy(3) };
    let rows = go(&LOSSY, 1, &plan, false).expect("it gives up rejecting");
    assert_eq!((rows[0].turns.len(), rows[0].rejected, rows[0].disturbed), (3, 3, 3));
}

#[test]
fn shares_are_compared_within_a_part_and_waits_are_told_apart() {
    let second = Duration::from_secs(1);
    let reader = |done| Sample { role: "reader", done, time: second, ..Sample::default() };
    let writer = Sample {
        role: "writer",
        done: 10,
        time: second,
        waited: Some((Duration::from_micros(50), Duration::from_micros(30))),
        worst_gap: Duration::from_micros(30),
        ..Sample::default()
    };
    let turn = measures(&[writer, reader(900), reader(1_100)]);
    assert_eq!(turn["writer_wait_ns"], 5_000.0);
    assert_eq!(turn["writer_worst_us"], 30.0);
    assert_eq!((turn["reader_rate"], turn["rate"]), (2_000.0, 2_010.0));
    assert_eq!((turn["least_share"], turn["most_share"]), (0.9, 1.1));
    assert!(turn["jain"] > 0.98 && turn["jain"] < 1.0, "{turn:?}");
}

#[test]
fn a_thread_that_never_ran_is_a_share_of_nothing() {
    let turn = measures(&[Sample::default(), Sample::default()]);
    assert_eq!(turn["least_share"], 0.0);
    assert!(turn.values().all(|value| value.is_finite()), "{turn:?}");
}
