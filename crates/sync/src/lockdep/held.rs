//! Which locks the running thread holds.
//!
//! # Who writes
//! `HELD`: its thread. A guard may be dropped by another thread than took the lock; that one cannot reach the list, and
//! leaves the lock's address in `GIVEN_BACK`, from which the first thread takes it when it looks next.

use core::cell::{Cell, RefCell};
use core::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Mode;
use super::graph;

/// One hold.
#[derive(Clone, Copy)]
pub(super) struct Hold {
    pub(super) address: usize,
    pub(super) class: u32,
    pub(super) mode: Mode,
    pub(super) place: &'static Location<'static>,
    since: Instant,
}

thread_local! {
    static HELD: RefCell<Vec<Hold>> = const { RefCell::new(Vec::new()) };
    static CONTENDED: Cell<bool> = const { Cell::new(false) };
}

/// Locks that were given back by another thread than took them.
static GIVEN_BACK: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// How many they are: none, almost always.
static GIVEN_BACK_COUNT: AtomicUsize = AtomicUsize::new(0);

pub(super) fn note_contended(contended: bool) {
    let _ = CONTENDED.try_with(|flag| flag.set(contended));
}

pub(super) fn was_contended() -> bool {
    CONTENDED.try_with(Cell::get).unwrap_or(false)
}

/// Reports what is wrong with taking this lock now.
pub(super) fn check(address: usize, class: u32, mode: Mode, place: &'static Location<'static>) {
    let Ok(held) = HELD.try_with(|held| {
        let mut held = held.borrow_mut();
        drop_given_back(&mut held);
        held.clone()
    }) else {
        return;
    };
    for hold in &held {
        if hold.address == address {
            let allowed = mode == Mode::Nested && hold.mode != Mode::Exclusive;
            if !allowed {
                graph::complain(&graph::taken_twice(hold, mode, place));
            }
        } else if hold.class != class {
            graph::order(hold, class, place);
        }
    }
}

pub(super) fn push(
    address: usize,
    class: u32,
    mode: Mode,
    place: &'static Location<'static>,
    waited: Option<Duration>,
) {
    graph::note_taken(class, waited);
    let hold = Hold { address, class, mode, place, since: Instant::now() };
    let _ = HELD.try_with(|held| held.borrow_mut().push(hold));
}

pub(super) fn pop(address: usize) {
    let found = HELD.try_with(|held| {
        let mut held = held.borrow_mut();
        let at = held.iter().rposition(|hold| hold.address == address)?;
        Some(held.remove(at))
    });
    match found {
        Ok(Some(hold)) => graph::note_given_back(hold.class, hold.since.elapsed()),
        // Its guard was sent here, or the thread is ending.
        Ok(None) | Err(_) => {
            let mut given_back = GIVEN_BACK.lock().unwrap_or_else(PoisonError::into_inner);
            given_back.push(address);
            GIVEN_BACK_COUNT.store(given_back.len(), Relaxed);
        }
    }
}

/// Takes out what another thread has given back for us.
fn drop_given_back(held: &mut Vec<Hold>) {
    if held.is_empty() || GIVEN_BACK_COUNT.load(Relaxed) == 0 {
        return;
    }
    let mut given_back = GIVEN_BACK.lock().unwrap_or_else(PoisonError::into_inner);
    held.retain(|hold| {
        let at = given_back.iter().position(|address| *address == hold.address);
        at.map(|at| given_back.swap_remove(at)).is_none()
    });
    GIVEN_BACK_COUNT.store(given_back.len(), Relaxed);
}
