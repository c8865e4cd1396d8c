//! A cache of counted pages: lookups that take no lock, and eviction that no lookup overtakes.
//!
//! The table is no reference. So a page that nobody uses has a count of zero and is still found; only eviction makes it
//! dead, under the page's lock, and from then on every lookup is refused.
//!
//! `cargo run -p vfscale-sync --example lockref_cache --features stats`

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use vfscale_sync::{AtomicId, Held, HeldSlot, Id, LockRef, Pool, Put, QMutex, Slot, rcu, stats};

const NUMBERS: u64 = 256;
const THREADS: u64 = 4;
const LOOKUPS: u64 = 100_000;

/// Page `number` holds the square of its number.
struct Page {
    refs: LockRef,
    square: AtomicU64,
}

impl Slot for Page {
    fn new() -> Self {
        Page { refs: LockRef::new(0, ()), square: AtomicU64::new(0) }
    }
}

impl HeldSlot for Page {
    fn lockref(&self) -> &LockRef {
        &self.refs
    }

    fn pool() -> &'static Pool<Self> {
        &PAGES
    }

    /// A `Held` goes out of scope. The last one leaves the page in the cache.
    fn put(id: Id<Self>) {
        if let Put::LastLocked(mut page) = PAGES.slot(id).refs.put_or_lock() {
            page.dec();
        }
    }
}

static PAGES: Pool<Page> = Pool::new(100_000);
static TABLE: [AtomicId<Page>; NUMBERS as usize] = [const { AtomicId::none() }; NUMBERS as usize];
static FILLING: QMutex<()> = QMutex::new(());

fn look_up(number: u64) -> Option<Held<Page>> {
    let guard = rcu::pin();
    let id = TABLE[number as usize].load(Acquire)?;
    // `LockRef::get_not_dead`: a reference, unless the page has been evicted.
    Held::try_get(id, &guard)
}

fn fill(number: u64) -> Held<Page> {
    let _one_at_a_time = FILLING.lock();
    look_up(number).unwrap_or_else(|| {
        let page = PAGES.alloc().expect("room for a page");
        page.refs.reset(1);
        page.square.store(number * number, Relaxed);
        let page = Held::from_fresh(page);
        TABLE[number as usize].store(Some(page.id()), Release);
        page
    })
}

/// Takes the page out of the cache, unless it is in use; answers whether it did.
fn evict(number: u64) -> bool {
    let guard = rcu::pin();
    let Some(id) = TABLE[number as usize].load(Acquire) else { return false };
    let mut page = PAGES.get(id, &guard).refs.lock();
    if page.count() != 0 {
        return false;
    }
    page.mark_dead();
    drop(page);
    // Fails if another thread has filled the place again, which is as good.
    let _ = TABLE[number as usize].compare_exchange(Some(id), None, Relaxed, Relaxed);
    PAGES.retire(id, &guard);
    true
}

/// Looks up low numbers often and high ones rarely; answers how often it had to fill the cache.
fn use_pages(thread: u64) -> u64 {
    let mut filled = 0;
    for n in 0..LOOKUPS {
        let random = (n * THREADS + thread + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let number = (random % NUMBERS) * (random / NUMBERS % NUMBERS) / NUMBERS;
        let page = look_up(number).unwrap_or_else(|| {
            filled += 1;
            fill(number)
        });
        assert_eq!(page.square.load(Relaxed), number * number, "an evicted page was found");
    }
    filled
}

fn main() {
    let (filled, mut evicted) = std::thread::scope(|scope| {
        let users: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || use_pages(n))).collect();
        let mut evicted = 0;
        while !users.iter().all(|user| user.is_finished()) {
            evicted += (0..NUMBERS).filter(|&number| evict(number)).count();
            std::thread::yield_now();
        }
        (users.into_iter().map(|user| user.join().unwrap()).sum::<u64>(), evicted)
    });
    evicted += (0..NUMBERS).filter(|&number| evict(number)).count();
    assert_eq!(PAGES.live(), 0, "every page is evicted once");

    println!(
        "{} lookups by {THREADS} threads, {filled} of pages that were not there",
        LOOKUPS * THREADS
    );
    println!("{evicted} evictions meanwhile; every lookup got the right page");
    let stats = stats::snapshot();
    if cfg!(feature = "stats") {
        println!(
            "counts changed: {} without the lock, {} with it",
            stats.lockref_fast, stats.lockref_slow
        );
    } else {
        println!("(with `--features stats` it also says how many references needed the lock)");
    }
}
