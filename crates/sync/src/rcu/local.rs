//! The running thread's side of the domain: sections, garbage, and what happens to it when the thread ends.
//!
//! # Why
//! To enter and to leave are the price of every read, so each is one look at the thread's own data and one store. All that is
//! rare (a section inside another, no record yet, garbage to see to, a thread that ends) hides behind that look.
//!
//! # Who writes
//! `LOCAL`: its thread. The bag: its thread, and who steals it in a `barrier` (BL-1 to BL-3 of `biased`). `ORPHANS`: under its lock.
//!
//! # A barrier, step by step
//! ```text
//!  T1 `barrier`                          T2 leaves a section
//!                                        executing = 1
//!                                        takes its oldest batch out of the bag
//!  steals the bag: finds the rest
//!  waits for a grace period, runs it     runs its batch
//!  waits until `executing` is 0          executing = 0      (RCU-9)
//! ```
//! T2 says so before it takes, so T1 finds the batch in the bag or waits for T2.
//!
//! # Orderings
//! - RCU-9 `executing` cleared (Release) -> the end of a barrier (Acquire): what the calls did

// unmodelled file: a thread's own data, ended by the thread; ThreadSanitizer and `tests/rcu.rs` look at it. The protocol is in `domain.rs`.

use super::defer::{Bag, Sealed};
use super::domain::Reader;
use super::registry::{self, DOMAIN, Record, RecordCounts, Wait, records};
use crate::mutex::Mutex;
use crate::prim::{AtomicUsize, Ordering, yield_now};
use std::cell::Cell;
use std::hint::cold_path;
use std::mem::ManuallyDrop;
use std::panic::{self, AssertUnwindSafe};
use std::ptr;
use std::time::{Duration, Instant};

/// Sections open in this thread, beyond the outermost.
const DEPTH: u32 = (1 << 24) - 1;
/// Deferred calls are running in this thread.
const CALLBACK: u32 = 1 << 28;
/// The bag wants to be seen to when the outermost section ends.
const URGENT: u32 = 1 << 29;
/// The thread is ending and owns a record only while in a section.
const EXITED: u32 = 1 << 30;

/// How long a thread with too much garbage waits for readers when it leaves a section. Bounded, because it may hold a
/// lock that one of the readers wants: it then goes on, and waits again next time.
const PATIENCE: Duration = Duration::from_millis(1);

/// # Invariants
/// `reader` is the word of `record`, or [`NOBODY`] while there is none. A thread in a section has a record.
struct Local {
    /// Whether the thread is in a section is read from the word itself. `NOBODY` says yes, so to enter takes one look.
    reader: Cell<&'static Reader>,
    /// Zero in a thread that has nothing special to do and no section inside another: to leave takes one look.
    state: Cell<u32>,
    record: Cell<Option<&'static Record>>,
}

/// The word of a thread without a record. No writer scans it.
static NOBODY: Reader = Reader::in_section();

thread_local! {
    // Without a destructor, so that access is one address computation.
    static LOCAL: Local = const {
        Local { reader: Cell::new(&NOBODY), state: Cell::new(0), record: Cell::new(None) }
    };
    static AT_EXIT: AtExit = const { AtExit };
}

/// Garbage of threads that have ended.
static ORPHANS: Mutex<Vec<Sealed>> = Mutex::new(Vec::new());
/// How many batches `ORPHANS` holds; a hint that saves the lock.
static ORPHAN_COUNT: AtomicUsize = AtomicUsize::new(0);
/// Held by who goes through all bags.
static BARRIER: Mutex<()> = Mutex::new(());

struct AtExit;

impl Drop for AtExit {
    fn drop(&mut self) {
        LOCAL.with(|local| {
            local.state.set(local.state.get() | EXITED);
            // A guard in another thread-local may outlive this destructor: its end then does the rest.
            if !local.in_section() {
                local.hand_over();
            }
        });
    }
}

/// Opens a section.
#[inline]
pub(super) fn enter() {
    LOCAL.with(|local| {
        let reader = local.reader.get();
        if !reader.is_in_section() {
            reader.enter(&DOMAIN);
            return;
        }
        cold_path();
        if !ptr::eq(reader, &NOBODY) {
            let state = local.state.get();
            // Guards have no size: a program can make, and lose, as many as it likes.
            assert!(state & DEPTH != DEPTH, "more sections inside each other than can be counted");
            local.state.set(state + 1);
        } else {
            local.enter_slow();
        }
    });
}

/// Closes a section.
#[inline]
pub(super) fn leave() {
    LOCAL.with(|local| {
        let state = local.state.get();
        if state == 0 {
            local.reader.get().leave();
            return;
        }
        cold_path();
        if state & DEPTH != 0 {
            local.state.set(state - 1);
        } else {
            local.leave_slow();
        }
    });
}

/// Closes the section that the running thread is in and opens the next, if there is none inside it.
#[inline]
pub(super) fn renew() -> bool {
    LOCAL.with(|local| {
        let state = local.state.get();
        if state == 0 {
            local.reader.get().enter(&DOMAIN);
            return true;
        }
        cold_path();
        let is_alone = state & DEPTH == 0;
        if is_alone {
            local.leave_slow();
            enter();
        }
        is_alone
    })
}

/// Whether the running thread is in a section.
pub(super) fn in_section() -> bool {
    LOCAL.with(Local::in_section)
}

/// Whether the running thread is inside a deferred call.
pub(super) fn in_callback() -> bool {
    LOCAL.with(|local| local.state.get() & CALLBACK != 0)
}

/// Adds to the running thread's bag; the thread is in a section.
///
/// The closure is built where it will lie: a copy by way of the stack waits for its own stores.
#[inline]
pub(super) fn defer(bytes: usize, f: impl FnOnce() + Send + 'static) {
    let record = LOCAL.with(Local::record);
    // SAFETY: the record is this thread's, and `push` does not come back here.
    let is_urgent = unsafe { record.with_bag(|bag| bag.push(bytes, f)) };
    RecordCounts::add(&record.counts.deferred, 1);
    RecordCounts::add(&record.counts.deferred_bytes, bytes as u64);
    if is_urgent {
        cold_path();
        LOCAL.with(Local::urge);
    }
}

/// Asks that all that is in the bag be freed as soon as readers allow, however little it is.
pub(super) fn expedite() {
    LOCAL.with(|local| {
        // SAFETY: the record is this thread's, and `hurry` does not come back here.
        unsafe { local.record().with_bag(Bag::hurry) };
        local.urge();
    });
}

/// Waits until all calls that were deferred before are done.
pub(super) fn barrier() {
    let turn = BARRIER.lock();
    let mut taken = Vec::new();
    for record in records() {
        record.steal(|bag| {
            bag.seal(true, || DOMAIN.snapshot());
            taken.extend(std::iter::from_fn(|| bag.take_sealed()));
        });
    }
    {
        // The count under the lock, too, or one that comes in between is forgotten.
        let mut orphans = ORPHANS.lock();
        taken.append(&mut orphans);
        ORPHAN_COUNT.store(0, Ordering::Relaxed);
    }
    registry::wait_for(DOMAIN.snapshot(), Wait::Forever);
    LOCAL.with(|local| {
        let record = local.ensure_record();
        for sealed in taken {
            local.run(record, sealed);
        }
        if local.state.get() & EXITED != 0 {
            local.hand_over();
        }
    });
    // What another thread had already taken out of its bag when we came. Acquire, RCU-9: its effects before our return.
    for record in records() {
        let mut tries = 0;
        while record.executing.load(Ordering::Acquire) != 0 {
            tries += 1;
            if tries < 64 { yield_now() } else { std::thread::sleep(Duration::from_micros(50)) }
        }
    }
    drop(turn);
}

impl Local {
    #[inline]
    fn record(&self) -> &'static Record {
        self.record.get().expect("a thread in a section has a record")
    }

    /// Has the bag seen to when the outermost section ends.
    fn urge(&self) {
        self.state.set(self.state.get() | URGENT);
    }

    fn in_section(&self) -> bool {
        self.record.get().is_some_and(|record| record.reader.is_in_section())
    }

    /// The thread's record, taken now if it has none.
    fn ensure_record(&self) -> &'static Record {
        if let Some(record) = self.record.get() {
            return record;
        }
        // Fails where the thread is already past its destructors.
        if AT_EXIT.try_with(|_| ()).is_err() {
            self.state.set(self.state.get() | EXITED);
        }
        let record = Record::acquire();
        self.record.set(Some(record));
        self.reader.set(&record.reader);
        record
    }

    #[cold]
    fn enter_slow(&self) {
        self.ensure_record().reader.enter(&DOMAIN);
    }

    /// Leaves the outermost section, and does what is to be done then.
    #[cold]
    fn leave_slow(&self) {
        let state = self.state.get();
        self.record().reader.leave();
        if state & CALLBACK != 0 {
            // The flush that runs the callback sees to it.
        } else if state & EXITED != 0 {
            self.hand_over();
        } else if state & URGENT != 0 {
            self.state.set(self.state.get() & !URGENT);
            self.flush(self.record(), false);
        }
    }

    /// Seals what there is, lets grace periods advance as far as they go without waiting, and runs what is ready. Waits,
    /// for a bounded time, if the bag is over its limit.
    fn flush(&self, record: &'static Record, all: bool) {
        {
            let writers = registry::try_lock_writers();
            let snapshot = || match writers {
                Some(_) => DOMAIN.snapshot_locked(),
                None => DOMAIN.snapshot(),
            };
            // SAFETY: the record is ours, and `seal` does not come back here.
            let due = unsafe { record.with_bag(|bag| bag.seal(all, snapshot)) };
            if let (Some(writers), Some(due)) = (&writers, due) {
                while !DOMAIN.is_complete(due) && registry::advance(writers, Wait::Briefly) {}
            }
        }
        self.run_ready(record);
        // SAFETY: the record is ours, and the closure does not come back here.
        let over = unsafe { record.with_bag(|bag| bag.oldest().filter(|_| bag.is_over_limit())) };
        if let Some(oldest) = over
            && registry::wait_for(oldest, Wait::Until(Instant::now() + PATIENCE))
        {
            self.run_ready(record);
        }
    }

    fn run_ready(&self, record: &'static Record) {
        loop {
            // Before we take, so that a barrier that finds the bag empty finds this set: BL-2 and the lock of the orphans
            // order the two.
            record.executing.store(1, Ordering::Relaxed);
            // SAFETY: the record is ours, and `take_ready` does not come back here.
            let ready = unsafe { record.with_bag(|bag| bag.take_ready(&DOMAIN)) };
            match ready.or_else(take_orphan) {
                Some(sealed) => self.run(record, sealed),
                None => break,
            }
        }
        // RCU-9 Release: what the calls did comes before the end of a barrier.
        record.executing.store(0, Ordering::Release);
    }

    fn run(&self, record: &'static Record, sealed: Sealed) {
        let Sealed { mut items, bytes, .. } = sealed;
        let before = self.state.get();
        self.state.set(before | CALLBACK);
        let count = items.len() as u64;
        for call in items.drain(..) {
            // The panic hook has told of it; the other calls, and a barrier that waits for them, have nothing to do with it.
            if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(|| call.run())) {
                // Lost on purpose: dropping it may panic once more.
                let _ = ManuallyDrop::new(payload);
            }
        }
        // Whatever the calls asked for stays asked for.
        self.state.set(self.state.get() & !CALLBACK | before & CALLBACK);
        RecordCounts::add(&record.counts.freed, count);
        RecordCounts::add(&record.counts.freed_bytes, bytes as u64);
        // SAFETY: the record is ours, and `keep` does not come back here.
        unsafe { record.with_bag(|bag| bag.keep(items)) };
    }

    /// Leaves the bag to others and gives the record back: the thread ends.
    fn hand_over(&self) {
        let Some(record) = self.record.get() else { return };
        // Twice, since the calls may defer more.
        self.flush(record, true);
        self.flush(record, true);
        // Before the bag is emptied: a barrier looks into bags first and here second, and must not find both empty.
        let mut orphans = ORPHANS.lock();
        // SAFETY: the record is ours, and the closure does not come back here.
        unsafe {
            record.with_bag(|bag| {
                bag.seal(true, || DOMAIN.snapshot());
                orphans.extend(std::iter::from_fn(|| bag.take_sealed()));
            });
        }
        ORPHAN_COUNT.store(orphans.len(), Ordering::Relaxed);
        drop(orphans);
        self.record.set(None);
        self.reader.set(&NOBODY);
        self.state.set(EXITED);
        record.release();
    }
}

/// A batch of an ended thread whose grace period is over.
fn take_orphan() -> Option<Sealed> {
    // Relaxed: a hint. Who misses an orphan finds it next time.
    if ORPHAN_COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let mut orphans = ORPHANS.try_lock()?;
    let ready = orphans.iter().position(|sealed| DOMAIN.is_complete(sealed.grace))?;
    let sealed = orphans.swap_remove(ready);
    ORPHAN_COUNT.store(orphans.len(), Ordering::Relaxed);
    Some(sealed)
}
