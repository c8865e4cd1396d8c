//! The broken forms of taking a file reference without a lock (fget thread and after). Each must fail here: a checker that lets
//! one pass is broken. `docs/lessons/fget.md` lists them.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom_refuted_fget`
#![cfg(loom)]

mod loom_common;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use loom::thread;
use loom_common::check;
use vfscale_sync::rcu::domain::{Domain, Reader};
use vfscale_sync::wait::WaitWord;
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
    let seen = table.entry.load(Acquire);
    if seen == 0 || table.refs.get() == GetFile::Dead {
        return None;
    }
    // Relaxed: the reference orders it (FR-3).
    let got = table.identity.load(Relaxed);
    if look_again && table.entry.load(Acquire) != seen {
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
    table.entry.store(0, Release);
    if table.refs.put(&rcu::pin()) == PutFile::Last {
        table.identity.store(2, Relaxed);
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

const NOREF: u32 = u32::MAX;
const DEAD: u32 = 0xe000_0000;
const RELEASED: u32 = 0xc000_0000;

/// What the last step of a put judges.
#[derive(Clone, Copy, PartialEq)]
enum Judges {
    /// The value that its own subtraction produced.
    OwnValue,
    /// The count, read once more.
    Reread,
}

/// `FileRef` in 32 bits, with the memory that it stands in; freed memory is written to.
struct Mini {
    word: WaitWord,
    memory: UnsafeCell<u32>,
}

// SAFETY: the model's question.
unsafe impl Sync for Mini {}

impl Mini {
    fn new() -> Self {
        Self { word: WaitWord::new(0), memory: UnsafeCell::new(0) }
    }

    fn touch(&self) -> &WaitWord {
        // SAFETY: the cell reports memory that is freed meanwhile.
        self.memory.with(|memory| unsafe { *memory });
        &self.word
    }

    fn free(&self) {
        // SAFETY: the cell reports who still reads it.
        self.memory.with_mut(|memory| unsafe { *memory = 1 });
    }

    fn get(&self) -> bool {
        self.touch().fetch_add(1, SeqCst).wrapping_add(1).cast_signed() >= 0
    }

    fn put(&self, judges: Judges) -> PutFile {
        let mut left = self.touch().fetch_sub(1, SeqCst).wrapping_sub(1);
        if left.cast_signed() >= 0 {
            return PutFile::StillLive;
        }
        if judges == Judges::Reread {
            left = self.touch().load(Acquire);
        }
        if left == NOREF {
            return match self.touch().compare_exchange(NOREF, DEAD, AcqRel, Relaxed) {
                Ok(_) => PutFile::Last,
                Err(_) => PutFile::StillLive,
            };
        }
        assert!(left < RELEASED, "dropped twice");
        PutFile::StillLive
    }
}

/// One drops the first reference while another takes and drops one.
fn last_put(judges: Judges) {
    let file = Arc::new(Mini::new());
    let other = {
        let file = file.clone();
        thread::spawn(move || {
            if file.get() {
                let _ = file.put(judges);
            }
        })
    };
    let _ = file.put(judges);
    other.join().unwrap();
    assert!(!file.get(), "nobody destroyed it");
}

/// The other took a reference after ours was gone, and destroyed the file: ours was the first drop
/// of two, and reads as a third.
#[test]
#[should_panic(expected = "dropped twice")]
fn a_put_that_reads_the_count_again_is_refuted() {
    check("a_put_that_reads_the_count_again_is_refuted", None, || last_put(Judges::Reread));
}

/// The right form.
#[test]
fn a_put_that_judges_its_own_value_holds() {
    check("a_put_that_judges_its_own_value_holds", None, || last_put(Judges::OwnValue));
}

/// One closes, another finds the file in the table and drops it again, in a read-side section or not;
/// who dropped it last waits for the readers and frees its memory.
fn put_and_free(guarded: bool) {
    struct World {
        domain: Domain,
        readers: [Reader; 2],
        entry: AtomicUsize,
        file: Mini,
        frees: AtomicUsize,
    }
    let put = move |world: &World, me: usize, get: bool| {
        world.readers[me].enter(&world.domain);
        let got = !get || world.entry.load(Acquire) == 1 && world.file.get();
        if !guarded {
            world.readers[me].leave();
        }
        let last = got && world.file.put(Judges::OwnValue) == PutFile::Last;
        if guarded {
            world.readers[me].leave();
        }
        if last {
            world.frees.fetch_add(1, Relaxed);
            // Only one comes here, so no lock is needed between writers.
            let number = world.domain.start_locked();
            for reader in &world.readers {
                while !reader.is_quiet(number) {
                    thread::yield_now();
                }
            }
            world.domain.complete_locked(number);
            world.file.free();
        }
    };
    let world = Arc::new(World {
        domain: Domain::new(),
        readers: [Reader::new(), Reader::new()],
        entry: AtomicUsize::new(1),
        file: Mini::new(),
        frees: AtomicUsize::new(0),
    });
    let other = {
        let world = world.clone();
        thread::spawn(move || put(&world, 1, true))
    };
    world.entry.store(0, Release);
    put(&world, 0, false);
    other.join().unwrap();
    assert_eq!(world.frees.load(Relaxed), 1);
}

/// Between the subtraction and the exchange nothing keeps the memory.
#[test]
#[should_panic(expected = "Causality violation")]
fn a_put_outside_the_guard_is_refuted() {
    check("a_put_outside_the_guard_is_refuted", Some(3), || put_and_free(false));
}

/// The right form, which [`FileRef::put`] asks for by its type.
#[test]
fn a_put_under_the_guard_holds() {
    check("a_put_under_the_guard_holds", Some(3), || put_and_free(true));
}

/// Whether somebody who reads a count of zero may destroy.
fn count_of_zero(may_destroy: bool) {
    struct Body {
        refs: FileRef,
        alive: UnsafeCell<bool>,
    }
    // SAFETY: the model's question.
    unsafe impl Sync for Body {}
    let file = Arc::new(Body { refs: FileRef::new(), alive: UnsafeCell::new(true) });
    let destroy = |file: &Body| {
        // SAFETY: the model's question.
        file.alive.with_mut(|alive| unsafe { *alive = false });
    };
    let user = {
        let file = file.clone();
        thread::spawn(move || {
            if file.refs.get() == GetFile::Taken {
                // SAFETY: the model's question.
                file.alive.with(|alive| assert!(unsafe { *alive }, "used after death"));
                if file.refs.put(&rcu::pin()) == PutFile::Last && !may_destroy {
                    destroy(&file);
                }
            }
        })
    };
    let looker = {
        let file = file.clone();
        thread::spawn(move || {
            if file.refs.count() == 0 && may_destroy {
                destroy(&file);
            }
        })
    };
    if file.refs.put(&rcu::pin()) == PutFile::Last && !may_destroy {
        destroy(&file);
    }
    user.join().unwrap();
    looker.join().unwrap();
}

/// NOREF reads as zero, and the file may live again.
#[test]
#[should_panic(expected = "ausality violation")]
fn destroying_at_a_count_of_zero_is_refuted() {
    check("destroying_at_a_count_of_zero_is_refuted", Some(3), || count_of_zero(true));
}

/// The right form: the last put says so.
#[test]
fn destroying_after_the_last_put_holds() {
    check("destroying_after_the_last_put_holds", Some(3), || count_of_zero(false));
}

/// Two threads share a table; one changes an entry and leaves; the other, alone now, borrows an
/// entry without counting.
fn borrow_when_alone(order: loom::sync::atomic::Ordering) {
    struct Shared {
        users: AtomicU32,
        entry: UnsafeCell<u32>,
    }
    // SAFETY: the model's question.
    unsafe impl Sync for Shared {}
    let table = Arc::new(Shared { users: AtomicU32::new(2), entry: UnsafeCell::new(1) });
    let leaver = {
        let table = table.clone();
        thread::spawn(move || {
            // SAFETY: the model's question.
            table.entry.with_mut(|entry| unsafe { *entry = 2 });
            table.users.fetch_sub(1, Release);
        })
    };
    if table.users.load(order) == 1 {
        // SAFETY: the model's question.
        table.entry.with(|entry| assert_eq!(unsafe { *entry }, 2));
    }
    leaver.join().unwrap();
}

/// Being alone has to be acquired.
#[test]
#[should_panic(expected = "ausality violation")]
fn borrowing_after_a_relaxed_look_is_refuted() {
    check("borrowing_after_a_relaxed_look_is_refuted", None, || borrow_when_alone(Relaxed));
}

/// The right form.
#[test]
fn borrowing_after_an_acquiring_look_holds() {
    check("borrowing_after_an_acquiring_look_holds", None, || borrow_when_alone(Acquire));
}
