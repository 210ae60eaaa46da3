//! Transaction IDs. The IDs are unpredictable, and each ID identifies its site.

use sluice_nat::Secret;

/// Number of bits of an ID that contain the site's index. The remaining bits count the site's exchanges.
const BITS: u32 = crate::subscribers::MAX_SITES.trailing_zeros();

/// A keyed permutation of site and exchange number. Two sites never have the same ID at the same time. The site of a
/// reply is computed from the ID instead of looked up.
#[derive(Debug)]
pub(super) struct Exchanges(Secret);

impl Exchanges {
    const ROUNDS: u64 = 4;

    pub fn new(secret: Secret) -> Self {
        Self(secret)
    }

    /// Transaction ID of a site's exchange.
    pub fn number(&self, site: u32, exchange: u16) -> u32 {
        let plain = u32::from(exchange) << BITS | site;
        (0..Self::ROUNDS).fold(plain, |number, round| {
            let (left, right) = (number >> 16, number & 0xffff);
            right << 16 | left ^ self.mix(round, right)
        })
    }

    /// Site of a transaction ID.
    pub fn site(&self, number: u32) -> u32 {
        let plain = (0..Self::ROUNDS).rev().fold(number, |number, round| {
            let (left, right) = (number >> 16, number & 0xffff);
            (right ^ self.mix(round, left)) << 16 | left
        });
        plain & ((1 << BITS) - 1)
    }

    fn mix(&self, round: u64, half: u32) -> u32 {
        (self.0.hash(&[round, u64::from(half)]) & 0xffff) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchange_number_leads_back_to_its_site() {
        let exchanges = Exchanges::new(Secret([3, 4]));
        let mut numbers = std::collections::HashSet::new();
        for site in (0..crate::subscribers::MAX_SITES).step_by(31) {
            for exchange in [0, 1, 2, 32_767] {
                let number = exchanges.number(site, exchange);
                assert_eq!(site, exchanges.site(number));
                assert!(numbers.insert(number), "{number} is another's too");
            }
        }
    }

    #[test]
    fn exchange_numbers_of_another_secret_are_others() {
        let (one, other) = (Exchanges::new(Secret([3, 4])), Exchanges::new(Secret([3, 5])));
        let same = (0..1_000)
            .filter(|site| one.number(*site, 1) == other.number(*site, 1))
            .count();
        assert!(same < 3, "{same}");
    }
}
