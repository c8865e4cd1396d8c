//! Reading a directory of the host.
//!
//! The cookie of an entry is the host's own (`d_off`), so a listing can go on anywhere, and in
//! another opening too. Entries are read in blocks; what a caller did not take of a block waits in
//! the stream for whoever asks with the fitting cookie.
//!
//! The number of an entry is that of an object on the directory's device, made as its attributes
//! have it. A name that something is mounted on is listed with the number of what the mount covers,
//! as on the host.
//!
//! The lock covers moving the descriptor and reading one block. Entries are handed out after it,
//! since the receiver may come back to this file system.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use rustix::fs::SeekFrom;
use vfscale::{DirEntry, FileType, Result};

use super::stat::{Device, Home};
use super::{retry, sys};
use crate::locks::lock;

/// Bytes of a block. The host fills it in one go, under its own lock of the directory.
const BLOCK_BYTES: usize = 32 * 1024;

/// Where the parts of the kernel's `struct linux_dirent64` lie.
const OFF_NEXT: usize = 8;
const OFF_LEN: usize = 16;
const OFF_KIND: usize = 18;
const OFF_NAME: usize = 19;

#[derive(Debug)]
pub(super) struct Stream {
    device: Device,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The cookie at which the descriptor stands.
    position: u64,
    spare: Block,
}

/// Some entries as the kernel wrote them.
#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    /// What is used of `bytes`.
    len: usize,
    /// The cookie before the entry at `start`.
    cookie: u64,
    start: usize,
}

impl Stream {
    /// Of a directory on this device.
    pub(super) fn new(device: Device) -> Stream {
        Stream { device, state: Mutex::default() }
    }

    pub(super) fn read(
        &self,
        home: &Home,
        fd: &OwnedFd,
        mut cookie: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut block = self.block_at(fd, cookie)?;
        loop {
            while let Some((entry, behind)) = block.entry() {
                let next = entry.next;
                let entry = DirEntry { ino: home.number(entry.ino, self.device), ..entry };
                if emit(entry).is_break() {
                    lock(&self.state).spare = block;
                    return Ok(());
                }
                (block.start, block.cookie, cookie) = (behind, next, next);
            }
            if block.len == 0 {
                return Ok(());
            }
            block = self.next_block(fd, cookie, block.bytes)?;
        }
    }

    /// The block that was left over, if it goes on at `cookie`, or one read from there. From the
    /// start it is always read: a listing that begins anew wants to see what is there now.
    fn block_at(&self, fd: &OwnedFd, cookie: u64) -> Result<Block> {
        let mut spare = std::mem::take(&mut lock(&self.state).spare);
        if cookie != 0 && spare.skip_to(cookie) {
            return Ok(spare);
        }
        self.next_block(fd, cookie, spare.bytes)
    }

    fn next_block(&self, fd: &OwnedFd, cookie: u64, mut bytes: Vec<u8>) -> Result<Block> {
        bytes.resize(BLOCK_BYTES, 0);
        let mut state = lock(&self.state);
        if state.position != cookie || cookie == 0 {
            // `SeekFrom::Start` takes the cookie as it is, with all its 64 bits.
            retry(|| rustix::fs::seek(fd, SeekFrom::Start(cookie)))?;
            state.position = cookie;
        }
        let len = sys::getdents(fd, &mut bytes)?;
        let block = Block { bytes, len, cookie, start: 0 };
        state.position = block.last_cookie();
        Ok(block)
    }
}

impl Block {
    /// The entry at `start`, and where the next one starts.
    fn entry(&self) -> Option<(DirEntry<'_>, usize)> {
        parse(&self.bytes[..self.len], self.start)
    }

    /// Moves to behind the entry with this cookie; `false` if the block does not have it.
    fn skip_to(&mut self, cookie: u64) -> bool {
        while self.cookie != cookie {
            let Some((entry, behind)) = self.entry() else { return false };
            (self.cookie, self.start) = (entry.next, behind);
        }
        self.start < self.len
    }

    fn last_cookie(&self) -> u64 {
        let (mut at, mut cookie) = (self.start, self.cookie);
        while let Some((entry, behind)) = parse(&self.bytes[..self.len], at) {
            (at, cookie) = (behind, entry.next);
        }
        cookie
    }
}

/// Reads one entry. `None` at the end, and for bytes that are no entry.
fn parse(bytes: &[u8], at: usize) -> Option<(DirEntry<'_>, usize)> {
    let entry = bytes.get(at..)?;
    let ino = u64::from_ne_bytes(entry.get(..8)?.try_into().ok()?);
    let next = u64::from_ne_bytes(entry.get(OFF_NEXT..OFF_NEXT + 8)?.try_into().ok()?);
    let len = u16::from_ne_bytes(entry.get(OFF_LEN..OFF_LEN + 2)?.try_into().ok()?) as usize;
    let kind = FileType::from_dirent(*entry.get(OFF_KIND)?);
    let name = entry.get(OFF_NAME..len)?.split(|&b| b == 0).next()?;
    Some((DirEntry { name, ino, kind, next }, at + len))
}
