//! What a scenario is made of.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};

/// A question, and who answers it.
#[derive(Debug)]
pub(crate) struct Scenario {
    /// What it is called on the command line.
    pub(crate) name: &'static str,
    /// What it asks.
    pub(crate) question: &'static str,
    /// What one operation is.
    pub(crate) operation: &'static str,
    /// Who takes part.
    pub(crate) arms: &'static [Arm],
}

/// One contender.
#[derive(Debug)]
pub(crate) struct Arm {
    /// What it is called on the command line and in tables.
    pub(crate) name: &'static str,
    /// What it is.
    pub(crate) what: &'static str,
    /// Makes a fresh object for so many threads.
    pub(crate) make: fn(threads: usize) -> Box<dyn Subject>,
}

/// The object that the threads of one turn share.
pub(crate) trait Subject: Sync + Debug {
    /// Works as thread `thread` until `stop`, and answers with the number of operations.
    fn work(&self, thread: usize, stop: &AtomicBool) -> u64;

    /// After all threads are done, `done` operations each: is the object as it must be?
    fn check(&self, done: &[u64]) -> Result<(), String>;
}

impl Scenario {
    /// The arms of these names, or all of them.
    pub(crate) fn select(&self, names: &[String]) -> Result<Vec<&'static Arm>, String> {
        if let Some(unknown) =
            names.iter().find(|name| self.arms.iter().all(|arm| arm.name != **name))
        {
            return Err(format!("{}: no arm {unknown:?}", self.name));
        }
        let chosen = |arm: &&Arm| names.is_empty() || names.iter().any(|name| name == arm.name);
        Ok(self.arms.iter().filter(chosen).collect())
    }
}

/// Repeats an operation until `stop`, and counts. The flag is looked at once per batch, so it costs nothing that shows.
#[inline]
pub(crate) fn until(stop: &AtomicBool, mut operation: impl FnMut()) -> u64 {
    const BATCH: u64 = 256;
    let mut done = 0;
    // Relaxed: nothing is read because of it; the join orders the results.
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..BATCH {
            operation();
        }
        done += BATCH;
    }
    done
}
