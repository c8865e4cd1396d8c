//! `Counted` and its links under every schedule of the smallest cases. Under a model nothing that
//! waits for a grace period is freed, so these are about who finds an object and when it dies; who
//! frees it is the business of `counted/tests.rs`.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom_counted`
#![cfg(loom)]

mod loom_common;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use loom_common::check;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use vfscale_sync::{AtZero, Countable, Counted, CountedLink, Evict, rcu};

/// Loom fails when a use and the death are not ordered.
struct Thing {
    body: UnsafeCell<u32>,
    /// Written before the object is published, and never after.
    made: UnsafeCell<u32>,
    at_zero: AtZero,
    /// Not a word of the model: no schedule depends on it.
    deaths: std::sync::Arc<AtomicU32>,
}

// SAFETY: the model's question: `body` is written where the object is dead, and read by who has a
// reference; `made` before it is found.
unsafe impl Sync for Thing {}

const DEAD: u32 = 0xdead;

impl Countable for Thing {
    fn at_zero(&self) -> AtZero {
        self.at_zero
    }

    fn died(&self, _: &rcu::Guard) {
        self.deaths.fetch_add(1, Relaxed);
        // SAFETY: as above.
        self.body.with_mut(|body| unsafe { *body = DEAD });
    }
}

fn thing(at_zero: AtZero) -> (Counted<Thing>, std::sync::Arc<AtomicU32>) {
    let deaths = std::sync::Arc::new(AtomicU32::new(0));
    (
        Counted::new(Thing {
            body: UnsafeCell::new(0),
            made: UnsafeCell::new(0),
            at_zero,
            deaths: deaths.clone(),
        }),
        deaths,
    )
}

fn use_it(thing: &Thing) {
    // SAFETY: as for `Thing`.
    thing.body.with(|body| assert_ne!(unsafe { *body }, DEAD, "used after its death"));
}

fn find_and_use(link: &CountedLink<Thing>) {
    let guard = rcu::pin();
    let found = link.get(&guard);
    drop(guard);
    if let Some(thing) = found {
        use_it(&thing);
    }
}

/// The race of the module: a last drop, a finder, and one who empties the link.
#[test]
fn a_last_drop_a_finder_and_an_emptied_link() {
    check("a_last_drop_a_finder_and_an_emptied_link", Some(2), || {
        let (thing, deaths) = thing(AtZero::Stays);
        let link = Arc::new(CountedLink::empty());
        link.set(Some(&thing), &rcu::pin());
        let finder = {
            let link = link.clone();
            thread::spawn(move || find_and_use(&link))
        };
        let user = thread::spawn(move || {
            use_it(&thing);
            drop(thing);
        });
        link.set(None, &rcu::pin());
        finder.join().unwrap();
        user.join().unwrap();
        assert_eq!(deaths.load(Relaxed), 1);
    });
}

/// The last drop decides for death while another finds the object: refused, or earlier.
#[test]
fn a_dying_object_is_refused() {
    check("a_dying_object_is_refused", None, || {
        let (thing, deaths) = thing(AtZero::Dies);
        let link = Arc::new(CountedLink::empty());
        link.set(Some(&thing), &rcu::pin());
        let finder = {
            let link = link.clone();
            thread::spawn(move || find_and_use(&link))
        };
        use_it(&thing);
        drop(thing);
        finder.join().unwrap();
        assert_eq!(deaths.load(Relaxed), 1);
        assert!(link.get(&rcu::pin()).is_none());
        assert_eq!(link.evict(&rcu::pin()), Evict::Empty);
    });
}

/// An unused object: one evicts it, one finds it and puts it back, one replaces it.
#[test]
fn an_eviction_a_finder_and_a_replacement() {
    check("an_eviction_a_finder_and_a_replacement", Some(2), || {
        let (first, first_deaths) = thing(AtZero::Stays);
        let (second, second_deaths) = thing(AtZero::Stays);
        let link = Arc::new(CountedLink::empty());
        link.set(Some(&first), &rcu::pin());
        drop(first);
        let finder = {
            let link = link.clone();
            thread::spawn(move || find_and_use(&link))
        };
        let replacer = {
            let link = link.clone();
            thread::spawn(move || link.set(Some(&second), &rcu::pin()))
        };
        let _ = link.evict(&rcu::pin());
        finder.join().unwrap();
        replacer.join().unwrap();
        assert_eq!(first_deaths.load(Relaxed), 1);
        // Evicted too, or there still.
        let left = u32::from(!link.is_empty());
        assert_eq!(second_deaths.load(Relaxed) + left, 1);
        assert_eq!(link.evict(&rcu::pin()) == Evict::Evicted, left == 1);
    });
}

/// CT-1: who finds an object sees it whole, also without a reference.
#[test]
fn a_found_object_is_whole() {
    check("a_found_object_is_whole", None, || {
        let link = Arc::new(CountedLink::empty());
        let maker = {
            let link = link.clone();
            thread::spawn(move || {
                let (thing, _) = thing(AtZero::Stays);
                // SAFETY: nobody knows it yet.
                thing.made.with_mut(|made| unsafe { *made = 1 });
                link.set(Some(&thing), &rcu::pin());
            })
        };
        if let Some(thing) = link.load(&rcu::pin()) {
            // SAFETY: the model's question.
            thing.made.with(|made| assert_eq!(unsafe { *made }, 1));
        }
        maker.join().unwrap();
    });
}

/// CT-1: who takes an object out of its link sees it whole, and may end it.
#[test]
fn a_replaced_object_is_whole() {
    check("a_replaced_object_is_whole", None, || {
        let link = Arc::new(CountedLink::empty());
        let (deaths, maker) = {
            let link = link.clone();
            let (thing, deaths) = thing(AtZero::Stays);
            let maker = thread::spawn(move || {
                // SAFETY: nobody knows it yet.
                thing.body.with_mut(|body| unsafe { *body = 1 });
                link.set(Some(&thing), &rcu::pin());
            });
            (deaths, maker)
        };
        link.set(None, &rcu::pin());
        maker.join().unwrap();
        link.set(None, &rcu::pin());
        assert_eq!(deaths.load(Relaxed), 1);
    });
}
