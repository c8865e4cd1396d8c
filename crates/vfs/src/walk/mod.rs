//! Resolving a path.
//!
//! A walk begins as rcu-walk ([`rcu`](self::rcu_walk)): no lock, no count, no store to shared memory; every step is checked by the sequence number of
//! the dentry it leaves. Where that cannot go on (a miss, a stale name, a symbolic link), `unlazy` turns the place it has reached
//! into a counted reference and [`ref_walk`] goes on from there; if the place has changed meanwhile, ref-walk begins anew. rcu-walk takes
//! only decisions that ref-walk could have taken.

mod rcu_walk;
mod ref_walk;

use vfscale_sync::Id;

use crate::clock::Now;
use crate::dcache::Key;
use crate::dentry::{Dentry, DentryRef};
use crate::hash::{self, HashKey};
use crate::inode::InodeRef;
use crate::{Attr, Context, Errno, FileSystem, FileType, Result, Vfs, name};

/// At most this many symbolic links are followed in one walk.
pub(crate) const MAX_LINKS: u32 = 40;

bitflags::bitflags! {
    /// What the end of a walk may be.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct WalkFlags: u32 {
        /// A symbolic link as the last component is the result, not followed.
        const NOFOLLOW = 1;
        /// The result must be a directory.
        const DIRECTORY = 2;
    }
}

/// Where a path leads.
#[derive(Clone, Debug)]
pub struct Walked {
    /// The name.
    pub dentry: DentryRef,
    /// The object.
    pub inode: InodeRef,
}

/// The components of a path that are still to go, without empty ones and `.`.
#[derive(Clone, Copy)]
struct Rest<'a> {
    /// Ends in a component, if it is not empty.
    path: &'a [u8],
    /// Where in it the next component begins, perhaps behind more slashes.
    at: usize,
    /// A `/` or `/.` follows the last component: it must be a directory.
    slash: bool,
}

impl<'a> Rest<'a> {
    /// # Errors
    /// `ENAMETOOLONG` for more than [`name::PATH_MAX`] bytes, `EINVAL` for a NUL.
    #[inline]
    fn new(path: &'a [u8]) -> Result<Rest<'a>> {
        if path.len() > name::PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if hash::holds_nul(path) {
            return Err(Errno::EINVAL);
        }
        let mut end = path;
        loop {
            end = match end {
                [before @ .., b'/'] => before,
                [before @ .., b'/', b'.'] => before,
                [b'.'] => &[],
                _ => break,
            };
        }
        Ok(Rest { path: end, at: 0, slash: end.len() < path.len() })
    }

    /// The next component as a name in `parent`, and whether it is the last one.
    #[inline]
    fn next(&mut self, hash: HashKey, parent: Id<Dentry>) -> Result<Option<(Key<'a>, bool)>> {
        loop {
            match self.path.get(self.at) {
                None => return Ok(None),
                Some(b'/') => self.skip_slashes(),
                Some(_) => {}
            }
            let start = self.at;
            let (end, hash) = hash.cut(parent.to_raw(), self.path, start);
            let name = &self.path[start..end];
            if name.len() > name::NAME_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            let last = end == self.path.len();
            // Over the slash: most often the only one.
            self.at = if last { end } else { end + 1 };
            if name != b"." {
                return Ok(Some((Key { parent, name, hash }, last)));
            }
        }
    }

    #[cold]
    fn skip_slashes(&mut self) {
        self.at += self.path[self.at..].iter().take_while(|&&byte| byte == b'/').count();
    }

    /// The same path, with all components from `at` on still to go.
    fn back_at(self, at: usize) -> Rest<'a> {
        Rest { at, ..self }
    }

    /// What is left, behind the target of the link just taken.
    fn behind(&self, target: &[u8]) -> Vec<u8> {
        // A slash even where nothing follows, if it said that the link must lead to a directory.
        let slash: &[u8] = if self.wants_directory() { b"/" } else { b"" };
        let end: &[u8] = if self.slash { b"/" } else { b"" };
        [target, slash, &self.path[self.at..], end].concat()
    }

    /// The component just taken must be a directory.
    #[inline]
    fn wants_directory(&self) -> bool {
        self.slash || self.at < self.path.len()
    }
}

/// What a caller wants to do with an inode, as the bits of one permission class.
#[derive(Clone, Copy)]
pub(crate) struct Access(u32);

impl Access {
    pub(crate) const NONE: Access = Access(0);
    /// Pass through a directory.
    pub(crate) const SEARCH: Access = Access(1);
    /// Change the names in a directory.
    pub(crate) const CHANGE: Access = Access(3);
    pub(crate) const READ: Access = Access(4);
    pub(crate) const WRITE: Access = Access(2);

    /// Of the three bits of a class.
    pub(crate) const fn from_bits(bits: u32) -> Access {
        Access(bits & 7)
    }

    pub(crate) const fn and(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// May `cx` do this, by mode, owner and group? The super-user may do everything.
#[inline]
pub(crate) fn may(cx: &Context, access: Access, (mode, uid, gid): (u32, u32, u32)) -> bool {
    if cx.uid == 0 {
        return true;
    }
    let shift = if cx.uid == uid {
        6
    } else if cx.gid == gid || cx.groups.as_ref().is_some_and(|groups| groups.contains(&gid)) {
        3
    } else {
        0
    };
    mode >> shift & access.0 == access.0
}

impl<F: FileSystem> Vfs<F> {
    /// Resolves `path` from `base`; from the root if it begins with a slash.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES` (a directory on the way that `cx` may not search), `ELOOP` (more than 40 links), `ENAMETOOLONG` (a component of more
    /// than 255 bytes, a path of more than 4,095), `EINVAL` (a NUL); `ENOENT` for an empty path; what the backend answers.
    pub fn walk(
        &self,
        cx: &Context,
        base: &DentryRef,
        path: &[u8],
        flags: WalkFlags,
    ) -> Result<Walked> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        self.walk_base(cx, base, path, flags)
    }

    /// [`walk`](Vfs::walk), where an empty path is `base` itself.
    fn walk_base(
        &self,
        cx: &Context,
        base: &DentryRef,
        path: &[u8],
        flags: WalkFlags,
    ) -> Result<Walked> {
        let rest = Rest::new(path)?;
        let root = self.root();
        let base = if path.first() == Some(&b'/') { &root } else { base };
        let dentry = match self.walk_rcu(cx, &root, base, rest, flags)? {
            rcu_walk::End::Arrived(dentry) => dentry,
            rcu_walk::End::Unlazy(at, rest) => self.walk_ref(cx, &root, at, rest, flags)?,
            rcu_walk::End::Again => self.walk_ref(cx, &root, base.clone(), rest, flags)?,
        };
        let inode = dentry.inode().ok_or(Errno::ENOENT)?;
        if flags.contains(WalkFlags::DIRECTORY) && inode.kind() != FileType::Directory {
            return Err(Errno::ENOTDIR);
        }
        Ok(Walked { dentry, inode })
    }

    /// Resolves all but the last component, for making or removing that one. Answers with the directory, the component, and whether a
    /// slash follows it.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk).
    pub(crate) fn walk_parent<'p>(
        &self,
        cx: &Context,
        base: &DentryRef,
        path: &'p [u8],
    ) -> Result<(DentryRef, &'p [u8], bool)> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        if path.len() > name::PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        // A path of slashes names the root: as good as a dot in it.
        let end = path.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
        let start = path[..end].iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
        let (parent, last) = (&path[..start], &path[start..end]);
        let absolute: &[u8] = if path[0] == b'/' { b"/" } else { parent };
        let parent = if parent.is_empty() { absolute } else { parent };
        let dir = self.walk_base(cx, base, parent, WalkFlags::DIRECTORY)?;
        Ok((dir.dentry, if end == 0 { b"." } else { last }, end != 0 && end < path.len()))
    }

    /// Refuses who may not do this with `inode`.
    pub(crate) fn check_access(
        &self,
        cx: &Context,
        inode: &InodeRef,
        access: Access,
    ) -> Result<()> {
        if cx.uid == 0 || may(cx, access, self.owner(inode)?) { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Type and permission bits, owner and group.
    pub(crate) fn owner(&self, inode: &InodeRef) -> Result<(u32, u32, u32)> {
        if let Some(owner) = inode.0.cached_owner(&Now::default()) {
            return Ok(owner);
        }
        let attr = self.getattr(inode, None)?;
        Ok((attr.perm, attr.uid, attr.gid))
    }

    /// The attributes of what `path` leads to, links followed.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk).
    pub fn stat(&self, cx: &Context, path: &[u8]) -> Result<Attr> {
        self.stat_from(cx, self.root_ref(), path, WalkFlags::empty())
    }

    /// The attributes of what `path` names, a link as the last component not followed.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk).
    pub fn lstat(&self, cx: &Context, path: &[u8]) -> Result<Attr> {
        self.stat_from(cx, self.root_ref(), path, WalkFlags::NOFOLLOW)
    }

    pub(crate) fn stat_from(
        &self,
        cx: &Context,
        base: &DentryRef,
        path: &[u8],
        flags: WalkFlags,
    ) -> Result<Attr> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        if let Some(attr) = self.stat_rcu(cx, base, path, flags)? {
            return Ok(attr);
        }
        let Walked { inode, .. } = self.walk(cx, base, path, flags)?;
        inode.0.cached_attr(&Now::default()).map_or_else(|| self.getattr(&inode, None), Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(path: &str) -> (Vec<(&str, bool)>, bool) {
        let mut rest = Rest::new(path.as_bytes()).unwrap();
        let mut parts = Vec::new();
        let (hash, parent) = (HashKey::new(), Id::from_raw(1).unwrap());
        while let Some((key, last)) = rest.next(hash, parent).unwrap() {
            assert_eq!(key.hash, hash.name(1, key.name));
            parts.push((std::str::from_utf8(key.name).unwrap(), last));
        }
        (parts, rest.wants_directory())
    }

    #[test]
    fn paths_fall_into_components() {
        assert_eq!(parts("a/b"), (vec![("a", false), ("b", true)], false));
        assert_eq!(parts("//a///b//"), (vec![("a", false), ("b", true)], true));
        assert_eq!(parts("./a/./b/."), (vec![("a", false), ("b", true)], true));
        assert_eq!(
            parts("a..b/.c/..."),
            (vec![("a..b", false), (".c", false), ("...", true)], false)
        );
        assert_eq!(parts("."), (vec![], true));
        assert_eq!(parts(".."), (vec![("..", true)], false));
        assert_eq!(parts(""), (vec![], false));
        assert_eq!(parts("/"), (vec![], true));
    }

    #[test]
    fn search_permission_takes_the_first_class_that_fits() {
        let cx = |uid, gid, groups| Context { uid, gid, groups, pid: 0 };
        let search = |cx, mode, uid, gid| may(&cx, Access::SEARCH, (mode, uid, gid));
        assert!(search(cx(0, 0, None), 0o000, 1, 1));
        assert!(search(cx(7, 8, None), 0o100, 7, 9));
        assert!(!search(cx(7, 8, None), 0o011, 7, 8), "the owner's bits alone count for the owner");
        assert!(search(cx(7, 8, None), 0o010, 1, 8));
        assert!(search(cx(7, 8, Some(vec![5])), 0o010, 1, 5));
        assert!(!search(cx(7, 8, None), 0o010, 1, 5));
        assert!(search(cx(7, 8, None), 0o001, 1, 5));
        assert!(!may(&cx(7, 8, None), Access::CHANGE, (0o001, 1, 5)), "all that is wanted");
    }
}
