//! All counters of a system under test. The counters are compared as a whole, so that a test fails on unexpected
//! changes and on missing changes.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Named counters at one point in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger(BTreeMap<String, u64>);

impl<N: Into<String>> FromIterator<(N, u64)> for Ledger {
    fn from_iter<I: IntoIterator<Item = (N, u64)>>(counters: I) -> Self {
        Self(counters.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

impl Ledger {
    /// Value of a counter; 0 if no counter has this name.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Applies `changes` to a copy of this ledger, and returns the differences between the copy and `now`, one per
    /// line. The text is empty if there are no differences. A missing counter counts as 0.
    pub fn differences(&self, now: &Ledger, changes: &[(&str, i64)]) -> String {
        let mut expected = self.clone();
        for (name, change) in changes {
            let value = expected.0.entry((*name).to_owned()).or_default();
            *value = value.wrapping_add_signed(*change);
        }
        let mut text = String::new();
        let names: std::collections::BTreeSet<_> = expected.0.keys().chain(now.0.keys()).collect();
        for name in names {
            let (before, wanted, found) = (self.get(name), expected.get(name), now.get(name));
            if wanted != found {
                let _ = writeln!(text, "{name}: was {before}, expected {wanted}, found {found}");
            }
        }
        text
    }

    /// Check that `changes` are the only changes since the last call, and keep `now` as the new state.
    #[track_caller]
    pub fn settle(&mut self, now: Ledger, changes: &[(&str, i64)]) {
        let differences = self.differences(&now, changes);
        assert!(differences.is_empty(), "counters differ:\n{differences}");
        *self = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ledger_of_expected_changes_settles() {
        let mut ledger = Ledger::from_iter([("received", 1), ("sent", 1)]);
        ledger.settle(
            Ledger::from_iter([("received", 2), ("sent", 1), ("dropped", 1)]),
            &[("received", 1), ("dropped", 1)],
        );
        assert_eq!(2, ledger.get("received"));
    }

    #[test]
    fn ledger_of_an_unexpected_effect_names_it() {
        let ledger = Ledger::from_iter([("sent", 1)]);
        let now = Ledger::from_iter([("sent", 2), ("made", 1)]);
        assert_eq!(
            "made: was 0, expected 0, found 1\n",
            ledger.differences(&now, &[("sent", 1)])
        );
    }
}
