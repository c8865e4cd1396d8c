//! Eight threads that look up, create, rename, link, unlink, open and list the same few hundred names, while the kernel is made
//! to forget what it knows; after that every counter must be back at rest.
//!
//! The load runs inside `vfscale exec`, as this program's hidden verb `storm-load`. No name is a thread's own: every operation
//! may find that another thread was faster, and says so with one of a few errors. Anything else is a failure: another error, a
//! file whose content is torn, a name that vanishes for good, a count that does not return.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Backend, Bench, Tally};
use crate::run::{Outcome, output};

mod threads;

/// Most names that the cache may hold during the storm.
const MAX_NAMES: u64 = 1_000;

/// Arguments of the hidden verb.
#[derive(Debug, clap::Args)]
pub(crate) struct LoadArgs {
    #[arg(long)]
    seconds: u64,
    #[arg(long)]
    threads: usize,
    /// The built `vfscale`, to ask for live numbers.
    #[arg(long)]
    vfscale: PathBuf,
}

pub(crate) fn run(bench: &Bench, tally: &mut Tally) -> Outcome {
    for &backend in &bench.backends {
        let name = format!(
            "{}: {} threads for {} s, at most {MAX_NAMES} names",
            backend.name(),
            bench.threads,
            bench.seconds
        );
        tally.case(&name, storm(bench, backend));
    }
    Ok(())
}

fn storm(bench: &Bench, backend: Backend) -> Outcome {
    let source = match backend {
        Backend::Host => bench.scratch.join("source"),
        Backend::Mem => PathBuf::from("mem:"),
        Backend::Native => return native(bench),
    };
    if backend == Backend::Host {
        std::fs::create_dir_all(&source)?;
    }
    let json = bench.scratch.join(format!("{}.json", backend.name()));
    let status = Command::new(&bench.vfscale)
        .arg("exec")
        .arg(&source)
        .args(["--max-names", &MAX_NAMES.to_string(), "--quiet", "--json"])
        .arg(&json)
        .arg("--")
        .arg(std::env::current_exe()?)
        .args(["storm-load", "--seconds", &bench.seconds.to_string()])
        .args(["--threads", &bench.threads.to_string()])
        .arg("--vfscale")
        .arg(&bench.vfscale)
        .status()?;
    if !status.success() {
        return Err(format!("the load ended with {status}").into());
    }
    let summary: Value = serde_json::from_slice(&std::fs::read(&json)?)?;
    used_and_gone(&summary)
}

/// The load alone, in a plain directory.
fn native(bench: &Bench) -> Outcome {
    std::env::set_current_dir(&bench.scratch)?;
    let report = threads::run(bench.threads, Duration::from_secs(bench.seconds))?;
    println!("    {report}");
    Ok(std::env::set_current_dir(crate::run::root())?)
}

/// The load itself. The working directory is the root of the mount.
pub(crate) fn load(args: &LoadArgs) -> Outcome {
    let before = rest(args)?;
    let report = threads::run(args.threads, Duration::from_secs(args.seconds))?;
    println!("    {report}");
    let after = rest(args)?;
    let left: Vec<String> = AT_REST
        .iter()
        .map(|counter| (counter, number(&before, counter), number(&after, counter)))
        .filter(|(_, before, after)| before != after)
        .map(|(counter, before, after)| format!("{counter} was {before}, is {after}"))
        .collect();
    println!(
        "    names at most {} at once (the kernel's own references count), {} at rest; {} still wait for a grace period",
        number(&after, "cache.names_peak"),
        number(&after, "cache.names"),
        number(&after, "primitives.rcu_pending"),
    );
    if !left.is_empty() {
        return Err(format!("not back at rest: {}", left.join("; ")).into());
    }
    if number(&after, "cache.names") > MAX_NAMES {
        return Err("more names at rest than the limit allows".into());
    }
    match number(&after, "fuse.refused_forgets") {
        0 => Ok(()),
        some => Err(format!("{some} FORGETs were above the count").into()),
    }
}

/// Counters that are the same whenever nothing is going on and the kernel has forgotten everything but the root.
const AT_REST: [&str; 4] = ["fuse.nodes", "fuse.lookup_counts", "fuse.open_files", "cache.files"];

/// Makes the kernel forget, waits until the mount has heard of it, and answers with the numbers of that moment.
fn rest(args: &LoadArgs) -> Outcome<Value> {
    let give_up = Instant::now() + Duration::from_secs(20);
    let mut last = Value::Null;
    loop {
        // 2: names and inodes. What is dirty or open stays.
        std::fs::write("/proc/sys/vm/drop_caches", "2")?;
        std::thread::sleep(Duration::from_millis(300));
        let text = output(Command::new(&args.vfscale).args(["stat", ".", "--json"]))?;
        let now: Value = serde_json::from_slice(&text)?;
        if let Some(missing) = AT_REST.iter().find(|counter| number(&now, counter) == u64::MAX) {
            return Err(format!("`vfscale stat --json` does not tell {missing}").into());
        }
        let quiet = AT_REST.iter().all(|counter| number(&now, counter) == number(&last, counter));
        if quiet || Instant::now() > give_up {
            return Ok(now);
        }
        last = now;
    }
}

/// The number at a dotted path; `u64::MAX` if there is none.
fn number(document: &Value, path: &str) -> u64 {
    path.split('.')
        .try_fold(document, |at, name| at.get(name))
        .and_then(Value::as_u64)
        .unwrap_or(u64::MAX)
}

/// Every mechanism took part, and nothing is left now that the mount is gone.
fn used_and_gone(summary: &Value) -> Outcome {
    for counter in [
        "lookups.rcu",
        "lookups.backend",
        "upkeep.freed",
        "primitives.lockref_fast",
        "primitives.qrwlock_writes",
        "primitives.file_gets",
    ] {
        match number(summary, counter) {
            u64::MAX => return Err(format!("the summary does not tell {counter}").into()),
            0 => return Err(format!("{counter} is 0 after a storm").into()),
            _ => {}
        }
    }
    let batched = number(summary, "primitives.list_direct")
        .saturating_add(number(summary, "primitives.list_batches"));
    if batched == 0 {
        return Err("the inode list was not used".into());
    }
    for counter in ["outcome.rest.names", "outcome.rest.inodes", "outcome.rest.files"] {
        if number(summary, counter) != 0 {
            return Err(
                format!("{counter} is {} after the unmount", number(summary, counter)).into()
            );
        }
    }
    Ok(())
}
