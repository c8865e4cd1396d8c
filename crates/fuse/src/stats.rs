//! The numbers of a session.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// What a client holds, and how much it asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FuseStats {
    /// Nodes the client knows, the root among them.
    pub nodes: u64,
    /// The sum of their lookup counts. The root has none.
    pub lookup_counts: u64,
    /// Open files and directories.
    pub open_files: u64,
    /// Files among them that the kernel reads and writes itself; two openings of one count once.
    pub passed_through: u64,
    /// Requests so far.
    pub requests: u64,
    /// FORGETs above the lookup count, which were refused.
    pub refused_forgets: u64,
}

/// Makes the text of the attribute [`STATS_XATTR`](crate::STATS_XATTR).
pub(crate) type Report = Box<dyn Fn(&FuseStats) -> String + Send + Sync>;

const STRIPES: usize = 16;

/// A count that many threads raise and few read: each thread has one of a few cells to itself, as far as they go.
#[derive(Debug, Default)]
pub(crate) struct Counter([Stripe; STRIPES]);

/// Two cache lines, since processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

impl Counter {
    pub(crate) fn up(&self) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static MINE: Cell<Option<usize>> = const { Cell::new(None) });
        let mine = MINE.with(|mine| {
            let stripe = mine.get().unwrap_or_else(|| NEXT.fetch_add(1, Relaxed) % STRIPES);
            mine.set(Some(stripe));
            stripe
        });
        self.0[mine].0.fetch_add(1, Relaxed); // a statistic
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.0.load(Relaxed)).sum()
    }
}
