//! Maximum segment sizes of TCP.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::{ValueError, written_as_text};

/// Maximum MSS in SYN segments on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MssClamp {
    /// The MSS that fits the interface's MTU.
    Mtu,
    /// A number of bytes, for IPv4.
    Bytes(u16),
}

/// Valid values: from the minimum of Linux to the MSS of the longest frames.
const RANGE: RangeInclusive<u16> = 88..=9_176;

/// Length of the IPv4 and TCP headers without options.
const HEADERS: u16 = 40;

impl MssClamp {
    /// MSS for IPv4 on an interface with this MTU.
    pub fn segment_size(self, mtu: u16) -> u16 {
        match self {
            Self::Mtu => mtu.saturating_sub(HEADERS),
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl FromStr for MssClamp {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "mtu" {
            return Ok(Self::Mtu);
        }
        let bytes = text.parse().ok().filter(|bytes| RANGE.contains(bytes));
        bytes
            .map(Self::Bytes)
            .ok_or_else(|| ValueError::MssClamp(text.to_owned()))
    }
}

impl fmt::Display for MssClamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mtu => f.write_str("mtu"),
            Self::Bytes(bytes) => write!(f, "{bytes}"),
        }
    }
}

written_as_text!(MssClamp, "\"mtu\" or a TCP segment size such as 1452");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mss_clamp_is_the_mtu_or_a_number_of_bytes() {
        assert_eq!(Ok(MssClamp::Mtu), "mtu".parse());
        assert_eq!(Ok(MssClamp::Bytes(1452)), "1452".parse());
        for wrong in ["", "87", "9177", "-1", "MTU", "1452 bytes"] {
            assert_eq!(Err(ValueError::MssClamp(wrong.into())), wrong.parse::<MssClamp>());
        }
    }

    #[test]
    fn mss_clamp_to_the_mtu_leaves_room_for_the_headers() {
        assert_eq!(1452, MssClamp::Mtu.segment_size(1492));
        assert_eq!(1300, MssClamp::Bytes(1300).segment_size(1492));
    }
}
