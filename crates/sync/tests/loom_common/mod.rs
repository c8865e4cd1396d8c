//! How the models run: bounded, and saying so.

use loom::model::Builder;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Runs `f` under every schedule with at most `preemptions` preemptions (`None`: under every
/// schedule), and prints the bound.
///
/// `LOOM_MAX_PREEMPTIONS` replaces the bounds of all models; `VFSCALE_LOOM_MORE` is added to each.
pub(crate) fn check(name: &str, preemptions: Option<usize>, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    let more = std::env::var("VFSCALE_LOOM_MORE").map_or(0, |more| more.parse().expect("a number"));
    builder.preemption_bound = builder.preemption_bound.or(preemptions.map(|bound| bound + more));
    match builder.preemption_bound {
        Some(bound) => println!("{name}: preemption bound {bound}"),
        None => println!("{name}: unbounded"),
    }
    let start = Instant::now();
    let schedules = Arc::new(AtomicU64::new(0));
    let counted = schedules.clone();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        f();
    });
    println!("{name}: {schedules:?} schedules, {:?}", start.elapsed());
}

/// A value that outlives the schedule: a deadlock unwinds through its owners, and their drops would end the process.
#[allow(dead_code, reason = "for the models that deadlock")]
pub(crate) fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}
