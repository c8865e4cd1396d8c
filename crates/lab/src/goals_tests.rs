use super::*;
use crate::record::Turn;

fn goal(peers: &[&str], at_most: Option<f64>, at_least: Option<f64>, metric: &str) -> Goal {
    Goal {
        name: "s-goal".to_owned(),
        part: "primitives".to_owned(),
        scenario: "s".to_owned(),
        threads: 2,
        think_ns: 0,
        metric: metric.to_owned(),
        arm: "ours".to_owned(),
        peers: peers.iter().map(|&peer| peer.to_owned()).collect(),
        at_most,
        at_least,
        why: None,
    }
}

fn document(rows: &[(&str, &str, [f64; 3])]) -> Document {
    let mut document = Document::new(machine::describe());
    for (arm, metric, points) in rows {
        let turns = points.iter().map(|&point| Turn::from([((*metric).to_owned(), point)]));
        document.rows.push(Row {
            case: goal(&[], None, None, "ns").case(),
            arm: (*arm).to_owned(),
            oversubscribed: false,
            rejected: 0,
            disturbed: 0,
            turns: turns.collect(),
        });
    }
    document
}

/// Every goal names a scenario, arms and a metric that exist: else it could never be missed.
#[test]
fn the_file_of_goals_is_right() {
    let goals = all().expect("goals.toml");
    let mut names: Vec<&str> = goals.iter().map(|goal| goal.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), goals.len(), "a name stands twice");
    for goal in &goals {
        let scenario = choose(std::slice::from_ref(&goal.scenario)).expect("a scenario")[0];
        assert!(goal.name.starts_with(scenario.name), "{goal:?}: --only takes the scenario's name");
        let arms = needs(std::slice::from_ref(goal)).remove(&goal.case()).expect("its case");
        scenario.select(&arms).expect("arms");
        assert!(goal.at_most.is_none() || goal.at_least.is_none(), "{goal:?}: two bounds");
        assert!(!goal.peers.contains(&goal.arm), "{goal:?}: its own peer");
    }
}

#[test]
fn a_ratio_is_taken_pair_by_pair_against_the_best_peer() {
    let goal = goal(&["slow", "quick", "absent"], Some(1.0), None, "ns");
    let found = goal.judge(&document(&[
        ("ours", "ns", [1.0, 20.0, 3.0]),
        ("slow", "ns", [9.0, 90.0, 9.0]),
        ("quick", "ns", [2.0, 40.0, 6.0]),
    ]));
    assert_eq!(found.peer.as_deref(), Some("quick"));
    assert_eq!(found.found.map(|estimate| estimate.median), Some(0.5));
    assert_eq!(found.is_met(), Some(true));
}

#[test]
fn the_best_peer_of_a_rate_is_the_highest() {
    let goal = goal(&["low", "high"], None, Some(1.2), "rate");
    let found = goal.judge(&document(&[
        ("ours", "rate", [11.0, 11.0, 11.0]),
        ("low", "rate", [5.0, 5.0, 5.0]),
        ("high", "rate", [10.0, 10.0, 10.0]),
    ]));
    assert_eq!((found.peer.as_deref(), found.word()), (Some("high"), "missed"));
}

#[test]
fn a_miss_gives_its_reason_and_nothing_else_does() {
    let rows = document(&[("ours", "ns", [2.0; 3]), ("peer", "ns", [1.0; 3])]);
    let judged = |bound| {
        let goal = Goal { why: Some("Because.".to_owned()), ..goal(&["peer"], bound, None, "ns") };
        let mut verdict = goal.judge(&rows);
        verdict.goal.scenario = crate::scenarios::ALL[0].name.to_owned();
        markdown(&[verdict], &rows)
    };
    assert!(judged(Some(1.0)).contains("\n\n- Missed: s-goal. Because.\n"));
    assert!(!judged(Some(2.0)).contains("Because"));
    assert!(!judged(None).contains("Because"));
}

#[test]
fn what_was_not_measured_is_neither_met_nor_missed() {
    let nothing = goal(&["peer"], Some(1.0), None, "ns").judge(&document(&[]));
    assert_eq!((nothing.is_met(), nothing.word()), (None, "not measured"));
    let alone = goal(&["peer"], Some(1.0), None, "ns");
    assert_eq!(alone.judge(&document(&[("ours", "ns", [1.0; 3])])).word(), "not measured");
    let reported = goal(&[], None, None, "ns").judge(&document(&[("ours", "ns", [1.0; 3])]));
    assert_eq!((reported.is_met(), reported.word()), (None, "reported"));
}

#[test]
fn an_unknown_goal_or_part_is_refused() {
    for error in [
        selected(Some("kitchen"), &[]).expect_err("no such part"),
        selected(None, &["no-such-goal".to_owned()]).expect_err("no such goal"),
    ] {
        assert!(matches!(error, Error::Usage(_)), "{error}");
    }
}

#[test]
fn the_document_names_every_goal_and_its_command() {
    let goals = all().expect("goals.toml");
    let empty = Document::new(machine::describe());
    let verdicts: Vec<Verdict> = goals.iter().map(|goal| goal.judge(&empty)).collect();
    let text = markdown(&verdicts, &empty);
    for goal in &goals {
        assert!(text.contains(&format!("| {} |", goal.name)), "{}", goal.name);
        assert!(text.contains(&format!("goals --only {}", goal.scenario)), "{}", goal.name);
    }
}
