//! Tables for people, JSON for everything else.

use serde_json::{Value, json};

use crate::engine::{Outcome, Plan};
use crate::machine::Machine;

/// Prints one scenario's table.
pub(crate) fn print(result: &Outcome) {
    let scenario = result.scenario;
    println!("\n{}: {}", scenario.name, scenario.question);
    println!(
        "{:<12}{:>8}{:>12}{:>10}{:>10}{:>14}{:>14}",
        "arm", "threads", "ns median", "min", "max", "Mops/s all", "worst share"
    );
    for row in &result.rows {
        let [min, median, max] = row.spread();
        println!(
            "{:<12}{:>8}{median:>12.2}{min:>10.2}{max:>10.2}{:>14.2}{:>14.2}",
            row.arm,
            row.threads,
            row.rate() / 1e6,
            row.worst_share()
        );
    }
    println!(
        "(one operation is {}; ns is a thread's own time for one; all counts checked)",
        scenario.operation
    );
}

/// Everything that was measured, turn by turn.
pub(crate) fn json(machine: &Machine, plan: &Plan, results: &[Outcome]) -> String {
    let document = json!({
        "machine": {
            "cpus": machine.cpus,
            "model": machine.model,
            "kernel": machine.kernel,
            "commit": machine.commit,
            "counting": machine.counting,
            "optimised": machine.optimised,
        },
        "turn_seconds": plan.turn.as_secs_f64(),
        "rounds": plan.rounds,
        "scenarios": results.iter().map(scenario).collect::<Vec<Value>>(),
    });
    format!("{document:#}\n")
}

fn scenario(result: &Outcome) -> Value {
    let rows = result.rows.iter().map(|row| {
        let [min, median, max] = row.spread();
        let turns = row.turns.iter().map(
            |turn| json!({ "ns": turn.ns, "rate": turn.rate, "worst_share": turn.worst_share }),
        );
        json!({
            "arm": row.arm,
            "threads": row.threads,
            "ns": { "min": min, "median": median, "max": max },
            "turns": turns.collect::<Vec<Value>>(),
        })
    });
    json!({
        "name": result.scenario.name,
        "question": result.scenario.question,
        "operation": result.scenario.operation,
        "rows": rows.collect::<Vec<Value>>(),
    })
}
