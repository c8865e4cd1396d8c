//! A tree of every kind of entry, packed and unpacked by tar and copied by rsync, onto a mount and back.
//!
//! What comes back is compared with what went in, byte for byte and field by field.

use std::ffi::OsStr;
use std::fs::{self, File, FileTimes, Permissions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::compare::same_trees;
use super::mount::Mount;
use super::tools::need;
use super::{Bench, Tally};
use crate::run::{Outcome, output};

pub(crate) fn run(bench: &Bench, tally: &mut Tally) -> Outcome {
    need("tar", "tar")?;
    need("rsync", "rsync")?;
    let original = bench.scratch.join("original");
    make_tree(&original, bench.pick(500, 20_000))?;
    for &backend in &bench.backends {
        let mount = Mount::new(bench, backend.name(), backend)?;
        let inside = mount.path().join("unpacked");
        let synced = mount.path().join("synced");
        let back = bench.scratch.join(format!("back-from-{}", backend.name()));
        let mut case = |name: &str, outcome: Outcome| {
            tally.case(&format!("{}: {name}", backend.name()), outcome);
        };
        case("tar onto the mount", copy_by_tar(&original, &inside));
        case("same tree on the mount", same_trees(&original, &inside).map(drop));
        case("tar back from the mount", copy_by_tar(&inside, &back));
        case("same tree after the round trip", same_trees(&original, &back).map(drop));
        case("rsync onto the mount", rsync(&original, &synced));
        case("same tree after rsync", same_trees(&original, &synced).map(drop));
        case("rsync finds nothing to do", nothing_to_sync(&original, &synced));
        case("remove it all", remove(&[&inside, &synced]));
        mount.unmount()?;
        fs::remove_dir_all(&back)?;
    }
    Ok(())
}

/// `files` regular files in directories of a hundred, and one of everything else.
fn make_tree(root: &Path, files: usize) -> Outcome {
    fs::create_dir(root)?;
    let epoch = SystemTime::UNIX_EPOCH;
    for number in 0..files {
        let dir = root.join(format!("a{}/b{}", number / 1_000, number / 100));
        fs::create_dir_all(&dir)?;
        let path = dir.join(format!("file-{number}"));
        fs::write(&path, content(number))?;
        chown(&path, Some((number % 3) as u32), Some((number % 5) as u32))?;
        // 0444 to 0777, some with set-uid, set-gid and sticky bits; after the owner, whose change would clear them.
        let mode = [0o644, 0o600, 0o755, 0o444, 0o4755, 0o2755, 0o1644, 0o777][number % 8];
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        set_mtime(&path, epoch + Duration::new(1_000_000_000 + number as u64, number as u32 * 37))?;
    }
    let odd = root.join("odd");
    fs::create_dir(&odd)?;
    symlink("no/such/target", odd.join("dangling"))?;
    symlink("../a0/b0/file-0", odd.join("link"))?;
    lchown(odd.join("link"), Some(7), Some(8))?;
    symlink("x".repeat(1_000), odd.join("long target"))?;
    fs::hard_link(root.join("a0/b0/file-1"), odd.join("second name"))?;
    fs::hard_link(odd.join("second name"), odd.join("third name"))?;
    fs::write(odd.join("n".repeat(255)), "the longest name")?;
    fs::write(odd.join(OsStr::from_bytes(b"not \xff\xfe text")), "a name that is not UTF-8")?;
    fs::write(odd.join("new\nline"), "")?;
    output(Command::new("mkfifo").arg("--mode=640").arg(odd.join("pipe")))?;
    output(Command::new("mknod").arg(odd.join("null")).args(["c", "1", "3"]))?;
    let mut sparse = File::create(odd.join("sparse"))?;
    sparse.seek(SeekFrom::Start(8 << 20))?;
    sparse.write_all(b"end")?;
    let sticky = odd.join("sticky and set-gid");
    fs::create_dir(&sticky)?;
    fs::set_permissions(&sticky, Permissions::from_mode(0o3770))?;
    set_mtime(&sticky, epoch - Duration::from_secs(1_000))?;
    Ok(())
}

/// From nothing to 40 kB, different in each file.
fn content(number: usize) -> Vec<u8> {
    let length = match number % 10 {
        0 => 0,
        9 => 4_096 * (number % 100 / 10),
        other => other * 137,
    };
    (0..length).map(|at| (at * 31 + number * 17) as u8).collect()
}

fn set_mtime(path: &Path, time: SystemTime) -> Outcome {
    Ok(File::open(path)?.set_times(FileTimes::new().set_modified(time))?)
}

/// Through a pipe, with sub-second times, owners by number, and holes kept.
fn copy_by_tar(from: &Path, to: &Path) -> Outcome {
    fs::create_dir_all(to)?;
    let script = "set -o pipefail; tar --create --format=posix --sparse --numeric-owner --directory \"$0\" . \
                  | tar --extract --preserve-permissions --same-owner --numeric-owner --directory \"$1\"";
    output(Command::new("bash").args(["-c", script]).arg(from).arg(to)).map(drop)
}

fn rsync_command(from: &Path, to: &Path) -> Command {
    let mut command = Command::new("rsync");
    command.args([
        "--archive",
        "--hard-links",
        "--numeric-ids",
        "--devices",
        "--specials",
        "--delete",
    ]);
    // Compare times to the nanosecond, or directories made within one second keep their own.
    command.arg("--modify-window=-1");
    // The trailing slash means the directory's content.
    command.arg(from.join("")).arg(to);
    command
}

fn rsync(from: &Path, to: &Path) -> Outcome {
    output(&mut rsync_command(from, to)).map(drop)
}

fn nothing_to_sync(from: &Path, to: &Path) -> Outcome {
    let would =
        output(rsync_command(from, to).args(["--dry-run", "--checksum", "--itemize-changes"]))?;
    if would.is_empty() {
        Ok(())
    } else {
        let first: Vec<_> =
            would.split(|&byte| byte == b'\n').take(3).map(String::from_utf8_lossy).collect();
        Err(format!("it would still change {}", first.join("; ")).into())
    }
}

fn remove(trees: &[&Path]) -> Outcome {
    for tree in trees {
        fs::remove_dir_all(tree)?;
    }
    Ok(())
}
