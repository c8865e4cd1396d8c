//! Makes each ordering weaker in turn and lets the models look for it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::Args;
use super::excuses::{Source, is_code};
use super::models::{Baseline, Verdict, tests};
use crate::run::{Outcome, target_dir};
use crate::source::{files, read};

/// A line of `VFSCALE_LOOM_WEAKEN`, read.
struct Weakening<'a> {
    line: &'a str,
    file: PathBuf,
    number: usize,
    half: &'a str,
    /// The tests that pass the place, cheapest first.
    tests: Vec<&'a Baseline>,
}

#[derive(Debug, Default)]
struct Count {
    caught: usize,
    excused: usize,
    /// Survived, or excused in vain: what the verb fails for.
    wrong: usize,
}

pub(super) fn run(args: &Args) -> Outcome {
    let start = Instant::now();
    let tests = tests(&args.model)?;
    let limit = Duration::from_secs(args.limit);
    let baselines = parallel(args.jobs, &tests, |_, test| test.baseline(limit))?;
    let mut baselines: Vec<Baseline> = baselines.into_iter().flatten().collect();
    baselines.sort_by_key(|baseline| baseline.took);
    println!("orderings: {} tests that hold, {} s", baselines.len(), start.elapsed().as_secs());

    let sources = sources(args.only.as_deref())?;
    let weakenings = weakenings(&baselines, &sources)?;
    let answers = parallel(args.jobs, &weakenings, |job, it| {
        let answer = look(it, &sources[&it.file], limit, job)?;
        println!("{:9}{}{}", answer.0, it.line, answer.1);
        Ok(answer.0)
    })?;
    let mut count = Count::default();
    for answer in answers {
        match answer {
            "caught" => count.caught += 1,
            "excused" => count.excused += 1,
            _ => count.wrong += 1,
        }
    }
    // Without all models we do not know.
    if args.model.is_empty() {
        unreached(&sources, &weakenings, &mut count);
    }
    let Count { caught, excused, wrong } = count;
    let seconds = start.elapsed().as_secs();
    println!("orderings: {caught} caught, {excused} excused, {wrong} wrong ({seconds} s)");
    if caught == 0 {
        return Err("no weaker ordering was caught: the models do not see them".into());
    }
    if wrong > 0 {
        return Err(format!("{wrong} orderings that no model misses, without a reason").into());
    }
    Ok(())
}

/// The files whose orderings are asked about.
fn sources(only: Option<&str>) -> Outcome<BTreeMap<PathBuf, Source>> {
    let mut sources = BTreeMap::new();
    for path in files("rs")?.into_iter().filter(|path| is_code(path)) {
        if only.is_none_or(|word| path.to_string_lossy().contains(word)) {
            let source = Source::new(&read(&path)?);
            sources.insert(path, source);
        }
    }
    Ok(sources)
}

/// All weakenings in `sources` that a test passes.
fn weakenings<'a>(
    baselines: &'a [Baseline],
    sources: &BTreeMap<PathBuf, Source>,
) -> Outcome<Vec<Weakening<'a>>> {
    let mut found: BTreeMap<&str, Vec<&Baseline>> = BTreeMap::new();
    for baseline in baselines {
        for line in &baseline.passes {
            found.entry(line).or_default().push(baseline);
        }
    }
    let mut weakenings = Vec::new();
    for (line, tests) in found {
        let mut words = line.split([' ', ':']);
        let (Some(file), Some(number), Some(half)) = (words.next(), words.next(), words.nth(2))
        else {
            return Err(format!("a record holds `{line}`").into());
        };
        let file = PathBuf::from(file);
        if sources.contains_key(&file) {
            weakenings.push(Weakening { line, file, number: number.parse()?, half, tests });
        }
    }
    Ok(weakenings)
}

/// Runs the tests that pass a place until one fails; answers a word for the report, and the rest of its line.
fn look(
    it: &Weakening<'_>,
    source: &Source,
    limit: Duration,
    job: usize,
) -> Outcome<(&'static str, String)> {
    let log = target_dir().join("orderings").join(format!("weaker-{job}.log"));
    // What is left of a `SeqCst` without one half is not in the one order either.
    let half = if it.line.contains(" SeqCst ") { "seqcst" } else { it.half };
    let excuse = source.excuse(it.number, half).or_else(|| source.excuse_of_file());
    let mut undecided = 0;
    for baseline in &it.tests {
        match baseline.test.weakened(it.line, limit, &log)? {
            Verdict::Holds => {}
            Verdict::Undecided => undecided += 1,
            Verdict::Fails(why) => {
                let by = format!("\n         by {}: {why}", baseline.test.name);
                // What the comment excuses is noticed after all.
                let in_vain = excuse.is_some() && it.half == half;
                return Ok((if in_vain { "IN VAIN" } else { "caught" }, by));
            }
        }
    }
    Ok(match excuse {
        Some(reason) => ("excused", format!("\n         {reason}")),
        None => {
            let tests = it.tests.len();
            ("SURVIVED", format!("\n         {tests} tests hold, {undecided} of them over time"))
        }
    })
}

/// Reports the orderings that no model gets to.
fn unreached(sources: &BTreeMap<PathBuf, Source>, weakenings: &[Weakening<'_>], count: &mut Count) {
    for (path, source) in sources {
        for (first, last) in source.statements() {
            let reached =
                weakenings.iter().any(|it| it.file == *path && (first..=last).contains(&it.number));
            if reached {
                continue;
            }
            let place = format!("{}:{last}", path.display());
            match source.excuse(last, "").or_else(|| source.excuse_of_file()) {
                Some(reason) => {
                    println!("excused  {place} no model gets here\n         {reason}");
                    count.excused += 1;
                }
                None => {
                    println!("UNREACHED {place} no model gets here");
                    count.wrong += 1;
                }
            }
        }
    }
}

/// Does `work` on all items, `jobs` at a time, and answers in their order.
fn parallel<T: Sync, R: Send>(
    jobs: usize,
    items: &[T],
    work: impl Fn(usize, &T) -> Outcome<R> + Sync,
) -> Outcome<Vec<R>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for job in 0..jobs.max(1) {
            let (next, done, work) = (&next, &done, &work);
            scope.spawn(move || {
                loop {
                    // Relaxed: only a ticket.
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { break };
                    // An error is text, so that it can be sent here.
                    let answer = work(job, item).map_err(|why| why.to_string());
                    done.lock().expect("no worker panics under the lock").push((at, answer));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no worker panics under the lock");
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, answer)| answer.map_err(Into::into)).collect()
}
