//! The command line.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};

/// Default of `--max-names`.
pub(crate) const MAX_NAMES: u64 = 1_000_000;

const AFTER_HELP: &str = "\
Exit codes: 0 success, 1 failure, 2 a command line that makes no sense. `exec` ends with its \
command's code: 128+N if signal N ended it, 127 if it was not found, 126 if it cannot run.";

/// Serve a directory, or a file system in memory, through a scalable VFS core.
#[derive(Debug, Parser)]
#[command(name = "vfscale", version, max_term_width = 100, after_help = AFTER_HELP)]
#[command(disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Mount SRC for one command: run it inside, unmount, and print a summary
    ///
    /// The mount is seen by the command and its children alone (a private mount namespace), and it covers SRC itself there, so
    /// absolute paths into SRC go through it as well. All users have access to it, by modes and owners. `mem:`
    /// gets a directory of its own for the time.
    Exec(ExecArgs),
    /// Mount SRC on MNT and serve it until Ctrl-C, SIGTERM or `umount`
    ///
    /// Stays in the foreground and prints one line when the mount works. SIGUSR1 prints the summary to standard error. Called as
    /// `mount.vfscale` it takes the words of mount(8), so with a link /sbin/mount.vfscale a line in /etc/fstab mounts:
    /// `/srv/data /mnt/data vfscale allow_other,nofail 0 0`.
    Mount(MountArgs),
    /// Unmount MNT, also when the process that served it is gone
    Umount(UmountArgs),
    /// Show the live numbers of a mount
    Stat(StatArgs),
    /// Walk a tree in this process, without FUSE and without privileges, and time it
    ///
    /// Lists every directory and looks up every name by its path: with the system's own calls, then through the core with an
    /// empty cache, then from the cache.
    Walk(WalkArgs),
    /// Write the manual pages and the completions of the shells into DIR
    Pages(PagesArgs),
}

/// What a mount can be told, for `exec` and `mount` alike.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Mount options, separated by commas
    ///
    /// allow_other, allow_root (access for other users), default_permissions (always on), ro, suid, dev (both off unless asked for),
    /// noexec, noatime, kernel_cache (nobody changes SRC behind the mount), fsname=NAME, threads=N, and cache=, passthrough=,
    /// max_names= as below. What mount(8) itself heeds (defaults, nofail, x-...) is accepted.
    #[arg(short = 'o', value_name = "LIST", action = clap::ArgAction::Append)]
    pub(crate) options: Vec<String>,
    /// Whether the kernel reads and writes the files of a directory itself: where it can (auto, the default), without fail, or never
    #[arg(long, value_name = "auto|on|off", value_enum, hide_possible_values = true)]
    pub(crate) passthrough: Option<PassthroughArg>,
    /// How long names and attributes are believed: never (SRC is asked each time), auto (a second; for ever with `mem:`), always
    /// (nobody changes SRC behind the mount; keeps pages, too)
    #[arg(long, value_name = "never|auto|always", value_enum, hide_possible_values = true)]
    pub(crate) cache: Option<CacheArg>,
    /// Keep at most N names cached that are not in use; 0 sets no limit [default: 1000000]
    #[arg(long, value_name = "N")]
    pub(crate) max_names: Option<u64>,
}

impl ServeArgs {
    /// The words that say this.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let word = |value: Option<String>, name: &str| value.map(|value| format!("{name}={value}"));
        let of =
            |value: Option<clap::builder::PossibleValue>| value.map(|v| v.get_name().to_owned());
        let long = [
            word(of(self.passthrough.and_then(|p| p.to_possible_value())), "--passthrough"),
            word(of(self.cache.and_then(|cache| cache.to_possible_value())), "--cache"),
            word(self.max_names.map(|names| names.to_string()), "--max-names"),
        ];
        let lists = self.options.iter().map(|list| format!("-o{list}"));
        lists.chain(long.into_iter().flatten()).map(Into::into).collect()
    }
}

/// `--cache`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CacheArg {
    /// Nothing is believed
    Never,
    /// For a second; for ever if nobody else can change it
    Auto,
    /// For ever
    Always,
}

/// `--passthrough`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PassthroughArg {
    /// Where kernel and privileges allow it
    Auto,
    /// The mount fails without
    On,
    /// Never
    Off,
}

/// `vfscale exec`
#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// The directory to serve, or `mem:` for an empty file system in memory
    #[arg(value_name = "SRC")]
    pub(crate) source: OsString,
    /// Write the summary to FILE as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Print no summary
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
    /// The command to run and its arguments, with its working directory in the mount
    #[arg(value_name = "CMD", last = true, required = true, num_args = 1..)]
    pub(crate) command: Vec<OsString>,
}

/// `vfscale mount`
#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// The directory to serve, or `mem:` for an empty file system in memory
    #[arg(value_name = "SRC")]
    pub(crate) source: OsString,
    /// The directory to mount on
    #[arg(value_name = "MNT")]
    pub(crate) mountpoint: PathBuf,
    /// Come back once the mount works, and serve it in the background
    #[arg(long, short)]
    pub(crate) background: bool,
    /// Write the number of the serving process to FILE, and remove it at the end
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,
    /// Be the server in the background.
    #[arg(long, hide = true, conflicts_with = "background")]
    pub(crate) detached: bool,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
}

/// `vfscale umount`
#[derive(Debug, Args)]
pub(crate) struct UmountArgs {
    /// Where the file system is mounted
    #[arg(value_name = "MNT")]
    pub(crate) mountpoint: PathBuf,
    /// Detach a mount that is in use; it goes away with its last user
    #[arg(long, short)]
    pub(crate) lazy: bool,
}

/// `vfscale stat`
#[derive(Debug, Args)]
pub(crate) struct StatArgs {
    /// Where the file system is mounted
    #[arg(value_name = "MNT")]
    pub(crate) mountpoint: PathBuf,
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// `vfscale pages`
#[derive(Debug, Args)]
pub(crate) struct PagesArgs {
    /// A directory that is there
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

/// `vfscale walk`
#[derive(Debug, Args)]
pub(crate) struct WalkArgs {
    /// The directory to walk, or `mem:` for a made-up tree in memory
    #[arg(value_name = "SRC")]
    pub(crate) source: OsString,
    /// Walk with N threads that share the tree
    #[arg(long, value_name = "N", default_value = "1", value_parser = value_parser!(u32).range(1..=256))]
    pub(crate) threads: u32,
    /// Look up every name this many times from the cache
    #[arg(long, value_name = "K", default_value = "3", value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub(crate) rounds: u32,
    /// Keep at most N names cached that are not in use; 0 sets no limit
    #[arg(long, value_name = "N", default_value_t = MAX_NAMES)]
    pub(crate) max_names: u64,
    /// With `mem:`, the number of files in the tree
    #[arg(long, value_name = "N", default_value = "20000")]
    pub(crate) files: NonZeroU32,
    /// Write timings and summary to FILE as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// Reads the command line. `Err` is what to print and the exit code: help and version, or one line about what is wrong.
pub(crate) fn parse(args: impl Iterator<Item = OsString>) -> Result<Cli, Refused> {
    Cli::try_parse_from(args).map_err(|error| {
        if error.use_stderr() {
            Refused::Wrong(one_line(&error.render().to_string()))
        } else {
            Refused::Asked(error)
        }
    })
}

/// Why there is no command to run.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The user asked for the help or the version: print it, and all is well.
    Asked(clap::Error),
    /// The command line makes no sense, for this reason.
    Wrong(String),
}

/// The gist of a clap error: its first paragraph and its tips on one line, without the usage that follows.
fn one_line(rendered: &str) -> String {
    let mut paragraphs = rendered.split("\n\n").map(|paragraph| {
        paragraph.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>()
    });
    let first = paragraphs.next().unwrap_or_default().join(" ");
    let mut line = first.strip_prefix("error: ").unwrap_or(&first).to_owned();
    for tip in paragraphs.flatten().filter_map(|line| line.strip_prefix("tip: ")) {
        line.push_str("; ");
        line.push_str(tip);
    }
    if line.starts_with("Serve a directory") {
        // Without a command clap renders the whole help.
        line =
            "a command is missing: exec, mount, umount, stat, walk or pages (see `vfscale --help`)"
                .into();
    }
    line
}
