//! `cargo xtask orderings`: every ordering tag with the places that carry it.
//!
//! A comment beside an atomic operation names the pair it belongs to (`LR-1 Release: …`), and so does its partner. A tag that
//! stands in one place only has lost its other end; `tidy` refuses it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::run::Outcome;
use crate::source::{files, lines, read};

/// Where the tags live.
const WHERE: &str = "crates/sync/src";

/// Words of this shape that are no tags of ours.
const NO_TAGS: [&str; 2] = ["UTF-8", "UTF-16"];

/// Where one tag stands.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    /// In comments beside code: file and line.
    pub(crate) sites: Vec<(PathBuf, usize)>,
    /// A site is both ends: an operation that acquires and releases, and pairs with itself.
    pub(crate) both: bool,
    /// In documentation, which explains it.
    pub(crate) docs: Vec<(PathBuf, usize)>,
}

/// All tags of the primitives.
pub(crate) fn tags() -> Outcome<BTreeMap<String, Ends>> {
    let mut tags: BTreeMap<String, Ends> = BTreeMap::new();
    for path in files("rs")?.into_iter().filter(|path| path.starts_with(WHERE)) {
        for (number, line) in lines(&read(&path)?).iter().enumerate() {
            for tag in tags_in(&line.comment) {
                let ends = tags.entry(tag).or_default();
                ends.sites.push((path.clone(), number + 1));
                ends.both |= line.comment.contains("AcqRel");
            }
            for tag in tags_in(&line.doc) {
                tags.entry(tag).or_default().docs.push((path.clone(), number + 1));
            }
        }
    }
    Ok(tags)
}

pub(crate) fn run() -> Outcome {
    let tags = tags()?;
    for (tag, ends) in &tags {
        println!("{tag}");
        for (kind, places) in [("", &ends.sites), ("  (explained)", &ends.docs)] {
            for (path, line) in places {
                println!("    {}:{line}{kind}", shown(path));
            }
        }
    }
    println!("orderings: {} tags", tags.len());
    Ok(())
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The tags of a comment: two to four capitals, a hyphen, a number, and no letter or digit around them.
fn tags_in(comment: &str) -> Vec<String> {
    let separate = |c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_');
    comment
        .split(separate)
        .filter(|word| {
            let Some((letters, digits)) = word.split_once('-') else { return false };
            (2..=4).contains(&letters.len())
                && letters.bytes().all(|byte| byte.is_ascii_uppercase())
                && !digits.is_empty()
                && digits.bytes().all(|byte| byte.is_ascii_digit())
                && !NO_TAGS.contains(word)
        })
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::tags_in;

    #[test]
    fn tags_are_told_from_other_words() {
        assert_eq!(tags_in(" LR-1 Release: pairs with (RCU-12)."), ["LR-1", "RCU-12"]);
        assert!(tags_in(" UTF-8, x86-64, R1-6, A-1, LRX-, F-B-2").is_empty());
    }
}
