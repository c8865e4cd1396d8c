//! Turns and rounds: who is measured when, and what is thrown away.
//!
//! In one round each arm has one turn; every second round goes backwards, `A B B A`, so a slow spell of the machine falls on all
//! of them, and the n-th turns of two arms, taken within a second of each other, can be compared as a pair. A round in which others
//! used the processors is thrown away and repeated, a bounded number of times. Before the first round each arm has a turn that does not
//! count. Each turn makes a fresh object, so no arm lives off one lucky address.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::Error;
use crate::machine::{self, Watch};
use crate::numbers::jain;
use crate::record::{Case, Row, Turn};
use crate::sample::{Sample, Setup, Think, Worker};
use crate::scenario::{Arm, Scenario};

/// How much of everything.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Length of one turn.
    pub(crate) turn: Duration,
    /// Turns of each arm that count.
    pub(crate) rounds: u32,
    /// A round is thrown away if others used more than this share of the machine.
    pub(crate) disturbance: f64,
}

/// Whom a run tells how far it is, and who may end it.
#[derive(Debug)]
pub(crate) struct Control<'a> {
    /// Set when the user wants no more.
    pub(crate) stop: &'a AtomicBool,
    pub(crate) progress: &'a indicatif::ProgressBar,
}

/// Runs the arms of one scenario under one condition.
///
/// Stopped before its end it yields the rounds that were finished, perhaps none.
pub(crate) fn run(
    scenario: &Scenario,
    arms: &[&'static Arm],
    setup: (usize, u32),
    plan: &Plan,
    control: &Control<'_>,
) -> Result<Vec<Row>, Error> {
    let (threads, think_ns) = setup;
    let setup = Setup { threads, think: Think::of_ns(think_ns) };
    let case = Case { scenario: scenario.name.to_owned(), threads, think_ns };
    control.progress.set_message(format!("{}, {threads} threads", scenario.name));

    let mut turns: Vec<Vec<Turn>> = arms.iter().map(|_| Vec::new()).collect();
    let (mut rejected, mut disturbed) = (0, 0);
    for arm in arms {
        turn(scenario, arm, &setup, plan.turn / 4)?;
    }
    let mut round = 0;
    while round < plan.rounds {
        let watch = Watch::start();
        let Some(measured) = one_round(scenario, arms, &setup, plan, round % 2 == 1, control)?
        else {
            break;
        };
        let is_disturbed = watch.disturbance() > plan.disturbance;
        if is_disturbed && rejected < plan.rounds {
            rejected += 1;
            continue;
        }
        disturbed += u32::from(is_disturbed);
        for (turns, turn) in turns.iter_mut().zip(measured) {
            turns.push(turn);
        }
        round += 1;
        control.progress.inc(arms.len() as u64);
    }
    let rows = arms.iter().zip(turns).filter(|(_, turns)| !turns.is_empty());
    Ok(rows
        .map(|(arm, turns)| Row {
            case: case.clone(),
            arm: arm.name.to_owned(),
            oversubscribed: threads > machine::cpus(),
            rejected,
            disturbed,
            turns,
        })
        .collect())
}

/// One turn of each arm, in the arms' order. `None` if it was stopped in between.
fn one_round(
    scenario: &Scenario,
    arms: &[&'static Arm],
    setup: &Setup,
    plan: &Plan,
    backwards: bool,
    control: &Control<'_>,
) -> Result<Option<Vec<Turn>>, Error> {
    let mut measured: Vec<Turn> = arms.iter().map(|_| Turn::new()).collect();
    for step in 0..arms.len() {
        // Relaxed: it carries nothing but itself.
        if control.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let at = if backwards { arms.len() - 1 - step } else { step };
        measured[at] = turn(scenario, arms[at], setup, plan.turn)?;
    }
    Ok(Some(measured))
}

/// One turn: fresh object, threads pinned, started together, stopped together, counts checked.
fn turn(scenario: &Scenario, arm: &Arm, setup: &Setup, length: Duration) -> Result<Turn, Error> {
    let subject = (arm.make)(setup);
    let stop = AtomicBool::new(false);
    let start = Barrier::new(setup.threads + 1);
    let samples: Vec<Sample> = thread::scope(|scope| {
        let workers: Vec<_> = (0..setup.threads)
            .map(|number| {
                let (subject, stop, start) = (&*subject, &stop, &start);
                scope.spawn(move || {
                    machine::pin(number);
                    let mut worker = Worker::new(number, stop);
                    start.wait();
                    subject.work(&mut worker);
                    worker.sample
                })
            })
            .collect();
        start.wait();
        thread::sleep(length);
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    let done: Vec<u64> = samples.iter().map(|sample| sample.done).collect();
    subject.check(&done).map_err(|why| {
        Error::WrongAnswer(format!(
            "{}, arm {}, {} threads: {why}",
            scenario.name, arm.name, setup.threads
        ))
    })?;
    let mut turn = measures(&samples);
    turn.extend(subject.values().into_iter().map(|(name, value)| (name.to_owned(), value)));
    Ok(turn)
}

/// What the samples of all threads say together.
fn measures(samples: &[Sample]) -> Turn {
    let mut turn = Turn::new();
    let mut put = |name: String, value: f64| turn.insert(name, value);
    // A thread that got no processor before the end has done nothing; that is a share of 0, not a division by it.
    let total: u64 = samples.iter().map(|sample| sample.done).sum();
    let spent: Duration = samples.iter().map(|sample| sample.time).sum();
    let worst_gap = samples.iter().map(|sample| sample.worst_gap).max().unwrap_or_default();
    put("ns".to_owned(), spent.as_nanos() as f64 / total.max(1) as f64);
    put("rate".to_owned(), rate(samples.iter()));
    put("worst_us".to_owned(), micros(worst_gap));

    // Who plays another part does another amount of work: shares are compared within a part.
    let mut roles: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        roles.entry(sample.role).or_default().push(sample);
    }
    let shares: Vec<Vec<f64>> = roles
        .values()
        .map(|members| {
            let sum: u64 = members.iter().map(|sample| sample.done).sum();
            let equal = sum.max(1) as f64 / members.len() as f64;
            members.iter().map(|sample| sample.done as f64 / equal).collect()
        })
        .collect();
    let flat = || shares.iter().flatten().copied();
    put("least_share".to_owned(), flat().fold(f64::INFINITY, f64::min));
    put("most_share".to_owned(), flat().fold(0.0, f64::max));
    put("jain".to_owned(), shares.iter().map(|of_role| jain(of_role)).fold(1.0, f64::min));

    for (role, members) in roles.iter().filter(|(role, _)| !role.is_empty()) {
        put(format!("{role}_rate"), rate(members.iter().copied()));
        let worst = members.iter().map(|sample| sample.worst_gap).max().unwrap_or_default();
        put(format!("{role}_worst_us"), micros(worst));
        let waits: Vec<_> = members.iter().filter_map(|sample| sample.waited).collect();
        if !waits.is_empty() {
            let waited: Duration = waits.iter().map(|(total, _)| *total).sum();
            let count: u64 = members.iter().map(|sample| sample.done).sum();
            put(format!("{role}_wait_ns"), waited.as_nanos() as f64 / count.max(1) as f64);
        }
    }
    for (at, (name, _)) in samples.first().map_or(&[][..], |first| &first.parts).iter().enumerate()
    {
        let slowest = samples.iter().filter_map(|sample| sample.parts.get(at));
        put((*name).to_owned(), slowest.map(|(_, ns)| *ns).fold(0.0, f64::max));
    }
    turn
}

/// Operations a second of all these together.
fn rate<'a>(samples: impl Iterator<Item = &'a Sample> + Clone) -> f64 {
    let done: u64 = samples.clone().map(|sample| sample.done).sum();
    let longest = samples.map(|sample| sample.time).max().unwrap_or_default();
    done as f64 / longest.as_secs_f64().max(1e-9)
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1_000.0
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
