//! What the program does with its output.

use std::process::{Command, Stdio};

/// `vfscale-lab list | head` ends when `head` does, and says nothing about it.
#[test]
fn a_reader_that_has_gone_ends_the_program_quietly() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let program = env!("CARGO_BIN_EXE_vfscale-lab");
    let list = Command::new(program).arg("list").stdout(writer).stderr(Stdio::piped()).output();
    let list = list.expect("the program runs");
    assert!(!list.status.success());
    assert_eq!(String::from_utf8_lossy(&list.stderr), "");
}
