//! Bit rates.

use std::fmt;
use std::str::FromStr;

use super::{ValueError, written_as_text};

/// A bit rate with a unit: `64k`, `100M`, `2.5G`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BitRate(u64);

/// Units, the largest first.
const UNITS: [(char, u64); 3] = [('G', 1_000_000_000), ('M', 1_000_000), ('k', 1_000)];

impl BitRate {
    /// A rate of this many bits per second.
    pub const fn of(bits: u64) -> Self {
        Self(bits)
    }

    /// Bits per second.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl FromStr for BitRate {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::BitRate(text.to_owned());
        let known = UNITS
            .iter()
            .find_map(|&(unit, bits)| Some((text.strip_suffix(unit)?, bits)));
        let (number, unit) = known.unwrap_or((text, 1));
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let is_number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
        // The smallest representable part is one bit.
        let finest = 10u64
            .checked_pow(part.len() as u32)
            .filter(|finest: &u64| unit.is_multiple_of(*finest));
        if whole.is_empty() || !is_number(whole) || !is_number(part) || number.ends_with('.') {
            return Err(wrong());
        }
        let finest = finest.ok_or_else(wrong)?;
        let digits: u64 = format!("{whole}{part}").parse().map_err(|_| wrong())?;
        digits.checked_mul(unit / finest).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, bits)| self.0 >= *bits);
        match unit {
            Some(&(unit, bits)) if self.0.is_multiple_of(bits) => write!(f, "{}{unit}", self.0 / bits),
            Some(&(unit, bits)) => {
                let part = format!("{:0width$}", self.0 % bits, width = bits.ilog10() as usize);
                write!(f, "{}.{}{unit}", self.0 / bits, part.trim_end_matches('0'))
            }
            None => write!(f, "{}", self.0),
        }
    }
}

written_as_text!(BitRate, "a bit rate such as \"100M\" or \"2.5G\"");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bit_rate_any_is_read_as_it_is_printed(bits: u64) {
            prop_assert_eq!(Ok(BitRate(bits)), BitRate(bits).to_string().parse());
        }
    }

    #[test]
    fn bit_rate_is_a_number_with_a_unit() {
        for (text, bits) in [
            ("64k", 64_000),
            ("100M", 100_000_000),
            ("2.5G", 2_500_000_000),
            ("1500", 1_500),
            ("0.064M", 64_000),
        ] {
            assert_eq!(Ok(BitRate(bits)), text.parse());
        }
        assert_eq!("2.5G", BitRate(2_500_000_000).to_string());
        for wrong in [
            "",
            "M",
            "1.G",
            ".5M",
            "1.5",
            "-1M",
            "+1M",
            "1 M",
            "1m",
            "1T",
            "0.0001k",
            "99999999999G",
        ] {
            assert_eq!(Err(ValueError::BitRate(wrong.into())), wrong.parse::<BitRate>());
        }
    }
}
