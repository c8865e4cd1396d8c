//! The hash index, its pool and its growth, under many random schedules.
//!
//! A grace period never ends under a model, so a slot is not reused and a table grows once. Shuttle treats every access as
//! sequentially consistent: orderings are not tested here, interleavings are.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p vfscale-sync --release --test shuttle_index`
#![cfg(shuttle)]

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use shuttle::{Config, Runner, thread};
use vfscale_sync::{Chained, FindOrInsert, HashIndex, HashLinks, Id, Pool, Slot, rcu};

struct Entry {
    links: HashLinks<Entry>,
    key: AtomicU32,
}

impl Slot for Entry {
    fn new() -> Self {
        Entry { links: HashLinks::new(), key: AtomicU32::new(0) }
    }
}

/// The key is the hash.
impl Chained for Entry {
    fn links(&self) -> &HashLinks<Self> {
        &self.links
    }

    fn hash(&self) -> u32 {
        self.key.load(SeqCst)
    }
}

#[derive(Clone, Copy)]
struct World {
    pool: &'static Pool<Entry>,
    index: &'static HashIndex<Entry>,
}

impl World {
    /// Leaked: pools and indexes are static.
    fn new() -> Self {
        let pool: &'static Pool<Entry> = Box::leak(Box::new(Pool::new(16)));
        World { pool, index: Box::leak(Box::new(HashIndex::new(pool))) }
    }

    fn entry(&self, key: u32) -> Id<Entry> {
        let fresh = self.pool.alloc().expect("sixteen slots are enough");
        fresh.key.store(key, SeqCst);
        fresh.publish()
    }

    fn insert(&self, key: u32) -> Id<Entry> {
        let id = self.entry(key);
        self.index.insert(id, key, &rcu::pin());
        id
    }

    fn find(&self, key: u32) -> Option<Id<Entry>> {
        let guard = rcu::pin();
        let found = self.index.find(key, &guard, |_, entry| entry.key.load(SeqCst) == key);
        found.map(|(id, _)| id)
    }

    fn find_believing_misses(&self, key: u32) -> Option<Id<Entry>> {
        let guard = rcu::pin();
        let eq = |_, entry: &Entry| entry.key.load(SeqCst) == key;
        self.index.find_believing_misses(key, &guard, eq).map(|(id, _)| id)
    }

    fn rename(&self, id: Id<Entry>, from: u32, to: u32) {
        let change = || self.pool.slot(id).key.store(to, SeqCst);
        self.index.relink(id, from, to, &rcu::pin(), change);
    }
}

/// Keys of bucket 0 and bucket 1 in a table of two; the same filter bit, so that walks are not cut short.
const fn key(n: u32, bucket: u32) -> u32 {
    n << 1 | bucket
}

fn check(schedules: usize, f: impl Fn() + Sync + Send + Copy + 'static) {
    println!("{schedules} random schedules, {schedules} with at most 3 preemptions");
    Runner::new(RandomScheduler::new(schedules), Config::new()).run(f);
    Runner::new(PctScheduler::new(3, schedules), Config::new()).run(f);
}

/// Two buckets, a name in each, two that move between them and lie before the ones that stay. The world after its one resize.
fn settled() -> (World, [Id<Entry>; 4]) {
    let world = World::new();
    let stay = [world.insert(key(0, 0)), world.insert(key(0, 1))];
    let movers = [world.insert(key(1, 0)), world.insert(key(2, 1))];
    (world, [stay[0], stay[1], movers[0], movers[1]])
}

/// Names that exist throughout are looked up while others are renamed away from before them.
fn renames_beside_lookups(find: fn(&World, u32) -> Option<Id<Entry>>) {
    let (world, [stay_0, stay_1, mover, _]) = settled();
    let walker = thread::spawn(move || {
        for _ in 0..2 {
            assert_eq!(find(&world, key(0, 0)), Some(stay_0), "a name that exists was missed");
            assert_eq!(find(&world, key(0, 1)), Some(stay_1), "a name that exists was missed");
        }
    });
    world.rename(mover, key(1, 0), key(3, 1));
    world.rename(mover, key(3, 1), key(4, 0));
    walker.join().unwrap();
    assert_eq!(world.find(key(4, 0)), Some(mover));
    assert_eq!((world.find(key(1, 0)), world.find(key(3, 1))), (None, None));
    assert_eq!(world.index.len(), 4);
}

#[test]
fn a_rename_out_of_a_chain_makes_no_lookup_miss() {
    check(5_000, || renames_beside_lookups(World::find));
}

/// Without the second look a walker is dragged into the other chain and misses.
#[test]
#[should_panic(expected = "a name that exists was missed")]
fn believing_the_first_miss_is_refuted() {
    check(5_000, || renames_beside_lookups(World::find_believing_misses));
}

/// The one resize that a model allows, with a walker and a renamer inside it.
#[test]
fn a_table_that_grows_loses_no_name() {
    check(5_000, || {
        let world = World::new();
        let stay = world.insert(key(0, 0));
        let mover = world.entry(key(1, 0));
        let walker = thread::spawn(move || {
            for _ in 0..3 {
                assert_eq!(world.find(key(0, 0)), Some(stay), "a name that exists was missed");
            }
        });
        let renamer = thread::spawn(move || {
            world.index.insert(mover, key(1, 0), &rcu::pin());
            world.rename(mover, key(1, 0), key(2, 1));
            world.rename(mover, key(2, 1), key(3, 0));
        });
        let crowd = [world.insert(key(5, 1)), world.insert(key(6, 0))];
        walker.join().unwrap();
        renamer.join().unwrap();
        let found = [key(0, 0), key(3, 0), key(5, 1), key(6, 0)].map(|key| world.find(key));
        assert_eq!(found, [stay, mover, crowd[0], crowd[1]].map(Some));
        assert_eq!(world.index.len(), 4);
        assert!(world.index.buckets() > 1);
        assert!(world.index.remove(mover, key(3, 0), &rcu::pin()));
        assert_eq!(world.find(key(3, 0)), None);
    });
}

/// Removed and linked again without a grace period between: allowed, and no lookup of another name misses.
#[test]
fn a_slot_may_be_linked_again_at_once() {
    check(3_000, || {
        let (world, [stay_0, _, mover, _]) = settled();
        let walker = thread::spawn(move || {
            for _ in 0..2 {
                assert_eq!(world.find(key(0, 0)), Some(stay_0), "a name that exists was missed");
            }
        });
        let guard = rcu::pin();
        assert!(world.index.remove(mover, key(1, 0), &guard));
        world.pool.slot(mover).key.store(key(7, 1), SeqCst);
        world.index.insert(mover, key(7, 1), &guard);
        walker.join().unwrap();
        assert_eq!(world.find(key(7, 1)), Some(mover));
    });
}

#[test]
fn of_two_inserters_one_finds() {
    check(3_000, || {
        let world = World::new();
        let inserted = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let inserted = inserted.clone();
                thread::spawn(move || {
                    for n in 0..3 {
                        let key = key(n, n & 1);
                        let guard = rcu::pin();
                        let same = |_, entry: &Entry| entry.key.load(SeqCst) == key;
                        let make = || Some(world.entry(key));
                        match world.index.find_or_insert(key, &guard, same, make) {
                            FindOrInsert::Inserted(_) => {
                                inserted.fetch_add(1, SeqCst);
                            }
                            FindOrInsert::Found(_, entry) => assert_eq!(entry.hash(), key),
                            FindOrInsert::Failed => panic!("make never fails"),
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!((inserted.load(SeqCst), world.index.len()), (3, 3));
    });
}
