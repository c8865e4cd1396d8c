//! What a mount can be told: the options of `-o`.

use std::fmt;

/// How to mount. [`Default`] is what a careful operator would choose: no set-uid, no devices, the mounter alone has access.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MountOptions {
    /// Every user has access, as far as modes and owners allow (`allow_other`).
    pub allow_other: bool,
    /// The super-user has access beside the mounter (`allow_root`).
    pub allow_root: bool,
    /// The kernel decides about access by mode, owner and group (`default_permissions`). Always on: nothing behind the mount
    /// checks permissions, so to turn it off would mean access for everybody. The option is accepted for compatibility's sake.
    pub default_permissions: bool,
    /// Nothing can be changed through the mount (`ro`, `rw`).
    pub read_only: bool,
    /// Honour set-user-id and set-group-id bits (`suid`, `nosuid`).
    pub suid: bool,
    /// Honour device nodes (`dev`, `nodev`).
    pub dev: bool,
    /// Allow programs to be run (`exec`, `noexec`).
    pub exec: bool,
    /// Record access times (`atime`, `noatime`).
    pub atime: bool,
    /// Keep a file's pages in the kernel's cache over its closing and opening (`kernel_cache`). Only for a backend that nobody
    /// changes behind the mount. Without it, an opening drops pages, and a changed size or time does.
    pub kernel_cache: bool,
    /// What stands as the source in the list of mounts (`fsname=`).
    pub fsname: String,
    /// What stands behind `fuse.` as the type in the list of mounts (`subtype=`).
    pub subtype: String,
    /// Server threads (`threads=`); `None` chooses by the number of processors, at least 2, at most 8.
    pub threads: Option<usize>,
    /// Whether the kernel reads and writes files without asking the server (`passthrough=auto|on|off`, `passthrough`).
    pub passthrough: Passthrough,
    /// Each thread has a descriptor of its own on the connection, where the kernel gives one (`clone_fd`, `noclone_fd`).
    pub clone_fd: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            allow_other: false,
            allow_root: false,
            default_permissions: true,
            read_only: false,
            suid: false,
            dev: false,
            exec: true,
            atime: true,
            kernel_cache: false,
            fsname: "vfscale".to_owned(),
            subtype: "vfscale".to_owned(),
            threads: None,
            passthrough: Passthrough::Auto,
            clone_fd: true,
        }
    }
}

/// Whether the kernel reads and writes files itself, for a backend that has descriptors of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Passthrough {
    /// Where kernel and privileges allow it.
    #[default]
    Auto,
    /// The mount fails without.
    On,
    /// Never.
    Off,
}

/// More threads than this do nothing but wait.
const MAX_THREADS: usize = 256;

/// An option that was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionError {
    /// There is no such option.
    Unknown(String),
    /// The option takes no value, needs one, or cannot take this one.
    Value {
        /// The option as given.
        option: String,
        /// What it needs.
        needs: &'static str,
    },
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionError::Unknown(option) => write!(f, "unknown mount option '{option}'"),
            OptionError::Value { option, needs } => write!(f, "mount option '{option}': {needs}"),
        }
    }
}

impl std::error::Error for OptionError {}

impl MountOptions {
    /// The defaults, changed by an `-o` list: options with commas between them.
    ///
    /// # Errors
    /// The first option that is not understood.
    pub fn parse(list: &str) -> Result<MountOptions, OptionError> {
        let mut options = MountOptions::default();
        options.apply(list)?;
        Ok(options)
    }

    /// Changes these by an `-o` list; a later option wins over an earlier one.
    ///
    /// # Errors
    /// The first option that is not understood; those before it are applied.
    pub fn apply(&mut self, list: &str) -> Result<(), OptionError> {
        list.split(',')
            .map(str::trim)
            .filter(|option| !option.is_empty())
            .try_for_each(|o| self.set(o))
    }

    fn set(&mut self, option: &str) -> Result<(), OptionError> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let bad = |needs| OptionError::Value { option: option.to_owned(), needs };
        let flag = match name {
            "allow_other" => Some((&mut self.allow_other, true)),
            "allow_root" => Some((&mut self.allow_root, true)),
            "default_permissions" => Some((&mut self.default_permissions, true)),
            "ro" => Some((&mut self.read_only, true)),
            "rw" => Some((&mut self.read_only, false)),
            "suid" => Some((&mut self.suid, true)),
            "nosuid" => Some((&mut self.suid, false)),
            "dev" => Some((&mut self.dev, true)),
            "nodev" => Some((&mut self.dev, false)),
            "exec" => Some((&mut self.exec, true)),
            "noexec" => Some((&mut self.exec, false)),
            "atime" => Some((&mut self.atime, true)),
            "noatime" => Some((&mut self.atime, false)),
            "kernel_cache" => Some((&mut self.kernel_cache, true)),
            "clone_fd" => Some((&mut self.clone_fd, true)),
            "noclone_fd" => Some((&mut self.clone_fd, false)),
            _ => None,
        };
        if is_mounts_own(option) {
            return Ok(());
        }
        match (flag, name, value) {
            (Some((field, to)), _, None) => *field = to,
            (Some(_), _, Some(_)) => return Err(bad("takes no value")),
            (None, "fsname" | "subtype", Some(text)) if !text.is_empty() => {
                let field = if name == "fsname" { &mut self.fsname } else { &mut self.subtype };
                text.clone_into(field);
            }
            (None, "fsname" | "subtype", _) => return Err(bad("needs a text")),
            (None, "passthrough", value) => {
                self.passthrough = match value {
                    Some("auto") => Passthrough::Auto,
                    None | Some("on") => Passthrough::On,
                    Some("off") => Passthrough::Off,
                    Some(_) => return Err(bad("needs auto, on or off")),
                };
            }
            (None, "threads", value) => {
                let number = value.and_then(|text| text.parse().ok());
                let fits = number.filter(|number| (1..=MAX_THREADS).contains(number));
                self.threads = Some(fits.ok_or_else(|| bad("needs a number from 1 to 256"))?);
            }
            (None, ..) => return Err(OptionError::Unknown(option.to_owned())),
        }
        Ok(())
    }

    /// How many server threads that makes here.
    #[must_use]
    pub fn thread_count(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(|| processors().clamp(2, 8)).clamp(1, MAX_THREADS)
    }
}

/// Options that `mount(8)` heeds itself, or that say what is so anyway, and that may stand in a list all the same. Access times are
/// the backend's to keep.
fn is_mounts_own(option: &str) -> bool {
    const WORDS: [&str; 14] = [
        "defaults",
        "auto",
        "noauto",
        "nofail",
        "user",
        "nouser",
        "users",
        "owner",
        "group",
        "_netdev",
        "async",
        "relatime",
        "norelatime",
        "strictatime",
    ];
    WORDS.contains(&option)
        || ["x-", "X-", "comment="].iter().any(|start| option.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        let options = MountOptions::parse(
            "ro,allow_other, nosuid,suid,,fsname=a=b,threads=3,noexec,noclone_fd",
        )
        .unwrap();
        let expected = MountOptions {
            read_only: true,
            allow_other: true,
            suid: true,
            exec: false,
            fsname: "a=b".to_owned(),
            threads: Some(3),
            clone_fd: false,
            ..MountOptions::default()
        };
        assert_eq!(options, expected);
        assert_eq!(MountOptions::parse(""), Ok(MountOptions::default()));
        let fstab = "defaults,nofail,_netdev,x-systemd.automount,relatime,comment=ours";
        assert_eq!(MountOptions::parse(fstab), Ok(MountOptions::default()));
    }

    #[test]
    fn errors_name_the_option() {
        let message = |list: &str| MountOptions::parse(list).unwrap_err().to_string();
        assert_eq!(message("ro,frobnicate"), "unknown mount option 'frobnicate'");
        assert_eq!(message("nope=1"), "unknown mount option 'nope=1'");
        assert_eq!(message("ro=1"), "mount option 'ro=1': takes no value");
        assert_eq!(message("fsname"), "mount option 'fsname': needs a text");
        for list in ["threads", "threads=", "threads=0", "threads=257", "threads=-1"] {
            assert!(message(list).ends_with("needs a number from 1 to 256"), "{list}");
        }
    }

    #[test]
    fn a_careful_default() {
        let MountOptions { suid, dev, allow_other, allow_root, default_permissions, .. } =
            MountOptions::default();
        assert_eq!((suid, dev, allow_other, allow_root), (false, false, false, false));
        assert!(default_permissions);
        assert!((2..=8).contains(&MountOptions::default().thread_count()));
    }
}
