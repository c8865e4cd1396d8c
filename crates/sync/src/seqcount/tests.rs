//! What sequence counters answer, and that a reader never accepts a mixed pair.
use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64};

#[test]
fn a_quiet_read_is_accepted() {
    let seq = SeqCount::new();
    let start = seq.begin();
    assert!(!seq.retry(start));
}

#[test]
fn a_read_across_a_write_is_refused() {
    let seq = SeqCount::new();
    let before = seq.begin();
    let write = seq.write();
    assert_eq!(seq.value() & 1, 1);
    let during = seq.begin();
    assert!(seq.retry(during), "a read that begins during a write cannot succeed");
    drop(write);
    assert!(seq.retry(before));
    assert!(seq.retry(during));
    let after = seq.begin();
    assert!(!seq.retry(after));
}

#[test]
fn invalidate_refuses_readers_and_stays_even() {
    let seq = SeqCount::new();
    let start = seq.begin();
    seq.invalidate();
    assert!(seq.retry(start));
    assert_eq!(seq.value(), 2);
}

#[test]
fn an_exclusive_reader_disturbs_no_reader() {
    let lock = SeqLock::new();
    let start = lock.read_begin();
    drop(lock.read_exclusive());
    assert!(!lock.read_retry(start));
    drop(lock.write());
    assert!(lock.read_retry(start));
}

#[test]
fn no_reader_accepts_a_mixed_pair() {
    let lock = SeqLock::new();
    let pair = [AtomicU64::new(0), AtomicU64::new(0)];
    let done = AtomicBool::new(false);
    crate::testing::scope(|s| {
        let writers: Vec<_> = (0..2)
            .map(|_| {
                s.spawn(|| {
                    for _ in 0..20_000 {
                        let _write = lock.write();
                        let next = pair[0].load(Relaxed) + 1;
                        pair[0].store(next, Relaxed);
                        pair[1].store(next, Relaxed);
                    }
                })
            })
            .collect();
        s.spawn(|| {
            let mut tries = 0;
            while !done.load(Relaxed) {
                let exclusive = (tries > 3).then(|| lock.read_exclusive());
                let start = lock.read_begin();
                let (a, b) = (pair[0].load(Relaxed), pair[1].load(Relaxed));
                if exclusive.is_some() || !lock.read_retry(start) {
                    assert_eq!(a, b);
                    tries = 0;
                } else {
                    tries += 1;
                }
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Relaxed);
    });
    assert_eq!(pair[0].load(Relaxed), 40_000);
}
