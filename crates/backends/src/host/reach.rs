//! From an object to a descriptor, and from a name to an object.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::path::DecInt;
use vfscale::{Entry, Errno, Place, Result};

use super::node::{DEPTH_MAX, Location, Object, Way};
use super::stat::{Identity, number_and_kind};
use super::sys::open_by_handle;
use super::{HostFs, Node, retry};

const PLACE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A name as the trait promises it. What would leave the directory is refused here too, since
/// staying inside rests on it.
pub(super) fn single(name: &[u8]) -> Result<&[u8]> {
    match name {
        b"" | b"." | b".." => Err(Errno::EINVAL),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Errno::EINVAL),
        _ => Ok(name),
    }
}

impl HostFs {
    /// An `O_PATH` descriptor of the object: a kept one, or a new one that is kept from now on.
    pub(super) fn place(&self, object: &Arc<Object>) -> Result<Arc<OwnedFd>> {
        match self.at_hand(object) {
            Some(fd) => Ok(fd),
            None => self.place_slow(object),
        }
    }

    fn at_hand(&self, object: &Object) -> Option<Arc<OwnedFd>> {
        match &object.way {
            Way::Root(fd) => Some(Arc::clone(fd)),
            Way::Handle(_) | Way::Name(_) => object.fds.kept(),
        }
    }

    #[cold]
    fn place_slow(&self, object: &Arc<Object>) -> Result<Arc<OwnedFd>> {
        // An opening is the surest way: it leads there though all names are gone.
        if let Some(opening) = object.fds.opening() {
            let fd = self.with_room(|| self.reopen(&*opening, OFlags::PATH))?;
            return Ok(self.keep(object, fd));
        }
        match &object.way {
            Way::Handle(handle) => {
                let mount = self.mount.as_ref().ok_or(Errno::ESTALE)?;
                let fd = self.with_room(|| open_by_handle(mount, handle))?;
                // Some file systems give one handle to two objects after each other.
                if number_and_kind(&fd)? != (object.key.ino, Some(object.kind)) {
                    return Err(Errno::ESTALE);
                }
                Ok(self.keep(object, fd))
            }
            Way::Name(_) => self.walk_to(object),
            Way::Root(fd) => Ok(Arc::clone(fd)),
        }
    }

    /// By one of its names.
    fn walk_to(&self, object: &Arc<Object>) -> Result<Arc<OwnedFd>> {
        let mut answer = Err(Errno::ESTALE);
        for location in object.locations() {
            answer = self.walk_by(object, location);
            if answer.is_ok() {
                break;
            }
        }
        answer
    }

    /// Goes up to the first directory that is at hand, open, or needs no name, then down again,
    /// checking each step.
    fn walk_by(&self, object: &Arc<Object>, last: Location) -> Result<Arc<OwnedFd>> {
        let mut down = vec![(Arc::clone(object), last.name)];
        let mut at = last.parent;
        let mut fd = loop {
            if let Some(fd) = self.at_hand(&at).or_else(|| at.fds.opening()) {
                break fd;
            }
            if matches!(at.way, Way::Handle(_)) {
                break self.place(&at)?;
            }
            let location = at.location().filter(|_| down.len() < DEPTH_MAX).ok_or(Errno::ESTALE)?;
            down.push((at, location.name));
            at = location.parent;
        };
        while let Some((object, name)) = down.pop() {
            let step = match self.open_name(&fd, &name) {
                Err(Errno::ENOENT | Errno::ENOTDIR) => Err(Errno::ESTALE),
                other => other,
            }?;
            let found = self.home.identify(&step)?;
            if (found.key, found.attr.kind) != (object.key, object.kind) {
                return Err(Errno::ESTALE);
            }
            fd = self.keep(&object, step);
        }
        Ok(fd)
    }

    fn keep(&self, object: &Arc<Object>, fd: OwnedFd) -> Arc<OwnedFd> {
        let fd = Arc::new(fd);
        self.cache.keep(object, &fd);
        fd
    }

    /// One step down, to whatever the name means, as a place only.
    pub(super) fn open_name(&self, dir: impl AsFd, name: &[u8]) -> Result<OwnedFd> {
        let name = single(name)?;
        self.with_room(|| retry(|| rustix::fs::openat(&dir, name, PLACE, Mode::empty())))
    }

    /// Opens anew what a descriptor leads to, through its link in `/proc`. The caller made sure
    /// that opening it waits for nobody.
    pub(super) fn reopen(&self, fd: impl AsFd, flags: OFlags) -> Result<OwnedFd> {
        let link = DecInt::from_fd(fd);
        let flags = flags | OFlags::CLOEXEC;
        retry(|| rustix::fs::openat(&self.proc_fds, link.as_c_str(), flags, Mode::empty()))
    }

    /// Does something that needs a new descriptor. If the process has none left, kept ones make
    /// room, and it tries again.
    pub(super) fn with_room<T>(&self, attempt: impl Fn() -> Result<T>) -> Result<T> {
        loop {
            match attempt() {
                Err(Errno::EMFILE | Errno::ENFILE) if self.cache.relieve() > 0 => {}
                answer => return answer,
            }
        }
    }

    pub(super) fn find(&self, at: Place<'_, Node>) -> Result<Entry<Node>> {
        let fd = self.open_name(self.place(&at.dir.0)?, at.name)?;
        let (entry, object) = self.entry(self.home.identify(&fd)?, at);
        self.keep(&object, fd);
        Ok(entry)
    }

    /// The object that was found under a name.
    pub(super) fn entry(
        &self,
        identity: Identity,
        at: Place<'_, Node>,
    ) -> (Entry<Node>, Arc<Object>) {
        let Identity { key, attr, handle, at_home } = identity;
        // Another mount may be read-only or differ otherwise: its handles would open here, on ours.
        let way = match handle.filter(|_| at_home && self.mount.is_some()) {
            Some(handle) => Way::Handle(handle),
            None => Way::by_name(&at.dir.0, at.name),
        };
        let object = Arc::new(Object::new(key, attr.kind, way));
        (Entry { key, attr, node: Node(Arc::clone(&object)) }, object)
    }

    /// The core knows the object and has accepted its new place.
    pub(super) fn learn(&self, known: &Arc<Object>, again: &Object) {
        if let Some(Location { parent, name }) = again.location() {
            known.moved_to(&self.moves, &parent, &name);
        }
        if let Some(fd) = known.fds.take_over(&again.fds) {
            self.cache.keep(known, &fd);
        }
    }

    /// The path of a descriptor for calls that take nothing else.
    pub(super) fn proc_path(fd: impl AsFd) -> String {
        format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
    }
}
