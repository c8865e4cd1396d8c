//! `vfscale exec SRC -- CMD...`: a mount that lives as long as one command.
//!
//! # Where the mount is
//! A directory is covered by its own mount, inside a private mount namespace that only this process and the command see. So
//! nothing temporary is needed, and absolute paths into SRC go through the mount too. The backend has opened SRC before and works
//! from that descriptor, below the mount. `mem:` has no directory of its own and gets a temporary one.
//!
//! # Signals
//! Ctrl-C goes from the terminal to the whole foreground group: the command has it already, and we wait for what it makes of it.
//! A signal that a process sent to us alone is passed on to the command. Either way the mount goes away after the command has. A
//! signal that comes before there is a command ends the run before there is one.
//!
//! # Exit code
//! The command's, also if the unmount fails after it; 128+N if signal N ended it, or came before it was started; 127 if it was not found, 126 if it cannot run (as `env`, `nohup` and shells have it).

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::args::ExecArgs;
use crate::error::{CliError, reason};
use crate::place::{self, TemporaryPlace};
use crate::session::{Plan, SeenBy, Serving, check_can_mount};
use crate::source::Source;
use crate::summary::{JsonFile, Outcome};
use crate::sys::{self, Inherited};
use crate::umount::Unmounted;

/// The command was not found.
const NOT_FOUND: u8 = 127;
/// The command was found and cannot run.
const CANNOT_RUN: u8 = 126;

/// Runs the command, and answers with its exit code.
///
/// # Errors
/// If the mount cannot be set up or taken down.
pub(crate) fn run(args: &ExecArgs) -> Result<u8, CliError> {
    let source = Source::parse(&args.source)?;
    if let Source::Host { given, path } = &source {
        place::refuse_own_ground(given, path)?;
    }
    let plan = Plan::new(source, &args.serve, SeenBy::CommandAlone)?;
    check_can_mount()?;
    let json = args.json.as_deref().map(JsonFile::create).transpose()?;

    // The order matters: limits, signal mask and namespace are set while this is the only thread, and the others inherit them.
    let inherited = Inherited::capture();
    inherited.raise_open_files();
    sys::block_signals();
    enter_private_mounts()?;

    let temporary = match plan.source() {
        Source::Host { .. } => None,
        Source::Mem => Some(TemporaryPlace::create()?),
    };
    let place = match (plan.source(), &temporary) {
        (Source::Host { path, .. }, _) => path.clone(),
        (Source::Mem, Some(temporary)) => temporary.path().to_owned(),
        (Source::Mem, None) => unreachable!("`mem:` got its place above"),
    };
    plan.serve(&place, |session| {
        let end = match asked_to_end() {
            Some(signal) => End::NotBegun(signal),
            None => match start(&args.command, &place, &inherited).and_then(wait) {
                Ok(status) => End::Ran(status),
                Err(error) => End::CannotRun(error),
            },
        };
        finish(session, &end, args, json)
    })
}

/// How the run ended.
#[derive(Debug)]
enum End {
    Ran(ExitStatus),
    CannotRun(io::Error),
    /// This signal came first.
    NotBegun(i32),
}

impl End {
    /// The exit code, and the signal if one ended the run.
    fn outcome(&self) -> (u8, Option<i32>) {
        match self {
            End::Ran(status) => (code_of(*status), status.signal()),
            End::CannotRun(error) if error.kind() == ErrorKind::NotFound => (NOT_FOUND, None),
            End::CannotRun(_) => (CANNOT_RUN, None),
            End::NotBegun(signal) => (128 + *signal as u8, Some(*signal)),
        }
    }
}

/// The signal that came while the mount was set up, and would have ended us had it not been blocked.
fn asked_to_end() -> Option<i32> {
    const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM];
    let taken = || sys::pending_signal(&ENDING).map(|taken| taken.signal);
    // The kernel keeps a blocked signal even if it is ignored.
    std::iter::from_fn(taken).find(|&signal| !sys::is_ignored(signal))
}

fn enter_private_mounts() -> Result<(), CliError> {
    sys::private_mounts().map_err(|error| {
        let what = "a private mount namespace needs root (CAP_SYS_ADMIN)";
        match error.kind() {
            ErrorKind::PermissionDenied => CliError::NotPermitted(what.to_owned()),
            ErrorKind::InvalidInput => CliError::Other(
                "no private mount namespace: / is no mount point, as in a chroot; bind-mount the new root on itself before the chroot".to_owned(),
            ),
            _ => CliError::Other(format!("no private mount namespace: {}", reason(&error))),
        }
    })
}

/// Starts the command in the mount.
fn start(command: &[OsString], place: &Path, inherited: &Inherited) -> io::Result<Child> {
    // `required` in the argument's definition: there is a first word.
    let (program, rest) = command.split_first().expect("the command line demands a command");
    let mut command = Command::new(program);
    // PWD tells programs under which name they know their directory; a stale one would lead them around the mount.
    command.args(rest).current_dir(place).env("PWD", place);
    inherited.restore_in(&mut command);
    let child = command.spawn()?;
    // A key on the terminal that came before the child was there went to us alone. If the child has it too, it has it twice.
    while let Some(taken) = sys::pending_signal(&[libc::SIGINT, libc::SIGQUIT, libc::SIGHUP]) {
        pass_on(&child, taken.signal);
    }
    Ok(child)
}

fn pass_on(child: &Child, signal: i32) {
    let child = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let (Some(child), Some(signal)) = (child, Signal::from_named_raw(signal)) {
        // A failure means that the command has just ended, which who waits for it sees.
        let _ = kill_process(child, signal);
    }
}

/// Waits for the command, and passes signals on to it.
fn wait(mut child: Child) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        // SIGCHLD stays pending while it is blocked, so an end between the check and this sleep is not missed.
        let Some(taken) = sys::wait_signal(Duration::from_secs(3600)) else { continue };
        if taken.signal != libc::SIGCHLD && taken.from_process {
            pass_on(&child, taken.signal);
        }
    }
}

/// Unmounts, tells what has to be told, and answers with the exit code.
fn finish(
    session: &mut dyn Serving,
    end: &End,
    args: &ExecArgs,
    json: Option<JsonFile>,
) -> Result<u8, CliError> {
    // While it is mounted the numbers show what was cached; afterwards all are zero.
    let mut summary = session.summary();
    // What the command has mounted on its own directory is in our way, and seen by nobody else.
    session.uncover();
    let (unmounted, rest) = match session.stop() {
        Ok((unmounted, rest)) => (Some(unmounted), Some(rest)),
        Err(error) => {
            // The mount goes with this process, its namespace and its connection; what the command did stands.
            crate::say(&error.to_string());
            (None, None)
        }
    };
    match unmounted {
        Some(Unmounted::Detached) => crate::say(
            "the mount was still in use by a process that the command left behind, and was detached",
        ),
        unmounted => {
            unmounted.and_then(Unmounted::remark).iter().for_each(|remark| crate::say(remark))
        }
    }
    let program = args.command[0].display();
    let (exit_code, signal) = end.outcome();
    match end {
        End::Ran(_) => {}
        End::CannotRun(error) => crate::say(&format!("{program}: {}", reason(error))),
        End::NotBegun(signal) => {
            crate::say(&format!("{program}: not started, after signal {signal}"))
        }
    }
    let detached = unmounted == Some(Unmounted::Detached);
    summary.outcome = Some(Outcome { exit_code, signal, detached, rest });
    if matches!(end, End::Ran(_)) && !args.quiet {
        let how = match signal {
            Some(signal) => format!("ended by signal {signal}"),
            None => format!("exit code {exit_code}"),
        };
        let head = format!("{program} in {}: {how} after {:.2} s", summary.source, summary.seconds);
        crate::say_above(&head, &summary);
    }
    if let Some(Err(error)) = json.map(|json| json.write(&summary)) {
        crate::say(&error.to_string());
        // The command's own failure tells more than ours.
        return Ok(if exit_code == 0 { error.exit_code() } else { exit_code });
    }
    Ok(exit_code)
}

fn code_of(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128 + signal as u8,
        (None, None) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use crate::summary::{Rest, Summary};

    /// A mount that cannot be unmounted.
    struct Stuck;

    impl Serving for Stuck {
        fn summary(&self) -> Summary {
            Summary::default()
        }

        fn has_ended(&self) -> bool {
            false
        }

        fn uncover(&self) {}

        fn stop(&mut self) -> Result<(Unmounted, Rest), CliError> {
            Err(CliError::Other("it stays".to_owned()))
        }
    }

    #[test]
    fn a_failed_unmount_changes_neither_code_nor_report() {
        let dir = tempfile::tempdir().expect("made");
        let json = dir.path().join("out.json");
        let words = ["vfscale", "exec", "-q", "mem:", "--", "true"].map(OsString::from);
        let Ok(Cli { command: Command::Exec(args) }) = crate::args::parse(words.into_iter()) else {
            panic!("the words make sense")
        };
        for code in [0, 3] {
            let file = JsonFile::create(&json).expect("made");
            let end = End::Ran(ExitStatus::from_raw(code << 8));
            let answer = finish(&mut Stuck, &end, &args, Some(file)).expect("a code");
            assert_eq!(i32::from(answer), code);
            let text = std::fs::read_to_string(&json).expect("written");
            let data: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(data["outcome"]["exit_code"], code);
            assert_eq!(data["outcome"]["rest"], serde_json::Value::Null);
        }
    }
}
