//! What one thread does in one turn, and what is noted of it.
//!
//! An operation of a few nanoseconds cannot be timed alone: reading the clock costs more. So a thread reads it once per batch, which
//! adds some hundredths of a nanosecond to each operation; the longest gap between two readings is the worst stall. Only waits of
//! microseconds, a writer's among readers, are timed one by one, and then for every arm alike.

use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a scenario sets up an arm for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// How many threads will share the object.
    pub(crate) threads: usize,
    /// What each does elsewhere after every operation.
    pub(crate) think: Think,
}

/// Work of a known length that touches no shared memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Think {
    steps: u32,
}

impl Think {
    /// About so many nanoseconds on this machine.
    pub(crate) fn of_ns(ns: u32) -> Think {
        static STEPS_PER_US: OnceLock<f64> = OnceLock::new();
        let per_us = *STEPS_PER_US.get_or_init(|| {
            // The quickest of several: the others were interrupted.
            let trial = |_| {
                let begun = Instant::now();
                Think { steps: 20_000 }.pass();
                20_000.0 / (begun.elapsed().as_secs_f64() * 1e6)
            };
            (0..16).map(trial).fold(0.0, f64::max)
        });
        Think { steps: (f64::from(ns) * per_us / 1_000.0).round() as u32 }
    }

    /// Thinks. Not by `pause`: that lasts 3 to 65 ns depending on the processor, and a hypervisor may trap it.
    #[inline]
    pub(crate) fn pass(self) {
        for step in 0..self.steps {
            black_box(step);
        }
    }
}

/// One thread in one turn.
#[derive(Debug)]
pub(crate) struct Worker<'a> {
    /// Which of the threads, from 0.
    pub(crate) number: usize,
    stop: &'a AtomicBool,
    /// What came of it.
    pub(crate) sample: Sample,
}

/// What one thread did in one turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// The thread's part in the play, where there are several.
    pub(crate) role: &'static str,
    /// Operations that it finished.
    pub(crate) done: u64,
    /// Time that they took.
    pub(crate) time: Duration,
    /// The longest time from one reading of the clock to the next.
    pub(crate) worst_gap: Duration,
    /// Time spent waiting, and the longest wait, where each operation was timed.
    pub(crate) waited: Option<(Duration, Duration)>,
    /// Times of named parts, per operation.
    pub(crate) parts: Vec<(&'static str, f64)>,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(number: usize, stop: &'a AtomicBool) -> Worker<'a> {
        Worker { number, stop, sample: Sample::default() }
    }

    /// Whether the turn is over.
    pub(crate) fn is_over(&self) -> bool {
        // Relaxed: nothing is read because of it; the join orders the results.
        self.stop.load(Ordering::Relaxed)
    }

    /// Repeats an operation until the turn is over. The clock and the flag are looked at once per `BATCH`.
    #[inline]
    pub(crate) fn repeat<const BATCH: u64>(&mut self, mut operation: impl FnMut()) {
        let begun = Instant::now();
        let mut last = begun;
        while !self.is_over() {
            for _ in 0..BATCH {
                operation();
            }
            self.sample.done += BATCH;
            let now = Instant::now();
            self.sample.worst_gap = self.sample.worst_gap.max(now - last);
            last = now;
        }
        self.sample.time = last - begun;
    }

    /// Repeats `operation`, which waits, and times each; in between it thinks, untimed.
    pub(crate) fn repeat_timed(&mut self, think: Think, mut operation: impl FnMut()) {
        let begun = Instant::now();
        let (mut total, mut worst) = (Duration::ZERO, Duration::ZERO);
        while !self.is_over() {
            let asked = Instant::now();
            operation();
            let waited = asked.elapsed();
            total += waited;
            worst = worst.max(waited);
            self.sample.done += 1;
            think.pass();
        }
        self.sample.time = begun.elapsed();
        self.sample.worst_gap = worst;
        self.sample.waited = Some((total, worst));
    }

    /// Runs one part of a play that has an end of its own: `count` operations in one go.
    pub(crate) fn part(&mut self, name: &'static str, count: u64, run: impl FnOnce()) {
        let begun = Instant::now();
        run();
        let time = begun.elapsed();
        self.sample.parts.push((name, time.as_nanos() as f64 / count.max(1) as f64));
        self.sample.done += count;
        self.sample.time += time;
        self.sample.worst_gap = self.sample.worst_gap.max(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thought_lasts_longer_the_longer_it_is() {
        assert_eq!(Think::of_ns(0).steps, 0);
        let (short, long) = (Think::of_ns(100).steps, Think::of_ns(1_000).steps);
        assert!(short > 0 && (short * 10).abs_diff(long) <= 10, "{short} and {long}");
    }

    #[test]
    fn a_batch_counts_whole_and_a_part_counts_what_it_says() {
        let stop = AtomicBool::new(false);
        let mut worker = Worker::new(0, &stop);
        let mut runs = 0;
        worker.repeat::<8>(|| {
            runs += 1;
            stop.store(runs >= 20, Ordering::Relaxed);
        });
        assert_eq!((runs, worker.sample.done), (24, 24));
        worker.part("exit_ns", 5, || ());
        assert_eq!((worker.sample.done, worker.sample.parts[0].0), (29, "exit_ns"));
    }
}
