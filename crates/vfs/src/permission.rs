//! Who may: by mode, owner and group, as a kernel decides for its callers.
//!
//! The operations on paths ask here, those on a component do not: a front end's kernel has decided already. The super-user may do everything
//! but run what nobody may run. Set-gid directories and the bits that go with a change of owner are the backend's.

use crate::dentry::DentryRef;
use crate::inode::InodeRef;
use crate::walk::Access;
use crate::{Context, Errno, FileSystem, FileType, OpenFlags, Result, SetAttr, SetTime, Vfs};

bitflags::bitflags! {
    /// What [`Cwd::access`](crate::Cwd::access) asks about. Nothing: does it exist?
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AccessMode: u32 {
        /// Run a file, or pass through a directory.
        const EXECUTE = 1;
        /// Write.
        const WRITE = 2;
        /// Read.
        const READ = 4;
    }
}

const STICKY: u32 = 0o1000;

fn is_in_group(cx: &Context, gid: u32) -> bool {
    cx.gid == gid || cx.groups.as_ref().is_some_and(|groups| groups.contains(&gid))
}

impl<F: FileSystem> Vfs<F> {
    /// Refuses who may not change the names in `dir`; or, where it is sticky, this name.
    pub(crate) fn check_change(
        &self,
        cx: &Context,
        dir: &DentryRef,
        name: Option<&[u8]>,
    ) -> Result<()> {
        if cx.uid == 0 {
            return Ok(());
        }
        let dir_inode = self.dir_inode(dir)?;
        self.check_access(cx, &dir_inode, Access::CHANGE)?;
        let (mode, owner, _) = self.owner(&dir_inode)?;
        if mode & STICKY == 0 || owner == cx.uid {
            return Ok(());
        }
        let Some(name) = name else { return Ok(()) };
        match self.lookup(cx, dir, name) {
            Ok(found) if found.attr.uid != cx.uid => Err(Errno::EPERM),
            Ok(_) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Refuses who may not move `name` from `from` to `to`: a directory that gets another parent is changed itself, for its `..` is.
    pub(crate) fn check_move(
        &self,
        cx: &Context,
        from: &DentryRef,
        name: &[u8],
        to: &DentryRef,
    ) -> Result<()> {
        self.check_change(cx, from, Some(name))?;
        if cx.uid == 0 || from == to {
            return Ok(());
        }
        match self.lookup(cx, from, name) {
            Ok(moved) if moved.inode.kind() == FileType::Directory => {
                self.check_access(cx, &moved.inode, Access::WRITE)
            }
            Ok(_) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Refuses who may not open `inode` so.
    pub(crate) fn check_open(
        &self,
        cx: &Context,
        inode: &InodeRef,
        flags: OpenFlags,
    ) -> Result<()> {
        let mut access = Access::NONE;
        for (flag, right) in [
            (OpenFlags::READ, Access::READ),
            (OpenFlags::WRITE | OpenFlags::TRUNCATE, Access::WRITE),
        ] {
            if flags.intersects(flag) {
                access = access.and(right);
            }
        }
        self.check_access(cx, inode, access)?;
        if flags.contains(OpenFlags::NOATIME) { self.check_owner(cx, inode) } else { Ok(()) }
    }

    /// Refuses who may not change attributes so.
    pub(crate) fn check_setattr(
        &self,
        cx: &Context,
        inode: &InodeRef,
        change: &SetAttr,
    ) -> Result<()> {
        if cx.uid == 0 {
            return Ok(());
        }
        let (_, uid, gid) = self.owner(inode)?;
        let is_owner = cx.uid == uid;
        let gives_away = change.uid.is_some_and(|to| to != uid);
        let regroups = change.gid.is_some_and(|to| to != gid && !is_in_group(cx, to));
        let changes_owner = change.uid.is_some() || change.gid.is_some() || change.perm.is_some();
        if changes_owner && (!is_owner || gives_away || regroups) {
            return Err(Errno::EPERM);
        }
        let times = [change.atime, change.mtime];
        if !is_owner && times.iter().flatten().any(|time| *time != SetTime::Now) {
            return Err(Errno::EPERM);
        }
        let writes = change.size.is_some() || (!is_owner && times.iter().any(Option::is_some));
        if writes { self.check_access(cx, inode, Access::WRITE) } else { Ok(()) }
    }

    /// Refuses who may not do this, by its real rights: the super-user, too, runs only what somebody may run.
    pub(crate) fn check_mode(
        &self,
        cx: &Context,
        inode: &InodeRef,
        mode: AccessMode,
    ) -> Result<()> {
        if cx.uid == 0 && mode.contains(AccessMode::EXECUTE) {
            let (perm, ..) = self.owner(inode)?;
            if inode.kind() != FileType::Directory && perm & 0o111 == 0 {
                return Err(Errno::EACCES);
            }
        }
        self.check_access(cx, inode, Access::from_bits(mode.bits()))
    }

    fn check_owner(&self, cx: &Context, inode: &InodeRef) -> Result<()> {
        if cx.uid == 0 || self.owner(inode)?.1 == cx.uid { Ok(()) } else { Err(Errno::EPERM) }
    }
}
