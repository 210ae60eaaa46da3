//! Division of runs into time slices; slices in which a core was preempted are not counted.

/// Number of slices that are also not counted after a disturbed slice, because rings that filled up must first drain.
const AFTER: usize = 1;

/// Results of one lane per slice; `None` for slices in which its core was preempted for long.
#[derive(Clone, Debug)]
pub struct Slices<D> {
    /// Length of a slice in cycles.
    width: u64,
    /// Minimum number of cycles between two steps that counts as a disturbance.
    long: u64,
    edge: u64,
    first: u64,
    last: u64,
    gap: u64,
    all: Vec<Option<D>>,
}

impl<D: Copy> Slices<D> {
    /// Creates slices of `width` cycles; an interval of `long` cycles or more between two steps counts as a
    /// disturbance.
    pub fn new(width: u64, long: u64) -> Self {
        Self {
            width,
            long,
            edge: 0,
            first: 0,
            last: 0,
            gap: 0,
            all: Vec::new(),
        }
    }

    /// Result of the last slice.
    pub fn last(&self) -> Option<D> {
        *self.all.last()?
    }

    /// Starts a run that begins at `begin`; `now` is the current time. Both times are cycles of the same counter.
    pub fn begin(&mut self, begin: u64, now: u64) {
        self.all.clear();
        (self.edge, self.first, self.last, self.gap) = (begin + self.width, now, now, 0);
    }

    /// Whether another slice fits before `end`.
    #[inline(always)]
    pub fn go_on(&self, end: u64) -> bool {
        self.edge <= end
    }

    /// Whether a step that ends now was disturbed.
    #[inline(always)]
    pub fn is_late(&self, now: u64) -> bool {
        now - self.last >= self.long
    }

    /// Records the end of a step. If the step ends a slice, returns the length of the slice in cycles, and whether the
    /// slice was undisturbed.
    #[inline(always)]
    pub fn step(&mut self, now: u64) -> Option<(u64, bool)> {
        (self.gap, self.last) = (self.gap.max(now - self.last), now);
        (now >= self.edge).then(|| (now - self.first, self.gap < self.long))
    }

    /// Record the results of the slice that ended.
    pub fn end(&mut self, done: D) {
        self.all.push((self.gap < self.long).then_some(done));
        while self.edge + self.width <= self.last {
            self.edge += self.width;
            self.all.push(None);
        }
        self.edge += self.width;
        (self.first, self.gap) = (self.last, 0);
    }
}

/// Results of each lane over all undisturbed slices of a run, and the number of these slices. A slice is undisturbed if
/// no lane was disturbed during the slice or shortly before it.
pub fn undisturbed<D: Copy + Default>(lanes: &[&Slices<D>], and: impl Fn(D, D) -> D) -> (Vec<D>, usize) {
    let count = lanes.iter().map(|lane| lane.all.len()).min().unwrap_or(0);
    let is_quiet = |slice: usize| lanes.iter().all(|lane| lane.all[slice].is_some());
    let good: Vec<_> = (AFTER..count)
        .filter(|&slice| (slice - AFTER..=slice).all(is_quiet))
        .collect();
    let sum = |lane: &&Slices<D>| {
        let done = good.iter().filter_map(|&slice| lane.all[slice]);
        done.fold(D::default(), &and)
    };
    (lanes.iter().map(sum).collect(), good.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a lane whose steps end at the given times; each step has the result 1.
    fn lane(steps: &[u64]) -> Slices<u64> {
        let mut slices = Slices::new(100, 40);
        slices.begin(0, 0);
        let mut done = 0;
        for &now in steps {
            done += 1;
            if slices.step(now).is_some() {
                slices.end(std::mem::take(&mut done));
            }
        }
        slices
    }

    #[test]
    fn slice_with_a_gap_and_the_one_after_it_do_not_count() {
        let steady: Vec<_> = (1..=50).map(|step| step * 10).collect();
        let steady = lane(&steady);
        assert_eq!((vec![40], 4), undisturbed(&[&steady], |a, b| a + b));
        // The lane was preempted from 110 to 160.
        let steps: Vec<_> = (1..=11).chain(16..=50).map(|step| step * 10).collect();
        let disturbed = lane(&steps);
        assert_eq!(
            (vec![20, 20], 2),
            undisturbed(&[&disturbed, &steady], |a, b| a + b),
            "the slices from 300 on"
        );
    }

    #[test]
    fn long_absence_disturbs_all_slices_that_it_lies_in() {
        let steps: Vec<_> = (1..=11).chain(35..=80).map(|step| step * 10).collect();
        let (done, count) = undisturbed(&[&lane(&steps)], |a, b| a + b);
        // The lane was preempted from 110 to 350: in the second, the third and the beginning of the fourth slice.
        assert_eq!((vec![40], 4), (done, count));
    }
}
