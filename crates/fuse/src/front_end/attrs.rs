//! Attributes: of inodes, of the file system, and extended ones.
//!
//! The root has one extended attribute of the server's own, [`STATS_XATTR`]: a text with the live numbers, made when it is asked
//! for, ten times a second at most. It is not listed, and cannot be set. The text is padded with spaces to a multiple of 1 KiB, so that a client that asks
//! for the length first still has room when the numbers grew in between.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use vfscale::{Attr, Context, Errno, FileSystem, Result, SetAttr, SetXattr, StatFs};

use super::FrontEnd;
use crate::nodes::ROOT;

/// The attribute of the root that tells the live numbers.
pub const STATS_XATTR: &str = "user.vfscale.stats";

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

fn is_own(node: u64, name: &[u8]) -> bool {
    node == ROOT && name == STATS_XATTR.as_bytes()
}
