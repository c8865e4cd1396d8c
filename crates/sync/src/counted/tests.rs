//! Lives of counted boxes, with real grace periods.
use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

/// What happened to the objects of one test.
#[derive(Default)]
struct Book {
    died: AtomicU32,
    dropped: AtomicU32,
}

impl Book {
    fn read(&self) -> (u32, u32) {
        (self.died.load(Relaxed), self.dropped.load(Relaxed))
    }
}

struct Thing {
    book: Arc<Book>,
    at_zero: AtZero,
}

impl Countable for Thing {
    fn at_zero(&self) -> AtZero {
        self.at_zero
    }

    fn died(&self, _: &Guard) {
        self.book.died.fetch_add(1, Relaxed);
    }
}

impl Drop for Thing {
    fn drop(&mut self) {
        self.book.dropped.fetch_add(1, Relaxed);
    }
}

fn thing(book: &Arc<Book>, at_zero: AtZero) -> Counted<Thing> {
    Counted::new(Thing { book: book.clone(), at_zero })
}

#[test]
fn without_links_the_last_reference_ends_it() {
    let book = Arc::new(Book::default());
    for at_zero in [AtZero::Dies, AtZero::Stays] {
        let one = thing(&book, at_zero);
        let two = one.clone();
        assert!(Counted::ptr_eq(&one, &two));
        assert_eq!(Counted::count(&one), 2);
        let before = book.read();
        drop(one);
        rcu::barrier();
        assert_eq!(book.read(), before);
        drop(two);
        rcu::barrier();
        assert_eq!(book.read(), (before.0 + 1, before.1 + 1));
    }
}

#[test]
fn what_stays_is_found_again_until_it_is_evicted() {
    let book = Arc::new(Book::default());
    let link = CountedLink::empty();
    let guard = rcu::pin();
    assert!(link.get(&guard).is_none());
    assert_eq!(link.evict(&guard), Evict::Empty);
    let thing = thing(&book, AtZero::Stays);
    link.set(Some(&thing), &guard);
    drop(thing);
    let thing = link.get(&guard).expect("it stays");
    assert_eq!(Counted::count(&thing), 1);
    assert_eq!(link.evict(&guard), Evict::InUse);
    drop(thing);
    let seen = link.load(&guard).expect("it is there");
    assert_eq!(link.evict(&guard), Evict::Evicted);
    assert!(link.is_empty() && link.get(&guard).is_none());
    assert_eq!(book.read(), (1, 0));
    assert_eq!(seen.at_zero, AtZero::Stays, "our section keeps it");
    drop(guard);
    rcu::barrier();
    assert_eq!(book.read(), (1, 1));
}

#[test]
fn what_dies_is_refused_and_goes_with_its_last_link() {
    let book = Arc::new(Book::default());
    let links = [CountedLink::empty(), CountedLink::empty()];
    let guard = rcu::pin();
    let thing = thing(&book, AtZero::Dies);
    links.iter().for_each(|link| link.set(Some(&thing), &guard));
    drop(thing);
    assert!(links[0].get(&guard).is_none());
    assert_eq!(links[0].evict(&guard), Evict::Empty);
    drop(guard);
    rcu::barrier();
    assert_eq!(book.read(), (1, 0), "a link leads to it still");
    let guard = rcu::pin();
    assert!(links[1].load(&guard).is_some_and(|thing| links[1].clear_if(thing, &guard)));
    drop(guard);
    rcu::barrier();
    assert_eq!(book.read(), (1, 1));
}

#[test]
fn the_last_link_ends_what_nobody_uses() {
    let book = Arc::new(Book::default());
    let guard = rcu::pin();
    {
        let [first, second] = [CountedLink::empty(), CountedLink::empty()];
        let used = thing(&book, AtZero::Stays);
        first.set(Some(&used), &guard);
        first.set(Some(&used), &guard);
        second.set(Some(&thing(&book, AtZero::Stays)), &guard);
        assert_eq!(book.read().0, 0);
        // Replaced: nobody has a reference, and no other link leads there.
        second.set(Some(&used), &guard);
        assert_eq!(book.read().0, 1);
        first.set(None, &guard);
        drop(used);
        assert_eq!(book.read().0, 1);
    }
    assert_eq!(book.read().0, 2, "the second link was dropped");
    drop(guard);
    rcu::barrier();
    assert_eq!(book.read(), (2, 2));
}

/// A table that a dying object leaves by itself, as a cache of what is in use does.
#[test]
fn an_object_takes_itself_out_of_its_table() {
    static TABLE: [CountedLink<Entry>; 2] = [const { CountedLink::empty() }; 2];
    static DROPS: AtomicU32 = AtomicU32::new(0);

    struct Entry(usize);

    impl Countable for Entry {
        fn died(&self, guard: &Guard) {
            assert!(TABLE[self.0].clear_if(self, guard));
            assert!(!TABLE[1 - self.0].clear_if(self, guard));
        }
    }

    impl Drop for Entry {
        fn drop(&mut self) {
            DROPS.fetch_add(1, Relaxed);
        }
    }

    let guard = rcu::pin();
    let [first, second] = [0, 1].map(|n| Counted::from(Entry(n)));
    TABLE[0].set(Some(&first), &guard);
    TABLE[1].set(Some(&second), &guard);
    drop(first);
    assert!(TABLE[0].is_empty() && !TABLE[1].is_empty());
    drop(second);
    drop(guard);
    rcu::barrier();
    assert_eq!(DROPS.load(Relaxed), 2);
}

/// Objects in a row, each held by the one before: freed one grace period after the other, not by
/// recursion, for which the stack is too small.
#[test]
fn a_long_chain_does_not_overflow_the_stack() {
    const LENGTH: u64 = 3000;

    struct Chain {
        _next: Option<Counted<Chain>>,
        drops: Arc<AtomicU64>,
    }

    impl Countable for Chain {}

    impl Drop for Chain {
        fn drop(&mut self) {
            self.drops.fetch_add(1, Relaxed);
        }
    }

    fn drop_one() {
        let drops = Arc::new(AtomicU64::new(0));
        let chain = (0..LENGTH)
            .fold(None, |next, _| Some(Counted::new(Chain { _next: next, drops: drops.clone() })));
        drop(chain);
        for _ in 0..10 * LENGTH {
            rcu::barrier();
            if drops.load(Relaxed) == LENGTH {
                return;
            }
        }
        panic!("{drops:?} of {LENGTH} dropped");
    }

    thread::Builder::new().stack_size(64 << 10).spawn(drop_one).unwrap().join().unwrap();
}

/// More threads than processors on a small table: find, clone, replace, evict, clear. Nobody finds
/// what is dead or freed, each object dies and is dropped once.
#[test]
fn a_table_under_load_loses_and_frees_nothing_twice() {
    static MADE: AtomicU64 = AtomicU64::new(0);
    static DIED: AtomicU64 = AtomicU64::new(0);
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    const LIVE: u32 = 0x600d;

    struct Entry {
        state: AtomicU32,
        stays: bool,
    }

    impl Entry {
        fn make(n: u64) -> Counted<Entry> {
            MADE.fetch_add(1, Relaxed);
            Counted::new(Entry { state: AtomicU32::new(LIVE), stays: !n.is_multiple_of(3) })
        }
    }

    impl Countable for Entry {
        fn at_zero(&self) -> AtZero {
            assert_eq!(self.state.load(Relaxed), LIVE);
            if self.stays { AtZero::Stays } else { AtZero::Dies }
        }

        fn died(&self, _: &Guard) {
            DIED.fetch_add(1, Relaxed);
            assert_eq!(self.state.swap(LIVE + 1, Ordering::SeqCst), LIVE, "died twice");
        }
    }

    impl Drop for Entry {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Relaxed);
            assert_eq!(self.state.swap(0, Ordering::SeqCst), LIVE + 1, "dropped without dying");
        }
    }

    let table: [CountedLink<Entry>; 4] = Default::default();
    crate::testing::scope(|s| {
        for seed in 1..=6_u64 {
            let table = &table;
            s.spawn(move || {
                let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let mut kept = None;
                for n in 0..20_000 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let link = &table[(random >> 8) as usize % table.len()];
                    let guard = rcu::pin();
                    match random % 16 {
                        0 => link.set(Some(&Entry::make(n)), &guard),
                        1 => _ = link.evict(&guard),
                        2 => link.set(kept.as_ref(), &guard),
                        3 => _ = link.load(&guard).is_some_and(|e| link.clear_if(e, &guard)),
                        4 => kept = link.get(&guard),
                        5 => {
                            if let Some(entry) = link.load(&guard) {
                                assert_ne!(entry.state.load(Relaxed), 0, "freed under a guard");
                            }
                        }
                        _ => {
                            if let Some(entry) = link.get(&guard) {
                                drop(guard);
                                assert_eq!(entry.state.load(Relaxed), LIVE, "found dead");
                                let more = entry.clone();
                                drop(entry);
                                assert_eq!(more.state.load(Relaxed), LIVE, "dead in use");
                            }
                        }
                    }
                }
            });
        }
    });
    drop(table);
    // What an object's end frees may end others.
    rcu::barrier();
    let made = MADE.load(Relaxed);
    assert!(made > 1000);
    assert_eq!((DIED.load(Relaxed), DROPPED.load(Relaxed)), (made, made));
}
