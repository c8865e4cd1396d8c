//! Threads that own many members of one list, and take them all off at the same moment, as a process does that ends.
//!
//! Three lists: one behind a mutex, one whose lock holder does what others queued (`ListBatch`), one with a part for each
//! thread (`ShardedList`), which can be had where the order does not matter.
//!
//! `cargo run --release -p vfscale-sync --example exit_storm`

use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use vfscale_sync::{
    Id, IdLinks, IdList, ListAdapter, ListBatch, Pool, ShardMark, ShardedAdapter, ShardedList,
    Slot, rcu,
};

const THREADS: usize = 8;
const MEMBERS: usize = 20_000;

struct Task {
    links: IdLinks<Task>,
    mark: ShardMark,
}

impl Slot for Task {
    fn new() -> Self {
        Task { links: IdLinks::new(), mark: ShardMark::new() }
    }
}

/// The list of all tasks: where in a task its links are.
struct All;

impl ListAdapter<Task> for All {
    fn links(task: &Task) -> &IdLinks<Task> {
        &task.links
    }
}

impl ShardedAdapter<Task> for All {
    fn mark(task: &Task) -> &ShardMark {
        &task.mark
    }
}

static TASKS: Pool<Task> = Pool::new((THREADS * MEMBERS) as u32 * 2);

/// Every thread adds its members, waits for the others, and takes them off; answers how long that took.
fn storm(add: impl Fn(Id<Task>) + Sync, del: impl Fn(Id<Task>) -> bool + Sync) -> Duration {
    let ready = Barrier::new(THREADS + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let mine: Vec<_> = (0..MEMBERS)
                        .map(|_| TASKS.alloc().expect("room for a task").publish())
                        .collect();
                    mine.iter().for_each(|&task| add(task));
                    ready.wait();
                    mine.iter().for_each(|&task| assert!(del(task), "it was on the list"));
                    let done = Instant::now();
                    let guard = rcu::pin();
                    mine.iter().for_each(|&task| TASKS.retire(task, &guard));
                    done
                })
            })
            .collect();
        ready.wait();
        let begin = Instant::now();
        let last = threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap();
        last - begin
    })
}

fn report(list: &str, took: Duration, left: usize) {
    assert_eq!(left, 0, "all were taken off");
    println!(
        "{list:<22} {took:>10.1?} {:>8} ns a member",
        took.as_nanos() / (THREADS * MEMBERS) as u128
    );
}

fn main() {
    println!("{THREADS} threads take {MEMBERS} members each off one list at once:\n");

    let list = Mutex::new(IdList::<Task, All>::new(&TASKS));
    let took = storm(
        |task| list.lock().unwrap().push_front(task),
        |task| list.lock().unwrap().remove(task),
    );
    report("Mutex around an IdList", took, list.lock().unwrap().len());

    let list = ListBatch::<Task, All>::new(&TASKS);
    report("ListBatch", storm(|task| list.add_head(task), |task| list.del(task)), list.len());

    let list = ShardedList::<Task, All>::new(&TASKS);
    report("ShardedList", storm(|task| list.add(task), |task| list.del(task)), list.len());
}
