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
use vfscale_sync::experimental::ReservedXchg;
use vfscale_sync::{CasRef, FileRef, GetFile, PutFile, rcu};

/// A reference count in one of its forms.
trait Form: 'static {
    fn new() -> Self;
    fn get(&self) -> GetFile;
    fn put(&self) -> PutFile;
}

macro_rules! form {
    ($name:ident($count:ty), $get:ident, $put:ident $(, $guard:expr)?) => {
        struct $name($count);

        impl Form for $name {
            fn new() -> Self {
                Self(<$count>::new())
            }
            fn get(&self) -> GetFile {
                self.0.$get()
            }
            fn put(&self) -> PutFile {
                self.0.$put($(&$guard)?)
            }
        }
    };
}

form!(Zones(FileRef), get, put, rcu::pin());
form!(Closing(FileRef), get, put_close);
form!(Cas(CasRef), get, put);
form!(Reserved(ReservedXchg), get, put);

/// A type-stable slot: its word stays readable after death, its body does not.
struct Slot<F> {
    refs: F,
    body: UnsafeCell<bool>,
    deaths: AtomicU32,
}

impl<F: Form> Slot<F> {
    fn new() -> Arc<Self> {
        Arc::new(Self { refs: F::new(), body: UnsafeCell::new(true), deaths: AtomicU32::new(0) })
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
        if self.refs.put() == PutFile::Last {
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

/// Runs a model with each form.
macro_rules! with_each_form {
    ($name:literal, $bound:expr, $model:ident) => {
        check(concat!($name, ", FileRef"), $bound, $model::<Zones>);
        check(concat!($name, ", FileRef put_close"), $bound.or(Some(3)), $model::<Closing>);
        check(concat!($name, ", CasRef"), $bound, $model::<Cas>);
        check(concat!($name, ", ReservedXchg"), $bound.or(Some(3)), $model::<Reserved>);
    };
}

/// One drops the last reference, two others get: at most one death, after all uses, and none is
/// undone.
#[test]
fn gets_race_the_last_put() {
    fn model<F: Form>() {
        let slot = Slot::<F>::new();
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
    }
    // Not `ReservedXchg`: two who wait in turns for a third are a schedule without an end to loom.
    check("gets_race_the_last_put, FileRef", Some(3), model::<Zones>);
    check("gets_race_the_last_put, FileRef put_close", Some(3), model::<Closing>);
    check("gets_race_the_last_put, CasRef", Some(3), model::<Cas>);
}

/// The same with one getter that comes twice, without a bound.
#[test]
fn a_getter_comes_twice() {
    fn model<F: Form>() {
        let slot = Slot::<F>::new();
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
    }
    with_each_form!("a_getter_comes_twice", None, model);
}

/// FR-2 R5.2: a get after the closer's put finds the table's entry cleared, though others hold the file.
#[test]
fn a_late_get_sees_the_entry_cleared() {
    fn model<F: Form>() {
        let file = Arc::new((F::new(), AtomicU32::new(1), AtomicU32::new(0)));
        // Another user's: the file outlives the closing.
        assert_eq!(file.0.get(), GetFile::Taken);
        let closer = {
            let file = file.clone();
            thread::spawn(move || {
                let (refs, entry, closed) = &*file;
                entry.store(0, Relaxed);
                assert_eq!(refs.put(), PutFile::StillLive);
                closed.store(1, Relaxed);
            })
        };
        let (refs, entry, closed) = &*file;
        let late = closed.load(Relaxed) == 1;
        assert_eq!(refs.get(), GetFile::Taken);
        let found = entry.load(Relaxed) == 1;
        assert!(!(late && found), "found in its slot after the close");
        closer.join().unwrap();
    }
    with_each_form!("a_late_get_sees_the_entry_cleared", None, model);
}

/// FR-3: a slot in its next life, reached through a stale pointer.
#[test]
fn a_stray_get_sees_the_new_life_whole() {
    check("a_stray_get_sees_the_new_life_whole", None, || {
        let slot = Arc::new((FileRef::new(), CasRef::new(), UnsafeCell::new(1)));
        let stray = {
            let slot = slot.clone();
            thread::spawn(move || {
                let (zones, cas, body) = &*slot;
                // SAFETY: the model's question: a reference comes with the fields.
                let look = || body.with(|life| unsafe { *life });
                if zones.get() == GetFile::Taken {
                    assert!((1..3).contains(&look()));
                    let _ = zones.put(&rcu::pin());
                } else if cas.get() == GetFile::Taken {
                    assert!((1..3).contains(&look()));
                    let _ = cas.put();
                }
            })
        };
        let (zones, cas, body) = &*slot;
        if zones.put(&rcu::pin()) == PutFile::Last && cas.put() == PutFile::Last {
            // SAFETY: dead in both counts, and we were told so alone.
            body.with_mut(|life| unsafe { *life = 2 });
            cas.reset();
            zones.reset();
        }
        stray.join().unwrap();
    });
}
