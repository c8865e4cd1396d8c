//! What the core expects of every backend, as cases that any author runs against their own.
//!
//! One call makes a fresh file system for each case, runs all of them and names every one that failed:
//!
//! ```
//! # use vfscale::*;
//! # struct Empty;
//! # impl FileSystem for Empty {
//! #     type Node = Attr;
//! #     type Handle = ();
//! #     fn root(&self) -> Result<Entry<Attr>> {
//! #         let attr = Attr::new(1, FileType::Directory);
//! #         Ok(Entry { key: InodeKey { ino: 1, tag: 0 }, attr, node: attr })
//! #     }
//! #     fn lookup(&self, _: &Context, at: Place<'_, Attr>) -> Result<Entry<Attr>> {
//! #         Err(if at.name.len() > 255 { Errno::ENAMETOOLONG } else { Errno::ENOENT })
//! #     }
//! #     fn getattr(&self, node: &Attr, _: Option<&()>) -> Result<Attr> { Ok(*node) }
//! #     fn open(&self, _: &Context, _: &Attr, flags: OpenFlags) -> Result<()> {
//! #         if flags.contains(OpenFlags::WRITE) { Err(Errno::EISDIR) } else { Ok(()) }
//! #     }
//! #     fn readdir(&self, _: &(), cookie: u64,
//! #         emit: &mut dyn FnMut(DirEntry<'_>) -> std::ops::ControlFlow<()>) -> Result<()> { Ok(()) }
//! # }
//! vfscale::conformance::run_read_only(|| Empty).assert_passed();
//! ```
//!
//! A backend that lacks something says so by the names of the cases it leaves out: [`Suite::without`].
//!
//! Each case runs in a thread of its own. One that panics fails; one that has not ended after [`PATIENCE`] fails too, and its
//! thread is left behind. Cases work with sleeps of a few milliseconds where times are compared, so all take a second or two.

mod cases;
mod report;
mod world;

use std::panic::AssertUnwindSafe;
use std::sync::mpsc;
use std::time::Duration;

pub use self::report::{Failure, Report};
pub use self::world::{Listed, RDWR, World, absent, gone, tick};
use crate::FileSystem;

/// How long a case may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

type Case<F> = fn(&World<F>);

/// Runs every case against file systems that `make` makes, each empty: nothing in it but the root.
///
/// # Panics
/// If `make` does. What a case finds is in the report.
pub fn run<F: FileSystem>(make: impl FnMut() -> F) -> Report {
    Suite::full().run(make)
}

/// Runs the cases for a file system that has something in it and cannot be changed.
///
/// # Panics
/// As [`run`].
pub fn run_read_only<F: FileSystem>(make: impl FnMut() -> F) -> Report {
    Suite::read_only().run(make)
}

/// Which cases to run.
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it is run"]
pub struct Suite {
    read_only: bool,
    without: Vec<String>,
}

impl Suite {
    /// All cases but those for a backend that cannot be changed.
    pub fn full() -> Suite {
        Suite { read_only: false, without: Vec::new() }
    }

    /// Those for a backend that cannot be changed.
    pub fn read_only() -> Suite {
        Suite { read_only: true, without: Vec::new() }
    }

    /// Leaves out the case of this name, as the report has it (`"names::hard_links_are_one_inode"`), or all of a family (`"attrs"`).
    pub fn without(mut self, name: &str) -> Suite {
        self.without.push(name.to_owned());
        self
    }

    /// Runs them.
    ///
    /// # Panics
    /// If `make` does, or if [`without`](Self::without) named no case.
    pub fn run<F: FileSystem>(&self, mut make: impl FnMut() -> F) -> Report {
        let cases: Vec<_> = all::<F>().into_iter().filter(|case| self.has(case.0)).collect();
        for name in &self.without {
            let known = cases.iter().any(|(case, _)| is_named(case, name));
            assert!(known, "no case and no family is named {name}");
        }
        let mut report = Report::default();
        for (name, case) in cases {
            if self.without.iter().any(|left_out| is_named(name, left_out)) {
                report.left_out.push(name);
                continue;
            }
            let world = World::new(make());
            match in_a_thread(name, move || case(&world)) {
                Ok(()) => report.passed.push(name),
                Err(what) => report.failed.push(Failure { case: name, what }),
            }
        }
        report
    }

    fn has(&self, case: &str) -> bool {
        if self.read_only {
            case.starts_with("read::")
        } else {
            case != "read::changes_are_refused"
        }
    }
}

fn is_named(case: &str, name: &str) -> bool {
    case == name || case.split_once("::").is_some_and(|(family, _)| family == name)
}

fn in_a_thread(name: &str, case: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let result = std::panic::catch_unwind(AssertUnwindSafe(case));
        // Whoever asked may have lost patience.
        let _ = tell.send(result.map_err(|panic| message(&*panic)));
    });
    let thread = thread.map_err(|error| format!("no thread for it: {error}"))?;
    match told.recv_timeout(PATIENCE) {
        Ok(result) => {
            let _ = thread.join();
            result
        }
        Err(_) => Err(format!("has not ended after {} s", PATIENCE.as_secs())),
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "panicked".to_owned())
}

macro_rules! list {
    ($($family:ident { $($case:ident,)* })*) => {
        fn all<F: FileSystem>() -> Vec<(&'static str, Case<F>)> {
            vec![$($((
                concat!(stringify!($family), "::", stringify!($case)),
                cases::$family::$case::<F> as Case<F>,
            ),)*)*]
        }
    };
}

list! {
    read {
        root_is_a_directory,
        absent_names,
        identity,
        listing_agrees_with_lookup,
        listing_in_pieces,
        content_agrees_with_size,
        kinds_are_checked,
        many_at_once,
        changes_are_refused,
    }
    names {
        absent_name,
        create_then_look_up,
        create_refuses_an_existing_name,
        names_are_bytes,
        too_long_a_name,
        hard_links_are_one_inode,
        link_refuses_directories_and_dead_inodes,
        unlinked_but_open,
        unlink_and_rmdir_know_their_kinds,
        removed_directory_takes_no_names,
        symbolic_links,
        special_files,
        mode_is_exact,
    }
    renames {
        plain,
        over_a_file_that_is_open,
        to_another_directory,
        kinds_must_match,
        noreplace,
        exchange,
        exchange_of_directories,
        into_its_own_subtree,
        two_names_of_one_inode,
        bad_flags_change_nothing,
    }
    data {
        write_then_read,
        append_goes_to_the_end,
        truncate_on_open_is_seen_by_others,
        truncate_down_then_up_reads_zeros,
        read_only_mode_keeps_the_handle_writable,
        reads_past_the_end_are_empty,
        seek_data_and_hole,
        allocate_modes,
        copy_within_the_file_system,
        open_checks_kinds,
        flush_and_sync,
    }
    attrs {
        root_is_a_directory,
        times_follow_changes,
        times_are_set_and_omitted,
        owner_and_group_change_together,
        owner_change_clears_set_uid,
        set_gid_directory,
        created_as_the_caller,
        extended_attributes,
        extended_attribute_errors,
        statfs_tells_the_longest_name,
    }
    dirs {
        dots_and_kinds,
        small_pieces_lose_nothing,
        removing_while_reading,
        adding_while_reading,
        resume_at_a_told_cookie,
        two_readers,
        link_counts,
    }
}
