//! The hash index on real threads. The race a miss is looked at twice for is in `shuttle_index.rs`, in many orders.
#![cfg(all(feature = "std", not(any(loom, shuttle))))]
#![allow(missing_docs)]

#[path = "../src/testing.rs"]
mod testing;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use vfscale_sync::{Chained, FindOrInsert, HashIndex, HashLinks, Id, Pool, Slot, rcu};

struct Entry {
    links: HashLinks<Entry>,
    key: AtomicU64,
    hash: AtomicU32,
}

impl Slot for Entry {
    fn new() -> Self {
        Entry { links: HashLinks::new(), key: AtomicU64::new(0), hash: AtomicU32::new(0) }
    }

    fn scrub(&self) {
        self.key.store(u64::MAX, Relaxed);
    }
}

impl Chained for Entry {
    fn links(&self) -> &HashLinks<Self> {
        &self.links
    }

    fn hash(&self) -> u32 {
        self.hash.load(Relaxed)
    }
}

/// A pool and an index of their own, and a hash that is as bad as the test wants.
#[derive(Clone, Copy)]
struct World {
    pool: &'static Pool<Entry>,
    index: &'static HashIndex<Entry>,
    hash: fn(u64) -> u32,
}

impl World {
    fn new(max: u32, hash: fn(u64) -> u32) -> Self {
        let pool: &'static Pool<Entry> = Box::leak(Box::new(Pool::new(max)));
        World { pool, index: Box::leak(Box::new(HashIndex::new(pool))), hash }
    }

    fn entry(&self, key: u64) -> Id<Entry> {
        let fresh = self.pool.alloc().expect("the pool is large enough");
        fresh.key.store(key, Relaxed);
        fresh.hash.store((self.hash)(key), Relaxed);
        fresh.publish()
    }

    fn find(&self, key: u64) -> Option<Id<Entry>> {
        let guard = rcu::pin();
        self.index
            .find((self.hash)(key), &guard, |_, entry| entry.key.load(Relaxed) == key)
            .map(|(id, _)| id)
    }

    fn insert(&self, key: u64) -> Id<Entry> {
        let id = self.entry(key);
        self.index.insert(id, (self.hash)(key), &rcu::pin());
        id
    }

    fn remove(&self, id: Id<Entry>, key: u64) -> bool {
        let guard = rcu::pin();
        let was_linked = self.index.remove(id, (self.hash)(key), &guard);
        if was_linked {
            self.pool.retire(id, &guard);
        }
        was_linked
    }

    fn rename(&self, id: Id<Entry>, from: u64, to: u64) {
        let (old, new) = ((self.hash)(from), (self.hash)(to));
        let guard = rcu::pin();
        self.index.relink(id, old, new, &guard, || {
            let entry = self.pool.slot(id);
            entry.key.store(to, Relaxed);
            entry.hash.store(new, Relaxed);
        });
    }
}

fn mix(key: u64) -> u32 {
    (key.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// 32 buckets' worth of hashes: long chains, many of them renamed within.
fn poor(key: u64) -> u32 {
    mix(key) & 0xe000_0003
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn an_empty_index_finds_nothing() {
    let world = World::new(10, mix);
    assert_eq!((world.find(1), world.index.len(), world.index.buckets()), (None, 0, 0));
    let id = world.insert(1);
    assert_eq!((world.find(1), world.find(2), world.index.len()), (Some(id), None, 1));
    assert!(world.remove(id, 1));
    assert!(!world.remove(id, 1));
    assert!(world.index.is_empty());
}

#[test]
fn it_does_what_a_map_does() {
    for (hash, keys) in [(mix as fn(u64) -> u32, 6_000), (poor, 60)] {
        let world = World::new(50_000, hash);
        let mut model = BTreeMap::new();
        let mut random = Random(7);
        for step in 0..40_000 {
            let key = random.below(keys);
            assert_eq!(world.find(key), model.get(&key).copied(), "step {step}, key {key}");
            // First mostly inserts, then mostly removes: up and down through several sizes.
            let inserts = if step < 20_000 { 6 } else { 1 };
            match (random.below(10), model.get(&key).copied()) {
                (n, None) if n < inserts => {
                    model.insert(key, world.insert(key));
                }
                (7.., Some(id)) => {
                    assert!(world.remove(id, key));
                    model.remove(&key);
                }
                (_, Some(id)) => {
                    let to = random.below(keys);
                    if !model.contains_key(&to) {
                        world.rename(id, key, to);
                        model.remove(&key);
                        model.insert(to, id);
                    }
                }
                _ => {}
            }
            assert_eq!(world.index.len(), model.len());
        }
        let guard = rcu::pin();
        let mut seen = Vec::new();
        world.index.for_each(&guard, |id, entry| seen.push((entry.key.load(Relaxed), id)));
        seen.sort_unstable();
        assert_eq!(seen, model.into_iter().collect::<Vec<_>>());
    }
}

/// Once round with the hand, which passes each slot that stays, also where the table grows and shrinks on the way; and what is shown may
/// be removed.
#[test]
fn the_hand_passes_all_that_stays_whatever_becomes_of_the_table() {
    let world = World::new(50_000, mix);
    assert_eq!(world.index.visit_chain(5, &rcu::pin(), &mut |_, _| ()), 0, "no table yet");
    let stay: Vec<_> = (0..3_000).map(|key| world.insert(key)).collect();
    let mut seen = std::collections::BTreeSet::new();
    let (mut hand, mut steps, mut crowd) = (0, 0_u64, Vec::new());
    loop {
        hand = world.index.visit_chain(hand, &rcu::pin(), &mut |id, _| {
            seen.insert(id);
        });
        steps += 1;
        match steps {
            // Several sizes up, and down again.
            100..400 => crowd.extend(
                (0..50).map(|i| 1_000_000 + steps * 50 + i).map(|key| (world.insert(key), key)),
            ),
            1_000..4_000 => crowd
                .split_off(crowd.len().saturating_sub(5))
                .into_iter()
                .for_each(|(id, key)| assert!(world.remove(id, key))),
            _ => {}
        }
        if hand == 0 {
            break;
        }
        assert!(steps < 200_000, "round and round");
    }
    assert!(steps > 1_000, "{steps} chains");
    assert!(stay.iter().all(|id| seen.contains(id)), "it passed some of those that stayed");
    let mut removed = 0;
    loop {
        hand = world.index.visit_chain(hand, &rcu::pin(), &mut |id, entry| {
            removed += usize::from(world.remove(id, entry.key.load(Relaxed)));
        });
        if hand == 0 {
            break;
        }
    }
    assert_eq!((removed, world.index.len()), (stay.len() + crowd.len(), 0));
}

/// Goes on changing the index until `fits` holds for its buckets. Between two resizes lies a grace period, and a reader of
/// another test that lost its processor in a section holds that up for as long as it takes.
fn changes_until(world: &World, fits: impl Fn(usize) -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !fits(world.index.buckets()) {
        assert!(
            Instant::now() < end,
            "{} buckets for {}",
            world.index.buckets(),
            world.index.len()
        );
        let id = world.insert(u64::MAX);
        assert!(world.remove(id, u64::MAX));
    }
}

#[test]
fn the_table_grows_with_its_entries_and_shrinks_after_them() {
    let world = World::new(200_000, mix);
    let ids: Vec<_> = (0..100_000).map(|key| world.insert(key)).collect();
    changes_until(&world, |buckets| (100_000..=262_144).contains(&buckets));
    let grown = world.index.buckets();
    assert!(ids.iter().zip(0..).all(|(id, key)| world.find(key) == Some(*id)));
    for (id, key) in ids.iter().zip(0..) {
        assert!(world.remove(*id, key));
    }
    assert_eq!(world.index.len(), 0);
    changes_until(&world, |buckets| buckets < grown / 64);
    assert_eq!(world.pool.live(), 0);
}

#[test]
fn of_two_inserters_one_finds() {
    let world = World::new(40_000, mix);
    let inserted = AtomicU64::new(0);
    testing::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for key in 0..5_000 {
                    let hash = mix(key);
                    let guard = rcu::pin();
                    let same = |_, entry: &Entry| entry.key.load(Relaxed) == key;
                    let make = || Some(world.entry(key));
                    match world.index.find_or_insert(hash, &guard, same, make) {
                        FindOrInsert::Inserted(_) => {
                            inserted.fetch_add(1, Relaxed);
                        }
                        FindOrInsert::Found(_, entry) => assert_eq!(entry.key.load(Relaxed), key),
                        FindOrInsert::Failed => panic!("make never fails"),
                    }
                }
            });
        }
    });
    assert_eq!(
        (inserted.load(Relaxed), world.index.len(), world.pool.live()),
        (5_000, 5_000, 5_000)
    );
    let guard = rcu::pin();
    let failed = world.index.find_or_insert(mix(9_999_999), &guard, |_, _| false, || None);
    assert!(matches!(failed, FindOrInsert::Failed));
}

#[test]
#[should_panic(expected = "not linked under the hash given")]
fn a_relink_from_the_wrong_hash_is_refused() {
    let world = World::new(10, mix);
    let id = world.insert(1);
    world.rename(id, 2, 3);
}

/// Lookups of names that always exist, beside renames of others (within chains, between chains), creations and removals, and
/// a table that grows and shrinks all the while. A miss, or a wrong slot, is a failure.
fn names_that_exist_are_found(hash: fn(u64) -> u32, stable: u64, crowd: u64) {
    let world = World::new(400_000, hash);
    // Leaked: the end of a scope is invisible to the thread sanitizer.
    let stable_ids: &[_] = (0..stable).map(|key| world.insert(key)).collect::<Vec<_>>().leak();
    let done = AtomicBool::new(false);
    let (lookups, renames, resizes) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    testing::scope(|scope| {
        for seed in 0..2 {
            let (done, lookups) = (&done, &lookups);
            scope.spawn(move || {
                let mut random = Random(seed);
                while !done.load(Relaxed) {
                    for _ in 0..64 {
                        let key = random.below(stable);
                        assert_eq!(world.find(key), Some(stable_ids[key as usize]), "key {key}");
                    }
                    lookups.fetch_add(64, Relaxed);
                }
            });
        }
        // Each renamer has names of its own: 1 << 32 and up, 2 << 32 and up.
        for part in 1..=2_u64 {
            let (done, renames) = (&done, &renames);
            scope.spawn(move || {
                let mut random = Random(part);
                let base = part << 32;
                let mut mine: Vec<_> =
                    (0..32).map(|n| (world.insert(base + n), base + n)).collect();
                let mut next = base + 32;
                while !done.load(Relaxed) {
                    let (id, key) = &mut mine[random.below(32) as usize];
                    world.rename(*id, *key, next);
                    *key = next;
                    next += 1;
                    renames.fetch_add(1, Relaxed);
                }
                mine.into_iter().for_each(|(id, key)| assert!(world.remove(id, key)));
            });
        }
        // One thread makes and removes a crowd, which makes the table grow and shrink.
        scope.spawn(|| {
            let end = Instant::now() + Duration::from_millis(1_200);
            let mut buckets = world.index.buckets();
            let mut base = 3 << 32;
            while Instant::now() < end {
                let ids: Vec<_> = (base..base + crowd).map(|key| world.insert(key)).collect();
                let between = world.index.buckets();
                for (id, key) in ids.into_iter().zip(base..) {
                    assert!(world.remove(id, key));
                }
                let now = world.index.buckets();
                resizes
                    .fetch_add(u64::from(between != buckets) + u64::from(now != between), Relaxed);
                buckets = now;
                base += crowd;
            }
            done.store(true, Relaxed);
        });
    });
    println!(
        "{} lookups, {} renames, {} changes of size",
        lookups.load(Relaxed),
        renames.load(Relaxed),
        resizes.load(Relaxed)
    );
    assert_eq!(world.index.len() as u64, stable);
    assert_eq!(world.pool.live(), stable);
}

#[test]
fn names_that_exist_are_found_while_the_table_changes_size() {
    names_that_exist_are_found(mix, 500, 20_000);
}

#[test]
fn names_that_exist_are_found_in_long_chains() {
    names_that_exist_are_found(poor, 100, 50);
}
