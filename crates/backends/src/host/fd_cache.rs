//! A bounded number of `O_PATH` descriptors, kept where they are used.
//!
//! # Why
//! A descriptor per known file ends at the process limit, after some thousands of files. But a file
//! that was just used is likely to be used again, and reopening it costs a system call.
//!
//! # How
//! The descriptor itself lies in its [`Object`], so a hit takes that object's small lock and
//! nothing else. The cache owns a fixed number of slots; an object may hold a descriptor only while
//! a slot points (weakly) at it. A full shard sweeps its slots like a clock: used since the last
//! visit → mark cleared, spared; else its descriptor goes.
//!
//! # Bound
//! Descriptors of objects ≤ slots ≤ limit. A descriptor that a request works with right now is
//! shared (`Arc`) and lives on for the length of that request: at most a few per thread come on
//! top.
//!
//! # Locks
//! Shard, then an object's descriptor. Descriptors are closed and objects dropped after both are
//! unlocked.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use super::node::Object;
use crate::locks::lock;

const SHARDS_MAX: usize = 16;
/// Below this many slots to a shard the clock would have too little to choose from.
const SHARD_SLOTS_MIN: usize = 8;

/// The descriptors of one object.
#[derive(Debug, Default)]
pub(super) struct Descriptors(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    /// The `O_PATH` descriptor that the cache lets the object keep.
    kept: Option<Arc<OwnedFd>>,
    /// Used since the clock's hand came by.
    used: bool,
    /// Openings of clients, by which the object can be reached while they last.
    openings: Vec<Weak<OwnedFd>>,
}

impl Descriptors {
    /// The kept one, for use.
    pub(super) fn kept(&self) -> Option<Arc<OwnedFd>> {
        let mut held = lock(&self.0);
        held.used = true;
        held.kept.clone()
    }

    /// A client opened the object.
    pub(super) fn opened(&self, fd: &Arc<OwnedFd>) {
        let mut held = lock(&self.0);
        held.openings.retain(|opening| opening.strong_count() > 0);
        held.openings.push(Arc::downgrade(fd));
    }

    /// Takes openings from an object that is about to go, and answers with the descriptor that it
    /// kept.
    pub(super) fn take_over(&self, again: &Descriptors) -> Option<Arc<OwnedFd>> {
        let (openings, kept) = {
            let mut again = lock(&again.0);
            (std::mem::take(&mut again.openings), again.kept.take())
        };
        lock(&self.0).openings.extend(openings);
        kept
    }

    pub(super) fn opening(&self) -> Option<Arc<OwnedFd>> {
        lock(&self.0).openings.iter().find_map(Weak::upgrade)
    }

    fn has_kept(&self) -> bool {
        lock(&self.0).kept.is_some()
    }

    fn take(&self) -> Option<Arc<OwnedFd>> {
        lock(&self.0).kept.take()
    }

    /// The hand comes by: spares what was used, takes what was not.
    fn sweep(&self) -> Swept {
        let mut held = lock(&self.0);
        if held.kept.is_some() && std::mem::take(&mut held.used) {
            Swept::Spared
        } else {
            Swept::Free(held.kept.take())
        }
    }
}

enum Swept {
    Spared,
    Free(Option<Arc<OwnedFd>>),
}

#[derive(Debug)]
pub(super) struct FdCache {
    shards: Box<[Mutex<Shard>]>,
    /// Spreads insertions evenly. Relaxed: any value will do.
    next: AtomicUsize,
    limit: usize,
}

#[derive(Debug)]
struct Shard {
    slots: Vec<Weak<Object>>,
    capacity: usize,
    hand: usize,
}

/// What left the cache. Dropped outside the locks: closing may take long, and an object may be the
/// last of its kind.
type Evicted = Vec<(Option<Arc<OwnedFd>>, Arc<Object>)>;

impl FdCache {
    pub(super) fn new(limit: usize) -> FdCache {
        let count = (limit / SHARD_SLOTS_MIN).clamp(1, SHARDS_MAX);
        let shard = |i| Shard {
            slots: Vec::new(),
            capacity: limit / count + usize::from(i < limit % count),
            hand: 0,
        };
        let shards = (0..count).map(|i| Mutex::new(shard(i))).collect();
        FdCache { shards, next: AtomicUsize::new(0), limit }
    }

    /// The most descriptors that objects hold at a time.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// How many they hold now. Walks all slots.
    pub(super) fn len(&self) -> usize {
        let held = |slot: &Weak<Object>| slot.upgrade().is_some_and(|object| object.fds.has_kept());
        let mut objects = 0;
        for shard in &self.shards {
            let slots = lock(shard).slots.clone();
            objects += slots.iter().filter(|slot| held(slot)).count();
        }
        objects
    }

    /// Leaves `fd` with `object`, if it has none yet.
    pub(super) fn keep(&self, object: &Arc<Object>, fd: &Arc<OwnedFd>) {
        let at = self.next.fetch_add(1, Relaxed) % self.shards.len();
        let mut evicted = Evicted::new();
        let mut shard = lock(&self.shards[at]);
        if object.fds.has_kept() {
            return;
        }
        let Some(slot) = shard.free_slot(&mut evicted) else { return };
        let mut held = lock(&object.fds.0);
        // Another thread may have been here meanwhile, by way of another shard.
        if held.kept.is_none() {
            held.kept = Some(Arc::clone(fd));
            held.used = false;
            shard.slots[slot] = Arc::downgrade(object);
        }
    }

    /// Gives up about a quarter of all descriptors, for a caller that ran into the process limit.
    /// Answers with the number.
    pub(super) fn relieve(&self) -> usize {
        let mut gone = 0;
        for shard in &self.shards {
            let slots = {
                let mut shard = lock(shard);
                let keep = shard.slots.len() - shard.slots.len().div_ceil(4);
                shard.hand = 0;
                shard.slots.split_off(keep)
            };
            let objects = slots.iter().filter_map(Weak::upgrade);
            gone += objects.filter(|object| object.fds.take().is_some()).count();
        }
        gone
    }
}

impl Shard {
    /// The index of a slot that points at nothing that holds a descriptor.
    fn free_slot(&mut self, evicted: &mut Evicted) -> Option<usize> {
        if self.slots.len() < self.capacity {
            self.slots.push(Weak::new());
            return Some(self.slots.len() - 1);
        }
        // One round clears all marks, so the second finds one, unless others use them faster than
        // we look.
        for _ in 0..2 * self.capacity {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.capacity;
            let Some(object) = self.slots[at].upgrade() else { return Some(at) };
            match object.fds.sweep() {
                Swept::Spared => evicted.push((None, object)),
                Swept::Free(fd) => {
                    evicted.push((fd, object));
                    return Some(at);
                }
            }
        }
        None
    }
}
