//! Counted boxes that tables lead to without owning them.
//!
//! # Why
//! An `Arc` in a table never reaches zero, and a `Weak` in its place cannot keep an unused object.
//! A cache wants both: an entry that nobody uses stays until room is needed, and then exactly one
//! thread takes it down while others may be about to find it.
//!
//! # Who holds an object
//! A [`Counted`] is a reference. A [`CountedLink`] is a place in a table; it is no reference. When
//! the last reference goes the object is asked ([`Countable::at_zero`]), with its lock held,
//! whether it stays or dies. It stays only while a link leads to it. Dead, it is found no more; its
//! value and its memory go a grace period after the last link is gone too.
//!
//! # Who writes
//! The count: [`LockRef`]'s rules. The number of links: under its lock. A link: anyone, by swap;
//! who takes a pointer out of a link ends its share in that number.
//!
//! # A race, step by step
//! ```text
//!  T1 drops the last reference           T2 `get` from a link           T3 empties the link
//!                                        section; reads the pointer
//!  locks; asked, the object stays
//!  unlocks with count 0
//!                                                                       swaps the pointer out, locks: no links are
//!                                                                       left, count 0: dead. Unlocks, defers the free
//!                                        `get_not_dead`: Refused, on
//!                                        memory that its section keeps
//! ```
//! Had T2 come before T3's lock, T3 would have found count 1 and left the end to T2's drop.
//!
//! # The lock and sections
//! A deferred call may take such a lock itself, when it drops what an object contained; and
//! deferred calls run where a thread leaves its outermost section. So no thread does that while it
//! holds an object's lock: whoever asks the object is in a section of its own.
//!
//! # Orderings
//! - CT-1 a link is set (Release) -> a link is read (Acquire): the object whole
//! - LR-1 to LR-3 for the count, RCU-2 for the memory
//!
//! # Distrust
//! A reference that is forgotten (`mem::forget`) keeps its object for ever, a forgotten link its
//! memory.
//!
//! # Source
//! the kernel's dentries: count zero is not dead, dead is final, lookups go by RCU and
//! `get_not_dead`.

use crate::prim::AtomicPtr;
use crate::prim::Ordering::{AcqRel, Acquire, Relaxed};
use crate::rcu::{self, Guard};
use crate::{Get, LockRef, LockRefGuard, Put};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{self, NonNull};

/// What becomes of an object without references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtZero {
    /// It is refused to all from now on.
    Dies,
    /// It waits, unused, for somebody to find it or evict it.
    Stays,
}

/// An object that [`Counted`] counts.
pub trait Countable: Send + Sync + Sized + 'static {
    /// The last reference has gone and a link still leads here: does the object stay?
    ///
    /// Called with the object's lock held. Be short, and leave links of this object alone: they take the same lock. It is
    /// not asked where no link is left; then the object dies.
    fn at_zero(&self) -> AtZero {
        AtZero::Dies
    }

    /// The object is dead now. Called once, without the lock: the place to take it out of its table
    /// ([`CountedLink::clear_if`]).
    fn died(&self, guard: &Guard) {
        let _ = guard;
    }
}

/// # Invariants
/// Lives in a box. It is freed a grace period after both have come true under its lock: it is dead,
/// and the number of links is 0. Neither is undone: only who has a reference makes a link, and a dead object
/// has none.
struct Object<T> {
    /// The lock guards the number of links that lead here.
    refs: LockRef<usize>,
    value: T,
}

/// One counted reference to a `T` in a box of its own.
///
/// Cloning takes a reference, dropping puts it. There is no `&mut T`: others may be looking.
///
/// ```
/// use vfscale_sync::{AtZero, Countable, Counted, CountedLink, Evict, rcu};
///
/// /// A page of a cache. Unused, it stays until it is evicted.
/// struct Page {
///     number: usize,
/// }
///
/// impl Countable for Page {
///     fn at_zero(&self) -> AtZero {
///         AtZero::Stays
///     }
/// }
///
/// static CACHE: [CountedLink<Page>; 64] = [const { CountedLink::empty() }; 64];
///
/// fn page(number: usize) -> Counted<Page> {
///     let guard = rcu::pin();
///     let place = &CACHE[number % CACHE.len()];
///     if let Some(page) = place.get(&guard)
///         && page.number == number
///     {
///         return page;
///     }
///     let page = Counted::new(Page { number });
///     place.set(Some(&page), &guard);
///     page
/// }
///
/// fn shrink() -> usize {
///     let guard = rcu::pin();
///     CACHE.iter().filter(|place| place.evict(&guard) == Evict::Evicted).count()
/// }
///
/// let first = page(1);
/// assert!(Counted::ptr_eq(&first, &page(1)));
/// drop(page(2));
/// assert_eq!(shrink(), 1, "page 2 is unused, page 1 is not");
/// ```
///
/// What a section lends does not outlive it:
/// ```compile_fail,E0597
/// # use vfscale_sync::{Countable, CountedLink, rcu};
/// # struct Page;
/// # impl Countable for Page {}
/// # let link = CountedLink::<Page>::empty();
/// let page = {
///     let guard = rcu::pin();
///     link.load(&guard)
/// };
/// assert!(page.is_none());
/// ```
/// Nor may what threads share be unfit for it:
/// ```compile_fail,E0277
/// # use vfscale_sync::Countable;
/// struct Local(std::cell::Cell<u32>);
/// impl Countable for Local {}
/// ```
///
/// # Invariants
/// `object` points to a live object in whose count this is one.
pub struct Counted<T: Countable> {
    object: NonNull<Object<T>>,
    _object: PhantomData<Object<T>>,
}

// SAFETY: a reference lends `&T` (T: Sync) and may be the one that drops the `T` (T: Send);
// `Countable` asks for both.
unsafe impl<T: Countable> Send for Counted<T> {}
// SAFETY: as above; `&Counted` clones.
unsafe impl<T: Countable> Sync for Counted<T> {}

impl<T: Countable> Counted<T> {
    /// A new object with one reference and no link.
    pub fn new(value: T) -> Self {
        let object = Box::into_raw(Box::new(Object { refs: LockRef::new(1, 0), value }));
        // SAFETY: from a box.
        let object = unsafe { NonNull::new_unchecked(object) };
        Counted { object, _object: PhantomData }
    }

    /// Whether both are references to one object.
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        this.object == other.object
    }

    /// How many references there were a moment ago.
    pub fn count(this: &Self) -> u32 {
        this.object().refs.count().cast_unsigned()
    }

    #[inline]
    fn object(&self) -> &Object<T> {
        // SAFETY: type invariant; only shared references exist to an object with references.
        unsafe { self.object.as_ref() }
    }
}

impl<T: Countable> Deref for Counted<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.object().value
    }
}

impl<T: Countable> Clone for Counted<T> {
    #[inline]
    fn clone(&self) -> Self {
        self.object().refs.get();
        Counted { object: self.object, _object: PhantomData }
    }
}

impl<T: Countable> Drop for Counted<T> {
    #[inline]
    fn drop(&mut self) {
        match self.object().refs.put_or_lock() {
            Put::StillLive => {}
            Put::LastLocked(lock) => put_last(self.object, lock),
        }
    }
}

impl<T: Countable> From<T> for Counted<T> {
    fn from(value: T) -> Self {
        Counted::new(value)
    }
}

impl<T: Countable + fmt::Debug> fmt::Debug for Counted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Drops the last reference of an object whose lock is held.
#[cold]
fn put_last<T: Countable>(object: NonNull<Object<T>>, lock: LockRefGuard<'_, usize>) {
    let section = rcu::pin();
    // Dropped before the section is, also while unwinding.
    let mut lock = lock;
    // SAFETY: it is not dead yet, and once it is the section, which is open by then, keeps it.
    let value = unsafe { &object.as_ref().value };
    let stays = *lock > 0 && value.at_zero() == AtZero::Stays;
    lock.dec();
    if !stays {
        kill(object, lock, &section);
    }
}

/// Makes an object without references a dead one.
fn kill<T: Countable>(
    object: NonNull<Object<T>>,
    mut lock: LockRefGuard<'_, usize>,
    section: &Guard,
) {
    debug_assert_eq!(lock.count(), 0, "a reference would be left to a dead object");
    lock.mark_dead();
    let unlinked = *lock == 0;
    drop(lock);
    if unlinked {
        release(object, section);
    }
    // SAFETY: it is released after the mark, and our section was open then already: the grace
    // period waits for it (RCU-2).
    let value = unsafe { &object.as_ref().value };
    value.died(section);
}

/// One link fewer leads to the object.
fn unlink<T: Countable>(object: NonNull<Object<T>>, section: &Guard) {
    // SAFETY: our share in the number of links keeps it until we give that up, then the section.
    let mut lock = unsafe { object.as_ref() }.refs.lock();
    *lock -= 1;
    if *lock > 0 {
        return;
    }
    if lock.is_dead() {
        drop(lock);
        release(object, section);
    } else if lock.count() == 0 {
        kill(object, lock, section);
    }
}

/// Frees a dead object without links, after a grace period.
fn release<T: Countable>(object: NonNull<Object<T>>, section: &Guard) {
    struct Released<T>(NonNull<Object<T>>);

    // SAFETY: owns the object, like a box.
    unsafe impl<T: Send> Send for Released<T> {}

    impl<T> Drop for Released<T> {
        fn drop(&mut self) {
            // SAFETY:
            // 1. From `Box::into_raw` in `Counted::new`.
            // 2. Dead without links comes true once (invariant of `Object`), and who makes it true
            //    under the lock releases.
            // 3. There are no references, and who found it in a link did so in a section that was
            //    open when the link was emptied; that was before, and this is after its grace
            //    period (RCU-2).
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }

    let released = Released(object);
    section.defer(size_of::<Object<T>>(), move || drop(released));
}

/// What [`CountedLink::evict`] met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evict {
    /// An unused object. It is dead now, and the link empty.
    Evicted,
    /// Somebody has a reference. Nothing changed.
    InUse,
    /// No object, or a dead one; the link is empty.
    Empty,
}

/// A place that leads to an object, or to none, and is no reference to it.
///
/// ```
/// use vfscale_sync::{Countable, Counted, CountedLink, rcu};
///
/// struct Session(u32);
///
/// /// Dies with its last reference, and leaves its place then.
/// impl Countable for Session {
///     fn died(&self, guard: &rcu::Guard) {
///         CURRENT.clear_if(self, guard);
///     }
/// }
///
/// static CURRENT: CountedLink<Session> = CountedLink::empty();
///
/// let guard = rcu::pin();
/// let session = Counted::new(Session(7));
/// CURRENT.set(Some(&session), &guard);
/// assert_eq!(CURRENT.get(&guard).map(|found| found.0), Some(7));
/// drop(session);
/// assert!(CURRENT.is_empty());
/// ```
///
/// # Invariants
/// A pointer in it is that of an object in whose number of links this is one.
pub struct CountedLink<T: Countable> {
    object: AtomicPtr<Object<T>>,
    _object: PhantomData<Object<T>>,
}

// SAFETY: a link hands out references, see `Counted`.
unsafe impl<T: Countable> Send for CountedLink<T> {}
// SAFETY: as above.
unsafe impl<T: Countable> Sync for CountedLink<T> {}

impl<T: Countable> CountedLink<T> {
    crate::prim::const_fn! {
        /// Leads to nothing.
        pub fn empty() -> Self {
            CountedLink { object: AtomicPtr::new(ptr::null_mut()), _object: PhantomData }
        }
    }

    /// Whether it led to nothing a moment ago.
    pub fn is_empty(&self) -> bool {
        // Relaxed: nothing is read through the pointer.
        self.object.load(Relaxed).is_null()
    }

    #[inline]
    fn find(&self, _guard: &Guard) -> Option<NonNull<Object<T>>> {
        // CT-1 Acquire: the object whole.
        NonNull::new(self.object.load(Acquire))
    }

    /// Looks at the object without a reference, for as long as the section lasts. It may be dead.
    #[inline]
    pub fn load<'g>(&'g self, guard: &'g Guard) -> Option<&'g T> {
        let object = self.find(guard)?;
        // SAFETY: found in a link in this section, so it is freed after the section (RCU-2).
        Some(unsafe { &object.as_ref().value })
    }

    /// A reference to the object, unless it is dead.
    #[inline]
    pub fn get(&self, guard: &Guard) -> Option<Counted<T>> {
        let object = self.find(guard)?;
        // SAFETY: found in a link in this section, so it is freed after the section (RCU-2).
        match unsafe { object.as_ref() }.refs.get_not_dead() {
            Get::Taken => Some(Counted { object, _object: PhantomData }),
            Get::Refused => None,
        }
    }

    /// Leads to `new` from now on. What it led to dies if it is unused and no other link leads there.
    ///
    /// # Panics
    /// If more links lead to `new` than memory has room for: some were forgotten.
    pub fn set(&self, new: Option<&Counted<T>>, guard: &Guard) {
        let new = new.map_or(ptr::null_mut(), |new| {
            let mut lock = new.object().refs.lock();
            *lock = lock.checked_add(1).expect("more links than memory holds");
            new.object.as_ptr()
        });
        // CT-1 Release: the object is whole before it is found. CT-1 Acquire: the old one, before
        // we touch it. unmodelled acquire: its lock comes first, by a read-modify-write, which under
        // loom always finds the newest.
        if let Some(old) = NonNull::new(self.object.swap(new, AcqRel)) {
            unlink(old, guard);
        }
    }

    /// Leads to nothing from now on, if it led to `value`'s object; answers whether it did.
    pub fn clear_if(&self, value: &T, guard: &Guard) -> bool {
        self.find(guard).is_some_and(|object| {
            // SAFETY: found in a link in this section, so it is freed after the section (RCU-2).
            ptr::eq(unsafe { &object.as_ref().value }, value) && self.clear(object, guard)
        })
    }

    /// Kills the object if nobody has a reference to it, and leads to nothing then.
    pub fn evict(&self, guard: &Guard) -> Evict {
        let Some(object) = self.find(guard) else { return Evict::Empty };
        // SAFETY: found in a link in this section, so it is freed after the section (RCU-2).
        let lock = unsafe { object.as_ref() }.refs.lock();
        if lock.count() > 0 {
            return Evict::InUse;
        }
        let met = if lock.is_dead() {
            drop(lock);
            Evict::Empty
        } else {
            kill(object, lock, guard);
            Evict::Evicted
        };
        self.clear(object, guard);
        met
    }

    /// Empties the link if it still leads to `object`, which was found in this section.
    fn clear(&self, object: NonNull<Object<T>>, guard: &Guard) -> bool {
        // Relaxed: null publishes nothing, and the object was read with CT-1. The address means
        // this object: the section keeps it from being used for another.
        let cleared =
            self.object.compare_exchange(object.as_ptr(), ptr::null_mut(), Relaxed, Relaxed);
        if cleared.is_ok() {
            unlink(object, guard);
        }
        cleared.is_ok()
    }
}

impl<T: Countable> Drop for CountedLink<T> {
    fn drop(&mut self) {
        if !self.is_empty() {
            self.set(None, &rcu::pin());
        }
    }
}

impl<T: Countable> Default for CountedLink<T> {
    fn default() -> Self {
        Self::empty()
    }
}

impl<T: Countable> fmt::Debug for CountedLink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountedLink").field("empty", &self.is_empty()).finish()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
