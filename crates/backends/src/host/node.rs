//! What the core holds of an object of the host, and how it is reached again.
//!
//! # Ways back
//! | way | when | survives |
//! |---|---|---|
//! | [`Way::Root`] | the root | everything: its descriptor is never given up |
//! | [`Way::Handle`] | on the root's mount, if file handles can be opened | renames by anybody, loss of the name |
//! | [`Way::Name`] | otherwise | renames through this file system |
//!
//! An object that is open can always be reached through its opening, whatever became of its names.
//!
//! A name is a hint: whoever walks it compares what it found with the key, and answers `ESTALE` if
//! it is another object. The parents of named objects are counted, so a way up exists as long as
//! the object; [`Known`] finds the object again when a lookup comes by under a new name.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Weak};

use vfscale::{FileType, InodeKey};

use super::fd_cache::Descriptors;
use super::sys::FileHandle;
use crate::locks::lock;

/// An object of the host. The core holds it through [`super::Node`].
#[derive(Debug)]
pub(super) struct Object {
    pub(super) key: InodeKey,
    pub(super) kind: FileType,
    pub(super) way: Way,
    pub(super) fds: Descriptors,
}

#[derive(Debug)]
pub(super) enum Way {
    Root(Arc<OwnedFd>),
    Handle(FileHandle),
    /// Boxed, so that the common way stays small.
    Name(Box<Named>),
}

/// The way by name, with its registration in [`Known`].
#[derive(Debug)]
pub(super) struct Named {
    location: Mutex<Option<Location>>,
    known: Arc<Known>,
}

/// A name in a directory.
#[derive(Clone, Debug)]
pub(super) struct Location {
    pub(super) parent: Arc<Object>,
    pub(super) name: Arc<[u8]>,
}

impl Location {
    fn is(&self, parent: &Arc<Object>, name: &[u8]) -> bool {
        Arc::ptr_eq(&self.parent, parent) && *self.name == *name
    }
}

impl Object {
    pub(super) fn new(key: InodeKey, kind: FileType, way: Way) -> Object {
        Object { key, kind, way, fds: Descriptors::default() }
    }

    /// Where it was seen last, if it is reached by name and has one.
    pub(super) fn location(&self) -> Option<Location> {
        match &self.way {
            Way::Name(named) => lock(&named.location).clone(),
            Way::Root(_) | Way::Handle(_) => None,
        }
    }

    /// It was seen, or put, under this name. Does nothing for an object that needs no name.
    pub(super) fn moved_to(self: &Arc<Object>, parent: &Arc<Object>, name: &[u8]) {
        let Way::Name(named) = &self.way else { return };
        if self.kind == FileType::Directory {
            break_ring(self, parent);
        }
        let new = Location { parent: Arc::clone(parent), name: name.into() };
        let old = lock(&named.location).replace(new);
        drop(old);
    }

    /// This name is gone. Another one that it was seen under since stays.
    pub(super) fn lost(&self, parent: &Arc<Object>, name: &[u8]) {
        let Way::Name(named) = &self.way else { return };
        let old = lock(&named.location).take_if(|location| location.is(parent, name));
        drop(old);
    }

    fn forget_location(&self) {
        if let Way::Name(named) = &self.way {
            let old = lock(&named.location).take();
            drop(old);
        }
    }
}

/// `object` was found below `parent`. If the way up from `parent` leads through `object`, somebody
/// else moved directories since we last looked, and one step of that way is out of date: without it
/// there is no ring of counts that nobody could free.
fn break_ring(object: &Arc<Object>, parent: &Arc<Object>) {
    let mut at = Arc::clone(parent);
    while let Some(location) = at.location() {
        if Arc::ptr_eq(&location.parent, object) {
            at.forget_location();
            return;
        }
        at = location.parent;
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let Way::Name(named) = &mut self.way else { return };
        named.known.forget(self.key);
        // Parents that only we held go one after the other: a path may be deeper than the stack.
        let mut above = take_location(named);
        while let Some(location) = above {
            let Some(mut parent) = Arc::into_inner(location.parent) else { return };
            above = match &mut parent.way {
                Way::Name(named) => take_location(named),
                Way::Root(_) | Way::Handle(_) => None,
            };
        }
    }
}

fn take_location(named: &mut Named) -> Option<Location> {
    named.location.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).take()
}

// One of these lies behind every name that a core keeps in memory.
const _: () = assert!(size_of::<Object>() <= 96);

const KNOWN_SHARDS: usize = 16;

/// Every living object that is reached by name, by its key. So an object that the core knows learns
/// of each new name that a lookup finds it under, though the core drops what that lookup returns.
#[derive(Debug)]
pub(super) struct Known {
    shards: [Mutex<HashMap<InodeKey, Weak<Object>>>; KNOWN_SHARDS],
    hasher: RandomState,
}

impl Known {
    pub(super) fn new() -> Known {
        Known { shards: Default::default(), hasher: RandomState::new() }
    }

    fn shard(&self, key: InodeKey) -> &Mutex<HashMap<InodeKey, Weak<Object>>> {
        &self.shards[self.hasher.hash_one(key) as usize % KNOWN_SHARDS]
    }

    /// The object with this key, new if none lives, under this name from now on.
    pub(super) fn get(
        self: &Arc<Known>,
        key: InodeKey,
        kind: FileType,
        parent: &Arc<Object>,
        name: &[u8],
    ) -> Arc<Object> {
        // Outlives the lock: dropping the last count of an object takes it again.
        let living;
        let found = {
            let mut shard = lock(self.shard(key));
            living = shard.get(&key).and_then(Weak::upgrade);
            match &living {
                Some(object) if object.kind == kind => Arc::clone(object),
                // The key was used again, by a file system that has nothing better to tell two
                // inodes apart.
                _ => {
                    let named = Named { location: Mutex::new(None), known: Arc::clone(self) };
                    let way = Way::Name(Box::new(named));
                    let object = Arc::new(Object::new(key, kind, way));
                    shard.insert(key, Arc::downgrade(&object));
                    object
                }
            }
        };
        found.moved_to(parent, name);
        found
    }

    /// Called by an object that is being dropped; a newer one with the same key stays.
    fn forget(&self, key: InodeKey) {
        let mut shard = lock(self.shard(key));
        if shard.get(&key).is_some_and(|object| object.strong_count() == 0) {
            shard.remove(&key);
        }
    }
}
