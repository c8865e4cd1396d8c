//! `QRwLock` under every schedule of the smallest cases. A lost wake-up is a deadlock, which loom
//! reports.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom_qrwlock`
#![cfg(loom)]

mod loom_common;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use loom_common::check;
use std::time::Instant;
use vfscale_sync::{Announce, ByteCas, OrBit, QRwLock, QRwLockWriteGuard, WordCas};

/// A value that loom watches: it fails when two accesses are not ordered.
struct Watched(UnsafeCell<u32>);

// SAFETY: the model's question: the lock orders all accesses.
unsafe impl Sync for Watched {}

type Lock<S = OrBit> = Arc<QRwLock<Watched, S>>;

fn new_lock<S: Announce>() -> Lock<S> {
    Arc::new(QRwLock::with_announce(Watched(UnsafeCell::new(0))))
}

fn look(value: &Watched) -> u32 {
    // SAFETY: locked shared; loom fails if it is not so.
    value.0.with(|value| unsafe { *value })
}

fn add(value: &Watched) {
    // SAFETY: locked exclusively; loom fails if it is not so.
    value.0.with_mut(|value| unsafe { *value += 1 });
}

fn read<S: Announce>(lock: &Lock<S>) -> u32 {
    look(&lock.read())
}

fn write<S: Announce>(lock: &Lock<S>) {
    add(&lock.write());
}

fn spawn<S: Announce, R: 'static>(
    lock: &Lock<S>,
    f: impl FnOnce(&Lock<S>) -> R + 'static,
) -> thread::JoinHandle<R> {
    let lock = lock.clone();
    thread::spawn(move || f(&lock))
}

/// QR-1, QR-2 and the parking of a head, either kind.
#[test]
fn a_reader_and_a_writer() {
    check("a_reader_and_a_writer", None, || {
        let lock: Lock = new_lock();
        let writer = spawn(&lock, write);
        assert!(read(&lock) <= 1);
        writer.join().unwrap();
        assert_eq!(read(&lock), 1);
    });
}

/// Two writers and the queue between them.
#[test]
fn two_writers() {
    check("two_writers", None, || {
        let lock: Lock = new_lock();
        let other = spawn(&lock, write);
        write(&lock);
        other.join().unwrap();
        assert_eq!(read(&lock), 2);
    });
}

/// A holder that reads, a writer that waits, a reader that comes late.
#[test]
fn a_reader_a_waiting_writer_and_a_late_reader() {
    check("a_reader_a_waiting_writer_and_a_late_reader", Some(3), || {
        let lock: Lock = new_lock();
        let writer = spawn(&lock, write);
        let late = spawn(&lock, |lock| assert!(read(lock) <= 1));
        assert!(read(&lock) <= 1);
        writer.join().unwrap();
        late.join().unwrap();
        assert_eq!(read(&lock), 1);
    });
}

/// Two writers and a reader: the place at the head is handed on.
#[test]
fn two_writers_and_a_reader() {
    check("two_writers_and_a_reader", Some(3), || {
        let lock: Lock = new_lock();
        let writer = spawn(&lock, write);
        let reader = spawn(&lock, |lock| assert!(read(lock) <= 2));
        write(&lock);
        writer.join().unwrap();
        reader.join().unwrap();
        assert_eq!(read(&lock), 2);
        assert!(!lock.is_contended());
    });
}

/// The forms of before 2017, which no fast writer disturbs here.
#[test]
fn a_reader_and_a_writer_with_the_older_forms() {
    fn race<S: Announce>() {
        let lock: Lock<S> = new_lock();
        let writer = spawn(&lock, write);
        let reader = spawn(&lock, |lock| assert!(read(lock) <= 2));
        write(&lock);
        writer.join().unwrap();
        reader.join().unwrap();
        assert_eq!(read(&lock), 2);
    }
    check("a_reader_and_a_writer, by byte", Some(2), race::<ByteCas>);
    check("a_reader_and_a_writer, by word", Some(2), race::<WordCas>);
}

/// A writer goes on as a reader, and its writes are there for who reads beside it.
#[test]
fn a_downgrade_beside_a_reader() {
    check("a_downgrade_beside_a_reader", None, || {
        let lock: Lock = new_lock();
        let reader = spawn(&lock, |lock| assert!(read(lock) <= 1));
        let guard = lock.write();
        add(&guard);
        let guard = QRwLockWriteGuard::downgrade(guard);
        assert_eq!(look(&guard), 1);
        drop(guard);
        reader.join().unwrap();
    });
}

/// A writer goes on as a reader while another writer waits.
#[test]
fn a_downgrade_before_a_writer() {
    check("a_downgrade_before_a_writer", Some(3), || {
        let lock: Lock = new_lock();
        let writer = spawn(&lock, write);
        let guard = lock.write();
        add(&guard);
        let guard = QRwLockWriteGuard::downgrade(guard);
        assert!(look(&guard) >= 1);
        drop(guard);
        writer.join().unwrap();
        assert_eq!(read(&lock), 2);
    });
}

/// R2.3: a second read past a writer who waits for the first.
#[test]
fn a_nested_reader_passes_a_waiting_writer() {
    check("a_nested_reader_passes_a_waiting_writer", Some(4), || {
        let lock: Lock = new_lock();
        let writer = spawn(&lock, write);
        let outer = lock.read();
        let inner = lock.read_nested();
        assert_eq!(look(&outer), look(&inner));
        drop(outer);
        drop(inner);
        writer.join().unwrap();
        assert_eq!(read(&lock), 1);
    });
}

/// A nested reader and the head of the queue sleep at one gate.
#[test]
fn a_nested_reader_and_a_head_wait_for_a_holder() {
    check("a_nested_reader_and_a_head_wait_for_a_holder", Some(3), || {
        let lock: Lock = new_lock();
        let nested = spawn(&lock, |lock| assert!(look(&lock.read_nested()) <= 2));
        let writer = spawn(&lock, write);
        write(&lock);
        nested.join().unwrap();
        writer.join().unwrap();
        assert_eq!(read(&lock), 2);
    });
}

/// A writer that does not queue takes the lock while a head sleeps, and has to wake it.
#[test]
fn a_writer_that_tries_while_the_head_sleeps() {
    check("a_writer_that_tries_while_the_head_sleeps", None, || {
        let lock: Lock = new_lock();
        let reader = spawn(&lock, |lock| assert!(read(lock) <= 2));
        write(&lock);
        if let Some(guard) = lock.try_write() {
            add(&guard);
        }
        reader.join().unwrap();
        assert!(read(&lock) >= 1);
    });
}

/// MQ-4. The deadline passes at any moment: at the head, behind it, or as the turn comes.
#[test]
fn a_writer_gives_up() {
    check("a_writer_gives_up", Some(3), || {
        let lock: Lock = new_lock();
        let hurried = spawn(&lock, |lock| {
            let guard = lock.try_write_until(Instant::now());
            guard.map_or(0, |guard| {
                add(&guard);
                1
            })
        });
        let writer = spawn(&lock, write);
        write(&lock);
        writer.join().unwrap();
        let written = hurried.join().unwrap();
        assert_eq!(read(&lock), 2 + written);
        assert!(!lock.is_contended());
    });
}

/// A head that gives up takes back what it announced.
#[test]
fn a_head_gives_up() {
    check("a_head_gives_up", None, || {
        let lock: Lock = new_lock();
        let hurried = spawn(&lock, |lock| {
            if let Some(guard) = lock.try_write_until(Instant::now()) {
                add(&guard);
            }
        });
        let guard = lock.read();
        let _ = look(&guard);
        drop(guard);
        hurried.join().unwrap();
        assert!(lock.try_read().is_some(), "nobody waits any more");
    });
}

/// A reader gives up, at the head or behind a writer.
#[test]
fn a_reader_gives_up() {
    check("a_reader_gives_up", Some(3), || {
        let lock: Lock = new_lock();
        let hurried = spawn(&lock, |lock| {
            if let Some(guard) = lock.try_read_until(Instant::now()) {
                assert!(look(&guard) <= 2);
            }
        });
        let writer = spawn(&lock, write);
        write(&lock);
        writer.join().unwrap();
        hurried.join().unwrap();
        assert!(lock.try_write().is_some());
    });
}
