//! `cargo xtask tidy`: rules of this tree that no compiler checks.
//!
//! - an ordering tag stands at both of its ends (see [`crate::orderings`]);
//! - `unsafe` stands in `crates/sync`, in thin files of system calls (`sys.rs`) and in the lab's file of peers whose interface is
//!   unsafe (`peers.rs`) only, and every other crate forbids it;
//! - no file grows past the length that a reader can follow;
//! - no word of unfinished work is left;
//! - every link between documents has a target, and every source file that a document names exists;
//! - every test that `docs/lessons` names exists.

use std::path::{Component, Path, PathBuf};

use crate::orderings;
use crate::run::{Outcome, root};
use crate::source::{files, lines, read};

/// The longest file, in lines.
const LONGEST: usize = 700;

/// Documents that name the tests which keep what they say.
const LESSONS: &str = "docs/lessons";

/// Words of unfinished work, in code. Spelt in halves so that this file passes.
const UNFINISHED: [&str; 3] =
    [concat!("to", "do!"), concat!("unimple", "mented!"), concat!("db", "g!")];

/// The same in comments.
const PROMISES: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

pub(crate) fn run() -> Outcome {
    let mut findings = Vec::new();
    one_ended_tags(&mut findings)?;
    for path in files("rs")? {
        rust_source(&path, &read(&path)?, &mut findings);
    }
    crate_attributes(&mut findings)?;
    for path in files("md")? {
        document(&path, &read(&path)?, &mut findings);
    }
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: nothing found");
        Ok(())
    } else {
        Err(format!("tidy: {} findings", findings.len()).into())
    }
}

fn one_ended_tags(findings: &mut Vec<String>) -> Outcome {
    for (tag, ends) in orderings::tags()? {
        if ends.sites.len() == 1 && !ends.both {
            let (path, line) = &ends.sites[0];
            findings.push(format!("{}:{line}: {tag} stands at one end only", path.display()));
        } else if let ([], [(path, line), ..]) = (&ends.sites[..], &ends.docs[..]) {
            findings
                .push(format!("{}:{line}: {tag} is explained but stands nowhere", path.display()));
        }
    }
    Ok(())
}

fn rust_source(path: &Path, text: &str, findings: &mut Vec<String>) {
    let lines = lines(text);
    if lines.len() > LONGEST {
        findings.push(format!("{}: {} lines, at most {LONGEST}", path.display(), lines.len()));
    }
    for (number, line) in lines.iter().enumerate() {
        let mut find = |what: String| {
            findings.push(format!("{}:{}: {what}", path.display(), number + 1));
        };
        for word in UNFINISHED {
            if line.code.contains(word) {
                find(format!("{word} is unfinished work"));
            }
        }
        for word in PROMISES {
            if has_word(&line.comment, word) || has_word(&line.doc, word) {
                find(format!("{word} belongs into an issue"));
            }
        }
        if has_word(&line.code, "unsafe") && !may_be_unsafe(path) {
            find("unsafe outside crates/sync, sys.rs and peers.rs".to_owned());
        }
    }
}

/// The primitives, their tests, and files that hold nothing but system calls.
fn may_be_unsafe(path: &Path) -> bool {
    path.starts_with("crates/sync")
        || path.ends_with("sys.rs")
        || path.ends_with("lab/src/peers.rs")
}

fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(part)
            && !text[at + word.len()..].chars().next().is_some_and(part)
    })
}

/// Every crate but the primitives forbids `unsafe`; one with a file that may have it denies it, and that file alone allows it.
fn crate_attributes(findings: &mut Vec<String>) -> Outcome {
    let sources = files("rs")?;
    for top in &sources {
        let is_top = top.parent().is_some_and(|dir| dir.ends_with("src"))
            && (top.ends_with("lib.rs") || top.ends_with("main.rs"));
        if !is_top || top.starts_with("crates/sync") {
            continue;
        }
        let dir = top.parent().expect("src");
        let has_some = sources.iter().any(|path| path.starts_with(dir) && may_be_unsafe(path));
        let wanted = if has_some { "deny(unsafe_code)" } else { "forbid(unsafe_code)" };
        let code: String = lines(&read(top)?).into_iter().map(|line| line.code).collect();
        if !code.contains(&format!("#![{wanted}]")) {
            findings.push(format!("{}: does not say #![{wanted}]", top.display()));
        }
    }
    Ok(())
}

/// Links of a document to files beside it, and to headings in them.
fn document(path: &Path, text: &str, findings: &mut Vec<String>) {
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for file in named_sources(line).filter(|file| !is_source(file)) {
            findings.push(format!("{}:{}: no source file {file}", path.display(), number + 1));
        }
        if path.starts_with(LESSONS) {
            for test in named_tests(line).filter(|(file, test)| !is_test(file, test)) {
                let (file, test) = test;
                findings.push(format!("{}:{}: no {file}::{test}", path.display(), number + 1));
            }
        }
        for target in links(line) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let dir = path.parent().unwrap_or(Path::new(""));
            let file = if file.is_empty() { path.to_path_buf() } else { flat(&dir.join(file)) };
            if !root().join(&file).exists() {
                findings.push(format!("{}:{}: no {}", path.display(), number + 1, file.display()));
            } else if !heading.is_empty() && !has_heading(&file, heading) {
                findings.push(format!("{}:{}: no heading #{heading}", path.display(), number + 1));
            }
        }
    }
}

/// The targets of `[text](target)` in a line.
fn links(line: &str) -> Vec<&str> {
    line.match_indices("](")
        .filter_map(|(at, _)| line[at + 2..].split_once(')'))
        .map(|(target, _)| target.trim())
        .collect()
}

/// The Rust sources named in a line, in backticks and with their crate.
fn named_sources(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2).filter(|word| {
        word.contains("/src/") && word.ends_with(".rs") && !word.contains(['*', '<', ' '])
    })
}

/// The tests named in a line, as in `loom_refuted_fget::check_then_add_is_refuted`: file and name.
fn named_tests(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let small = |word: &str, extra: &[char]| {
        let part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || extra.contains(&c);
        !word.is_empty() && word.chars().all(part)
    };
    line.split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|word| word.split_once("::"))
        .filter(move |(file, test)| small(file, &['_', '/']) && small(test, &['_']))
}

fn is_test(file: &str, test: &str) -> bool {
    ["crates/sync/tests", "crates/sync/src", "crates/vfs/tests"]
        .iter()
        .filter_map(|dir| read(&Path::new(dir).join(format!("{file}.rs"))).ok())
        .any(|text| text.contains(&format!("fn {test}()")))
}

/// Documents leave out `crates/` where it is clear.
fn is_source(file: &str) -> bool {
    root().join(file).is_file() || root().join("crates").join(file).is_file()
}

/// A path without `.` and `..`.
fn flat(path: &Path) -> PathBuf {
    let mut flat = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                flat.pop();
            }
            Component::CurDir => {}
            other => flat.push(other),
        }
    }
    flat
}

fn has_heading(file: &Path, anchor: &str) -> bool {
    let Ok(text) = read(file) else { return false };
    text.lines().filter(|line| line.starts_with('#')).any(|line| slug(line) == anchor)
}

/// A heading as its anchor: small letters, hyphens for spaces, no punctuation.
fn slug(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(|&c| c.is_alphanumeric() || c == ' ' || c == '-' || c == '_')
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        rust_source(Path::new(path), text, &mut findings);
        findings
    }

    #[test]
    fn unsafe_has_its_places() {
        assert_eq!(found("crates/sync/src/a.rs", "unsafe { f() }").len(), 0);
        assert_eq!(found("crates/cli/src/sys.rs", "unsafe { f() }").len(), 0);
        assert_eq!(found("crates/vfs/src/a.rs", "unsafe { f() }").len(), 1);
        assert_eq!(found("crates/vfs/src/a.rs", "#![forbid(unsafe_code)] // unsafe").len(), 0);
    }

    #[test]
    fn unfinished_work_is_found() {
        let text = format!("f(); {}() // {}: later", UNFINISHED[0], PROMISES[0]);
        assert_eq!(found("crates/vfs/src/a.rs", &text).len(), 2);
    }

    #[test]
    fn long_files_are_found() {
        assert_eq!(found("a.rs", &"\n".repeat(LONGEST)).len(), 0);
        assert_eq!(found("a.rs", &"\n".repeat(LONGEST + 1)).len(), 1);
    }

    #[test]
    fn links_and_headings() {
        assert_eq!(links("see [a](b.md), [c](d.md#e)"), ["b.md", "d.md#e"]);
        let named: Vec<_> = named_sources("in `a/src/b.rs`, `c.rs`, a/src/d.rs").collect();
        assert_eq!(named, ["a/src/b.rs"]);
        let tests: Vec<_> = named_tests("`a/b::c_d`, `FileRef::put`, e::f, `g`").collect();
        assert_eq!(tests, [("a/b", "c_d")]);
        assert_eq!(slug("## A name: its `life`"), "a-name-its-life");
        assert_eq!(flat(Path::new("docs/../README.md")), Path::new("README.md"));
    }
}
