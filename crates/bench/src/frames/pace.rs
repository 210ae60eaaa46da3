//! Open-loop measurement: frames are due at fixed times, regardless of earlier results, and each latency is measured
//! from the due time. A source that falls behind sends the overdue frames as soon as it can, and omits none of them.

use arrayvec::ArrayVec;

use super::histogram::Histogram;

/// Maximum number of frames sent at once.
pub const BURST: usize = 64;

/// Mask of a timestamp: its lowest 48 bits, which is what a frame can carry.
const MASK: u64 = (1 << 48) - 1;

/// Schedule of equally spaced departures.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    begin: u64,
    /// Interval in units of 1/65,536 cycle.
    step: u64,
    passed: u64,
}

impl Pace {
    /// Creates a schedule whose first departure is at `begin`, with an interval of `cycles` cycles.
    pub fn new(begin: u64, cycles: f64) -> Self {
        Self {
            begin,
            step: ((cycles * 65_536.0) as u64).max(1),
            passed: 0,
        }
    }

    fn departure(&self, number: u64) -> u64 {
        self.begin + ((u128::from(number) * u128::from(self.step)) >> 16) as u64
    }

    /// Departures that are due and not yet done; at most one burst.
    #[inline(always)]
    pub fn due(&self, now: u64) -> ArrayVec<u64, BURST> {
        let departures = (self.passed..).map(|number| self.departure(number));
        departures
            .take_while(|&departure| departure <= now)
            .take(BURST)
            .collect()
    }

    /// Mark all departures up to a time as done.
    pub fn skip(&mut self, now: u64) {
        let passed = (u128::from(now.saturating_sub(self.begin)) << 16) / u128::from(self.step);
        self.passed = self.passed.max(passed as u64 + 1);
    }

    /// Mark `count` departures as done.
    #[inline(always)]
    pub fn pass(&mut self, count: usize) {
        self.passed += count as u64;
    }
}

/// A path from the source to the sink.
pub trait Way {
    /// Sends a frame for each of these timestamps; returns the number of frames accepted, counted from the first.
    fn send(&mut self, times: &[u64]) -> usize;
    /// Receives frames, and passes the timestamp of each frame to `each`.
    fn collect(&mut self, each: impl FnMut(u64)) -> usize;
}

/// Measurement window, in cycles.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Start of the window; frames due before it are sent only for warm-up.
    pub from: u64,
    /// End of the window: the last due time of a frame.
    pub to: u64,
    /// Deadline in cycles; frames that have not arrived by then count as lost.
    pub patience: u64,
}

/// Results of a measurement.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Cycles from a frame's due time to its return.
    pub latency: Histogram,
    /// Cycles from a frame's due time until the source has written it; this time is part of the frame's latency.
    pub lateness: Histogram,
    pub due: u64,
    pub came: u64,
    /// Cycles from the first departure to the last arrival.
    pub took: u64,
}

/// Sends each frame when it is due, and measures its latency.
pub fn measure(way: &mut impl Way, mut clock: impl FnMut() -> u64, mut pace: Pace, window: Window) -> Measured {
    let mut measured = Measured::default();
    // Times of frames due before the window are in the lower half of the timestamp range.
    let counts = |time: u64| time.wrapping_sub(window.from) & MASK <= MASK / 2;
    loop {
        let now = clock();
        let due = pace.due(now.min(window.to));
        if !due.is_empty() {
            let sent = way.send(&due);
            pace.passed += sent as u64;
            let sent_at = clock();
            for &departure in due.iter().take(sent).filter(|&&departure| counts(departure)) {
                measured.lateness.record(sent_at - departure);
            }
        }
        let mut arrival = None;
        let latency = &mut measured.latency;
        let came = way.collect(|time| {
            let arrival = *arrival.get_or_insert_with(&mut clock);
            if counts(time) {
                latency.record(arrival.wrapping_sub(time) & MASK);
            }
        });
        measured.came += came as u64;
        measured.took = arrival.map_or(measured.took, |arrival| arrival - pace.begin);
        let all = now >= window.to && pace.departure(pace.passed) > window.to && measured.came >= pace.passed;
        if all || now >= window.patience {
            break;
        }
    }
    // Frames that were due but not sent before the deadline also count as lost.
    while pace.departure(pace.passed) <= window.to {
        pace.passed += 1;
    }
    measured.due = pace.passed;
    measured
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::collections::VecDeque;

    /// A path with a constant delay and one pause.
    struct Delayed<'c> {
        clock: &'c Cell<u64>,
        delay: u64,
        /// Start and end of the pause, during which the path neither accepts nor delivers frames.
        pause: [u64; 2],
        /// If set, every frame whose number is a multiple of this is lost.
        loses: Option<u64>,
        sent: u64,
        under_way: VecDeque<(u64, u64)>,
    }

    impl<'c> Delayed<'c> {
        fn new(clock: &'c Cell<u64>, delay: u64) -> Self {
            Self {
                clock,
                delay,
                pause: [0; 2],
                loses: None,
                sent: 0,
                under_way: VecDeque::new(),
            }
        }
    }

    impl Way for Delayed<'_> {
        fn send(&mut self, times: &[u64]) -> usize {
            let now = self.clock.get();
            if (self.pause[0]..self.pause[1]).contains(&now) {
                return 0;
            }
            for &time in times {
                self.sent += 1;
                if self.loses.is_none_or(|every| !self.sent.is_multiple_of(every)) {
                    self.under_way.push_back((now + self.delay, time & MASK));
                }
            }
            times.len()
        }

        fn collect(&mut self, mut each: impl FnMut(u64)) -> usize {
            let mut came = 0;
            while let Some(&(at, time)) = self.under_way.front()
                && at <= self.clock.get()
            {
                self.under_way.pop_front();
                each(time);
                came += 1;
            }
            came
        }
    }

    /// A clock that advances by 10 cycles at each reading.
    fn tick(clock: &Cell<u64>) -> u64 {
        clock.set(clock.get() + 10);
        clock.get()
    }

    const BEGIN: u64 = (1 << 48) - 100_000;
    const WINDOW: Window = Window {
        from: BEGIN + 50_000,
        to: BEGIN + 1_050_000,
        patience: BEGIN + 3_000_000,
    };

    fn run(way: &mut Delayed<'_>, step: f64) -> Measured {
        let clock = way.clock;
        measure(way, || tick(clock), Pace::new(BEGIN, step), WINDOW)
    }

    #[test]
    fn known_delay_is_measured_over_the_end_of_the_times_range() {
        let clock = Cell::new(BEGIN);
        let measured = run(&mut Delayed::new(&clock, 5_000), 100.5);
        assert_eq!(measured.due, measured.came);
        assert_eq!(10_448, measured.due);
        for share in [0.0, 0.5, 0.999, 1.0] {
            let told = measured.latency.percentile(share);
            assert!((5_000..5_100).contains(&told), "{share}: {told}");
        }
        assert!(measured.latency.total() < measured.due, "warming up is not counted");
        assert!(measured.lateness.most() <= 40);
    }

    #[test]
    fn pause_is_seen_by_all_frames_that_are_due_in_it() {
        let clock = Cell::new(BEGIN);
        let mut way = Delayed::new(&clock, 1_000);
        way.pause = [BEGIN + 100_000, BEGIN + 200_000];
        let measured = run(&mut way, 100.0);
        assert_eq!(measured.due, measured.came, "none is left out");
        // The pause lasts a tenth of the window. Half of the frames due during the pause wait for more than half of the
        // pause.
        let told = measured.latency.percentile(0.95);
        assert!((48_000..56_000).contains(&told), "{told}");
        assert!(measured.latency.most() > 99_000);
        assert!((1_000..1_100).contains(&measured.latency.percentile(0.5)));
    }

    #[test]
    fn frames_that_get_lost_are_told_and_do_not_hang_it() {
        let clock = Cell::new(BEGIN);
        let mut way = Delayed::new(&clock, 1_000);
        way.loses = Some(100);
        let measured = run(&mut way, 100.0);
        assert_eq!(10_501, measured.due);
        assert_eq!(measured.due / 100, measured.due - measured.came);
    }

    #[test]
    fn frames_that_are_never_taken_are_lost() {
        let clock = Cell::new(BEGIN);
        let mut way = Delayed::new(&clock, 1_000);
        way.pause = [BEGIN + 1_000_000, u64::MAX];
        let measured = run(&mut way, 100.0);
        assert_eq!(10_501, measured.due);
        assert!((9_990..10_001).contains(&measured.came), "{}", measured.came);
    }

    #[test]
    fn pace_gives_a_burst_at_most() {
        let pace = Pace::new(1_000, 1.0);
        assert!(pace.due(999).is_empty());
        assert_eq!([1_000, 1_001], *pace.due(1_001));
        assert_eq!(BURST, pace.due(5_000).len());
    }
}
