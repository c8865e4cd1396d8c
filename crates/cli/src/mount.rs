//! `vfscale mount SRC MNT`: serve a mount until somebody ends it, in the foreground or in the background.
//!
//! Three ways to the end: Ctrl-C, SIGTERM or SIGHUP to this process, or an unmount from outside. All of them leave nothing behind
//! and exit with 0. A SIGKILL cannot be caught: the mount stays, dead, until `vfscale umount` removes it.

use std::io::Write as _;
use std::time::Duration;

use crate::args::MountArgs;
use crate::background::{self, PidFile};
use crate::error::CliError;
use crate::message::one_line;
use crate::place;
use crate::session::{Plan, SeenBy, Serving, check_can_mount};
use crate::source::Source;
use crate::sys::{self, Inherited};

/// How often to look whether somebody else has unmounted.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Runs the command.
///
/// # Errors
/// If the mount cannot be set up or taken down.
pub(crate) fn run(args: &MountArgs) -> Result<u8, CliError> {
    if args.background {
        return background::start(args);
    }
    if args.detached {
        // Refused to the leader of a session, who needs none.
        let _ = rustix::process::setsid();
    }
    let source = Source::parse(&args.source)?;
    let place = place::check(&args.mountpoint, &source)?;
    let plan = Plan::new(source, &args.serve, SeenBy::Everybody)?;
    check_can_mount()?;

    Inherited::capture().raise_open_files();
    // The kernel keeps a blocked signal even if it is ignored, so what `nohup` asked for has to be remembered.
    let hangup_ends = !sys::is_ignored(libc::SIGHUP);
    sys::block_signals();

    plan.serve(&place, |session| {
        let served = session.summary().source;
        let _pid_file = args.pid_file.as_deref().map(PidFile::write).transpose()?;
        // Scripts wait for this line; that it cannot be written matters to nobody but one who waits in the foreground.
        let mut out = std::io::stdout();
        let line = format!("{served} is mounted on {}", args.mountpoint.display());
        let said = writeln!(out, "vfscale: {}", one_line(&line)).and_then(|()| out.flush());
        if args.detached {
            said.map_err(|_| CliError::Other("nobody waits for this mount".into()))?;
            background::let_go()?;
        }
        serve_until_ended(session, hangup_ends);
        let (unmounted, rest) = session.stop()?;
        if let Some(remark) = unmounted.remark() {
            crate::say(&remark);
        }
        if rest.names + rest.inodes + rest.files > 0 {
            crate::say(&format!(
                "still held after the unmount: {} names, {} inodes, {} files",
                rest.names, rest.inodes, rest.files
            ));
        }
        Ok(0)
    })
}

fn serve_until_ended(session: &dyn Serving, hangup_ends: bool) {
    while !session.has_ended() {
        let Some(taken) = sys::wait_signal(LOOK_EVERY) else { continue };
        match taken.signal {
            libc::SIGUSR1 => {
                let summary = session.summary();
                let head = format!("{} mounted for {:.1} s", summary.source, summary.seconds);
                crate::say_above(&head, &summary);
            }
            libc::SIGINT | libc::SIGTERM | libc::SIGQUIT => return,
            libc::SIGHUP if hangup_ends => return,
            _ => {}
        }
    }
}
