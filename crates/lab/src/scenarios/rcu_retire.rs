//! dcache thread: what a writer pays to free what readers may still see, and what piles up when one of them stalls.
//!
//! One operation replaces a box behind a shared pointer and retires the old one; or it defers a call that frees nothing, which is the
//! retiring alone. Every freed box and every call is counted: none may run twice. The stalled case holds one reader in its section for
//! the whole turn and counts at the end what was retired and not yet freed.

use std::cell::Cell;
use std::fmt::Debug;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use vfscale_sync::rcu::{self, RcuCell};

use super::{Padded, padded};
use crate::peers::{SeizeCell, crossbeam_clear, crossbeam_replace};
use crate::sample::{Setup, Worker};
use crate::scenario::{Arm, Scenario, Subject};

const OURS: &str = "vfscale_sync::rcu: RcuCell::replace";
const CROSSBEAM: &str = "crossbeam-epoch: swap, defer_destroy";
const SEIZE: &str = "seize: swap, defer_retire";

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "rcu-retire",
    question: "what does a writer pay to have something freed once no reader can see it?",
    source: "dcache thread, 2002",
    operation: "replace a box and retire the old one; in the -defer arms, defer one call",
    threads: &[1, 2],
    think_ns: &[0],
    arms: &[
        Arm { name: "rcu", what: OURS, make: |setup| retire::<Ours>(setup, false) },
        Arm { name: "crossbeam", what: CROSSBEAM, make: |setup| retire::<Crossbeam>(setup, false) },
        Arm {
            name: "seize",
            what: SEIZE,
            make: |setup| retire::<SeizeCell<Tracked>>(setup, false),
        },
        Arm {
            name: "rcu-defer",
            what: "vfscale_sync::rcu: Guard::defer of a call that counts",
            make: |setup| retire::<OursDefer>(setup, false),
        },
        Arm {
            name: "crossbeam-defer",
            what: "crossbeam-epoch: Guard::defer of the same call",
            make: |setup| retire::<CrossbeamDefer>(setup, false),
        },
    ],
};

pub(crate) const STALLED: Scenario = Scenario {
    name: "rcu-stalled",
    question: "how much garbage piles up while one reader stays in its section?",
    operation: "replace a box and retire the old one; the first thread reads all the time",
    threads: &[2],
    arms: &[
        Arm { name: "rcu", what: OURS, make: |setup| retire::<Ours>(setup, true) },
        Arm { name: "crossbeam", what: CROSSBEAM, make: |setup| retire::<Crossbeam>(setup, true) },
        Arm { name: "seize", what: SEIZE, make: |setup| retire::<SeizeCell<Tracked>>(setup, true) },
    ],
    ..SCENARIO
};

/// How many of a thread's boxes of this turn were freed, or calls made: by itself, and by others. Lent for ever: garbage may
/// outlive its turn.
type Freed = &'static (Padded, AtomicU64);

thread_local! {
    /// What the running thread retires into. A locked instruction for each end would cost more than the retiring that is measured.
    static OWN: Cell<Option<Freed>> = const { Cell::new(None) };
}

/// Counts its end.
#[derive(Debug)]
pub(crate) struct Tracked(Freed);

impl Drop for Tracked {
    fn drop(&mut self) {
        if OWN.get().is_some_and(|own| ptr::eq(own, self.0)) {
            self.0.0.add_alone(1);
        } else {
            // Relaxed: a statistic, read after the join.
            self.0.1.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Who retires, and how a reader stays in a section.
trait Retire: Sync + Debug {
    fn new(freed: Freed) -> Self;
    fn retire(&self, freed: Freed);
    fn stall(&self, until: &mut dyn FnMut());
}

#[derive(Debug)]
struct Ours(RcuCell<Tracked>);

impl Retire for Ours {
    fn new(_: Freed) -> Self {
        Ours(RcuCell::empty())
    }

    #[inline]
    fn retire(&self, freed: Freed) {
        self.0.replace(Some(Box::new(Tracked(freed))), &rcu::pin());
    }

    fn stall(&self, until: &mut dyn FnMut()) {
        let _guard = rcu::pin();
        until();
    }
}

#[derive(Debug)]
struct Crossbeam(crossbeam_epoch::Atomic<Tracked>);

impl Retire for Crossbeam {
    fn new(freed: Freed) -> Self {
        Crossbeam(crossbeam_epoch::Atomic::new(Tracked(freed)))
    }

    #[inline]
    fn retire(&self, freed: Freed) {
        crossbeam_replace(&self.0, Tracked(freed));
    }

    fn stall(&self, until: &mut dyn FnMut()) {
        let _guard = crossbeam_epoch::pin();
        until();
    }
}

impl Drop for Crossbeam {
    fn drop(&mut self) {
        crossbeam_clear(&mut self.0);
    }
}

impl Retire for SeizeCell<Tracked> {
    fn new(freed: Freed) -> Self {
        SeizeCell::new(Tracked(freed))
    }

    #[inline]
    fn retire(&self, freed: Freed) {
        self.replace(Tracked(freed));
    }

    fn stall(&self, until: &mut dyn FnMut()) {
        self.within(until);
    }
}

#[derive(Debug)]
struct OursDefer;

impl Retire for OursDefer {
    fn new(_: Freed) -> Self {
        OursDefer
    }

    #[inline]
    fn retire(&self, freed: Freed) {
        rcu::pin().defer(16, move || drop(Tracked(freed)));
    }

    fn stall(&self, until: &mut dyn FnMut()) {
        let _guard = rcu::pin();
        until();
    }
}

#[derive(Debug)]
struct CrossbeamDefer;

impl Retire for CrossbeamDefer {
    fn new(_: Freed) -> Self {
        CrossbeamDefer
    }

    #[inline]
    fn retire(&self, freed: Freed) {
        crossbeam_epoch::pin().defer(move || drop(Tracked(freed)));
    }

    fn stall(&self, until: &mut dyn FnMut()) {
        let _guard = crossbeam_epoch::pin();
        until();
    }
}

#[derive(Debug)]
struct Retiring<R> {
    cells: Vec<R>,
    retired: Vec<Padded>,
    freed: Vec<Freed>,
    stalled: bool,
}

/// Each thread has a cell and a count of its own: what is shared is the reclaiming alone.
fn retire<R: Retire + 'static>(setup: &Setup, stalled: bool) -> Box<dyn Subject> {
    let freed: Vec<Freed> = (0..setup.threads).map(|_| &*Box::leak(Box::default())).collect();
    let cells = freed.iter().map(|freed| R::new(freed)).collect();
    Box::new(Retiring::<R> { cells, retired: padded(setup.threads), freed, stalled })
}

impl<R: Retire> Retiring<R> {
    fn counts(&self) -> (u64, u64) {
        // Relaxed: a statistic. Freed is read first: more may be freed meanwhile, not less.
        let freed =
            |(own, others): &(Padded, AtomicU64)| own.get() + others.load(Ordering::Relaxed);
        let freed = self.freed.iter().copied().map(freed).sum();
        (freed, self.retired.iter().map(Padded::get).sum())
    }
}

impl<R: Retire> Subject for Retiring<R> {
    fn work(&self, worker: &mut Worker<'_>) {
        let number = worker.number;
        if self.stalled && number == 0 {
            worker.sample.role = "reader";
            self.cells[0].stall(&mut || {
                while !worker.is_over() {
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
            });
            return;
        }
        if self.stalled {
            worker.sample.role = "writer";
        }
        let (cell, freed, retired) =
            (&self.cells[number], self.freed[number], &self.retired[number]);
        OWN.set(Some(freed));
        let one = || {
            cell.retire(freed);
            retired.add_alone(1);
        };
        // Who waits for a stalled reader waits for milliseconds, and a turn should not last longer for it.
        if self.stalled { worker.repeat::<8>(one) } else { worker.repeat::<256>(one) }
    }

    fn check(&self, done: &[u64]) -> Result<(), String> {
        let (freed, retired) = self.counts();
        let done: u64 = done.iter().sum();
        if retired != done {
            return Err(format!("{retired} retired, {done} counted"));
        }
        if freed > retired { Err(format!("{freed} freed of {retired}")) } else { Ok(()) }
    }

    fn values(&self) -> Vec<(&'static str, f64)> {
        let (freed, retired) = self.counts();
        vec![("garbage_objects", (retired - freed) as f64)]
    }
}
