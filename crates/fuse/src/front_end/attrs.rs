//! Attributes: of inodes, of the file system, and extended ones.
//!
//! The root has one extended attribute of the server's own, [`STATS_XATTR`]: a text with the live numbers, made when it is asked
//! for, ten times a second at most. It is not listed, and cannot be set. The text is padded with spaces to a multiple of 1 KiB, so that a client that asks
//! for the length first still has room when the numbers grew in between.
//!
//! # Access control lists
//! A backend that knows the attributes `system.posix_acl_access` and `system.posix_acl_default` keeps lists, gives new objects
//! those of their directory, and changes list and mode together; the kernel reads them and decides. What is left to us is the
//! umask, which counts only in a directory without a default list.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use vfscale::{Attr, Context, Errno, FileSystem, Result, SetAttr, SetXattr, StatFs};

use super::FrontEnd;
use crate::nodes::ROOT;

/// The attribute of the root that tells the live numbers.
pub const STATS_XATTR: &str = "user.vfscale.stats";

const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";
const S_ISGID: u32 = 0o2000;

const STATS_UNIT: usize = 1024;

/// How long a text is told again. Everybody may ask, as often as they like, and to make one walks the table of nodes.
const STATS_KEPT: Duration = Duration::from_millis(100);

impl<F: FileSystem> FrontEnd<F> {
    pub(crate) fn getattr(&self, node: u64, file: Option<u64>) -> Result<(Attr, Duration)> {
        let inode = self.inode(node)?;
        let file = file.map(|file| self.file(file)).transpose()?;
        Ok((self.vfs.getattr(&inode, file.as_ref())?, self.attr_valid()))
    }

    pub(crate) fn setattr(
        &self,
        cx: &Context,
        node: u64,
        file: Option<u64>,
        change: &SetAttr,
    ) -> Result<(Attr, Duration)> {
        let inode = self.inode(node)?;
        let file = file.map(|file| self.file(file)).transpose()?;
        Ok((self.vfs.setattr(cx, &inode, file.as_ref(), change)?, self.attr_valid()))
    }

    pub(crate) fn statfs(&self) -> Result<StatFs> {
        self.vfs.statfs()
    }

    pub(crate) fn getxattr(&self, cx: &Context, node: u64, name: &[u8]) -> Result<Vec<u8>> {
        if is_own(node, name) {
            return Ok(self.report_text());
        }
        self.vfs.getxattr(cx, &self.inode(node)?, name)
    }

    fn report_text(&self) -> Vec<u8> {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made, text)) = &*reported
            && made.elapsed() < STATS_KEPT
        {
            return text.clone();
        }
        // Under the lock: who asks meanwhile would make the same.
        let mut text = (self.report)(&self.stats()).into_bytes();
        text.resize(text.len().next_multiple_of(STATS_UNIT), b' ');
        *reported = Some((Instant::now(), text.clone()));
        text
    }

    pub(crate) fn setxattr(
        &self,
        cx: &Context,
        node: u64,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> Result<()> {
        if is_own(node, name) {
            return Err(Errno::EPERM);
        }
        self.vfs.setxattr(cx, &self.inode(node)?, name, value, how)
    }

    pub(crate) fn listxattr(&self, cx: &Context, node: u64) -> Result<Vec<u8>> {
        self.vfs.listxattr(cx, &self.inode(node)?)
    }

    pub(crate) fn removexattr(&self, cx: &Context, node: u64, name: &[u8]) -> Result<()> {
        if is_own(node, name) {
            return Err(Errno::EPERM);
        }
        self.vfs.removexattr(cx, &self.inode(node)?, name)
    }
}

impl<F: FileSystem> FrontEnd<F> {
    /// Does the backend know what an access control list is? One that does finds one on the root, or none.
    pub(crate) fn keeps_access_lists(&self) -> bool {
        let asked = self
            .inode(ROOT)
            .and_then(|root| self.vfs.getxattr(&Context::root(), &root, ACCESS_LIST));
        matches!(asked, Ok(_) | Err(Errno::ENODATA))
    }

    /// `mode` less the umask, unless a default list of `parent` takes the umask's place.
    ///
    /// The list is looked at a moment before the object is made. Should the directory's owner remove it just then, the object has the
    /// mode that was asked for, with neither; should a list come just then, both.
    pub(crate) fn masked(&self, parent: u64, mode: u32, umask: u32) -> Result<u32> {
        if mode & umask == 0 {
            return Ok(mode);
        }
        match self.vfs.getxattr(&Context::root(), &self.inode(parent)?, DEFAULT_LIST) {
            Ok(_) => Ok(mode),
            // None here, or a file system mounted below that keeps none.
            Err(Errno::ENODATA | Errno::EOPNOTSUPP) => Ok(mode & !umask),
            Err(error) => Err(error),
        }
    }

    /// Takes the set-group-id bit from a file, if it has it.
    pub(crate) fn clear_set_gid(&self, cx: &Context, node: u64) -> Result<()> {
        let inode = self.inode(node)?;
        let perm = self.vfs.getattr(&inode, None)?.perm;
        if perm & S_ISGID != 0 {
            let change = SetAttr { perm: Some(perm & !S_ISGID), ..SetAttr::default() };
            self.vfs.setattr(cx, &inode, None, &change)?;
        }
        Ok(())
    }
}

fn is_own(node: u64, name: &[u8]) -> bool {
    node == ROOT && name == STATS_XATTR.as_bytes()
}
