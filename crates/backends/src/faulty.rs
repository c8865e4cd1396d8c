//! A backend that goes wrong on request: what a server does when its disk, its network or its store misbehaves.
//!
//! It wraps another one and passes every call on, until a [`Rule`] says otherwise: from a given number of matching calls on, so many
//! times, a call is late, fails, does less than asked, or answers with what held long ago. Without rules it is the backend that it wraps.
//!
//! ```
//! use std::time::Duration;
//! use vfscale::{Context, Errno, Options, Vfs};
//! use vfscale_backends::{Call, Fault, Faulty, MemFs, Rule};
//!
//! let vfs = Vfs::new(Faulty::new(MemFs::new()), Options::exclusive())?;
//! // The second lookup and the one after it fail, each 1 ms late.
//! vfs.fs().add(Rule::new(Fault::Delay(Duration::from_millis(1))).on(Call::Lookup));
//! vfs.fs().add(Rule::new(Fault::Fail(Errno::EIO)).on(Call::Lookup).from(1).times(2));
//! let stat = |name| vfs.stat(&Context::root(), name).unwrap_err();
//! assert_eq!([stat(b"/a"), stat(b"/b"), stat(b"/c"), stat(b"/d")], [
//!     Errno::ENOENT, Errno::EIO, Errno::EIO, Errno::ENOENT
//! ]);
//! # Ok::<(), Errno>(())
//! ```

use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use vfscale::sync::QRwLock;
use vfscale::{
    Attr, Context, DirEntry, Entry, Errno, FileSystem, OpenFlags, Place, RenameFlags, Result,
    SeekFor, SetAttr, SetXattr, StatFs,
};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call takes this much longer. Further rules see it, too.
    Delay(Duration),
    /// It fails, and the wrapped backend is not asked.
    Fail(Errno),
    /// A read or write does half of what was asked, at least one byte; a listing ends after one entry. Others do as they should.
    Short,
    /// The answer is one from before: no such name for a lookup, for `getattr` the attributes as they were when this node was made.
    /// Others answer `ESTALE`.
    Stale,
}

/// Which calls of [`FileSystem`] a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// [`FileSystem::lookup`]
    Lookup,
    /// [`FileSystem::getattr`]
    Getattr,
    /// [`FileSystem::setattr`]
    Setattr,
    /// `mknod`, `mkdir`, `symlink`, `link`, `create`
    Make,
    /// `unlink`, `rmdir`
    Remove,
    /// [`FileSystem::rename`]
    Rename,
    /// [`FileSystem::open`]
    Open,
    /// `read`, `readlink`
    Read,
    /// `write`, `fallocate`, `copy_range`
    Write,
    /// `flush`, `fsync`
    Sync,
    /// [`FileSystem::readdir`]
    Readdir,
    /// `statfs`, `seek` and those of extended attributes
    Other,
}

/// When something goes wrong, and what.
#[derive(Clone, Copy, Debug)]
#[must_use = "it does nothing until it is added"]
pub struct Rule {
    fault: Fault,
    call: Option<Call>,
    from: u64,
    times: u64,
    /// Matching calls so far.
    seen: u64,
}

impl Rule {
    /// On every call, from the first on, for ever.
    pub fn new(fault: Fault) -> Rule {
        Rule { fault, call: None, from: 0, times: u64::MAX, seen: 0 }
    }

    /// On calls of this kind alone.
    pub fn on(self, call: Call) -> Rule {
        Rule { call: Some(call), ..self }
    }

    /// Only once so many matching calls have gone well.
    pub fn from(self, calls: u64) -> Rule {
        Rule { from: calls, ..self }
    }

    /// So often, then never again.
    pub fn times(self, times: u64) -> Rule {
        Rule { times, ..self }
    }

    /// Does it strike at this call?
    fn strikes(&mut self, call: Call) -> Option<Fault> {
        if self.call.is_some_and(|only| only != call) {
            return None;
        }
        let number = self.seen;
        self.seen += 1;
        (number >= self.from && number - self.from < self.times).then_some(self.fault)
    }
}

/// A backend that goes wrong by rules. See the [module](self).
#[derive(Debug)]
pub struct Faulty<F> {
    inner: F,
    rules: QRwLock<Vec<Rule>>,
    struck: AtomicU64,
}

/// A node of the wrapped backend, with what was first told of it.
#[derive(Debug)]
pub struct FaultyNode<N> {
    node: N,
    first: Attr,
}

/// How a call goes that does not fail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Well,
    Short,
    Stale,
}

fn wrap<N>(Entry { key, attr, node }: Entry<N>) -> Entry<FaultyNode<N>> {
    Entry { key, attr, node: FaultyNode { node, first: attr } }
}

fn inside<'a, N>(at: Place<'a, FaultyNode<N>>) -> Place<'a, N> {
    Place { dir: &at.dir.node, name: at.name }
}

/// Half of it, but something.
fn half(len: usize) -> usize {
    len.div_ceil(2)
}

impl<F> Faulty<F> {
    /// Wraps `inner`, without rules.
    pub fn new(inner: F) -> Faulty<F> {
        Faulty { inner, rules: QRwLock::new(Vec::new()), struck: AtomicU64::new(0) }
    }

    /// The wrapped backend.
    pub fn inner(&self) -> &F {
        &self.inner
    }

    /// One more rule; it counts calls from now on. Each call meets the rules in the order in which they were added: it takes every delay,
    /// and then the first other fault.
    pub fn add(&self, rule: Rule) {
        self.rules.write().push(rule);
    }

    /// All goes well from now on.
    pub fn clear(&self) {
        self.rules.write().clear();
    }

    /// How many calls had a fault so far. A late call is counted before it waits.
    pub fn struck(&self) -> u64 {
        self.struck.load(Relaxed)
    }

    /// What becomes of this call. Late calls are late here, with no lock held.
    fn begin(&self, call: Call) -> Result<How> {
        if self.rules.read().is_empty() {
            return Ok(How::Well);
        }
        let (mut late, mut fault) = (Duration::ZERO, None);
        for rule in self.rules.write().iter_mut() {
            match rule.strikes(call) {
                Some(Fault::Delay(time)) => late += time,
                struck => fault = fault.or(struck),
            }
        }
        if !late.is_zero() || fault.is_some() {
            // Relaxed: only a statistic.
            self.struck.fetch_add(1, Relaxed);
        }
        if !late.is_zero() {
            std::thread::sleep(late);
        }
        match fault {
            Some(Fault::Fail(error)) => Err(error),
            Some(Fault::Short) => Ok(How::Short),
            Some(Fault::Stale) => Ok(How::Stale),
            Some(Fault::Delay(_)) | None => Ok(How::Well),
        }
    }

    /// The same for calls that have no answer from before.
    fn begin_or_stale(&self, call: Call) -> Result<How> {
        match self.begin(call)? {
            How::Stale => Err(Errno::ESTALE),
            how => Ok(how),
        }
    }
}

impl<F: FileSystem> FileSystem for Faulty<F> {
    type Node = FaultyNode<F::Node>;
    type Handle = F::Handle;

    fn root(&self) -> Result<Entry<Self::Node>> {
        self.inner.root().map(wrap)
    }

    fn lookup(&self, cx: &Context, at: Place<'_, Self::Node>) -> Result<Entry<Self::Node>> {
        match self.begin(Call::Lookup)? {
            How::Stale => Err(Errno::ENOENT),
            _ => self.inner.lookup(cx, inside(at)).map(wrap),
        }
    }

    fn found_again(&self, known: &Self::Node, again: &Self::Node) {
        self.inner.found_again(&known.node, &again.node);
    }

    fn getattr(&self, node: &Self::Node, handle: Option<&F::Handle>) -> Result<Attr> {
        match self.begin(Call::Getattr)? {
            How::Stale => Ok(node.first),
            _ => self.inner.getattr(&node.node, handle),
        }
    }

    fn setattr(
        &self,
        cx: &Context,
        node: &Self::Node,
        handle: Option<&F::Handle>,
        change: &SetAttr,
    ) -> Result<Attr> {
        self.begin_or_stale(Call::Setattr)?;
        self.inner.setattr(cx, &node.node, handle, change)
    }

    fn readlink(&self, node: &Self::Node) -> Result<Vec<u8>> {
        self.begin_or_stale(Call::Read)?;
        self.inner.readlink(&node.node)
    }

    fn mknod(
        &self,
        cx: &Context,
        at: Place<'_, Self::Node>,
        mode: u32,
        rdev: u64,
    ) -> Result<Entry<Self::Node>> {
        self.begin_or_stale(Call::Make)?;
        self.inner.mknod(cx, inside(at), mode, rdev).map(wrap)
    }

    fn mkdir(
        &self,
        cx: &Context,
        at: Place<'_, Self::Node>,
        perm: u32,
    ) -> Result<Entry<Self::Node>> {
        self.begin_or_stale(Call::Make)?;
        self.inner.mkdir(cx, inside(at), perm).map(wrap)
    }

    fn symlink(
        &self,
        cx: &Context,
        at: Place<'_, Self::Node>,
        target: &[u8],
    ) -> Result<Entry<Self::Node>> {
        self.begin_or_stale(Call::Make)?;
        self.inner.symlink(cx, inside(at), target).map(wrap)
    }

    fn link(&self, cx: &Context, node: &Self::Node, at: Place<'_, Self::Node>) -> Result<Attr> {
        self.begin_or_stale(Call::Make)?;
        self.inner.link(cx, &node.node, inside(at))
    }

    fn unlink(&self, cx: &Context, at: Place<'_, Self::Node>, node: &Self::Node) -> Result<()> {
        self.begin_or_stale(Call::Remove)?;
        self.inner.unlink(cx, inside(at), &node.node)
    }

    fn rmdir(&self, cx: &Context, at: Place<'_, Self::Node>, node: &Self::Node) -> Result<()> {
        self.begin_or_stale(Call::Remove)?;
        self.inner.rmdir(cx, inside(at), &node.node)
    }

    fn rename(
        &self,
        cx: &Context,
        from: Place<'_, Self::Node>,
        to: Place<'_, Self::Node>,
        flags: RenameFlags,
        moved: &Self::Node,
        replaced: Option<&Self::Node>,
    ) -> Result<()> {
        self.begin_or_stale(Call::Rename)?;
        let replaced = replaced.map(|node| &node.node);
        self.inner.rename(cx, inside(from), inside(to), flags, &moved.node, replaced)
    }

    fn create(
        &self,
        cx: &Context,
        at: Place<'_, Self::Node>,
        perm: u32,
        flags: OpenFlags,
    ) -> Result<(Entry<Self::Node>, F::Handle)> {
        self.begin_or_stale(Call::Make)?;
        let (entry, handle) = self.inner.create(cx, inside(at), perm, flags)?;
        Ok((wrap(entry), handle))
    }

    fn open(&self, cx: &Context, node: &Self::Node, flags: OpenFlags) -> Result<F::Handle> {
        self.begin_or_stale(Call::Open)?;
        self.inner.open(cx, &node.node, flags)
    }

    /// None: what the kernel reads by itself does not come by here, and could not go wrong.
    fn descriptor<'a>(&self, _: &'a F::Handle) -> Option<BorrowedFd<'a>> {
        None
    }

    fn read(&self, handle: &F::Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let len = match self.begin_or_stale(Call::Read)? {
            How::Short => half(buf.len()),
            _ => buf.len(),
        };
        self.inner.read(handle, offset, &mut buf[..len])
    }

    fn write(&self, handle: &F::Handle, offset: u64, data: &[u8]) -> Result<usize> {
        let len = match self.begin_or_stale(Call::Write)? {
            How::Short => half(data.len()),
            _ => data.len(),
        };
        self.inner.write(handle, offset, &data[..len])
    }

    fn flush(&self, handle: &F::Handle) -> Result<()> {
        self.begin_or_stale(Call::Sync)?;
        self.inner.flush(handle)
    }

    fn fsync(&self, handle: &F::Handle, data_only: bool) -> Result<()> {
        self.begin_or_stale(Call::Sync)?;
        self.inner.fsync(handle, data_only)
    }

    fn readdir(
        &self,
        handle: &F::Handle,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        if self.begin_or_stale(Call::Readdir)? != How::Short {
            return self.inner.readdir(handle, cookie, emit);
        }
        self.inner.readdir(handle, cookie, &mut |entry| {
            let _ = emit(entry);
            ControlFlow::Break(())
        })
    }

    fn statfs(&self) -> Result<StatFs> {
        self.begin_or_stale(Call::Other)?;
        self.inner.statfs()
    }

    fn getxattr(&self, cx: &Context, node: &Self::Node, name: &[u8]) -> Result<Vec<u8>> {
        self.begin_or_stale(Call::Other)?;
        self.inner.getxattr(cx, &node.node, name)
    }

    fn setxattr(
        &self,
        cx: &Context,
        node: &Self::Node,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> Result<()> {
        self.begin_or_stale(Call::Other)?;
        self.inner.setxattr(cx, &node.node, name, value, how)
    }

    fn listxattr(&self, cx: &Context, node: &Self::Node) -> Result<Vec<u8>> {
        self.begin_or_stale(Call::Other)?;
        self.inner.listxattr(cx, &node.node)
    }

    fn removexattr(&self, cx: &Context, node: &Self::Node, name: &[u8]) -> Result<()> {
        self.begin_or_stale(Call::Other)?;
        self.inner.removexattr(cx, &node.node, name)
    }

    fn seek(&self, handle: &F::Handle, offset: u64, what: SeekFor) -> Result<u64> {
        self.begin_or_stale(Call::Other)?;
        self.inner.seek(handle, offset, what)
    }

    fn fallocate(&self, handle: &F::Handle, mode: u32, offset: u64, len: u64) -> Result<()> {
        self.begin_or_stale(Call::Write)?;
        self.inner.fallocate(handle, mode, offset, len)
    }

    fn copy_range(
        &self,
        from: &F::Handle,
        from_offset: u64,
        to: &F::Handle,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.begin_or_stale(Call::Write)?;
        self.inner.copy_range(from, from_offset, to, to_offset, len)
    }
}
