//! Weighted fair distribution of a budget, similar to deficit round robin. If a claimant (a router or an interface)
//! demands less than its share, the other claimants get the rest. The claimant keeps the rest as credit, up to a limit.

/// One packet or bit as a fixed-point number.
const ONE: u64 = 1 << 24;

/// Demand of a claimant (a router or an interface) for packets or bits, which are called units here.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Number of the claimant.
    pub number: u16,
    /// Weight of the claimant, at least 1.
    pub weight: u64,
    /// Number of demanded units.
    pub wants: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Deficit {
    level: u64,
    /// Value of the clock when the claimant last got units.
    seen: u64,
}

/// State of the distribution of one queue's budget.
#[derive(Clone, Copy, Debug, Default)]
pub struct Distribution {
    /// Number of units (fixed point) that a claimant of weight 1 was entitled to so far. A claimant that was absent for
    /// some time also gets its share of the units that were distributed in this time.
    clock: u64,
    /// Units that remained available, because no claimant was entitled to a whole unit. A negative value counts units
    /// that claimants took from their credit although no units were available.
    remaining: i64,
}

/// Credits of claimants, by number.
#[derive(Debug)]
pub struct Deficits(Box<[Deficit]>);

/// Maximum number of iterations of the search for claimants with unmet demand. A budget that remains after these
/// iterations is distributed with the next burst.
const STEPS: usize = 8;

impl Deficits {
    /// Creates credits of 0 for a number of claimants.
    pub fn new(count: usize) -> Self {
        Self(vec![Deficit::default(); count].into())
    }

    /// Distributes `budget` units to claimants. The credit of a claimant is limited to `max`.
    pub fn distribute(&mut self, claims: &[Demand], budget: u64, distribution: &mut Distribution, max: u64) {
        let Distribution { clock, remaining } = distribution;
        *remaining = (*remaining).min(max as i64).saturating_add(budget as i64);
        let budget = (*remaining).max(0) as u64;
        let max = max.saturating_mul(ONE);
        for claim in claims {
            if let Some(deficit) = self.0.get_mut(usize::from(claim.number)) {
                let missed = clock.saturating_sub(deficit.seen).saturating_mul(claim.weight);
                deficit.level = deficit.level.saturating_add(missed).min(max);
            }
        }
        let budget = budget.saturating_mul(ONE);
        let mut step = 0;
        for _ in 0..STEPS {
            let (mut given, mut weights) = (0u64, 0);
            for claim in claims {
                let level = self.level(claim) + claim.weight * step;
                let wants = claim.wants.saturating_mul(ONE);
                given = given.saturating_add(level.min(wants));
                weights += if level < wants { claim.weight } else { 0 };
            }
            let more = budget.saturating_sub(given);
            if more == 0 || weights == 0 {
                break;
            }
            step += more.div_ceil(weights);
        }
        *clock += step;
        for claim in claims {
            if let Some(deficit) = self.0.get_mut(usize::from(claim.number)) {
                deficit.level = (deficit.level + claim.weight * step).min(max);
                deficit.seen = *clock;
            }
        }
    }

    fn level(&self, claim: &Demand) -> u64 {
        self.0.get(usize::from(claim.number)).map_or(0, |deficit| deficit.level)
    }

    /// Takes at most `units` units of a claimant's credit. Returns the number of taken units.
    pub fn take_up_to(&mut self, number: u16, units: u64, distribution: &mut Distribution) -> u64 {
        let Some(deficit) = self.0.get_mut(usize::from(number)) else {
            return units;
        };
        let taken = units.min(deficit.level / ONE);
        deficit.level -= taken * ONE;
        distribution.remaining = distribution.remaining.saturating_sub(taken as i64);
        taken
    }

    /// Returns unused units to a claimant. Returned units reduce the units that all other claimants get next.
    pub fn refund(&mut self, number: u16, units: u64) {
        if let Some(deficit) = self.0.get_mut(usize::from(number)) {
            deficit.level = deficit.level.saturating_add(units * ONE);
        }
    }

    /// Takes units of a claimant's credit. If the credit is lower, returns `false` without an effect.
    #[inline(always)]
    pub fn take(&mut self, number: u16, units: u64, distribution: &mut Distribution) -> bool {
        let Some(deficit) = self.0.get_mut(usize::from(number)) else {
            return true;
        };
        let Some(level) = deficit.level.checked_sub(units * ONE) else {
            return false;
        };
        deficit.level = level;
        distribution.remaining = distribution.remaining.saturating_sub(units as i64);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX_DEFICIT: u64 = 128;

    /// Distributes a budget, and takes as many units as possible for each claimant: first some units one by one, and
    /// then the rest in one call.
    fn taken(deficits: &mut Deficits, claims: &[Demand], budget: u64, distribution: &mut Distribution) -> Vec<u64> {
        deficits.distribute(claims, budget, distribution, MAX_DEFICIT);
        all_taken(deficits, claims, distribution)
    }

    fn all_taken(deficits: &mut Deficits, claims: &[Demand], distribution: &mut Distribution) -> Vec<u64> {
        let mut take = |claim: &Demand| {
            let half = claim.wants / 2;
            let one_by_one = (0..half)
                .filter(|_| deficits.take(claim.number, 1, distribution))
                .count() as u64;
            one_by_one + deficits.take_up_to(claim.number, claim.wants - half, distribution)
        };
        claims.iter().map(&mut take).collect()
    }

    fn claims(all: &[(u64, u64)]) -> Vec<Demand> {
        let claim = |(number, &(weight, wants)): (u16, &(u64, u64))| Demand { number, weight, wants };
        (0..).zip(all).map(claim).collect()
    }

    /// Checks that the budget is distributed completely, is not exceeded, and is divided by weight.
    fn is_fair(all: &[(u64, u64)], budget: u64) -> Result<(), TestCaseError> {
        let (mut deficits, mut distribution) = (Deficits::new(8), Distribution::default());
        let claims = claims(all);
        let mut sums = vec![0; all.len()];
        let mut cut = vec![false; all.len()];
        const ROUNDS: u64 = 500;
        for _ in 0..ROUNDS {
            deficits.distribute(&claims, budget, &mut distribution, MAX_DEFICIT);
            // Credit above the limit is lost.
            cut.iter_mut()
                .zip(&deficits.0)
                .for_each(|(cut, deficit)| *cut |= deficit.level == MAX_DEFICIT * ONE);
            let taken = all_taken(&mut deficits, &claims, &mut distribution);
            sums.iter_mut().zip(taken).for_each(|(sum, taken)| *sum += taken);
        }
        let wanted: u64 = all.iter().map(|one| one.1).sum();
        let total_distributed: u64 = sums.iter().sum();
        prop_assert!(total_distributed.abs_diff(wanted.min(budget) * ROUNDS) <= 2 * all.len() as u64 + ROUNDS / 100);
        // Counted per weight and including credit, a claimant whose demand is not met has got at least as many units as
        // every other claimant.
        for (((sum, deficit), (weight, wants)), cut) in sums.iter().zip(&deficits.0).zip(all).zip(&cut) {
            for (other, (others, _)) in sums.iter().zip(all) {
                let is_satisfied = *sum + 2 >= wants * ROUNDS || *cut;
                let received = sum + deficit.level / ONE + 2;
                prop_assert!(is_satisfied || received * others + 2 * others + 2 * weight >= other * weight * 99 / 100);
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn credits_any_claims_all_that_is_there_goes_by_weight_to_who_wants_it(
            all in prop::collection::vec((1u64..256, 0u64..65), 1..6), budget in 8u64..65,
        ) {
            is_fair(&all, budget)?;
        }
    }

    #[test]
    fn credits_saved_up_by_all_are_not_more_than_there_is() {
        is_fair(&[(1, 1), (24, 8), (18, 6), (142, 47)], 59).unwrap();
    }

    #[test]
    fn credits_of_small_and_large_weights_are_their_parts() {
        let (mut deficits, mut distribution) = (Deficits::new(8), Distribution::default());
        let claims = claims(&[(1, 1), (151, 37)]);
        let mut sums = [0; 2];
        for _ in 0..500 {
            let taken = taken(&mut deficits, &claims, 37, &mut distribution);
            sums.iter_mut().zip(taken).for_each(|(sum, taken)| *sum += taken);
        }
        // The whole budget is taken. A unit of the first claimant counts as much as 151 units of the second claimant.
        // The second claimant keeps the difference as credit.
        assert_eq!([125, 18_375], sums);
    }

    #[test]
    fn credits_of_who_was_away_are_its_part_up_to_a_limit() {
        let (mut deficits, mut distribution) = (Deficits::new(8), Distribution::default());
        let both = claims(&[(10, 64), (10, 64)]);
        // If the first claimant is alone, it gets all units.
        assert_eq!(vec![16], taken(&mut deficits, &both[..1], 16, &mut distribution));
        assert_eq!(vec![16], taken(&mut deficits, &both[..1], 16, &mut distribution));
        // The second claimant gets its unused credit, but at most the available units.
        assert_eq!(vec![0, 32], taken(&mut deficits, &both, 16, &mut distribution));
        (0..1000).for_each(|_| drop(taken(&mut deficits, &both[..1], 16, &mut distribution)));
        let much = claims(&[(10, 0), (10, 500)]);
        assert_eq!(vec![0, 128], taken(&mut deficits, &much, 16, &mut distribution));
    }
}
