//! What every body promises. The table is not what Linux uses, so it is only tested here and driven
//! by the models.
use super::Sleep;
use crate::prim::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

macro_rules! bodies {
    ($($body:ident)*) => {$(
        mod $body {
            use super::super::$body;
            use super::*;

            fn park_until(word: &AtomicU32, expected: u32, deadline: Instant) -> Sleep {
                let address = std::ptr::from_ref(word).cast();
                // Relaxed: these tests read nothing else.
                $body::park_until(address, expected, || word.load(Relaxed) == expected, deadline)
            }

            fn park(word: &AtomicU32, expected: u32) {
                let address = std::ptr::from_ref(word).cast();
                $body::park(address, expected, || word.load(Relaxed) == expected);
            }

            fn wake(word: &AtomicU32, n: u32) {
                $body::wake(std::ptr::from_ref(word).cast(), n);
            }

            #[test]
            fn a_deadline_ends_a_sleep_and_is_no_earlier() {
                let word = AtomicU32::new(7);
                let deadline = Instant::now() + Duration::from_millis(30);
                while park_until(&word, 7, deadline) == Sleep::Over {}
                assert!(Instant::now() >= deadline);
                assert_eq!(park_until(&word, 7, deadline), Sleep::TimedOut, "already past");
            }

            #[test]
            fn a_word_that_differs_ends_it_at_once() {
                let word = AtomicU32::new(8);
                let start = Instant::now();
                assert_eq!(park_until(&word, 7, start + Duration::from_secs(60)), Sleep::Over);
                park(&word, 7);
                assert!(start.elapsed() < Duration::from_secs(30));
            }

            #[test]
            fn a_wake_up_ends_it_before_the_deadline() {
                for far in [60, u64::from(u32::MAX) * 1000] {
                    let word = AtomicU32::new(0);
                    crate::testing::scope(|s| {
                        s.spawn(|| {
                            thread::sleep(Duration::from_millis(10));
                            word.store(1, Relaxed);
                            wake(&word, 1);
                        });
                        let far = Instant::now() + Duration::from_secs(far);
                        while word.load(Relaxed) == 0 {
                            assert_eq!(park_until(&word, 0, far), Sleep::Over);
                        }
                    });
                }
            }

            /// A baton goes round many threads, each asleep until it is theirs; some give up now and
            /// then. One lost wake-up and it stops.
            #[test]
            fn no_wake_up_is_lost() {
                const THREADS: u32 = 6;
                const ROUNDS: u32 = 300;
                let batons: [AtomicU32; THREADS as usize] = Default::default();
                crate::testing::scope(|s| {
                    for me in 0..THREADS as usize {
                        let batons = &batons;
                        s.spawn(move || {
                            for round in 0..ROUNDS {
                                while batons[me].load(Relaxed) == round {
                                    match me % 2 {
                                        0 => park(&batons[me], round),
                                        _ => {
                                            let soon = Instant::now() + Duration::from_micros(20);
                                            let (Sleep::Over | Sleep::TimedOut) =
                                                park_until(&batons[me], round, soon);
                                        }
                                    }
                                }
                                let next = &batons[(me + 1) % THREADS as usize];
                                next.fetch_add(1, Relaxed);
                                wake(next, 1);
                            }
                        });
                    }
                    batons[0].fetch_add(1, Relaxed);
                    wake(&batons[0], 1);
                });
            }
        }
    )*};
}

#[cfg(target_os = "linux")]
bodies!(futex);
// Its lock and bell are those of `std`, whose waits ThreadSanitizer does not see.
#[cfg(not(tsan))]
bodies!(table);
