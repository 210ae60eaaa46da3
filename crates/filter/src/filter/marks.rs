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
    pub fn has(self, mark: u32) -> bool {
        mark & self.mask == self.value
    }

    /// A mark with these bits in the place of its own.
    pub fn set(self, mark: u32) -> u32 {
        mark & !self.mask | self.value
    }
}

/// What rules set on a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marking {
    /// The mark that its session has then.
    pub mark: u32,
    /// The differentiated services code point that it leaves with, where rules say one.
    pub dscp: Option<u8>,
}

/// What a rule asks of the mark that rules before it, or of the session, have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Marked {
    /// Any other mark is meant.
    pub not: bool,
    /// The mark.
    pub mark: Mark,
}

impl Marked {
    /// Whether a mark is one that is meant.
    pub fn has(self, mark: u32) -> bool {
        self.mark.has(mark) != self.not
    }
}
