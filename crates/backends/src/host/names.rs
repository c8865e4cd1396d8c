//! Everything that changes directories, but for creating files with an opening.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode};
use rustix::path::DecInt;
use vfscale::{Attr, Context, Entry, Errno, FileType, Place, RenameFlags, Result};

use super::node::Object;
use super::reach::single;
use super::{HostFs, Node, retry};

impl HostFs {
    /// Creates something as the caller, and looks at what came out.
    fn make(
        &self,
        cx: &Context,
        at: Place<'_, Node>,
        mode: u32,
        create: impl Fn(&OwnedFd, &[u8]) -> rustix::io::Result<()>,
    ) -> Result<Entry<Node>> {
        self.writable()?;
        let name = single(at.name)?;
        let dir = self.place(&at.dir.0)?;
        {
            let _acting = self.server.act_as(cx, mode)?;
            retry(|| create(&dir, name))?;
        }
        self.find(at)
    }

    pub(super) fn make_node(
        &self,
        cx: &Context,
        at: Place<'_, Node>,
        mode: u32,
        rdev: u64,
    ) -> Result<Entry<Node>> {
        // A mode without a type means a regular file, as the system call has it.
        let kind =
            if mode >> 12 == 0 { Some(FileType::Regular) } else { FileType::from_mode(mode) };
        let kind = match kind.ok_or(Errno::EINVAL)? {
            FileType::Directory | FileType::Symlink => return Err(Errno::EPERM),
            kind => rustix::fs::FileType::from_raw_mode(kind.mode_bits()),
        };
        let perm = Mode::from_raw_mode(mode & 0o7777);
        self.make(cx, at, mode, |dir, name| rustix::fs::mknodat(dir, name, kind, perm, rdev))
    }

    pub(super) fn make_dir(
        &self,
        cx: &Context,
        at: Place<'_, Node>,
        perm: u32,
    ) -> Result<Entry<Node>> {
        let mode = Mode::from_raw_mode(perm & 0o7777);
        self.make(cx, at, perm, |dir, name| rustix::fs::mkdirat(dir, name, mode))
    }

    pub(super) fn make_link(
        &self,
        cx: &Context,
        at: Place<'_, Node>,
        target: &[u8],
    ) -> Result<Entry<Node>> {
        self.make(cx, at, 0, |dir, name| rustix::fs::symlinkat(target, dir, name))
    }

    pub(super) fn add_name(&self, object: &Arc<Object>, at: Place<'_, Node>) -> Result<Attr> {
        self.writable()?;
        if object.kind == FileType::Directory {
            return Err(Errno::EPERM);
        }
        let name = single(at.name)?;
        let (place, dir) = (self.place(object)?, self.place(&at.dir.0)?);
        // Following the link in `/proc` ends at the object itself, also if that is a symbolic link.
        let link = DecInt::from_fd(&*place);
        retry(|| {
            rustix::fs::linkat(
                &self.proc_fds,
                link.as_c_str(),
                &*dir,
                name,
                AtFlags::SYMLINK_FOLLOW,
            )
        })?;
        object.moved_to(&self.moves, &at.dir.0, at.name);
        self.home.attr(&*place)
    }

    pub(super) fn remove_name(
        &self,
        at: Place<'_, Node>,
        object: &Arc<Object>,
        flags: AtFlags,
    ) -> Result<()> {
        self.writable()?;
        let name = single(at.name)?;
        let dir = self.place(&at.dir.0)?;
        self.hold(object);
        retry(|| rustix::fs::unlinkat(&*dir, name, flags))?;
        object.lost(&at.dir.0, at.name);
        Ok(())
    }

    pub(super) fn move_name(
        &self,
        from: Place<'_, Node>,
        to: Place<'_, Node>,
        flags: RenameFlags,
        moved: &Arc<Object>,
        replaced: Option<&Arc<Object>>,
    ) -> Result<()> {
        self.writable()?;
        if !RenameFlags::all().contains(flags) {
            return Err(Errno::EINVAL);
        }
        let (old, new) = (single(from.name)?, single(to.name)?);
        let (old_dir, new_dir) = (self.place(&from.dir.0)?, self.place(&to.dir.0)?);
        if let Some(replaced) = replaced {
            self.hold(replaced);
        }
        // The bits are Linux's own. Which of them go together and which the host's file system can
        // do, the host says.
        let host = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        retry(|| rustix::fs::renameat_with(&*old_dir, old, &*new_dir, new, host))?;
        match replaced {
            // Two names of one inode: the host did nothing.
            Some(replaced) if replaced.key == moved.key => return Ok(()),
            Some(replaced) if flags.contains(RenameFlags::EXCHANGE) => {
                replaced.moved_to(&self.moves, &from.dir.0, from.name);
                replaced.lost(&to.dir.0, to.name);
            }
            Some(replaced) => replaced.lost(&to.dir.0, to.name),
            None => {}
        }
        // In this order there is a way to it all the time.
        moved.moved_to(&self.moves, &to.dir.0, to.name);
        moved.lost(&from.dir.0, from.name);
        Ok(())
    }

    /// Keeps a descriptor of what is about to lose a name, maybe its last one. Somebody may have
    /// looked that name up already and be about to open it: as on the host, that opens what the
    /// name meant. The descriptor goes with the object, which the core drops once nobody knows it.
    fn hold(&self, object: &Arc<Object>) {
        // Without one the removal is as right, and the latecomer hears `ESTALE`.
        let _ = self.place(object);
    }
}
