//! VLAN tags of sites, as numbers or ranges.

use std::fmt;
use std::str::FromStr;

use super::{Tags, ValueError, written_as_text};

/// Tags of a site group: ranges of S-tags (802.1ad) with C-tags (802.1Q), or of single tags (802.1Q). Tags are written
/// as `100-109.1-1000`, `7.1`, `7-9` or `7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SiteTags {
    outer: Option<TagRange>,
    last: TagRange,
}

/// An inclusive range of tags. A tag is from 1 to 4094.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TagRange {
    first: u16,
    last: u16,
}

impl TagRange {
    /// Lowest tag.
    pub fn first(&self) -> u16 {
        self.first
    }

    /// Number of tags.
    pub fn count(&self) -> u16 {
        self.last - self.first + 1
    }

    /// Whether the range contains a tag.
    pub fn contains(&self, tag: u16) -> bool {
        (self.first..=self.last).contains(&tag)
    }

    /// Tags in ascending order.
    pub fn tags(&self) -> impl Iterator<Item = u16> + use<> {
        self.first..=self.last
    }
}

impl FromStr for TagRange {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let tag = |part: &str| {
            let tag: u32 = part.trim().parse().map_err(|_| ValueError::SiteTags(text.into()))?;
            u16::try_from(tag)
                .ok()
                .filter(|tag| (1..=4094).contains(tag))
                .ok_or(ValueError::TagRange(tag))
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (tag(first)?, tag(last)?);
        if last < first {
            return Err(ValueError::Reversed(text.into()));
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for TagRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => self.first.fmt(f),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

impl SiteTags {
    /// The S-tags, if sites have two tags.
    pub fn outer(&self) -> Option<TagRange> {
        self.outer
    }

    /// The C-tags that belong to each S-tag, or the single tags.
    pub fn last(&self) -> TagRange {
        self.last
    }

    /// Number of sites with these tags.
    pub fn count(&self) -> u32 {
        let outer = self.outer.map_or(1, |outer| u32::from(outer.count()));
        outer * u32::from(self.last.count())
    }

    /// Whether a site has these tags.
    pub fn contains(&self, tags: Tags) -> bool {
        self.place(tags).is_some()
    }

    /// Index of the tags in the order of S-tag, then C-tag.
    pub fn place(&self, tags: Tags) -> Option<u32> {
        let row = match (self.outer, tags.inner()) {
            (Some(outer), Some(_)) if outer.contains(tags.outer()) => tags.outer() - outer.first,
            (None, None) => 0,
            _ => return None,
        };
        let last = tags.inner().unwrap_or(tags.outer());
        let place = self.last.contains(last).then(|| last - self.last.first)?;
        Some(u32::from(row) * u32::from(self.last.count()) + u32::from(place))
    }

    /// The tags at an index.
    pub fn at(&self, place: u32) -> Option<Tags> {
        if place >= self.count() {
            return None;
        }
        let each = u32::from(self.last.count());
        let (row, place) = ((place / each) as u16, (place % each) as u16);
        let last = self.last.first + place;
        Some(match self.outer {
            Some(outer) => Tags::double(outer.first + row, last),
            None => Tags::single(last),
        })
    }
}

impl FromStr for SiteTags {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text.split_once('.') {
            None => Ok(Self {
                outer: None,
                last: text.trim().parse()?,
            }),
            Some((outer, last)) => Ok(Self {
                outer: Some(outer.trim().parse()?),
                last: last.trim().parse()?,
            }),
        }
    }
}

impl fmt::Display for SiteTags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(outer) = self.outer {
            write!(f, "{outer}.")?;
        }
        self.last.fmt(f)
    }
}

written_as_text!(SiteTags, "tags of sites such as \"7\", \"7-9\" or \"100-109.1-1000\"");

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(text: &str) -> SiteTags {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn tags_of_sites_read_are_written_the_same() {
        for text in ["7", "7-9", "7.1", "7.1-4094", "100-109.1-1000", "1-4094.5"] {
            assert_eq!(text, tags(text).to_string());
        }
        assert_eq!("7.1-2", tags("7-7 . 1 - 2").to_string());
    }

    #[test]
    fn tags_of_sites_out_of_range_or_reversed_are_refused() {
        assert_eq!(Err(ValueError::TagRange(0)), "0".parse::<SiteTags>());
        assert_eq!(Err(ValueError::TagRange(4095)), "7.1-4095".parse::<SiteTags>());
        assert_eq!(Err(ValueError::TagRange(70_000)), "70000.1".parse::<SiteTags>());
        assert_eq!(Err(ValueError::Reversed("9-7".into())), "9-7.1".parse::<SiteTags>());
        for text in ["", "7.", ".7", "7.8.9", "7-", "a", "1-2-3", "-1"] {
            assert!(
                matches!(text.parse::<SiteTags>(), Err(ValueError::SiteTags(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn tags_of_sites_are_counted_by_s_tag_and_c_tag() {
        let sites = tags("100-101.5-7");
        assert_eq!(6, sites.count());
        let all: Vec<_> = (0..7)
            .map(|place| sites.at(place).map(|tags| tags.to_string()))
            .collect();
        let expected = ["100.5", "100.6", "100.7", "101.5", "101.6", "101.7"].map(|tags| Some(tags.to_owned()));
        assert_eq!([&expected[..], &[None]].concat(), all);
        for place in 0..6 {
            assert_eq!(Some(place), sites.at(place).and_then(|tags| sites.place(tags)));
        }
        for other in ["100", "100.4", "100.8", "99.5", "102.5"] {
            assert_eq!(None, other.parse().ok().and_then(|tags| sites.place(tags)), "{other}");
        }
        assert_eq!(Some(2), "9".parse().ok().and_then(|own| tags("7-9").place(own)));
        assert_eq!(16_760_836, tags("1-4094.1-4094").count());
    }
}
