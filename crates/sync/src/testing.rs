//! What the tests of this crate share.

// unmodelled file: it is for tests on real threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};

/// Threads of scopes that have ended.
static ENDED: AtomicUsize = AtomicUsize::new(0);

/// A scope of threads, as [`std::thread::scope`] lends it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope<'scope, 'env: 'scope>(&'scope thread::Scope<'scope, 'env>);

/// [`std::thread::scope`], whose end ThreadSanitizer sees.
///
/// The scope waits until its threads are through, by a count inside `std`, which is not built with the sanitizer; so what they
/// wrote would be reported as a race with who looks at it afterwards. Here each thread counts itself once more, where it can
/// be seen.
pub(crate) fn scope<'env, T>(f: impl for<'scope> FnOnce(Scope<'scope, 'env>) -> T) -> T {
    let answer = thread::scope(|scope| f(Scope(scope)));
    // Acquire: what all those threads did before they counted themselves.
    ENDED.load(Ordering::Acquire);
    answer
}

impl<'scope> Scope<'scope, '_> {
    pub(crate) fn spawn<T: Send + 'scope>(
        &self,
        f: impl FnOnce() -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        self.0.spawn(|| {
            let _end = End;
            f()
        })
    }
}

/// Goes last in a thread, also if it panics.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        // Release: everything before.
        ENDED.fetch_add(1, Ordering::Release);
    }
}
