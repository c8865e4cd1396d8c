//! Each primitive under more threads than there are processors, for as long as one likes: `VFSCALE_SOAK_SECONDS` each, a moment
//! otherwise. `cargo xtask soak` gives them their time; the sanitizers run them too.
//!
//! A thread that loses its processor at the worst place is what these are for: with several per processor that happens all the
//! time. Each test ends with a sum that a lost or doubled operation would change.
#![cfg(all(feature = "std", not(any(loom, shuttle))))]
#![allow(missing_docs)]

#[path = "../src/testing.rs"]
mod testing;

use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};
use vfscale_sync::rcu::{self, RcuCell};
use vfscale_sync::{
    AtomicId, Chained, FileRef, Get, GetFile, HashIndex, HashLinks, Held, HeldSlot, Id, IdLinks,
    ListAdapter, ListBatch, LockRef, Pool, Put, PutFile, QRwLock, SeqLock, Slot,
};

/// One thread of a soak.
struct Worker<'a> {
    number: usize,
    over: &'a AtomicBool,
    random: Cell<u64>,
}

impl Worker<'_> {
    /// Whether there is time for another round.
    fn goes_on(&self) -> bool {
        !self.over.load(Relaxed)
    }

    /// One of `0..n`, the same sequence in each run.
    fn below(&self, n: u64) -> u64 {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        x % n
    }

    /// Gives the processor away now and then, in the middle of things.
    fn stumble(&self) {
        if self.below(64) == 0 {
            thread::yield_now();
        }
    }
}

/// Runs `work` on four threads per processor and one more, until the time is over.
fn soak(work: impl Fn(&Worker<'_>) + Sync) {
    let seconds = std::env::var("VFSCALE_SOAK_SECONDS")
        .map_or(0.15, |seconds| seconds.parse().expect("a number of seconds"));
    let threads = 4 * thread::available_parallelism().map_or(2, usize::from) + 1;
    let over = AtomicBool::new(false);
    testing::scope(|scope| {
        for number in 0..threads {
            let (work, over) = (&work, &over);
            scope.spawn(move || {
                let random = Cell::new(0x9e37_79b9_7f4a_7c15 ^ number as u64);
                work(&Worker { number, over, random });
            });
        }
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        over.store(true, Relaxed);
    });
}

/// The count of references is what the threads hold, it stands still under the lock, and the value has one owner at a time.
#[test]
fn lockref() {
    let refs = LockRef::new(1, 0u64);
    let locked = AtomicU64::new(0);
    soak(|worker| {
        let mut held = 0;
        let mut own = 0;
        while worker.goes_on() {
            match worker.below(8) {
                0 => {
                    let mut guard = refs.lock();
                    let count = guard.count();
                    *guard += 1;
                    worker.stumble();
                    assert_eq!(refs.count(), count, "the count moved under the lock");
                    drop(guard);
                    own += 1;
                }
                1..5 => {
                    assert_eq!(refs.get_not_dead(), Get::Taken);
                    held += 1;
                    worker.stumble();
                }
                _ if held > 0 => {
                    held -= 1;
                    // One reference is ours from the start, so nobody drops the last.
                    assert!(matches!(refs.put_or_lock(), Put::StillLive));
                }
                _ => {}
            }
        }
        for _ in 0..held {
            assert!(matches!(refs.put_or_lock(), Put::StillLive));
        }
        locked.fetch_add(own, Relaxed);
    });
    assert_eq!(refs.count(), 1);
    assert_eq!(*refs.lock(), locked.load(Relaxed));
}

/// An object in a slot, found by its id.
struct Object {
    refs: LockRef,
    users: AtomicI64,
}

static OBJECTS: Pool<Object> = Pool::new(100_000);
static CURRENT: AtomicId<Object> = AtomicId::none();
static LIVES: AtomicU64 = AtomicU64::new(0);

impl Slot for Object {
    fn new() -> Self {
        Object { refs: LockRef::new(1, ()), users: AtomicI64::new(0) }
    }

    fn scrub(&self) {
        self.refs.reset(1);
    }
}

impl HeldSlot for Object {
    fn lockref(&self) -> &LockRef {
        &self.refs
    }

    fn pool() -> &'static Pool<Self> {
        &OBJECTS
    }

    fn put(id: Id<Self>) {
        let guard = rcu::pin();
        let object = OBJECTS.slot(id);
        if let Put::LastLocked(mut lock) = object.refs.put_or_lock() {
            if lock.dec() > 0 {
                return;
            }
            lock.mark_dead();
            drop(lock);
            assert_eq!(object.users.load(Relaxed), 0, "torn down under a user");
            LIVES.fetch_add(1, Relaxed);
            // Relaxed: nobody reads through the empty id.
            assert!(CURRENT.compare_exchange(Some(id), None, Relaxed, Relaxed).is_ok());
            OBJECTS.retire(id, &guard);
        }
    }
}

/// Objects die when the last reference goes, once; nobody has a reference on a dead one; the slot lives again.
#[test]
fn held() {
    soak(|worker| {
        while worker.goes_on() {
            let guard = rcu::pin();
            let found = CURRENT.load(Acquire).and_then(|id| Held::try_get(id, &guard));
            let Some(held) = found else {
                // Full while its slots wait for a grace period.
                let Some(fresh) = OBJECTS.alloc() else { continue };
                let id = fresh.id();
                if CURRENT.compare_exchange(None, Some(id), Release, Relaxed).is_ok() {
                    drop(Held::from_fresh(fresh));
                }
                continue;
            };
            held.users.fetch_add(1, Relaxed);
            worker.stumble();
            held.users.fetch_sub(1, Relaxed);
        }
    });
    assert_eq!(OBJECTS.live(), 0);
    assert_ne!(LIVES.load(Relaxed), 0);
}

/// No write is lost, no read sees half of one.
#[test]
fn qrwlock() {
    let lock = QRwLock::new((0u64, 0u64));
    let writes = AtomicU64::new(0);
    soak(|worker| {
        let mut own = 0;
        while worker.goes_on() {
            match worker.below(12) {
                0 | 1 => {
                    let mut pair = lock.write();
                    pair.0 += 1;
                    worker.stumble();
                    pair.1 += 1;
                    own += 1;
                }
                2 => {
                    if let Some(mut pair) = lock.try_write() {
                        pair.0 += 1;
                        pair.1 += 1;
                        own += 1;
                    }
                }
                3 => {
                    if let Some(pair) = lock.try_read() {
                        assert_eq!(pair.0, pair.1);
                    }
                }
                _ => {
                    let pair = lock.read();
                    worker.stumble();
                    assert_eq!(pair.0, pair.1);
                }
            }
        }
        writes.fetch_add(own, Relaxed);
    });
    let all = writes.load(Relaxed);
    assert_eq!(*lock.read(), (all, all));
    assert!(!lock.is_contended());
}

struct Node {
    links: IdLinks<Node>,
}

impl Slot for Node {
    fn new() -> Self {
        Node { links: IdLinks::new() }
    }
}

struct OnList;

impl ListAdapter<Node> for OnList {
    fn links(node: &Node) -> &IdLinks<Node> {
        &node.links
    }
}

/// What was added and not deleted is on the list, and each operation is there on return.
#[test]
fn list_batch() {
    static POOL: Pool<Node> = Pool::new(10_000);
    static LIST: ListBatch<Node, OnList> = ListBatch::new(&POOL);
    let left = AtomicU64::new(0);
    soak(|worker| {
        let ids: Vec<Id<Node>> = (0..20).map(|_| POOL.alloc().expect("room").publish()).collect();
        let mut linked = [false; 20];
        while worker.goes_on() {
            let at = worker.below(20) as usize;
            if worker.number == 0 && worker.below(50) == 0 {
                LIST.with(|list| assert_eq!(list.iter().count(), list.len()));
            } else if linked[at] {
                assert!(LIST.del(ids[at]));
            } else {
                LIST.add_head(ids[at]);
            }
            linked[at] = LIST.is_linked(ids[at]);
        }
        left.fetch_add(linked.iter().filter(|&&linked| linked).count() as u64, Relaxed);
    });
    assert_eq!(LIST.len() as u64, left.load(Relaxed));
}

/// A slot that lives again and again: one death a life, and no reference on a dead file.
#[test]
fn file_ref() {
    let refs = FileRef::new();
    // Whether the table's reference is there to be dropped.
    let listed = AtomicBool::new(true);
    let (users, deaths) = (AtomicI64::new(0), AtomicU64::new(0));
    soak(|worker| {
        let put = |guard: &rcu::Guard| {
            if refs.put(guard) == PutFile::Last {
                assert_eq!(users.load(Relaxed), 0, "destroyed under a user");
                deaths.fetch_add(1, Relaxed);
                refs.reset();
                listed.store(true, Release);
            }
        };
        while worker.goes_on() {
            let guard = rcu::pin();
            if refs.get() == GetFile::Taken {
                users.fetch_add(1, Relaxed);
                worker.stumble();
                users.fetch_sub(1, Relaxed);
                put(&guard);
            }
            if worker.below(8) == 0 && listed.swap(false, Acquire) {
                put(&guard);
            }
        }
    });
    assert_eq!(refs.count(), u64::from(listed.load(Relaxed)));
    assert_ne!(deaths.load(Relaxed), 0);
}

/// A box is freed once, and never under a reader.
#[test]
fn rcu_cell() {
    struct Alive(u64, &'static AtomicU64);
    impl Drop for Alive {
        fn drop(&mut self) {
            self.0 = 0;
            self.1.fetch_add(1, Relaxed);
        }
    }
    static DROPS: AtomicU64 = AtomicU64::new(0);
    let cell = RcuCell::<Alive>::empty();
    let made = AtomicU64::new(0);
    soak(|worker| {
        let mut own = 0;
        while worker.goes_on() {
            let guard = rcu::pin();
            if worker.below(4) == 0 {
                cell.replace(Some(Box::new(Alive(u64::MAX, &DROPS))), &guard);
                own += 1;
            } else if let Some(seen) = cell.load(&guard) {
                worker.stumble();
                assert_eq!(seen.0, u64::MAX, "freed under a reader");
            }
        }
        made.fetch_add(own, Relaxed);
    });
    drop(cell);
    rcu::barrier();
    assert_eq!(DROPS.load(Relaxed), made.load(Relaxed));
}

/// Writers exclude each other, and an accepted read is of one write.
#[test]
fn seqlock() {
    let lock = SeqLock::new();
    let pair = (AtomicU64::new(0), AtomicU64::new(0));
    let writes = AtomicU64::new(0);
    soak(|worker| {
        let mut own = 0;
        while worker.goes_on() {
            if worker.below(8) == 0 {
                let _write = lock.write();
                let next = pair.0.load(Relaxed) + 1;
                pair.0.store(next, Relaxed);
                worker.stumble();
                pair.1.store(next, Relaxed);
                own += 1;
            } else {
                let _read = lock.read_exclusive();
                assert_eq!(pair.0.load(Relaxed), pair.1.load(Relaxed));
            }
        }
        writes.fetch_add(own, Relaxed);
    });
    assert_eq!(pair.1.load(Relaxed), writes.load(Relaxed));
}

struct Entry {
    links: HashLinks<Entry>,
    key: AtomicU32,
}

impl Slot for Entry {
    fn new() -> Self {
        Entry { links: HashLinks::new(), key: AtomicU32::new(0) }
    }

    fn scrub(&self) {
        self.key.store(u32::MAX, Relaxed);
    }
}

impl Chained for Entry {
    fn links(&self) -> &HashLinks<Self> {
        &self.links
    }

    fn hash(&self) -> u32 {
        self.key.load(Relaxed)
    }
}

/// Whoever put a key in finds it until it takes it out; slots of the pool change keys all the time.
#[test]
fn hash_index() {
    static POOL: Pool<Entry> = Pool::new(100_000);
    let index: &'static HashIndex<Entry> = Box::leak(Box::new(HashIndex::new(&POOL)));
    soak(|worker| {
        let mut mine: Vec<(Id<Entry>, u32)> = Vec::new();
        let mut next = worker.number as u32;
        while worker.goes_on() {
            let full = mine.len() == 64;
            if full || (!mine.is_empty() && worker.below(3) == 0) {
                let (id, key) = mine.swap_remove(worker.below(mine.len() as u64) as usize);
                let guard = rcu::pin();
                assert!(index.remove(id, key, &guard), "gone by itself");
                POOL.retire(id, &guard);
            } else if worker.below(2) == 0 {
                // Full while its slots wait for a grace period.
                let Some(fresh) = POOL.alloc() else { continue };
                fresh.key.store(next, Relaxed);
                let id = fresh.publish();
                index.insert(id, next, &rcu::pin());
                mine.push((id, next));
                next = next.wrapping_add(1000);
            }
            if let Some(&(id, key)) = mine.last() {
                let guard = rcu::pin();
                let found = index.find(key, &guard, |_, entry| entry.key.load(Relaxed) == key);
                assert_eq!(found.map(|(id, _)| id), Some(id), "a key that is there was not found");
            }
        }
        let guard = rcu::pin();
        for (id, key) in mine {
            assert!(index.remove(id, key, &guard));
            POOL.retire(id, &guard);
        }
    });
    assert_eq!(POOL.live(), 0);
}
