//! An open file: one opening of an inode, with the backend's handle.
//!
//! Files live in a type-stable pool, counted by [`vfscale_sync::FileRef`]: a descriptor table may reach a file that is just being closed, tries to
//! count a reference, and is refused.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use vfscale_sync::{
    AtomicId, FileRef, GetFile, Held, Id, Ordering, Pool, PutFile, QRwLock, Slot, rcu,
};

use crate::inode::{Inode, InodeRef};
use crate::{Errno, OpenFlags, Result};

/// At most this many open files at once, over all mounts of the process.
const MAX_FILES: u32 = 1 << 24;

static FILES: Pool<File> = Pool::new(MAX_FILES);

/// The backend's handle, as the core keeps it: of the type [`crate::FileSystem::Handle`].
pub(crate) type Handle = Box<dyn Any + Send + Sync>;

#[repr(C, align(64))]
pub(crate) struct File {
    count: FileRef,
    inode: AtomicId<Inode>,
    flags: AtomicU32,
    /// Read by whoever uses the file, written when nobody does: so the handle closes at once, not a grace period later.
    handle: QRwLock<Option<Handle>>,
}

/// Files whose last reference went where they could not be closed, for [`close_pending`].
static PENDING: QRwLock<Vec<Id<File>>> = QRwLock::new(Vec::new());
static ANY_PENDING: AtomicBool = AtomicBool::new(false);

impl Slot for File {
    fn new() -> Self {
        File {
            count: FileRef::new(),
            inode: AtomicId::none(),
            flags: AtomicU32::new(0),
            handle: QRwLock::new(None),
        }
    }
}

/// A counted reference to an open file. The last one closes it.
pub struct OpenFile {
    id: Id<File>,
}

impl OpenFile {
    /// A new opening. Takes over the inode reference.
    pub(crate) fn new(inode: InodeRef, flags: OpenFlags, handle: Handle) -> Result<OpenFile> {
        let fresh = FILES.alloc().ok_or(Errno::ENFILE)?;
        inode.0.superblock().files().up();
        fresh.inode.store(Some(inode.0.into_raw()), Ordering::Relaxed);
        fresh.flags.store(flags.bits(), Relaxed);
        *fresh.handle.write() = Some(handle);
        // The count comes last: a late visitor of the slot's former file gets in only now.
        fresh.count.reset();
        Ok(OpenFile { id: fresh.publish() })
    }

    /// Takes a reference if the file in this slot still lives. The caller checks afterwards that it is the one it wanted.
    #[inline]
    pub(crate) fn try_get(id: Id<File>, guard: &rcu::Guard) -> Option<OpenFile> {
        match FILES.get(id, guard).count.get() {
            GetFile::Taken => Some(OpenFile { id }),
            GetFile::Dead => None,
        }
    }

    /// Takes over a reference that [`into_id`](Self::into_id) gave up.
    pub(crate) fn from_id(id: Id<File>) -> OpenFile {
        OpenFile { id }
    }

    /// One more reference on a file that has one which stays meanwhile.
    pub(crate) fn again(id: Id<File>) -> OpenFile {
        match FILES.slot(id).count.get() {
            GetFile::Taken => OpenFile { id },
            GetFile::Dead => unreachable!("a file with a reference is alive"),
        }
    }

    /// Gives the reference up where nothing may be closed: with a lock held that the backend's close may want. If it was the last
    /// one, the file closes with the next [`close_pending`].
    pub fn put_later(self) {
        let id = self.into_id();
        let guard = rcu::pin();
        if FILES.get(id, &guard).count.put(&guard) == PutFile::Last {
            let mut pending = PENDING.write();
            pending.push(id);
            // Relaxed: only a hint to take the lock.
            ANY_PENDING.store(true, Relaxed);
        }
    }

    pub(crate) fn into_id(self) -> Id<File> {
        std::mem::ManuallyDrop::new(self).id
    }

    fn file(&self) -> &'static File {
        FILES.slot(self.id)
    }

    /// The inode that is open.
    ///
    /// # Panics
    /// Never: an open file has an inode.
    #[must_use]
    pub fn inode(&self) -> InodeRef {
        let guard = rcu::pin();
        let id = self.file().inode.load(Ordering::Relaxed).expect("an open file has an inode");
        InodeRef(Held::try_get(id, &guard).expect("an open file holds its inode"))
    }

    /// How it was opened.
    #[must_use]
    pub fn flags(&self) -> OpenFlags {
        OpenFlags::from_bits_truncate(self.file().flags.load(Relaxed))
    }

    /// The attributes of the inode may have changed through this file.
    pub(crate) fn forget_attr(&self) {
        let id = self.file().inode.load(Ordering::Relaxed).expect("an open file has an inode");
        crate::inode::pool().slot(id).forget_attr();
    }

    /// Runs `f` on the backend's handle.
    pub(crate) fn with_handle<H: 'static, R>(&self, f: impl FnOnce(&H) -> Result<R>) -> Result<R> {
        let handle = self.file().handle.read();
        let handle = handle.as_deref().and_then(|any| any.downcast_ref::<H>());
        f(handle.ok_or(Errno::EBADF)?)
    }
}

impl Clone for OpenFile {
    fn clone(&self) -> Self {
        OpenFile::again(self.id)
    }
}

impl Drop for OpenFile {
    /// Saves no registers and calls nothing unless it is the last: what is stored right before a locked instruction has to be
    /// waited for.
    #[inline]
    fn drop(&mut self) {
        let guard = rcu::pin();
        match FILES.get(self.id, &guard).count.put(&guard) {
            PutFile::StillLive => {}
            PutFile::Last => close(self.id, guard),
        }
    }
}

/// The end of an opening: nobody else has a reference.
#[cold]
#[inline(never)]
fn close(id: Id<File>, guard: rcu::Guard) {
    let file = FILES.get(id, &guard);
    let inode = file.inode.load(Ordering::Relaxed).map(|id| InodeRef(Held::from_raw(id)));
    let handle = file.handle.write().take();
    FILES.retire(id, &guard);
    drop(guard);
    // The backend closes it: with no guard and no lock held.
    drop(handle);
    if let Some(inode) = inode {
        inode.0.superblock().files().down();
    }
}

/// Closes the files whose last reference was given up by [`OpenFile::put_later`], and answers how many it closed.
///
/// Dropping or clearing a descriptor table does it, and so does ending a mount. A program that gives files up elsewhere calls it from
/// where it may wait; with no lock held that a backend's close may want.
pub fn close_pending() -> usize {
    if !ANY_PENDING.load(Relaxed) {
        return 0;
    }
    let mut pending = PENDING.write();
    ANY_PENDING.store(false, Relaxed);
    let files = std::mem::take(&mut *pending);
    drop(pending);
    files.iter().for_each(|&id| close(id, rcu::pin()));
    files.len()
}

impl PartialEq for OpenFile {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl std::fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenFile")
            .field("inode", &self.inode())
            .field("flags", &self.flags())
            .finish()
    }
}
