//! `cargo xtask orderings`: does a model miss each ordering that is stronger than relaxed?
//!
//! The models are built once. First each test runs alone and records which orderings it passes ([`models`]); then each ordering
//! in turn is made weaker by one half, and the tests that pass it run, cheapest first, until one fails
//! (`crates/sync/src/prim/weaken.rs` makes the change, in the process of the test). An ordering that no test misses is relaxed
//! in the source, or the comment above it says why it stays:
//!
//! ```text
//! // unmodelled release: loom lets no read return a store that is later in its schedule.
//! ```
//!
//! with the half that is not missed (`acquire`, `release`, `seqcst`), or without one if no model gets there. `unmodelled file:`
//! speaks for all of a file that no model gets to. Such a word that is not needed is refused too.
//!
//! `--tags` lists the tags instead: a comment beside an atomic operation names the pair it belongs to (`LR-1 Release: …`), and so
//! does its partner. A tag that stands in one place only has lost its other end; `tidy` refuses it.

mod excuses;
mod models;
mod weaken;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::run::Outcome;
use crate::source::{files, lines, read};

/// Arguments of `orderings`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only list the tags and where their ends are.
    #[arg(long)]
    tags: bool,
    /// Only orderings of source files whose name holds this word.
    #[arg(long)]
    only: Option<String>,
    /// Only models whose file name holds one of these words.
    #[arg(long)]
    model: Vec<String>,
    /// Seconds that one test may take with a weaker ordering.
    #[arg(long, default_value_t = 60)]
    limit: u64,
    /// Tests at a time.
    #[arg(long, default_value_t = std::thread::available_parallelism().map_or(1, usize::from))]
    jobs: usize,
}

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

pub(crate) fn run(args: &Args) -> Outcome {
    if args.tags { list_tags() } else { weaken::run(args) }
}

fn list_tags() -> Outcome {
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
