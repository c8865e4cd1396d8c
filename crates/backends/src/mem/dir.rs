//! The entries of one directory.
//!
//! # Cookies
//! Each entry has a number that grows with every insertion and is never used twice: the cookie by
//! which a listing goes on behind it. So a reader sees an entry that is there all the time exactly
//! once, whatever else comes and goes. A rename onto a name keeps that name's cookie: the name was
//! there all the time.
//!
//! # Removal
//! [`Population`] counts the entries in a word of its own, so that `rmdir` decides without the
//! directory's lock: it turns 0 into REMOVED, and from then on nobody can add an entry.
//!
//! | from | to | who |
//! |---|---|---|
//! | n | n + 1 | an insertion, with the entries locked, before it inserts |
//! | n | n − 1 | a removal, with the entries locked, after it removed |
//! | 0 | REMOVED | `rmdir` or a rename onto the directory, with the parent's entries locked |

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use vfscale::sync::QRwLock;
use vfscale::{Errno, Result};

use super::NAME_MAX;
use super::inode::Inode;

pub(super) const COOKIE_DOT: u64 = 1;
pub(super) const COOKIE_DOT_DOT: u64 = 2;
const COOKIE_FIRST: u64 = 3;

/// The body of a directory inode.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) entries: QRwLock<Entries>,
    pub(super) population: Population,
    /// Changes only under `MemFs::tree`. The root and a removed directory have none.
    parent: QRwLock<Weak<Inode>>,
}

impl Directory {
    pub(super) fn new(parent: Weak<Inode>) -> Directory {
        Directory {
            entries: QRwLock::new(Entries {
                by_name: HashMap::new(),
                by_cookie: BTreeMap::new(),
                next_cookie: COOKIE_FIRST,
            }),
            population: Population(AtomicU64::new(0)),
            parent: QRwLock::new(parent),
        }
    }

    pub(super) fn parent(&self) -> Option<Arc<Inode>> {
        self.parent.write().upgrade()
    }

    pub(super) fn set_parent(&self, parent: &Arc<Inode>) {
        *self.parent.write() = Arc::downgrade(parent);
    }

    /// Copies up to `max` entries behind `cookie`, so that the caller can look at them without the
    /// lock.
    pub(super) fn batch(&self, cookie: u64, max: usize) -> Vec<(u64, Slot)> {
        let entries = self.entries.read();
        let behind = entries.by_cookie.range((Excluded(cookie), Unbounded));
        behind.take(max).map(|(&cookie, slot)| (cookie, slot.clone())).collect()
    }
}

/// How many entries a directory has, or that it was removed.
#[derive(Debug)]
pub(super) struct Population(AtomicU64);

impl Population {
    const REMOVED: u64 = u64::MAX;

    /// Refuses with `ENOENT` if the directory was removed. Relaxed: the word orders nothing but
    /// itself.
    fn add(&self) -> Result<()> {
        let grow = |n: u64| (n != Population::REMOVED).then(|| n + 1);
        self.0.fetch_update(Relaxed, Relaxed, grow).map(drop).map_err(|_| Errno::ENOENT)
    }

    fn sub(&self) {
        self.0.fetch_sub(1, Relaxed);
    }

    /// Turns an empty directory into a removed one.
    pub(super) fn remove(&self) -> Result<()> {
        match self.0.compare_exchange(0, Population::REMOVED, Relaxed, Relaxed) {
            Ok(_) => Ok(()),
            Err(Population::REMOVED) => Err(Errno::ENOENT),
            Err(_) => Err(Errno::ENOTEMPTY),
        }
    }

    pub(super) fn is_removed(&self) -> bool {
        self.0.load(Relaxed) == Population::REMOVED
    }
}

/// A name and what it means.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) name: Arc<[u8]>,
    pub(super) inode: Arc<Inode>,
}

#[derive(Debug)]
pub(super) struct Entries {
    by_name: HashMap<Arc<[u8]>, u64>,
    by_cookie: BTreeMap<u64, Slot>,
    next_cookie: u64,
}

impl Entries {
    pub(super) fn get(&self, name: &[u8]) -> Option<&Arc<Inode>> {
        let cookie = self.by_name.get(name)?;
        self.by_cookie.get(cookie).map(|slot| &slot.inode)
    }

    /// `EEXIST`, `ENOENT` (directory removed) or `ENAMETOOLONG` if `name` cannot be added.
    pub(super) fn check_free(&self, name: &[u8], population: &Population) -> Result<()> {
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if population.is_removed() {
            return Err(Errno::ENOENT);
        }
        if self.by_name.contains_key(name) { Err(Errno::EEXIST) } else { Ok(()) }
    }

    /// Adds an entry. The caller made sure that the name is free.
    pub(super) fn insert(
        &mut self,
        name: &[u8],
        inode: Arc<Inode>,
        population: &Population,
    ) -> Result<()> {
        population.add()?;
        let name: Arc<[u8]> = name.into();
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let before = self.by_name.insert(Arc::clone(&name), cookie);
        debug_assert!(before.is_none(), "inserted a name twice");
        self.by_cookie.insert(cookie, Slot { name, inode });
        Ok(())
    }

    /// Lets `name` mean `inode`, and answers with what it meant before. The name must exist.
    pub(super) fn replace(&mut self, name: &[u8], inode: Arc<Inode>) -> Option<Arc<Inode>> {
        let slot = self.by_cookie.get_mut(self.by_name.get(name)?)?;
        Some(std::mem::replace(&mut slot.inode, inode))
    }

    pub(super) fn remove(&mut self, name: &[u8], population: &Population) -> Option<Arc<Inode>> {
        let cookie = self.by_name.remove(name)?;
        let slot = self.by_cookie.remove(&cookie)?;
        population.sub();
        Some(slot.inode)
    }

    /// Empties the directory of an inode that is being dropped.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Arc<Inode>> + use<> {
        self.by_name.clear();
        std::mem::take(&mut self.by_cookie).into_values().map(|slot| slot.inode)
    }
}
