//! The `vfscale` command: run a program in a mount, mount, unmount, inspect, and walk a tree without mounting.
//!
//! Standard output belongs to what a command was asked for; everything about the run itself goes to standard error, each message
//! in a line that starts with `vfscale: `.
#![deny(unsafe_code)]

mod args;
mod background;
mod error;
mod exec;
mod helper;
mod message;
mod mount;
mod mountinfo;
mod pages;
mod place;
mod session;
mod source;
mod stat;
mod summary;
mod sys;
mod umount;
mod walk;

use std::process::ExitCode;

use args::{Cli, Command, Refused};
use helper::Asked;
pub(crate) use message::{say, say_above};

fn main() -> ExitCode {
    let words = match helper::read(std::env::args_os()) {
        Ok(Asked::Directly(words) | Asked::Mount(words)) => words,
        Ok(Asked::Nothing) => return ExitCode::SUCCESS,
        Err(text) => {
            say(&text);
            return ExitCode::from(2);
        }
    };
    let cli = match args::parse(words.into_iter()) {
        Ok(cli) => cli,
        Err(Refused::Asked(help)) => {
            let _ = help.print();
            return ExitCode::SUCCESS;
        }
        Err(Refused::Wrong(text)) => {
            say(&text);
            return ExitCode::from(2);
        }
    };
    message::print_log();
    match run(&cli) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say(&error.to_string());
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(cli: &Cli) -> Result<u8, error::CliError> {
    match &cli.command {
        Command::Exec(args) => exec::run(args),
        Command::Mount(args) => mount::run(args),
        Command::Umount(args) => umount::run(args),
        Command::Stat(args) => stat::run(args),
        Command::Walk(args) => walk::run(args),
        Command::Pages(args) => pages::run(args),
    }
}
