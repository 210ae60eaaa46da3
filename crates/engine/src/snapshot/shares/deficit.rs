//! What is to be dealt out by weight, dealt out: who wants less leaves the rest to the others, and has what it left, up to a
//! limit, when it comes back.

/// Fractions of a unit.
const ONE: u64 = 1 << 24;

/// Who wants something.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Its number.
    pub number: u16,
    /// Its weight, at least 1.
    pub weight: u64,
    /// Units that it wants.
    pub wants: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Deficit {
    level: u64,
    /// The clock when it was last dealt to.
    seen: u64,
}

/// What has been dealt at a place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Distribution {
    /// Fractions of units dealt to a weight of 1 so far: who was not there gets its part of them when it comes.
    clock: u64,
    /// Units that were there and were not taken, because nobody had a whole one left. Negative: those that were taken
    /// although they were not there, because all came at once with what they had saved up.
    left: i64,
}

/// Credits by number.
#[derive(Debug)]
pub struct Deficits(Box<[Deficit]>);

/// Times that is looked who still wants more: what is left after that is dealt out with the next burst.
const STEPS: usize = 8;

impl Deficits {
    /// Of so many, without any.
    pub fn new(count: usize) -> Self {
        Self(vec![Deficit::default(); count].into())
    }

    /// Deal `budget` units to claims, of whom none may save up more than `most`.
    pub fn distribute(&mut self, claims: &[Demand], budget: u64, dealt: &mut Distribution, most: u64) {
        let Distribution { clock, left } = dealt;
        *left = (*left).min(most as i64).saturating_add(budget as i64);
        let budget = (*left).max(0) as u64;
        let most = most.saturating_mul(ONE);
        for claim in claims {
            if let Some(credit) = self.0.get_mut(usize::from(claim.number)) {
                let missed = clock.saturating_sub(credit.seen).saturating_mul(claim.weight);
                credit.level = credit.level.saturating_add(missed).min(most);
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
            if let Some(credit) = self.0.get_mut(usize::from(claim.number)) {
                credit.level = (credit.level + claim.weight * step).min(most);
                credit.seen = *clock;
            }
        }
    }

    fn level(&self, claim: &Demand) -> u64 {
        self.0.get(usize::from(claim.number)).map_or(0, |credit| credit.level)
    }

    /// Take as many of so many units as there are. Returns how many.
    pub fn take_up_to(&mut self, number: u16, units: u64, dealt: &mut Distribution) -> u64 {
        let Some(credit) = self.0.get_mut(usize::from(number)) else {
            return units;
        };
        let taken = units.min(credit.level / ONE);
        credit.level -= taken * ONE;
        dealt.left = dealt.left.saturating_sub(taken as i64);
        taken
    }

    /// Give units back that were taken in vain. They come out of what all others are dealt next.
    pub fn refund(&mut self, number: u16, units: u64) {
        if let Some(credit) = self.0.get_mut(usize::from(number)) {
            credit.level = credit.level.saturating_add(units * ONE);
        }
    }

    /// Take units; false, and nothing taken, where there are fewer.
    #[inline(always)]
    pub fn take(&mut self, number: u16, units: u64, dealt: &mut Distribution) -> bool {
        let Some(credit) = self.0.get_mut(usize::from(number)) else {
            return true;
        };
        let Some(level) = credit.level.checked_sub(units * ONE) else {
            return false;
        };
        credit.level = level;
        dealt.left = dealt.left.saturating_sub(units as i64);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: u64 = 128;

    /// Deal and take as much as there is, one by one and at once.
    fn taken(credits: &mut Deficits, claims: &[Demand], budget: u64, dealt: &mut Distribution) -> Vec<u64> {
        credits.distribute(claims, budget, dealt, MOST);
        all_taken(credits, claims, dealt)
    }

    fn all_taken(credits: &mut Deficits, claims: &[Demand], dealt: &mut Distribution) -> Vec<u64> {
        let mut take = |claim: &Demand| {
            let half = claim.wants / 2;
            let one_by_one = (0..half).filter(|_| credits.take(claim.number, 1, dealt)).count() as u64;
            one_by_one + credits.take_up_to(claim.number, claim.wants - half, dealt)
        };
        claims.iter().map(&mut take).collect()
    }

    fn claims(all: &[(u64, u64)]) -> Vec<Demand> {
        let claim = |(number, &(weight, wants)): (u16, &(u64, u64))| Demand { number, weight, wants };
        (0..).zip(all).map(claim).collect()
    }

    /// All that is there is dealt, and no more, and by weight.
    fn is_fair(all: &[(u64, u64)], budget: u64) -> Result<(), TestCaseError> {
        let (mut credits, mut dealt) = (Deficits::new(8), Distribution::default());
        let claims = claims(all);
        let mut sums = vec![0; all.len()];
        let mut cut = vec![false; all.len()];
        const ROUNDS: u64 = 500;
        for _ in 0..ROUNDS {
            credits.distribute(&claims, budget, &mut dealt, MOST);
            // What would be saved up beyond the limit is nobody's.
            cut.iter_mut()
                .zip(&credits.0)
                .for_each(|(cut, credit)| *cut |= credit.level == MOST * ONE);
            let taken = all_taken(&mut credits, &claims, &mut dealt);
            sums.iter_mut().zip(taken).for_each(|(sum, taken)| *sum += taken);
        }
        let wanted: u64 = all.iter().map(|one| one.1).sum();
        let all_dealt: u64 = sums.iter().sum();
        prop_assert!(all_dealt.abs_diff(wanted.min(budget) * ROUNDS) <= 2 * all.len() as u64 + ROUNDS / 100);
        // Nobody who wanted more has had less by its weight than anybody else, what it has saved up included.
        for (((sum, credit), (weight, wants)), cut) in sums.iter().zip(&credits.0).zip(all).zip(&cut) {
            for (other, (others, _)) in sums.iter().zip(all) {
                let is_sated = *sum + 2 >= wants * ROUNDS || *cut;
                let had = sum + credit.level / ONE + 2;
                prop_assert!(is_sated || had * others + 2 * others + 2 * weight >= other * weight * 99 / 100);
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
        let (mut credits, mut dealt) = (Deficits::new(8), Distribution::default());
        let claims = claims(&[(1, 1), (151, 37)]);
        let mut sums = [0; 2];
        for _ in 0..500 {
            let taken = taken(&mut credits, &claims, 37, &mut dealt);
            sums.iter_mut().zip(taken).for_each(|(sum, taken)| *sum += taken);
        }
        // All of it; a unit of the first is worth 151 of the second's, which has saved up what it has less.
        assert_eq!([125, 18_375], sums);
    }

    #[test]
    fn credits_of_who_was_away_are_its_part_up_to_a_limit() {
        let (mut credits, mut dealt) = (Deficits::new(8), Distribution::default());
        let both = claims(&[(10, 64), (10, 64)]);
        // Alone, the first takes all.
        assert_eq!(vec![16], taken(&mut credits, &both[..1], 16, &mut dealt));
        assert_eq!(vec![16], taken(&mut credits, &both[..1], 16, &mut dealt));
        // What the other left is its own, but no more than there was.
        assert_eq!(vec![0, 32], taken(&mut credits, &both, 16, &mut dealt));
        (0..1000).for_each(|_| drop(taken(&mut credits, &both[..1], 16, &mut dealt)));
        let much = claims(&[(10, 0), (10, 500)]);
        assert_eq!(vec![0, 128], taken(&mut credits, &much, 16, &mut dealt));
    }
}
