//! The lazy LRU and its shrinker.
//!
//! A hit never touches the list: it finds a dentry that is on it already and marked used. The list is brought up to date only while
//! it is scanned: a dentry in use leaves it, one marked used loses the mark and goes to the young end, the others die. This is
//! the scheme of the dcache thread (2002) with the second chance of today's kernels.
//!
//! # Locks
//! Dentry, then list. The scanner goes the other way and therefore only *tries* for a dentry's lock. It holds the list for at most
//! [`BATCH`] entries at a time, kills outside of it, and is never waited for by a lookup.

use vfscale_sync::{HeldSlot, Id, LockRefGuard, rcu};

use super::{begin_kill, finish_kill, put};
use crate::dentry::Dentry;
use crate::superblock::{Count, SuperBlock};

/// At most this many entries are scanned with the list held.
const BATCH: usize = 1024;

/// Keeps a dentry whose last reference ended: on the list the first time, marked used after that. Under its lock.
pub(super) fn retain(id: Id<Dentry>, dentry: &Dentry, _lock: &LockRefGuard<'_, ()>) {
    if dentry.is_on_lru() {
        dentry.touch();
    } else {
        dentry.superblock().lru().push_back(id);
        dentry.set_on_lru(true);
    }
}

/// Takes a dead dentry off the list.
pub(super) fn forget(id: Id<Dentry>, dentry: &Dentry) {
    // Dead, so that `retain` does not add it again; a scanner may be taking it off just now, under the list's lock.
    if dentry.is_on_lru() {
        let mut lru = dentry.superblock().lru();
        if dentry.is_on_lru() {
            lru.remove(id);
            dentry.set_on_lru(false);
        }
    }
}

/// Sees to it that one more name fits under the limit, as far as there are unused ones.
pub(crate) fn make_room(superblock: &SuperBlock) {
    let max = superblock.max_names();
    // Other threads are on their way to one more each: the trim begins a little below the limit.
    let mark = max - (max / 8).min(64);
    if superblock.names().now() < mark {
        return;
    }
    let want =
        (max / 64).clamp(1, BATCH as u64 / 8) + superblock.names().now().saturating_sub(mark);
    shrink(superblock, want);
}

/// Frees up to `want` unused names, oldest first, and answers how many it freed.
pub(crate) fn shrink(superblock: &SuperBlock, want: u64) -> u64 {
    let mut freed = 0;
    // Twice over the list: the first pass may only take marks of use away.
    let mut budget = superblock.lru().len() * 2;
    while freed < want && budget > 0 {
        let (scanned, victims) = isolate(superblock, (want - freed) as usize, budget);
        budget -= scanned.min(budget);
        freed += victims.len() as u64;
        superblock.add(Count::LruScanned, scanned as u64);
        superblock.add(Count::LruFreed, victims.len() as u64);
        let guard = rcu::pin();
        for id in victims {
            let dentry = Dentry::pool().get(id, &guard);
            if let Some(parent) = finish_kill(id, dentry, &guard) {
                put(parent);
            }
        }
        if scanned == 0 {
            break;
        }
    }
    freed
}

/// Takes victims off the old end of the list: dead already, for the caller alone.
fn isolate(superblock: &SuperBlock, want: usize, budget: usize) -> (usize, Vec<Id<Dentry>>) {
    let guard = rcu::pin();
    let mut victims = Vec::new();
    let mut scanned = 0;
    let mut lru = superblock.lru();
    while victims.len() < want && scanned < budget.min(BATCH) {
        let Some(id) = lru.front() else { break };
        scanned += 1;
        let dentry = Dentry::pool().get(id, &guard);
        let Some(lock) = dentry.lockref().try_lock() else {
            lru.move_to_back(id);
            continue;
        };
        if lock.count() > 0 {
            lru.remove(id);
            dentry.set_on_lru(false);
        } else if lock.is_dead() {
            // Its killer takes it off; it waits for the list.
            lru.remove(id);
            dentry.set_on_lru(false);
        } else if dentry.take_referenced() {
            lru.move_to_back(id);
        } else {
            lru.remove(id);
            dentry.set_on_lru(false);
            begin_kill(dentry, lock);
            victims.push(id);
        }
    }
    (scanned, victims)
}
