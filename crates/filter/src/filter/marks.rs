//! Marks of sessions: numbers that rules set and later rules match.

/// A mark under a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// Bits of the mark under the mask.
    pub value: u32,
    /// Mask of the significant bits.
    pub mask: u32,
}

impl Mark {
    /// Whether another mark equals this one under the mask.
    pub fn matches(self, mark: u32) -> bool {
        mark & self.mask == self.value
    }

    /// Replaces the bits under the mask.
    pub fn set(self, mark: u32) -> u32 {
        mark & !self.mask | self.value
    }
}

/// Mark and traffic class that rules set for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionMarking {
    /// The resulting mark of the session.
    pub mark: u32,
    /// Bits of the traffic class that rules set.
    pub class: TrafficClass,
}

/// A traffic class (type of service in IPv4) under a mask: 6 bits of the code point (RFC 2474), and 2 bits of congestion
/// notification (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficClass {
    value: u8,
    mask: u8,
}

impl TrafficClass {
    /// No bits are set.
    pub const ANY: Self = Self { value: 0, mask: 0 };

    /// A value under a mask.
    pub fn new(value: u8, mask: u8) -> Self {
        let value = value & mask;
        Self { value, mask }
    }

    /// Value and mask.
    pub fn parts(self) -> (u8, u8) {
        (self.value, self.mask)
    }

    /// Whether the mask is empty.
    pub fn is_any(self) -> bool {
        self.mask == 0
    }

    /// Sets the differentiated services code point.
    pub fn with_dscp(self, dscp: u8) -> Self {
        self.with(dscp << 2, 0xfc)
    }

    /// Sets the ECN code point.
    pub fn with_ecn(self, ecn: u8) -> Self {
        self.with(ecn, 3)
    }

    /// Combines this value with an older one, which provides the bits outside of this mask.
    pub fn over(self, older: Self) -> Self {
        older.with(self.value, self.mask)
    }

    fn with(self, value: u8, mask: u8) -> Self {
        Self::new(self.value & !mask | value & mask, self.mask | mask)
    }

    /// Replaces the bits under the mask.
    pub fn set(self, class: u8) -> u8 {
        class & !self.mask | self.value
    }
}

/// Condition of a rule on the mark of the session, including the changes of preceding rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MarkCondition {
    /// The condition is negated.
    pub not: bool,
    /// The mark.
    pub mark: Mark,
}

impl MarkCondition {
    /// Whether a mark satisfies the condition.
    pub fn matches(self, mark: u32) -> bool {
        self.mark.matches(mark) != self.not
    }
}
