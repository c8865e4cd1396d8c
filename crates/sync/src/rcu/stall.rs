//! Who keeps garbage alive: reports of sections that do not end.
//!
//! A writer that has to wait notes for whom, and since when. A section that has held a grace period up for longer than the
//! limit is told of once, to whom the program names; all that hold one up now can be asked for at any time.

use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A read-side section that a grace period waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stall {
    /// The system's number for the thread; 0 where it has none to ask for.
    pub thread: u32,
    /// The thread's name, as the system knows it: 15 bytes at most, empty where there is none.
    pub name: String,
    /// For how long writers have seen it in the way; the section is older.
    pub waited: Duration,
}

impl Stall {
    pub(super) fn of(thread: u32, waited: Duration) -> Stall {
        let name = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
        Stall { thread, name: name.unwrap_or_default().trim_end().to_owned(), waited }
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "thread {} ({:?}) has been in a read-side section for {:?} at least, and nothing is freed meanwhile",
            self.thread, self.name, self.waited
        )
    }
}

/// After how long who is told.
static LISTENER: OnceLock<(Duration, Listener)> = OnceLock::new();

type Listener = fn(&Stall);

/// Has `listener` told of every section that holds a grace period up for longer than `limit`, once for each section.
///
/// It is called by a thread that waits for readers or leaves a section, with a lock of this module held: it must not use
/// this module, wait for a thread that does, or panic. A log line is what it is for. False if a listener was set before: that
/// one stays.
pub fn on_stall(limit: Duration, listener: fn(&Stall)) -> bool {
    LISTENER.set((limit, listener)).is_ok()
}

/// Whether this is long enough to be told of, and somebody listens.
pub(super) fn is_long(waited: Duration) -> bool {
    LISTENER.get().is_some_and(|(limit, _)| waited >= *limit)
}

pub(super) fn tell(stall: &Stall) {
    if let Some((_, listener)) = LISTENER.get() {
        listener(stall);
    }
}

/// Microseconds since the first call.
pub(super) fn now_us() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = START.get_or_init(Instant::now);
    u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// The system's number for the running thread.
pub(super) fn this_thread() -> u32 {
    #[cfg(all(any(target_os = "linux", target_os = "android"), not(miri)))]
    return rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    #[cfg(not(all(any(target_os = "linux", target_os = "android"), not(miri))))]
    0
}
