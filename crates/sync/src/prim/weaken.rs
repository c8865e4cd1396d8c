//! One ordering less, so that somebody notices: what `cargo xtask orderings` asks of the models.
//!
//! # Why
//! An ordering that no model misses is either stronger than it has to be or not tested. To compile the crate once for each
//! weaker ordering would take hours; here a process asks once, by an environment variable, for one place to be weaker.
//!
//! # Variables
//! - `VFSCALE_LOOM_RECORD=FILE`: each weakening that this process could make, one a line, as it passes the place for the
//!   first time.
//! - `VFSCALE_LOOM_WEAKEN=LINE`: makes the weakening of such a line.
//!
//! # Line
//! `FILE:LINE:COLUMN OPERAND HALF FROM TO`, as in `crates/sync/src/raw_lock.rs:45:16 success acquire Acquire Relaxed`. The place
//! is the caller of the atomic operation; the two orderings of a compare-exchange are two operands. TO is `nothing` where a
//! fence goes.
//!
//! # Distrust
//! loom 0.7.3 lets no read return a store that comes later in the schedule, never fails a weak compare-exchange spuriously,
//! and treats a `SeqCst` access as little more than an acquire or a release.

use core::panic::Location;
use core::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::sync::{LazyLock, Mutex, PoisonError};

/// What an ordering is said of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operand {
    Load,
    Store,
    Rmw,
    /// A compare-exchange that exchanged.
    Success,
    /// One that did not.
    Failure,
    Fence,
}

impl Operand {
    fn name(self) -> &'static str {
        match self {
            Operand::Load => "load",
            Operand::Store => "store",
            Operand::Rmw => "rmw",
            Operand::Success => "success",
            Operand::Failure => "failure",
            Operand::Fence => "fence",
        }
    }

    /// The strongest ordering below `SeqCst`.
    fn below_seq_cst(self) -> Ordering {
        match self {
            Operand::Load | Operand::Failure => Acquire,
            Operand::Store => Release,
            Operand::Rmw | Operand::Success | Operand::Fence => AcqRel,
        }
    }

    /// Each half that `order` can lose here, and what is left then.
    fn weaker(self, order: Ordering) -> Vec<(&'static str, Option<Ordering>)> {
        let nothing = if self == Operand::Fence { None } else { Some(Relaxed) };
        match order {
            Acquire => vec![("acquire", nothing)],
            Release => vec![("release", nothing)],
            AcqRel => vec![("acquire", Some(Release)), ("release", Some(Acquire))],
            SeqCst => {
                let less = self.below_seq_cst();
                let mut all = vec![("seqcst", Some(less))];
                // A fence without its total order is caught whenever one without more is.
                if self != Operand::Fence {
                    all.extend(self.weaker(less));
                }
                all
            }
            _ => Vec::new(),
        }
    }
}

/// The line of one weakening.
fn line(
    site: &Location<'_>,
    operand: Operand,
    half: &str,
    from: Ordering,
    to: Option<Ordering>,
) -> String {
    let to = to.map_or("nothing".to_owned(), |to| format!("{to:?}"));
    format!("{site} {} {half} {from:?} {to}", operand.name())
}

struct Record {
    file: File,
    seen: HashSet<(&'static Location<'static>, Operand, Ordering)>,
}

static RECORD: LazyLock<Option<Mutex<Record>>> = LazyLock::new(|| {
    let path = std::env::var_os("VFSCALE_LOOM_RECORD")?;
    let file = File::create(&path).expect("VFSCALE_LOOM_RECORD names a file that can be written");
    Some(Mutex::new(Record { file, seen: HashSet::new() }))
});

/// The wanted line, and the line number in it, so that other places cost one comparison.
static WEAKEN: LazyLock<Option<(String, u32)>> = LazyLock::new(|| {
    let wanted = std::env::var("VFSCALE_LOOM_WEAKEN").ok()?;
    let number = wanted.split(':').nth(1).and_then(|number| number.parse().ok());
    let number = number.expect("VFSCALE_LOOM_WEAKEN is a line of VFSCALE_LOOM_RECORD");
    Some((wanted, number))
});

/// What is left of `order` at `site`; nothing for a fence that goes.
pub(crate) fn order(
    site: &'static Location<'static>,
    operand: Operand,
    order: Ordering,
) -> Option<Ordering> {
    if order == Relaxed {
        return Some(order);
    }
    if let Some(record) = &*RECORD {
        let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
        if record.seen.insert((site, operand, order)) {
            for (half, to) in operand.weaker(order) {
                let line = line(site, operand, half, order, to);
                writeln!(record.file, "{line}").expect("the record can be written");
            }
        }
    }
    if let Some((wanted, number)) = &*WEAKEN
        && *number == site.line()
    {
        for (half, to) in operand.weaker(order) {
            if line(site, operand, half, order, to) == *wanted {
                return to;
            }
        }
    }
    Some(order)
}

/// As `order`, for what keeps an ordering in any case.
pub(crate) fn access(
    site: &'static Location<'static>,
    operand: Operand,
    wanted: Ordering,
) -> Ordering {
    order(site, operand, wanted).unwrap_or(Relaxed)
}

/// A fence, if it is still there.
#[track_caller]
pub(crate) fn fence(wanted: Ordering) {
    if let Some(order) = order(Location::caller(), Operand::Fence, wanted) {
        loom::sync::atomic::fence(order);
    }
}
