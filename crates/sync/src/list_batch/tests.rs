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
    LIST.add_head(ids[0]);
    LIST.add_head(ids[1]);
    LIST.add_tail(ids[2]);
    assert_eq!(LIST.with(|list| list.iter().collect::<Vec<_>>()), [ids[1], ids[0], ids[2]]);
    assert!(LIST.is_linked(ids[0]));
    assert!(LIST.del(ids[0]));
    assert!(!LIST.is_linked(ids[0]));
    assert!(!LIST.del(ids[0]));
    assert_eq!(LIST.len(), 2);
    LIST.with(|list| while list.pop_head().is_some() {});
    assert!(LIST.is_empty());
}

#[test]
fn threads_add_and_delete_their_own_while_one_walks() {
    static POOL: Pool<Node> = Pool::new(10_000);
    static LIST: ListBatch<Node, OnList> = ListBatch::new(&POOL);
    const THREADS: usize = 6;
    crate::testing::scope(|s| {
        for me in 0..THREADS {
            s.spawn(move || {
                let ids = nodes(&POOL, 100);
                for round in 0..30 {
                    for id in &ids {
                        if (round + me) % 2 == 0 {
                            LIST.add_head(*id)
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
                LIST.add_head(ids[0]);
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

fn pool_and_list(n: usize) -> (Vec<Id<Node>>, &'static ListBatch<Node, OnList>) {
    let pool: &'static Pool<Node> = Box::leak(Box::new(Pool::new(10_000)));
    (nodes(pool, n), Box::leak(Box::new(ListBatch::new(pool))))
}

#[test]
fn everything_a_thread_needs_is_on_one_line() {
    assert_eq!(size_of::<Combining<WalkedList<Node, OnList>>>(), 64);
}

#[test]
fn a_second_add_is_refused_in_the_thread_that_asks() {
    let (ids, list) = pool_and_list(1);
    list.add_tail(ids[0]);
    assert!(!list.run(ListOp::AddHead(ids[0])));
    let twice = std::panic::AssertUnwindSafe(|| list.add_head(ids[0]));
    assert!(std::panic::catch_unwind(twice).is_err());
    assert_eq!(list.drain().collect::<Vec<_>>(), ids);
}

#[test]
fn a_cursor_takes_off_what_it_stands_on_and_what_comes_next() {
    let (ids, list) = pool_and_list(5);
    ids.iter().for_each(|id| list.add_tail(*id));
    let mut cursor = list.cursor();
    assert_eq!(cursor.next(), Some(ids[0]));
    assert!(cursor.del(ids[0]) && cursor.del(ids[1]));
    assert_eq!(cursor.next(), Some(ids[2]));
    assert_eq!(cursor.by_ref().collect::<Vec<_>>(), ids[3..]);
    drop(cursor);
    assert_eq!(list.len(), 3);
}

/// R4.8: what a cursor stands on and what it would go on with are taken off while the lock is free,
/// and put on another list with the same links.
#[test]
fn r4_8_a_cursor_outlives_what_it_stands_on() {
    let (ids, list) = pool_and_list(6);
    let other = ListBatch::<Node, OnList>::new(list.pool);
    ids.iter().for_each(|id| list.add_tail(*id));
    let mut cursor = list.cursor();
    assert_eq!(cursor.next(), Some(ids[0]));
    crate::testing::scope(|scope| {
        cursor.unlocked(|| {
            let del = || [ids[0], ids[1], ids[2]].map(|id| list.del(id));
            assert_eq!(scope.spawn(del).join().unwrap(), [true; 3]);
            other.add_head(ids[1]);
            list.add_head(ids[2]);
        });
    });
    assert_eq!(cursor.by_ref().collect::<Vec<_>>(), ids[3..]);
    // At the end: there is nothing to go on with, and the last is taken off.
    cursor.unlocked(|| assert!(list.del(ids[5])));
    assert_eq!(cursor.next(), None);
}

/// Two cursors give up the lock at the same time, each with its own mark, and one panics meanwhile.
#[test]
fn cursors_do_not_disturb_each_other() {
    let (ids, list) = pool_and_list(4);
    ids.iter().for_each(|id| list.add_tail(*id));
    let mut outer = list.cursor();
    assert_eq!(outer.next(), Some(ids[0]));
    outer.unlocked(|| {
        let mut inner = list.cursor();
        assert_eq!(inner.by_ref().take(2).count(), 2);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            inner.unlocked(|| {
                assert!(list.del(ids[1]) && list.del(ids[2]));
                panic!("while the lock is free");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(inner.next(), Some(ids[3]));
    });
    assert_eq!(outer.next(), Some(ids[3]));
    assert_eq!(outer.next(), None);
}

/// R4.8: exactly once for what is there throughout, while all else comes and goes.
#[test]
fn r4_8_a_walk_meets_what_stays_once() {
    let (ids, list) = pool_and_list(400);
    let (stay, go) = ids.split_at(200);
    for (stays, goes) in stay.iter().zip(go) {
        list.add_tail(*stays);
        list.add_tail(*goes);
    }
    let walking = std::sync::atomic::AtomicBool::new(true);
    crate::testing::scope(|scope| {
        for share in go.chunks(50) {
            let walking = &walking;
            scope.spawn(move || {
                while walking.load(std::sync::atomic::Ordering::Relaxed) {
                    share.iter().for_each(|id| assert!(list.del(*id)));
                    share.iter().for_each(|id| list.add_tail(*id));
                }
            });
        }
        for _ in 0..4 {
            let mut met = Vec::new();
            let mut cursor = list.cursor();
            // What is put last again and again would keep the walk going for ever.
            while let Some(id) = cursor.next().filter(|_| met.len() < 200) {
                if stay.contains(&id) {
                    met.push(id);
                }
                // Seldom: a yield among the busy may take many milliseconds.
                cursor.unlocked(|| {
                    if id.to_raw() % 64 == 0 {
                        thread::yield_now()
                    }
                });
            }
            assert_eq!(met, stay);
        }
        walking.store(false, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(list.drain().count(), 400);
    assert!(ids.iter().all(|id| !list.is_linked(*id)));
}
