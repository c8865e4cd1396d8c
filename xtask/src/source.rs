//! The project's own files, and a Rust source split into code and comments.

use std::path::{Path, PathBuf};

use crate::run::{Outcome, root};

/// Directories of the root that hold no text of ours.
const NOT_OURS: [&str; 3] = ["target", "lab-results", ".git"];

/// All files of the workspace whose name ends in `.extension`, relative to its root, in order.
pub(crate) fn files(extension: &str) -> Outcome<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(root().join(&dir))? {
            let entry = entry?;
            let path = dir.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() && !NOT_OURS.iter().any(|not| path == Path::new(not)) {
                open.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The text of a file named relative to the root.
pub(crate) fn read(path: &Path) -> Outcome<String> {
    std::fs::read_to_string(root().join(path))
        .map_err(|why| format!("{}: {why}", path.display()).into())
}

/// One line of a Rust source.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// What the compiler sees, with the inside of strings and characters left out.
    pub(crate) code: String,
    /// Ordinary comments (`//`, `/* */`).
    pub(crate) comment: String,
    /// Documentation (`///`, `//!`).
    pub(crate) doc: String,
}

/// Splits a source into lines of code and comment. Good enough for our own style; no macro plays tricks with quotes here.
pub(crate) fn lines(text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut state = State::Code;
    for raw in text.lines() {
        let mut line = Line::default();
        state = split(raw, state, &mut line);
        lines.push(line);
    }
    lines
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Code,
    /// Inside `/* */`.
    Block,
    /// Inside a string.
    Text,
    /// Inside a raw string with this many `#`.
    Raw(usize),
}

fn split(raw: &str, mut state: State, line: &mut Line) -> State {
    let bytes = raw.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &raw[at..];
        match state {
            State::Block => match rest.find("*/") {
                Some(end) => {
                    line.comment += &rest[..end];
                    at += end + 2;
                    state = State::Code;
                }
                None => {
                    line.comment += rest;
                    return state;
                }
            },
            State::Text => match rest.find(['"', '\\']) {
                Some(end) if bytes[at + end] == b'"' => {
                    at += end + 1;
                    state = State::Code;
                }
                // An escape, perhaps of the end of the line.
                Some(end) => at = next_char(raw, at + end + 1),
                None => return state,
            },
            State::Raw(hashes) => {
                let close = format!("\"{}", "#".repeat(hashes));
                match rest.find(&close) {
                    Some(end) => {
                        at += end + close.len();
                        state = State::Code;
                    }
                    None => return state,
                }
            }
            State::Code => {
                if rest.starts_with("///") || rest.starts_with("//!") {
                    line.doc += &rest[3..];
                    return state;
                } else if let Some(comment) = rest.strip_prefix("//") {
                    line.comment += comment;
                    return state;
                } else if rest.starts_with("/*") {
                    at += 2;
                    state = State::Block;
                } else if let Some((length, hashes)) = raw_string(raw, at) {
                    at += length;
                    state = State::Raw(hashes);
                } else if rest.starts_with('"') {
                    at += 1;
                    state = State::Text;
                } else if let Some(length) = character(rest) {
                    at += length;
                } else {
                    let end = next_char(raw, at);
                    line.code += &raw[at..end];
                    at = end;
                }
            }
        }
    }
    state
}

fn next_char(text: &str, at: usize) -> usize {
    text.get(at..).and_then(|rest| rest.chars().next()).map_or(text.len(), |c| at + c.len_utf8())
}

/// The length of `r##"` and its number of `#`, if a raw string starts here.
fn raw_string(text: &str, at: usize) -> Option<(usize, usize)> {
    let before = text[..at].chars().next_back();
    if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let rest = text[at..].strip_prefix("br").or_else(|| text[at..].strip_prefix('r'))?;
    let prefix = text[at..].len() - rest.len();
    let hashes = rest.bytes().take_while(|&byte| byte == b'#').count();
    rest[hashes..].starts_with('"').then_some((prefix + hashes + 1, hashes))
}

/// The length of a character literal that starts here; a lifetime is none.
fn character(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix('\'')?;
    if let Some(escaped) = inner.strip_prefix('\\') {
        // The first escaped character may be a quote itself.
        let skip = escaped.chars().next()?.len_utf8();
        return escaped[skip..].find('\'').map(|end| end + skip + 3);
    }
    let one = inner.chars().next()?;
    inner[one.len_utf8()..].starts_with('\'').then_some(one.len_utf8() + 2)
}

#[cfg(test)]
mod tests {
    use super::lines;

    fn code(text: &str) -> String {
        lines(text).into_iter().map(|line| line.code).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn strings_and_comments_are_not_code() {
        assert_eq!(code("a(\"b // c\"); // d"), "a(); ");
        assert_eq!(code("a /* b\nc */ d"), "a \n d");
        assert_eq!(code("x(r#\"un\"safe\"#, 'y')"), "x(, )");
        assert_eq!(code("m(\"one\\\"two\"); n()"), "m(); n()");
        assert_eq!(code("m(\"one \\\n   two\"); n()"), "m(\n); n()");
    }

    #[test]
    fn lifetimes_are_code_and_characters_are_not() {
        assert_eq!(
            code("fn f<'a>(x: &'a str) { g('\"', '\\'', b'\\n') }"),
            "fn f<'a>(x: &'a str) { g(, , b) }"
        );
    }

    #[test]
    fn documentation_is_told_from_comments() {
        let split = lines("//! one\n/// two\n// three");
        assert_eq!((split[0].doc.as_str(), split[1].doc.as_str()), (" one", " two"));
        assert_eq!(split[2].comment, " three");
    }
}
