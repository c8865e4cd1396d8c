//! Resolving a path.
//!
//! A walk begins as rcu-walk ([`rcu`](self::rcu_walk)): no lock, no count, no store to shared memory; every step is checked by the sequence number of
//! the dentry it leaves. Where that cannot go on (a miss, a stale name, a symbolic link), `unlazy` turns the place it has reached
//! into a counted reference and [`ref_walk`] goes on from there; if the place has changed meanwhile, ref-walk begins anew. rcu-walk takes
//! only decisions that ref-walk could have taken.

mod rcu_walk;
mod ref_walk;

use crate::dentry::DentryRef;
use crate::inode::InodeRef;
use crate::{Attr, Context, Errno, FileSystem, FileType, Result, Vfs, name};

/// At most this many symbolic links are followed in one walk.
const MAX_LINKS: u32 = 40;

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
    /// A `/` or `/.` follows the last component: it must be a directory.
    slash: bool,
}

impl<'a> Rest<'a> {
    /// # Errors
    /// `ENAMETOOLONG` for more than [`name::PATH_MAX`] bytes, `EINVAL` for a NUL.
    fn new(path: &'a [u8]) -> Result<Rest<'a>> {
        if path.len() > name::PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if path.contains(&0) {
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
        Ok(Rest { path: end, slash: end.len() < path.len() })
    }

    /// The next component, and whether it is the last one.
    #[inline]
    fn next(&mut self) -> Result<Option<(&'a [u8], bool)>> {
        loop {
            let Some(start) = self.path.iter().position(|&b| b != b'/') else { return Ok(None) };
            let path = &self.path[start..];
            let end = path.iter().position(|&b| b == b'/').unwrap_or(path.len());
            let name = &path[..end];
            self.path = &path[end..];
            if name.len() > name::NAME_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            if name != b"." {
                return Ok(Some((name, self.path.is_empty())));
            }
        }
    }

    /// The component just taken must be a directory.
    fn wants_directory(&self) -> bool {
        self.slash || !self.path.is_empty()
    }
}

/// Who may pass through a directory, by its mode.
#[inline]
fn may_search(cx: &Context, mode: u32, uid: u32, gid: u32) -> bool {
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
    mode >> shift & 1 != 0
}

impl<F: FileSystem> Vfs<F> {
    /// Resolves `path` from `base`; from the root if it begins with a slash. An empty path is `base` itself.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES` (a directory on the way that `cx` may not search), `ELOOP` (more than 40 links), `ENAMETOOLONG` (a component of more
    /// than 255 bytes, a path of more than 4,095), `EINVAL` (a NUL); what the backend answers.
    pub fn walk(
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
    /// Those of [`walk`](Vfs::walk); `EBUSY` for a path that ends in `.`, `..` or is the root.
    pub(crate) fn walk_parent<'p>(
        &self,
        cx: &Context,
        path: &'p [u8],
    ) -> Result<(DentryRef, &'p [u8], bool)> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        let end = path.iter().rposition(|&b| b != b'/').ok_or(Errno::EBUSY)? + 1;
        let start = path[..end].iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
        let (parent, last) = (&path[..start], &path[start..end]);
        if matches!(last, b"." | b"..") {
            return Err(Errno::EBUSY);
        }
        let dir = self.walk(cx, &self.root(), parent, WalkFlags::DIRECTORY)?.dentry;
        Ok((dir, last, end < path.len()))
    }

    /// The attributes of what `path` leads to, links followed.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk).
    pub fn stat(&self, cx: &Context, path: &[u8]) -> Result<Attr> {
        self.stat_with(cx, path, WalkFlags::empty())
    }

    /// The attributes of what `path` names, a link as the last component not followed.
    ///
    /// # Errors
    /// Those of [`walk`](Vfs::walk).
    pub fn lstat(&self, cx: &Context, path: &[u8]) -> Result<Attr> {
        self.stat_with(cx, path, WalkFlags::NOFOLLOW)
    }

    fn stat_with(&self, cx: &Context, path: &[u8], flags: WalkFlags) -> Result<Attr> {
        if let Some(attr) = self.stat_rcu(cx, path, flags)? {
            return Ok(attr);
        }
        let Walked { inode, .. } = self.walk(cx, &self.root(), path, flags)?;
        inode.0.cached_attr().map_or_else(|| self.getattr(&inode, None), Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(path: &str) -> (Vec<(&str, bool)>, bool) {
        let mut rest = Rest::new(path.as_bytes()).unwrap();
        let mut parts = Vec::new();
        while let Some((name, last)) = rest.next().unwrap() {
            parts.push((std::str::from_utf8(name).unwrap(), last));
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
        assert!(may_search(&cx(0, 0, None), 0o000, 1, 1));
        assert!(may_search(&cx(7, 8, None), 0o100, 7, 9));
        assert!(
            !may_search(&cx(7, 8, None), 0o011, 7, 8),
            "the owner's bits alone count for the owner"
        );
        assert!(may_search(&cx(7, 8, None), 0o010, 1, 8));
        assert!(may_search(&cx(7, 8, Some(vec![5])), 0o010, 1, 5));
        assert!(!may_search(&cx(7, 8, None), 0o010, 1, 5));
        assert!(may_search(&cx(7, 8, None), 0o001, 1, 5));
    }
}
