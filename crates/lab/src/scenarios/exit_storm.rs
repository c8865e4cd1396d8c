//! list_batch thread: processes that own many inodes all exit at once.
//!
//! Each thread puts its elements on the one list; all wait for each other; then each takes its own off again. Start-up and exit
//! are timed apart, as the thread reports them: the lists look alike while things are added and differ when all leave.

use std::fmt::Debug;
use std::sync::Barrier;

use vfscale_sync::{IdList, ListBatch, ShardedList};

use super::list::{Batch, Locked, Nodes, POOL, Sharded, Shared};
use crate::peers::{ListLock, LockedList};
use crate::sample::{Setup, Worker};
use crate::scenario::{Arm, Scenario, Subject, expect};

/// Elements of one thread.
const OWNED: usize = 2_000;

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "exit-storm",
    question: "how long does it take until threads that own many inodes have all left?",
    source: "list_batch thread, 2016",
    operation: "one element put on the list (start_ns) or taken off (exit_ns); 2,000 of a thread",
    threads: &[1, 2, 8],
    think_ns: &[0],
    arms: &[
        Arm {
            name: "batch",
            what: "vfscale_sync::ListBatch",
            make: |setup| storm(Batch::<128>(ListBatch::new(&POOL)), setup),
        },
        Arm {
            name: "sharded",
            what: "vfscale_sync::ShardedList",
            make: |setup| storm(Sharded(ShardedList::new(&POOL)), setup),
        },
        Arm {
            name: "idlist",
            what: "parking_lot Mutex around our own IdList",
            make: |setup| storm(Locked(parking_lot::Mutex::new(IdList::new(&POOL))), setup),
        },
        Arm {
            name: "parking_lot",
            what: "parking_lot Mutex around an intrusive-collections list",
            make: peer::<parking_lot::Mutex<crate::peers::Lent>>,
        },
        Arm {
            name: "lamlock",
            what: "lamlock, which combines, around the same list",
            make: peer::<lamlock::Lock<crate::peers::Lent>>,
        },
    ],
};

/// Runs both parts of one thread's life.
fn live(worker: &mut Worker<'_>, meet: &Barrier, add: impl Fn(usize), del: impl Fn(usize) -> bool) {
    let own = worker.number * OWNED..(worker.number + 1) * OWNED;
    worker.part("start_ns", OWNED as u64, || own.clone().for_each(&add));
    meet.wait();
    worker.part("exit_ns", OWNED as u64, || {
        for at in own {
            assert!(del(at), "it was on the list");
        }
    });
}

#[derive(Debug)]
struct Ours<L> {
    list: L,
    nodes: Nodes,
    meet: Barrier,
}

fn storm<L: Shared + 'static>(list: L, setup: &Setup) -> Box<dyn Subject> {
    let nodes = Nodes::new(setup.threads * OWNED);
    Box::new(Ours { list, nodes, meet: Barrier::new(setup.threads) })
}

impl<L: Shared> Subject for Ours<L> {
    fn work(&self, worker: &mut Worker<'_>) {
        let nodes = &self.nodes.0;
        live(worker, &self.meet, |at| self.list.add(nodes[at]), |at| self.list.del(nodes[at]));
    }

    fn check(&self, done: &[u64]) -> Result<(), String> {
        check(done, self.list.len())
    }
}

struct Peer<L> {
    list: LockedList<L>,
    meet: Barrier,
}

impl<L> Debug for Peer<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").field("list", &self.list).finish_non_exhaustive()
    }
}

fn peer<L: ListLock + 'static>(setup: &Setup) -> Box<dyn Subject> {
    let list = LockedList::<L>::new(setup.threads * OWNED);
    Box::new(Peer { list, meet: Barrier::new(setup.threads) })
}

impl<L: ListLock> Subject for Peer<L> {
    fn work(&self, worker: &mut Worker<'_>) {
        live(worker, &self.meet, |at| self.list.add(at), |at| self.list.del(at));
    }

    fn check(&self, done: &[u64]) -> Result<(), String> {
        check(done, self.list.len())
    }
}

fn check(done: &[u64], length: usize) -> Result<(), String> {
    expect("the length", 0, length as i64)?;
    done.iter().try_for_each(|&done| expect("a thread's operations", 2 * OWNED as i64, done as i64))
}
