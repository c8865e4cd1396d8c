//! fget thread: the whole way from a descriptor to a counted file and back.
//!
//! Ours is the descriptor table of the core: under RCU it loads the slot, counts a reference if the file lives, and looks at the slot again. An
//! author without it keeps `Arc`s in slots that can be swapped, or a slab that hands out guarded entries.

use std::fmt::Debug;
use std::hint::black_box;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use vfscale::{Context, FdTable, OpenFlags, Options, Vfs};
use vfscale_backends::MemFs;

use crate::sample::Worker;
use crate::scenario::{Arm, Scenario, Subject, expect};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "fget",
    question: "what does it cost to turn a descriptor into a counted file and to let it go?",
    source: "fget thread, 2020",
    operation: "fget + fput, with the second look at the slot",
    threads: &[1, 2, 8],
    think_ns: &[0],
    arms: &[
        Arm {
            name: "fdtable",
            what: "vfscale::FdTable: fget, drop",
            make: |_| Box::new(Ours::new()),
        },
        Arm {
            name: "arc-swap",
            what: "a slot of arc-swap: load_full, drop",
            make: |_| Box::new(Swapped::new()),
        },
        Arm {
            name: "sharded-slab",
            what: "sharded-slab: get, drop of the entry",
            make: |_| Box::new(Slab::new()),
        },
    ],
};

/// As many files as a small program has open; the middle one is asked for.
const OPEN: usize = 8;

/// What stands for a file in the peers' tables.
const FILE: u64 = 7;

struct Ours {
    fds: FdTable,
    fd: u32,
    /// Goes last: open files reach into it.
    _vfs: Vfs<MemFs>,
}

impl Debug for Ours {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ours").field("fds", &self.fds).finish_non_exhaustive()
    }
}

impl Ours {
    fn new() -> Ours {
        let vfs = Vfs::new(MemFs::new(), Options::exclusive()).expect("a file system in memory");
        let fds = FdTable::new(64);
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        for _ in 0..OPEN {
            let file = vfs.open_path(&Context::root(), b"/file", flags, 0o644).expect("a file");
            fds.install(file).expect("room");
        }
        Ours { fds, fd: OPEN as u32 / 2, _vfs: vfs }
    }
}

impl Subject for Ours {
    fn work(&self, worker: &mut Worker<'_>) {
        let fds = black_box(&self.fds);
        worker.repeat::<1024>(|| {
            let file = fds.fget(black_box(self.fd));
            assert!(black_box(&file).is_some(), "it is open");
        });
    }

    /// The table's own reference is the last one: closing it closes the file, so no count was lost or left.
    fn check(&self, _: &[u64]) -> Result<(), String> {
        let closed = self.fds.close(self.fd).map_err(|why| format!("close: {why:?}"))?;
        drop(closed);
        let gone = self.fds.fget(self.fd).is_none();
        expect("open files", OPEN as i64 - 1, self.fds.len() as i64)?;
        if gone { Ok(()) } else { Err("a closed descriptor is still open".to_owned()) }
    }
}

#[derive(Debug)]
struct Swapped(Vec<ArcSwapOption<u64>>);

impl Swapped {
    fn new() -> Swapped {
        Swapped((0..OPEN).map(|_| ArcSwapOption::from_pointee(FILE)).collect())
    }
}

impl Subject for Swapped {
    fn work(&self, worker: &mut Worker<'_>) {
        let slots = black_box(&self.0);
        worker.repeat::<1024>(|| {
            let file = slots[black_box(OPEN / 2)].load_full();
            assert!(black_box(&file).is_some(), "it is open");
        });
    }

    fn check(&self, _: &[u64]) -> Result<(), String> {
        let file = self.0[OPEN / 2].swap(None).ok_or("the slot is empty")?;
        expect("the count", 1, Arc::strong_count(&file) as i64)
    }
}

struct Slab {
    slab: sharded_slab::Slab<u64>,
    key: usize,
}

impl Debug for Slab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slab").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Slab {
    fn new() -> Slab {
        let slab = sharded_slab::Slab::new();
        let keys: Vec<usize> = (0..OPEN).map(|_| slab.insert(FILE).expect("room")).collect();
        Slab { key: keys[OPEN / 2], slab }
    }
}

impl Subject for Slab {
    fn work(&self, worker: &mut Worker<'_>) {
        let slab = black_box(&self.slab);
        worker.repeat::<1024>(|| {
            let file = slab.get(black_box(self.key));
            assert!(black_box(&file).is_some(), "it is open");
        });
    }

    /// Taking it out succeeds at once only if no entry is held.
    fn check(&self, _: &[u64]) -> Result<(), String> {
        let file = self.slab.take(self.key).ok_or("it was not there")?;
        expect("the file", FILE as i64, file as i64)?;
        if self.slab.contains(self.key) { Err("an entry was left".to_owned()) } else { Ok(()) }
    }
}
