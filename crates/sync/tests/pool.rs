//! Pools, ids, counted references and lists of ids.
#![cfg(all(feature = "std", not(any(loom, shuttle))))]
#![allow(missing_docs)]

#[path = "../src/testing.rs"]
mod testing;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use vfscale_sync::{
    Fresh, Held, HeldSlot, Id, IdLinks, IdList, ListAdapter, LockRef, Pool, Put, QRwLock, Slot, rcu,
};

struct Thing {
    lockref: LockRef,
    value: AtomicU64,
    scrubs: AtomicU32,
    links: IdLinks<Thing>,
}

impl Slot for Thing {
    fn new() -> Self {
        Thing {
            lockref: LockRef::new(1, ()),
            value: AtomicU64::new(0),
            scrubs: AtomicU32::new(0),
            links: IdLinks::new(),
        }
    }

    fn scrub(&self) {
        self.value.store(0, Relaxed);
        self.scrubs.fetch_add(1, Relaxed);
    }
}

fn leaked(max: u32) -> &'static Pool<Thing> {
    Box::leak(Box::new(Pool::new(max)))
}

#[test]
fn a_fresh_slot_goes_back_unless_it_is_published() {
    let pool = leaked(1);
    let fresh = pool.alloc().unwrap();
    fresh.value.store(7, Relaxed);
    assert!(pool.alloc().is_none(), "there is one slot");
    drop(fresh);
    assert_eq!(pool.live(), 0);
    let id = pool.alloc().unwrap().publish();
    assert_eq!(pool.live(), 1);
    assert_eq!(pool.slot(id).value.load(Relaxed), 0, "scrubbed");
    assert!(pool.alloc().is_none());
}

#[test]
fn a_retired_slot_is_reused_after_a_grace_period_and_not_before() {
    let pool = leaked(1);
    let id = pool.alloc().unwrap().publish();
    let guard = rcu::pin();
    pool.get(id, &guard).value.store(9, Relaxed);
    pool.retire(id, &guard);
    assert_eq!(pool.live(), 0);
    assert!(pool.alloc().is_none());
    assert_eq!(pool.get(id, &guard).value.load(Relaxed), 9);
    drop(guard);
    rcu::barrier();
    let fresh = pool.alloc().unwrap();
    assert_eq!((fresh.id(), fresh.scrubs.load(Relaxed)), (id, 1));
}

#[test]
fn a_full_pool_finds_what_only_waits_for_a_grace_period() {
    let pool = leaked(8);
    for round in 0..100 {
        let fresh = (0..20).find_map(|_| {
            let fresh = pool.alloc();
            if fresh.is_none() {
                // A reader of another test may be in the way.
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            fresh
        });
        let id = fresh.unwrap_or_else(|| panic!("dry in round {round}")).publish();
        pool.retire(id, &rcu::pin());
    }
}

#[test]
fn ids_that_were_never_given_out_reach_some_slot() {
    let pool = leaked(1000);
    let forged = |raw| Id::from_raw(raw).unwrap();
    for raw in [1, 2, 999, 1000, 1001, u32::MAX] {
        assert_eq!(pool.slot(forged(raw)).value.load(Relaxed), 0);
    }
    let ids: HashSet<_> = (0..1000).map(|_| pool.alloc().unwrap().publish()).collect();
    assert_eq!(ids.len(), 1000);
    assert!(pool.alloc().is_none());
}

#[test]
fn memory_is_taken_as_slots_are_used() {
    let pool = leaked(1 << 20);
    assert_eq!(pool.allocated_bytes(), 0);
    let id = pool.alloc().unwrap().publish();
    let first = pool.allocated_bytes();
    assert!(first > 0 && first <= 64 * 1024, "{first} bytes for the first slot");
    let ids: Vec<_> = (0..100_000).map(|_| pool.alloc().unwrap().publish()).collect();
    let full = 100_001 * size_of::<Thing>();
    assert!((full..full + (4 << 20)).contains(&pool.allocated_bytes()));
    for (n, id) in ids.iter().enumerate() {
        pool.slot(*id).value.store(n as u64, Relaxed);
    }
    assert!(ids.iter().enumerate().all(|(n, id)| pool.slot(*id).value.load(Relaxed) == n as u64));
    assert!(!ids.contains(&id));
}

#[test]
fn slots_are_aligned_as_their_type_asks() {
    #[repr(align(128))]
    struct Wide(AtomicU64);
    impl Slot for Wide {
        fn new() -> Self {
            Wide(AtomicU64::new(0))
        }
    }
    static POOL: Pool<Wide> = Pool::new(1000);
    for _ in 0..300 {
        let slot = POOL.slot(POOL.alloc().unwrap().publish());
        slot.0.store(1, Relaxed);
        assert!(std::ptr::from_ref(slot).addr().is_multiple_of(128));
    }
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "retired, but not in use")]
fn a_second_retire_is_noticed() {
    let pool = leaked(4);
    let id = pool.alloc().unwrap().publish();
    let guard = rcu::pin();
    pool.retire(id, &guard);
    pool.retire(id, &guard);
}

/// The prototype ran dry twice: lists and bags of ended threads were lost with them.
#[test]
fn many_short_threads_leave_every_slot_behind() {
    const MAX: u32 = 4096;
    let pool = leaked(MAX);
    for _ in 0..200 {
        testing::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let ids: Vec<_> =
                        (0..100).filter_map(|_| pool.alloc()).map(Fresh::publish).collect();
                    let guard = rcu::pin();
                    ids.iter().for_each(|id| pool.retire(*id, &guard));
                });
            }
        });
    }
    rcu::barrier();
    assert_eq!(pool.live(), 0);
    let all: HashSet<_> =
        std::iter::from_fn(|| pool.alloc().map(Fresh::publish)).map(Id::to_raw).collect();
    assert_eq!(all.len() as u32, MAX, "all slots are found again, each once");
}

#[test]
fn two_threads_never_hold_one_slot() {
    let pool = leaked(512);
    testing::scope(|scope| {
        for thread in 1..=4_u64 {
            scope.spawn(move || {
                for n in 0..5_000 {
                    let Some(fresh) = pool.alloc() else { continue };
                    let mark = thread << 32 | n;
                    assert_eq!(fresh.value.swap(mark, Relaxed), 0);
                    if n % 2 == 0 {
                        assert_eq!(fresh.value.load(Relaxed), mark);
                        drop(fresh);
                    } else {
                        let id = fresh.publish();
                        let guard = rcu::pin();
                        assert_eq!(pool.get(id, &guard).value.load(Relaxed), mark);
                        pool.retire(id, &guard);
                    }
                }
            });
        }
    });
    rcu::barrier();
    assert_eq!(pool.live(), 0);
}

static COUNTED: Pool<Thing> = Pool::new(10_000);

impl HeldSlot for Thing {
    fn lockref(&self) -> &LockRef {
        &self.lockref
    }

    fn pool() -> &'static Pool<Thing> {
        &COUNTED
    }

    fn put(id: Id<Thing>) {
        match COUNTED.slot(id).lockref.put_or_lock() {
            Put::StillLive => {}
            Put::LastLocked(mut guard) => {
                guard.mark_dead();
                drop(guard);
                COUNTED.retire(id, &rcu::pin());
            }
        }
    }
}

fn counted() -> Held<Thing> {
    let fresh = COUNTED.alloc().unwrap();
    fresh.lockref.reset(1);
    Held::from_fresh(fresh)
}

#[test]
fn held_counts() {
    assert_eq!(size_of::<Option<Held<Thing>>>(), 4);
    let held = counted();
    assert_eq!(held.lockref().count(), 1);
    let second = held.clone();
    assert_eq!(second, held);
    assert_eq!(held.lockref().count(), 2);
    let raw = second.into_raw();
    assert_eq!(held.lockref().count(), 2);
    drop(Held::from_raw(raw));
    assert_eq!(held.lockref().count(), 1);
    let guard = rcu::pin();
    let third = Held::try_get(held.id(), &guard).unwrap();
    drop(held);
    let id = third.id();
    drop(third);
    assert!(Held::try_get(id, &guard).is_none(), "dead");
}

#[test]
fn held_by_many_is_retired_once() {
    let slots: Vec<Held<Thing>> = (0..100).map(|_| counted()).collect();
    // Leaked: the end of a scope is invisible to the thread sanitizer.
    let ids: &[_] = slots.iter().map(Held::id).collect::<Vec<_>>().leak();
    testing::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for id in ids.iter().cycle().take(20_000) {
                    let guard = rcu::pin();
                    if let Some(held) = Held::try_get(*id, &guard) {
                        assert!(held.lockref().count() > 0);
                    }
                }
            });
        }
        drop(slots);
    });
}

struct ByLinks;

impl ListAdapter<Thing> for ByLinks {
    fn links(slot: &Thing) -> &IdLinks<Thing> {
        &slot.links
    }
}

/// Against a plain vector, over operations chosen by a small generator.
#[test]
fn lists_do_what_a_vector_does() {
    let pool = leaked(32);
    let ids: Vec<_> = (0..16).map(|_| pool.alloc().unwrap().publish()).collect();
    let mut list = IdList::<Thing, ByLinks>::new(pool);
    let mut model: Vec<Id<Thing>> = Vec::new();
    let mut seed = 0x9e37_79b9_u64;
    for step in 0..20_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let id = ids[(seed >> 40) as usize % ids.len()];
        let at = model.iter().position(|other| *other == id);
        assert_eq!(list.contains(id), at.is_some());
        match ((seed >> 33) % 6, at) {
            (0, None) => {
                list.push_front(id);
                model.insert(0, id);
            }
            (1, None) => {
                list.push_back(id);
                model.push(id);
            }
            (2, _) => {
                let first = if model.is_empty() { None } else { Some(model.remove(0)) };
                assert_eq!(list.pop_front(), first);
            }
            (3, _) => {
                assert_eq!(list.remove(id), at.is_some());
                model.extract_if(.., |other| *other == id).for_each(drop);
            }
            (_, _) => {
                assert_eq!(list.move_to_back(id), at.is_some());
                if let Some(at) = at {
                    model.remove(at);
                    model.push(id);
                }
            }
        }
        assert_eq!(list.iter().collect::<Vec<_>>(), model, "step {step}");
        assert_eq!((list.len(), list.is_empty()), (model.len(), model.is_empty()));
        assert_eq!((list.front(), list.back()), (model.first().copied(), model.last().copied()));
        let backwards: Vec<_> = std::iter::successors(list.back(), |id| list.prev(*id)).collect();
        assert!(backwards.iter().rev().eq(model.iter()));
    }
}

#[test]
#[should_panic(expected = "on a list already")]
fn a_slot_is_on_a_list_once() {
    let pool = leaked(2);
    let id = pool.alloc().unwrap().publish();
    let mut list = IdList::<Thing, ByLinks>::new(pool);
    list.push_back(id);
    list.push_back(id);
}

#[test]
fn a_list_under_a_lock_keeps_its_count() {
    let pool = leaked(4096);
    let list = QRwLock::new(IdList::<Thing, ByLinks>::new(pool));
    testing::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let id = pool.alloc().unwrap().publish();
                    list.write().push_back(id);
                    let popped = list.write().pop_front().unwrap();
                    pool.retire(popped, &rcu::pin());
                }
            });
        }
    });
    assert!(list.write().is_empty());
}
