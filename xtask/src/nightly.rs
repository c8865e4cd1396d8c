//! `cargo xtask nightly`: what takes too long for every change.

use crate::models::{self, Checker};
use crate::run::Outcome;
use crate::{counts, orderings, sanitizers, soak};

/// Arguments of `nightly`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    sanitizers: sanitizers::Args,
    #[command(flatten)]
    orderings: orderings::Args,
    /// Preemptions that the models allow beyond their own bounds.
    #[arg(long, default_value_t = 1)]
    more: usize,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let steps: [(&str, &dyn Fn() -> Outcome); 6] = [
        ("orderings", &|| orderings::run(&args.orderings)),
        ("tsan", &|| sanitizers::run(sanitizers::Sanitizer::Thread, &args.sanitizers)),
        ("asan", &|| sanitizers::run(sanitizers::Sanitizer::Address, &args.sanitizers)),
        ("soak", &|| soak::run(&soak::Args::all(args.sanitizers.seconds))),
        ("loom", &|| models::run(Checker::Loom, &models::Args::deeper(args.more))),
        ("counts", &|| counts::run(&counts::Args::default())),
    ];
    // One that fails hides nothing of the others.
    let mut failed = Vec::new();
    for (name, step) in steps {
        println!("nightly: {name}");
        if let Err(why) = step() {
            println!("nightly: {name} failed: {why}");
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        return Err(format!("nightly: {} failed", failed.join(", ")).into());
    }
    println!("nightly: all held");
    Ok(())
}
