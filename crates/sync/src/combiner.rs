//! Flat combining for any operation: closures, run by whoever holds the structure.
//!
//! # Why
//! [`Combining`] carries a small command from a waiter to the holder, which is all that a list
//! needs. A structure with many operations would need an enum of all of them and a place for each
//! answer. A closure on the waiter's stack is both.
//!
//! # How
//! The command is a pointer to the closure and to the code that runs it; all else is `combining`:
//! direct while the lock is to be had, else queued and done in batches. A direct run calls the
//! closure itself, through no pointer.
//!
//! # A panic in a closure
//! With `std` it is caught where it happens, the batch goes on, and the owner's call resumes it. The
//! structure is left as the closure left it; nothing is poisoned. Without `std` a panic of a queued
//! closure ends the process, and one of a direct run unwinds as it would anyway.
//!
//! # Orderings
//! The closure goes with the node (CB-2), its answer comes back with DONE (CB-3).
//!
//! # Distrust
//! A closure may run in another thread: `thread_local!` is that thread's, and whatever it captures
//! must be [`Send`]. A closure that uses the same combiner waits for itself for ever.
//!
//! # Source
//! Flat combining (Hendler, Incze, Shavit and Tzafrir, 2010) under the protocol of the list_batch
//! thread.

use core::fmt;

use crate::combining::{Apply, Combining, DEFAULT_BATCH};
use crate::lockdep;
use crate::prim::const_fn;

/// A structure whose holder runs the waiting threads' closures, up to `BATCH` for others.
///
/// ```
/// use vfscale_sync::Combiner;
///
/// static NAMES: Combiner<Vec<String>> = Combiner::new(Vec::new());
///
/// std::thread::scope(|scope| {
///     for n in 0..4 {
///         scope.spawn(move || NAMES.run(|names| names.push(n.to_string())));
///     }
/// });
/// assert_eq!(NAMES.run(|names| names.len()), 4);
/// ```
///
/// What must stay in its thread is refused:
/// ```compile_fail,E0277
/// # use vfscale_sync::Combiner;
/// let combiner = Combiner::<i32>::new(0);
/// let local = std::rc::Rc::new(1);
/// combiner.run(|sum| *sum += *local);
/// ```
pub struct Combiner<S, const BATCH: usize = DEFAULT_BATCH> {
    inner: Combining<Closures<S>, BATCH>,
}

/// The structure, to which jobs are applied.
#[derive(Debug)]
struct Closures<S>(S);

/// A task on the stack of a thread in [`Combiner::run_slow`], and what runs it.
struct Job<S> {
    run: unsafe fn(*mut (), &mut S),
    task: *mut (),
}

impl<S> Clone for Job<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Job<S> {}

// SAFETY: `Combiner::run_slow` alone makes one, of a task whose closure and answer are `Send`.
unsafe impl<S> Send for Job<S> {}

struct Task<F, R> {
    closure: Option<F>,
    answer: Option<Answer<R>>,
}

#[cfg(feature = "std")]
type Answer<R> = std::thread::Result<R>;
#[cfg(not(feature = "std"))]
type Answer<R> = R;

impl<S> Apply for Closures<S> {
    type Op = Job<S>;

    fn apply(&mut self, job: Job<S>) -> bool {
        // SAFETY: `job` is that of a thread inside `run_slow`, which made `run` for this task and
        // whose frame stays until the job was applied; `Combining` applies an operation once, and
        // lets nobody else reach what it carries meanwhile (CB-2, CB-3).
        unsafe { (job.run)(job.task, &mut self.0) };
        true
    }
}

/// Runs the closure of the task that `task` points at.
///
/// # Safety
/// `task` points at a `Task<F, R>` that nobody else reaches during the call.
unsafe fn run_task<S, F: FnOnce(&mut S) -> R, R>(task: *mut (), state: &mut S) {
    // SAFETY: the caller's promise.
    let task = unsafe { &mut *task.cast::<Task<F, R>>() };
    if let Some(closure) = task.closure.take() {
        task.answer = Some(answer(|| closure(state)));
    }
}

#[cfg(feature = "std")]
fn answer<R>(f: impl FnOnce() -> R) -> Answer<R> {
    // Unwind safety is the owner's affair, whose call resumes the panic.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(f))
}

#[cfg(not(feature = "std"))]
fn answer<R>(f: impl FnOnce() -> R) -> Answer<R> {
    f()
}

impl<S, const BATCH: usize> Combiner<S, BATCH> {
    const_fn! {
        /// An unlocked combiner around `state`.
        #[must_use]
        #[cfg_attr(feature = "lockdep", track_caller)]
        pub fn new(state: S) -> Self {
            Self { inner: Combining::new(Closures(state)) }
        }
    }

    /// Runs `f`, or has it run; answers what it answered. Its effect is there on return.
    ///
    /// # Panics
    /// If `f` does.
    #[inline]
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn run<R: Send>(&self, f: impl FnOnce(&mut S) -> R + Send) -> R {
        match self.inner.lock_at_once() {
            Ok(mut locked) => f(&mut locked.0),
            Err(asked) => self.run_slow(f, asked),
        }
    }

    #[cold]
    fn run_slow<R: Send, F: FnOnce(&mut S) -> R + Send>(&self, f: F, asked: lockdep::Asked) -> R {
        let mut task = Task { closure: Some(f), answer: None };
        let job = Job { run: run_task::<S, F, R>, task: (&raw mut task).cast() };
        self.inner.run_slow(job, asked);
        let answer = task.answer.expect("an operation is done when `Combining` says so");
        #[cfg(feature = "std")]
        let answer = answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        answer
    }

    /// Runs `f` in this thread and no other, in its turn. So it may capture what is not [`Send`].
    #[cfg_attr(feature = "lockdep", track_caller)]
    pub fn run_here<R>(&self, f: impl FnOnce(&mut S) -> R) -> R {
        f(&mut self.inner.lock().0)
    }

    /// The structure, without locking.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner.get_mut().0
    }
}

impl<S: Default, const BATCH: usize> Default for Combiner<S, BATCH> {
    fn default() -> Self {
        Self::new(S::default())
    }
}

impl<S: fmt::Debug, const BATCH: usize> fmt::Debug for Combiner<S, BATCH> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Combiner");
        match self.inner.try_lock() {
            Some(locked) => out.field("state", &locked.0),
            None => out.field("state", &format_args!("<locked>")),
        };
        out.finish()
    }
}

#[cfg(all(test, feature = "std", not(any(loom, shuttle))))]
mod tests;
