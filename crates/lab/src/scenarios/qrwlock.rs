//! qrwlock thread: readers and writers of one lock.
//!
//! The thread's table is a loop of five reads and one write. That loop alone cannot judge a lock: a writer that starves does not
//! show in it, as each thread plays both parts. So pure reads, even and pure writes stand beside it, and a scenario of its own in which
//! one thread only writes among readers and each of its waits is timed. The control has no lock and no sharing: with more
//! threads than processors its stall is the scheduler's share in everyone's.

use std::fmt::Debug;
use std::hint::black_box;
use std::sync::{PoisonError, RwLock};

use crossbeam_utils::sync::ShardedLock;
use vfscale_sync::{BiasedRwLock, ByteCas, QRwLock, WordCas};

use super::{Padded, padded};
use crate::sample::{Setup, Think, Worker};
use crate::scenario::{Arm, Scenario, Subject, expect};

/// A read under the lock sees two halves that only writers change, together.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    left: u64,
    right: u64,
}

/// A lock around a pair.
trait Guarded: Sync + Debug {
    fn read(&self) -> Pair;
    fn write(&self, change: u64);
}

macro_rules! guarded {
    ($lock:ty, $value:ident => $read:expr, $write:expr) => {
        impl Guarded for $lock {
            fn read(&self) -> Pair {
                let $value = self;
                *$read
            }

            fn write(&self, change: u64) {
                let $value = self;
                let mut pair = $write;
                pair.left += change;
                pair.right += change;
            }
        }
    };
}

guarded!(QRwLock<Pair>, lock => lock.read(), lock.write());
guarded!(QRwLock<Pair, ByteCas>, lock => lock.read(), lock.write());
guarded!(QRwLock<Pair, WordCas>, lock => lock.read(), lock.write());
guarded!(BiasedRwLock<Pair>, lock => lock.read(), lock.write());
guarded!(ShardedLock<Pair>, lock => lock.read().unwrap_or_else(PoisonError::into_inner),
    lock.write().unwrap_or_else(PoisonError::into_inner));
guarded!(parking_lot::RwLock<Pair>, lock => lock.read(), lock.write());
guarded!(spin::RwLock<Pair>, lock => lock.read(), lock.write());
guarded!(RwLock<Pair>, lock => lock.read().unwrap_or_else(PoisonError::into_inner),
    lock.write().unwrap_or_else(PoisonError::into_inner));

/// So many reads, then so many writes, and again.
#[derive(Debug)]
struct Mixed<L, const READS: u64, const WRITES: u64>(L);

impl<L: Guarded, const READS: u64, const WRITES: u64> Subject for Mixed<L, READS, WRITES> {
    fn work(&self, worker: &mut Worker<'_>) {
        let Mixed(lock) = black_box(self);
        let mut torn = 0_u64;
        worker.repeat::<256>(|| {
            for _ in 0..READS {
                let seen = lock.read();
                torn |= seen.left ^ seen.right;
            }
            for _ in 0..WRITES {
                lock.write(1);
            }
        });
        assert_eq!(torn, 0, "a reader saw half a write");
        worker.sample.done *= READS + WRITES;
    }

    fn check(&self, done: &[u64]) -> Result<(), String> {
        let writes = done.iter().sum::<u64>() / (READS + WRITES) * WRITES;
        expect("the number of writes", writes as i64, self.0.read().left as i64)
    }
}

/// The same loop on a number of the thread's own.
#[derive(Debug)]
struct Alone<const READS: u64, const WRITES: u64>(Vec<Padded>);

impl<const READS: u64, const WRITES: u64> Subject for Alone<READS, WRITES> {
    fn work(&self, worker: &mut Worker<'_>) {
        let count = black_box(&self.0[worker.number]);
        worker.repeat::<256>(|| {
            for _ in 0..READS {
                black_box(count.get());
            }
            for _ in 0..WRITES {
                count.add_alone(1);
            }
        });
        worker.sample.done *= READS + WRITES;
    }

    fn check(&self, done: &[u64]) -> Result<(), String> {
        self.0.iter().zip(done).try_for_each(|(count, done)| {
            let writes = done / (READS + WRITES) * WRITES;
            expect("a thread's writes", writes as i64, count.get() as i64)
        })
    }
}

const OURS: &str = "vfscale_sync::QRwLock: a queue, a waiting writer announces itself";
const BYTE_CAS: &str = "the same, announcing by compare-exchange of a byte: the thread's form";
const WORD_CAS: &str = "the same, announcing by compare-exchange of the word: the form before it";
const BIASED: &str = "vfscale_sync::BiasedRwLock: readers leave notes in rows of their own threads";
const SHARDED_LOCK: &str = "crossbeam-utils' ShardedLock: a lock per shard, a writer takes all";
const STD: &str = "std RwLock";
const PARKING_LOT: &str = "parking_lot's RwLock";
const SPIN: &str = "spin's RwLock";
const CONTROL: &str = "no lock, a number of the thread's own: what loop and scheduler cost";

/// The arms of one mix.
macro_rules! mix {
    ($reads:literal, $writes:literal) => {
        &[
            Arm { name: "qrwlock", what: OURS, make: mixed::<QRwLock<Pair>, $reads, $writes> },
            Arm {
                name: "byte-cas",
                what: BYTE_CAS,
                make: mixed::<QRwLock<Pair, ByteCas>, $reads, $writes>,
            },
            Arm {
                name: "word-cas",
                what: WORD_CAS,
                make: mixed::<QRwLock<Pair, WordCas>, $reads, $writes>,
            },
            Arm {
                name: "biased",
                what: BIASED,
                make: mixed::<BiasedRwLock<Pair>, $reads, $writes>,
            },
            Arm { name: "std", what: STD, make: mixed::<RwLock<Pair>, $reads, $writes> },
            Arm {
                name: "sharded-lock",
                what: SHARDED_LOCK,
                make: mixed::<ShardedLock<Pair>, $reads, $writes>,
            },
            Arm {
                name: "parking_lot",
                what: PARKING_LOT,
                make: mixed::<parking_lot::RwLock<Pair>, $reads, $writes>,
            },
            Arm { name: "spin", what: SPIN, make: mixed::<spin::RwLock<Pair>, $reads, $writes> },
            Arm {
                name: "control",
                what: CONTROL,
                make: |setup| Box::new(Alone::<$reads, $writes>(padded(setup.threads))),
            },
        ]
    };
}

fn mixed<L: Guarded + Default + 'static, const READS: u64, const WRITES: u64>(
    _: &Setup,
) -> Box<dyn Subject> {
    Box::new(Mixed::<L, READS, WRITES>(L::default()))
}

/// Five reads to a write: the thread's own loop.
pub(crate) const MIX: Scenario = Scenario {
    name: "qrwlock-5to1",
    question: "how fast is a fair read-write lock when one operation in six writes?",
    source: "qrwlock thread, 2015",
    operation: "one read or write under the lock",
    threads: &[1, 2, 8],
    think_ns: &[0],
    arms: mix!(5, 1),
};

/// Reads alone.
pub(crate) const READ: Scenario = Scenario {
    name: "qrwlock-read",
    question: "what does a read under the lock cost when nobody writes?",
    arms: mix!(1, 0),
    ..MIX
};

/// One to one.
pub(crate) const EVEN: Scenario = Scenario {
    name: "qrwlock-1to1",
    question: "how fast is a fair read-write lock when every second operation writes?",
    arms: mix!(1, 1),
    ..MIX
};

/// Writes alone.
pub(crate) const WRITE: Scenario = Scenario {
    name: "qrwlock-write",
    question: "what does a write under the lock cost when nobody reads?",
    arms: mix!(0, 1),
    ..MIX
};

/// The first thread writes, with a thought in between, and each wait is timed; all others read.
#[derive(Debug)]
struct OneWriter<L> {
    lock: L,
    think: Think,
}

/// A write and the thought after it.
const WRITER_THINK_NS: u32 = 300;

impl<L: Guarded> Subject for OneWriter<L> {
    fn work(&self, worker: &mut Worker<'_>) {
        let lock = black_box(&self.lock);
        if worker.number == 0 {
            worker.sample.role = "writer";
            worker.repeat_timed(self.think, || lock.write(1));
        } else {
            worker.sample.role = "reader";
            let mut torn = 0;
            worker.repeat::<256>(|| {
                let seen = lock.read();
                torn |= seen.left ^ seen.right;
            });
            assert_eq!(torn, 0, "a reader saw half a write");
        }
    }

    fn check(&self, done: &[u64]) -> Result<(), String> {
        expect("the number of writes", done[0] as i64, self.lock.read().left as i64)
    }
}

/// What the writer's own time costs where nobody stands in its way.
#[derive(Debug)]
struct NoLock {
    counts: Vec<Padded>,
    think: Think,
}

impl Subject for NoLock {
    fn work(&self, worker: &mut Worker<'_>) {
        let count = black_box(&self.counts[worker.number]);
        if worker.number == 0 {
            worker.sample.role = "writer";
            worker.repeat_timed(self.think, || count.add_alone(1));
        } else {
            worker.sample.role = "reader";
            worker.repeat::<256>(|| {
                black_box(count.get());
            });
        }
    }

    fn check(&self, done: &[u64]) -> Result<(), String> {
        expect("the number of writes", done[0] as i64, self.counts[0].get() as i64)
    }
}

fn one_writer<L: Guarded + Default + 'static>(_: &Setup) -> Box<dyn Subject> {
    Box::new(OneWriter { lock: L::default(), think: Think::of_ns(WRITER_THINK_NS) })
}

pub(crate) const WRITER_WAIT: Scenario = Scenario {
    name: "writer-wait",
    question: "how long does one writer wait among readers that never pause?",
    source: "qrwlock thread, 2015; the starvation of the byte form, 2017",
    operation: "one read or write under the lock; the writer thinks 300 ns in between, which does not count as waiting",
    threads: &[2, 8],
    think_ns: &[0],
    arms: &[
        Arm { name: "qrwlock", what: OURS, make: one_writer::<QRwLock<Pair>> },
        Arm { name: "byte-cas", what: BYTE_CAS, make: one_writer::<QRwLock<Pair, ByteCas>> },
        Arm { name: "std", what: STD, make: one_writer::<RwLock<Pair>> },
        Arm {
            name: "parking_lot",
            what: PARKING_LOT,
            make: one_writer::<parking_lot::RwLock<Pair>>,
        },
        Arm { name: "spin", what: SPIN, make: one_writer::<spin::RwLock<Pair>> },
        Arm {
            name: "control",
            what: CONTROL,
            make: |setup| {
                Box::new(NoLock {
                    counts: padded(setup.threads),
                    think: Think::of_ns(WRITER_THINK_NS),
                })
            },
        },
    ],
};
