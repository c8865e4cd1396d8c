//! Readers of other kinds: those that say when they do not read, and those that do not stop.
#![cfg(all(feature = "std", not(any(loom, shuttle))))]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use vfscale_sync::rcu::{self, Qsbr, RcuCell, Stall};

/// The tests of this file look at grace periods of the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn turn() -> std::sync::MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} does not happen");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_writer_waits_until_a_reader_says_that_it_holds_nothing() {
    let _turn = turn();
    let (ready, go, done) =
        (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|s| {
        s.spawn(|| {
            let mut reader = Qsbr::register();
            ready.store(true, SeqCst);
            while !go.load(SeqCst) {
                thread::yield_now();
            }
            assert!(!done.load(SeqCst), "the writer did not wait");
            until("the grace period", || {
                assert!(reader.quiescent());
                done.load(SeqCst)
            });
        });
        until("the reader", || ready.load(SeqCst));
        s.spawn(|| {
            rcu::synchronize();
            done.store(true, SeqCst);
        });
        thread::sleep(Duration::from_millis(30));
        go.store(true, SeqCst);
    });
}

#[test]
fn nothing_is_said_while_a_guard_is_open_beside() {
    let _turn = turn();
    let mut reader = Qsbr::register();
    let guard = rcu::pin();
    assert!(!reader.quiescent());
    drop(guard);
    assert!(reader.quiescent());
    assert!(rcu::is_pinned() && !rcu::may_wait());
    reader.offline(|| assert!(!rcu::is_pinned() && rcu::may_wait()));
    assert!(rcu::is_pinned());
    let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        reader.offline(|| panic!("on purpose"));
    }));
    assert!(broken.is_err() && rcu::is_pinned());
    reader.synchronize();
    drop(reader);
    assert!(!rcu::is_pinned());
}

/// Readers of both kinds against a writer: what is lent is whole, and everything is freed in the end.
#[test]
fn both_kinds_of_readers_against_a_writer() {
    struct Counted(u64, u64, &'static AtomicU64);
    impl Drop for Counted {
        fn drop(&mut self) {
            (self.0, self.1) = (u64::MAX, 0);
            self.2.fetch_add(1, SeqCst);
        }
    }
    static FREED: AtomicU64 = AtomicU64::new(0);

    let _turn = turn();
    let cell = RcuCell::empty();
    let stop = AtomicBool::new(false);
    thread::scope(|s| {
        let reader = |number| {
            let (cell, stop) = (&cell, &stop);
            s.spawn(move || {
                let mut reader = (number % 2 == 0).then(Qsbr::register);
                while !stop.load(SeqCst) {
                    let pinned;
                    let guard = match &reader {
                        Some(reader) => reader.guard(),
                        None => {
                            pinned = rcu::pin();
                            &pinned
                        }
                    };
                    let seen: Option<&Counted> = cell.load(guard);
                    if let Some(pair) = seen {
                        assert_eq!(pair.0, pair.1, "freed under a reader");
                    }
                    if let Some(reader) = &mut reader {
                        assert!(reader.quiescent());
                    }
                }
            })
        };
        let readers: Vec<_> = (0..4).map(reader).collect();
        for n in 0..20_000 {
            cell.replace(Some(Box::new(Counted(n, n, &FREED))), &rcu::pin());
        }
        stop.store(true, SeqCst);
        // ThreadSanitizer sees a join, but not the end of a scope.
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    drop(cell);
    rcu::barrier();
    assert_eq!(FREED.load(SeqCst), 20_000);
}

static TOLD: Mutex<Vec<Stall>> = Mutex::new(Vec::new());

#[test]
fn a_section_that_does_not_end_is_told_of_once_and_by_name() {
    let _turn = turn();
    let limit = Duration::from_millis(40);
    assert!(rcu::on_stall(limit, |stall| TOLD.lock().unwrap().push(stall.clone())));
    assert!(!rcu::on_stall(limit, |_| ()), "there is one listener");
    rcu::synchronize();
    assert_eq!(rcu::stalls(), []);
    let leave = AtomicBool::new(false);
    thread::scope(|s| {
        let stuck = thread::Builder::new().name("stuck-reader".into());
        stuck
            .spawn_scoped(s, || {
                let _guard = rcu::pin();
                while !leave.load(SeqCst) {
                    thread::sleep(Duration::from_millis(1));
                }
            })
            .unwrap();
        s.spawn(|| {
            // In a section before the writer asks, or there is nothing to wait for.
            thread::sleep(Duration::from_millis(20));
            rcu::synchronize();
        });
        until("the report", || !TOLD.lock().unwrap().is_empty());
        let now = rcu::stalls();
        assert!(now.iter().any(|stall| stall.name == "stuck-reader"), "{now:?}");
        thread::sleep(3 * limit);
        leave.store(true, SeqCst);
    });
    let told = TOLD.lock().unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].name, "stuck-reader");
    assert!(told[0].waited >= limit && told[0].thread != 0);
    assert!(told[0].to_string().contains("\"stuck-reader\""), "{}", told[0]);
    assert_eq!(rcu::stalls(), [], "it has ended");
}
