//! Designs that were refused, or that we got wrong once. Each must fail here: a checker that lets
//! one pass is broken.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom_refuted`
#![cfg(loom)]

mod loom_common;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicU32, fence};
use loom::thread;
use loom_common::check;
use vfscale_sync::wait::{WaitWord, wait, wake_one};
use vfscale_sync::{FileRef, GetFile, PutFile, rcu};

/// An open file with a plain count, as the fget thread had it.
struct File {
    count: AtomicU32,
    destroyed: AtomicBool,
}

impl File {
    fn new(count: u32) -> Arc<Self> {
        Arc::new(Self { count: AtomicU32::new(count), destroyed: AtomicBool::new(false) })
    }

    fn put(&self) {
        if self.count.fetch_sub(1, AcqRel) == 1 {
            self.destroyed.store(true, SeqCst);
        }
    }

    /// A get that says yes promises that nobody has destroyed the file, or will, before our put.
    fn assert_not_doomed(&self) {
        assert!(!self.destroyed.load(SeqCst), "resurrected: a reference on a destroyed file");
    }
}

/// How a get takes its reference.
type Get = fn(&File) -> bool;

fn race(getters: usize, count: u32, get: Get) {
    let file = File::new(count);
    let threads: Vec<_> = (0..getters)
        .map(|_| {
            let file = file.clone();
            thread::spawn(move || {
                if get(&file) {
                    file.assert_not_doomed();
                    file.put();
                }
            })
        })
        .collect();
    for _ in 0..count {
        file.put();
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

/// fget thread, as proposed: look whether the count is zero, then add. If the last put came in
/// between the get fails, and leaves its one behind for the next to find.
#[test]
#[should_panic(expected = "resurrected")]
fn check_then_add_is_refuted() {
    check("check_then_add_is_refuted", None, || {
        race(2, 1, |file| file.count.load(Acquire) != 0 && file.count.fetch_add(1, AcqRel) != 0);
    });
}

/// The same with the one taken back: in between, a third thread finds it.
#[test]
#[should_panic(expected = "resurrected")]
fn check_then_add_with_undo_is_refuted() {
    check("check_then_add_with_undo_is_refuted", Some(3), || {
        race(2, 1, |file| {
            if file.count.load(Acquire) == 0 {
                return false;
            }
            let taken = file.count.fetch_add(1, AcqRel) != 0;
            if !taken {
                file.count.fetch_sub(1, AcqRel);
            }
            taken
        });
    });
}

/// A count above the number of processors is safe to add to, said a reply: so many threads cannot
/// be between check and add. They can, asleep; and the droppers do not wait for them.
#[test]
#[should_panic(expected = "resurrected")]
fn adding_with_a_margin_of_processors_is_refuted() {
    const PROCESSORS: u32 = 2;
    check("adding_with_a_margin_of_processors_is_refuted", Some(3), || {
        race(1, PROCESSORS + 1, |file| {
            let mut seen = file.count.load(Acquire);
            loop {
                if seen > PROCESSORS {
                    file.count.fetch_add(1, AcqRel);
                    return true;
                }
                if seen == 0 {
                    return false;
                }
                match file.count.compare_exchange(seen, seen + 1, AcqRel, Acquire) {
                    Ok(_) => return true,
                    Err(fresh) => seen = fresh,
                }
            }
        });
    });
}

/// The right form of the same race, for comparison: add to what is not zero in one step.
#[test]
fn compare_exchange_unless_zero_holds() {
    check("compare_exchange_unless_zero_holds", Some(3), || {
        race(2, 1, |file| {
            file.count.fetch_update(AcqRel, Acquire, |n| (n != 0).then_some(n + 1)).is_ok()
        });
    });
}

/// A table of one entry, and the one slot that files of the pool live in, one after the other.
struct Table {
    entry: AtomicU32,
    refs: FileRef,
    /// Which file lives in the slot.
    identity: AtomicU32,
}

/// Finds the file that the entry shows; answers which one it got.
fn fget(table: &Table, look_again: bool) -> Option<u32> {
    let guard = rcu::pin();
    let seen = table.entry.load(SeqCst);
    if seen == 0 || table.refs.get() == GetFile::Dead {
        return None;
    }
    let got = table.identity.load(Acquire);
    if look_again && table.entry.load(SeqCst) != seen {
        // If that was the last one the file is ours to destroy, which nobody looks at here.
        let _ = table.refs.put(&guard);
        return None;
    }
    Some(got)
}

/// One closes the file and the pool gives its slot to another file, which is in no table.
fn close_and_reuse(look_again: bool) {
    let table = Arc::new(Table {
        entry: AtomicU32::new(1),
        refs: FileRef::new(),
        identity: AtomicU32::new(1),
    });
    let getter = {
        let table = table.clone();
        thread::spawn(move || {
            if let Some(got) = fget(&table, look_again) {
                assert_eq!(got, 1, "wrong file: the entry never showed this one");
            }
        })
    };
    table.entry.store(0, SeqCst);
    if table.refs.put(&rcu::pin()) == PutFile::Last {
        table.identity.store(2, Release);
        table.refs.reset();
    }
    getter.join().unwrap();
}

/// A get that does not look at the table again returns a file that was never there.
#[test]
#[should_panic(expected = "wrong file")]
fn a_get_without_a_second_look_is_refuted() {
    check("a_get_without_a_second_look_is_refuted", None, || close_and_reuse(false));
}

/// The right form.
#[test]
fn a_get_with_a_second_look_holds() {
    check("a_get_with_a_second_look_holds", None, || close_and_reuse(true));
}

/// Words that outlive the schedule: a deadlock unwinds through its owners, and their drops would
/// end the process.
fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// A lock whose unlock is a store and a look at a flag, as in `combining`.
struct FlagLock {
    lock: WaitWord,
    flag: WaitWord,
}

/// The word that a sleeper sleeps on.
#[derive(Clone, Copy, PartialEq)]
enum SleepOn {
    Lock,
    Flag,
}

impl FlagLock {
    fn try_lock(&self) -> bool {
        self.lock.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }

    fn lock(&self, on: SleepOn) {
        while !self.try_lock() {
            self.flag.store(1, Relaxed);
            fence(SeqCst);
            if self.try_lock() {
                return;
            }
            match on {
                SleepOn::Lock => wait(&self.lock, 1),
                SleepOn::Flag => wait(&self.flag, 1),
            }
        }
    }

    fn unlock(&self, on: SleepOn) {
        self.lock.store(0, Release);
        fence(SeqCst);
        if self.flag.load(Relaxed) == 1 && self.flag.swap(0, Relaxed) == 1 {
            match on {
                SleepOn::Lock => wake_one(&self.lock),
                SleepOn::Flag => wake_one(&self.flag),
            }
        }
    }
}

/// A holder, one who sleeps, and a third who takes the lock between the wake-up and the sleep.
fn three_at_a_flag_lock(on: SleepOn) {
    let lock = leak(FlagLock { lock: WaitWord::new(1), flag: WaitWord::new(0) });
    let sleeper = thread::spawn(move || {
        lock.lock(on);
        lock.unlock(on);
    });
    let third = thread::spawn(move || {
        if lock.try_lock() {
            lock.unlock(on);
        }
    });
    lock.unlock(on);
    sleeper.join().unwrap();
    third.join().unwrap();
}

/// The waker clears the flag and wakes whoever sleeps on the lock, before anybody does; the third
/// thread takes the lock; the sleeper finds it held and sleeps; the third sees no flag.
#[test]
#[should_panic(expected = "deadlock")]
fn sleeping_on_the_lock_while_the_waker_clears_a_flag_is_refuted() {
    check("sleeping_on_the_lock_while_the_waker_clears_a_flag_is_refuted", Some(3), || {
        three_at_a_flag_lock(SleepOn::Lock);
    });
}

/// The right word.
#[test]
fn sleeping_on_the_flag_holds() {
    check("sleeping_on_the_flag_holds", Some(3), || three_at_a_flag_lock(SleepOn::Flag));
}

/// What a thread that has slept takes the lock with.
fn three_at_a_sleep_bit(after_sleep: u32) {
    const HELD: u32 = 1;
    const SLEEPERS: u32 = 2;
    let word = leak(WaitWord::new(HELD));
    let unlock = |word: &WaitWord| {
        if word.swap(0, Release) & SLEEPERS != 0 {
            wake_one(word);
        }
    };
    let sleepers: Vec<_> = (0..2)
        .map(|_| {
            thread::spawn(move || {
                let mut bits = HELD;
                while word.compare_exchange(0, bits, Acquire, Relaxed).is_err() {
                    let marked = word.compare_exchange(HELD, HELD | SLEEPERS, Relaxed, Relaxed);
                    if marked == Err(0) {
                        continue;
                    }
                    wait(word, HELD | SLEEPERS);
                    bits = after_sleep;
                }
                unlock(word);
            })
        })
        .collect();
    unlock(word);
    for sleeper in sleepers {
        sleeper.join().unwrap();
    }
}

/// Two sleep; the one that is woken takes the lock with the sleep bit cleared; nobody wakes the
/// other.
#[test]
#[should_panic(expected = "deadlock")]
fn clearing_the_sleep_bit_when_woken_is_refuted() {
    check("clearing_the_sleep_bit_when_woken_is_refuted", Some(3), || three_at_a_sleep_bit(1));
}

/// The right form, as in `lockref`.
#[test]
fn keeping_the_sleep_bit_when_woken_holds() {
    check("keeping_the_sleep_bit_when_woken_holds", Some(3), || three_at_a_sleep_bit(3));
}

/// A writer that acquires with the read of the free word instead of with the exchange that takes
/// it: a reader comes and goes in between, and its reads are not ordered before the writer's
/// writes.
fn writer_among_readers(on_read: bool) {
    const WRITER: u32 = 1;
    const READER: u32 = 2;
    struct Lock {
        word: AtomicU32,
        value: UnsafeCell<u32>,
    }
    // SAFETY: the model's question.
    unsafe impl Sync for Lock {}
    let lock = Arc::new(Lock { word: AtomicU32::new(0), value: UnsafeCell::new(0) });
    let reader = {
        let lock = lock.clone();
        thread::spawn(move || {
            if lock.word.fetch_add(READER, Acquire) & WRITER == 0 {
                // SAFETY: the model's question.
                lock.value.with(|value| unsafe { *value });
            }
            lock.word.fetch_sub(READER, Release);
        })
    };
    let (read, exchange) = if on_read { (Acquire, Relaxed) } else { (Relaxed, Acquire) };
    if lock.word.load(read) == 0 && lock.word.compare_exchange(0, WRITER, exchange, Relaxed).is_ok()
    {
        // SAFETY: the model's question.
        lock.value.with_mut(|value| unsafe { *value += 1 });
        lock.word.fetch_sub(WRITER, Release);
    }
    reader.join().unwrap();
}

/// Upstream's bug of 2021.
#[test]
#[should_panic(expected = "ausality violation")]
fn acquiring_with_the_read_is_refuted() {
    check("acquiring_with_the_read_is_refuted", None, || writer_among_readers(true));
}

/// The right form (QR-2 of `qrwlock`).
#[test]
fn acquiring_with_the_exchange_holds() {
    check("acquiring_with_the_exchange_holds", None, || writer_among_readers(false));
}
