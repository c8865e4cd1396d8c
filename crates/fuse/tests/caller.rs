//! On whose behalf a mount of a host directory acts: user, group and supplementary groups of whoever calls.
//!
//! These tests mount, and act as other users. They need the right to (the super-user) and `/dev/fuse`, and fail, saying so, without.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;

use common::{Pair, Who, as_user};

const GROUP: u32 = 4242;
/// In the group by a supplementary one, by the primary one, and not at all.
const CALLERS: [Who<'static>; 3] =
    [(1000, 1000, &[7, GROUP]), (1001, GROUP, &[]), (1002, 1002, &[7])];

fn owner_and_mode(path: &Path) -> (u32, u32, u32) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.gid(), meta.mode() & 0o7777)
}

#[test]
fn supplementary_groups_count_for_permissions() {
    let pair = Pair::new();
    let [host, mount] = pair.both("file");
    fs::write(&host, "the group's").unwrap();
    chown(&host, None, Some(GROUP)).unwrap();
    fs::set_permissions(&host, fs::Permissions::from_mode(0o640)).unwrap();
    for who in CALLERS {
        let read = as_user(who, || fs::read_to_string(&mount));
        match read {
            Ok(text) => assert!(who != CALLERS[2] && text == "the group's"),
            Err(error) => {
                assert_eq!((who, error.kind()), (CALLERS[2], ErrorKind::PermissionDenied));
            }
        }
        let write = as_user(who, || OpenOptions::new().write(true).open(&mount));
        assert_eq!(write.unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
    // To give a file away to a group takes membership.
    for who in CALLERS {
        let path = mount.with_file_name(format!("of-{}", who.0));
        as_user(who, || File::create(&path)).unwrap();
        let given = as_user(who, || chown(&path, None, Some(GROUP)));
        assert_eq!(given.is_ok(), who != CALLERS[2], "{who:?}");
    }
}

/// What each caller makes, in a directory of its own group's and in a set-group-id one, comes out as on the host: owner, group, and
/// set-group-id only for a member of the group.
#[test]
fn what_is_made_comes_out_as_on_the_host() {
    let pair = Pair::with("suid");
    let mut outcomes = Vec::new();
    for (dir_mode, dir_group) in [(0o777, 0), (0o2777, GROUP)] {
        for who in CALLERS {
            let made = ["native", "mounted"].map(|name| {
                let [host, mount] = pair.both(&format!("{name}-{dir_group}-{}", who.0));
                fs::create_dir(&host).unwrap();
                chown(&host, None, Some(dir_group)).unwrap();
                fs::set_permissions(&host, fs::Permissions::from_mode(dir_mode)).unwrap();
                let place = if name == "native" { &host } else { &mount };
                as_user(who, || {
                    OpenOptions::new()
                        .create_new(true)
                        .write(true)
                        .mode(0o2775)
                        .open(place.join("file"))
                        .unwrap();
                    fs::DirBuilder::new().mode(0o755).create(place.join("dir")).unwrap();
                    std::os::unix::fs::symlink("file", place.join("link")).unwrap();
                });
                ["file", "dir", "link"].map(|made| owner_and_mode(&host.join(made)))
            });
            assert_eq!(made[0], made[1], "{who:?}, a directory of mode {dir_mode:o}");
            outcomes.push(made[1]);
        }
    }
    // Set-group-id on the file: kept by both kinds of members, lost by the stranger.
    assert_eq!(
        outcomes[3..].iter().map(|made| made[0].2).collect::<Vec<_>>(),
        [0o2775, 0o2775, 0o775]
    );
    assert!(outcomes[3..].iter().all(|made| made.iter().all(|&(_, group, _)| group == GROUP)));
}
