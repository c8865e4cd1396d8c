//! One mounted file system: the cache in front, the backend behind.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use vfscale_sync::{Held, Id, rcu};

use crate::clock::Now;
use crate::dcache::parallel::{self, Asked, Question, Ttl};
use crate::dcache::{self, Key};
use crate::dentry::DentryRef;
use crate::inode::{InodeRef, Node};
use crate::stats::Stats;
use crate::superblock::{Count, SuperBlock};
use crate::{
    Attr, Context, Entry, Errno, FileSystem, FileType, Place, Reclaim, Result, clock, inode_table,
    name, reclaim,
};

/// How a mount caches.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// At most this many names are cached, as far as they are not in use; 0 means no limit.
    pub max_names: u64,
    /// At most this many bytes of names and inodes, as [`Stats::bytes`] counts them, as far as they are not in use; 0 means no limit.
    pub max_bytes: u64,
    /// At most this many of the names may be known to be absent; 0 means no limit of their own.
    pub max_negative: u64,
    /// At most so many in one directory; one more is not kept if none of the others may go. 0 means no limit.
    pub max_negative_per_dir: u64,
    /// Which unused names go first.
    pub reclaim: Reclaim,
    /// How long a name holds before the backend is asked again. [`Duration::MAX`]: for ever, for a backend that nobody changes behind the
    /// mount's back.
    pub entry_ttl: Duration,
    /// How long attributes hold.
    pub attr_ttl: Duration,
    /// How long the absence of a name holds.
    pub negative_ttl: Duration,
}

impl Default for Options {
    /// A million names, a quarter of them absent, an eighth of them absent in one directory; one second.
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Options {
            max_names: 1_000_000,
            max_bytes: 0,
            max_negative: 250_000,
            max_negative_per_dir: 125_000,
            reclaim: Reclaim::default(),
            entry_ttl: second,
            attr_ttl: second,
            negative_ttl: second,
        }
    }
}

impl Options {
    /// Everything holds until it is changed through this mount.
    #[must_use]
    pub fn exclusive() -> Options {
        let forever = Duration::MAX;
        Options {
            entry_ttl: forever,
            attr_ttl: forever,
            negative_ttl: forever,
            ..Options::default()
        }
    }
}

/// A name that was found, with what it leads to.
#[derive(Clone, Debug)]
pub struct Found {
    /// The name.
    pub dentry: DentryRef,
    /// The object.
    pub inode: InodeRef,
    /// Its attributes.
    pub attr: Attr,
    /// How much longer the name holds without asking again.
    pub valid: Duration,
    /// How much longer the attributes do.
    pub attr_valid: Duration,
}

/// What still is in use when a mount ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// Dentries.
    pub names: u64,
    /// Inodes.
    pub inodes: u64,
    /// Open files.
    pub files: u64,
}

impl std::fmt::Display for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "still in use: {} names, {} inodes, {} files",
            self.names, self.inodes, self.files
        )
    }
}

impl std::error::Error for Busy {}

/// One mounted file system: names, inodes and open files of a backend, cached.
///
/// Operations come in two kinds: on a directory and one component, for front ends ([`lookup`](Vfs::lookup), [`create`](Vfs::create), …), and on paths
/// ([`walk`](Vfs::walk), [`stat`](Vfs::stat), …). All of them may be called from any number of threads.
pub struct Vfs<F: FileSystem> {
    pub(crate) fs: F,
    pub(crate) sb: Id<SuperBlock>,
    root: Option<DentryRef>,
    options: Options,
}

/// The backend's own object behind an inode, as another owner of it.
pub(crate) struct NodeOf<F: FileSystem>(Arc<F::Node>);

impl<F: FileSystem> std::ops::Deref for NodeOf<F> {
    type Target = F::Node;

    fn deref(&self) -> &F::Node {
        &self.0
    }
}

/// What the cache has to say of a name.
enum Cached {
    /// It is absent.
    Absent,
    /// It is there, with good attributes.
    Whole(Found),
    /// It is there; the attributes are stale.
    Name(DentryRef),
    /// Nothing that is good.
    Unknown,
}

/// A name to ask the backend for.
struct NameIn<'a, F: FileSystem> {
    vfs: &'a Vfs<F>,
    cx: &'a Context,
    dir: &'a F::Node,
    name: &'a [u8],
}

impl<F: FileSystem> Question for NameIn<'_, F> {
    fn ask(&self) -> Result<Asked> {
        self.vfs.ask(self.cx, self.dir, self.name)
    }

    fn found_again(&self, known: &InodeRef, again: &Node) {
        self.vfs.found_again(known, again);
    }
}

impl<F: FileSystem> Vfs<F> {
    /// Mounts a backend.
    ///
    /// # Errors
    /// What the backend's [`root`](FileSystem::root) answers; `ENOTDIR` if that is no directory; `ENFILE` if there are too many mounts.
    pub fn new(fs: F, options: Options) -> Result<Vfs<F>> {
        let Entry { key, attr, node } = fs.root()?;
        if attr.kind != FileType::Directory {
            return Err(Errno::ENOTDIR);
        }
        vfscale_sync::fence::prepare();
        let sb = SuperBlock::create(&options).ok_or(Errno::ENFILE)?;
        let until = clock::until(options.attr_ttl);
        let root = inode_table::get_or_create(sb, key, &attr, Arc::new(node), until)
            .and_then(|(inode, _)| dcache::make_root(sb, inode));
        match root {
            Ok(root) => Ok(Vfs { fs, sb, root: Some(root), options }),
            Err(error) => {
                SuperBlock::destroy(sb);
                Err(error)
            }
        }
    }

    /// The backend.
    pub fn fs(&self) -> &F {
        &self.fs
    }

    /// How it caches.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The root directory.
    ///
    /// # Panics
    /// Never: a mount has a root until it ends.
    pub fn root(&self) -> DentryRef {
        self.root_ref().clone()
    }

    /// The root directory, with no reference taken.
    pub(crate) fn root_ref(&self) -> &DentryRef {
        self.root.as_ref().expect("a mount has a root until it ends")
    }

    /// The numbers of this mount now.
    pub fn stats(&self) -> Stats {
        Stats::of(self.superblock())
    }

    /// Frees up to `n` unused names, those that are known to be absent first, and answers how many it freed.
    ///
    /// Lookups go on meanwhile; it holds no lock for more than a few hundred names at a time.
    pub fn shrink(&self, n: u64) -> u64 {
        reclaim::shrink(self.superblock(), n)
    }

    /// Frees every unused name, and waits until the memory is free.
    pub fn shrink_all(&self) -> u64 {
        let mut freed = 0;
        loop {
            let now = self.shrink(u64::MAX);
            freed += now;
            if now == 0 {
                drain();
                return freed;
            }
        }
    }

    /// Ends the mount: frees all names, and reports what is still in use.
    ///
    /// # Errors
    /// [`Busy`] if somebody still holds names, inodes or files; those stay valid, and their memory is not used again.
    pub fn unmount(mut self) -> Result<(), Busy> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Busy> {
        let Some(root) = self.root.take() else { return Ok(()) };
        // It is in no chain, where the clock would find it: it goes with its last reference.
        dcache::unhash(&root);
        drop(root);
        crate::file::close_pending();
        self.shrink_all();
        let sb = self.superblock();
        let (names, inodes, files) = (sb.names().now(), sb.inode_count().now(), sb.files().now());
        if (names, inodes, files) != (0, 0, 0) {
            return Err(Busy { names, inodes, files });
        }
        SuperBlock::destroy(self.sb);
        drain();
        Ok(())
    }

    pub(crate) fn superblock(&self) -> &'static SuperBlock {
        SuperBlock::of(Some(self.sb))
    }

    /// Whether any name grows stale.
    pub(crate) fn names_age(&self) -> bool {
        (self.options.entry_ttl, self.options.negative_ttl) != (Duration::MAX, Duration::MAX)
    }

    pub(crate) fn ttl(&self) -> Ttl {
        Ttl {
            entry: self.options.entry_ttl,
            attr: self.options.attr_ttl,
            negative: self.options.negative_ttl,
        }
    }

    /// The backend's object behind `inode`.
    ///
    /// # Errors
    /// `EXDEV` if the inode is another mount's.
    pub(crate) fn node(&self, inode: &InodeRef) -> Result<NodeOf<F>> {
        if inode.0.sb_id() != Some(self.sb) {
            return Err(Errno::EXDEV);
        }
        let node: Node = inode.0.node(&rcu::pin()).ok_or(Errno::ESTALE)?;
        Arc::downcast(node).map(NodeOf).map_err(|_: Arc<dyn Any + Send + Sync>| Errno::EXDEV)
    }

    /// The inode of a directory.
    ///
    /// # Errors
    /// `ENOTDIR` if it is none, `ENOENT` if it is negative.
    pub(crate) fn dir_inode(&self, dir: &DentryRef) -> Result<InodeRef> {
        let inode = dir.inode().ok_or(Errno::ENOENT)?;
        if inode.kind() == FileType::Directory { Ok(inode) } else { Err(Errno::ENOTDIR) }
    }

    /// Finds `name` in `dir`.
    ///
    /// # Errors
    /// `ENOENT` if there is no such name, which may be known without asking; `ENOTDIR`, `ENAMETOOLONG`, `EINVAL` (a `/` or NUL in the name); what the
    /// backend answers.
    pub fn lookup(&self, cx: &Context, dir: &DentryRef, name: &[u8]) -> Result<Found> {
        name::check(name)?;
        match name {
            b"." => self.found(dir.clone()),
            b".." => self.found(self.parent(dir)),
            _ => self.lookup_key(cx, dir, Key::new(self.superblock(), dir.id(), name)),
        }
    }

    /// Finds a component that is neither `.` nor `..`.
    pub(crate) fn lookup_key(&self, cx: &Context, dir: &DentryRef, key: Key<'_>) -> Result<Found> {
        let dentry = match self.cached(key) {
            Cached::Absent => return Err(Errno::ENOENT),
            Cached::Whole(found) => return Ok(found),
            Cached::Name(dentry) => dentry,
            Cached::Unknown => self.ask_dentry(cx, dir, key.name)?,
        };
        match self.found(dentry.clone()) {
            // Gone on the host while its name was believed: ask for the name once more.
            Err(Errno::ESTALE) => {
                dcache::unhash(&dentry);
                self.found(self.lookup_dentry(cx, dir, key)?)
            }
            found => found,
        }
    }

    /// What the cache knows of a name. For an absent one, and most lookups that miss end so, without a store to shared memory.
    fn cached(&self, key: Key<'_>) -> Cached {
        let now = Now::default();
        let superblock = self.superblock();
        let guard = rcu::pin();
        loop {
            let Some(hit) = dcache::find(key, &guard) else { return Cached::Unknown };
            let inode = hit.dentry.inode_id();
            let until = hit.dentry.valid_until();
            if !now.is_before(until) {
                return Cached::Unknown;
            }
            let Some(inode) = inode else {
                if hit.changed() {
                    continue;
                }
                hit.dentry.touch();
                superblock.bump(Count::LookupRcu);
                superblock.bump(Count::NegativeHit);
                return Cached::Absent;
            };
            // It changed under our hands: look again. Each turn means that somebody else got on.
            let Some(dentry) = hit.legitimize(&guard) else { continue };
            let Some(inode) = Held::try_get(inode, &guard).map(InodeRef) else { continue };
            superblock.bump(Count::LookupRef);
            return match inode.0.cached_attr_until(&now) {
                Some((attr, attr_until)) => {
                    let (valid, attr_valid) = (now.remaining(until), now.remaining(attr_until));
                    Cached::Whole(Found { dentry, inode, attr, valid, attr_valid })
                }
                None => Cached::Name(dentry),
            };
        }
    }

    /// The directory that `dir` is in; the root's is the root.
    pub fn parent(&self, dir: &DentryRef) -> DentryRef {
        dir.parent().unwrap_or_else(|| dir.clone())
    }

    /// How much longer `name` is known to be absent from `dir`; nothing if it is not.
    pub fn absent_for(&self, dir: &DentryRef, name: &[u8]) -> Duration {
        let guard = rcu::pin();
        dcache::find(Key::new(self.superblock(), dir.id(), name), &guard)
            .filter(|hit| hit.dentry.kind().is_none())
            .map(|hit| (hit.dentry.valid_until(), hit))
            .filter(|(_, hit)| !hit.changed())
            .map_or(Duration::ZERO, |(until, _)| Now::default().remaining(until))
    }

    /// The dentry of a name, positive or negative.
    pub(crate) fn lookup_dentry(
        &self,
        cx: &Context,
        dir: &DentryRef,
        key: Key<'_>,
    ) -> Result<DentryRef> {
        let cached = dcache::get(key, &rcu::pin());
        if let Some(dentry) = cached.filter(|dentry| dentry.0.is_valid(&Now::default())) {
            self.superblock().bump(Count::LookupRef);
            return Ok(dentry);
        }
        self.ask_dentry(cx, dir, key.name)
    }

    /// The dentry of a name that the cache does not answer for.
    fn ask_dentry(&self, cx: &Context, dir: &DentryRef, name: &[u8]) -> Result<DentryRef> {
        let dir_inode = self.dir_inode(dir)?;
        let node = self.node(&dir_inode)?;
        let question = NameIn { vfs: self, cx, dir: &*node, name };
        parallel::lookup(self.sb, self.ttl(), dir, name, &question)
    }

    /// Asks the backend for a name.
    pub(crate) fn ask(&self, cx: &Context, dir: &F::Node, name: &[u8]) -> Result<Asked> {
        let Entry { key, attr, node } = self.fs.lookup(cx, Place { dir, name })?;
        Ok(Asked { key, attr, node: Arc::new(node) })
    }

    /// Lets the backend learn from a node that it made for an inode which has one.
    pub(crate) fn found_again(&self, known: &InodeRef, again: &Node) {
        if let (Ok(known), Some(again)) = (self.node(known), again.downcast_ref()) {
            self.fs.found_again(&known, again);
        }
    }

    /// What a dentry leads to.
    pub(crate) fn found(&self, dentry: DentryRef) -> Result<Found> {
        let Some(inode) = dentry.inode() else {
            self.superblock().bump(Count::NegativeHit);
            return Err(Errno::ENOENT);
        };
        let now = Now::default();
        let (attr, attr_until) = match inode.0.cached_attr_until(&now) {
            Some(cached) => cached,
            None => (self.getattr(&inode, None)?, clock::until(self.options.attr_ttl)),
        };
        let valid = now.remaining(dentry.0.valid_until());
        let attr_valid = now.remaining(attr_until);
        Ok(Found { dentry, inode, attr, valid, attr_valid })
    }
}

/// Waits until what was freed is free. A caller that holds an RCU guard of its own, or is in a deferred call, cannot; it is freed
/// soon after.
fn drain() {
    if rcu::may_wait() {
        rcu::barrier();
    }
}

impl<F: FileSystem> Drop for Vfs<F> {
    fn drop(&mut self) {
        // What is in use stays valid, and so does its superblock: nothing to do about it here.
        let _ = self.end();
    }
}

impl<F: FileSystem> std::fmt::Debug for Vfs<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vfs").field("options", &self.options).finish_non_exhaustive()
    }
}
