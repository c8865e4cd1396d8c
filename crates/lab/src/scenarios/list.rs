//! list_batch thread: everyone puts things on one list and takes them off.
//!
//! The kernel's case is the list of a superblock's inodes. The thread has one lock holder do what others queued; the reply that
//! won has a list per processor. The peers are a lock around an intrusive list, with the locks that an author would take.
//! The `idlist` arm is parking_lot's lock around our own list: what differs between it and `parking_lot` is the list, and
//! between it and ours the lock. Without a thought between operations one thread keeps the list in its own cache; with one,
//! the list moves.

use std::fmt::Debug;

use vfscale_sync::{
    Id, IdLinks, IdList, ListAdapter, ListBatch, Pool, ShardMark, ShardedAdapter, ShardedList,
    Slot, rcu,
};

use super::{Padded, padded};
use crate::peers::{ListLock, LockedList};
use crate::sample::{Setup, Think, Worker};
use crate::scenario::{Arm, Scenario, Subject, expect};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "list",
    question: "what does it cost to put an element on a list that all threads share, and to take it off?",
    source: "list_batch thread, 2016",
    operation: "add one's own element, think, delete it, think",
    threads: &[1, 2, 8],
    think_ns: &[0, 200],
    arms: &[
        Arm {
            name: "batch",
            what: "vfscale_sync::ListBatch: the lock's holder does what others queued",
            make: |setup| with(Batch::<128>(ListBatch::new(&POOL)), setup),
        },
        Arm {
            name: "batch-1",
            what: "the same with batches of 1",
            make: |setup| with(Batch::<1>(ListBatch::new(&POOL)), setup),
        },
        Arm {
            name: "batch-16",
            what: "the same with batches of 16",
            make: |setup| with(Batch::<16>(ListBatch::new(&POOL)), setup),
        },
        Arm {
            name: "batch-64",
            what: "the same with batches of 64",
            make: |setup| with(Batch::<64>(ListBatch::new(&POOL)), setup),
        },
        Arm {
            name: "batch-256",
            what: "the same with batches of 256",
            make: |setup| with(Batch::<256>(ListBatch::new(&POOL)), setup),
        },
        Arm {
            name: "sharded",
            what: "vfscale_sync::ShardedList: a list in parts, each thread adds to its own",
            make: |setup| with(Sharded(ShardedList::new(&POOL)), setup),
        },
        Arm {
            name: "idlist",
            what: "parking_lot Mutex around our own IdList",
            make: |setup| with(Locked(parking_lot::Mutex::new(IdList::new(&POOL))), setup),
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
        Arm {
            name: "control",
            what: "a count of the thread's own, no list",
            make: |setup| Box::new(Alone { counts: padded(setup.threads), think: setup.think }),
        },
    ],
};

/// An element: its links, on a line of its own.
#[repr(align(64))]
pub(super) struct Node {
    links: IdLinks<Node>,
    mark: ShardMark,
}

impl Slot for Node {
    fn new() -> Self {
        Node { links: IdLinks::new(), mark: ShardMark::new() }
    }
}

#[derive(Debug)]
pub(super) struct OnList;

impl ListAdapter<Node> for OnList {
    fn links(node: &Node) -> &IdLinks<Node> {
        &node.links
    }
}

impl ShardedAdapter<Node> for OnList {
    fn mark(node: &Node) -> &ShardMark {
        &node.mark
    }
}

pub(super) static POOL: Pool<Node> = Pool::new(1 << 20);

/// A list of ours, whatever guards it.
pub(super) trait Shared: Sync + Debug {
    fn add(&self, id: Id<Node>);
    fn del(&self, id: Id<Node>) -> bool;
    fn len(&self) -> usize;
}

#[derive(Debug)]
pub(super) struct Batch<const BATCH: usize>(pub(super) ListBatch<Node, OnList, BATCH>);

impl<const BATCH: usize> Shared for Batch<BATCH> {
    #[inline]
    fn add(&self, id: Id<Node>) {
        self.0.add_head(id);
    }

    #[inline]
    fn del(&self, id: Id<Node>) -> bool {
        self.0.del(id)
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

#[derive(Debug)]
pub(super) struct Sharded(pub(super) ShardedList<Node, OnList>);

impl Shared for Sharded {
    #[inline]
    fn add(&self, id: Id<Node>) {
        self.0.add(id);
    }

    #[inline]
    fn del(&self, id: Id<Node>) -> bool {
        self.0.del(id)
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

#[derive(Debug)]
pub(super) struct Locked(pub(super) parking_lot::Mutex<IdList<Node, OnList>>);

impl Shared for Locked {
    #[inline]
    fn add(&self, id: Id<Node>) {
        self.0.lock().push_front(id);
    }

    #[inline]
    fn del(&self, id: Id<Node>) -> bool {
        self.0.lock().remove(id)
    }

    fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// So many elements, given back to the pool at the end.
#[derive(Debug)]
pub(super) struct Nodes(pub(super) Vec<Id<Node>>);

impl Nodes {
    pub(super) fn new(count: usize) -> Nodes {
        let fresh = |_| POOL.alloc().expect("the pool has room").publish();
        Nodes((0..count).map(fresh).collect())
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let guard = rcu::pin();
        self.0.iter().for_each(|&id| POOL.retire(id, &guard));
    }
}

/// One element for each thread, on a list of ours.
#[derive(Debug)]
struct Ours<L> {
    list: L,
    nodes: Nodes,
    think: Think,
}

fn with<L: Shared + 'static>(list: L, setup: &Setup) -> Box<dyn Subject> {
    Box::new(Ours { list, nodes: Nodes::new(setup.threads), think: setup.think })
}

impl<L: Shared> Subject for Ours<L> {
    fn work(&self, worker: &mut Worker<'_>) {
        let (id, think) = (self.nodes.0[worker.number], self.think);
        worker.repeat::<64>(|| {
            self.list.add(id);
            think.pass();
            assert!(self.list.del(id), "it was on the list");
            think.pass();
        });
    }

    fn check(&self, _: &[u64]) -> Result<(), String> {
        expect("the length", 0, self.list.len() as i64)
    }
}

/// The same with a peer's lock.
struct Peer<L> {
    list: LockedList<L>,
    think: Think,
}

impl<L> Debug for Peer<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").field("list", &self.list).finish_non_exhaustive()
    }
}

fn peer<L: ListLock + 'static>(setup: &Setup) -> Box<dyn Subject> {
    Box::new(Peer::<L> { list: LockedList::new(setup.threads), think: setup.think })
}

impl<L: ListLock> Subject for Peer<L> {
    fn work(&self, worker: &mut Worker<'_>) {
        let (at, think) = (worker.number, self.think);
        worker.repeat::<64>(|| {
            self.list.add(at);
            think.pass();
            assert!(self.list.del(at), "it was on the list");
            think.pass();
        });
    }

    fn check(&self, _: &[u64]) -> Result<(), String> {
        expect("the length", 0, self.list.len() as i64)
    }
}

#[derive(Debug)]
struct Alone {
    counts: Vec<Padded>,
    think: Think,
}

impl Subject for Alone {
    fn work(&self, worker: &mut Worker<'_>) {
        let (count, think) = (&self.counts[worker.number], self.think);
        worker.repeat::<64>(|| {
            count.add_alone(1);
            think.pass();
            count.add_alone(1);
            think.pass();
        });
    }

    fn check(&self, done: &[u64]) -> Result<(), String> {
        self.counts.iter().zip(done).try_for_each(|(count, &done)| {
            expect("a thread's count", 2 * done as i64, count.get() as i64)
        })
    }
}
