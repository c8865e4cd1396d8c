//! The one error of the core: a system error number without strings.

use std::fmt;

/// A system error number, as `errno` has it.
///
/// The core, the backends and the front ends all speak this one type; a front end hands the number to its client as it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

/// What every fallible operation of the core answers.
pub type Result<T, E = Errno> = std::result::Result<T, E>;

macro_rules! errnos {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno($value);)*

            /// The number's symbol (`"ENOENT"`), or `None` for one that the core does not use itself.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self { $(Errno::$name => Some(stringify!($name)),)* _ => None }
            }

            fn text(self) -> Option<&'static str> {
                match self { $(Errno::$name => Some($text),)* _ => None }
            }
        }
    };
}

errnos! {
    EPERM = 1, "operation not permitted";
    ENOENT = 2, "no such file or directory";
    EINTR = 4, "interrupted";
    EIO = 5, "input/output error";
    ENXIO = 6, "no such device or address";
    EBADF = 9, "bad file descriptor";
    EAGAIN = 11, "try again";
    ENOMEM = 12, "out of memory";
    EACCES = 13, "permission denied";
    EBUSY = 16, "device or resource busy";
    EEXIST = 17, "file exists";
    EXDEV = 18, "invalid cross-device link";
    ENODEV = 19, "no such device";
    ENOTDIR = 20, "not a directory";
    EISDIR = 21, "is a directory";
    EINVAL = 22, "invalid argument";
    ENFILE = 23, "too many open files in the system";
    EMFILE = 24, "too many open files";
    ENOTTY = 25, "inappropriate ioctl for device";
    EFBIG = 27, "file too large";
    ENOSPC = 28, "no space left on device";
    ESPIPE = 29, "illegal seek";
    EROFS = 30, "read-only file system";
    EMLINK = 31, "too many links";
    ERANGE = 34, "result too large";
    ENAMETOOLONG = 36, "file name too long";
    ENOSYS = 38, "function not implemented";
    ENOTEMPTY = 39, "directory not empty";
    ELOOP = 40, "too many levels of symbolic links";
    ENODATA = 61, "no data available";
    EOVERFLOW = 75, "value too large";
    EILSEQ = 84, "invalid byte sequence";
    EOPNOTSUPP = 95, "operation not supported";
    ESTALE = 116, "stale file handle";
}

impl Errno {
    /// The error with this number. A number that is not positive becomes [`Errno::EIO`].
    #[must_use]
    pub const fn from_raw(number: i32) -> Errno {
        if number > 0 { Errno(number) } else { Errno::EIO }
    }

    /// Does a backend that answers this to a change say that nothing was changed and nothing was other than believed?
    pub(crate) fn changed_nothing(self) -> bool {
        const REFUSALS: [Errno; 18] = [
            Errno::EPERM,
            Errno::EACCES,
            Errno::EBUSY,
            Errno::EEXIST,
            Errno::EXDEV,
            Errno::ENOTDIR,
            Errno::EISDIR,
            Errno::EINVAL,
            Errno::ENOSPC,
            Errno::EROFS,
            Errno::EMLINK,
            Errno::ENAMETOOLONG,
            Errno::ENOSYS,
            Errno::ENOTEMPTY,
            Errno::ELOOP,
            Errno::EOPNOTSUPP,
            Errno::EMFILE,
            Errno::ENFILE,
        ];
        REFUSALS.contains(&self)
    }

    /// The number, always positive.
    #[must_use]
    pub const fn raw(self) -> i32 {
        self.0
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => f.write_str(text),
            None => write!(f, "error number {}", self.0),
        }
    }
}

impl std::error::Error for Errno {}

impl From<std::io::Error> for Errno {
    /// Keeps the system's number; an error without one becomes [`Errno::EIO`].
    fn from(error: std::io::Error) -> Errno {
        error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
    }
}
