//! How many instructions the hot operations take while nobody else is there.
//!
//! `cargo xtask counts` runs this under callgrind and compares with `counts.txt`. A benchmark does its operation [`TIMES`] times, so a
//! call and the loop's last round do not matter; the loop itself (two instructions or three) is part of each count.
//!
//! Those named `by_hand` are the same operation on bare atomics, as one would write it without this crate: what a primitive
//! adds to it is a difference of two lines, and with `stats` and `lockdep` off it adds nothing.

#[cfg(not(gungraun))]
fn main() {
    eprintln!("counts: built without `--cfg gungraun`; `cargo xtask counts` sets it");
    std::process::exit(2);
}

#[cfg(gungraun)]
mod counts {
    use std::hint::black_box;
    use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
    use std::sync::atomic::{AtomicU32, AtomicU64};

    use gungraun::{library_benchmark, library_benchmark_group};
    use vfscale_sync::{
        BiasedRwLock, Chained, Countable, Counted, CountedLink, FileRef, GetFile, HashIndex,
        HashLinks, IdLinks, ListAdapter, ListBatch, LockRef, Pool, Put, PutFile, QMutex, QRwLock,
        SeqCount, ShardMark, ShardedAdapter, ShardedList, Slot, fence, rcu,
    };

    /// How often a benchmark does its operation.
    const TIMES: u32 = 1000;

    /// The process as it is later on: the barrier chosen, the thread known, its first section and first garbage behind it.
    fn warm() {
        fence::prepare();
        assert!(
            fence::is_asymmetric(),
            "the system's barrier is refused here: other paths would be counted"
        );
        rcu::pin().defer(0, || ());
        rcu::barrier();
    }

    fn repeat(mut operation: impl FnMut()) {
        (0..TIMES).for_each(|_| operation());
    }

    struct Thing {
        links: IdLinks<Thing>,
        mark: ShardMark,
        chained: HashLinks<Thing>,
        number: AtomicU32,
    }

    impl Slot for Thing {
        fn new() -> Self {
            Thing {
                links: IdLinks::new(),
                mark: ShardMark::new(),
                chained: HashLinks::new(),
                number: AtomicU32::new(0),
            }
        }
    }

    struct OnList;

    impl ListAdapter<Thing> for OnList {
        fn links(thing: &Thing) -> &IdLinks<Thing> {
            &thing.links
        }
    }

    impl ShardedAdapter<Thing> for OnList {
        fn mark(thing: &Thing) -> &ShardMark {
            &thing.mark
        }
    }

    impl Chained for Thing {
        fn links(&self) -> &HashLinks<Self> {
            &self.chained
        }

        fn hash(&self) -> u32 {
            hash(self.number.load(Relaxed))
        }
    }

    impl Countable for Thing {}

    fn hash(number: u32) -> u32 {
        number.wrapping_mul(0x9e37_79b9)
    }

    static POOL: Pool<Thing> = Pool::new(10_000);

    // ---- references

    #[library_benchmark(setup = warm)]
    fn lockref_pair((): ()) {
        static REFS: LockRef = LockRef::new(1, ());
        repeat(|| {
            black_box(&REFS).get();
            assert!(matches!(black_box(&REFS).put_or_lock(), Put::StillLive));
        });
    }

    #[library_benchmark(setup = warm)]
    fn lockref_lock((): ()) {
        static REFS: LockRef = LockRef::new(1, ());
        repeat(|| drop(black_box(&REFS).lock()));
    }

    fn counted() -> (Counted<Thing>, CountedLink<Thing>) {
        warm();
        let (thing, link) = (Counted::new(Thing::new()), CountedLink::empty());
        link.set(Some(&thing), &rcu::pin());
        (thing, link)
    }

    #[library_benchmark(setup = counted)]
    fn counted_get(
        (thing, link): (Counted<Thing>, CountedLink<Thing>),
    ) -> (Counted<Thing>, CountedLink<Thing>) {
        let guard = rcu::pin();
        repeat(|| drop(black_box(&link).get(&guard)));
        // Their end is not part of this.
        (thing, link)
    }

    #[library_benchmark(setup = warm)]
    fn fileref_pair((): ()) {
        static REFS: FileRef = FileRef::new();
        let guard = rcu::pin();
        repeat(|| {
            assert!(matches!(black_box(&REFS).get(), GetFile::Taken));
            assert!(matches!(black_box(&REFS).put(&guard), PutFile::StillLive));
        });
    }

    #[library_benchmark(setup = warm)]
    fn fileref_pair_by_hand((): ()) {
        static REFS: AtomicU64 = AtomicU64::new(0);
        repeat(|| {
            assert!(black_box(&REFS).fetch_add(1, Acquire).wrapping_add(1).cast_signed() >= 0);
            assert!(black_box(&REFS).fetch_sub(1, Release).wrapping_sub(1).cast_signed() >= 0);
        });
    }

    // ---- locks

    #[library_benchmark(setup = warm)]
    fn qrwlock_read((): ()) {
        static LOCK: QRwLock<u32> = QRwLock::new(1);
        repeat(|| drop(black_box(&LOCK).read()));
    }

    #[library_benchmark(setup = warm)]
    fn qrwlock_read_by_hand((): ()) {
        static WORD: AtomicU32 = AtomicU32::new(0);
        repeat(|| {
            assert!(black_box(&WORD).fetch_add(1 << 9, Acquire) & 0x8000_0003 == 0);
            assert!(black_box(&WORD).fetch_sub(1 << 9, Release) & 0x7fff_ff00 != 0x300);
        });
    }

    #[library_benchmark(setup = warm)]
    fn qrwlock_write((): ()) {
        static LOCK: QRwLock<u32> = QRwLock::new(1);
        repeat(|| drop(black_box(&LOCK).write()));
    }

    #[library_benchmark(setup = warm)]
    fn qmutex((): ()) {
        static LOCK: QMutex<u32> = QMutex::new(1);
        repeat(|| drop(black_box(&LOCK).lock()));
    }

    fn biased() -> BiasedRwLock<u32> {
        warm();
        let lock = BiasedRwLock::new(1);
        // The first one gives the lock its bias.
        (0..10).for_each(|_| drop(lock.read()));
        lock
    }

    #[library_benchmark(setup = biased)]
    fn biased_read(lock: BiasedRwLock<u32>) {
        repeat(|| drop(black_box(&lock).read()));
    }

    #[library_benchmark(setup = warm)]
    fn seqcount_read((): ()) {
        static SEQ: SeqCount = SeqCount::new();
        repeat(|| {
            let start = black_box(&SEQ).begin();
            assert!(!black_box(&SEQ).retry(start));
        });
    }

    // ---- lists and lookups

    #[library_benchmark(setup = warm)]
    fn list_batch_pair((): ()) {
        static LIST: ListBatch<Thing, OnList> = ListBatch::new(&POOL);
        let id = POOL.alloc().expect("room").publish();
        repeat(|| {
            LIST.add_head(black_box(id));
            assert!(LIST.del(black_box(id)));
        });
    }

    #[library_benchmark(setup = warm)]
    fn sharded_list_pair((): ()) {
        static LIST: ShardedList<Thing, OnList> = ShardedList::new(&POOL);
        let id = POOL.alloc().expect("room").publish();
        repeat(|| {
            LIST.add(black_box(id));
            assert!(LIST.del(black_box(id)));
        });
    }

    static INDEX: HashIndex<Thing> = HashIndex::new(&POOL);

    /// An index of a thousand.
    fn indexed() {
        warm();
        for number in 0..TIMES {
            let thing = POOL.alloc().expect("room");
            thing.number.store(number, Relaxed);
            INDEX.insert(thing.publish(), hash(number), &rcu::pin());
        }
        rcu::barrier();
    }

    #[library_benchmark(setup = indexed)]
    fn hash_index_get((): ()) {
        let guard = rcu::pin();
        for number in 0..TIMES {
            let found =
                INDEX.find(hash(number), &guard, |_, thing| thing.number.load(Relaxed) == number);
            assert!(black_box(found).is_some());
        }
    }

    // ---- reclamation

    #[library_benchmark(setup = warm)]
    fn rcu_section((): ()) {
        repeat(|| drop(black_box(rcu::pin())));
    }

    // With what it costs to run the call later: one batch, one grace period.
    #[library_benchmark(setup = warm)]
    fn rcu_defer((): ()) {
        repeat(|| rcu::pin().defer(8, || ()));
        rcu::barrier();
    }

    #[library_benchmark(setup = warm)]
    fn pool_slot((): ()) {
        repeat(|| drop(black_box(POOL.alloc())));
    }

    library_benchmark_group!(
        name = hot,
        benchmarks = [
            lockref_pair,
            lockref_lock,
            counted_get,
            fileref_pair,
            fileref_pair_by_hand,
            qrwlock_read,
            qrwlock_read_by_hand,
            qrwlock_write,
            qmutex,
            biased_read,
            seqcount_read,
            list_batch_pair,
            sharded_list_pair,
            hash_index_get,
            rcu_section,
            rcu_defer,
            pool_slot,
        ]
    );
}

#[cfg(gungraun)]
use counts::hot;
#[cfg(gungraun)]
gungraun::main!(library_benchmark_groups = hot);
