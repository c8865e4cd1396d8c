//! What a scenario is made of.

use std::fmt::Debug;

use crate::Error;
use crate::sample::{Setup, Worker};

/// A question, and who answers it.
#[derive(Debug)]
pub(crate) struct Scenario {
    /// What it is called on the command line.
    pub(crate) name: &'static str,
    /// What it asks.
    pub(crate) question: &'static str,
    /// Where the question comes from.
    pub(crate) source: &'static str,
    /// What one operation is.
    pub(crate) operation: &'static str,
    /// The thread counts it is asked for, unless the command line says otherwise.
    pub(crate) threads: &'static [usize],
    /// Nanoseconds of work elsewhere after each operation: the cases it is asked for.
    pub(crate) think_ns: &'static [u32],
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
    /// Makes a fresh object.
    pub(crate) make: fn(&Setup) -> Box<dyn Subject>,
}

/// The object that the threads of one turn share.
pub(crate) trait Subject: Sync + Debug {
    /// Works as one of the threads until the turn is over.
    fn work(&self, worker: &mut Worker<'_>);

    /// After all threads are done, `done` operations each: is the object as it must be?
    fn check(&self, done: &[u64]) -> Result<(), String>;

    /// What is to be measured of the object itself, after the turn.
    fn values(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}

impl Scenario {
    /// The arms of these names, or all of them.
    pub(crate) fn select(&self, names: &[String]) -> Result<Vec<&'static Arm>, Error> {
        if let Some(unknown) =
            names.iter().find(|name| self.arms.iter().all(|arm| arm.name != **name))
        {
            let known: Vec<&str> = self.arms.iter().map(|arm| arm.name).collect();
            return Err(Error::Usage(format!(
                "{}: no arm {unknown:?}; it has {}",
                self.name,
                known.join(", ")
            )));
        }
        let chosen = |arm: &&Arm| names.is_empty() || names.iter().any(|name| name == arm.name);
        Ok(self.arms.iter().filter(chosen).collect())
    }
}

/// The answer of a check that compares one number.
pub(crate) fn expect(what: &str, wanted: i64, found: i64) -> Result<(), String> {
    if wanted == found { Ok(()) } else { Err(format!("{what} is {found}, not {wanted}")) }
}
