//! What a `stat` tells of an inode, and what a `setattr` changes.

/// The type of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileType {
    /// A named pipe.
    Fifo = 1,
    /// A character device.
    CharDevice = 2,
    /// A directory.
    Directory = 4,
    /// A block device.
    BlockDevice = 6,
    /// A regular file.
    Regular = 8,
    /// A symbolic link.
    Symlink = 10,
    /// A Unix socket.
    Socket = 12,
}

impl FileType {
    /// The type in the upper bits of an `st_mode`, or `None` if those bits name no type.
    #[must_use]
    pub const fn from_mode(mode: u32) -> Option<FileType> {
        FileType::from_dirent(((mode >> 12) & 0xf) as u8)
    }

    /// The type in a directory entry's `d_type`, or `None` for `DT_UNKNOWN` and others.
    #[must_use]
    pub const fn from_dirent(d_type: u8) -> Option<FileType> {
        Some(match d_type {
            1 => FileType::Fifo,
            2 => FileType::CharDevice,
            4 => FileType::Directory,
            6 => FileType::BlockDevice,
            8 => FileType::Regular,
            10 => FileType::Symlink,
            12 => FileType::Socket,
            _ => return None,
        })
    }

    /// The upper bits of an `st_mode` for this type.
    #[must_use]
    pub const fn mode_bits(self) -> u32 {
        (self as u32) << 12
    }
}

/// Seconds and nanoseconds since 1970; `sec` may be negative, `nsec` is below 1,000,000,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Whole seconds.
    pub sec: i64,
    /// Nanoseconds within the second.
    pub nsec: u32,
}

impl Timestamp {
    /// The time now, by the system's real-time clock.
    #[must_use]
    pub fn now() -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(Timestamp::default(), |d| Timestamp {
            sec: d.as_secs() as i64,
            nsec: d.subsec_nanos(),
        })
    }
}

/// What a `stat` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The inode number a client sees. Need not be unique over devices; the core tells inodes apart by [`crate::InodeKey`].
    pub ino: u64,
    /// The type.
    pub kind: FileType,
    /// Permission bits with set-uid, set-gid and sticky: the low 12 bits of an `st_mode`.
    pub perm: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, as `st_rdev`.
    pub rdev: u64,
    /// Size in bytes.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// Preferred size of a transfer, in bytes.
    pub blksize: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of attributes.
    pub ctime: Timestamp,
    /// Birth, where the backend knows it.
    pub btime: Option<Timestamp>,
}

impl Attr {
    /// Attributes of an object of which nothing more is known: one name, owned by the super-user, mode 0755 for a directory and 0644 for
    /// anything else, no size, the times of 1970. A backend fills in what it knows: `Attr { size, ..Attr::new(ino, kind) }`.
    #[must_use]
    pub const fn new(ino: u64, kind: FileType) -> Attr {
        let perm = if matches!(kind, FileType::Directory) { 0o755 } else { 0o644 };
        let time = Timestamp { sec: 0, nsec: 0 };
        Attr {
            ino,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            blksize: 4096,
            atime: time,
            mtime: time,
            ctime: time,
            btime: None,
        }
    }
}

/// A new access or modification time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the change, by the backend's clock.
    Now,
    /// This time.
    At(Timestamp),
}

/// What a `setattr` changes; a field that is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// New permission bits (low 12 bits).
    pub perm: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size in bytes.
    pub size: Option<u64>,
    /// New access time.
    pub atime: Option<SetTime>,
    /// New modification time.
    pub mtime: Option<SetTime>,
}

/// What a `statfs` tells. Blocks are counted in units of `frsize` bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub bfree: u64,
    /// Free blocks for ordinary users.
    pub bavail: u64,
    /// All inodes.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
    /// Preferred transfer size, in bytes.
    pub bsize: u32,
    /// Size of a block, in bytes.
    pub frsize: u32,
    /// Longest name, in bytes.
    pub namelen: u32,
}
