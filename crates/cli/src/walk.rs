//! `vfscale walk SRC`: one tree, walked by the system's own calls and by the core, in this process and without FUSE.
//!
//! # What is timed
//! - *first*: from the root down, every directory is listed and every name in it looked up by its whole path, and its attributes
//!   read. The system goes first, so what the kernel had to fetch from disk counts against it; the core starts with an empty cache,
//!   and has to ask the kernel for everything.
//! - *again*: the same once more. Listings come from the directory itself both times, names from a cache.
//! - *lookups*: only the path lookups, of all names that the walk found, K times, dealt out to the threads directory by directory.
//!
//! Both sides get the same paths, relative to SRC, and neither follows a symbolic link in the last place. A rate is names per
//! second of all threads together.

mod engine;
mod report;
mod tree;

use vfscale::{Context, FileSystem, Options, Vfs};
use vfscale_backends::MemFs;

use crate::args::WalkArgs;
use crate::error::CliError;
use crate::source::{Access, Source, open_host};
use crate::summary::{JsonFile, Summary, resident_now_bytes};
use crate::sys::Inherited;
use report::{Phase, Report, Side};
use tree::{CoreTree, HostTree, Tree};

/// Runs the command.
///
/// # Errors
/// If SRC cannot be opened, or its root cannot be listed.
pub(crate) fn run(args: &WalkArgs) -> Result<u8, CliError> {
    let source = Source::parse(&args.source)?;
    let json = args.json.as_deref().map(JsonFile::create).transpose()?;
    Inherited::capture().raise_open_files();

    let report = match &source {
        Source::Host { given, path } => {
            let native = HostTree::open(path).map_err(|error| CliError::errno(given, error))?;
            let host = walk(&native, args).map_err(|error| CliError::errno(given, error))?;
            let fs = open_host(given, path, Access::ReadOnly)?;
            through_core(fs, &source, Some(host), args)?
        }
        Source::Mem => {
            let fs = MemFs::new();
            let files = args.files.get();
            tree::populate(&fs, files)
                .map_err(|error| CliError::Other(format!("cannot make the tree: {error}")))?;
            through_core(fs, &source, None, args)?
        }
    };
    // A reader that went away (`| head`) is no failure of ours.
    let _ = std::io::Write::write_all(&mut std::io::stdout(), format!("{report}\n").as_bytes());
    if let Some(json) = json {
        json.write(&report)?;
    }
    Ok(0)
}

/// Walks `fs` through the core and puts the figures beside those of the host.
fn through_core<F: FileSystem>(
    fs: F,
    source: &Source,
    host: Option<Side>,
    args: &WalkArgs,
) -> Result<Report, CliError> {
    let failed = |error| CliError::Other(format!("{}: {error}", source.name()));
    // What was looked up stays true for the walk; asking again after a second would time the clock.
    let mut options = Options::exclusive();
    options.max_names = args.max_names;
    // Whatever is there by now is the tree in memory and the program; the cache comes on top.
    let resident_before_bytes = resident_now_bytes();
    let vfs = Vfs::new(fs, options).map_err(failed)?;
    let start = std::time::Instant::now();
    let core = walk(&CoreTree::new(&vfs, Context::root()), args).map_err(failed)?;
    let mut summary = Summary::gather(&vfs, None);
    summary.source = source.name();
    summary.seconds = start.elapsed().as_secs_f64();
    Ok(Report {
        threads: args.threads,
        rounds: args.rounds,
        host,
        core,
        resident_before_bytes,
        summary,
    })
}

/// All three phases over one tree.
fn walk(tree: &impl Tree, args: &WalkArgs) -> Result<Side, vfscale::Errno> {
    let threads = args.threads as usize;
    let (first, listing) = timed(|| engine::walk(tree, threads))?;
    let (again, _) = timed(|| engine::walk(tree, threads))?;
    let (lookups, ()) = timed(|| Ok((engine::look_up(tree, &listing, threads, args.rounds), ())))?;
    Ok(Side { directories: listing.directories(), first, again, lookups })
}

/// Runs `work`, which answers with its counts and something else, and times it.
fn timed<R>(
    work: impl FnOnce() -> Result<(engine::Counts, R), vfscale::Errno>,
) -> Result<(Phase, R), vfscale::Errno> {
    let start = std::time::Instant::now();
    let (counts, rest) = work()?;
    Ok((Phase::new(counts, start.elapsed()), rest))
}
