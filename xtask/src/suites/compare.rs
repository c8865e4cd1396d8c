//! Two directory trees, entry by entry: names, types, owners, modes, times, links, content.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::run::Outcome;

/// Fails with the first few differences.
pub(crate) fn same_trees(left: &Path, right: &Path) -> Outcome<usize> {
    let (ours, theirs) = (entries(left)?, entries(right)?);
    let mut differences = Vec::new();
    for name in ours.keys().chain(theirs.keys()).collect::<BTreeSet<_>>() {
        match (ours.get(name), theirs.get(name)) {
            (Some(one), Some(two)) => {
                if let Some(what) = difference(&left.join(name), one, &right.join(name), two)? {
                    differences.push(format!("{}: {what}", name.display()));
                }
            }
            (Some(_), None) => differences.push(format!("{}: only in the first", name.display())),
            _ => differences.push(format!("{}: only in the second", name.display())),
        }
    }
    if link_groups(&ours) != link_groups(&theirs) {
        differences.push("hard links tie other names together".to_owned());
    }
    if differences.is_empty() {
        return Ok(ours.len());
    }
    let count = differences.len();
    differences.truncate(5);
    Err(format!("{count} differences: {}", differences.join("; ")).into())
}

fn entries(root: &Path) -> Outcome<BTreeMap<PathBuf, Metadata>> {
    let mut found = BTreeMap::from([(PathBuf::new(), fs::symlink_metadata(root)?)]);
    let mut open = vec![PathBuf::new()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(root.join(&dir))? {
            let name: OsString = entry?.file_name();
            let path = dir.join(name);
            let meta = fs::symlink_metadata(root.join(&path))?;
            if meta.is_dir() {
                open.push(path.clone());
            }
            if found.insert(path.clone(), meta).is_some() {
                return Err(format!("{} is listed twice", root.join(path).display()).into());
            }
        }
    }
    Ok(found)
}

/// What tells two entries of one name apart. A directory's size and link count are its file system's own affair.
fn difference(
    left: &Path,
    one: &Metadata,
    right: &Path,
    two: &Metadata,
) -> Outcome<Option<String>> {
    let fields: [(&str, u64, u64); 5] = [
        ("mode", one.mode().into(), two.mode().into()),
        ("owner", one.uid().into(), two.uid().into()),
        ("group", one.gid().into(), two.gid().into()),
        ("device", device(one), device(two)),
        ("size", size(one), size(two)),
    ];
    for (what, one, two) in fields {
        if one != two {
            return Ok(Some(format!("{what} {one:o} and {two:o} (octal)")));
        }
    }
    let (mtime, other) = ((one.mtime(), one.mtime_nsec()), (two.mtime(), two.mtime_nsec()));
    if mtime != other {
        return Ok(Some(format!("modification time {mtime:?} and {other:?}")));
    }
    if !one.is_dir() && one.nlink() != two.nlink() {
        return Ok(Some(format!("{} and {} links", one.nlink(), two.nlink())));
    }
    if one.is_symlink() && fs::read_link(left)? != fs::read_link(right)? {
        return Ok(Some("target".to_owned()));
    }
    if one.is_file() && !same_content(left, right)? {
        return Ok(Some("content".to_owned()));
    }
    Ok(None)
}

fn device(meta: &Metadata) -> u64 {
    let kind = meta.file_type();
    if kind.is_block_device() || kind.is_char_device() { meta.rdev() } else { 0 }
}

fn size(meta: &Metadata) -> u64 {
    if meta.is_dir() { 0 } else { meta.size() }
}

fn same_content(left: &Path, right: &Path) -> Outcome<bool> {
    let (mut left, mut right) = (File::open(left)?, File::open(right)?);
    let (mut one, mut two) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let (some, other) = (fill(&mut left, &mut one)?, fill(&mut right, &mut two)?);
        if one[..some] != two[..other] {
            return Ok(false);
        }
        if some == 0 {
            return Ok(true);
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut File, buf: &mut [u8]) -> Outcome<usize> {
    let mut have = 0;
    while have < buf.len() {
        match file.read(&mut buf[have..])? {
            0 => break,
            more => have += more,
        }
    }
    Ok(have)
}

/// Which names are one inode, of those with more than one name.
fn link_groups(entries: &BTreeMap<PathBuf, Metadata>) -> BTreeSet<Vec<&Path>> {
    let mut groups: BTreeMap<(u64, u64), Vec<&Path>> = BTreeMap::new();
    for (path, meta) in entries {
        if !meta.is_dir() && meta.nlink() > 1 {
            groups.entry((meta.dev(), meta.ino())).or_default().push(path);
        }
    }
    groups.into_values().collect()
}
