//! A host directory that others change beneath its mount.
//!
//! These tests mount, and act as another user. They need the right to (the super-user) and `/dev/fuse`, and fail, saying so, without.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use common::{NOBODY, Pair, shell};

/// Opens for reading and writing and makes the file if it is not there, as `<>` of a shell does.
const OPEN_OR_CREATE: &str = "exec 3<> \"$0\"";

#[test]
fn a_name_believed_absent_is_no_way_past_the_permissions() {
    let pair = Pair::new();
    let (host, mount) = (pair.host.join("secret"), pair.mount.join("secret"));
    let believed_absent = || assert!(!shell(NOBODY, "test -e \"$0\"", &mount).0);
    believed_absent();
    fs::write(&host, "the super-user's").unwrap();
    fs::set_permissions(&host, fs::Permissions::from_mode(0o600)).unwrap();
    let (opened, said) = shell(NOBODY, OPEN_OR_CREATE, &mount);
    assert!(!opened && said.contains("ermission denied"), "{said}");

    // To truncate is no other way in.
    fs::remove_file(&host).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    believed_absent();
    fs::write(&host, "the super-user's").unwrap();
    fs::set_permissions(&host, fs::Permissions::from_mode(0o600)).unwrap();
    let (opened, said) = shell(NOBODY, "> \"$0\"", &mount);
    assert!(!opened && said.contains("ermission denied"), "{said}");
    assert_eq!(fs::read_to_string(&host).unwrap(), "the super-user's");
    // Who may, can.
    assert_eq!(shell(0, "cat < \"$0\" && exec 3<> \"$0\"", &mount), (true, String::new()));
}

#[test]
fn who_may_opens_what_appeared_meanwhile() {
    let pair = Pair::new();
    for (name, user) in [("by-root", 0), ("by-owner", NOBODY)] {
        let (host, mount) = (pair.host.join(name), pair.mount.join(name));
        assert!(!shell(user, "test -e \"$0\"", &mount).0);
        fs::write(&host, "kept").unwrap();
        fs::set_permissions(&host, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&host, Some(user), Some(user)).unwrap();
        assert_eq!(shell(user, OPEN_OR_CREATE, &mount), (true, String::new()), "{name}");
        assert_eq!(fs::read_to_string(&host).unwrap(), "kept");
    }
    // Asked for a new file, and only that: there is one.
    let (host, mount) = (pair.host.join("new"), pair.mount.join("new"));
    assert!(!mount.exists());
    fs::write(&host, "kept").unwrap();
    let refused = fs::File::create_new(&mount).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::AlreadyExists);
    // A link is followed, as if the name had never been absent.
    let (host, mount) = (pair.host.join("link"), pair.mount.join("link"));
    assert!(!mount.exists());
    symlink("new", &host).unwrap();
    fs::OpenOptions::new().append(true).create(true).open(&mount).unwrap();
}
