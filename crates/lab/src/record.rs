//! What is kept of a run: every turn of every arm, as it is written to a file and read again.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::machine::Machine;
use crate::numbers::{extremes, median};

/// The form of the file. A reader refuses others.
const FORMAT: u32 = 2;

/// A whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Document {
    pub(crate) format: u32,
    pub(crate) machine: Machine,
    /// Stopped before its end: what was finished is here.
    pub(crate) interrupted: bool,
    pub(crate) rows: Vec<Row>,
}

/// All turns of one arm under one condition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) case: Case,
    pub(crate) arm: String,
    /// More threads than processors: this measures the scheduler too, and is no scaling.
    pub(crate) oversubscribed: bool,
    /// Rounds thrown away because others used the processors.
    pub(crate) rejected: u32,
    /// Rounds kept although others used the processors, after too many rejections.
    pub(crate) disturbed: u32,
    /// The points: what each turn measured, by metric. The n-th turns of all arms of a case belong together.
    pub(crate) turns: Vec<Turn>,
}

/// What a turn measured, by metric.
pub(crate) type Turn = BTreeMap<String, f64>;

/// What several arms are compared under.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) scenario: String,
    pub(crate) threads: usize,
    pub(crate) think_ns: u32,
}

/// The unit of a metric, by the end of its name.
pub(crate) fn unit(metric: &str) -> &'static str {
    match metric.rsplit('_').next() {
        Some("ns") => "ns",
        Some("us") => "µs",
        Some("rate") => "1/s",
        Some("objects") => "objects",
        Some("bytes") => "bytes",
        _ => "",
    }
}

/// Whether more is better.
pub(crate) fn more_is_better(metric: &str) -> bool {
    metric.ends_with("rate") || ["jain", "least_share", "hit_share"].contains(&metric)
}

impl Row {
    /// The values of one metric, turn by turn.
    pub(crate) fn values(&self, metric: &str) -> Vec<f64> {
        self.turns.iter().filter_map(|turn| turn.get(metric).copied()).collect()
    }

    /// The middle value of one metric.
    pub(crate) fn median(&self, metric: &str) -> Option<f64> {
        median(&self.values(metric))
    }

    /// The metrics that this row has.
    pub(crate) fn metrics(&self) -> Vec<&str> {
        self.turns.first().map(|turn| turn.keys().map(String::as_str).collect()).unwrap_or_default()
    }

    fn summaries(&self) -> impl Iterator<Item = Summary<'_>> {
        self.metrics().into_iter().filter_map(|metric| {
            let (low, high) = extremes(&self.values(metric))?;
            Some(Summary {
                case: &self.case,
                arm: &self.arm,
                metric,
                unit: unit(metric),
                median: self.median(metric)?,
                low,
                high,
            })
        })
    }
}

/// One line of results: what other programs read.
#[derive(Debug, Serialize)]
struct Summary<'a> {
    #[serde(flatten)]
    case: &'a Case,
    arm: &'a str,
    metric: &'a str,
    unit: &'static str,
    median: f64,
    low: f64,
    high: f64,
}

impl Document {
    pub(crate) fn new(machine: Machine) -> Document {
        Document { format: FORMAT, machine, interrupted: false, rows: Vec::new() }
    }

    /// The row of an arm under a case.
    pub(crate) fn find(&self, case: &Case, arm: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.case == *case && row.arm == arm)
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), Error> {
        let fail = |why: &dyn std::fmt::Display| Error::Usage(format!("{}: {why}", path.display()));
        let mut value = serde_json::to_value(self).map_err(|why| fail(&why))?;
        value["results"] = serde_json::to_value(self.summaries()).map_err(|why| fail(&why))?;
        std::fs::write(path, format!("{value:#}\n")).map_err(|why| fail(&why))
    }

    pub(crate) fn read(path: &Path) -> Result<Document, Error> {
        let fail = |why: &dyn std::fmt::Display| Error::Usage(format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|why| fail(&why))?;
        let document: Document =
            serde_json::from_str(&text).map_err(|why| fail(&format!("not a run: {why}")))?;
        if document.format != FORMAT {
            return Err(fail(&format!("form {}, this program reads {FORMAT}", document.format)));
        }
        Ok(document)
    }

    fn summaries(&self) -> Vec<Summary<'_>> {
        self.rows.iter().flat_map(Row::summaries).collect()
    }
}
