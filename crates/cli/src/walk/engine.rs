//! Walking a tree with several threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use vfscale::{Errno, FileType, Result};

use super::tree::Tree;

/// What a pass over the tree did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Names looked up.
    pub(super) names: u64,
    /// Directories that could not be listed and names that could not be looked up, by reason.
    pub(super) failures: BTreeMap<i32, u64>,
}

impl Counts {
    fn failed(&mut self, error: Errno) {
        *self.failures.entry(error.raw()).or_default() += 1;
    }

    fn add(&mut self, other: Counts) {
        self.names += other.names;
        for (error, count) in other.failures {
            *self.failures.entry(error).or_default() += count;
        }
    }
}

/// The names a walk found, directory by directory. About as many bytes as the names themselves.
#[derive(Debug, Default)]
pub(super) struct Listing {
    dirs: Vec<Dir>,
}

#[derive(Debug)]
struct Dir {
    /// The directory's path, with a slash at the end unless it is the root.
    prefix: Box<[u8]>,
    /// The names in it, each ended by a NUL, which no name contains.
    names: Box<[u8]>,
}

impl Listing {
    /// How many directories there are, the root included.
    pub(super) fn directories(&self) -> u64 {
        self.dirs.len() as u64
    }
}

/// Directories still to be listed, shared by the threads of a walk.
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

struct QueueState {
    /// Prefixes as in [`Dir::prefix`]. A stack: going down first keeps it short.
    waiting: Vec<Box<[u8]>>,
    /// Threads that work on a directory and may add more.
    busy: usize,
}

impl Queue {
    fn new(first: Box<[u8]>) -> Queue {
        let state = QueueState { waiting: vec![first], busy: 0 };
        Queue { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // A panic elsewhere ends the whole walk; the state is whole in any case.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next directory, or `None` once nothing waits and nobody can add more.
    fn take(&self) -> Option<Box<[u8]>> {
        let mut state = self.lock();
        loop {
            if let Some(next) = state.waiting.pop() {
                state.busy += 1;
                return Some(next);
            }
            if state.busy == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// One directory is done and had these in it.
    fn done(&self, found: Vec<Box<[u8]>>) {
        let mut state = self.lock();
        state.waiting.extend(found);
        state.busy -= 1;
        drop(state);
        self.changed.notify_all();
    }
}

/// Lists every directory from the root on and looks up every name in it.
///
/// # Errors
/// If the root itself cannot be listed; what fails below it is counted.
pub(super) fn walk(tree: &impl Tree, threads: usize) -> Result<(Counts, Listing)> {
    tree.list(b"", &mut |_| {})?;
    let queue = Queue::new(Box::default());
    let parts = in_parallel(threads, || {
        let mut counts = Counts::default();
        let mut dirs = Vec::new();
        while let Some(prefix) = queue.take() {
            let (dir, below) = visit(tree, prefix, &mut counts);
            dirs.push(dir);
            queue.done(below);
        }
        (counts, dirs)
    });
    let mut counts = Counts::default();
    let mut listing = Listing::default();
    for (part, dirs) in parts {
        counts.add(part);
        listing.dirs.extend(dirs);
    }
    Ok((counts, listing))
}

/// Lists one directory and looks up its names. Answers with the prefixes of the directories among them.
fn visit(tree: &impl Tree, prefix: Box<[u8]>, counts: &mut Counts) -> (Dir, Vec<Box<[u8]>>) {
    let mut names = Vec::new();
    let path = prefix.strip_suffix(b"/").unwrap_or(&prefix);
    let listed = tree.list(path, &mut |name| {
        names.extend_from_slice(name);
        names.push(0);
    });
    if let Err(error) = listed {
        counts.failed(error);
    }
    let dir = Dir { prefix, names: names.into_boxed_slice() };
    let mut below = Vec::new();
    each_path(&dir, |path| {
        if look_up_one(tree, path, counts) == Some(FileType::Directory) {
            below.push([path, b"/"].concat().into_boxed_slice());
        }
    });
    (dir, below)
}

/// Looks up every name of `listing`, `rounds` times, with `threads` threads that deal out the directories among them.
pub(super) fn look_up(tree: &impl Tree, listing: &Listing, threads: usize, rounds: u32) -> Counts {
    let next = AtomicUsize::new(0);
    let end = listing.dirs.len().saturating_mul(rounds as usize);
    let parts = in_parallel(threads, || {
        let mut counts = Counts::default();
        loop {
            // Only deals out numbers; the listing is not written to.
            let turn = next.fetch_add(1, Ordering::Relaxed);
            if turn >= end {
                return counts;
            }
            each_path(&listing.dirs[turn % listing.dirs.len()], |path| {
                look_up_one(tree, path, &mut counts);
            });
        }
    });
    let mut counts = Counts::default();
    parts.into_iter().for_each(|part| counts.add(part));
    counts
}

fn look_up_one(tree: &impl Tree, path: &[u8], counts: &mut Counts) -> Option<FileType> {
    counts.names += 1;
    tree.look_up(path).map_err(|error| counts.failed(error)).ok()
}

/// Calls `body` with the path of every name in `dir`.
fn each_path(dir: &Dir, mut body: impl FnMut(&[u8])) {
    let mut path = dir.prefix.to_vec();
    for name in dir.names.split_inclusive(|byte| *byte == 0) {
        path.truncate(dir.prefix.len());
        path.extend_from_slice(&name[..name.len() - 1]);
        body(&path);
    }
}

/// Runs `work` in `threads` threads at once and gathers what they answer.
fn in_parallel<T: Send>(threads: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
    if threads == 1 {
        return vec![work()];
    }
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(&work)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, T>| match thread.join() {
            Ok(answer) => answer,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        started.into_iter().map(join).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `width` names in each directory down to `depth`; those called `d*` are directories, and `bad` cannot be looked up.
    struct Made {
        width: usize,
        depth: usize,
    }

    impl Tree for Made {
        fn list(&self, path: &[u8], emit: &mut dyn FnMut(&[u8])) -> Result<()> {
            if path.ends_with(b"d1") {
                return Err(Errno::EACCES);
            }
            let depth = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).count();
            let kind = if depth < self.depth { "d" } else { "f" };
            (0..self.width).for_each(|number| emit(format!("{kind}{number}").as_bytes()));
            emit(b"bad");
            Ok(())
        }

        fn look_up(&self, path: &[u8]) -> Result<FileType> {
            match path.rsplit(|byte| *byte == b'/').next().and_then(|name| name.first()) {
                Some(b'd') => Ok(FileType::Directory),
                Some(b'f') => Ok(FileType::Regular),
                _ => Err(Errno::ENOENT),
            }
        }
    }

    #[test]
    fn every_thread_count_finds_the_same_tree() {
        let tree = Made { width: 3, depth: 2 };
        // The root, d0 and d2, and d0 and d2 in each: 7 listed directories of 4 names; the three d1 refuse.
        let failures = BTreeMap::from([(Errno::EACCES.raw(), 3), (Errno::ENOENT.raw(), 7)]);
        for threads in [1, 2, 5] {
            let (counts, listing) = walk(&tree, threads).expect("the root can be listed");
            assert_eq!(counts, Counts { names: 28, failures: failures.clone() });
            assert_eq!(listing.directories(), 10);
            let again = look_up(&tree, &listing, threads, 3);
            assert_eq!(again.names, 3 * 28);
            assert_eq!(again.failures[&Errno::ENOENT.raw()], 3 * 7);
        }
    }

    #[test]
    fn an_empty_tree_ends_at_once() {
        struct Empty;
        impl Tree for Empty {
            fn list(&self, _: &[u8], _: &mut dyn FnMut(&[u8])) -> Result<()> {
                Ok(())
            }
            fn look_up(&self, _: &[u8]) -> Result<FileType> {
                Err(Errno::ENOENT)
            }
        }
        let (counts, listing) = walk(&Empty, 2).expect("the root can be listed");
        assert_eq!((counts.names, listing.directories()), (0, 1));
        assert_eq!(look_up(&Empty, &listing, 2, 4).names, 0);
    }
}
