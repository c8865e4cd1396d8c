//! Names that wait in a row, oldest first: the lazy LRU, SIEVE, and the absences of every policy.
//!
//! They differ in one thing, what becomes of a name that was used: it goes to the young end, or it stays and the hand goes on.

use vfscale_sync::{HeldSlot, Id, IdList, rcu};

use super::{Policy, Swept, Verdict, judge};
use crate::dentry::{self, Dentry, Kept, OnQueue};
use crate::superblock::SuperBlock;

/// What becomes of a name that was used since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spare {
    /// It becomes the youngest; the hand stays at the old end.
    ToTheEnd,
    /// It stays, and the hand goes on towards the young end; from there it begins anew.
    InPlace,
}

pub(super) struct Queue {
    list: IdList<Dentry, OnQueue>,
    /// The next one to look at; none: the oldest.
    hand: Option<Id<Dentry>>,
    kept: Kept,
}

impl Queue {
    pub(super) fn new(kept: Kept) -> Queue {
        Queue { list: IdList::new(dentry::pool()), hand: None, kept }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn push(&mut self, id: Id<Dentry>) {
        self.list.push_back(id);
    }

    /// Takes it off, if it is on.
    pub(super) fn remove(&mut self, id: Id<Dentry>) {
        if self.hand == Some(id) {
            self.hand = self.list.next(id);
        }
        self.list.remove(id);
    }

    /// Looks at up to `budget` names and kills up to `want` of them; those in `of` alone, if it is given.
    pub(super) fn sweep(
        &mut self,
        spare: Spare,
        want: usize,
        budget: usize,
        of: Option<Id<Dentry>>,
        found: &mut Swept,
        guard: &rcu::Guard,
    ) {
        while found.victims.len() < want && found.scanned < budget {
            let Some(id) = self.hand.or(self.list.front()) else { break };
            found.scanned += 1;
            let dentry = Dentry::pool().get(id, guard);
            if of.is_some_and(|dir| dentry.parent_id() != Some(dir)) {
                self.hand = self.list.next(id);
                continue;
            }
            let lock = match judge(dentry, self.kept) {
                Verdict::Spared => {
                    match spare {
                        Spare::InPlace => self.hand = self.list.next(id),
                        Spare::ToTheEnd => {
                            self.list.move_to_back(id);
                        }
                    }
                    continue;
                }
                Verdict::Victim => {
                    found.victims.push(id);
                    None
                }
                Verdict::Displaced(lock) => {
                    found.displaced.push(id);
                    Some(lock)
                }
                Verdict::Gone(lock) => Some(lock),
            };
            self.remove(id);
            dentry.set_kept(None);
            drop(lock);
        }
    }
}

/// A policy that has the names of a mount wait in its queue.
pub(super) struct Queued(pub(super) Spare);

impl Policy for Queued {
    fn keep(&self, superblock: &SuperBlock, id: Id<Dentry>) {
        superblock.reclaim().names.write().push(id);
    }

    fn let_go(&self, superblock: &SuperBlock, id: Id<Dentry>) {
        superblock.reclaim().names.write().remove(id);
    }

    fn sweep(&self, superblock: &SuperBlock, want: usize, budget: usize, found: &mut Swept) {
        let guard = rcu::pin();
        superblock.reclaim().names.write().sweep(self.0, want, budget, None, found, &guard);
    }

    fn round(&self, superblock: &SuperBlock) -> usize {
        superblock.reclaim().names.read().len()
    }
}
