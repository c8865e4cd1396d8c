//! `FileRef` under every schedule of the smallest cases.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom_file_ref`
#![cfg(loom)]

mod loom_common;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;
use loom_common::check;
use vfscale_sync::{FileRef, GetFile, PutFile, rcu};

/// A type-stable slot: its word stays readable after death, its body does not.
struct Slot {
    refs: FileRef,
    body: UnsafeCell<bool>,
    deaths: AtomicU32,
}

impl Slot {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            refs: FileRef::new(),
            body: UnsafeCell::new(true),
            deaths: AtomicU32::new(0),
        })
    }

    fn get_use_put(&self) -> GetFile {
        let got = self.refs.get();
        if got == GetFile::Taken {
            // SAFETY: the model's question: a reference keeps destruction away.
            self.body.with(|alive| assert!(unsafe { *alive }, "used after death"));
            self.put();
        }
        got
    }

    fn put(&self) {
        if self.refs.put(&rcu::pin()) == PutFile::Last {
            // SAFETY: dead, and we were told so alone.
            self.body.with_mut(|alive| unsafe { *alive = false });
            self.deaths.fetch_add(1, Relaxed);
        }
    }

    fn assert_died_once(&self) {
        assert_eq!(self.deaths.load(Relaxed), 1);
        assert_eq!(self.refs.get(), GetFile::Dead, "resurrected");
    }
}

/// One drops the last reference, two others get: at most one death, after all uses, and none is
/// undone.
#[test]
fn gets_race_the_last_put() {
    check("gets_race_the_last_put", Some(3), || {
        let slot = Slot::new();
        let getters: Vec<_> = (0..2)
            .map(|_| {
                let slot = slot.clone();
                thread::spawn(move || {
                    let _ = slot.get_use_put();
                })
            })
            .collect();
        slot.put();
        for getter in getters {
            getter.join().unwrap();
        }
        slot.assert_died_once();
    });
}

/// The same with one getter that comes twice, without a bound.
#[test]
fn a_getter_comes_twice() {
    check("a_getter_comes_twice", None, || {
        let slot = Slot::new();
        let getter = {
            let slot = slot.clone();
            thread::spawn(move || {
                let first = slot.get_use_put();
                let second = slot.get_use_put();
                assert!(
                    !(first == GetFile::Dead && second == GetFile::Taken),
                    "resurrected after a refusal"
                );
            })
        };
        slot.put();
        getter.join().unwrap();
        slot.assert_died_once();
    });
}
