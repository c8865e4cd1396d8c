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
use vfscale_sync::QRwLock;

/// A value that loom watches: it fails when two accesses are not ordered.
struct Watched(UnsafeCell<u32>);

// SAFETY: the model's question: the lock orders all accesses.
unsafe impl Sync for Watched {}

type Lock = Arc<QRwLock<Watched>>;

fn new_lock() -> Lock {
    Arc::new(QRwLock::new(Watched(UnsafeCell::new(0))))
}

fn read(lock: &Lock) -> u32 {
    let guard = lock.read();
    // SAFETY: locked shared; loom fails if it is not so.
    guard.0.with(|value| unsafe { *value })
}

fn write(lock: &Lock) {
    let guard = lock.write();
    // SAFETY: locked exclusively; loom fails if it is not so.
    guard.0.with_mut(|value| unsafe { *value += 1 });
}

fn spawn(lock: &Lock, f: fn(&Lock)) -> thread::JoinHandle<()> {
    let lock = lock.clone();
    thread::spawn(move || f(&lock))
}

/// QR-1, QR-2 and the parking of a head, either kind.
#[test]
fn a_reader_and_a_writer() {
    check("a_reader_and_a_writer", None, || {
        let lock = new_lock();
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
        let lock = new_lock();
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
        let lock = new_lock();
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
        let lock = new_lock();
        let writer = spawn(&lock, write);
        let reader = spawn(&lock, |lock| assert!(read(lock) <= 2));
        write(&lock);
        writer.join().unwrap();
        reader.join().unwrap();
        assert_eq!(read(&lock), 2);
        assert!(!lock.is_contended());
    });
}
