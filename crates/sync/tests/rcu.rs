//! What RCU promises, on real threads. The protocol alone, in every order, is in `loom_rcu.rs`.
#![cfg(all(feature = "std", not(any(loom, shuttle))))]
#![allow(missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use vfscale_sync::rcu;

/// Counts its drops.
struct Counted(Arc<AtomicU64>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < end, "no {what} within ten seconds");
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn sections_nest() {
    assert!(!rcu::is_pinned());
    let outer = rcu::pin();
    let inner = outer.clone();
    drop(outer);
    assert!(rcu::is_pinned());
    drop(inner);
    assert!(!rcu::is_pinned());
    rcu::synchronize();
}

#[test]
fn a_deferred_call_runs_once_and_only_after_a_barrier_at_the_latest() {
    let drops = Arc::new(AtomicU64::new(0));
    let guard = rcu::pin();
    for _ in 0..10 {
        let counted = Counted(drops.clone());
        guard.defer(8, move || drop(counted));
    }
    // Four words: this one is boxed.
    let (counted, more) = (Counted(drops.clone()), [1_u64; 3]);
    guard.defer(8, move || assert_eq!((drop(counted), more), ((), [1; 3])));
    assert_eq!(drops.load(Ordering::Relaxed), 0, "this thread is still in its section");
    drop(guard);
    rcu::barrier();
    assert_eq!(drops.load(Ordering::Relaxed), 11);
}

#[test]
#[should_panic(expected = "would never return")]
fn synchronize_in_a_section_is_refused() {
    let _guard = rcu::pin();
    rcu::synchronize();
}

#[test]
#[should_panic(expected = "would never return")]
fn barrier_in_a_section_is_refused() {
    let _guard = rcu::pin();
    rcu::barrier();
}

#[test]
fn synchronize_waits_for_a_reader() {
    // On a busy machine the reader may be gone before the wait begins; then there is nothing to measure, and it is tried again.
    for _ in 0..20 {
        let (entered, is_entered) = mpsc::channel();
        let left = Arc::new(AtomicBool::new(false));
        let reader = std::thread::spawn({
            let left = left.clone();
            move || {
                let guard = rcu::pin();
                entered.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(30));
                left.store(true, Ordering::Relaxed);
                drop(guard);
            }
        });
        is_entered.recv().unwrap();
        rcu::synchronize();
        assert!(left.load(Ordering::Relaxed));
        reader.join().unwrap();
        if rcu::stats().longest_wait_us > 1_000 {
            return;
        }
    }
    panic!("no wait was measured");
}

#[test]
fn a_barrier_reaches_bags_of_other_and_of_ended_threads() {
    let drops = Arc::new(AtomicU64::new(0));
    let (quit, wait) = mpsc::channel::<()>();
    let (ready, is_ready) = mpsc::channel();
    let idle = std::thread::spawn({
        let counted = Counted(drops.clone());
        move || {
            rcu::pin().defer(8, move || drop(counted));
            ready.send(()).unwrap();
            wait.recv().unwrap();
        }
    });
    is_ready.recv().unwrap();
    let blocker = rcu::pin();
    std::thread::spawn({
        let counted = Counted(drops.clone());
        move || rcu::pin().defer(8, move || drop(counted))
    })
    .join()
    .unwrap();
    drop(blocker);
    rcu::barrier();
    assert_eq!(drops.load(Ordering::Relaxed), 2);
    quit.send(()).unwrap();
    idle.join().unwrap();
}

#[test]
fn a_guard_in_a_thread_local_may_outlive_the_registration() {
    use std::cell::RefCell;
    thread_local! {
        static KEPT: RefCell<Option<(rcu::Guard, Counted)>> = const { RefCell::new(None) };
        static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
    }
    struct Late(Arc<AtomicU64>);
    impl Drop for Late {
        fn drop(&mut self) {
            let counted = Counted(self.0.clone());
            rcu::pin().defer(8, move || drop(counted));
        }
    }
    let drops = Arc::new(AtomicU64::new(0));
    for _ in 0..50 {
        let drops = drops.clone();
        std::thread::spawn(move || {
            // Registered before RCU's own destructor, and so destroyed after it on most systems.
            LATE.with(|late| late.replace(Some(Late(drops.clone()))));
            KEPT.with(|kept| kept.replace(Some((rcu::pin(), Counted(drops.clone())))));
        })
        .join()
        .unwrap();
    }
    rcu::barrier();
    assert_eq!(drops.load(Ordering::Relaxed), 100);
    rcu::synchronize();
}

#[test]
fn garbage_is_bounded_while_nobody_reads_for_long() {
    let drops = Arc::new(AtomicU64::new(0));
    for _ in 0..20_000 {
        let counted = Counted(drops.clone());
        rcu::pin().defer(8, move || drop(counted));
    }
    let waiting = 20_000 - drops.load(Ordering::Relaxed);
    assert!(waiting <= 9 * 1024, "{waiting} of 20000 not freed");
    rcu::barrier();
    assert_eq!(drops.load(Ordering::Relaxed), 20_000);
}

#[test]
fn bytes_count_towards_the_bound() {
    let freed = Arc::new(AtomicBool::new(false));
    let guard = rcu::pin();
    guard.defer(64 << 20, {
        let freed = freed.clone();
        move || freed.store(true, Ordering::Relaxed)
    });
    drop(guard);
    // Other tests of this binary may hold readers up for a moment.
    until("free after one large item", || {
        rcu::pin().expedite();
        freed.load(Ordering::Relaxed)
    });
}

#[test]
fn a_cell_is_read_whole_while_it_is_replaced() {
    let drops = Arc::new(AtomicU64::new(0));
    let mut cell = rcu::RcuCell::<(u64, u64, Counted)>::empty();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let guard = rcu::pin();
                    if let Some((a, b, _)) = cell.load(&guard) {
                        assert_eq!(*a, !*b);
                    }
                }
            });
        }
        for i in 0..20_000_u64 {
            let guard = rcu::pin();
            cell.replace(Some(Box::new((i, !i, Counted(drops.clone())))), &guard);
        }
        done.store(true, Ordering::Relaxed);
    });
    rcu::barrier();
    assert_eq!(drops.load(Ordering::Relaxed), 19_999);
    assert_eq!(cell.take_mut().map(|v| v.0), Some(19_999));
    assert_eq!(drops.load(Ordering::Relaxed), 20_000);
}

/// Many short threads pin, read and retire; each retired box is poisoned before it is freed, so a reader would see it.
#[test]
fn pin_against_retire_with_many_short_threads() {
    const POISON: u64 = 0xdead;
    struct Box2 {
        value: AtomicU64,
    }
    static SHARED: AtomicPtr<Box2> = AtomicPtr::new(std::ptr::null_mut());
    let fresh = |n| Box::into_raw(Box::new(Box2 { value: AtomicU64::new(n) }));
    SHARED.store(fresh(1 << 32), Ordering::Release);
    let before = rcu::stats();
    for _ in 0..60 {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..300_u64 {
                        let guard = rcu::pin();
                        // SAFETY: published by Release, freed a grace period after it was swapped out.
                        let seen = unsafe { &*SHARED.load(Ordering::Acquire) };
                        assert_ne!(seen.value.load(Ordering::Relaxed), POISON);
                        if n % 4 == 0 {
                            let old = SHARED.swap(fresh((1 << 32) | n), Ordering::AcqRel) as usize;
                            guard.defer(8, move || {
                                // SAFETY: swapped out by us alone, a grace period ago.
                                let old = unsafe { Box::from_raw(old as *mut Box2) };
                                old.value.store(POISON, Ordering::Relaxed);
                            });
                        }
                        assert_ne!(seen.value.load(Ordering::Relaxed), POISON);
                    }
                });
            }
        });
    }
    rcu::barrier();
    let after = rcu::stats();
    assert!(after.deferred - before.deferred >= 60 * 4 * 75);
    assert!(after.freed - before.freed >= 60 * 4 * 75);
    assert!(after.grace_periods > before.grace_periods);
    assert!(after.readers < 64, "records are reused: {}", after.readers);
}

/// Readers that hold a section for a while slow a writer down; they do not stop it for good, and nothing is lost.
#[test]
fn a_stalled_reader_delays_frees_without_deadlock() {
    let drops = Arc::new(AtomicU64::new(0));
    let (entered, is_entered) = mpsc::channel();
    let (quit, wait) = mpsc::channel::<()>();
    let reader = std::thread::spawn(move || {
        let guard = rcu::pin();
        entered.send(()).unwrap();
        wait.recv().unwrap();
        drop(guard);
    });
    is_entered.recv().unwrap();
    for _ in 0..8_400 {
        let counted = Counted(drops.clone());
        rcu::pin().defer(8, move || drop(counted));
    }
    assert_eq!(drops.load(Ordering::Relaxed), 0, "the reader may hold all of them");
    quit.send(()).unwrap();
    reader.join().unwrap();
    rcu::barrier();
    assert_eq!(drops.load(Ordering::Relaxed), 8_400);
}

/// A call that panics takes nobody with it: the rest of its batch runs, and a barrier comes to its end.
#[test]
fn a_deferred_call_that_panics_is_alone() {
    let ran = Arc::new(AtomicU64::new(0));
    let before = Arc::clone(&ran);
    let after = Arc::clone(&ran);
    std::thread::spawn(move || {
        let guard = rcu::pin();
        guard.defer(0, move || {
            before.fetch_add(1, Ordering::Relaxed);
        });
        guard.defer(0, || panic!("on purpose, in a deferred call"));
        guard.defer(0, move || {
            after.fetch_add(1, Ordering::Relaxed);
        });
    })
    .join()
    .unwrap();
    rcu::barrier();
    assert_eq!(ran.load(Ordering::Relaxed), 2);
    assert!(rcu::may_wait());
}

/// A payload whose drop panics as well does no more harm than the panic.
#[test]
fn a_payload_that_panics_is_alone_too() {
    struct Payload;
    impl Drop for Payload {
        fn drop(&mut self) {
            panic!("on purpose, in the payload of a panic");
        }
    }
    std::thread::spawn(|| rcu::pin().defer(0, || std::panic::panic_any(Payload))).join().unwrap();
    rcu::barrier();
    assert!(rcu::may_wait());
}

/// Many short threads that hurry their garbage: each call runs once, and a barrier waits for those of threads that just ended.
#[test]
fn short_threads_leave_nothing_undone() {
    let (made, run) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
    let end = Instant::now() + Duration::from_secs(2);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while Instant::now() < end {
                    let short = |_| {
                        scope.spawn(|| {
                            for value in 0..20_u64 {
                                let guard = rcu::pin();
                                made.fetch_add(1, Ordering::Relaxed);
                                let (own, run) = (Box::new(value), Arc::clone(&run));
                                guard.defer(8, move || {
                                    assert_eq!(*own, value);
                                    run.fetch_add(1, Ordering::Relaxed);
                                });
                                guard.expedite();
                            }
                        })
                    };
                    let threads: Vec<_> = (0..4).map(short).collect();
                    threads.into_iter().for_each(|thread| thread.join().unwrap());
                }
            });
        }
    });
    rcu::barrier();
    assert_eq!(run.load(Ordering::Relaxed), made.load(Ordering::Relaxed));
}
