//! Who reads: one record per live thread, found by the writers in a list that only grows.
//!
//! A record is leaked once and then reused by one thread after another, so a scan may walk the list without a lock and
//! without asking whether a record still exists. The list is as long as the largest number of threads that were
//! registered at one time.
//!
//! # Orderings
//! - RCU-5 a record given back (Release) -> taken again (Acquire): all that its last owner did with it
//! - RCU-6 a record enters the list (Release) -> a scan finds it (Acquire): the record whole

// unmodelled file: a static list of records; ThreadSanitizer and `tests/rcu.rs` look at it. The protocol is in `domain.rs`.

use super::defer::Bag;
use super::domain::{Domain, Reader};
use super::stall::{self, Stall};
use crate::biased::Biased;
use crate::fence;
use crate::mutex::{Mutex, MutexGuard};
use crate::prim::{AtomicPtr, AtomicU32, AtomicU64, Ordering, spin_loop, yield_now};
use crossbeam_utils::CachePadded;
use std::time::{Duration, Instant};

/// The domain of the process.
pub(super) static DOMAIN: CachePadded<Domain> = CachePadded::new(Domain::new());

/// Orders writers: held while a grace period is started, scanned for, and completed.
static WRITERS: Mutex<()> = Mutex::new(());

/// The newest record; older ones follow by `next`.
static RECORDS: AtomicPtr<Record> = AtomicPtr::new(std::ptr::null_mut());

/// How often a scan that may not wait looks at one reader again: sections are short, so most end meanwhile.
const PATIENCE: u32 = 64;

/// What one thread brings to the protocol.
///
/// # Invariants
/// - Records live for ever.
/// - `taken` is 1 while a thread owns the record. Only the owner calls `reader.enter`, `reader.leave` and
///   [`Record::with_bag`], and only the owner writes the counters below.
pub(super) struct Record {
    /// On a line of its own: the owner writes it twice a section, writers read it.
    pub(super) reader: CachePadded<Reader>,
    next: AtomicPtr<Record>,
    taken: AtomicU32,
    /// The owner is running callbacks that are no longer in its bag.
    pub(super) executing: AtomicU32,
    bag: Biased<Bag>,
    /// Statistics, written by the owner, kept when the record changes hands.
    pub(super) counts: RecordCounts,
    /// The system's number for the owner's thread.
    thread: AtomicU32,
    /// What writers found when they last had to wait here. Written under their lock.
    stall: StallNote,
}

/// A section that a grace period waits for.
#[derive(Default)]
struct StallNote {
    /// What the reader's word said: while it stays, it is one section.
    active: AtomicU64,
    /// When that was first found, in microseconds since the process first asked.
    since_us: AtomicU64,
    /// Whether it has been reported.
    is_told: AtomicU32,
}

/// Written by plain load and store: the owner of the record is the only writer.
#[derive(Default)]
pub(super) struct RecordCounts {
    pub(super) deferred: AtomicU64,
    pub(super) deferred_bytes: AtomicU64,
    pub(super) freed: AtomicU64,
    pub(super) freed_bytes: AtomicU64,
}

impl RecordCounts {
    #[inline]
    pub(super) fn add(counter: &AtomicU64, n: u64) {
        // Relaxed: only a statistic, and ours alone to write.
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }
}

impl Record {
    fn new() -> Self {
        Record {
            reader: CachePadded::new(Reader::new()),
            next: AtomicPtr::new(std::ptr::null_mut()),
            taken: AtomicU32::new(1),
            executing: AtomicU32::new(0),
            bag: Biased::new(Bag::new()),
            counts: RecordCounts::default(),
            thread: AtomicU32::new(0),
            stall: StallNote::default(),
        }
    }

    /// Takes a record for the running thread: an unused one, or a new one.
    pub(super) fn acquire() -> &'static Record {
        fence::prepare();
        for record in records() {
            // RCU-5 Acquire: after everything the last owner did with it.
            if record.taken.load(Ordering::Relaxed) == 0
                && record.taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                record.thread.store(stall::this_thread(), Ordering::Relaxed);
                return record;
            }
        }
        let record: &'static Record = Box::leak(Box::new(Record::new()));
        // Relaxed, here and above: told to people.
        record.thread.store(stall::this_thread(), Ordering::Relaxed);
        let mut head = RECORDS.load(Ordering::Relaxed);
        loop {
            record.next.store(head, Ordering::Relaxed);
            // RCU-6 Release: the record is whole before a scan can find it. A scan that misses it began its list before a
            // SeqCst point that our first entry comes after: RECORDS is written before `active`, both before `light`.
            match RECORDS.compare_exchange_weak(
                head,
                std::ptr::from_ref(record).cast_mut(),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return record,
                Err(now) => head = now,
            }
        }
    }

    /// Gives the record to the next thread that asks. The caller owns it, is in no section, and has emptied the bag.
    pub(super) fn release(&self) {
        // RCU-5 Release: our use comes before the next owner's.
        self.taken.store(0, Ordering::Release);
    }

    /// Whether a thread owns the record now; a statistic.
    pub(super) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed) != 0
    }

    /// For how long writers have seen the owner's section in the way, if they wait for it.
    fn waited(&self) -> Option<Duration> {
        // Relaxed, all: a report, perhaps of a moment ago.
        let active = self.stall.active.load(Ordering::Relaxed);
        if active == 0 || self.reader.active() != active {
            return None;
        }
        let since = self.stall.since_us.load(Ordering::Relaxed);
        Some(Duration::from_micros(stall::now_us().saturating_sub(since)))
    }

    /// The report about the owner's section, which asks the system for a name.
    fn stall(&self, waited: Duration) -> Stall {
        Stall::of(self.thread.load(Ordering::Relaxed), waited)
    }

    /// Lends the bag to the owner of the record.
    ///
    /// # Safety
    /// The caller owns the record, and `f` does not come back here.
    #[inline]
    pub(super) unsafe fn with_bag<R>(&self, f: impl FnOnce(&mut Bag) -> R) -> R {
        // SAFETY: the owner is the only caller, and ownership passes by RCU-5.
        unsafe { self.bag.own(f) }
    }

    /// Lends the bag to another thread than the owner, who waits meanwhile.
    pub(super) fn steal<R>(&self, f: impl FnOnce(&mut Bag) -> R) -> R {
        self.bag.steal(f)
    }
}

/// All records there have ever been.
pub(super) fn records() -> impl Iterator<Item = &'static Record> {
    // RCU-6 Acquire.
    let mut at = RECORDS.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: records are leaked, and a non-null pointer in the list is one.
        let record = unsafe { at.as_ref() }?;
        at = record.next.load(Ordering::Acquire);
        Some(record)
    })
}

/// How long a call may wait for readers.
#[derive(Clone, Copy)]
pub(super) enum Wait {
    /// A few looks at each reader.
    Briefly,
    /// Until then.
    Until(Instant),
    /// As long as it takes.
    Forever,
}

/// The lock of the writers, if it is free.
pub(super) fn try_lock_writers() -> Option<MutexGuard<'static, ()>> {
    WRITERS.try_lock()
}

/// Waits until the grace period `number`, from one of the domain's snapshots, is over. False if `wait` ran out first.
pub(super) fn wait_for(number: u64, wait: Wait) -> bool {
    while !DOMAIN.is_complete(number) {
        let guard = match wait {
            Wait::Briefly => match try_lock_writers() {
                Some(guard) => guard,
                // Another thread is at it.
                None => return DOMAIN.is_complete(number),
            },
            Wait::Until(end) => match try_lock_writers() {
                Some(guard) => guard,
                None if Instant::now() >= end => return DOMAIN.is_complete(number),
                None => {
                    std::thread::sleep(Duration::from_micros(50));
                    continue;
                }
            },
            Wait::Forever => WRITERS.lock(),
        };
        if DOMAIN.is_complete(number) {
            return true;
        }
        if !advance(&guard, wait) {
            return false;
        }
    }
    true
}

/// Runs one grace period, or the rest of one that a caller before us gave up on. False if `wait` ran out first; the grace
/// period then stays in progress.
pub(super) fn advance(_writers: &MutexGuard<'static, ()>, wait: Wait) -> bool {
    let number = DOMAIN.in_progress_locked().unwrap_or_else(|| DOMAIN.start_locked());
    if records().all(|record| wait_for_reader(record, number, wait)) {
        DOMAIN.complete_locked(number);
        true
    } else {
        false
    }
}

fn wait_for_reader(record: &Record, number: u64, wait: Wait) -> bool {
    let mut tries = 0_u32;
    let mut asleep_since = None;
    loop {
        if record.reader.is_quiet(number) {
            note_wait(asleep_since);
            return true;
        }
        tries += 1;
        match (tries, wait) {
            (..=PATIENCE, _) => spin_loop(),
            (_, Wait::Briefly) => {
                note_stall(record);
                return false;
            }
            (_, Wait::Until(end)) if Instant::now() >= end => {
                note_stall(record);
                note_wait(asleep_since);
                return false;
            }
            // A reader that has the processor is done within a few yields.
            (..=96, _) => yield_now(),
            // Preempted, or blocked inside its section: sleep, longer and longer.
            _ => {
                asleep_since.get_or_insert_with(Instant::now);
                note_stall(record);
                std::thread::sleep(Duration::from_micros(u64::from(tries - 96).min(20) * 50));
            }
        }
    }
}

/// Keeps account of a section that holds a grace period up, and tells of it once. The caller holds the writers' lock.
fn note_stall(record: &Record) {
    let note = &record.stall;
    let active = record.reader.active();
    // Relaxed, all: written under the writers' lock, read for a report.
    if active == 0 || note.active.load(Ordering::Relaxed) != active {
        note.since_us.store(stall::now_us(), Ordering::Relaxed);
        note.is_told.store(0, Ordering::Relaxed);
        note.active.store(active, Ordering::Relaxed);
        return;
    }
    if note.is_told.load(Ordering::Relaxed) == 0
        && let Some(waited) = record.waited()
        && stall::is_long(waited)
    {
        note.is_told.store(1, Ordering::Relaxed);
        stall::tell(&record.stall(waited));
    }
}

/// The sections that hold a grace period up now.
pub(super) fn stalls() -> Vec<Stall> {
    records().filter_map(|record| Some(record.stall(record.waited()?))).collect()
}

/// The longest that a writer has slept for one reader: a section that lasts shows here.
static LONGEST_WAIT_US: AtomicU64 = AtomicU64::new(0);

/// The caller holds the writers' lock.
fn note_wait(since: Option<Instant>) {
    if let Some(since) = since {
        let waited = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        // Relaxed: only a statistic.
        if waited > LONGEST_WAIT_US.load(Ordering::Relaxed) {
            LONGEST_WAIT_US.store(waited, Ordering::Relaxed);
        }
    }
}

/// In microseconds.
pub(super) fn longest_wait_us() -> u64 {
    LONGEST_WAIT_US.load(Ordering::Relaxed)
}
