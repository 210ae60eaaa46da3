//! Marks of sessions: numbers that rules set and later ones match.

/// A mark, as far as some of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// Its bits, of those that count.
    pub value: u32,
    /// The bits that count.
    pub mask: u32,
}

impl Mark {
    /// Whether a mark is so, in the bits that count.
    pub fn matches(self, mark: u32) -> bool {
        mark & self.mask == self.value
    }

    /// A mark with these bits in the place of its own.
    pub fn set(self, mark: u32) -> u32 {
        mark & !self.mask | self.value
    }
}

/// What rules set on a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionMarking {
    /// The mark that its session has then.
    pub mark: u32,
    /// What it leaves with of its traffic class, as far as rules say.
    pub class: TrafficClass,
}

/// A traffic class (IPv4's type of service), as far as some of its bits are said: 6 of the code point (RFC 2474), and 2 of
/// congestion notification (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficClass {
    value: u8,
    mask: u8,
}

impl TrafficClass {
    /// Where nothing is said.
    pub const ANY: Self = Self { value: 0, mask: 0 };

    /// Of bits that are said and their values.
    pub fn new(value: u8, mask: u8) -> Self {
        let value = value & mask;
        Self { value, mask }
    }

    /// The bits that are said, and their values.
    pub fn parts(self) -> (u8, u8) {
        (self.value, self.mask)
    }

    /// Whether nothing is said.
    pub fn is_any(self) -> bool {
        self.mask == 0
    }

    /// The same with another differentiated services code point.
    pub fn with_dscp(self, dscp: u8) -> Self {
        self.with(dscp << 2, 0xfc)
    }

    /// The same with another code point of congestion.
    pub fn with_ecn(self, ecn: u8) -> Self {
        self.with(ecn, 3)
    }

    /// The same, and what an older one says of the other bits.
    pub fn over(self, older: Self) -> Self {
        older.with(self.value, self.mask)
    }

    fn with(self, value: u8, mask: u8) -> Self {
        Self::new(self.value & !mask | value & mask, self.mask | mask)
    }

    /// A traffic class with these bits in the place of its own.
    pub fn set(self, class: u8) -> u8 {
        class & !self.mask | self.value
    }
}

/// What a rule asks of the mark that rules before it, or of the session, have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MarkCondition {
    /// Any other mark is meant.
    pub not: bool,
    /// The mark.
    pub mark: Mark,
}

impl MarkCondition {
    /// Whether a mark is one that is meant.
    pub fn matches(self, mark: u32) -> bool {
        self.mark.matches(mark) != self.not
    }
}
