//! The crate without the standard library, in a program that brings its own way to sleep.
//!
//! `cargo test -p vfscale-sync --no-default-features`
#![cfg(not(any(feature = "std", loom, shuttle)))]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;
use vfscale_sync::wait::{self, Parker, WaitWord, set_parker};
use vfscale_sync::{LockRef, Put, QRwLock};

/// What an RTOS would build on its wait queues: here one queue for all, of tickets per address.
struct Queues {
    /// Address -> how many sleep there, and how many of them have been woken.
    sleepers: Mutex<Option<HashMap<usize, (u32, u32)>>>,
    bell: Condvar,
    slept: AtomicU64,
    relaxed: AtomicU64,
}

impl Parker for Queues {
    fn park(&self, address: usize, still: &dyn Fn() -> bool) {
        let mut sleepers = self.sleepers.lock().unwrap();
        if !still() {
            return;
        }
        self.slept.fetch_add(1, Ordering::Relaxed);
        sleepers.get_or_insert_default().entry(address).or_default().0 += 1;
        loop {
            let queue = sleepers.get_or_insert_default().entry(address).or_default();
            if queue.1 > 0 {
                queue.0 -= 1;
                queue.1 -= 1;
                return;
            }
            sleepers = self.bell.wait(sleepers).unwrap();
        }
    }

    fn wake(&self, address: usize, n: u32) {
        if let Some(queue) = self.sleepers.lock().unwrap().get_or_insert_default().get_mut(&address)
        {
            queue.1 = queue.1.saturating_add(n).min(queue.0);
            self.bell.notify_all();
        }
    }

    fn relax(&self) {
        self.relaxed.fetch_add(1, Ordering::Relaxed);
        thread::yield_now();
    }
}

static QUEUES: Queues = Queues {
    sleepers: Mutex::new(None),
    bell: Condvar::new(),
    slept: AtomicU64::new(0),
    relaxed: AtomicU64::new(0),
};

/// One test, since the parker is the program's: more threads than processors on each sleeping
/// primitive, holders that keep the lock so that the others do sleep.
#[test]
fn threads_sleep_with_the_programs_parker_and_all_wake() {
    set_parker(&QUEUES);

    let refs = LockRef::new(1, 0_u32);
    let value = QRwLock::new(0_u32);
    let flag = WaitWord::new(0);
    thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                for round in 0..50 {
                    let mut guard = refs.lock();
                    *guard += 1;
                    if round % 10 == 0 {
                        thread::sleep(Duration::from_micros(300));
                    }
                    drop(guard);
                    refs.get();
                    assert!(matches!(refs.put_or_lock(), Put::StillLive));
                    let mut guard = value.write();
                    *guard += 1;
                    if round % 10 == 5 {
                        thread::sleep(Duration::from_micros(300));
                    }
                    drop(guard);
                    assert!(*value.read() > 0);
                }
                while flag.load(Ordering::Acquire) == 0 {
                    wait::wait(&flag, 0);
                }
            });
        }
        thread::sleep(Duration::from_millis(50));
        flag.store(1, Ordering::Release);
        wait::wake_all(&flag);
    });
    assert_eq!((refs.count(), *refs.lock(), *value.read()), (1, 400, 400));
    assert!(QUEUES.slept.load(Ordering::Relaxed) >= 8, "the parker was not asked");
    assert_ne!(QUEUES.relaxed.load(Ordering::Relaxed), 0, "the yields went elsewhere");

    let twice = thread::spawn(|| set_parker(&QUEUES)).join();
    assert!(twice.is_err(), "a second parker would lose who sleeps with the first");
}
