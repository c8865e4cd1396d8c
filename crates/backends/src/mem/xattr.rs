//! Extended attributes of an inode in memory.
//!
//! Which caller may see which name space (`trusted.` for the super-user, `user.` by the file's
//! permissions) is the front end's to decide. The name spaces without a meaning here, and `system.`
//! (access control lists, which nobody would enforce), are refused.

use vfscale::{Errno, FileType, Result, SetXattr};

use super::inode::{Inode, Meta};
use super::{NAME_MAX, PAGE};

/// The longest value and the longest list of names, in bytes; the system calls cannot say more.
const VALUE_MAX: usize = 65_536;
const LIST_MAX: usize = 65_536;
const E2BIG: Errno = Errno::from_raw(7);

/// Bytes that come with the inode; what is above counts as pages of the file system.
const FREE_BYTES: u64 = 512;

fn pages(meta: &Meta) -> u64 {
    let bytes: usize = meta.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
    (bytes as u64).saturating_sub(FREE_BYTES).div_ceil(PAGE)
}

fn check_name(inode: &Inode, name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Errno::ERANGE);
    }
    let dot = name.iter().position(|&b| b == b'.').ok_or(Errno::EOPNOTSUPP)?;
    match &name[..dot] {
        _ if dot + 1 == name.len() => Err(Errno::EINVAL),
        b"user" if matches!(inode.kind, FileType::Regular | FileType::Directory) => Ok(()),
        b"user" => Err(Errno::EPERM),
        b"trusted" | b"security" => Ok(()),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

pub(super) fn get(inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
    match check_name(inode, name) {
        // Nothing can have been set there, so reading finds nothing rather than being forbidden.
        Err(Errno::EPERM) => return Err(Errno::ENODATA),
        other => other?,
    }
    inode.meta.read().xattrs.get(name).cloned().ok_or(Errno::ENODATA)
}

pub(super) fn set(inode: &Inode, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
    check_name(inode, name)?;
    if value.len() > VALUE_MAX {
        return Err(E2BIG);
    }
    let mut meta = inode.meta.write();
    let old = meta.xattrs.get(name);
    match (how, old.is_some()) {
        (SetXattr::Create, true) => return Err(Errno::EEXIST),
        (SetXattr::Replace, false) => return Err(Errno::ENODATA),
        _ => {}
    }
    if old.is_none() {
        let list: usize = meta.xattrs.keys().map(|name| name.len() + 1).sum();
        if list + name.len() + 1 > LIST_MAX {
            return Err(Errno::ENOSPC);
        }
    }
    let before = pages(&meta);
    let old = meta.xattrs.insert(name.to_vec(), value.to_vec());
    let after = pages(&meta);
    if after > before {
        if let Err(error) = inode.space.take_pages(after - before) {
            match old {
                Some(old) => meta.xattrs.insert(name.to_vec(), old),
                None => meta.xattrs.remove(name),
            };
            return Err(error);
        }
    } else {
        inode.space.give_back_pages(before - after);
    }
    drop(meta);
    inode.touch_changed();
    Ok(())
}

pub(super) fn list(inode: &Inode) -> Vec<u8> {
    let meta = inode.meta.read();
    meta.xattrs.keys().flat_map(|name| name.iter().copied().chain([0])).collect()
}

pub(super) fn remove(inode: &Inode, name: &[u8]) -> Result<()> {
    check_name(inode, name)?;
    let mut meta = inode.meta.write();
    let before = pages(&meta);
    meta.xattrs.remove(name).ok_or(Errno::ENODATA)?;
    inode.space.give_back_pages(before - pages(&meta));
    drop(meta);
    inode.touch_changed();
    Ok(())
}

/// Gives back what the attributes of an inode that is being dropped had taken.
pub(super) fn give_back(inode: &mut Inode) {
    let meta = inode.meta.get_mut();
    let pages = pages(meta);
    inode.space.give_back_pages(pages);
}
