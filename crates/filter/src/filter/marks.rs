//! Session marks: 32-bit numbers that rules set and that later rules match.

/// A mark value with a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// Value of the bits under the mask.
    pub value: u32,
    /// Mask of the bits that are compared or set.
    pub mask: u32,
}

impl Mark {
    /// Whether the session mark `mark` equals this mark under the mask.
    pub fn matches(self, mark: u32) -> bool {
        mark & self.mask == self.value
    }

    /// Returns the session mark `mark` with the bits under the mask replaced.
    pub fn set(self, mark: u32) -> u32 {
        mark & !self.mask | self.value
    }
}

/// Session mark and traffic class that rules set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionMarking {
    /// The session mark after all rules.
    pub mark: u32,
    /// The bits of the traffic class that rules set.
    pub class: TrafficClass,
}

/// A traffic class (type of service in IPv4) with a mask. The traffic class contains 6 bits of the DSCP (RFC 2474) and
/// 2 bits of ECN (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficClass {
    value: u8,
    mask: u8,
}

impl TrafficClass {
    /// A traffic class with an empty mask, which sets no bits.
    pub const ANY: Self = Self { value: 0, mask: 0 };

    /// Creates a traffic class from a value and a mask.
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

    /// Returns the traffic class with the DSCP set.
    pub fn with_dscp(self, dscp: u8) -> Self {
        self.with(dscp << 2, 0xfc)
    }

    /// Returns the traffic class with the ECN code point set.
    pub fn with_ecn(self, ecn: u8) -> Self {
        self.with(ecn, 3)
    }

    /// Combines two traffic classes. The bits outside of this mask are the bits of `older`.
    pub fn over(self, older: Self) -> Self {
        older.with(self.value, self.mask)
    }

    fn with(self, value: u8, mask: u8) -> Self {
        Self::new(self.value & !mask | value & mask, self.mask | mask)
    }

    /// Returns `class` with the bits under the mask replaced.
    pub fn set(self, class: u8) -> u8 {
        class & !self.mask | self.value
    }
}

/// Condition of a rule on the session mark. The condition is evaluated for the mark as preceding rules have changed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MarkCondition {
    /// Whether the condition is negated.
    pub not: bool,
    /// The mark to compare with.
    pub mark: Mark,
}

impl MarkCondition {
    /// Whether a mark satisfies the condition.
    pub fn matches(self, mark: u32) -> bool {
        self.mark.matches(mark) != self.not
    }
}
