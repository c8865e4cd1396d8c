//! The clock by which cached names and attributes grow stale.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Never grows stale.
pub(crate) const FOREVER: u64 = u64::MAX;

/// Milliseconds since the first call in this process, plus one: 0 is always past.
pub(crate) fn now_ms() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_millis() as u64 + 1
}

/// When something that is good for `ttl` from now grows stale. [`Duration::MAX`] means never.
pub(crate) fn until(ttl: Duration) -> u64 {
    if ttl == Duration::MAX {
        return FOREVER;
    }
    now_ms().saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)).min(FOREVER - 1)
}

/// The moment of one operation. The clock is read once, and only if a time is asked about that it decides.
#[derive(Debug, Default)]
pub(crate) struct Now {
    /// 0 until it is read.
    ms: Cell<u64>,
}

impl Now {
    /// Is `time` still to come?
    #[inline]
    pub(crate) fn is_before(&self, time: u64) -> bool {
        time == FOREVER || (time != 0 && self.ms() < time)
    }

    fn ms(&self) -> u64 {
        if self.ms.get() == 0 {
            self.ms.set(now_ms());
        }
        self.ms.get()
    }

    /// How long until `time`, at most a day: no client should remember longer without asking.
    #[inline]
    pub(crate) fn remaining(&self, time: u64) -> Duration {
        const DAY: Duration = Duration::from_secs(86_400);
        if time == FOREVER {
            DAY
        } else {
            Duration::from_millis(time.saturating_sub(self.ms())).min(DAY)
        }
    }
}
