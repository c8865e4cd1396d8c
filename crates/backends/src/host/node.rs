//! What the core holds of an object of the host, and how it is reached again.
//!
//! # Ways back
//! | way | when | survives |
//! |---|---|---|
//! | [`Way::Root`] | the root | everything: its descriptor is never given up |
//! | [`Way::Handle`] | on the root's mount, if file handles can be opened | renames by anybody, loss of the name |
//! | [`Way::Name`] | otherwise | renames through this file system |
//!
//! An object that is open can always be reached through its opening, whatever became of its names;
//! and so can what lies below it.
//!
//! A name is a hint: whoever walks it compares what it found with the key, and answers `ESTALE` if
//! it is another object. The parents of named objects are counted, so a way up exists as long as
//! the object. A lookup makes a new object, with the name that it was found by. If the core knows
//! it under another, and accepts the new place, then the known one takes the name over
//! ([`Object::moved_to`]). What has one name at a time, a directory, keeps that; other objects keep
//! the last two, so that one of them may go.
//!
//! # No rings
//! Objects count their parents, so a ring of them would never be freed. A new object has nothing
//! below it. Of known ones only directories can come to lie below themselves, when somebody moves
//! directories behind our back: these take their places one at a time, and who finds itself above
//! its new parent first breaks the way that leads there.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use vfscale::{FileType, InodeKey};

use super::fd_cache::Descriptors;
use super::sys::FileHandle;
use crate::locks::lock;

/// An object by name deeper than this has a ring above it, or is past any path.
pub(super) const DEPTH_MAX: usize = 4096;

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
    Name(Box<Mutex<Names>>),
}

/// Where an object was seen, the latest first. A directory uses the first place alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Names([Option<Location>; 2]);

/// A name in a directory.
#[derive(Clone, Debug)]
pub(super) struct Location {
    pub(super) parent: Arc<Object>,
    pub(super) name: Arc<[u8]>,
}

/// Held while a known directory takes a place.
#[derive(Debug, Default)]
pub(super) struct Moves(Mutex<()>);

impl Way {
    pub(super) fn by_name(parent: &Arc<Object>, name: &[u8]) -> Way {
        Way::Name(Box::new(Mutex::new(Names([Some(Location::new(parent, name)), None]))))
    }
}

impl Location {
    fn new(parent: &Arc<Object>, name: &[u8]) -> Location {
        Location { parent: Arc::clone(parent), name: name.into() }
    }

    fn is(&self, parent: &Arc<Object>, name: &[u8]) -> bool {
        Arc::ptr_eq(&self.parent, parent) && *self.name == *name
    }
}

impl Names {
    /// The latest place is this one. Answers with one that there is no room for any more.
    #[must_use = "dropped when no lock is held: the last count of a directory may go with it"]
    fn put(&mut self, kind: FileType, new: Location) -> Option<Location> {
        let Names([first, second]) = self;
        if first.as_ref().is_some_and(|location| location.is(&new.parent, &new.name)) {
            return Some(new);
        }
        let before = first.replace(new);
        if kind == FileType::Directory || before.is_none() {
            return before;
        }
        std::mem::replace(second, before)
    }

    #[must_use = "as for `put`"]
    fn take(&mut self, parent: &Arc<Object>, name: &[u8]) -> [Option<Location>; 2] {
        let Names([first, second]) = self;
        let is = |location: &mut Location| location.is(parent, name);
        let taken = [first.take_if(is), second.take_if(is)];
        if first.is_none() {
            *first = second.take();
        }
        taken
    }
}

impl Object {
    pub(super) fn new(key: InodeKey, kind: FileType, way: Way) -> Object {
        Object { key, kind, way, fds: Descriptors::default() }
    }

    fn names(&self) -> Option<&Mutex<Names>> {
        match &self.way {
            Way::Name(names) => Some(names),
            Way::Root(_) | Way::Handle(_) => None,
        }
    }

    /// Where it was seen, the latest first, if it is reached by name.
    pub(super) fn locations(&self) -> impl Iterator<Item = Location> + use<> {
        let Names(locations) = self.names().map(|names| lock(names).clone()).unwrap_or_default();
        locations.into_iter().flatten()
    }

    /// Where it was seen last.
    pub(super) fn location(&self) -> Option<Location> {
        lock(self.names()?).0[0].clone()
    }

    /// It was seen, or put, under this name. Does nothing for an object that needs no name.
    pub(super) fn moved_to(self: &Arc<Object>, moves: &Moves, parent: &Arc<Object>, name: &[u8]) {
        let Some(names) = self.names() else { return };
        let old = if self.kind == FileType::Directory {
            if self.location().is_some_and(|location| location.is(parent, name)) {
                return;
            }
            // Check and change together: two moves, each right, would make a ring.
            let _one = lock(&moves.0);
            if break_ring(self, parent).is_err() {
                return;
            }
            lock(names).put(self.kind, Location::new(parent, name))
        } else {
            lock(names).put(self.kind, Location::new(parent, name))
        };
        drop(old);
    }

    /// This name is gone. Another one that it was seen under stays.
    pub(super) fn lost(&self, parent: &Arc<Object>, name: &[u8]) {
        let Some(names) = self.names() else { return };
        let old = lock(names).take(parent, name);
        drop(old);
    }

    fn forget_names(&self) {
        let Some(names) = self.names() else { return };
        let old = std::mem::take(&mut *lock(names));
        drop(old);
    }
}

/// No place that this directory could take without a ring.
struct BelowItself;

/// `object` is to lie below `parent`. If the way up from `parent` leads through `object`, somebody
/// else moved directories since we last looked, and one step of that way is out of date: it is
/// forgotten. The caller holds [`Moves`].
fn break_ring(object: &Arc<Object>, parent: &Arc<Object>) -> Result<(), BelowItself> {
    if Arc::ptr_eq(object, parent) {
        return Err(BelowItself);
    }
    let mut at = Arc::clone(parent);
    for _ in 0..DEPTH_MAX {
        let Some(location) = at.location() else { return Ok(()) };
        if Arc::ptr_eq(&location.parent, object) {
            at.forget_names();
            return Ok(());
        }
        at = location.parent;
    }
    Err(BelowItself)
}

impl Drop for Object {
    fn drop(&mut self) {
        for mut above in take_names(self) {
            // Parents that only we held go one after the other: a path may be deeper than the
            // stack.
            while let Some(location) = above {
                let Some(mut parent) = Arc::into_inner(location.parent) else { break };
                // A directory has no second one.
                [above, _] = take_names(&mut parent);
            }
        }
    }
}

fn take_names(object: &mut Object) -> [Option<Location>; 2] {
    let Way::Name(names) = &mut object.way else { return [None, None] };
    let names = names.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
    std::mem::take(&mut names.0)
}

// One of these lies behind every name that a core keeps in memory.
const _: () = assert!(size_of::<Object>() <= 96);
