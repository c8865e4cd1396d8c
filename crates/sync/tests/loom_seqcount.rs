//! Sequence counters under every schedule of the smallest cases.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom_seqcount`
#![cfg(loom)]

mod loom_common;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;
use loom_common::check;
use vfscale_sync::{SeqCount, SeqLock};

/// SQ-1 and SQ-2: a pair read between `begin` and a `retry` that answers no is whole.
#[test]
fn an_accepted_pair_is_whole() {
    check("an_accepted_pair_is_whole", Some(4), || {
        let shared = Arc::new((SeqCount::new(), AtomicU32::new(0), AtomicU32::new(0)));
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || {
                for value in 1..=2 {
                    let _write = shared.0.write();
                    shared.1.store(value, Relaxed);
                    shared.2.store(value, Relaxed);
                }
            })
        };
        let start = shared.0.begin();
        let (a, b) = (shared.1.load(Relaxed), shared.2.load(Relaxed));
        if !shared.0.retry(start) {
            assert_eq!(a, b, "a mixed pair was accepted");
            assert_eq!(start, 2 * a, "the number belongs to another pair");
        }
        writer.join().unwrap();
    });
}

/// Writers exclude each other, and an exclusive reader excludes them.
#[test]
fn a_seqlock_orders_writers_and_exclusive_readers() {
    check("a_seqlock_orders_writers_and_exclusive_readers", Some(3), || {
        let shared = Arc::new((SeqLock::new(), AtomicU32::new(0), AtomicU32::new(0)));
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let _write = shared.0.write();
                    let next = shared.1.load(Relaxed) + 1;
                    shared.1.store(next, Relaxed);
                    shared.2.store(next, Relaxed);
                })
            })
            .collect();
        {
            let _read = shared.0.read_exclusive();
            assert_eq!(shared.1.load(Relaxed), shared.2.load(Relaxed));
        }
        for writer in writers {
            writer.join().unwrap();
        }
        assert_eq!(shared.2.load(Relaxed), 2);
    });
}

/// SQ-1: who begins after an invalidation sees what was changed before it.
#[test]
fn an_invalidation_comes_after_the_change() {
    check("an_invalidation_comes_after_the_change", None, || {
        let shared = Arc::new((SeqCount::new(), AtomicU32::new(0)));
        let changer = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.1.store(1, Relaxed);
                shared.0.invalidate();
            })
        };
        let start = shared.0.begin();
        let seen = shared.1.load(Relaxed);
        if start != 0 && !shared.0.retry(start) {
            assert_eq!(seen, 1, "begun after the invalidation, and saw what was before it");
        }
        changer.join().unwrap();
    });
}
