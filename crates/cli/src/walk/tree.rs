//! The two trees a walk can go through: the system's own calls, and the core.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, RawDir};
use vfscale::{Context, Entry, Errno, FileSystem, FileType, OpenFlags, Place, Result, Vfs};

/// A tree that can be listed and looked up in by paths relative to its root (which is the empty path).
pub(super) trait Tree: Sync {
    /// Hands every name in the directory `path` to `emit`, without `.` and `..`.
    fn list(&self, path: &[u8], emit: &mut dyn FnMut(&[u8])) -> Result<()>;
    /// Looks `path` up, without following a symbolic link in the last place, and reads its attributes.
    fn look_up(&self, path: &[u8]) -> Result<FileType>;
}

/// A directory of the host, by the system's calls.
pub(super) struct HostTree {
    root: OwnedFd,
}

impl HostTree {
    /// Opens the root.
    pub(super) fn open(path: &Path) -> Result<HostTree> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty()).map_err(errno)?;
        Ok(HostTree { root })
    }
}

impl Tree for HostTree {
    fn list(&self, path: &[u8], emit: &mut dyn FnMut(&[u8])) -> Result<()> {
        let path = if path.is_empty() { b"." } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&self.root, path, flags, Mode::empty()).map_err(errno)?;
        let mut buffer = Vec::with_capacity(32 * 1024);
        let mut entries = RawDir::new(&dir, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(errno)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                emit(name);
            }
        }
        Ok(())
    }

    fn look_up(&self, path: &[u8]) -> Result<FileType> {
        let found =
            rustix::fs::statat(&self.root, path, AtFlags::SYMLINK_NOFOLLOW).map_err(errno)?;
        FileType::from_mode(found.st_mode).ok_or(Errno::EIO)
    }
}

fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_raw(error.raw_os_error())
}

/// Any backend, through the core.
pub(super) struct CoreTree<'a, F: FileSystem> {
    vfs: &'a Vfs<F>,
    cx: Context,
}

impl<'a, F: FileSystem> CoreTree<'a, F> {
    /// The whole of `vfs`, on behalf of `cx`.
    pub(super) fn new(vfs: &'a Vfs<F>, cx: Context) -> CoreTree<'a, F> {
        CoreTree { vfs, cx }
    }
}

impl<F: FileSystem> Tree for CoreTree<'_, F> {
    fn list(&self, path: &[u8], emit: &mut dyn FnMut(&[u8])) -> Result<()> {
        let path = if path.is_empty() { b"/" } else { path };
        let flags = OpenFlags::READ | OpenFlags::DIRECTORY | OpenFlags::NOFOLLOW;
        let dir = self.vfs.open_path(&self.cx, path, flags, 0)?;
        self.vfs.readdir(&dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                emit(entry.name);
            }
            ControlFlow::Continue(())
        })
    }

    fn look_up(&self, path: &[u8]) -> Result<FileType> {
        Ok(self.vfs.lstat(&self.cx, path)?.kind)
    }
}

/// Files in one directory of a made-up tree, and directories in one above.
const WIDTH: u32 = 100;

/// Makes a tree of `files` empty files in `fs`: [`WIDTH`] of them in a directory, the directories [`WIDTH`] to one above.
///
/// It goes to the backend directly, so the core that is measured later has seen none of it.
pub(super) fn populate<F: FileSystem>(fs: &F, files: u32) -> Result<()> {
    let cx = Context::root();
    let root = fs.root()?;
    let mut left = files;
    for upper in 0_u32.. {
        if left == 0 {
            break;
        }
        let above = directory(fs, &cx, &root, &format!("part-{upper:04}"))?;
        for lower in 0..WIDTH {
            let here = left.min(WIDTH);
            if here == 0 {
                break;
            }
            let dir = directory(fs, &cx, &above, &format!("dir-{lower:02}"))?;
            for file in 0..here {
                let name = format!("file-{file:02}.txt");
                let at = Place { dir: &dir.node, name: name.as_bytes() };
                fs.mknod(&cx, at, FileType::Regular.mode_bits() | 0o644, 0)?;
            }
            left -= here;
        }
    }
    Ok(())
}

fn directory<F: FileSystem>(
    fs: &F,
    cx: &Context,
    parent: &Entry<F::Node>,
    name: &str,
) -> Result<Entry<F::Node>> {
    fs.mkdir(cx, Place { dir: &parent.node, name: name.as_bytes() }, 0o755)
}
