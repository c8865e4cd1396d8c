//! rcu-walk: no lock, no count, no store to shared memory.
//!
//! # One step
//! Sample the child's sequence number while looking it up, then check the parent's: the child was found in a directory that still was
//! the one walked to. A valid number of the child therefore vouches for the whole way (the kernel's rule). The permission to
//! search is decided on the cached owner and mode; where those are stale, ref-walk asks.

use vfscale_sync::{HeldSlot, Id, rcu};

use super::{Access, Rest, WalkFlags, may};
use crate::clock::Now;
use crate::dcache;
use crate::dentry::{Dentry, DentryRef, Leads};
use crate::hash::HashKey;
use crate::superblock::{Count, SuperBlock};
use crate::{Attr, Context, Errno, FileSystem, Result, Vfs, inode};

/// How an rcu-walk ended.
pub(super) enum End<'p> {
    /// At the end of the path, with a reference.
    Arrived(DentryRef),
    /// It could not go on from here; ref-walk can.
    Unlazy(DentryRef, Rest<'p>),
    /// The tree changed under it.
    Again,
}

/// A place reached without a reference.
#[derive(Clone, Copy)]
struct Place<'g> {
    id: Id<Dentry>,
    dentry: &'g Dentry,
    seq: u32,
}

impl<'g> Place<'g> {
    fn of(dentry: &DentryRef, guard: &'g rcu::Guard) -> Place<'g> {
        let place = Dentry::pool().get(dentry.id(), guard);
        Place { id: dentry.id(), dentry: place, seq: place.seq.begin() }
    }

    fn changed(&self) -> bool {
        self.dentry.seq.retry(self.seq)
    }

    fn legitimize(&self, guard: &rcu::Guard) -> Option<DentryRef> {
        let dentry = DentryRef::try_get(self.id, guard)?;
        (!self.changed()).then_some(dentry)
    }
}

/// Where the steps led.
enum Steps<'g, 'p> {
    /// To the end, at a dentry that leads to an inode.
    End(Place<'g>),
    /// To a component that ref-walk must take.
    Stop(Place<'g>, Rest<'p>),
    Changed,
}

impl<F: FileSystem> Vfs<F> {
    fn walker<'a>(&self, cx: &'a Context, root: &DentryRef, flags: WalkFlags) -> Walker<'a> {
        let superblock = self.superblock();
        let hash = superblock.hash_key();
        let names_age = self.names_age();
        Walker { cx, superblock, hash, root: root.id(), flags, names_age, now: Now::default() }
    }

    pub(super) fn walk_rcu<'p>(
        &self,
        cx: &Context,
        root: &DentryRef,
        base: &DentryRef,
        path: Rest<'p>,
        flags: WalkFlags,
    ) -> Result<End<'p>> {
        let guard = rcu::pin();
        let walker = self.walker(cx, root, flags);
        let end = match walker.steps(Place::of(base, &guard), path, &guard)? {
            Steps::End(place) => place.legitimize(&guard).map(End::Arrived),
            Steps::Stop(place, rest) => {
                place.legitimize(&guard).map(|dentry| End::Unlazy(dentry, rest))
            }
            Steps::Changed => None,
        };
        Ok(end.unwrap_or(End::Again))
    }

    /// A whole `stat` without a store to shared memory. `None`: not all of it is in the cache.
    #[inline]
    pub(super) fn stat_rcu(
        &self,
        cx: &Context,
        base: &DentryRef,
        path: &[u8],
        flags: WalkFlags,
    ) -> Result<Option<Attr>> {
        let root = self.root_ref();
        let base = if path.first() == Some(&b'/') { root } else { base };
        let path = Rest::new(path)?;
        let guard = rcu::pin();
        let walker = self.walker(cx, root, flags);
        let Steps::End(place) = walker.steps(Place::of(base, &guard), path, &guard)? else {
            return Ok(None);
        };
        let Some(inode) = place.dentry.inode_id() else { return Ok(None) };
        let attr = inode::pool().get(inode, &guard).cached_attr(&walker.now);
        // The dentry did not change, so it led to this inode all the time, and the inode lived.
        let attr = if place.changed() { None } else { attr };
        if attr.is_some() {
            // No reference ends that would tell the sweep. The first of many stores, the rest look.
            place.dentry.touch();
        }
        Ok(attr)
    }
}

/// One walk: who goes where by which rules.
struct Walker<'a> {
    cx: &'a Context,
    superblock: &'static SuperBlock,
    hash: HashKey,
    root: Id<Dentry>,
    flags: WalkFlags,
    /// Whether names of this mount grow stale at all: if not, the line of the dentry that says when stays untouched.
    names_age: bool,
    now: Now,
}

impl Walker<'_> {
    fn steps<'g, 'p>(
        &self,
        base: Place<'g>,
        path: Rest<'p>,
        guard: &'g rcu::Guard,
    ) -> Result<Steps<'g, 'p>> {
        let mut rest = path;
        let mut at = base;
        let mut leads = at.dentry.leads();
        let mut taken = 0;
        let steps = loop {
            let here = rest.at;
            let Some((key, last)) = rest.next(self.hash, at.id)? else { break Steps::End(at) };
            if leads != Leads::TO_DIRECTORY {
                if at.changed() {
                    break Steps::Changed;
                }
                return Err(Errno::ENOTDIR);
            }
            if self.cx.uid != 0 {
                let Some(inode) = at.dentry.inode_id() else { break Steps::Changed };
                // Good only if the dentry has not changed, which each way on from here checks.
                match inode::pool().get(inode, guard).cached_owner(&self.now) {
                    None => break Steps::Stop(at, rest.back_at(here)),
                    Some(owner) if may(self.cx, Access::SEARCH, owner) => {}
                    Some(_) if at.changed() => break Steps::Changed,
                    Some(_) => return Err(Errno::EACCES),
                }
            }
            if key.name == b".." {
                if at.id != self.root {
                    let Some(parent) = at.dentry.parent_id() else { break Steps::Changed };
                    let dentry = Dentry::pool().get(parent, guard);
                    let up = Place { id: parent, dentry, seq: dentry.seq.begin() };
                    // Still the parent after its number was taken?
                    if at.changed() {
                        break Steps::Changed;
                    }
                    at = up;
                }
                continue;
            }
            let Some(hit) = dcache::find(key, guard) else {
                break Steps::Stop(at, rest.back_at(here));
            };
            leads = hit.dentry.leads();
            let is_good = !self.names_age || hit.dentry.is_valid(&self.now);
            if at.changed() || hit.changed() {
                break Steps::Changed;
            }
            if !is_good {
                break Steps::Stop(at, rest.back_at(here));
            }
            match leads {
                // Most components: nothing more to ask.
                Leads::TO_DIRECTORY => {}
                Leads::NOWHERE => {
                    hit.dentry.touch();
                    self.superblock.bump(Count::NegativeHit);
                    return Err(Errno::ENOENT);
                }
                Leads::TO_LINK if !last || self.follows(&rest) => {
                    break Steps::Stop(at, rest.back_at(here));
                }
                _ if rest.wants_directory() => return Err(Errno::ENOTDIR),
                _ => {}
            }
            taken += 1;
            at = Place { id: hit.id, dentry: hit.dentry, seq: hit.seq };
            if last {
                break Steps::End(at);
            }
        };
        if taken > 0 {
            self.superblock.add(Count::LookupRcu, taken);
        }
        Ok(steps)
    }

    /// Is a link as the last component followed?
    fn follows(&self, rest: &Rest<'_>) -> bool {
        rest.wants_directory() || !self.flags.contains(WalkFlags::NOFOLLOW)
    }
}
