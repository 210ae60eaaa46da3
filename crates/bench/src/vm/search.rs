//! Search for the highest rate without loss: the rate is increased until packets are lost; then the interval between
//! both rates is narrowed.

/// Ratio of the lower to the upper bound above which the search ends.
const CLOSE: f64 = 0.96;

/// Lowest rate that is tried, in packets per second.
const LEAST: f64 = 250.0;

/// State of a search. A rate at which packets are lost is tried a second time before it counts as too high, because
/// other processes may have disturbed the trial.
#[derive(Clone, Debug)]
pub struct Search {
    rate: f64,
    step: f64,
    passed: Option<f64>,
    failed: Option<f64>,
    again: bool,
}

impl Search {
    /// Creates a search that starts at a rate and multiplies or divides it by a factor until both bounds are known.
    pub fn from(rate: f64, step: f64) -> Self {
        Self {
            rate: rate.max(LEAST),
            step,
            passed: None,
            failed: None,
            again: false,
        }
    }

    /// The next rate to try; `None` at the end of the search.
    pub fn next(&self) -> Option<f64> {
        let close = match (self.passed, self.failed) {
            (Some(passed), Some(failed)) => passed / failed > CLOSE,
            (None, Some(failed)) => failed <= LEAST,
            _ => false,
        };
        (!close).then_some(self.rate)
    }

    /// Records that no packets were lost at the tried rate.
    pub fn passed(&mut self) {
        self.passed = Some(self.rate);
        self.aim();
    }

    /// Records that packets were lost at the tried rate.
    pub fn failed(&mut self) {
        self.again = !self.again;
        if !self.again {
            self.failed = Some(self.rate);
            self.aim();
        }
    }

    fn aim(&mut self) {
        self.again = false;
        self.rate = match (self.passed, self.failed) {
            (Some(passed), Some(failed)) => (passed * failed).sqrt(),
            (Some(passed), None) => passed * self.step,
            (None, Some(failed)) => (failed / self.step).max(LEAST),
            (None, None) => self.rate,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a search against a gateway with a given capacity; returns the highest rate without loss and the number of
    /// trials.
    fn found(first: f64, step: f64, capacity: f64) -> (Option<f64>, usize) {
        let (mut search, mut best, mut tried) = (Search::from(first, step), None, 0);
        while let Some(rate) = search.next() {
            tried += 1;
            assert!(tried < 100, "it ends");
            if rate <= capacity {
                best = Some(rate);
                search.passed();
            } else {
                search.failed();
            }
        }
        (best, tried)
    }

    #[test]
    fn rate_is_found_from_below_and_from_above() {
        for (first, capacity) in [
            (10_000.0, 47_000.0),
            (400_000.0, 47_000.0),
            (47_000.0, 47_000.0),
            (260.0, 1e7),
        ] {
            let (best, tried) = found(first, 1.5, capacity);
            let best = best.expect("a rate that passes");
            assert!(best <= capacity && best > capacity * 0.95, "{best} of {capacity}");
            assert!(tried <= 40, "{tried} trials");
        }
    }

    #[test]
    fn nothing_passes_where_the_gateway_passes_nothing() {
        assert_eq!(None, found(20_000.0, 1.5, 0.0).0);
    }

    #[test]
    fn search_from_the_rate_of_before_is_short() {
        let (best, tried) = found(47_000.0, 1.2, 48_000.0);
        assert_eq!(Some(47_000.0), best);
        assert!(tried <= 9, "{tried} trials");
    }

    #[test]
    fn one_disturbed_trial_does_not_count() {
        let mut search = Search::from(1_000.0, 1.5);
        search.failed();
        assert_eq!(Some(1_000.0), search.next());
        search.passed();
        assert_eq!(Some(1_500.0), search.next());
        search.failed();
        search.failed();
        assert!(search.next().is_some_and(|rate| rate < 1_500.0 && rate > 1_000.0));
    }
}
