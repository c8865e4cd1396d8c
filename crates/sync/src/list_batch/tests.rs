//! A `ListBatch` holds what was put on it and not taken off, whoever did it.
use super::*;
use crate::IdLinks;
use std::thread;

struct Node {
    links: IdLinks<Node>,
}

impl Slot for Node {
    fn new() -> Self {
        Self { links: IdLinks::new() }
    }
}

struct OnList;

impl ListAdapter<Node> for OnList {
    fn links(node: &Node) -> &IdLinks<Node> {
        &node.links
    }
}

fn nodes(pool: &'static Pool<Node>, n: usize) -> Vec<Id<Node>> {
    (0..n).map(|_| pool.alloc().expect("room").publish()).collect()
}

#[test]
fn adds_at_both_ends_and_deletes() {
    static POOL: Pool<Node> = Pool::new(100);
    static LIST: ListBatch<Node, OnList> = ListBatch::new(&POOL);
    let ids = nodes(&POOL, 3);
    LIST.add(ids[0]);
    LIST.add(ids[1]);
    LIST.add_tail(ids[2]);
    assert_eq!(LIST.with(|list| list.iter().collect::<Vec<_>>()), [ids[1], ids[0], ids[2]]);
    assert!(LIST.is_linked(ids[0]));
    assert!(LIST.del(ids[0]));
    assert!(!LIST.is_linked(ids[0]));
    assert!(!LIST.del(ids[0]));
    assert_eq!(LIST.len(), 2);
    LIST.with(|list| while list.pop_front().is_some() {});
    assert!(LIST.is_empty());
}

#[test]
fn threads_add_and_delete_their_own_while_one_walks() {
    static POOL: Pool<Node> = Pool::new(10_000);
    static LIST: ListBatch<Node, OnList> = ListBatch::new(&POOL);
    const THREADS: usize = 6;
    thread::scope(|s| {
        for me in 0..THREADS {
            s.spawn(move || {
                let ids = nodes(&POOL, 100);
                for round in 0..30 {
                    for id in &ids {
                        if (round + me) % 2 == 0 {
                            LIST.add(*id)
                        } else {
                            LIST.add_tail(*id)
                        }
                        assert!(LIST.is_linked(*id), "not there on return");
                    }
                    for id in &ids {
                        assert!(LIST.del(*id));
                        assert!(!LIST.is_linked(*id), "still there on return");
                    }
                }
                LIST.add(ids[0]);
            });
        }
        s.spawn(|| {
            for _ in 0..100 {
                LIST.with(|list| assert_eq!(list.iter().count(), list.len()));
                thread::yield_now();
            }
        });
    });
    assert_eq!(LIST.len(), THREADS);
}
