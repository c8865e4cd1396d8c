//! Operations on names: finding, making, removing, moving them.

use vfscale::{Context, Errno, FileSystem, OpenFlags, RenameFlags, Result};

use super::{FrontEnd, Given, GivenFile};

/// What a lookup found out.
#[derive(Debug)]
pub(crate) enum LookedUp<'a, F: FileSystem> {
    /// The name means this node.
    Present(Given<'a, F>),
    /// There is no such name, and the client may believe so for a while.
    Absent(std::time::Duration),
}

impl<F: FileSystem> FrontEnd<F> {
    /// Finds `name` in the directory `parent`. `.` and `..` are never asked for: the session does not offer export.
    pub(crate) fn lookup(&self, cx: &Context, parent: u64, name: &[u8]) -> Result<LookedUp<'_, F>> {
        let dir = self.nodes.dir(parent)?;
        let name = component(name)?;
        match self.vfs.lookup(cx, &dir, name) {
            Ok(found) => Ok(LookedUp::Present(self.give(&found))),
            Err(Errno::ENOENT) => match self.vfs.absent_for(&dir, name) {
                ttl if ttl.is_zero() => Err(Errno::ENOENT),
                ttl => Ok(LookedUp::Absent(ttl)),
            },
            Err(error) => Err(error),
        }
    }

    pub(crate) fn mknod(
        &self,
        cx: &Context,
        parent: u64,
        name: &[u8],
        mode: u32,
        rdev: u64,
    ) -> Result<Given<'_, F>> {
        let dir = self.nodes.dir(parent)?;
        Ok(self.give(&self.vfs.mknod(cx, &dir, component(name)?, mode, rdev)?))
    }

    pub(crate) fn mkdir(
        &self,
        cx: &Context,
        parent: u64,
        name: &[u8],
        perm: u32,
    ) -> Result<Given<'_, F>> {
        let dir = self.nodes.dir(parent)?;
        Ok(self.give(&self.vfs.mkdir(cx, &dir, component(name)?, perm & 0o7777)?))
    }

    pub(crate) fn symlink(
        &self,
        cx: &Context,
        parent: u64,
        name: &[u8],
        target: &[u8],
    ) -> Result<Given<'_, F>> {
        let dir = self.nodes.dir(parent)?;
        Ok(self.give(&self.vfs.symlink(cx, &dir, component(name)?, target)?))
    }

    pub(crate) fn link(
        &self,
        cx: &Context,
        node: u64,
        new_parent: u64,
        new_name: &[u8],
    ) -> Result<Given<'_, F>> {
        let (inode, dir) = (self.inode(node)?, self.nodes.dir(new_parent)?);
        Ok(self.give(&self.vfs.link(cx, &inode, &dir, component(new_name)?)?))
    }

    /// Makes a file and opens it, for a client that believes the name absent.
    ///
    /// Never opens what is there: the client checked whether a file may be made, and knows nothing of the rights to a file that came to
    /// the name beside the mount. It has to look again, and open by a check of its own. That is what `ESTALE` asks of a kernel.
    pub(crate) fn create(
        &self,
        cx: &Context,
        parent: u64,
        name: &[u8],
        perm: u32,
        flags: OpenFlags,
    ) -> Result<(Given<'_, F>, GivenFile<'_, F>)> {
        let dir = self.nodes.dir(parent)?;
        let only_new = flags | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
        let made = self.vfs.create(cx, &dir, component(name)?, perm & 0o7777, only_new);
        let (found, file) = made.map_err(|error| match error {
            Errno::EEXIST if !flags.contains(OpenFlags::EXCLUSIVE) => Errno::ESTALE,
            error => error,
        })?;
        let file = self.give_file(file)?;
        Ok((self.give(&found), file))
    }

    pub(crate) fn unlink(&self, cx: &Context, parent: u64, name: &[u8]) -> Result<()> {
        self.vfs.unlink(cx, &self.nodes.dir(parent)?, component(name)?)
    }

    pub(crate) fn rmdir(&self, cx: &Context, parent: u64, name: &[u8]) -> Result<()> {
        self.vfs.rmdir(cx, &self.nodes.dir(parent)?, component(name)?)
    }

    /// `from` and `to` are each a directory's node and a name in it.
    pub(crate) fn rename(
        &self,
        cx: &Context,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        let (old_dir, new_dir) = (self.nodes.dir(from.0)?, self.nodes.dir(to.0)?);
        self.vfs.rename(cx, &old_dir, component(from.1)?, &new_dir, component(to.1)?, flags)
    }

    pub(crate) fn readlink(&self, node: u64) -> Result<Vec<u8>> {
        self.vfs.readlink(&self.inode(node)?)
    }
}

/// The core takes single components only. A kernel sends nothing else; whoever does is refused here.
fn component(name: &[u8]) -> Result<&[u8]> {
    match name {
        b"" | b"." | b".." => Err(Errno::EINVAL),
        _ if name.contains(&b'/') => Err(Errno::EINVAL),
        _ if name.len() > 255 => Err(Errno::ENAMETOOLONG),
        _ => Ok(name),
    }
}
