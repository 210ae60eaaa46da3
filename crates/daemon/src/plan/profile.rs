//! Traffic profiles: distribution of frame sizes and packets per session. Also parses rates such as "10G sfr".

use std::fmt;
use std::str::FromStr;

/// Bytes that a frame takes on the wire in addition to its headers and payload: check sequence, preamble, start
/// delimiter and inter-frame gap.
const AROUND: f64 = 24.0;

/// A mix of packets.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Name of the profile.
    pub name: String,
    /// Frame sizes in bytes without check sequence, each with its fraction of the packets.
    pub sizes: Vec<(u16, f64)>,
    /// Packets per session, including the first. `None` if sessions are long-lived.
    pub packets_per_session: Option<f64>,
}

/// Names of the profiles, for error messages.
pub const NAMES: &str = "sfr";

impl Profile {
    /// Traffic of the customers of a French carrier: 215,136 packets and 4,084 new sessions per 1.004 Gbit. The size
    /// classes are up to 64, up to 128, up to 576, up to 1,280, and more than 1,280 bytes. The mean frame size is 583
    /// bytes.
    pub fn sfr() -> Self {
        Self {
            name: "sfr".into(),
            sizes: vec![(60, 0.200), (90, 0.277), (350, 0.162), (900, 0.091), (1514, 0.270)],
            packets_per_session: Some(52.7),
        }
    }

    /// Frames of a single size (including the check sequence) in long-lived sessions.
    pub fn of_size(bytes: u16) -> Self {
        Self {
            name: format!("frames with a size of {bytes} bytes"),
            sizes: vec![(bytes.saturating_sub(4), 1.0)],
            packets_per_session: None,
        }
    }

    /// Mean frame size in bytes, without check sequence.
    pub fn mean(&self) -> f64 {
        self.sizes.iter().map(|&(bytes, share)| f64::from(bytes) * share).sum()
    }

    /// Size of the frame with this number. Among any hundred consecutive frames, each size has about its configured
    /// fraction.
    pub fn size(&self, number: u32) -> u16 {
        // Multiples of the golden ratio modulo 1 are evenly distributed, even over short sequences.
        let place = f64::from(number.wrapping_mul(2_654_435_769)) / 2f64.powi(32);
        let mut end = 0.0;
        let found = self.sizes.iter().find(|(_, share)| {
            end += share;
            place < end
        });
        found.or(self.sizes.last()).map_or(60, |&(bytes, _)| bytes)
    }
}

/// Traffic to which a rate refers.
#[derive(Clone, Debug, PartialEq)]
pub enum Of {
    /// Frames of a profile. The rate counts frame bytes.
    Profile(Profile),
    /// Frames of a single size, including the check sequence. The rate counts bytes on the wire.
    Size(u16),
    /// The measured traffic.
    Measured,
}

/// A required rate: `10G sfr`, `1.5G 64`, `400M`.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// The rate as typed.
    pub text: String,
    /// Bits per second.
    pub bits: f64,
    /// Traffic to which the rate refers.
    pub of: Of,
}

impl Demand {
    /// Packets per second. `mean` is the mean frame size of the measured traffic in bytes.
    pub fn packets(&self, mean: f64) -> f64 {
        let bytes = match &self.of {
            Of::Profile(profile) => profile.mean(),
            Of::Size(bytes) => f64::from(*bytes) - 4.0 + AROUND,
            Of::Measured => mean.max(1.0),
        };
        self.bits / 8.0 / bytes
    }

    /// Profile of the specified traffic. `None` for the measured traffic.
    pub fn profile(&self) -> Option<Profile> {
        match &self.of {
            Of::Profile(profile) => Some(profile.clone()),
            Of::Size(bytes) => Some(Profile::of_size(*bytes)),
            Of::Measured => None,
        }
    }
}

/// Why a rate is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DemandError {
    /// The bits per second are invalid.
    #[error("`{0}` is not a rate: write bits per second, such as 10G, 2.5G or 400M")]
    Rate(String),
    /// The traffic is unknown.
    #[error("`{0}` is not a traffic profile: write a profile ({NAMES}) or a frame size from 64 to 1518 bytes")]
    Traffic(String),
}

impl FromStr for Demand {
    type Err = DemandError;

    fn from_str(text: &str) -> Result<Self, DemandError> {
        let mut words = text.split_whitespace();
        let rate = words.next().unwrap_or_default();
        let bits = bits(rate).ok_or_else(|| DemandError::Rate(rate.into()))?;
        let rest = words.collect::<Vec<_>>().join(" ");
        let of = match rest.as_str() {
            "" => Of::Measured,
            "sfr" => Of::Profile(Profile::sfr()),
            size => match size.parse() {
                Ok(bytes @ 64..=1518) => Of::Size(bytes),
                _ => return Err(DemandError::Traffic(rest)),
            },
        };
        Ok(Self {
            text: text.trim().into(),
            bits,
            of,
        })
    }
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn bits(rate: &str) -> Option<f64> {
    let unit = match rate.chars().last()? {
        'K' | 'k' => 1e3,
        'M' => 1e6,
        'G' => 1e9,
        'T' => 1e12,
        _ => return None,
    };
    let number: f64 = rate.get(..rate.len() - 1)?.parse().ok()?;
    (number.is_finite() && number > 0.0).then_some(number * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sfr_has_the_mean_and_the_rate_of_the_carrier() {
        let sfr = Profile::sfr();
        assert!((580.0..586.0).contains(&sfr.mean()), "{}", sfr.mean());
        assert!((sfr.sizes.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9);
        let demand: Demand = "10G sfr".parse().unwrap();
        assert!(
            (2.13e6..2.16e6).contains(&demand.packets(1.0)),
            "{}",
            demand.packets(1.0)
        );
    }

    #[test]
    fn sizes_of_packets_in_a_row_have_their_shares() {
        let sfr = Profile::sfr();
        let mean: f64 = (0..1000).map(|number| f64::from(sfr.size(number))).sum::<f64>() / 1000.0;
        assert!((mean / sfr.mean() - 1.0).abs() < 0.02, "{mean}");
    }

    #[test]
    fn rate_of_small_frames_is_the_lines() {
        let demand: Demand = "10G 64".parse().unwrap();
        assert_eq!(14_880_952.0, demand.packets(1.0).floor());
        assert_eq!(1e3, "4M".parse::<Demand>().unwrap().packets(500.0));
    }

    #[test]
    fn rate_that_is_none_says_what_to_write() {
        for (text, part) in [
            ("", "rate"),
            ("10", "rate"),
            ("-1G", "rate"),
            ("1G imix", "profile"),
            ("1G 20", "64"),
        ] {
            let error = text.parse::<Demand>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
