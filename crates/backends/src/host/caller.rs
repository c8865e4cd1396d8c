//! Acting as the caller while something is created.
//!
//! # What and why
//! What is created belongs to the caller, in a set-group-id directory to that directory's group,
//! and may carry set-group-id only if the caller is in the group. The kernel gets all of this right
//! if the thread that creates has the caller's ids. To create as the super-user and hand over later
//! would leave a moment with the wrong owner.
//!
//! # Rights
//! Whether the caller *may* was decided by the front end, with groups that we do not know. With a
//! user id that is not 0 the kernel takes the file-system capabilities from the thread, so those
//! that would decide again are raised anew: overriding permissions, and making device nodes. Not
//! raised is the one that would let a caller keep set-group-id for a group that is not its own.
//!
//! # Restoring
//! [`Acting`] belongs to its thread and puts back everything when dropped, on a panic too. A thread
//! may always go back to one of its real, effective or saved ids; should it fail all the same, the
//! process ends, since the thread would serve the next caller as the last one.

use std::marker::PhantomData;

use rustix::process::{Gid, getgroups};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_groups,
};
use vfscale::{Context, Errno, Result};

use super::sys::{FsId, set_fs_id};

const S_ISGID: u32 = 0o2000;

/// Who the server itself is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    uid: u32,
    gid: u32,
    may_switch: bool,
}

/// The calling thread acts as a caller until this is dropped.
#[derive(Debug)]
pub(super) struct Acting {
    caps: Option<CapabilitySets>,
    groups: Option<Vec<Gid>>,
    uid: Option<u32>,
    gid: Option<u32>,
    /// Credentials are the thread's: to restore on another would be worse than nothing.
    _this_thread: PhantomData<*const ()>,
}

impl Server {
    /// `act_as_caller` is honoured if this process may take on other ids; otherwise everything
    /// belongs to the server.
    pub(super) fn new(act_as_caller: bool) -> Server {
        let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
        let may = capabilities(None).is_ok_and(|caps| caps.effective.contains(needed));
        Server {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            may_switch: may && act_as_caller,
        }
    }

    /// Becomes the caller to create something with these mode bits.
    pub(super) fn act_as(&self, cx: &Context, mode: u32) -> Result<Acting> {
        let mut acting =
            Acting { caps: None, groups: None, uid: None, gid: None, _this_thread: PhantomData };
        if !self.may_switch {
            return Ok(acting);
        }
        if cx.uid == u32::MAX || cx.gid == u32::MAX {
            return Err(Errno::EINVAL);
        }
        if cx.uid == self.uid && cx.gid == self.gid {
            return Ok(acting);
        }
        // Each step notes what is to be undone before the next one can fail.
        if mode & S_ISGID != 0 {
            let own = getgroups().map_err(std::io::Error::from)?;
            set_thread_groups(&groups_of(cx)).map_err(std::io::Error::from)?;
            acting.groups = Some(own);
        }
        if cx.gid != self.gid {
            acting.gid = Some(self.gid);
            set_fs_id(FsId::Group, cx.gid)?;
        }
        if cx.uid != self.uid {
            let own = capabilities(None).map_err(std::io::Error::from)?;
            acting.uid = Some(self.uid);
            acting.caps = Some(own);
            set_fs_id(FsId::User, cx.uid)?;
            raise(own)?;
        }
        Ok(acting)
    }
}

/// Raises what the change of the user id took and creating needs, out of what the server itself
/// had.
fn raise(own: CapabilitySets) -> Result<()> {
    let now = capabilities(None).map_err(std::io::Error::from)?;
    let needed =
        CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH | CapabilitySet::MKNOD;
    let effective = now.effective | (own.effective & needed);
    Ok(set_capabilities(None, CapabilitySets { effective, ..now }).map_err(std::io::Error::from)?)
}

impl Drop for Acting {
    fn drop(&mut self) {
        if let Some(uid) = self.uid {
            restored("user id", set_fs_id(FsId::User, uid));
        }
        if let Some(caps) = self.caps {
            restored("capabilities", set_capabilities(None, caps));
        }
        if let Some(gid) = self.gid {
            restored("group id", set_fs_id(FsId::Group, gid));
        }
        if let Some(groups) = &self.groups {
            restored("groups", set_thread_groups(groups));
        }
    }
}

fn restored<E: std::fmt::Display>(what: &str, result: std::result::Result<(), E>) {
    if let Err(error) = result {
        eprintln!("vfscale: the server's {what} did not come back ({error}); ending");
        std::process::abort();
    }
}

/// The caller's supplementary groups: told, or read from its process, or none.
fn groups_of(cx: &Context) -> Vec<Gid> {
    let ids = match &cx.groups {
        Some(groups) => groups.clone(),
        None if cx.pid != 0 => groups_of_process(cx.pid).unwrap_or_default(),
        None => Vec::new(),
    };
    ids.into_iter().filter(|&id| id != u32::MAX).map(Gid::from_raw).collect()
}

fn groups_of_process(pid: u32) -> Option<Vec<u32>> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"))?;
    line.split_ascii_whitespace().map(|id| id.parse().ok()).collect()
}

#[cfg(test)]
#[path = "caller_tests.rs"]
mod tests;
