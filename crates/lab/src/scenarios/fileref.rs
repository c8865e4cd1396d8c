//! fget thread: a reference on an open file, taken only if it still lives.
//!
//! The refused proposal split the check from the add. The right form adds first and looks at what it added to, so it costs what
//! `Arc` costs, which never looks; a compare-exchange looks first and pays when two threads meet.

use std::hint::black_box;
use std::sync::Arc;

use vfscale_sync::experimental::ReservedXchg;
use vfscale_sync::{CasRef, FileRef, GetFile, PutFile, rcu};

use crate::sample::Worker;
use crate::scenario::{Arm, Scenario, Subject, expect};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "fileref",
    question: "what does it cost to take a reference only if the file still lives?",
    source: "fget thread, 2020",
    operation: "get + put",
    threads: &[1, 2, 8],
    think_ns: &[0],
    arms: &[
        Arm {
            name: "fileref",
            what: "vfscale_sync::FileRef: get, put under an RCU guard of its own",
            make: |_| {
                let count = FileRef::new();
                count.reset();
                Box::new(Ours(count))
            },
        },
        Arm {
            name: "casref",
            what: "vfscale_sync::CasRef: a compare-exchange loop, unless zero",
            make: |_| Box::new(Exact(CasRef::new())),
        },
        Arm {
            name: "reserved",
            what: "vfscale_sync::experimental::ReservedXchg: a pair of exchanges, which blocks",
            make: |_| Box::new(Exact(ReservedXchg::new())),
        },
        Arm {
            name: "arc",
            what: "std Arc: clone, drop; never refuses",
            make: |_| Box::new(Plain(Arc::new(0))),
        },
    ],
};

#[derive(Debug)]
struct Ours(FileRef);

impl Subject for Ours {
    fn work(&self, worker: &mut Worker<'_>) {
        let count = black_box(&self.0);
        worker.repeat::<1024>(|| {
            let guard = rcu::pin();
            let taken = count.get();
            drop(guard);
            assert!(taken == GetFile::Taken, "the file lives");
            let last = count.put(&rcu::pin());
            assert!(last == PutFile::StillLive, "the table holds one reference");
        });
    }

    fn check(&self, _: &[u64]) -> Result<(), String> {
        expect("the count", 1, self.0.count() as i64)
    }
}

/// A count that needs no guard to put: the object stays here, as under RCU.
trait Exactly: Sync + std::fmt::Debug {
    fn get(&self) -> GetFile;
    fn put(&self) -> PutFile;
    fn count(&self) -> u64;
}

macro_rules! exactly {
    ($count:ty) => {
        impl Exactly for $count {
            #[inline]
            fn get(&self) -> GetFile {
                <$count>::get(self)
            }
            #[inline]
            fn put(&self) -> PutFile {
                <$count>::put(self)
            }
            fn count(&self) -> u64 {
                <$count>::count(self)
            }
        }
    };
}

exactly!(CasRef);
exactly!(ReservedXchg);

#[derive(Debug)]
struct Exact<C>(C);

impl<C: Exactly> Subject for Exact<C> {
    fn work(&self, worker: &mut Worker<'_>) {
        let Exact(count) = black_box(self);
        worker.repeat::<1024>(|| {
            let guard = rcu::pin();
            let taken = count.get();
            drop(guard);
            assert!(taken == GetFile::Taken, "the file lives");
            assert!(count.put() == PutFile::StillLive, "the table holds one reference");
        });
    }

    fn check(&self, _: &[u64]) -> Result<(), String> {
        expect("the count", 1, self.0.count() as i64)
    }
}

#[derive(Debug)]
struct Plain(Arc<u64>);

impl Subject for Plain {
    fn work(&self, worker: &mut Worker<'_>) {
        let object = black_box(&self.0);
        worker.repeat::<1024>(|| drop(black_box(Arc::clone(object))));
    }

    fn check(&self, _: &[u64]) -> Result<(), String> {
        expect("the count", 1, Arc::strong_count(&self.0) as i64)
    }
}
