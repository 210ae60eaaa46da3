//! VLAN tags of a subinterface.

use std::fmt;
use std::str::FromStr;

use super::{ValueError, written_as_text};

/// A single tag (802.1Q), or an outer tag (802.1ad) and an inner tag (802.1Q). Tags are written as `100` or `100.200`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tags {
    outer: u16,
    inner: Option<u16>,
}

impl Tags {
    /// A single tag.
    pub(super) fn single(tag: u16) -> Self {
        Self {
            outer: tag,
            inner: None,
        }
    }

    /// Two tags.
    pub(super) fn double(outer: u16, inner: u16) -> Self {
        Self {
            outer,
            inner: Some(inner),
        }
    }

    /// The outermost tag, 1 to 4094.
    pub fn outer(&self) -> u16 {
        self.outer
    }

    /// The inner tag, 1 to 4094. `None` for a single tag.
    pub fn inner(&self) -> Option<u16> {
        self.inner
    }
}

impl FromStr for Tags {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let tag = |part: &str| {
            let tag: u32 = part.trim().parse().map_err(|_| ValueError::Tags(text.into()))?;
            u16::try_from(tag)
                .ok()
                .filter(|tag| (1..=4094).contains(tag))
                .ok_or(ValueError::TagRange(tag))
        };
        match text.split_once('.') {
            None => Ok(Self {
                outer: tag(text)?,
                inner: None,
            }),
            Some((outer, inner)) => Ok(Self {
                outer: tag(outer)?,
                inner: Some(tag(inner)?),
            }),
        }
    }
}

impl fmt::Display for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.inner {
            None => self.outer.fmt(f),
            Some(inner) => write!(f, "{}.{inner}", self.outer),
        }
    }
}

written_as_text!(Tags, "VLAN tags such as \"100\" or \"100.200\"");

/// Tag protocol identifier, written in hexadecimal: `0x88a8`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TagProtocol {
    /// 802.1Q.
    #[default]
    Vlan,
    /// 802.1ad.
    Service,
    /// Service tags of older switches (0x9100).
    Qinq9100,
    /// Service tags of older switches (0x9200).
    Qinq9200,
}

impl TagProtocol {
    /// All tag protocols.
    const ALL: [Self; 4] = [Self::Vlan, Self::Service, Self::Qinq9100, Self::Qinq9200];

    /// The tag protocol identifier.
    pub fn number(self) -> u16 {
        match self {
            Self::Vlan => 0x8100,
            Self::Service => 0x88a8,
            Self::Qinq9100 => 0x9100,
            Self::Qinq9200 => 0x9200,
        }
    }
}

impl FromStr for TagProtocol {
    type Err = ValueError;

    /// Numbers arrive in decimal, because TOML converts numbers of any base.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let number = match text.strip_prefix("0x") {
            Some(digits) => u16::from_str_radix(digits, 16),
            None => text.parse(),
        };
        let known = number
            .ok()
            .and_then(|number| Self::ALL.into_iter().find(|one| one.number() == number));
        known.ok_or_else(|| ValueError::TagProtocol(text.into()))
    }
}

impl fmt::Display for TagProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.number())
    }
}

written_as_text!(TagProtocol, "a type of VLAN tags such as \"0x88a8\"");

/// Priority of the tags of sent frames, written as `keep` or 0 to 7.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VlanPriority {
    /// Priority of the received tag.
    #[default]
    Keep,
    /// A fixed priority.
    Set(u8),
}

impl FromStr for VlanPriority {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "keep" {
            return Ok(Self::Keep);
        }
        let priority = text.parse().ok().filter(|priority| *priority <= 7);
        priority
            .map(Self::Set)
            .ok_or_else(|| ValueError::VlanPriority(text.into()))
    }
}

impl fmt::Display for VlanPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep => f.write_str("keep"),
            Self::Set(priority) => priority.fmt(f),
        }
    }
}

written_as_text!(VlanPriority, "\"keep\" or a priority from 0 to 7");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_protocol_is_one_of_four_in_any_base() {
        for (text, protocol) in [
            ("0x8100", 0x8100),
            ("0x88a8", 0x88a8),
            ("37120", 0x9100),
            ("0x9200", 0x9200),
        ] {
            assert_eq!(Ok(protocol), text.parse().map(TagProtocol::number));
        }
        for wrong in ["", "0x", "0x0800", "802.1q", "8100", "-1", "0x18100"] {
            assert_eq!(Err(ValueError::TagProtocol(wrong.into())), wrong.parse::<TagProtocol>());
        }
    }

    #[test]
    fn vlan_priority_is_kept_or_0_to_7() {
        assert_eq!(Ok(VlanPriority::Keep), "keep".parse());
        assert_eq!(Ok(VlanPriority::Set(7)), "7".parse());
        for wrong in ["", "8", "-1", "Keep"] {
            assert_eq!(
                Err(ValueError::VlanPriority(wrong.into())),
                wrong.parse::<VlanPriority>()
            );
        }
    }
}
