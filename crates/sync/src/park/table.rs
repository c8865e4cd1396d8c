//! One table of all who sleep, each with a condition variable of its own.
//!
//! For models, and for systems whose wait call we do not use. Compares and enqueues in one step
//! under the table's lock: a waker changes the word, then takes that lock, so a sleeper that comes
//! later sees the change.

use super::Sleep;
use std::sync::Arc;
use std::time::Instant;

#[cfg(loom)]
use loom::sync::{Condvar, Mutex};
#[cfg(shuttle)]
use shuttle::sync::{Condvar, Mutex};
#[cfg(not(any(loom, shuttle)))]
use std::sync::{Condvar, Mutex};

/// `Arc` is not the model's: a deadlock that the model reports unwinds through the sleepers, and no
/// word of theirs may take part.
struct Sleeper {
    address: usize,
    ticket: u64,
    bell: Arc<Condvar>,
}

struct Table {
    tickets: u64,
    sleepers: Vec<Sleeper>,
}

impl Table {
    const EMPTY: Table = Table { tickets: 0, sleepers: Vec::new() };

    fn push(&mut self, address: *const u32) -> (u64, Arc<Condvar>) {
        self.tickets += 1;
        let bell = Arc::new(Condvar::new());
        let (address, ticket) = (address.addr(), self.tickets);
        self.sleepers.push(Sleeper { address, ticket, bell: bell.clone() });
        (ticket, bell)
    }

    fn place_of(&self, ticket: u64) -> Option<usize> {
        self.sleepers.iter().position(|s| s.ticket == ticket)
    }

    /// Ends a sleep with a deadline: who is no longer in the table was woken.
    fn leave(&mut self, ticket: u64) -> Sleep {
        match self.place_of(ticket) {
            Some(at) => {
                self.sleepers.remove(at);
                Sleep::TimedOut
            }
            None => Sleep::Over,
        }
    }
}

#[cfg(loom)]
loom::lazy_static! {
    static ref TABLE: Mutex<Table> = Mutex::new(Table::EMPTY);
}
#[cfg(shuttle)]
shuttle::lazy_static! {
    static ref TABLE: Mutex<Table> = Mutex::new(Table::EMPTY);
}
#[cfg(not(any(loom, shuttle)))]
static TABLE: Mutex<Table> = Mutex::new(Table::EMPTY);

pub(super) fn park(address: *const u32, _: u32, still_expected: impl Fn() -> bool) {
    let mut table = TABLE.lock().unwrap();
    if !still_expected() {
        return;
    }
    let (ticket, bell) = table.push(address);
    while table.place_of(ticket).is_some() {
        table = bell.wait(table).unwrap();
    }
}

#[cfg(not(any(loom, shuttle)))]
pub(super) fn park_until(
    address: *const u32,
    _: u32,
    still_expected: impl Fn() -> bool,
    deadline: Instant,
) -> Sleep {
    let mut table = TABLE.lock().unwrap();
    if !still_expected() {
        return Sleep::Over;
    }
    let (ticket, bell) = table.push(address);
    while table.place_of(ticket).is_some() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        table = bell.wait_timeout(table, left).unwrap().0;
    }
    table.leave(ticket)
}

/// The deadline passes as soon as the model lets us run again, unless a waker took us off the table
/// first.
#[cfg(any(loom, shuttle))]
pub(super) fn park_until(
    address: *const u32,
    _: u32,
    still_expected: impl Fn() -> bool,
    _: Instant,
) -> Sleep {
    let mut table = TABLE.lock().unwrap();
    if !still_expected() {
        return Sleep::Over;
    }
    let (ticket, _) = table.push(address);
    drop(table);
    crate::prim::yield_now();
    TABLE.lock().unwrap().leave(ticket)
}

pub(super) fn wake(address: *const u32, n: u32) {
    let mut table = TABLE.lock().unwrap();
    for _ in 0..n {
        let Some(at) = table.sleepers.iter().position(|s| s.address == address.addr()) else {
            break;
        };
        table.sleepers.remove(at).bell.notify_one();
    }
}
