//! `mount.vfscale`: the words that `mount(8)` says, for a line in `/etc/fstab` and `mount -t vfscale`.
//!
//! `mount` runs `/sbin/mount.TYPE SRC MNT [-sfnv] [-N NAMESPACE] [-o LIST] [-t TYPE]` for a type that the kernel does not know. A link of
//! that name to `vfscale` makes it hear them: they become the words of `vfscale mount --background`, so that `mount` goes on once the
//! mount works, and fails with its exit code if it does not.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use vfscale_fuse::MountOptions;

/// The name by which `mount` calls us.
const NAME: &str = "mount.vfscale";

/// What `mount` asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// We were not called by that name: these are our own words.
    Directly(Vec<OsString>),
    /// To mount, in our own words.
    Mount(Vec<OsString>),
    /// To do as if (`-f`).
    Nothing,
}

/// Reads the words the process was started with.
///
/// # Errors
/// One line about what is wrong.
pub(crate) fn read(words: impl Iterator<Item = OsString>) -> Result<Asked, String> {
    let words: Vec<_> = words.collect();
    let called = words.first().map(Path::new).and_then(Path::file_name);
    if called != Some(OsStr::new(NAME)) {
        return Ok(Asked::Directly(words));
    }
    let mut words = words.into_iter().skip(1);
    let (mut places, mut options) = (Vec::new(), Vec::new());
    let (mut sloppy, mut fake) = (false, false);
    while let Some(word) = words.next() {
        let Some(letters) = word.to_str().and_then(|word| word.strip_prefix('-')) else {
            places.push(word);
            continue;
        };
        for (at, letter) in letters.char_indices() {
            let mut value = || {
                let rest = &letters[at + 1..];
                let value = if rest.is_empty() { words.next() } else { Some(OsString::from(rest)) };
                value.ok_or_else(|| format!("{NAME}: -{letter} needs a value"))
            };
            match letter {
                's' => sloppy = true,
                'f' => fake = true,
                'n' | 'v' => {} // there is no list of mounts to leave alone, and little to say
                'r' => options.push("ro".to_owned()),
                'w' => options.push("rw".to_owned()),
                'o' => {
                    let list = value()?.into_string();
                    let list = list.map_err(|_| format!("{NAME}: options are text"))?;
                    options.extend(list.split(',').map(str::to_owned));
                    break;
                }
                't' => {
                    value()?; // the type led here
                    break;
                }
                _ => return Err(format!("{NAME}: there is no option -{letter}")),
            }
        }
    }
    let Ok([source, mountpoint]) = <[OsString; 2]>::try_from(places) else {
        return Err(format!("{NAME}: wants SRC and MNT, as mount(8) gives them"));
    };
    if sloppy {
        options.retain(|option| is_known(option));
    }
    if fake {
        return Ok(Asked::Nothing);
    }
    let mut ours: Vec<OsString> = ["vfscale", "mount", "--background"].map(Into::into).into();
    if !options.is_empty() {
        ours.extend(["-o".into(), options.join(",").into()]);
    }
    ours.extend(["--".into(), source, mountpoint]);
    Ok(Asked::Mount(ours))
}

fn is_known(option: &str) -> bool {
    crate::session::is_own_option(option) || MountOptions::parse(option).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &[&str]) -> Result<Asked, String> {
        read(words.iter().map(OsString::from))
    }

    fn mount(words: &[&str]) -> Result<Asked, String> {
        let start = ["vfscale", "mount", "--background"];
        Ok(Asked::Mount(start.iter().chain(words).map(OsString::from).collect()))
    }

    #[test]
    fn its_own_name_changes_nothing() {
        let words = ["/usr/bin/vfscale", "mount", "-o", "ro", "a", "b"];
        let same = Asked::Directly(words.iter().map(OsString::from).collect());
        assert_eq!(asked(&words), Ok(same));
    }

    #[test]
    fn what_mount_says_becomes_our_words() {
        let helper = "/sbin/mount.vfscale";
        assert_eq!(asked(&[helper, "/s", "/m"]), mount(&["--", "/s", "/m"]));
        assert_eq!(
            asked(&[helper, "/s", "/m", "-o", "rw,nosuid", "-t", "vfscale"]),
            mount(&["-o", "rw,nosuid", "--", "/s", "/m"])
        );
        assert_eq!(
            asked(&[helper, "-nvoro,allow_other", "/s", "/m"]),
            mount(&["-o", "ro,allow_other", "--", "/s", "/m"])
        );
        assert_eq!(
            asked(&[helper, "-s", "-o", "ro,frobnicate,max_names=5", "/s", "/m"]),
            mount(&["-o", "ro,max_names=5", "--", "/s", "/m"])
        );
        assert_eq!(asked(&[helper, "-f", "/s", "/m"]), Ok(Asked::Nothing));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (words, text) in [
            (&["/s"][..], "wants SRC and MNT"),
            (&["/s", "/m", "/more"], "wants SRC and MNT"),
            (&["/s", "/m", "-o"], "-o needs a value"),
            (&["/s", "/m", "-N", "ns"], "no option -N"),
        ] {
            let words: Vec<_> = [NAME].iter().chain(words).copied().collect();
            let error = asked(&words).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
    }
}
