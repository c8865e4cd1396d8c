//! What the core expects of every backend, run against each of ours.
//!
//! A case is a function over any [`vfscale::FileSystem`]; the list below turns it into one test for
//! each backend.

mod cases;
mod support;

use support::World;
use vfscale_backends::{HostFs, HostOptions, MemFs};

/// A host directory of its own for each test. The directory goes after the world.
fn host(options: HostOptions, case: fn(&World<HostFs>)) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    case(&World::new(HostFs::new(dir.path(), options).expect("the backend")));
}

/// As without the right to open file handles, and with so few descriptors that most objects are
/// reopened all the time.
const BY_NAME: HostOptions =
    HostOptions { fd_limit: Some(3), act_as_caller: true, read_only: false, file_handles: false };

macro_rules! conformance {
    ($($family:ident { $($case:ident,)* })*) => {
        mod mem {
            $($(#[test] fn $case() {
                crate::cases::$family::$case(&crate::World::new(crate::MemFs::new()));
            })*)*
        }
        mod host {
            $($(#[test] fn $case() {
                crate::host(Default::default(), crate::cases::$family::$case);
            })*)*
        }
        mod host_by_name {
            $($(#[test] fn $case() {
                crate::host(crate::BY_NAME, crate::cases::$family::$case);
            })*)*
        }
    };
}

conformance! {
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
        resume_at_a_told_cookie,
        two_readers,
        link_counts,
    }
}
