//! P0's eight pairings (its Table 4), mapped to the four parts. A pairing runs two of P0's five stages on one core.
//!
//! P0's stage RX is the part `receive`, its Validity is `parse`, and its TX is `transmit`. The stages NAT and ConnTrack
//! are both in `session`, where one lookup serves both.

use sluice_engine::placement::{Core, Placement};

/// A pairing: its name; the core of each part if the other stages have a core each; and the core of each part if the
/// other stages share a second core.
pub struct Pairing {
    pub name: &'static str,
    spread: [Core; 4],
    halves: [Core; 4],
}

/// All pairings in the order of P0's table.
pub const ALL: [Pairing; 8] = [
    Pairing::new("Val+NAT", [0, 1, 1, 2], [0, 1, 1, 0]),
    Pairing::new("Val+CT", [0, 1, 1, 2], [0, 1, 1, 0]),
    Pairing::new("Val+TX", [0, 1, 2, 1], [0, 1, 0, 1]),
    Pairing::new("NAT+CT", [0, 1, 2, 3], [0, 0, 1, 0]),
    Pairing::new("NAT+TX", [0, 1, 2, 2], [0, 0, 1, 1]),
    Pairing::new("RX+Val", [0, 0, 1, 2], [0, 0, 1, 1]),
    Pairing::new("RX+NAT", [0, 1, 0, 2], [0, 1, 0, 1]),
    Pairing::new("RX+TX", [0, 1, 2, 0], [0, 1, 1, 0]),
];

impl Pairing {
    const fn new(name: &'static str, spread: [Core; 4], halves: [Core; 4]) -> Self {
        Self { name, spread, halves }
    }

    /// Placement in which each stage that is not in the pair has its own core.
    pub fn spread(&self) -> Option<Placement> {
        Placement::new(self.spread.map(|core| vec![core]))
    }

    /// Placement in which all stages that are not in the pair share one core.
    pub fn halves(&self) -> Option<Placement> {
        Placement::new(self.halves.map(|core| vec![core]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_share_a_core_and_the_others_do_not() {
        // The part that corresponds to a stage of P0.
        let part = |stage: &str| {
            ["RX", "Val", "NAT", "TX"]
                .iter()
                .position(|&name| name == stage)
                .unwrap_or(2)
        };
        for pairing in &ALL {
            let (one, other) = pairing.name.split_once('+').unwrap();
            let (one, other) = (part(one), part(other));
            for cores in [pairing.spread, pairing.halves] {
                assert_eq!(cores[one], cores[other], "{}", pairing.name);
            }
            let rest = (0..4).filter(|&place| place != one && place != other);
            let mut cores: Vec<_> = rest.map(|place| pairing.spread[place]).collect();
            cores.push(pairing.spread[one]);
            let distinct: std::collections::HashSet<_> = cores.iter().collect();
            assert_eq!(cores.len(), distinct.len(), "{}", pairing.name);
            assert_eq!(2, pairing.halves().unwrap().workers().len());
        }
    }
}
