//! A tree of any size that is computed, not stored: for measuring what a cache does, not a disk.
//!
//! Each directory has `fanout` children, `d0` `d1` … and in the last level files `f0` `f1` …; with 1000 and a depth of 3 there are 10^9
//! files and as many answers to a lookup, in no memory at all. Every 64th file of a directory is a symbolic link to its first. Content and
//! size follow from the number of the file. Nothing can be changed (`EROFS`).

use std::ops::ControlFlow;

use vfscale::{
    Attr, Context, DirEntry, Entry, Errno, FileSystem, FileType, InodeKey, OpenFlags, Place,
    Result, StatFs,
};

/// How large a tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynthOptions {
    /// Children of each directory.
    pub fanout: u64,
    /// Levels below the root; the last one holds files.
    pub depth: u32,
    /// Files are smaller than this many bytes.
    pub file_bytes: u64,
}

impl Default for SynthOptions {
    /// A thousand million files of less than 8 KiB.
    fn default() -> Self {
        SynthOptions { fanout: 1000, depth: 3, file_bytes: 8192 }
    }
}

/// A computed tree. See [`SynthOptions`].
#[derive(Clone, Copy, Debug)]
pub struct SynthFs {
    options: SynthOptions,
    /// Directories and files, the root included.
    objects: u64,
}

/// A place in the tree: how deep, and which of all on that level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynthNode {
    level: u32,
    index: u64,
}

const ROOT: SynthNode = SynthNode { level: 0, index: 0 };
const LINK_EVERY: u64 = 64;
const LINK_TARGET: &[u8] = b"f0";

/// Cookies behind `.` and `..`; the one behind child `i` is `i` more than `FIRST`.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
const FIRST: u64 = 3;

/// Any 64 bits from these: every bit of the answer depends on every bit of `x` (splitmix64's last step).
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl SynthFs {
    /// A tree of this size.
    ///
    /// # Errors
    /// `EINVAL` if a directory would be empty or the root a file; `EOVERFLOW` if the objects cannot be numbered with 63 bits.
    pub fn new(options: SynthOptions) -> Result<SynthFs> {
        if options.fanout == 0 || options.depth == 0 || options.file_bytes == 0 {
            return Err(Errno::EINVAL);
        }
        let (mut level, mut objects) = (1_u64, 1_u64);
        for _ in 0..options.depth {
            level = level.checked_mul(options.fanout).ok_or(Errno::EOVERFLOW)?;
            objects = objects.checked_add(level).ok_or(Errno::EOVERFLOW)?;
        }
        if i64::try_from(objects).is_err() {
            return Err(Errno::EOVERFLOW);
        }
        Ok(SynthFs { options, objects })
    }

    /// Directories, files and links.
    pub fn objects(&self) -> u64 {
        self.objects
    }

    fn kind(&self, node: SynthNode) -> FileType {
        if node.level < self.options.depth {
            FileType::Directory
        } else if node.index % self.options.fanout % LINK_EVERY == LINK_EVERY - 1 {
            FileType::Symlink
        } else {
            FileType::Regular
        }
    }

    /// Numbered level by level, from 1.
    fn ino(&self, node: SynthNode) -> u64 {
        let above = (0..node.level).map(|level| self.options.fanout.pow(level)).sum::<u64>();
        above + node.index + 1
    }

    fn child(&self, dir: SynthNode, i: u64) -> SynthNode {
        SynthNode { level: dir.level + 1, index: dir.index * self.options.fanout + i }
    }

    fn parent(&self, node: SynthNode) -> SynthNode {
        let level = node.level.saturating_sub(1);
        SynthNode { level, index: node.index / self.options.fanout }
    }

    /// What names of this level begin with.
    fn letter(&self, level: u32) -> u8 {
        if level == self.options.depth { b'f' } else { b'd' }
    }

    /// The child that is named so.
    fn find(&self, dir: SynthNode, name: &[u8]) -> Option<SynthNode> {
        let (letter, digits) = name.split_first()?;
        // One name for each: no leading zeros, no signs.
        let plain = matches!(digits, [b'0'] | [b'1'..=b'9', ..]) && digits.is_ascii();
        if *letter != self.letter(dir.level + 1) || !plain {
            return None;
        }
        let i = str::from_utf8(digits).ok()?.parse().ok()?;
        (i < self.options.fanout).then(|| self.child(dir, i))
    }

    fn attr(&self, node: SynthNode) -> Attr {
        let (ino, kind) = (self.ino(node), self.kind(node));
        let (perm, nlink, size) = match kind {
            FileType::Directory if node.level + 1 < self.options.depth => {
                (0o755, self.options.fanout.saturating_add(2), self.options.fanout)
            }
            FileType::Directory => (0o755, 2, self.options.fanout),
            FileType::Symlink => (0o777, 1, LINK_TARGET.len() as u64),
            _ => (0o644, 1, mix(ino) % self.options.file_bytes),
        };
        let nlink = u32::try_from(nlink).unwrap_or(u32::MAX);
        Attr { perm, nlink, size, blocks: size.div_ceil(512), ..Attr::new(ino, kind) }
    }

    fn entry(&self, node: SynthNode) -> Entry<SynthNode> {
        let attr = self.attr(node);
        Entry { key: InodeKey { ino: attr.ino, tag: 0 }, attr, node }
    }
}

impl FileSystem for SynthFs {
    type Node = SynthNode;
    type Handle = SynthNode;

    fn root(&self) -> Result<Entry<SynthNode>> {
        Ok(self.entry(ROOT))
    }

    fn lookup(&self, _: &Context, at: Place<'_, SynthNode>) -> Result<Entry<SynthNode>> {
        if self.kind(*at.dir) != FileType::Directory {
            return Err(Errno::ENOTDIR);
        }
        if at.name.len() > 255 {
            return Err(Errno::ENAMETOOLONG);
        }
        self.find(*at.dir, at.name).map(|node| self.entry(node)).ok_or(Errno::ENOENT)
    }

    fn getattr(&self, node: &SynthNode, _: Option<&SynthNode>) -> Result<Attr> {
        Ok(self.attr(*node))
    }

    fn readlink(&self, node: &SynthNode) -> Result<Vec<u8>> {
        match self.kind(*node) {
            FileType::Symlink => Ok(LINK_TARGET.to_vec()),
            _ => Err(Errno::EINVAL),
        }
    }

    fn open(&self, _: &Context, node: &SynthNode, flags: OpenFlags) -> Result<SynthNode> {
        let writes = flags.intersects(OpenFlags::WRITE | OpenFlags::TRUNCATE);
        match self.kind(*node) {
            FileType::Directory if writes => Err(Errno::EISDIR),
            FileType::Symlink => Err(Errno::ELOOP),
            FileType::Regular if flags.contains(OpenFlags::DIRECTORY) => Err(Errno::ENOTDIR),
            _ if writes => Err(Errno::EROFS),
            _ => Ok(*node),
        }
    }

    fn read(&self, file: &SynthNode, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if self.kind(*file) == FileType::Directory {
            return Err(Errno::EISDIR);
        }
        let Attr { ino, size, .. } = self.attr(*file);
        let len = size.saturating_sub(offset).min(buf.len() as u64);
        for (at, byte) in (offset..offset + len).zip(&mut *buf) {
            let word = mix(ino.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(at / 8));
            *byte = word.to_le_bytes()[(at % 8) as usize];
        }
        Ok(len as usize)
    }

    fn readdir(
        &self,
        dir: &SynthNode,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        if self.kind(*dir) != FileType::Directory {
            return Err(Errno::ENOTDIR);
        }
        let dots = [(&b"."[..], *dir, DOT), (&b".."[..], self.parent(*dir), DOT_DOT)];
        for (name, node, next) in dots {
            let kind = Some(FileType::Directory);
            let entry = DirEntry { name, ino: self.ino(node), kind, next };
            if cookie < next && emit(entry).is_break() {
                return Ok(());
            }
        }
        let letter = char::from(self.letter(dir.level + 1));
        // The cookie behind child `i` is FIRST + i, so what comes next is one more.
        for i in cookie.saturating_sub(DOT_DOT)..self.options.fanout {
            let (name, node) = (format!("{letter}{i}"), self.child(*dir, i));
            let (ino, kind, next) = (self.ino(node), Some(self.kind(node)), FIRST + i);
            if emit(DirEntry { name: name.as_bytes(), ino, kind, next }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn statfs(&self) -> Result<StatFs> {
        let (files, namelen) = (self.objects, 255);
        Ok(StatFs { files, bsize: 4096, frsize: 4096, namelen, ..StatFs::default() })
    }
}
