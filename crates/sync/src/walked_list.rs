//! An [`IdList`] that cursors may stand on while its lock is free.
//!
//! # Why
//! Who walks a long list must let others at its lock now and then, and sleep between two slots.
//! Meanwhile the slot it would go on from may be taken off, and even be put on another list. To pin
//! it (as the kernel's users must) needs a count in every slot; to begin again at the front may
//! never end.
//!
//! # How
//! A walker that lets go of the lock leaves a mark: the slot that comes next for it. Taking that
//! slot off moves the mark to the slot behind. So a removal looks whether there are marks at all,
//! which is one word of the list's own line.
//!
//! # What a walker sees
//! Each slot that is on the list throughout, once. One that is put on behind it meanwhile, too; one
//! that is put on before it, not; one that was taken off and put on again, perhaps twice.

use crate::{Id, IdList, ListAdapter, Pool, Slot};
use std::ops::Deref;

/// A list of slots with the marks of those who are walking it. Lends the list itself to look at.
pub struct WalkedList<T: Slot, A: ListAdapter<T>> {
    list: IdList<T, A>,
    marks: Vec<Mark<T>>,
}

#[derive(Debug)]
struct Mark<T> {
    /// Unlike that of any other mark of this list.
    number: u64,
    /// Where its walker goes on.
    next: Option<Id<T>>,
}

impl<T: Slot, A: ListAdapter<T>> WalkedList<T, A> {
    /// An empty list of slots of `pool`.
    pub(crate) const fn new(pool: &'static Pool<T>) -> Self {
        Self { list: IdList::new(pool), marks: Vec::new() }
    }

    /// Puts the slot first, unless it is on a list: `false` then.
    #[inline]
    pub fn add_head(&mut self, id: Id<T>) -> bool {
        self.list.link_front(id)
    }

    /// Puts the slot last, unless it is on a list: `false` then.
    #[inline]
    pub fn add_tail(&mut self, id: Id<T>) -> bool {
        self.list.link_back(id)
    }

    /// Takes the slot off; `false` if it is on no list.
    #[inline]
    pub fn del(&mut self, id: Id<T>) -> bool {
        if !self.marks.is_empty() {
            self.move_marks(id);
        }
        self.list.remove(id)
    }

    /// Takes the first off.
    pub fn pop_head(&mut self) -> Option<Id<T>> {
        let first = self.list.front()?;
        self.del(first).then_some(first)
    }

    #[cold]
    fn move_marks(&mut self, id: Id<T>) {
        let behind = self.list.next(id);
        for mark in self.marks.iter_mut().filter(|mark| mark.next == Some(id)) {
            mark.next = behind;
        }
    }

    /// Leaves a mark at `next`; answers its number.
    fn leave_mark(&mut self, next: Option<Id<T>>) -> u64 {
        let number = self.marks.last().map_or(0, |last| last.number + 1);
        self.marks.push(Mark { number, next });
        number
    }

    /// Takes mark `number` away; answers where it stands now.
    fn take_mark(&mut self, number: u64) -> Option<Id<T>> {
        let at = self.marks.iter().position(|mark| mark.number == number)?;
        self.marks.remove(at).next
    }
}

impl<T: Slot, A: ListAdapter<T>> Deref for WalkedList<T, A> {
    type Target = IdList<T, A>;

    fn deref(&self) -> &IdList<T, A> {
        &self.list
    }
}

impl<T: Slot, A: ListAdapter<T>> std::fmt::Debug for WalkedList<T, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.list.fmt(f)
    }
}

/// A lock around a list. What a [`Walk`] holds, gives up and takes again.
pub(crate) trait LockedList<T: Slot, A: ListAdapter<T>>: Copy {
    /// The list, locked.
    type Guard: std::ops::DerefMut<Target = WalkedList<T, A>>;

    fn lock(self) -> Self::Guard;
}

/// One walk over one locked list.
pub(crate) struct Walk<T: Slot, A: ListAdapter<T>, L: LockedList<T, A>> {
    owner: L,
    /// `None` only inside [`Walk::unlocked`].
    locked: Option<L::Guard>,
    next: Option<Id<T>>,
}

impl<T: Slot, A: ListAdapter<T>, L: LockedList<T, A>> Walk<T, A, L> {
    /// Takes the lock and stands before the first slot.
    pub(crate) fn new(owner: L) -> Self {
        let locked = owner.lock();
        let next = locked.front();
        Self { owner, locked: Some(locked), next }
    }

    /// The list, locked.
    pub(crate) fn list(&mut self) -> &mut WalkedList<T, A> {
        self.locked.as_mut().expect("the lock is given up inside `unlocked` alone")
    }

    /// The next slot.
    pub(crate) fn next(&mut self) -> Option<Id<T>> {
        let id = self.next?;
        self.next = self.list().next(id);
        Some(id)
    }

    /// Takes a slot off, perhaps the one that came last or comes next.
    pub(crate) fn del(&mut self, id: Id<T>) -> bool {
        if self.next == Some(id) {
            self.next = self.list().next(id);
        }
        self.list().del(id)
    }

    /// Gives up the lock for `f`, and takes it again also if `f` panics.
    pub(crate) fn unlocked<R>(&mut self, f: impl FnOnce() -> R) -> R {
        struct Back<'w, T: Slot, A: ListAdapter<T>, L: LockedList<T, A>> {
            walk: &'w mut Walk<T, A, L>,
            mark: u64,
        }
        impl<T: Slot, A: ListAdapter<T>, L: LockedList<T, A>> Drop for Back<'_, T, A, L> {
            fn drop(&mut self) {
                let mut locked = self.walk.owner.lock();
                self.walk.next = locked.take_mark(self.mark);
                self.walk.locked = Some(locked);
            }
        }
        let next = self.next;
        let mark = self.list().leave_mark(next);
        self.locked = None;
        let _back = Back { walk: self, mark };
        f()
    }
}
