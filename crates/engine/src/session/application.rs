//! What a session's record keeps of its application.

use sluice_inspect::applications::ProtocolPair;

/// What is known of a session's application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Application {
    /// Nothing, and nobody asks.
    #[default]
    Nothing,
    /// It will be looked for, from the next packet on.
    Wanted,
    /// It is looked for.
    Sought(PendingIndex),
    /// It was looked for: what was found. Both numbers are 0 where nothing was.
    Known(ProtocolPair),
}

/// A place in the pool of its worker, and which use of the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingIndex(pub(crate) u32);

/// Sessions that a worker looks at, at most: what a record's number leaves.
pub const MAX_PENDING: u32 = 1 << SLOT_BITS;
/// Bits of a place.
pub(crate) const SLOT_BITS: u32 = 20;
/// Bits of the use of a place.
pub(crate) const SERIAL_BITS: u32 = 30 - SLOT_BITS;

/// What a record's number is, in its two highest bits.
const KIND: u32 = 30;
const PENDING: u32 = 1;
const KNOWN: u32 = 2;
const WANTED: u32 = 3;

impl Application {
    /// As a record keeps it.
    #[inline(always)]
    pub fn from_bits(bits: u32) -> Self {
        let rest = bits & ((1 << KIND) - 1);
        match bits >> KIND {
            PENDING => Self::Sought(PendingIndex(rest)),
            WANTED => Self::Wanted,
            KNOWN => Self::Known(ProtocolPair {
                master: (rest >> 15) as u16,
                application: (rest & 0x7fff) as u16,
            }),
            _ => Self::Nothing,
        }
    }

    /// As a record keeps it. nDPI's numbers have less than 15 bits.
    pub fn bits(self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Wanted => WANTED << KIND,
            Self::Sought(PendingIndex(place)) => PENDING << KIND | place,
            Self::Known(ProtocolPair { master, application }) => {
                KNOWN << KIND | u32::from(master & 0x7fff) << 15 | u32::from(application & 0x7fff)
            }
        }
    }

    /// Whether packets are looked at for it.
    #[inline(always)]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Wanted | Self::Sought(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn application_comes_out_of_a_record_as_it_went_in() {
        let pair = |master, application| Application::Known(ProtocolPair { master, application });
        for application in [
            Application::Nothing,
            Application::Wanted,
            Application::Sought(PendingIndex(0)),
            Application::Sought(PendingIndex((1 << KIND) - 1)),
            pair(0, 0),
            pair(91, 126),
            pair(0x7fff, 0x7fff),
        ] {
            assert_eq!(application, Application::from_bits(application.bits()));
        }
        assert_eq!(0, Application::Nothing.bits());
    }
}
