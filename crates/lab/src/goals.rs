//! The project's goals, as data, and whether they are met.
//!
//! A goal compares one metric of one arm with its best peer, pair by pair: the n-th turns of both, taken in the same round. It is met when the
//! median of these ratios is within its bound. The interval beside it says how sure that is; a goal whose interval crosses
//! its bound is met or missed only just.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::engine::{self, Plan};
use crate::numbers::Estimate;
use crate::record::{Case, Document, Row, more_is_better, unit};
use crate::report::short;
use crate::{DISTURBANCE, Error, Session, choose, machine, report};

/// Which goals, and where the answers go.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only the goals of this part: primitives, core or mount.
    part: Option<String>,
    /// Only goals whose name begins so; can be given several times.
    #[arg(long)]
    only: Vec<String>,
    /// Seconds of one turn of one arm; more threads than processors get three times as much.
    #[arg(long, default_value_t = 0.1, value_parser = crate::turn_seconds)]
    seconds: f64,
    /// How often each arm has its turn.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(2..=1000))]
    rounds: u32,
    /// Writes every single turn here, as JSON; what the file has already is not run again.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Writes a table here, as Markdown.
    #[arg(long)]
    markdown: Option<PathBuf>,
}

/// The file of goals.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Goals {
    goal: Vec<Goal>,
}

/// One goal.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Goal {
    /// `--only` takes it.
    name: String,
    /// primitives, core or mount.
    part: String,
    scenario: String,
    threads: usize,
    #[serde(default)]
    think_ns: u32,
    metric: String,
    arm: String,
    /// The ratio is taken against the best of these; against none the metric itself counts.
    #[serde(default)]
    peers: Vec<String>,
    /// Neither bound: the figure is only reported.
    at_most: Option<f64>,
    at_least: Option<f64>,
    /// Why it is missed where it is, and what was tried. Shown beside a miss only.
    why: Option<String>,
}

/// A goal and what was measured.
#[derive(Debug)]
struct Verdict {
    goal: Goal,
    /// The peer that it was compared with.
    peer: Option<String>,
    found: Option<Estimate>,
    /// Medians of the metric: the arm's and the peer's.
    values: (Option<f64>, Option<f64>),
}

impl Goal {
    fn case(&self) -> Case {
        Case { scenario: self.scenario.clone(), threads: self.threads, think_ns: self.think_ns }
    }

    fn bound(&self) -> String {
        let sign = if self.peers.is_empty() { "" } else { " ×" };
        match (self.at_most, self.at_least) {
            (Some(bound), _) => format!("≤ {bound}{sign}"),
            (None, Some(bound)) => format!("≥ {bound}{sign}"),
            (None, None) => "reported".to_owned(),
        }
    }

    /// Judges by what was measured.
    fn judge(&self, document: &Document) -> Verdict {
        let case = self.case();
        let row = |arm: &String| document.find(&case, arm);
        let value = |row: &Row| row.median(&self.metric);
        let ours = row(&self.arm);
        let better = |a: &&Row, b: &&Row| {
            let order = value(a).unwrap_or(f64::NAN).total_cmp(&value(b).unwrap_or(f64::NAN));
            if more_is_better(&self.metric) { order } else { order.reverse() }
        };
        let peer =
            self.peers.iter().filter_map(row).filter(|row| value(row).is_some()).max_by(better);
        let points = ours.map(|row| row.values(&self.metric)).unwrap_or_default();
        let found = match peer {
            Some(peer) => {
                let theirs = peer.values(&self.metric);
                let ratios: Vec<f64> = points.iter().zip(theirs).map(|(a, b)| a / b).collect();
                Estimate::of(&ratios)
            }
            None if self.peers.is_empty() => Estimate::of(&points),
            None => None,
        };
        Verdict {
            goal: self.clone(),
            peer: peer.map(|row| row.arm.clone()),
            found,
            values: (ours.and_then(value), peer.and_then(value)),
        }
    }
}

impl Verdict {
    fn is_met(&self) -> Option<bool> {
        let median = self.found?.median;
        match (self.goal.at_most, self.goal.at_least) {
            (None, None) => None,
            (most, least) => Some(
                most.is_none_or(|bound| median <= bound)
                    && least.is_none_or(|bound| median >= bound),
            ),
        }
    }

    fn word(&self) -> &'static str {
        match (self.found, self.is_met()) {
            (None, _) => "not measured",
            (_, Some(true)) => "met",
            (_, Some(false)) => "missed",
            (_, None) => "reported",
        }
    }

    fn measured(&self) -> (String, String) {
        let Some(Estimate { median, low, high }) = self.found else {
            return ("-".to_owned(), "-".to_owned());
        };
        if self.peer.is_some() {
            (format!("{median:.2} ×"), format!("{low:.2}–{high:.2}"))
        } else {
            let unit = unit(&self.goal.metric);
            (format!("{} {unit}", short(median)), format!("{}–{}", short(low), short(high)))
        }
    }

    /// The two figures behind a ratio.
    fn figures(&self) -> String {
        let shown = |value: Option<f64>| value.map_or("-".to_owned(), short);
        match &self.peer {
            Some(peer) => format!(
                "{} : {} {} ({peer})",
                shown(self.values.0),
                shown(self.values.1),
                unit(&self.goal.metric)
            ),
            None => String::new(),
        }
    }
}

/// All goals of the project; a mistake in the file is an error of the one who wrote it.
fn all() -> Result<Vec<Goal>, Error> {
    let goals: Goals = toml::from_str(include_str!("../goals.toml"))
        .map_err(|why| Error::Usage(format!("goals.toml: {why}")))?;
    Ok(goals.goal)
}

/// The goals that were asked for.
fn selected(part: Option<&str>, only: &[String]) -> Result<Vec<Goal>, Error> {
    let mut goals = all()?;
    if let Some(part) = part {
        if !["primitives", "core", "mount"].contains(&part) {
            return Err(Error::Usage(format!("no part {part:?}: primitives, core or mount")));
        }
        goals.retain(|goal| goal.part == part);
        if goals.is_empty() {
            return Err(Error::Usage(format!("no goals of part {part:?} yet")));
        }
    }
    for name in only {
        if !goals.iter().any(|goal| goal.name.starts_with(name)) {
            return Err(Error::Usage(format!("no goal {name:?}")));
        }
    }
    goals.retain(|goal| only.is_empty() || only.iter().any(|name| goal.name.starts_with(name)));
    Ok(goals)
}

/// Which arms the goals need, case by case.
fn needs(goals: &[Goal]) -> BTreeMap<Case, Vec<String>> {
    let mut cases: BTreeMap<Case, Vec<String>> = BTreeMap::new();
    for goal in goals {
        let arms = cases.entry(goal.case()).or_default();
        for arm in std::iter::once(&goal.arm).chain(&goal.peers) {
            if !arms.contains(arm) {
                arms.push(arm.clone());
            }
        }
    }
    cases
}

/// Measures, prints, and fails if a goal is missed.
pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let goals = selected(args.part.as_deref(), &args.only)?;
    let machine = machine::describe();
    let mut document = match &args.json {
        Some(path) if path.exists() => Document::read(path)?,
        _ => Document::new(machine.clone()),
    };
    if document.machine.commit != machine.commit {
        return Err(Error::Usage(format!(
            "the run to be continued is of commit {}, this is {}",
            document.machine.commit, machine.commit
        )));
    }
    let mut cases = needs(&goals);
    cases.retain(|case, arms| arms.iter().any(|arm| document.find(case, arm).is_none()));
    let turns: u64 = cases.values().map(|arms| arms.len() as u64 * u64::from(args.rounds)).sum();
    report::print_head(&document);
    let session = Session::start(turns);
    for (case, arms) in &cases {
        let scenario = choose(std::slice::from_ref(&case.scenario))?[0];
        let arms = scenario.select(arms)?;
        // A thread's turn on a crowded processor lasts milliseconds: several of them must fit in.
        let longer = if case.threads > machine.cpus { 3.0 } else { 1.0 };
        let plan = Plan {
            turn: Duration::from_secs_f64(args.seconds * longer),
            rounds: args.rounds,
            disturbance: DISTURBANCE,
        };
        let rows =
            engine::run(scenario, &arms, (case.threads, case.think_ns), &plan, &session.control())?;
        document.rows.retain(|row| row.case != *case);
        document.rows.extend(rows);
        if let Some(path) = &args.json {
            document.write(path)?;
        }
    }
    session.progress.finish_and_clear();
    let verdicts: Vec<Verdict> = goals.iter().map(|goal| goal.judge(&document)).collect();
    print(&verdicts, &document);
    if let Some(path) = &args.markdown {
        std::fs::write(path, markdown(&verdicts, &document))
            .map_err(|why| Error::Usage(format!("{}: {why}", path.display())))?;
    }
    let missed = verdicts.iter().filter(|verdict| verdict.is_met() == Some(false)).count();
    let unknown = verdicts.iter().filter(|verdict| verdict.found.is_none()).count();
    if missed + unknown > 0 {
        return Err(Error::Missed(format!(
            "{missed} of {} goals missed, {unknown} not measured",
            verdicts.len()
        )));
    }
    Ok(())
}

fn print(verdicts: &[Verdict], document: &Document) {
    println!(
        "{:<30}{:>8}{:>10}{:>12}{:>18}  {:<12} ours : peer",
        "goal", "threads", "wanted", "measured", "95 % interval", "verdict"
    );
    for verdict in verdicts {
        let (measured, interval) = verdict.measured();
        println!(
            "{:<30}{:>8}{:>10}{measured:>12}{interval:>18}  {:<12} {}",
            verdict.goal.name,
            verdict.goal.threads,
            verdict.goal.bound(),
            verdict.word(),
            verdict.figures()
        );
    }
    println!("{}", rejections(verdicts, document));
}

/// How many rounds these goals cost.
fn rejections(verdicts: &[Verdict], document: &Document) -> String {
    let rows = || {
        let mut cases: Vec<Case> = verdicts.iter().map(|verdict| verdict.goal.case()).collect();
        cases.sort();
        cases.dedup();
        cases.into_iter().filter_map(|case| document.rows.iter().find(|row| row.case == case))
    };
    let kept: usize = rows().map(|row| row.turns.len()).sum();
    let rejected: u32 = rows().map(|row| row.rejected).sum();
    let disturbed: u32 = rows().map(|row| row.disturbed).sum();
    format!(
        "{kept} rounds counted, {disturbed} of them disturbed by other load; {rejected} thrown away"
    )
}

fn markdown(verdicts: &[Verdict], document: &Document) -> String {
    let mut text = String::from(
        "# Performance\n\n\
         Written by `cargo run --release --package vfscale-lab -- goals --markdown docs/performance.md`; the goals stand in\n\
         `crates/lab/goals.toml`. A ratio is the median over rounds in which both arms had their turn, ours divided by the best of the\n\
         named peers; the interval holds it 95 times in 100. More threads than processors is oversubscription, not scaling.\n\n",
    );
    for line in document.machine.to_string().lines() {
        let _ = writeln!(text, "- {line}");
    }
    let _ = writeln!(text, "- {}\n", rejections(verdicts, document));
    for scenario in crate::scenarios::ALL {
        let of_it: Vec<&Verdict> =
            verdicts.iter().filter(|verdict| verdict.goal.scenario == scenario.name).collect();
        if of_it.is_empty() {
            continue;
        }
        let _ = writeln!(
            text,
            "## {}\n\n{} ({})\n",
            scenario.name,
            capital(scenario.question),
            scenario.source
        );
        text.push_str("| goal | threads | think | metric | wanted | measured | interval | verdict | ours : peer |\n");
        text.push_str("|---|---|---|---|---|---|---|---|---|\n");
        for verdict in &of_it {
            let goal = &verdict.goal;
            let (measured, interval) = verdict.measured();
            let _ = writeln!(
                text,
                "| {} | {} | {} ns | {} | {} | {measured} | {interval} | **{}** | {} |",
                goal.name,
                goal.threads,
                goal.think_ns,
                goal.metric,
                goal.bound(),
                verdict.word(),
                verdict.figures()
            );
        }
        let missed = of_it.iter().filter(|verdict| verdict.is_met() == Some(false));
        for (index, Verdict { goal, .. }) in missed.enumerate() {
            let gap = if index == 0 { "\n" } else { "" };
            let why = goal.why.as_deref().unwrap_or("no reason is known");
            let _ = writeln!(text, "{gap}- Missed: {}. {why}", goal.name);
        }
        let _ = writeln!(
            text,
            "\n`vfscale-lab goals --only {0}` prints these lines, `vfscale-lab run {0}` all arms.\n",
            scenario.name
        );
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
#[path = "goals_tests.rs"]
mod tests;
