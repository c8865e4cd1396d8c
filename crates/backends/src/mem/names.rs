//! Everything that changes directories: new names, names that go, names that move.

use std::sync::Arc;

use vfscale::sync::QRwLockWriteGuard;
use vfscale::{Context, Entry, Errno, FileType, Place, RenameFlags, Result};

use super::dir::{Directory, Entries};
use super::inode::{Birth, Body, Inode, inherit};
use super::{MemFs, Node};

/// The entries of the two directories of a rename, which may be one. Locked in the order of inode
/// numbers.
enum Pair<'a> {
    One(QRwLockWriteGuard<'a, Entries>),
    Two { from: QRwLockWriteGuard<'a, Entries>, to: QRwLockWriteGuard<'a, Entries> },
}

impl<'a> Pair<'a> {
    fn lock(from: &'a Inode, to: &'a Inode) -> Result<Pair<'a>> {
        let (a, b) = (from.directory()?, to.directory()?);
        Ok(if from.ino == to.ino {
            Pair::One(a.entries.write())
        } else if from.ino < to.ino {
            let from = a.entries.write();
            Pair::Two { from, to: b.entries.write() }
        } else {
            let to = b.entries.write();
            Pair::Two { from: a.entries.write(), to }
        })
    }

    fn from(&mut self) -> &mut Entries {
        match self {
            Pair::One(both) => both,
            Pair::Two { from, .. } => from,
        }
    }

    fn to(&mut self) -> &mut Entries {
        match self {
            Pair::One(both) => both,
            Pair::Two { to, .. } => to,
        }
    }
}

impl MemFs {
    pub(super) fn find(&self, at: Place<'_, Node>) -> Result<Entry<Node>> {
        if at.name.len() > super::NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let found = at.dir.0.directory()?.entries.read().get(at.name).map(Arc::clone);
        found.map(Node::entry).ok_or(Errno::ENOENT)
    }

    /// Makes a new inode under a new name.
    pub(super) fn make(
        &self,
        cx: &Context,
        at: Place<'_, Node>,
        kind: FileType,
        perm: u32,
        rdev: u64,
        body: Body,
    ) -> Result<Entry<Node>> {
        let parent = &at.dir.0;
        let directory = parent.directory()?;
        let mut entries = directory.entries.write();
        entries.check_free(at.name, &directory.population)?;
        let (perm, gid) = inherit(cx, &parent.meta.read(), kind, perm);
        let birth = Birth { kind, perm, uid: cx.uid, gid, rdev };
        let inode = Inode::new(birth, body, &self.space)?;
        entries.insert(at.name, Arc::clone(&inode), &directory.population)?;
        parent.entries_changed(if kind == FileType::Directory { 1 } else { 0 });
        drop(entries);
        Ok(Node::entry(inode))
    }

    pub(super) fn make_directory(
        &self,
        cx: &Context,
        at: Place<'_, Node>,
        perm: u32,
    ) -> Result<Entry<Node>> {
        let body = Body::Directory(Directory::new(Arc::downgrade(&at.dir.0)));
        self.make(cx, at, FileType::Directory, perm, 0, body)
    }

    pub(super) fn add_name(&self, inode: &Arc<Inode>, at: Place<'_, Node>) -> Result<()> {
        if inode.kind == FileType::Directory {
            return Err(Errno::EPERM);
        }
        let parent = &at.dir.0;
        let directory = parent.directory()?;
        let mut entries = directory.entries.write();
        entries.check_free(at.name, &directory.population)?;
        inode.add_link()?;
        if let Err(error) = entries.insert(at.name, Arc::clone(inode), &directory.population) {
            inode.drop_link();
            return Err(error);
        }
        parent.entries_changed(0);
        Ok(())
    }

    /// Removes a name. What it meant is dropped by the caller, after the locks.
    pub(super) fn remove_name(&self, at: Place<'_, Node>, want_dir: bool) -> Result<Arc<Inode>> {
        let parent = &at.dir.0;
        let directory = parent.directory()?;
        let mut entries = directory.entries.write();
        let inode = entries.get(at.name).ok_or(Errno::ENOENT)?;
        match (&inode.body, want_dir) {
            (Body::Directory(doomed), true) => doomed.population.remove()?,
            (Body::Directory(_), false) => return Err(Errno::EISDIR),
            (_, true) => return Err(Errno::ENOTDIR),
            (_, false) => {}
        }
        let inode = entries.remove(at.name, &directory.population).ok_or(Errno::ENOENT)?;
        inode.drop_link();
        parent.entries_changed(if want_dir { -1 } else { 0 });
        Ok(inode)
    }

    pub(super) fn move_name(
        &self,
        from: Place<'_, Node>,
        to: Place<'_, Node>,
        flags: RenameFlags,
    ) -> Result<()> {
        let known = RenameFlags::NOREPLACE | RenameFlags::EXCHANGE;
        if !known.contains(flags) || flags == known {
            return Err(Errno::EINVAL);
        }
        if to.name.len() > super::NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        // A directory may change its parent below, so `tree` is held for every move between two
        // directories: which names are directories is known only later. Within one directory no
        // parent changes.
        let two = from.dir.0.ino != to.dir.0.ino;
        let _tree = two.then(|| self.tree.write());
        let mut pair = Pair::lock(&from.dir.0, &to.dir.0)?;
        let moved = Arc::clone(pair.from().get(from.name).ok_or(Errno::ENOENT)?);
        let target = pair.to().get(to.name).map(Arc::clone);
        let replaced = if flags.contains(RenameFlags::EXCHANGE) {
            let other = target.ok_or(Errno::ENOENT)?;
            exchange(&mut pair, from, to, moved, other)?;
            None
        } else {
            if flags.contains(RenameFlags::NOREPLACE) && target.is_some() {
                return Err(Errno::EEXIST);
            }
            replace(&mut pair, from, to, moved, target)?
        };
        // What was replaced may be the last of a big file: not under the locks.
        drop(pair);
        drop(replaced);
        Ok(())
    }
}

fn is_dir(inode: &Inode) -> bool {
    inode.kind == FileType::Directory
}

/// Whether `inode` is `dir` or a directory above it. The caller holds `tree`.
fn is_above(inode: &Arc<Inode>, dir: &Arc<Inode>) -> Result<bool> {
    if !is_dir(inode) {
        return Ok(false);
    }
    let mut at = Some(Arc::clone(dir));
    while let Some(step) = at {
        if Arc::ptr_eq(&step, inode) {
            return Ok(true);
        }
        at = step.directory()?.parent();
    }
    Ok(false)
}

fn exchange(
    pair: &mut Pair<'_>,
    from: Place<'_, Node>,
    to: Place<'_, Node>,
    moved: Arc<Inode>,
    other: Arc<Inode>,
) -> Result<()> {
    if Arc::ptr_eq(&moved, &other) {
        return Ok(());
    }
    let (old, new) = (&from.dir.0, &to.dir.0);
    let two = old.ino != new.ino;
    // Either move would cut a ring off the tree.
    if two && (is_above(&moved, new)? || is_above(&other, old)?) {
        return Err(Errno::EINVAL);
    }
    pair.from().replace(from.name, Arc::clone(&other)).ok_or(Errno::ENOENT)?;
    pair.to().replace(to.name, Arc::clone(&moved)).ok_or(Errno::ENOENT)?;
    let (gone, come) = (i32::from(is_dir(&moved)), i32::from(is_dir(&other)));
    if two {
        for (inode, dir) in [(&moved, new), (&other, old)] {
            if let Body::Directory(directory) = &inode.body {
                directory.set_parent(dir);
            }
        }
        new.entries_changed(gone - come);
    }
    old.entries_changed(if two { come - gone } else { 0 });
    moved.touch_changed();
    other.touch_changed();
    Ok(())
}

/// The plain rename. Answers with what lost its name, for the caller to drop.
fn replace(
    pair: &mut Pair<'_>,
    from: Place<'_, Node>,
    to: Place<'_, Node>,
    moved: Arc<Inode>,
    target: Option<Arc<Inode>>,
) -> Result<Option<Arc<Inode>>> {
    let (old, new) = (&from.dir.0, &to.dir.0);
    let two = old.ino != new.ino;
    if two {
        // This would cut a ring off the tree. Within one directory nothing is above another.
        if is_above(&moved, new)? {
            return Err(Errno::EINVAL);
        }
        if let Some(target) = &target
            && is_above(target, old)?
        {
            return Err(Errno::ENOTEMPTY);
        }
    }
    let (old_population, new_population) =
        (&old.directory()?.population, &new.directory()?.population);
    if let Some(target) = &target {
        if Arc::ptr_eq(target, &moved) {
            // Two names of one inode: nothing to do, both stay.
            return Ok(None);
        }
        match (&target.body, is_dir(&moved)) {
            (Body::Directory(doomed), true) => doomed.population.remove()?,
            (Body::Directory(_), false) => return Err(Errno::EISDIR),
            (_, true) => return Err(Errno::ENOTDIR),
            (_, false) => {}
        }
        pair.to().replace(to.name, Arc::clone(&moved)).ok_or(Errno::ENOENT)?;
        target.drop_link();
    } else {
        pair.to().insert(to.name, Arc::clone(&moved), new_population)?;
    }
    pair.from().remove(from.name, old_population).ok_or(Errno::ENOENT)?;
    let gone = i32::from(is_dir(&moved));
    let replaced_dir = i32::from(target.as_deref().is_some_and(is_dir));
    if two {
        if let Body::Directory(directory) = &moved.body {
            directory.set_parent(new);
        }
        old.entries_changed(-gone);
        new.entries_changed(gone - replaced_dir);
    } else {
        old.entries_changed(-replaced_dir);
    }
    moved.touch_changed();
    Ok(target)
}
