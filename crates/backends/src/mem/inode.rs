//! One inode: identity, attributes, body.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use vfscale::sync::QRwLock;
use vfscale::{Attr, Context, Errno, FileType, Result, SetAttr, SetTime, Timestamp};

use super::PAGE;
use super::content::Content;
use super::dir::Directory;
use super::space::Space;

/// Set-uid, set-gid, and the bit that makes set-gid mean "run as the group".
pub(super) const S_ISUID: u32 = 0o4000;
pub(super) const S_ISGID: u32 = 0o2000;
const S_IXGRP: u32 = 0o010;
const PERM_MASK: u32 = 0o7777;

/// An access time older than this is brought up to date by a read in any case.
const ATIME_STALE_SECS: i64 = 24 * 60 * 60;

#[derive(Debug)]
pub(super) struct Inode {
    pub(super) ino: u64,
    pub(super) kind: FileType,
    rdev: u64,
    pub(super) meta: QRwLock<Meta>,
    pub(super) body: Body,
    pub(super) space: Arc<Space>,
}

/// What every inode has beside its body.
#[derive(Debug)]
pub(super) struct Meta {
    pub(super) perm: u32,
    pub(super) nlink: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
    btime: Timestamp,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Debug)]
pub(super) enum Body {
    Directory(Directory),
    Regular(QRwLock<Content>),
    Symlink(Box<[u8]>),
    /// Pipes, sockets and devices: the names are ours, the objects the client's kernel's.
    Special,
}

/// What a new inode gets from the one who asks for it.
pub(super) struct Birth {
    pub(super) kind: FileType,
    pub(super) perm: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) rdev: u64,
}

impl Inode {
    pub(super) fn root(space: &Arc<Space>) -> Arc<Inode> {
        let birth = Birth { kind: FileType::Directory, perm: 0o755, uid: 0, gid: 0, rdev: 0 };
        let ino = space.take_inode().expect("an empty file system has room for its root");
        Inode::with_number(ino, birth, Body::Directory(Directory::new(Weak::new())), space)
    }

    /// A new inode, counted, with the names it will have: two for a directory, one for anything
    /// else.
    pub(super) fn new(birth: Birth, body: Body, space: &Arc<Space>) -> Result<Arc<Inode>> {
        Ok(Inode::with_number(space.take_inode()?, birth, body, space))
    }

    fn with_number(ino: u64, birth: Birth, body: Body, space: &Arc<Space>) -> Arc<Inode> {
        let now = Timestamp::now();
        Arc::new(Inode {
            ino,
            kind: birth.kind,
            rdev: birth.rdev,
            meta: QRwLock::new(Meta {
                perm: birth.perm & PERM_MASK,
                nlink: if birth.kind == FileType::Directory { 2 } else { 1 },
                uid: birth.uid,
                gid: birth.gid,
                atime: now,
                mtime: now,
                ctime: now,
                btime: now,
                xattrs: BTreeMap::new(),
            }),
            body,
            space: Arc::clone(space),
        })
    }

    pub(super) fn directory(&self) -> Result<&Directory> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// The content of a regular file; `EISDIR` for a directory and `EINVAL` for the rest, as the
    /// system calls say.
    pub(super) fn content(&self) -> Result<&QRwLock<Content>> {
        match &self.body {
            Body::Regular(content) => Ok(content),
            Body::Directory(_) => Err(Errno::EISDIR),
            Body::Symlink(_) | Body::Special => Err(Errno::EINVAL),
        }
    }

    pub(super) fn attr(&self) -> Attr {
        let (size, pages) = match &self.body {
            Body::Regular(content) => {
                let content = content.read();
                (content.size(), content.page_count())
            }
            Body::Symlink(target) => (target.len() as u64, 0),
            // A directory takes no pages; a size of one block is what tools expect of a small one.
            Body::Directory(_) => (PAGE, 0),
            Body::Special => (0, 0),
        };
        let meta = self.meta.read();
        Attr {
            ino: self.ino,
            kind: self.kind,
            perm: meta.perm,
            nlink: meta.nlink,
            uid: meta.uid,
            gid: meta.gid,
            rdev: self.rdev,
            size,
            blocks: pages * (PAGE / 512),
            blksize: PAGE as u32,
            atime: meta.atime,
            mtime: meta.mtime,
            ctime: meta.ctime,
            btime: Some(meta.btime),
        }
    }

    /// Size, owner, permission bits, times: what can fail comes first, and a change of
    /// owner before the bits, since it clears some that the same call may set again.
    pub(super) fn set_attr(&self, cx: &Context, change: &SetAttr) -> Result<()> {
        if *change == SetAttr::default() {
            return Ok(());
        }
        if change.perm.is_some() && self.kind == FileType::Symlink {
            return Err(Errno::EOPNOTSUPP);
        }
        if let Some(size) = change.size {
            self.content()?.write().set_size(size)?;
        }
        let now = Timestamp::now();
        let mut meta = self.meta.write();
        if change.uid.is_some() || change.gid.is_some() {
            meta.uid = change.uid.unwrap_or(meta.uid);
            meta.gid = change.gid.unwrap_or(meta.gid);
            if self.kind != FileType::Directory {
                meta.perm = without_privileges(meta.perm);
            }
        }
        if let Some(perm) = change.perm {
            let strip = self.kind != FileType::Directory && !may_set_gid(cx, meta.gid);
            meta.perm = perm & PERM_MASK & if strip { !S_ISGID } else { !0 };
        }
        let time = |set: SetTime| match set {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        if change.size.is_some() {
            meta.mtime = now;
        }
        if let Some(set) = change.atime {
            meta.atime = time(set);
        }
        if let Some(set) = change.mtime {
            meta.mtime = time(set);
        }
        meta.ctime = now;
        Ok(())
    }

    /// Content or entries changed.
    pub(super) fn touch_modified(&self) {
        let now = Timestamp::now();
        let mut meta = self.meta.write();
        meta.mtime = now;
        meta.ctime = now;
    }

    /// Attributes or the number of names changed.
    pub(super) fn touch_changed(&self) {
        self.meta.write().ctime = Timestamp::now();
    }

    /// Content or entries were read: a new access time where the old one would mislead, so most
    /// reads store nothing.
    pub(super) fn touch_accessed(&self) {
        let now = Timestamp::now();
        let misleads = |meta: &Meta| {
            meta.atime <= meta.mtime
                || meta.atime <= meta.ctime
                || now.sec - meta.atime.sec >= ATIME_STALE_SECS
        };
        if misleads(&self.meta.read()) {
            self.meta.write().atime = now;
        }
    }

    /// One more name; refused for an inode that has lost its last one, and past what a count can
    /// say.
    pub(super) fn add_link(&self) -> Result<()> {
        let mut meta = self.meta.write();
        if meta.nlink == 0 {
            return Err(Errno::ENOENT);
        }
        meta.nlink = meta.nlink.checked_add(1).ok_or(Errno::EMLINK)?;
        meta.ctime = Timestamp::now();
        Ok(())
    }

    /// One name less. A directory goes with its name, so all its links do.
    pub(super) fn drop_link(&self) {
        let mut meta = self.meta.write();
        meta.nlink = if self.kind == FileType::Directory { 0 } else { meta.nlink - 1 };
        meta.ctime = Timestamp::now();
    }

    /// A directory gained or lost a subdirectory, whose `..` is a name of it, or just an entry
    /// (`by` 0).
    pub(super) fn entries_changed(&self, by: i32) {
        let now = Timestamp::now();
        let mut meta = self.meta.write();
        meta.nlink = meta.nlink.saturating_add_signed(by);
        meta.mtime = now;
        meta.ctime = now;
    }
}

impl Drop for Inode {
    /// Takes a tree down without recursion: it may be deeper than the stack.
    fn drop(&mut self) {
        self.space.give_back_inode();
        super::xattr::give_back(self);
        let mut doomed: Vec<Arc<Inode>> = drain(&mut self.body);
        while let Some(inode) = doomed.pop() {
            if let Some(mut last) = Arc::into_inner(inode) {
                doomed.append(&mut drain(&mut last.body));
            }
        }
    }
}

fn drain(body: &mut Body) -> Vec<Arc<Inode>> {
    match body {
        Body::Directory(directory) => {
            let entries = directory.entries.get_mut();
            entries.drain().collect()
        }
        _ => Vec::new(),
    }
}

/// Permission bits after a change of owner: set-uid goes, and set-gid where it means "run as the
/// group".
fn without_privileges(perm: u32) -> u32 {
    let gone = if perm & S_IXGRP != 0 { S_ISUID | S_ISGID } else { S_ISUID };
    perm & !gone
}

/// Whether the caller may leave set-gid on a file of this group. Who does not tell its groups has
/// decided already.
pub(super) fn may_set_gid(cx: &Context, gid: u32) -> bool {
    let Some(groups) = &cx.groups else { return true };
    cx.uid == 0 || cx.gid == gid || groups.contains(&gid)
}

/// Permission bits and group of something new in a directory.
pub(super) fn inherit(cx: &Context, dir: &Meta, kind: FileType, perm: u32) -> (u32, u32) {
    if dir.perm & S_ISGID == 0 {
        return (perm, cx.gid);
    }
    if kind == FileType::Directory {
        return (perm | S_ISGID, dir.gid);
    }
    let runs_as_group = perm & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP;
    let strip = runs_as_group && !may_set_gid(cx, dir.gid);
    (if strip { perm & !S_ISGID } else { perm }, dir.gid)
}
