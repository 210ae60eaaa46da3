//! VLAN tags of a subinterface.

use std::fmt;
use std::str::FromStr;

use super::{ValueError, written_as_text};

/// One tag (802.1Q), or an outer (802.1ad) and an inner one (802.1Q). Written `100` or `100.200`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tags {
    outer: u16,
    inner: Option<u16>,
}

impl Tags {
    /// One tag.
    pub(super) fn single(tag: u16) -> Self {
        Self {
            outer: tag,
            inner: None,
        }
    }

    /// Two of them.
    pub(super) fn double(outer: u16, inner: u16) -> Self {
        Self {
            outer,
            inner: Some(inner),
        }
    }

    /// The tag next to the Ethernet header, 1 to 4094.
    pub fn outer(&self) -> u16 {
        self.outer
    }

    /// The tag behind it, 1 to 4094, where there are two.
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
