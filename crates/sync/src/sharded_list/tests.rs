//! Wherever a slot was added, any thread takes it off, once.
use super::*;
use crate::IdLinks;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;

struct Node {
    links: IdLinks<Node>,
    mark: ShardMark,
}

impl Slot for Node {
    fn new() -> Self {
        Self { links: IdLinks::new(), mark: ShardMark::new() }
    }
}

struct OnList;

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

type List<const SHARDS: usize> = ShardedList<Node, OnList, SHARDS>;

fn pool_and_list<const SHARDS: usize>(n: usize) -> (Vec<Id<Node>>, &'static List<SHARDS>) {
    let pool: &'static Pool<Node> = Box::leak(Box::new(Pool::new(10_000)));
    let ids = (0..n).map(|_| pool.alloc().expect("room").publish()).collect();
    (ids, Box::leak(Box::new(List::new(pool))))
}

/// Adds each id in a thread of its own, so that several parts are used.
fn add_from_threads<const SHARDS: usize>(list: &'static List<SHARDS>, ids: &[Id<Node>]) {
    let together = std::sync::Barrier::new(ids.len());
    crate::testing::scope(|scope| {
        for id in ids {
            let together = &together;
            scope.spawn(move || {
                thread_slot::current();
                together.wait();
                list.add(*id);
                together.wait();
            });
        }
    });
}

#[test]
fn a_part_has_its_own_lines() {
    assert!(size_of::<Shard<Node, OnList>>() <= 128);
    assert_eq!(size_of::<QMutex<WalkedList<Node, OnList>>>(), 64);
}

#[test]
fn adds_deletes_counts_and_drains() {
    let (ids, list) = pool_and_list::<4>(8);
    assert!(list.is_empty() && !list.del(ids[0]));
    add_from_threads(list, &ids);
    assert!(list.shards.iter().filter(|shard| !shard.lock().is_empty()).count() > 1, "one part");
    assert_eq!((list.len(), list.is_empty()), (8, false));
    assert!(list.del(ids[3]) && !list.is_linked(ids[3]) && !list.del(ids[3]));
    let twice = std::panic::AssertUnwindSafe(|| list.add(ids[0]));
    assert!(std::panic::catch_unwind(twice).is_err());
    list.add(ids[3]);
    let mut drained: Vec<_> = list.drain().collect();
    drained.sort();
    assert_eq!(drained, ids);
    assert!(list.is_empty() && ids.iter().all(|id| !list.is_linked(*id)));
}

/// R4.8: one slot, taken off by all at the same time; one of them is told that it did.
#[test]
fn r4_8_one_of_several_deletes_succeeds() {
    let (ids, list) = pool_and_list::<3>(64);
    for _ in 0..20 {
        ids.iter().for_each(|id| list.add(*id));
        let done = AtomicU32::new(0);
        crate::testing::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let here = ids.iter().filter(|id| list.del(**id)).count();
                    done.fetch_add(here as u32, Relaxed);
                });
            }
        });
        assert_eq!(done.into_inner(), 64);
        assert!(list.is_empty());
    }
}

/// R4.8: slots that move from part to part while others take them off.
#[test]
fn r4_8_a_slot_is_taken_off_wherever_it_went() {
    let (ids, list) = pool_and_list::<8>(16);
    let moves = AtomicU32::new(0);
    crate::testing::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for round in 0..6_000 {
                    // Who took it off is its owner until it adds it.
                    let id = ids[round % ids.len()];
                    if list.del(id) {
                        moves.fetch_add(1, Relaxed);
                        list.add(id);
                    } else if round < 16 && moves.load(Relaxed) == 0 {
                        thread::yield_now();
                    }
                }
            });
        }
        ids.iter().for_each(|id| list.add(*id));
    });
    assert!(moves.into_inner() > 100, "nothing was moved");
    assert_eq!(list.len(), ids.len());
    assert_eq!(list.drain().count(), ids.len());
}

/// R4.8: a cursor meets each slot once and takes off what it stands on, also of another part.
#[test]
fn r4_8_a_cursor_deletes_here_and_elsewhere() {
    let (ids, list) = pool_and_list::<4>(12);
    add_from_threads(list, &ids);
    let met: Vec<_> = list.cursor().collect();
    assert_eq!(met.len(), 12);
    let mut cursor = list.cursor();
    assert!(cursor.del(met[1]), "before the first slot");
    assert_eq!(cursor.next(), Some(met[0]));
    assert!(cursor.del(met[0]) && !cursor.del(met[0]));
    assert!(cursor.del(met[11]) && cursor.del(met[2]));
    assert_eq!(cursor.by_ref().collect::<Vec<_>>(), met[3..11]);
    assert!(cursor.del(met[5]), "behind the last slot");
    assert_eq!(list.len(), 7);
}

/// R4.8: exactly once for what stays, while everything else comes and goes.
#[test]
fn r4_8_a_walk_meets_what_stays_once() {
    let (ids, list) = pool_and_list::<4>(300);
    let (stay, go) = ids.split_at(100);
    for chunk in stay.chunks(20) {
        add_from_threads(list, chunk);
    }
    go.iter().for_each(|id| list.add(*id));
    let walking = AtomicBool::new(true);
    crate::testing::scope(|scope| {
        for share in go.chunks(40) {
            let walking = &walking;
            scope.spawn(move || {
                while walking.load(Relaxed) {
                    share.iter().for_each(|id| assert!(list.del(*id)));
                    share.iter().for_each(|id| list.add(*id));
                }
            });
        }
        for _ in 0..4 {
            let mut met = Vec::new();
            let mut cursor = list.cursor();
            while let Some(id) = cursor.next() {
                met.extend(Some(id).filter(|id| stay.contains(id)));
                // Seldom: a yield among the busy may take many milliseconds.
                cursor.unlocked(|| {
                    if id.to_raw() % 64 == 0 {
                        thread::yield_now()
                    }
                });
            }
            met.sort();
            assert_eq!(met, stay);
        }
        walking.store(false, Relaxed);
    });
    assert_eq!(list.len(), 300);
}
