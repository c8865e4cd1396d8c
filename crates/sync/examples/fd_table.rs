//! A table of file descriptors: files are looked up without a lock while other threads close them.
//!
//! A lookup adds one to a file's count and asks afterwards: was the file alive, and is it still the one in the table? The
//! last reference to go destroys the file, whether it is the table's or that of a thread in the middle of a read.
//!
//! `cargo run -p vfscale-sync --example fd_table`

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use vfscale_sync::{AtomicId, FileRef, GetFile, Id, Pool, PutFile, Slot, rcu};

const DESCRIPTORS: usize = 8;
const READERS: usize = 3;
const ROUNDS: usize = 100_000;

struct File {
    refs: FileRef,
    is_open: AtomicBool,
}

impl Slot for File {
    fn new() -> Self {
        File { refs: FileRef::new(), is_open: AtomicBool::new(false) }
    }
}

static FILES: Pool<File> = Pool::new(100_000);
static TABLE: [AtomicId<File>; DESCRIPTORS] = [const { AtomicId::none() }; DESCRIPTORS];
static DESTROYED: AtomicU64 = AtomicU64::new(0);

/// A reference to a file. It stays open until this is dropped, whatever the table says.
struct Opened(Id<File>);

impl Opened {
    fn read(&self) {
        assert!(FILES.slot(self.0).is_open.load(Relaxed), "destroyed under a reader");
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let guard = rcu::pin();
        let answer = FILES.slot(self.0).refs.put(&guard);
        after_put(self.0, answer);
    }
}

/// What the last reference leaves to do.
fn after_put(file: Id<File>, answer: PutFile) {
    if answer == PutFile::Last {
        FILES.slot(file).is_open.store(false, Relaxed);
        DESTROYED.fetch_add(1, Relaxed);
        FILES.retire(file, &rcu::pin());
    }
}

/// Puts a new file at a descriptor, which must be free. The table has the first reference.
fn open(fd: usize) {
    let file = FILES.alloc().expect("room for a file");
    file.refs.reset();
    file.is_open.store(true, Relaxed);
    let before = TABLE[fd].swap(Some(file.publish()), Release);
    assert!(before.is_none(), "descriptor {fd} is in use");
}

/// Empties the descriptor, then drops the table's reference: in this order, or a lookup would find a dead file for ever.
fn close(fd: usize) {
    let file = TABLE[fd].swap(None, AcqRel).expect("an open descriptor");
    after_put(file, FILES.slot(file).refs.put_close());
}

/// The file behind a descriptor, if there is one.
fn get(fd: usize) -> Option<Opened> {
    let guard = rcu::pin();
    loop {
        let file = TABLE[fd].load(Acquire)?;
        if FILES.get(file, &guard).refs.get() == GetFile::Taken {
            let opened = Opened(file);
            if TABLE[fd].load(Acquire) == Some(file) {
                return Some(opened);
            }
        }
        // It was closed meanwhile: there may be another file by now, or none.
    }
}

fn main() {
    (0..DESCRIPTORS).for_each(open);
    let got = std::thread::scope(|scope| {
        let reader = || {
            let found = (0..ROUNDS).filter_map(|n| get(n % DESCRIPTORS));
            found.map(|file| file.read()).count()
        };
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(reader)).collect();
        for round in 0..ROUNDS {
            close(round % DESCRIPTORS);
            open(round % DESCRIPTORS);
        }
        readers.into_iter().map(|reader| reader.join().unwrap()).sum::<usize>()
    });
    (0..DESCRIPTORS).for_each(close);
    let destroyed = DESTROYED.load(Relaxed);
    assert_eq!(destroyed, (ROUNDS + DESCRIPTORS) as u64, "every file is destroyed once");

    println!("{destroyed} files were opened, closed and destroyed");
    println!(
        "{} lookups by {READERS} threads: {got} got a file, which stayed open for them",
        READERS * ROUNDS
    );
}
