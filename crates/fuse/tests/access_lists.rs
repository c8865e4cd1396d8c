//! Access control lists of a host directory, through its mount.
//!
//! These tests mount, and act as other users. They need the right to (the super-user), `/dev/fuse`, and a temporary directory on a
//! file system with access lists; they fail, saying so, without.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use common::{Pair, Who, as_user, shell};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use vfscale_backends::MemFs;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// Kinds of entries.
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;

/// Of the entries without one.
const NO_ID: u32 = u32::MAX;

/// A list as the attribute holds it: version 2, then kind, rights and id of each entry.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (kind, rights, id) in entries {
        bytes.extend(kind.to_le_bytes());
        bytes.extend(rights.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn set(path: &Path, attribute: &str, value: &[u8]) {
    let set = setxattr(path, attribute, value, XattrFlags::empty());
    set.expect("this test needs a file system with access lists");
}

fn get(path: &Path, attribute: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 1024];
    let len = getxattr(path, attribute, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// May this user read the file, write it, and find a name in the directory?
fn rights(who: Who<'_>, file: &Path, dir: &Path) -> [bool; 3] {
    as_user(who, || {
        let read = File::open(file).map(drop);
        let write = OpenOptions::new().append(true).open(file).map(drop);
        let search = fs::metadata(dir.join("inside")).map(drop);
        [read, write, search].map(|result| match result {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => false,
            Err(error) => panic!("{error}"),
        })
    })
}

/// Each list against each caller, on the host and through the mount: what the host allows is what the mount allows. In the second
/// list the group bits of the mode are a mask that is wider than the group's rights; the third takes from one user what the mode gives to
/// all; in the last only a supplementary group has rights.
#[test]
fn the_mount_decides_as_the_host_does() {
    const MEMBER: u32 = 4242;
    let own = |rights| (OWNER, rights, NO_ID);
    let (group, others) =
        (|rights| (OWNING_GROUP, rights, NO_ID), |rights| (OTHERS, rights, NO_ID));
    let mask = |rights| (MASK, rights, NO_ID);
    let lists: [&[(u16, u16, u32)]; 5] = [
        &[own(7), group(5), others(0)],
        &[own(7), (USER, 7, 1001), group(0), mask(7), others(0)],
        &[own(7), (USER, 0, 1001), group(7), mask(7), others(7)],
        &[own(7), (USER, 7, 1001), group(4), mask(4), others(1)],
        &[own(0), group(0), (GROUP, 7, MEMBER), mask(7), others(0)],
    ];
    let callers: [Who<'_>; 6] = [
        (1000, 1000, &[]),
        (1001, 1001, &[]),
        (1002, 2000, &[]),
        (1003, 1003, &[2000]),
        (1004, 1004, &[MEMBER]),
        (1005, 1005, &[]),
    ];
    let pair = Pair::new();
    let mut seen = [0; 2];
    for (n, entries) in lists.iter().enumerate() {
        let names = [format!("file{n}"), format!("dir{n}")];
        let [file, dir] = names.each_ref().map(|name| pair.host.join(name));
        fs::write(&file, "x").unwrap();
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("inside"), "x").unwrap();
        for path in [&file, &dir] {
            chown(path, Some(1000), Some(2000)).unwrap();
            set(path, ACCESS, &list(entries));
        }
        for who in callers {
            let native = rights(who, &file, &dir);
            let [file, dir] = names.each_ref().map(|name| pair.mount.join(name));
            assert_eq!(rights(who, &file, &dir), native, "list {n}, {who:?}");
            native.iter().for_each(|&allowed| seen[usize::from(allowed)] += 1);
        }
    }
    // That both answers occur often is what makes the comparison worth something.
    assert!(seen[0] > 20 && seen[1] > 20, "{seen:?}");
}

/// A list set through the mount is the host's; it changes the mode, and the mode it, and both are seen at once.
#[test]
fn list_and_mode_change_together() {
    let pair = Pair::new();
    let [host, mount] = pair.both("file");
    fs::write(&mount, "x").unwrap();
    fs::set_permissions(&mount, fs::Permissions::from_mode(0o600)).unwrap();
    chown(&mount, Some(1000), Some(1000)).unwrap();
    assert_eq!(get(&mount, ACCESS), None);
    let may_read = || as_user((1001, 1001, &[]), || File::open(&mount).is_ok());
    assert!(!may_read());

    let with_user = |mask| {
        list(&[
            (OWNER, 6, NO_ID),
            (USER, 6, 1001),
            (OWNING_GROUP, 0, NO_ID),
            (MASK, mask, NO_ID),
            (OTHERS, 0, NO_ID),
        ])
    };
    // The owner sets it.
    as_user((1000, 1000, &[]), || set(&mount, ACCESS, &with_user(6)));
    assert_eq!((mode(&mount), mode(&host)), (0o660, 0o660));
    assert_eq!(get(&host, ACCESS), Some(with_user(6)));
    assert_eq!(get(&mount, ACCESS), Some(with_user(6)));
    assert!(may_read());
    // Nobody else may.
    let refused = as_user((1001, 1001, &[]), || {
        setxattr(&mount, ACCESS, &with_user(7), XattrFlags::empty()).unwrap_err()
    });
    assert_eq!(refused, rustix::io::Errno::PERM);

    // The group bits of the mode are the mask.
    fs::set_permissions(&mount, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(get(&mount, ACCESS), Some(with_user(0)));
    assert!(!may_read());
    fs::set_permissions(&mount, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(may_read());

    rustix::fs::removexattr(&mount, ACCESS).unwrap();
    assert_eq!((get(&mount, ACCESS), get(&host, ACCESS)), (None, None));
    assert!(!may_read());
}

/// In a directory with a default list that list takes the place of the umask; in another the umask counts.
#[test]
fn a_default_list_is_inherited() {
    const MAKE: &str =
        "umask 027 && cd \"$0\" && : > file && mkdir dir && mkfifo fifo && mkdir -m 731 other";
    let pair = Pair::new();
    let default = list(&[
        (OWNER, 7, NO_ID),
        (USER, 7, 1001),
        (OWNING_GROUP, 5, NO_ID),
        (MASK, 7, NO_ID),
        (OTHERS, 4, NO_ID),
    ]);
    for has_list in [true, false] {
        // One is filled on the host itself, one through the mount, and both are looked at on the host.
        let places = ["native", "mounted"].map(|name| pair.host.join(format!("{name}-{has_list}")));
        for place in &places {
            fs::create_dir(place).unwrap();
            fs::set_permissions(place, fs::Permissions::from_mode(0o777)).unwrap();
            if has_list {
                set(place, DEFAULT, &default);
            }
        }
        let through = pair.mount.join(format!("mounted-{has_list}"));
        for place in [&places[0], &through] {
            assert_eq!(shell(1000, MAKE, place), (true, String::new()));
        }
        for name in ["file", "dir", "fifo", "other"] {
            let [native, mounted] = places.each_ref().map(|place| {
                let path = place.join(name);
                (mode(&path), get(&path, ACCESS), get(&path, DEFAULT))
            });
            assert_eq!(mounted, native, "{name}, with a list: {has_list}");
            assert_eq!(native.1.is_some(), has_list, "{name}");
        }
        let group_bits = if has_list { 0o060 } else { 0o040 };
        assert_eq!(mode(&through.join("file")) & 0o070, group_bits);
    }
}

/// An owner outside the file's group loses set-group-id with a new list; a member keeps it.
#[test]
fn a_new_list_costs_a_stranger_set_group_id() {
    let pair = Pair::with("suid");
    let entries = list(&[(OWNER, 7, NO_ID), (OWNING_GROUP, 5, NO_ID), (OTHERS, 5, NO_ID)]);
    for (groups, expected) in [(&[][..], 0o755), (&[4242], 0o2755)] {
        let modes = ["native", "mounted"].map(|name| {
            let [host, mount] = pair.both(&format!("{name}{}", groups.len()));
            fs::write(&host, "x").unwrap();
            chown(&host, Some(1000), Some(4242)).unwrap();
            fs::set_permissions(&host, fs::Permissions::from_mode(0o2755)).unwrap();
            let path = if name == "native" { &host } else { &mount };
            as_user((1000, 1000, groups), || set(path, ACCESS, &entries));
            assert_eq!(mode(&host), mode(&mount));
            mode(&host)
        });
        assert_eq!(modes, [expected; 2]);
    }
}

/// A backend without lists says so, and its mount leaves the umask to the kernel.
#[test]
fn a_backend_without_lists_has_none() {
    let dir = tempfile::tempdir().unwrap();
    let vfs = vfscale::Vfs::new(MemFs::new(), vfscale::Options::default()).unwrap();
    let options = vfscale_fuse::MountOptions::default();
    let mounted = vfscale_fuse::serve(vfs.into(), dir.path(), &options, |_| String::new()).unwrap();
    let refused = setxattr(dir.path(), ACCESS, &list(&[]), XattrFlags::empty());
    assert!(refused.is_err());
    assert_eq!(get(dir.path(), ACCESS), None);
    let made = shell(0, "umask 027 && : > \"$0/file\" && mkdir \"$0/dir\"", dir.path());
    assert_eq!(made, (true, String::new()));
    assert_eq!((mode(&dir.path().join("file")), mode(&dir.path().join("dir"))), (0o640, 0o750));
    mounted.unmount().unwrap();
}
