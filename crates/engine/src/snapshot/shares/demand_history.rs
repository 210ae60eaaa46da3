//! Recent demands of interfaces for a link. Each of several consecutive bursts may contain packets of only one
//! interface. The demands of the bursts before are remembered, so that this interface doesn't get the shares of the
//! other interfaces.

use super::deficit::Demand;

/// Maximum number of interfaces that are stored for a link. If more interfaces have demands, the oldest entries are
/// removed.
const PLACES: usize = 16;

/// Number of bursts for which a demand is kept.
const BURSTS: u32 = 8;

/// Demands of the last bursts.
#[derive(Clone, Copy, Debug, Default)]
pub struct DemandHistory {
    burst: u32,
    /// Recent demands, each with the number of its burst.
    claims: [Option<(Demand, u32)>; PLACES],
}

impl DemandHistory {
    /// Records the demands of a burst. For each interface that has a recent demand but none in this burst, calls
    /// `absent` with the recent demand.
    pub fn observe(&mut self, claims: &[Demand], mut absent: impl FnMut(Demand)) {
        self.burst = self.burst.wrapping_add(1);
        let is_here = |number: u16| claims.iter().any(|claim| claim.number == number);
        for place in &mut self.claims {
            let age = |burst: u32| self.burst.wrapping_sub(burst);
            match *place {
                Some((claim, _)) if is_here(claim.number) => *place = None,
                Some((_, burst)) if age(burst) > BURSTS => *place = None,
                Some((claim, _)) => absent(claim),
                None => {}
            }
        }
        for &claim in claims {
            let age =
                |place: &Option<(Demand, u32)>| place.map_or(u32::MAX, |(_, burst)| self.burst.wrapping_sub(burst));
            if let Some(place) = self.claims.iter_mut().max_by_key(|place| age(place)) {
                *place = Some((claim, self.burst));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::shares::deficit::{Deficits, Distribution};

    fn claim(number: u16, weight: u64) -> Demand {
        Demand {
            number,
            weight,
            wants: 64,
        }
    }

    #[test]
    fn who_was_there_lately_is_dealt_to_in_turn_and_forgotten_later() {
        let (mut deficits, mut distribution, mut recent) =
            (Deficits::new(4), Distribution::default(), DemandHistory::default());
        let mut burst = |claim: Demand| {
            let mut all = vec![claim];
            recent.observe(&[claim], |absent| all.push(absent));
            deficits.distribute(&all, 16, &mut distribution, 128);
            (0..64)
                .filter(|_| deficits.take(claim.number, 1, &mut distribution))
                .count()
        };
        let mut sums = [0; 2];
        for round in 0..1_000 {
            let taken = [burst(claim(0, 30)), burst(claim(1, 10))];
            if round >= 100 {
                sums.iter_mut().zip(taken).for_each(|(sum, taken)| *sum += taken);
            }
        }
        assert_eq!([24, 8], sums.map(|sum| (sum + 450) / 900));
        // When an interface is alone again, it gets the whole budget.
        (0..20).for_each(|_| assert!(burst(claim(1, 10)) > 0));
        assert_eq!([16; 4], [(); 4].map(|()| burst(claim(1, 10))));
    }
}
