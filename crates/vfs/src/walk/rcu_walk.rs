//! rcu-walk: no lock, no count, no store to shared memory.
//!
//! # One step
//! Sample the child's sequence number while looking it up, then check the parent's: the child was found in a directory that still was
//! the one walked to. A valid number of the child therefore vouches for the whole way (the kernel's rule). The permission to
//! search is decided on the cached owner and mode; where those are stale, ref-walk asks.

use vfscale_sync::{HeldSlot, Id, rcu};

use super::{Access, Rest, WalkFlags, may};
use crate::dcache::{self, Key};
use crate::dentry::{Dentry, DentryRef};
use crate::superblock::Count;
use crate::{Attr, Context, Errno, FileSystem, FileType, Result, Vfs, inode};

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
    pub(super) fn walk_rcu<'p>(
        &self,
        cx: &Context,
        root: &DentryRef,
        base: &DentryRef,
        path: Rest<'p>,
        flags: WalkFlags,
    ) -> Result<End<'p>> {
        let guard = rcu::pin();
        let end = match self.steps(cx, root.id(), Place::of(base, &guard), path, flags, &guard)? {
            Steps::End(place) => place.legitimize(&guard).map(End::Arrived),
            Steps::Stop(place, rest) => {
                place.legitimize(&guard).map(|dentry| End::Unlazy(dentry, rest))
            }
            Steps::Changed => None,
        };
        Ok(end.unwrap_or(End::Again))
    }

    /// A whole `stat` without a store to shared memory. `None`: not all of it is in the cache.
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
        let Steps::End(place) =
            self.steps(cx, root.id(), Place::of(base, &guard), path, flags, &guard)?
        else {
            return Ok(None);
        };
        let Some(inode) = place.dentry.inode_id() else { return Ok(None) };
        let attr = inode::pool().get(inode, &guard).cached_attr();
        // The dentry did not change, so it led to this inode all the time, and the inode lived.
        let attr = attr.filter(|_| !place.changed());
        if attr.is_some() {
            // No reference ends that would tell the sweep. The first of many stores, the rest look.
            place.dentry.touch();
        }
        Ok(attr)
    }

    fn steps<'g, 'p>(
        &self,
        cx: &Context,
        root: Id<Dentry>,
        base: Place<'g>,
        mut rest: Rest<'p>,
        flags: WalkFlags,
        guard: &'g rcu::Guard,
    ) -> Result<Steps<'g, 'p>> {
        let superblock = self.superblock();
        let mut at = base;
        let mut taken = 0;
        let steps = loop {
            let here = rest;
            let Some((name, last)) = rest.next()? else { break Steps::End(at) };
            if at.dentry.kind() != Some(FileType::Directory) {
                if at.changed() {
                    break Steps::Changed;
                }
                return Err(Errno::ENOTDIR);
            }
            if cx.uid != 0 {
                let Some(inode) = at.dentry.inode_id() else { break Steps::Changed };
                let owner = inode::pool().get(inode, guard).cached_owner();
                if at.changed() {
                    break Steps::Changed;
                }
                match owner {
                    None => break Steps::Stop(at, here),
                    Some(owner) if may(cx, Access::SEARCH, owner) => {}
                    Some(_) => return Err(Errno::EACCES),
                }
            }
            if name == b".." {
                if at.id != root {
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
            let Some(hit) = dcache::find(Key::new(superblock, at.id, name), guard) else {
                break Steps::Stop(at, here);
            };
            let kind = hit.dentry.kind();
            if at.changed() || hit.changed() {
                break Steps::Changed;
            }
            if !hit.dentry.is_valid() {
                break Steps::Stop(at, here);
            }
            match kind {
                None => {
                    hit.dentry.touch();
                    superblock.bump(Count::NegativeHit);
                    return Err(Errno::ENOENT);
                }
                Some(FileType::Symlink)
                    if !last || rest.wants_directory() || !flags.contains(WalkFlags::NOFOLLOW) =>
                {
                    break Steps::Stop(at, here);
                }
                Some(kind) if rest.wants_directory() && kind != FileType::Directory => {
                    return Err(Errno::ENOTDIR);
                }
                Some(_) => {}
            }
            taken += 1;
            at = Place { id: hit.id, dentry: hit.dentry, seq: hit.seq };
            if last {
                break Steps::End(at);
            }
        };
        if taken > 0 {
            superblock.add(Count::LookupRcu, taken);
        }
        Ok(steps)
    }
}
