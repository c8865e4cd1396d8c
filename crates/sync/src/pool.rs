//! Type-stable pools: slots that are made once, used again and again, and never unmapped.
//!
//! # Why
//! A slot that is always a valid `T` may be reached through a stale link. So links can be 32-bit [`Id`]s without ownership,
//! followed without `unsafe`: who follows a stale one finds some `T`, perhaps another one, and a check in the `T` (a sequence,
//! a key) tells. That holds only because all fields of a `T` that change are atomics: [`Slot`] asks for `Sync`.
//!
//! # Life of a slot
//! ```text
//! never used --alloc--> Fresh --publish--> published --retire--> waiting --grace period, scrub--> free
//!                         ^  \--drop, scrub--> free                                                 |
//!                         '---------------------------------alloc----------------------------------'
//! ```
//! A slot is made by [`Slot::new`] the first time and keeps its content from then on: who allocates resets what it needs
//! reset. What a slot owns must be emptied in [`Slot::scrub`], or it lives until the slot is used again.
//!
//! # Where slots come from
//! All slots lie in one reserved range, given memory from its start as they are first used. Free ones wait in a list per
//! thread (no contention), which trades batches with a shared one. Lists stay with the thread number when a thread ends, and
//! whoever finds the pool empty takes them.
//!
//! # Orderings
//! - POOL-1 `ready` (Release, after the slots are made) -> `slot` (Acquire): a slot is whole before an id can reach it.
//! - BL-1 to BL-3 of `biased` for a thread's list, RCU-2 for a slot that is used again.
//!
//! # Source
//! the kernel's slab caches with `SLAB_TYPESAFE_BY_RCU`. We differ: a slot waits for its grace period too, so a guard also
//! keeps it from being another object meanwhile.

// unmodelled file: slots live in statics, which loom does not have; ThreadSanitizer and `tests/soak.rs` look at it.

use crate::Id;
use crate::biased::Biased;
use crate::lockdep;
use crate::mutex::{Mutex, MutexGuard};
use crate::prim::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::rcu::{self, Guard};
use crate::region::Region;
use crate::thread_slot;
use crossbeam_utils::CachePadded;
use std::fmt;
use std::mem::{ManuallyDrop, align_of, size_of};
use std::ops::Deref;
use std::ptr;

/// What can live in a pool.
pub trait Slot: Send + Sync + Sized + 'static {
    /// A slot that has not been used. Called under the pool's lock: it must not use the pool.
    fn new() -> Self;

    /// Empties what the slot owns. Runs when nobody can reach the slot through the pool's protocol any more, in a deferred
    /// call (see [`rcu`]) or where a fresh slot is dropped; stale ids may still look at it.
    fn scrub(&self) {}
}

/// How many ids move between a thread's list and the shared one at a time, and how many slots are made at a time.
const BATCH: usize = if cfg!(any(shuttle, miri)) { 4 } else { 64 };
/// Thread numbers beyond this use the shared list.
const CACHES: usize = if cfg!(shuttle) { 1 } else { 64 };
/// The largest step in which memory is committed.
const STEP: usize = 2 << 20;

/// Slots of type `T`. Meant for a `static`; ids are made by one pool and mean something to that pool alone.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use vfscale_sync::{Pool, Slot, rcu};
///
/// struct Inode {
///     size: AtomicU64,
/// }
///
/// impl Slot for Inode {
///     fn new() -> Self {
///         Inode { size: AtomicU64::new(0) }
///     }
/// }
///
/// static INODES: Pool<Inode> = Pool::new(1000);
///
/// let fresh = INODES.alloc().expect("room");
/// fresh.size.store(7, Relaxed); // nobody else knows it yet
/// let id = fresh.publish();
///
/// let guard = rcu::pin();
/// let inode = INODES.get(id, &guard);
/// INODES.retire(id, &guard);
/// assert_eq!(inode.size.load(Relaxed), 7, "not used again before the guard is dropped");
/// assert_eq!(INODES.live(), 0);
/// ```
///
/// # Invariants
/// If `ready` is not 0, `base` is the start of `ready` slots that were written by `T::new` and are never moved, dropped or
/// unmapped.
pub struct Pool<T: Slot> {
    /// Read by every access, written while the pool grows.
    hot: CachePadded<Hot<T>>,
    shared: CachePadded<Mutex<Shared>>,
    /// Published minus retired by threads without a number of their own; wraps.
    live_shared: CachePadded<AtomicU64>,
    caches: [CachePadded<Cache>; CACHES],
    #[cfg(all(debug_assertions, not(shuttle)))]
    published: std::sync::OnceLock<Box<[AtomicU32]>>,
}

struct Hot<T> {
    base: AtomicPtr<T>,
    ready: AtomicU32,
    max: u32,
}

struct Shared {
    /// Ids of free slots that no thread's list holds.
    free: Vec<u32>,
    /// Made when the first slot is.
    region: Option<Region>,
}

/// What the thread with one number has.
struct Cache {
    free: Biased<Vec<u32>>,
    /// Published minus retired by this thread number; wraps. Written by its owner alone.
    live: AtomicU64,
}

impl<T: Slot> Pool<T> {
    /// A pool that holds `max` slots at most, fewer where address space is limited. No memory is used until the first is
    /// allocated.
    ///
    /// # Panics
    /// If `max` is 0, or `T` has no size.
    pub const fn new(max: u32) -> Self {
        assert!(max > 0, "a pool of no slots");
        assert!(size_of::<T>() > 0, "a pool of slots without size");
        assert!(align_of::<T>() <= 4096, "slots aligned beyond a page");
        Pool {
            hot: CachePadded::new(Hot {
                base: AtomicPtr::new(ptr::null_mut()),
                ready: AtomicU32::new(0),
                max,
            }),
            shared: CachePadded::new(Mutex::new(Shared { free: Vec::new(), region: None })),
            live_shared: CachePadded::new(AtomicU64::new(0)),
            caches: [const {
                CachePadded::new(Cache { free: Biased::new(Vec::new()), live: AtomicU64::new(0) })
            }; CACHES],
            #[cfg(all(debug_assertions, not(shuttle)))]
            published: std::sync::OnceLock::new(),
        }
    }

    /// A slot for the caller alone; `None` if the pool is full or the system has no memory.
    #[inline]
    pub fn alloc(&'static self) -> Option<Fresh<T>> {
        let raw = match self.cache() {
            // SAFETY: the cache of this thread's number; `pop` does not come back here.
            Some(cache) => match unsafe { cache.free.own(Vec::pop) } {
                Some(raw) => raw,
                None => self.refill(cache)?,
            },
            None => self.alloc_shared()?,
        };
        Some(Fresh { pool: self, id: Id::from_raw(raw)? })
    }

    /// The slot named by `id`, for as long as the guard lives: not reused meanwhile, if it was reachable when the guard was
    /// taken.
    ///
    /// Total: an id that this pool never gave out reaches some other slot.
    #[inline]
    pub fn get<'g>(&'static self, id: Id<T>, _guard: &'g Guard) -> &'g T {
        self.slot(id)
    }

    /// The slot named by `id`, for who holds a counted reference to it, or can do with whatever is there. Total, like
    /// [`Pool::get`].
    #[inline]
    pub fn slot(&'static self, id: Id<T>) -> &'static T {
        let index = id.to_raw() - 1;
        // POOL-1 Acquire.
        let ready = self.hot.ready.load(Ordering::Acquire);
        if index < ready { self.at(index) } else { self.stranger() }
    }

    /// Slot `index`, which is below a value of `ready` that the caller has loaded with Acquire.
    #[inline]
    fn at(&'static self, index: u32) -> &'static T {
        // Relaxed: written once, before `ready` (POOL-1).
        let base = self.hot.base.load(Ordering::Relaxed);
        // SAFETY: inside the range of made slots (caller), whose size fits `isize` (it was reserved).
        let slot = unsafe { base.add(index as usize) };
        // SAFETY: a made slot, valid for ever (type invariant), and only shared references exist.
        unsafe { &*slot }
    }

    /// Any slot, for an id that names none.
    #[cold]
    fn stranger(&'static self) -> &'static T {
        let mut shared = self.lock();
        // POOL-1 by the lock: only its holder makes slots.
        if self.hot.ready.load(Ordering::Acquire) == 0 {
            assert!(self.make(&mut shared) > 0, "an id was looked up in a pool without memory");
        }
        drop(shared);
        self.at(0)
    }

    /// Lets the slot be used again after a grace period. The caller has made it unreachable, and gives up its id.
    #[inline]
    pub fn retire(&'static self, id: Id<T>, guard: &Guard) {
        self.note_retired(id);
        guard.defer(size_of::<T>(), move || self.recycle(id));
    }

    /// How many slots are published and not retired. Exact when nobody publishes or retires meanwhile.
    pub fn live(&self) -> u64 {
        // Relaxed: only a statistic.
        let shared = self.live_shared.load(Ordering::Relaxed);
        self.caches
            .iter()
            .fold(shared, |sum, cache| sum.wrapping_add(cache.live.load(Ordering::Relaxed)))
    }

    /// How much memory the slots take, used or not.
    pub fn allocated_bytes(&self) -> usize {
        self.lock().region.as_ref().map_or(0, Region::committed)
    }

    /// The largest number of slots.
    pub fn max(&self) -> u32 {
        self.hot.max
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock()
    }

    #[inline]
    fn cache(&self) -> Option<&Cache> {
        self.caches.get(thread_slot::current()).map(|cache| &**cache)
    }

    /// Adds `n` to the number of live slots; wraps.
    #[inline]
    fn add_live(&self, n: u64) {
        // Relaxed: only a statistic; a cache's is written by its thread alone.
        match self.cache() {
            Some(cache) => {
                let now = cache.live.load(Ordering::Relaxed).wrapping_add(n);
                cache.live.store(now, Ordering::Relaxed);
            }
            None => {
                self.live_shared.fetch_add(n, Ordering::Relaxed);
            }
        }
    }

    /// A free slot, and a batch of them for `cache`, which is empty and the running thread's.
    #[cold]
    fn refill(&'static self, cache: &Cache) -> Option<u32> {
        let mut batch = self.take_batch();
        if batch.is_empty() {
            batch = self.steal();
        }
        if batch.is_empty() && !rcu::is_pinned() {
            // Perhaps slots of ours only wait for somebody to ask for a grace period. What it frees lands in our cache.
            let guard = rcu::pin();
            guard.expedite();
            drop(guard);
            // SAFETY: the cache of this thread's number; `take` does not come back here.
            batch = unsafe { cache.free.own(std::mem::take) };
        }
        let raw = batch.pop()?;
        // SAFETY: the cache of this thread's number; `append` does not come back here.
        unsafe { cache.free.own(|free| free.append(&mut batch)) };
        Some(raw)
    }

    #[cold]
    fn alloc_shared(&'static self) -> Option<u32> {
        let mut batch = self.take_batch();
        if batch.is_empty() {
            batch = self.steal();
        }
        let raw = batch.pop()?;
        self.lock().free.append(&mut batch);
        Some(raw)
    }

    /// Up to a batch of ids from the shared list, of slots made for the purpose if it is empty.
    fn take_batch(&self) -> Vec<u32> {
        let mut shared = self.lock();
        if shared.free.is_empty() {
            self.make(&mut shared);
        }
        let keep = shared.free.len().saturating_sub(BATCH);
        shared.free.split_off(keep)
    }

    /// All ids in the lists of all threads but the running one, whose list is empty.
    fn steal(&self) -> Vec<u32> {
        let mut found = Vec::new();
        // A theft costs a barrier on every processor: not for numbers that nobody has had.
        for (number, cache) in self.caches.iter().enumerate().take(thread_slot::given()) {
            if number != thread_slot::current() {
                cache.free.steal(|free| found.append(free));
            }
        }
        if found.len() > BATCH {
            self.lock().free.extend(found.drain(BATCH..));
        }
        found
    }

    /// Makes up to a batch of slots and puts their ids into the shared list. Returns how many.
    fn make(&self, shared: &mut Shared) -> u32 {
        let Hot { base, ready, max } = &*self.hot;
        // Relaxed: we hold the lock, and only its holder writes `ready`.
        let first = ready.load(Ordering::Relaxed);
        let end = first.saturating_add(BATCH as u32).min(*max);
        if first == end {
            return 0;
        }
        if shared.region.is_none() {
            shared.region = reserve_for::<T>(*max as usize);
            if let Some(region) = &shared.region {
                let base = region.base().as_ptr().addr();
                let name = std::any::type_name::<T>();
                lockdep::slots(base, *max as usize * size_of::<T>(), size_of::<T>(), name);
            }
        }
        let Some(region) = &mut shared.region else { return 0 };
        let needed = end as usize * size_of::<T>();
        let step = region.committed().min(STEP);
        let wanted = needed.max(region.committed() + step).min(*max as usize * size_of::<T>());
        if needed > region.committed() && !region.commit(wanted) && !region.commit(needed) {
            return 0;
        }
        let start: *mut T = region.base().as_ptr().cast();
        for index in first..end {
            // SAFETY: inside the committed part of the region, which is aligned to a page at least.
            let slot = unsafe { start.add(index as usize) };
            // SAFETY: nobody else reaches it before `ready` covers it.
            unsafe { slot.write(T::new()) };
        }
        // Lowest on top, so that a pool in light use stays in its first pages.
        shared.free.extend((first..end).rev().map(|index| index + 1));
        base.store(start, Ordering::Relaxed);
        // POOL-1 Release.
        ready.store(end, Ordering::Release);
        end - first
    }

    /// Scrubs a slot that nobody uses and frees it.
    fn recycle(&'static self, id: Id<T>) {
        self.slot(id).scrub();
        let raw = id.to_raw();
        // POOL-1 Acquire. An id that was forged must not enter the lists.
        if raw > self.hot.ready.load(Ordering::Acquire) {
            return;
        }
        match self.cache() {
            Some(cache) => {
                // SAFETY: the cache of this thread's number; the closure does not come back here.
                let surplus = unsafe {
                    cache.free.own(|free| {
                        free.push(raw);
                        (free.len() > 2 * BATCH).then(|| free.drain(..BATCH).collect::<Vec<_>>())
                    })
                };
                if let Some(surplus) = surplus {
                    self.lock().free.extend_from_slice(&surplus);
                }
            }
            None => self.lock().free.push(raw),
        }
    }

    #[inline]
    fn note_published(&self, id: Id<T>) {
        self.add_live(1);
        #[cfg(all(debug_assertions, not(shuttle)))]
        self.flip_published(id, true);
        #[cfg(not(all(debug_assertions, not(shuttle))))]
        let _ = id;
    }

    #[inline]
    fn note_retired(&self, id: Id<T>) {
        self.add_live(1_u64.wrapping_neg());
        #[cfg(all(debug_assertions, not(shuttle)))]
        self.flip_published(id, false);
        #[cfg(not(all(debug_assertions, not(shuttle))))]
        let _ = id;
    }

    /// Debug builds know which slots are published, and so see one retired twice.
    #[cfg(all(debug_assertions, not(shuttle)))]
    fn flip_published(&self, id: Id<T>, published: bool) {
        let words = (self.hot.max as usize).div_ceil(32);
        let bits = self.published.get_or_init(|| (0..words).map(|_| AtomicU32::new(0)).collect());
        let index = id.to_raw() - 1;
        // A made-up id beyond all slots reaches some slot elsewhere, too; it has no bit.
        let Some(word) = bits.get((index / 32) as usize) else { return };
        let bit = 1 << (index % 32);
        // Relaxed: who retires has the id from who published.
        let before = if published {
            word.fetch_or(bit, Ordering::Relaxed)
        } else {
            word.fetch_and(!bit, Ordering::Relaxed)
        };
        assert_ne!(
            before & bit != 0,
            published,
            "slot {id:?} {}",
            if published { "published while in use" } else { "retired, but not in use" }
        );
    }
}

/// Address space for `max` slots. Where a limit on it (`ulimit -v`) forbids so much, for fewer: a quarter of what is to be had, to
/// leave room for the rest of the program.
fn reserve_for<T>(max: usize) -> Option<Region> {
    let reserve = |slots: usize| size_of::<T>().checked_mul(slots).and_then(Region::reserve);
    if let Some(region) = reserve(max) {
        return Some(region);
    }
    let fewer = std::iter::successors(Some(max / 2), |slots| Some(slots / 2));
    let most = fewer.take_while(|&slots| slots > 0).find(|&slots| reserve(slots).is_some())?;
    reserve((most / 4).max(BATCH.min(most)))
}

impl<T: Slot> fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("live", &self.live()).field("max", &self.max()).finish()
    }
}

/// A slot that only its holder knows. Dropped without being published, it goes back to the pool.
#[must_use = "dropped, it goes back to the pool"]
pub struct Fresh<T: Slot> {
    pool: &'static Pool<T>,
    id: Id<T>,
}

impl<T: Slot> Fresh<T> {
    /// The id the slot will have when published.
    #[inline]
    pub fn id(&self) -> Id<T> {
        self.id
    }

    /// Makes the slot one of the pool's live ones. From here [`Pool::retire`] gives it back.
    #[inline]
    #[must_use = "without the id the slot cannot be retired"]
    pub fn publish(self) -> Id<T> {
        let this = ManuallyDrop::new(self);
        this.pool.note_published(this.id);
        this.id
    }
}

impl<T: Slot> Deref for Fresh<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.pool.slot(self.id)
    }
}

impl<T: Slot> Drop for Fresh<T> {
    fn drop(&mut self) {
        self.pool.recycle(self.id);
    }
}

impl<T: Slot> fmt::Debug for Fresh<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fresh").field(&self.id).finish()
    }
}
