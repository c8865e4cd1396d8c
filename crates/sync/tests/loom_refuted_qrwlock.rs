//! Forms of the queued rwlock that were wrong once. Each must fail here: a checker that lets one pass is broken.
//! `docs/lessons/qrwlock.md` lists them.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom_refuted_qrwlock`
#![cfg(loom)]

mod loom_common;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use loom_common::check;
use vfscale_sync::Ordering::{Acquire, Relaxed, Release};
use vfscale_sync::wait::WaitWord;

const WRITER: u32 = 1;
const READER: u32 = 2;

/// How the writer's side differs from the right form.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// It acquires with the read of the free word instead of with the exchange that takes it.
    AcquireOnRead,
    /// It unlocks by storing the whole word.
    StoreToUnlock,
    /// It sees the word free, then sets its bit whatever the word is by then.
    SetAfterLook,
}

struct Lock {
    word: WaitWord,
    value: UnsafeCell<u32>,
}

// SAFETY: the model's question.
unsafe impl Sync for Lock {}

impl Lock {
    fn try_read(&self) {
        if self.word.fetch_add(READER, Acquire) & WRITER == 0 {
            // SAFETY: the model's question.
            self.value.with(|value| unsafe { *value });
        }
        self.word.fetch_sub(READER, Release);
    }

    fn try_write(&self, fault: Fault) {
        let (read, exchange) =
            if fault == Fault::AcquireOnRead { (Acquire, Relaxed) } else { (Relaxed, Acquire) };
        if self.word.load(read) != 0 {
            return;
        }
        if fault == Fault::SetAfterLook {
            self.word.fetch_or(WRITER, exchange);
        } else if self.word.compare_exchange(0, WRITER, exchange, Relaxed).is_err() {
            return;
        }
        // SAFETY: the model's question.
        self.value.with_mut(|value| unsafe { *value += 1 });
        if fault == Fault::StoreToUnlock {
            self.word.store(0, Release);
        } else {
            self.word.fetch_sub(WRITER, Release);
        }
    }
}

fn writer_and_reader(fault: Fault) {
    let lock = Arc::new(Lock { word: WaitWord::new(0), value: UnsafeCell::new(0) });
    let reader = {
        let lock = lock.clone();
        thread::spawn(move || lock.try_read())
    };
    lock.try_write(fault);
    reader.join().unwrap();
    assert_eq!(lock.word.load(Relaxed), 0, "somebody holds a lock that nobody holds");
}

/// The twin is faithful: without a fault it passes (QR-2 of `qrwlock`).
#[test]
fn by_hand_and_right_it_holds() {
    check("by_hand_and_right_it_holds", None, || writer_and_reader(Fault::None));
}

/// Upstream's bug of 2021: a reader comes and goes between the read and the exchange, and its
/// reads are not ordered before the writer's writes.
#[test]
#[should_panic(expected = "ausality violation")]
fn acquiring_with_the_read_is_refuted() {
    check("acquiring_with_the_read_is_refuted", None, || writer_and_reader(Fault::AcquireOnRead));
}

/// A reader that has added itself and found the writer takes itself out of a word that no longer
/// counts it.
#[test]
#[should_panic(expected = "nobody holds")]
fn unlocking_by_a_store_is_refuted() {
    check("unlocking_by_a_store_is_refuted", None, || writer_and_reader(Fault::StoreToUnlock));
}

/// A reader comes in between the look and the bit.
#[test]
#[should_panic(expected = "Causality violation")]
fn setting_the_writer_bit_after_a_look_is_refuted() {
    check("setting_the_writer_bit_after_a_look_is_refuted", None, || {
        writer_and_reader(Fault::SetAfterLook);
    });
}
