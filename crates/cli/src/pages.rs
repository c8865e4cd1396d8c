//! `vfscale pages DIR`: the manual pages and the shells' completions, made from the definition of the command line itself.

use std::path::Path;

use clap::{CommandFactory as _, ValueEnum as _};
use clap_complete::Shell;

use crate::args::{Cli, PagesArgs};
use crate::error::CliError;

/// Runs the command.
///
/// # Errors
/// If a file cannot be written.
pub(crate) fn run(args: &PagesArgs) -> Result<u8, CliError> {
    write(&args.dir).map_err(|error| CliError::io(&args.dir, error))?;
    Ok(0)
}

/// One page for the program and one for each of its commands; one completion for each shell that `clap` knows.
fn write(dir: &Path) -> std::io::Result<()> {
    clap_mangen::generate_to(Cli::command(), dir)?;
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut Cli::command(), "vfscale", dir)?;
    }
    Ok(())
}
