//! dcache thread: what a reader pays to be safe from a writer that frees.
//!
//! Every arm enters a section, follows one shared pointer and leaves. The control follows it without any section, which only
//! works because here nobody frees; the rest of an arm's time is the section.

use std::fmt::Debug;
use std::hint::black_box;

use vfscale_sync::rcu::{self, RcuCell};

use crate::sample::Worker;
use crate::scenario::{Arm, Scenario, Subject, expect};

/// What stands behind the pointer.
const VALUE: u64 = 41;

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "rcu-read",
    question: "what does a reader pay to follow a pointer that a writer may replace and free?",
    source: "dcache thread, 2002",
    operation: "enter, follow one pointer, leave",
    threads: &[1, 2, 8],
    think_ns: &[0],
    arms: &[
        Arm {
            name: "rcu",
            what: "vfscale_sync::rcu: pin, RcuCell::load",
            make: |_| {
                let cell = RcuCell::empty();
                cell.replace(Some(Box::new(VALUE)), &rcu::pin());
                Box::new(Reading { name: "rcu", cell: Ours(cell) })
            },
        },
        Arm {
            name: "crossbeam",
            what: "crossbeam-epoch: pin, Atomic::load",
            make: |_| {
                let cell = Crossbeam(crossbeam_epoch::Atomic::new(VALUE));
                Box::new(Reading { name: "crossbeam", cell })
            },
        },
        Arm {
            name: "seize",
            what: "seize: enter, protected load",
            make: |_| {
                Box::new(Reading { name: "seize", cell: crate::peers::SeizeCell::new(VALUE) })
            },
        },
        Arm {
            name: "control",
            what: "a shared reference, no section",
            make: |_| Box::new(Reading { name: "control", cell: Box::new(VALUE) }),
        },
    ],
};

/// Something that a reader can look into.
pub(crate) trait Look: Sync + Debug {
    fn look(&self) -> u64;
}

#[derive(Debug)]
struct Reading<C> {
    name: &'static str,
    cell: C,
}

impl<C: Look> Subject for Reading<C> {
    fn work(&self, worker: &mut Worker<'_>) {
        let cell = black_box(&self.cell);
        let mut sum = 0_u64;
        worker.repeat::<1024>(|| sum = sum.wrapping_add(cell.look()));
        let wanted = VALUE.wrapping_mul(worker.sample.done);
        assert_eq!(sum, wanted, "{}: a reader saw another value", self.name);
    }

    fn check(&self, _: &[u64]) -> Result<(), String> {
        expect("the value", VALUE as i64, self.cell.look() as i64)
    }
}

#[derive(Debug)]
struct Ours(RcuCell<u64>);

impl Look for Ours {
    #[inline]
    fn look(&self) -> u64 {
        let guard = rcu::pin();
        black_box(self.0.load(&guard)).copied().unwrap_or_default()
    }
}

#[derive(Debug)]
struct Crossbeam(crossbeam_epoch::Atomic<u64>);

impl Look for Crossbeam {
    #[inline]
    fn look(&self) -> u64 {
        let guard = crossbeam_epoch::pin();
        let shared = self.0.load(std::sync::atomic::Ordering::Acquire, &guard);
        crate::peers::crossbeam_value(black_box(shared))
    }
}

impl Look for crate::peers::SeizeCell {
    #[inline]
    fn look(&self) -> u64 {
        self.value()
    }
}

impl Look for Box<u64> {
    #[inline]
    fn look(&self) -> u64 {
        **black_box(self)
    }
}
