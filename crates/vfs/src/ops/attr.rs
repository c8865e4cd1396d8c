//! Attributes, links' targets, extended attributes, size of the file system.

use crate::file::OpenFile;
use crate::inode::InodeRef;
use crate::{Attr, Context, FileSystem, Result, SetAttr, SetXattr, StatFs, Vfs, clock};

impl<F: FileSystem> Vfs<F> {
    /// The attributes now, by the backend; through `file` if it is open (its name may be gone).
    ///
    /// # Errors
    /// What the backend answers.
    pub fn getattr(&self, inode: &InodeRef, file: Option<&OpenFile>) -> Result<Attr> {
        let node = self.node(inode)?;
        let sample = inode.0.attr_sample();
        let attr = match file {
            Some(file) => file.with_handle(|handle| self.fs.getattr(&node, Some(handle)))?,
            None => self.fs.getattr(&node, None)?,
        };
        inode.0.store_asked(&attr, clock::until(self.options().attr_ttl), sample);
        Ok(attr)
    }

    /// The object was changed beside the core: whoever wants its attributes next asks the backend.
    pub fn forget_attr(&self, inode: &InodeRef) {
        inode.0.forget_attr();
    }

    /// Changes attributes and answers with the new ones.
    ///
    /// # Errors
    /// What the backend answers. A change of several may have been done in part; the next `getattr` tells.
    pub fn setattr(
        &self,
        cx: &Context,
        inode: &InodeRef,
        file: Option<&OpenFile>,
        change: &SetAttr,
    ) -> Result<Attr> {
        let node = self.node(inode)?;
        let sample = inode.0.attr_sample();
        let result = match file {
            Some(file) => file.with_handle(|h| self.fs.setattr(cx, &node, Some(h), change)),
            None => self.fs.setattr(cx, &node, None, change),
        };
        match &result {
            Ok(attr) => {
                inode.0.store_changed(attr, clock::until(self.options().attr_ttl), sample);
            }
            Err(_) => inode.0.forget_attr(),
        }
        result
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` if it is none.
    pub fn readlink(&self, inode: &InodeRef) -> Result<Vec<u8>> {
        self.fs.readlink(&*self.node(inode)?)
    }

    /// Size and use of the file system.
    ///
    /// # Errors
    /// What the backend answers.
    pub fn statfs(&self) -> Result<StatFs> {
        self.fs.statfs()
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` if there is none of this name; `EOPNOTSUPP`.
    pub fn getxattr(&self, cx: &Context, inode: &InodeRef, name: &[u8]) -> Result<Vec<u8>> {
        self.fs.getxattr(cx, &*self.node(inode)?, name)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `EEXIST` or `ENODATA` by `how`; `EOPNOTSUPP`.
    pub fn setxattr(
        &self,
        cx: &Context,
        inode: &InodeRef,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> Result<()> {
        let result = self.fs.setxattr(cx, &*self.node(inode)?, name, value, how);
        // An access list changes the mode, any of them the change time.
        inode.0.forget_attr();
        result
    }

    /// The names of all extended attributes, each ended by a NUL.
    ///
    /// # Errors
    /// `EOPNOTSUPP`.
    pub fn listxattr(&self, cx: &Context, inode: &InodeRef) -> Result<Vec<u8>> {
        self.fs.listxattr(cx, &*self.node(inode)?)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` if there is none of this name; `EOPNOTSUPP`.
    pub fn removexattr(&self, cx: &Context, inode: &InodeRef, name: &[u8]) -> Result<()> {
        let result = self.fs.removexattr(cx, &*self.node(inode)?, name);
        inode.0.forget_attr();
        result
    }
}
