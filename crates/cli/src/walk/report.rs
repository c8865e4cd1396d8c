//! The figures of a walk, as a table and as data.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use vfscale::Errno;

use super::engine::Counts;
use crate::summary::{Summary, grouped, size};

/// One timed pass.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Phase {
    /// Names looked up.
    pub(super) names: u64,
    /// How long all of it took.
    pub(super) seconds: f64,
    /// Names per second.
    pub(super) names_per_second: f64,
    /// What could not be listed or looked up, by the error's symbol.
    pub(super) failures: BTreeMap<String, u64>,
}

impl Phase {
    /// What `counts` and the time they took come to.
    pub(super) fn new(counts: Counts, took: Duration) -> Phase {
        let seconds = took.as_secs_f64();
        let symbol = |(number, count)| (format!("{:?}", Errno::from_raw(number)), count);
        Phase {
            names: counts.names,
            seconds,
            names_per_second: counts.names as f64 / seconds.max(1e-9),
            failures: counts.failures.into_iter().map(symbol).collect(),
        }
    }
}

/// The passes over one tree.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Side {
    /// Directories listed, the root included.
    pub(super) directories: u64,
    /// The first walk.
    pub(super) first: Phase,
    /// The second walk.
    pub(super) again: Phase,
    /// The lookups alone.
    pub(super) lookups: Phase,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// Threads that walked.
    pub(super) threads: u32,
    /// Rounds of lookups.
    pub(super) rounds: u32,
    /// By the system's calls, if the tree is the host's.
    pub(super) host: Option<Side>,
    /// Through the core.
    pub(super) core: Side,
    /// Memory this process had resident before the core was started, in bytes.
    pub(super) resident_before_bytes: u64,
    /// The core's numbers at the end.
    pub(super) summary: Summary,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: u64, one: &str, many: &str| {
            format!("{} {}", grouped(count), if count == 1 { one } else { many })
        };
        writeln!(
            f,
            "walked {}, {} in {}, {}",
            self.summary.source,
            plural(self.core.first.names, "name", "names"),
            plural(self.core.directories, "directory", "directories"),
            plural(u64::from(self.threads), "thread", "threads"),
        )?;
        writeln!(f, "  {:<30}{:>16}{:>16}", "names per second", "host", "vfscale")?;
        let rate = |phase: &Phase| match phase.names {
            0 => "-".to_owned(),
            _ => grouped(phase.names_per_second as u64),
        };
        let mut row = |what: String, pick: fn(&Side) -> &Phase| {
            let host = self.host.as_ref().map_or("-".to_owned(), |side| rate(pick(side)));
            writeln!(f, "  {what:<30}{host:>16}{:>16}", rate(pick(&self.core)))
        };
        row("list and look up, first".into(), |side| &side.first)?;
        row("list and look up, again".into(), |side| &side.again)?;
        let rounds = plural(u64::from(self.rounds), "round", "rounds");
        row(format!("look up by path, {rounds}"), |side| &side.lookups)?;
        let failures = |f: &mut fmt::Formatter<'_>, who: &str, phase: &Phase| {
            for (error, count) in &phase.failures {
                writeln!(f, "  {who}: {} failed with {error}", grouped(*count))?;
            }
            Ok(())
        };
        if let Some(host) = &self.host {
            failures(f, "host", &host.first)?;
        }
        failures(f, "vfscale", &self.core.first)?;
        writeln!(f, "  {:<9}process resident {}", "before", size(self.resident_before_bytes))?;
        write!(f, "{}", self.summary)
    }
}
