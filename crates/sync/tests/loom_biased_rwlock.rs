//! `BiasedRwLock` under every schedule of the smallest cases: a reader who leaves a note against a
//! writer who takes the bias.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom_biased_rwlock`
#![cfg(loom)]

mod loom_common;

use loom::cell::UnsafeCell;
use loom::thread;
use loom_common::check;
use vfscale_sync::biased_rwlock::{BiasedRwLock, Row, model};

/// A value that loom watches: it fails when two accesses are not ordered.
struct Watched(UnsafeCell<u32>);

// SAFETY: the model's question: the lock orders all accesses.
unsafe impl Sync for Watched {}

struct World {
    lock: BiasedRwLock<Watched>,
    /// Of the main thread and of the other reader.
    rows: [&'static Row; 2],
}

/// Leaked, like the rows of a process: guards go from thread to thread.
fn new_world() -> &'static World {
    let row = || &*Box::leak(Box::new(Row::new()));
    let rows = [row(), row()];
    Box::leak(Box::new(World { lock: BiasedRwLock::new(Watched(UnsafeCell::new(0))), rows }))
}

impl World {
    fn read(&self, reader: usize) -> u32 {
        let guard = model::read_by(&self.lock, self.rows[reader]);
        // SAFETY: locked shared; loom fails if it is not so.
        guard.0.with(|value| unsafe { *value })
    }

    fn write(&self) {
        let guard = model::write_past(&self.lock, &self.rows);
        // SAFETY: locked exclusively; loom fails if it is not so.
        guard.0.with_mut(|value| unsafe { *value += 1 });
    }
}

impl World {
    fn try_write(&self) -> bool {
        let guard = model::try_write_past(&self.lock, &self.rows);
        // SAFETY: locked exclusively; loom fails if it is not so.
        guard.as_ref().map(|guard| guard.0.with_mut(|value| unsafe { *value += 1 })).is_some()
    }
}

fn spawn(world: &'static World, f: fn(&World)) -> thread::JoinHandle<()> {
    thread::spawn(move || f(world))
}

/// BR-1, BR-3: the bias is there, a reader comes while a writer takes it.
#[test]
fn a_note_and_a_revocation() {
    check("a_note_and_a_revocation", Some(3), || {
        let world = new_world();
        // Gives the bias.
        assert_eq!(world.read(0), 0);
        let writer = spawn(world, World::write);
        assert!(world.read(0) <= 1);
        writer.join().unwrap();
        assert_eq!(world.read(0), 1);
    });
}

/// BR-2: a writer comes and goes, a reader gives the bias, another one uses it.
#[test]
fn a_bias_that_comes_back() {
    check("a_bias_that_comes_back", Some(2), || {
        let world = new_world();
        let writer = spawn(world, World::write);
        let reader = spawn(world, |world| assert!(world.read(1) <= 1));
        let first = world.read(0);
        let second = world.read(0);
        assert!(first <= second && second <= 1);
        writer.join().unwrap();
        reader.join().unwrap();
    });
}

/// BR-3: a slot is used again, and a writer finds it empty.
#[test]
fn a_slot_is_used_twice() {
    check("a_slot_is_used_twice", Some(3), || {
        let world = new_world();
        assert_eq!(world.read(0), 0);
        let writer = spawn(world, World::write);
        assert!(world.read(0) <= world.read(0));
        writer.join().unwrap();
    });
}

/// BR-3: the guard goes to another thread, which drops it.
#[test]
fn a_guard_is_dropped_elsewhere() {
    check("a_guard_is_dropped_elsewhere", Some(3), || {
        let world = new_world();
        assert_eq!(world.read(0), 0);
        let writer = spawn(world, World::write);
        let guard = model::read_by(&world.lock, world.rows[0]);
        // SAFETY: locked shared; loom fails if it is not so.
        guard.0.with(|value| unsafe { assert!(*value <= 1) });
        let other = thread::spawn(move || drop(guard));
        // Its slot may be free again, and is ours to use.
        assert!(world.read(0) <= 1);
        writer.join().unwrap();
        other.join().unwrap();
    });
}

/// BR-2, BR-3: who only tries takes the bias, finds a note, and gives the bias back; or finds none and writes.
#[test]
fn a_note_and_a_try() {
    check("a_note_and_a_try", Some(3), || {
        let world = new_world();
        // Gives the bias.
        assert_eq!(world.read(0), 0);
        let writer = spawn(world, |world| drop(world.try_write()));
        assert!(world.read(0) <= 1);
        writer.join().unwrap();
        // Nobody is in: neither the lock nor the bias is lost.
        let before = world.read(0);
        assert!(world.try_write());
        assert_eq!(world.read(1), before + 1);
    });
}
