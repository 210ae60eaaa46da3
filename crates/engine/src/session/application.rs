//! The application field of a session record.

use sluice_inspect::applications::ProtocolPair;

/// State of application identification of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Application {
    /// The application is unknown, and identification is not enabled for the session.
    #[default]
    Nothing,
    /// Identification will start with the next packet.
    Enabled,
    /// Identification is in progress.
    Pending(PendingIndex),
    /// Identification has finished with this result. Both numbers are 0 if nDPI could not determine the application.
    Known(ProtocolPair),
}

/// Index of an entry in the worker's identification pool, with a serial number that changes each time the entry is
/// reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingIndex(pub(crate) u32);

/// Maximum number of sessions that a worker identifies simultaneously. The number of bits in the record's field limits
/// this number.
pub const MAX_PENDING: u32 = 1 << SLOT_BITS;
/// Number of bits of the entry's index.
pub(crate) const SLOT_BITS: u32 = 20;
/// Number of bits of the serial number.
pub(crate) const SERIAL_BITS: u32 = 30 - SLOT_BITS;

/// Position of the state in the record's field. The state is in the two highest bits.
const KIND: u32 = 30;
const PENDING: u32 = 1;
const KNOWN: u32 = 2;
const ENABLED: u32 = 3;

impl Application {
    /// Decodes the field of a session record.
    #[inline(always)]
    pub fn from_bits(bits: u32) -> Self {
        let rest = bits & ((1 << KIND) - 1);
        match bits >> KIND {
            PENDING => Self::Pending(PendingIndex(rest)),
            ENABLED => Self::Enabled,
            KNOWN => Self::Known(ProtocolPair {
                master: (rest >> 15) as u16,
                application: (rest & 0x7fff) as u16,
            }),
            _ => Self::Nothing,
        }
    }

    /// Encodes the state as the field of a session record. nDPI's numbers have less than 15 bits.
    pub fn bits(self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Enabled => ENABLED << KIND,
            Self::Pending(PendingIndex(place)) => PENDING << KIND | place,
            Self::Known(ProtocolPair { master, application }) => {
                KNOWN << KIND | u32::from(master & 0x7fff) << 15 | u32::from(application & 0x7fff)
            }
        }
    }

    /// Whether the session's packets are passed to identification.
    #[inline(always)]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Enabled | Self::Pending(_))
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
            Application::Enabled,
            Application::Pending(PendingIndex(0)),
            Application::Pending(PendingIndex((1 << KIND) - 1)),
            pair(0, 0),
            pair(91, 126),
            pair(0x7fff, 0x7fff),
        ] {
            assert_eq!(application, Application::from_bits(application.bits()));
        }
        assert_eq!(0, Application::Nothing.bits());
    }
}
