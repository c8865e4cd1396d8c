//! Doubly linked lists of pool slots, linked by ids inside the slots.
//!
//! # Why
//! A list that its members are part of needs no memory to put one on, and a member is taken off without a search. With
//! pointers that is `unsafe` and the caller's promise. With ids it is neither: an id always reaches a slot.
//!
//! # Who writes
//! Who holds the caller's lock, or `&mut`. One slot may be on several lists, through one [`IdLinks`] field and one
//! [`ListAdapter`] each. Without the lock [`IdLinks::is_linked`] is a hint.
//!
//! # Ends
//! The first slot's `prev` and the last slot's `next` name the slot itself. So a slot knows by its own links whether it is on
//! a list, also when it is alone on it: off a list they are none.
//!
//! # Orderings
//! All relaxed: the caller's lock orders them.
//!
//! # Distrust
//! Two lists with the same links share their members' links: taking a slot off the list that it is not on makes wrong lists,
//! which nothing notices, and no undefined behaviour.
//!
//! # Source
//! the kernel's `list_head`, and `del_init`, which leaves a member that knows that it is on no list.

use crate::{AtomicId, Id, Ordering, Pool, Slot};
use std::fmt;
use std::marker::PhantomData;

/// The links of one list in a slot.
#[derive(Debug)]
pub struct IdLinks<T> {
    prev: AtomicId<T>,
    next: AtomicId<T>,
}

impl<T> IdLinks<T> {
    /// Not on a list.
    pub const fn new() -> Self {
        IdLinks { prev: AtomicId::none(), next: AtomicId::none() }
    }

    /// Whether the slot is on a list. Exact under the list's lock, a hint without it.
    #[inline]
    pub fn is_linked(&self) -> bool {
        // Relaxed: the list's lock orders it, or it is a hint.
        self.next.load(Ordering::Relaxed).is_some()
    }

    fn set(&self, prev: Id<T>, next: Id<T>) {
        // Relaxed: as above, here and below.
        self.prev.store(Some(prev), Ordering::Relaxed);
        self.next.store(Some(next), Ordering::Relaxed);
    }
}

impl<T> Default for IdLinks<T> {
    fn default() -> Self {
        IdLinks::new()
    }
}

/// Says which links of a slot a list uses.
pub trait ListAdapter<T: Slot> {
    /// The links.
    fn links(slot: &T) -> &IdLinks<T>;
}

/// A list of slots of one pool.
///
/// The list does not own its slots: who retires one takes it off first.
///
/// ```
/// use std::sync::Mutex;
/// use vfscale_sync::{IdLinks, IdList, ListAdapter, Pool, Slot};
///
/// struct Page {
///     on_lru: IdLinks<Page>,
/// }
///
/// impl Slot for Page {
///     fn new() -> Self {
///         Page { on_lru: IdLinks::new() }
///     }
/// }
///
/// struct Lru;
///
/// impl ListAdapter<Page> for Lru {
///     fn links(page: &Page) -> &IdLinks<Page> {
///         &page.on_lru
///     }
/// }
///
/// static PAGES: Pool<Page> = Pool::new(1000);
/// static LRU: Mutex<IdList<Page, Lru>> = Mutex::new(IdList::new(&PAGES));
///
/// let pages = [(); 3].map(|()| PAGES.alloc().expect("room").publish());
/// let mut lru = LRU.lock().unwrap();
/// pages.iter().for_each(|&page| lru.push_back(page));
/// lru.move_to_back(pages[0]);
/// assert_eq!(lru.pop_front(), Some(pages[1]));
/// assert_eq!(lru.iter().collect::<Vec<_>>(), [pages[2], pages[0]]);
/// ```
pub struct IdList<T: Slot, A: ListAdapter<T>> {
    pool: &'static Pool<T>,
    ends: Option<(Id<T>, Id<T>)>,
    len: usize,
    _adapter: PhantomData<fn() -> A>,
}

impl<T: Slot, A: ListAdapter<T>> IdList<T, A> {
    /// An empty list of slots of `pool`.
    pub const fn new(pool: &'static Pool<T>) -> Self {
        IdList { pool, ends: None, len: 0, _adapter: PhantomData }
    }

    /// How many slots are on the list.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.ends.is_none()
    }

    /// Whether the slot is on a list that uses the same links: on this one, if the caller puts it on no other.
    pub fn contains(&self, id: Id<T>) -> bool {
        self.links(id).is_linked()
    }

    /// The first.
    pub fn front(&self) -> Option<Id<T>> {
        self.ends.map(|(first, _)| first)
    }

    /// The last.
    pub fn back(&self) -> Option<Id<T>> {
        self.ends.map(|(_, last)| last)
    }

    /// The one after `id`; `None` after the last, or if `id` is on no list.
    pub fn next(&self, id: Id<T>) -> Option<Id<T>> {
        self.links(id).next.load(Ordering::Relaxed).filter(|next| *next != id)
    }

    /// The one before `id`; `None` before the first, or if `id` is on no list.
    pub fn prev(&self, id: Id<T>) -> Option<Id<T>> {
        self.links(id).prev.load(Ordering::Relaxed).filter(|prev| *prev != id)
    }

    /// All of them, first to last.
    pub fn iter(&self) -> impl Iterator<Item = Id<T>> + '_ {
        std::iter::successors(self.front(), |id| self.next(*id))
    }

    /// Puts the slot first.
    ///
    /// # Panics
    /// If it is on a list already.
    pub fn push_front(&mut self, id: Id<T>) {
        assert!(self.link_front(id), "{id:?} is on a list already");
    }

    /// Puts the slot first, unless it is on a list: false then.
    #[inline]
    pub(crate) fn link_front(&mut self, id: Id<T>) -> bool {
        let links = self.links(id);
        if links.is_linked() {
            return false;
        }
        match self.ends {
            None => {
                links.set(id, id);
                self.ends = Some((id, id));
            }
            Some((first, last)) => {
                links.set(id, first);
                self.links(first).prev.store(Some(id), Ordering::Relaxed);
                self.ends = Some((id, last));
            }
        }
        self.len += 1;
        true
    }

    /// Puts the slot last.
    ///
    /// # Panics
    /// If it is on a list already.
    pub fn push_back(&mut self, id: Id<T>) {
        assert!(self.link_back(id), "{id:?} is on a list already");
    }

    /// Puts the slot last, unless it is on a list: false then.
    #[inline]
    pub(crate) fn link_back(&mut self, id: Id<T>) -> bool {
        let links = self.links(id);
        if links.is_linked() {
            return false;
        }
        match self.ends {
            None => {
                links.set(id, id);
                self.ends = Some((id, id));
            }
            Some((first, last)) => {
                links.set(last, id);
                self.links(last).next.store(Some(id), Ordering::Relaxed);
                self.ends = Some((first, id));
            }
        }
        self.len += 1;
        true
    }

    /// Takes the first off.
    pub fn pop_front(&mut self) -> Option<Id<T>> {
        let first = self.front()?;
        self.remove(first).then_some(first)
    }

    /// Takes the slot off the list it is on, which must be this one. False if it is on none.
    #[inline]
    pub fn remove(&mut self, id: Id<T>) -> bool {
        let links = self.links(id);
        let (Some(prev), Some(next)) =
            (links.prev.load(Ordering::Relaxed), links.next.load(Ordering::Relaxed))
        else {
            return false;
        };
        links.prev.store(None, Ordering::Relaxed);
        links.next.store(None, Ordering::Relaxed);
        let Some((mut first, mut last)) = self.ends else {
            debug_assert!(false, "{id:?} is on another list");
            return false;
        };
        debug_assert!((prev == id) == (first == id) && (next == id) == (last == id));
        match (prev == id, next == id) {
            (true, true) => {
                self.ends = None;
                self.len = 0;
                return true;
            }
            (true, false) => {
                self.links(next).prev.store(Some(next), Ordering::Relaxed);
                first = next;
            }
            (false, true) => {
                self.links(prev).next.store(Some(prev), Ordering::Relaxed);
                last = prev;
            }
            (false, false) => {
                self.links(prev).next.store(Some(next), Ordering::Relaxed);
                self.links(next).prev.store(Some(prev), Ordering::Relaxed);
            }
        }
        self.ends = Some((first, last));
        self.len = self.len.saturating_sub(1);
        true
    }

    /// Puts a slot that is on the list last. False if it is on none.
    pub fn move_to_back(&mut self, id: Id<T>) -> bool {
        let was_on = self.remove(id);
        if was_on {
            self.push_back(id);
        }
        was_on
    }

    #[inline]
    fn links(&self, id: Id<T>) -> &'static IdLinks<T> {
        A::links(self.pool.slot(id))
    }
}

impl<T: Slot, A: ListAdapter<T>> fmt::Debug for IdList<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
