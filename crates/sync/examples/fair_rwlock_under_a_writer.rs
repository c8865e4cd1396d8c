//! How long readers and a writer wait for a lock that the writer wants again as soon as it has left.
//!
//! `QRwLock` serves whoever queues in turn, so one side waits for a turn of the other and no longer; with fewer processors
//! than threads, for the other to get a processor, too. What the standard library's lock does is up to the system: look at
//! how often its readers had a turn, and at their longest wait.
//!
//! `cargo run --release -p vfscale-sync --example fair_rwlock_under_a_writer`

use std::hint::spin_loop;
use std::ops::Deref;
use std::sync::RwLock;
use std::thread;
use std::time::{Duration, Instant};

use vfscale_sync::QRwLock;

const READERS: usize = 3;
const CONTEST: Duration = Duration::from_millis(500);
const READING: Duration = Duration::from_micros(5);
const WRITING: Duration = Duration::from_micros(50);

/// What both locks can do.
trait Lock: Sync {
    fn read(&self) -> impl Deref<Target = u64>;
    fn write(&self) -> impl Deref<Target = u64>;
}

impl Lock for RwLock<u64> {
    fn read(&self) -> impl Deref<Target = u64> {
        self.read().unwrap()
    }

    fn write(&self) -> impl Deref<Target = u64> {
        let mut guard = self.write().unwrap();
        *guard += 1;
        guard
    }
}

impl Lock for QRwLock<u64> {
    fn read(&self) -> impl Deref<Target = u64> {
        self.read()
    }

    fn write(&self) -> impl Deref<Target = u64> {
        let mut guard = self.write();
        *guard += 1;
        guard
    }
}

/// Takes the lock again and again and holds it for `hold`; answers how long it waited each time, shortest first.
fn take_turns<G>(take: impl Fn() -> G, hold: Duration) -> Vec<Duration> {
    let begin = Instant::now();
    let mut waits = Vec::new();
    while begin.elapsed() < CONTEST {
        let asked = Instant::now();
        let guard = take();
        let taken = Instant::now();
        waits.push(taken - asked);
        while taken.elapsed() < hold {
            spin_loop();
        }
        drop(guard);
    }
    waits.sort();
    waits
}

fn contest(name: &str, lock: &impl Lock) {
    thread::scope(|scope| {
        let reader = || take_turns(|| lock.read(), READING);
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(reader)).collect();
        let writer = scope.spawn(|| take_turns(|| lock.write(), WRITING));
        let mut waits: Vec<_> =
            readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect();
        waits.sort();
        report(name, "readers", &waits);
        let waits = writer.join().unwrap();
        report("", "the writer", &waits);
        assert_eq!(*lock.read(), waits.len() as u64, "every write is there");
    });
}

fn report(lock: &str, who: &str, waits: &[Duration]) {
    let at = |percent: usize| waits[(waits.len() - 1) * percent / 100];
    println!(
        "{lock:<18} {who:<11} {:>8} {:>11.1?} {:>11.1?} {:>11.1?}",
        waits.len(),
        at(50),
        at(99),
        at(100)
    );
}

fn main() {
    println!(
        "{READERS} readers of {READING:?}, one writer of {WRITING:?}, for {CONTEST:?}; how long they waited:\n"
    );
    println!(
        "{:<18} {:<11} {:>8} {:>11} {:>11} {:>11}",
        "lock", "who", "turns", "half below", "99 % below", "longest"
    );
    contest("QRwLock", &QRwLock::new(0));
    contest("std::sync::RwLock", &RwLock::new(0));
}
