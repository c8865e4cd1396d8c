//! The orderings in the source, and what their comments say of those that no model misses.

use std::path::Path;

use crate::source::{Line, lines};

/// The word that begins an excuse.
const WORD: &str = "unmodelled";
const ORDERINGS: [&str; 4] = ["Acquire", "Release", "AcqRel", "SeqCst"];

/// One source file, split.
#[derive(Debug)]
pub(super) struct Source {
    lines: Vec<Line>,
}

impl Source {
    pub(super) fn new(text: &str) -> Self {
        Self { lines: lines(text) }
    }

    /// What the comment above the statement of `line` (from 1 on) says of `half`; an empty `half` stands for all.
    pub(super) fn excuse(&self, line: usize, half: &str) -> Option<String> {
        let start = self.start_of_statement(line - 1);
        let above = self.lines[..start]
            .iter()
            .rposition(|line| line.comment.is_empty() || !line.code.trim().is_empty());
        let first = above.map_or(0, |above| above + 1);
        self.excuse_in(first..line, half)
    }

    /// What the file says of itself.
    pub(super) fn excuse_of_file(&self) -> Option<String> {
        self.excuse_in(0..self.lines.len(), "file")
    }

    /// The reason, up to the end of its comment line.
    fn excuse_in(&self, range: std::ops::Range<usize>, half: &str) -> Option<String> {
        let key = if half.is_empty() { format!("{WORD}:") } else { format!("{WORD} {half}:") };
        self.lines[range].iter().find_map(|line| {
            let (_, reason) = line.comment.split_once(&key)?;
            (!reason.trim().is_empty()).then(|| reason.trim().to_owned())
        })
    }

    /// The first line of the statement that `at` is in. Good enough for our style: a statement ends with its line.
    fn start_of_statement(&self, at: usize) -> usize {
        let ends = |line: &Line| {
            let code = line.code.trim();
            code.is_empty() || code.ends_with([';', '{', '}'])
        };
        (0..at).rev().find(|&above| ends(&self.lines[above])).map_or(0, |above| above + 1)
    }

    /// The statements (first and last line, from 1 on) that name an ordering, outside of tests and imports.
    pub(super) fn statements(&self) -> Vec<(usize, usize)> {
        let mut found: Vec<(usize, usize)> = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            if line.code.starts_with("mod tests {") {
                break;
            }
            if !names_ordering(&line.code) {
                continue;
            }
            let start = self.start_of_statement(at);
            if self.lines[start].code.trim_start().trim_start_matches("pub ").starts_with("use ") {
                continue;
            }
            match found.last_mut() {
                Some(last) if last.0 == start + 1 => last.1 = at + 1,
                _ => found.push((start + 1, at + 1)),
            }
        }
        found
    }
}

/// Whether one of the words stands in `code` as a value, not as a type of ours with that name.
fn names_ordering(code: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    ORDERINGS.iter().any(|word| {
        code.match_indices(word).any(|(at, _)| {
            let (before, after) = (&code[..at], &code[at + word.len()..]);
            !before.ends_with(part)
                && !after.starts_with(part)
                && !after.trim_start().starts_with(['(', '<', '{'])
        })
    })
}

/// Whether orderings of this file are the primitives' own.
pub(super) fn is_code(path: &Path) -> bool {
    let path = path.to_string_lossy();
    path.starts_with(super::WHERE) && !path.contains("/prim") && !path.ends_with("/tests.rs")
}

#[cfg(test)]
mod tests {
    use super::Source;

    const TEXT: &str = "\
use x::{Acquire, Release};
fn f(&self) {
    // A-1 Release: why.
    // unmodelled release: because.
    self.word.store(1, Release);
    let seen =
        // unmodelled acquire: also.
        self.word
            .compare_exchange(0, 1, Acquire, Relaxed);
    self.word.load(Acquire);
    let release = Release(self);
}
mod tests {
    word.load(SeqCst);
}
";

    #[test]
    fn an_excuse_is_for_the_statement_below_it() {
        let source = Source::new(TEXT);
        assert_eq!(source.excuse(5, "release").as_deref(), Some("because."));
        assert_eq!(source.excuse(5, "acquire"), None);
        assert_eq!(source.excuse(9, "acquire").as_deref(), Some("also."));
        assert_eq!(source.excuse(10, "acquire"), None);
        assert_eq!(source.excuse_of_file(), None);
    }

    #[test]
    fn statements_name_orderings() {
        assert_eq!(Source::new(TEXT).statements(), [(5, 5), (8, 9), (10, 10)]);
    }
}
