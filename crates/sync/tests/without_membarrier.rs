//! Everything that leans on the asymmetric fence, in a process that does without the system's barrier.
//!
//! One process for the file: the choice is made once, before anything else. All tests of `rcu.rs` run here as well.
#![cfg(all(feature = "std", not(any(loom, shuttle)), target_os = "linux"))]

#[path = "rcu.rs"]
mod rcu_tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use vfscale_sync::rcu::{self, RcuCell};
use vfscale_sync::{BiasedRwLock, Id, IdLinks, ListAdapter, ListBatch, Pool, QMutex, Slot, fence};

/// Says no to the system's barrier before `main`, whichever test is first.
#[used]
// SAFETY: the section holds pointers to functions of this kind, and this one needs nothing that `main` sets up.
#[unsafe(link_section = ".init_array")]
static DECLINE: extern "C" fn() = {
    extern "C" fn decline() {
        fence::decline();
    }
    decline
};

#[test]
fn this_process_does_without_the_barrier() {
    drop(rcu::pin());
    rcu::synchronize();
    assert!(!fence::is_asymmetric() && !rcu::stats().asymmetric);
    assert!(fence::decline());
}

#[test]
fn readers_and_a_writer_that_frees() {
    static FREED: AtomicU64 = AtomicU64::new(0);
    struct Pair(u64, u64);
    impl Drop for Pair {
        fn drop(&mut self) {
            (self.0, self.1) = (u64::MAX, 0);
            FREED.fetch_add(1, Relaxed);
        }
    }

    let (cell, stop, reads) = (RcuCell::empty(), AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                while !stop.load(Relaxed) {
                    let guard = rcu::pin();
                    let seen: Option<&Pair> = cell.load(&guard);
                    assert!(seen.is_none_or(|pair| pair.0 == pair.1), "freed under a reader");
                    reads.fetch_add(1, Relaxed);
                }
            });
        }
        for n in 0..20_000 {
            cell.replace(Some(Box::new(Pair(n, n))), &rcu::pin());
        }
        stop.store(true, Relaxed);
    });
    rcu::synchronize();
    rcu::barrier();
    // Not what is pending in the process: the other tests' is among it.
    assert_eq!(FREED.load(Relaxed), 20_000 - 1, "all but the last");
    assert!(reads.into_inner() > 0);
}

#[test]
fn locks_that_are_free_to_their_holder() {
    let (mutex, biased) = (QMutex::new(0_u64), BiasedRwLock::new((0_u64, 0_u64)));
    thread::scope(|s| {
        for number in 0..5 {
            let (mutex, biased) = (&mutex, &biased);
            s.spawn(move || {
                for round in 0..4_000 {
                    *mutex.lock() += 1;
                    if number == 0 && round % 40 == 0 {
                        let mut pair = biased.write();
                        pair.0 += 1;
                        pair.1 += 1;
                    } else {
                        let pair = biased.read();
                        assert_eq!(pair.0, pair.1);
                    }
                }
            });
        }
    });
    assert_eq!((*mutex.lock(), *biased.read()), (20_000, (100, 100)));
}

struct Node(IdLinks<Node>);

impl Slot for Node {
    fn new() -> Self {
        Node(IdLinks::new())
    }
}

struct All;

impl ListAdapter<Node> for All {
    fn links(node: &Node) -> &IdLinks<Node> {
        &node.0
    }
}

static NODES: Pool<Node> = Pool::new(1 << 16);

#[test]
fn a_list_and_the_slots_on_it() {
    static LIST: ListBatch<Node, All> = ListBatch::new(&NODES);
    thread::scope(|s| {
        for _ in 0..5 {
            s.spawn(|| {
                for _ in 0..2_000 {
                    let id: Id<Node> = NODES.alloc().expect("room").publish();
                    LIST.add_head(id);
                    assert!(LIST.del(id));
                    NODES.retire(id, &rcu::pin());
                }
            });
        }
    });
    assert_eq!((LIST.len(), NODES.live()), (0, 0));
}
