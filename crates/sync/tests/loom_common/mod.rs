//! How the models run: bounded, and saying so.

use loom::model::Builder;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Runs `f` under every schedule with at most `preemptions` preemptions (`None`: under every
/// schedule), and prints the bound.
///
/// `LOOM_MAX_PREEMPTIONS` replaces the bounds of all models.
pub(crate) fn check(name: &str, preemptions: Option<usize>, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(preemptions);
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
