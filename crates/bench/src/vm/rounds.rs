//! Rounds, in each of which every case is measured once, in random order, and the rows that summarise all rounds.

use std::collections::BTreeMap;

use super::card::Card;
use super::gateway::Case;
use super::guest::Clock;
use super::trial::Way;
use crate::rows::{Named, Row, Runs};

/// Identifies a row within the rows of a card and clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub bytes: u32,
    pub way: Way,
    /// Number of source-NAT rules; 0 if the case does not translate.
    pub rules: u32,
    /// Number of packets per burst if instructions are counted; otherwise 0.
    pub burst: u32,
    pub case: Case,
}

/// Figures of a trial.
pub type Figures = Vec<(&'static str, f64)>;

/// Figures of each row in each round.
#[derive(Debug)]
pub struct Rounds {
    card: Card,
    clock: Clock,
    rows: BTreeMap<Key, BTreeMap<usize, Figures>>,
}

impl Rounds {
    pub fn new(card: Card, clock: Clock) -> Self {
        let rows = BTreeMap::new();
        Self { card, clock, rows }
    }

    /// Adds the figures of a trial. Cases are compared by their first figure.
    pub fn take(&mut self, key: Key, round: usize, figures: Figures) {
        self.rows.entry(key).or_default().insert(round, figures);
    }

    /// First figure of a row in the last round that measured it.
    pub fn last(&self, key: &Key) -> Option<f64> {
        let rounds = self.rows.get(key)?;
        rounds.values().next_back()?.first().map(|&(_, value)| value)
    }

    pub fn rows(&self) -> impl Iterator<Item = Row> {
        self.rows.iter().map(|(key, rounds)| self.row(key, rounds))
    }

    fn row(&self, key: &Key, rounds: &BTreeMap<usize, Figures>) -> Row {
        let row = Row::new(key.case.name())
            .key("card", self.card.name())
            .key("rules", key.rules)
            .key("bytes", key.bytes)
            .key("direction", key.way.name())
            .key("rounds", rounds.len());
        let row = match self.clock {
            Clock::Time => row.key("emulation", "interrupts dear, no caches"),
            Clock::Instructions => row
                .key("burst", key.burst)
                .key("emulation", "instructions alone: no caches, no waiting"),
        };
        let mut runs = Runs::default();
        runs.extend(rounds.values().flatten().copied());
        runs.extend(self.beside(key, rounds));
        row.runs(&runs)
    }

    /// Ratios to Linux in the same round, above 1 if this case is better: of packet rates, or of instruction counts.
    fn beside(&self, key: &Key, rounds: &BTreeMap<usize, Figures>) -> Figures {
        let case = key.case.beside();
        let name = match case {
            Case::Iptables => "times_iptables",
            _ => "times_linux_forward",
        };
        let first = |figures: &Figures| figures.first().map(|&(_, value)| value).filter(|&value| value > 0.0);
        let times = rounds.iter().filter_map(|(round, figures)| {
            let others = self.rows.get(&Key { case, ..*key })?;
            let (ours, theirs) = (first(figures)?, first(others.get(round)?)?);
            Some(match self.clock {
                Clock::Time => (name, ours / theirs),
                Clock::Instructions => (name, theirs / ours),
            })
        });
        times.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(case: Case) -> Key {
        Key {
            bytes: 64,
            way: Way::Up,
            rules: u32::from(case.translates()),
            burst: 0,
            case,
        }
    }

    #[test]
    fn row_has_figures_of_all_rounds_and_is_held_against_linux_in_the_same_round() {
        let mut rounds = Rounds::new(Card::Virtio, Clock::Time);
        for (round, [ours, theirs]) in [[30.0, 10.0], [20.0, 20.0], [60.0, 30.0]].into_iter().enumerate() {
            rounds.take(key(Case::Sluice), round, vec![("packets_per_s", ours), ("cpu", 7.0)]);
            rounds.take(key(Case::Iptables), round, vec![("packets_per_s", theirs)]);
        }
        rounds.take(key(Case::SluiceForward), 0, vec![("packets_per_s", 9.0)]);
        assert_eq!(Some(60.0), rounds.last(&key(Case::Sluice)));
        let rows: Vec<Row> = rounds.rows().collect();
        let of = |case: Case| {
            let found = rows.iter().find(|row| row.text_of("case") == case.name());
            found.cloned().unwrap_or_default()
        };
        let sluice = of(Case::Sluice);
        assert_eq!(
            (Some(30.0), Some(7.0)),
            (sluice.median("packets_per_s"), sluice.median("cpu"))
        );
        assert_eq!(Some(2.0), sluice.median("times_iptables"), "3, 1 and 2");
        assert_eq!("interrupts dear, no caches", sluice.text_of("emulation"));
        assert_eq!(
            None,
            of(Case::SluiceForward).median("times_linux_forward"),
            "Linux was not tried"
        );
    }

    #[test]
    fn fewer_instructions_are_better() {
        let mut rounds = Rounds::new(Card::E1000e, Clock::Instructions);
        rounds.take(key(Case::Sluice), 0, vec![("instructions_per_packet", 500.0)]);
        rounds.take(key(Case::Iptables), 0, vec![("instructions_per_packet", 5_000.0)]);
        let times: Vec<_> = rounds.rows().filter_map(|row| row.median("times_iptables")).collect();
        assert_eq!(vec![1.0, 10.0], times, "iptables, sluice");
    }
}
