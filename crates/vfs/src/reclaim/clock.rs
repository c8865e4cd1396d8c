//! A hand that goes over the chains of the index, kept between sweeps: no queue, and no lock but that of the victim.
//!
//! # What it costs
//! A step for each chain and for each name in it, whoever's that is and whether or not it is in use. The queues look at unused names only, but
//! each name's first last reference takes their lock.
//!
//! # Two sweeps at once
//! Each takes the hand with a step of its own and puts it back where it stopped; one of them may put it back a few chains. Some chains are
//! then looked at twice, which takes a mark of use early. Nothing else depends on the hand.

use std::sync::atomic::Ordering::Relaxed;

use vfscale_sync::{HeldSlot, Id, rcu};

use super::{Policy, Swept, Verdict, judge};
use crate::dcache;
use crate::dentry::{Dentry, Kept};
use crate::superblock::SuperBlock;

pub(super) struct Clock;

impl Policy for Clock {
    /// The mark that it is kept is all there is.
    fn keep(&self, _: &SuperBlock, _: Id<Dentry>) {}

    fn let_go(&self, _: &SuperBlock, _: Id<Dentry>) {}

    fn sweep(&self, superblock: &SuperBlock, want: usize, budget: usize, found: &mut Swept) {
        let guard = rcu::pin();
        let state = superblock.reclaim();
        let mut hand = state.hand.load(Relaxed);
        while found.victims.len() < want && found.scanned < budget {
            found.scanned += 1;
            hand = dcache::index().visit_chain(hand, &guard, &mut |id, dentry| {
                found.scanned += 1;
                let unused = dentry.kept() == Some(Kept::Names) && dentry.lockref().count() == 0;
                if unused
                    && std::ptr::eq(dentry.superblock(), superblock)
                    && matches!(judge(dentry, Kept::Names), Verdict::Victim)
                {
                    found.victims.push(id);
                }
            });
        }
        // Relaxed: a hint where to go on.
        state.hand.store(hand, Relaxed);
    }

    /// Every chain, and every name of every mount.
    fn round(&self, _: &SuperBlock) -> usize {
        dcache::index().buckets() + dcache::index().len()
    }
}
