//! Tables for people.

use crate::numbers::extremes;
use crate::record::{Document, Row};
use crate::scenario::Scenario;

/// Metrics that every table has in columns of its own.
const USUAL: [&str; 6] = ["ns", "rate", "jain", "least_share", "most_share", "worst_us"];

/// Prints one scenario's table.
pub(crate) fn print(scenario: &Scenario, rows: &[Row]) {
    println!("\n{}: {}", scenario.name, scenario.question);
    println!(
        "{:<16}{:>8}{:>7}{:>10}{:>9}{:>9}{:>10}{:>7}{:>13}{:>11}",
        "arm",
        "threads",
        "think",
        "ns median",
        "min",
        "max",
        "Mops/s",
        "Jain",
        "shares",
        "stall µs"
    );
    for row in rows {
        let median = |metric| row.median(metric).unwrap_or_default();
        let (low, high) = extremes(&row.values("ns")).unwrap_or_default();
        println!(
            "{:<16}{:>8}{:>7}{:>10.2}{low:>9.2}{high:>9.2}{:>10.2}{:>7.3}{:>13}{:>11.0}",
            row.arm,
            row.case.threads,
            row.case.think_ns,
            median("ns"),
            median("rate") / 1e6,
            median("jain"),
            format!("{:.2}-{:.2}", median("least_share"), median("most_share")),
            median("worst_us"),
        );
        let others: Vec<String> = row
            .metrics()
            .into_iter()
            .filter(|metric| !USUAL.contains(metric))
            .map(|metric| format!("{metric} {}", short(median(metric))))
            .collect();
        if !others.is_empty() {
            println!("{:<16}{}", "", others.join(", "));
        }
    }
    println!(
        "One operation is {}; ns is a thread's own time for one, stall the worst gap in the median turn. All counts checked.",
        scenario.operation
    );
    print_notes(rows);
}

fn print_notes(rows: &[Row]) {
    let mut crowded: Vec<usize> =
        rows.iter().filter(|row| row.oversubscribed).map(|row| row.case.threads).collect();
    crowded.sort_unstable();
    crowded.dedup();
    for threads in crowded {
        println!(
            "oversubscription: {threads} threads are more than there are processors; this is no scaling"
        );
    }
    // All arms of a case share their rounds.
    let mut cases: Vec<&Row> = rows.iter().collect();
    cases.dedup_by_key(|row| &row.case);
    let rejected: u32 = cases.iter().map(|row| row.rejected).sum();
    let disturbed: u32 = cases.iter().map(|row| row.disturbed).sum();
    if rejected > 0 {
        println!(
            "disturbed by other load: {rejected} rounds thrown away, {disturbed} kept at last"
        );
    }
}

/// A figure with as many digits as one reads.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        1e6.. => format!("{:.2} M", value / 1e6),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The head of every report.
pub(crate) fn print_head(document: &Document) {
    println!("{}", document.machine);
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn figures_are_short() {
        assert_eq!([0.5, 12.345, 123.4, 2_500_000.0].map(short), ["0.50", "12.3", "123", "2.50 M"]);
    }
}
