//! The clock by which cached names and attributes grow stale.

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

/// Is `time` still to come? Reads no clock for [`FOREVER`] and for 0.
#[inline]
pub(crate) fn is_before(time: u64) -> bool {
    time == FOREVER || (time != 0 && now_ms() < time)
}

/// How long until `time`, at most a day: no client should remember longer without asking.
pub(crate) fn remaining(time: u64) -> Duration {
    const DAY: Duration = Duration::from_secs(86_400);
    if time == FOREVER {
        DAY
    } else {
        Duration::from_millis(time.saturating_sub(now_ms())).min(DAY)
    }
}
