//! Running other programs: say what runs, run it, turn a bad exit into an error.

use std::error::Error;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a verb answers. Errors are for people, so they are boxed strings more often than not.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The root of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// Where cargo builds for this run.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => std::path::absolute(dir).expect("an absolute path for CARGO_TARGET_DIR"),
        None => root().join("target"),
    }
}

/// A command of the cargo that runs us, at the workspace's root.
pub(crate) fn cargo<I, S>(args: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// The command as one would type it, with the environment that was set for it.
pub(crate) fn shown(command: &Command) -> String {
    let mut text = String::new();
    for (key, value) in command.get_envs() {
        if let Some(value) = value {
            text += &format!("{}={} ", key.display(), quoted(value));
        }
    }
    let program = Path::new(command.get_program());
    text += &program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
    for arg in command.get_args() {
        text += " ";
        text += &quoted(arg);
    }
    text
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    if word.is_empty() || word.contains([' ', '*', '$', '\'', '"', ';', '|', '&', '(', '\n']) {
        format!("'{}'", word.replace('\'', r"'\''"))
    } else {
        word.into_owned()
    }
}

/// Shows and runs a command; its output is ours.
pub(crate) fn step(command: &mut Command) -> Outcome {
    println!("$ {}", shown(command));
    let status = command.status().map_err(|error| cannot_run(command, &error))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{}` failed ({status})", shown(command)).into())
    }
}

/// Runs a command in silence and answers with its standard output; on failure the error carries what it wrote.
pub(crate) fn output(command: &mut Command) -> Outcome<Vec<u8>> {
    let out = command.stdin(Stdio::null()).output().map_err(|error| cannot_run(command, &error))?;
    if out.status.success() {
        return Ok(out.stdout);
    }
    let said = [out.stdout.as_slice(), out.stderr.as_slice()].concat();
    let said = String::from_utf8_lossy(&said);
    let tail: Vec<&str> = said.lines().rev().take(8).collect();
    let tail: Vec<&str> = tail.into_iter().rev().collect();
    Err(format!("`{}` failed ({}):\n    {}", shown(command), out.status, tail.join("\n    "))
        .into())
}

fn cannot_run(command: &Command, error: &std::io::Error) -> String {
    format!("cannot run `{}`: {error}", command.get_program().display())
}

/// Whether a program is on the search path.
pub(crate) fn on_path(program: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else { return false };
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Whether we are the super-user.
pub(crate) fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uids.and_then(|ids| ids.split_whitespace().nth(1)) == Some("0")
}
