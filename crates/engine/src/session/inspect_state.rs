//! The inspection field of a session record.

use sluice_filter::RejectKind;

/// State of a session that determines whether its packets are diverted before translation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InspectState {
    /// The session is not diverted.
    #[default]
    Nothing,
    /// Inspection will start with the next packet.
    Enabled,
    /// The session is inspected. The value is the handle of the session's flow in the pool of the session's shard.
    Flow(u32),
    /// Inspection has ended. Packets are only counted.
    Bypassed,
    /// The session is not inspected, but its application is being identified.
    Pending,
    /// The session is not inspected, but its packets are remarked. Application identification may still run for the
    /// session.
    Remarked,
    /// A filter rule denies the application, so the session's packets are dropped. The value is the kind of rejection.
    Denied(Option<RejectKind>),
}

/// Encoding of [`InspectState::Bypassed`].
const BYPASSED: u32 = 1;
/// Encoding of [`InspectState::Pending`].
const PENDING: u32 = 2;
/// Encoding of [`InspectState::Remarked`].
const REMARKED: u32 = 3;
/// First encoding of [`InspectState::Denied`]. Each kind of rejection has an encoding.
const DENIED: u32 = 4;
const RESET: u32 = 5;
const PORT_UNREACHABLE: u32 = 6;
const PROHIBITED: u32 = 7;

impl InspectState {
    /// Decodes the field of a session record. A handle is never below 16 and never the largest number.
    #[inline(always)]
    pub fn from_bits(bits: u32) -> Self {
        match bits {
            0 => Self::Nothing,
            BYPASSED => Self::Bypassed,
            PENDING => Self::Pending,
            REMARKED => Self::Remarked,
            DENIED => Self::Denied(None),
            RESET => Self::Denied(Some(RejectKind::Reset)),
            PORT_UNREACHABLE => Self::Denied(Some(RejectKind::PortUnreachable)),
            PROHIBITED => Self::Denied(Some(RejectKind::Prohibited)),
            u32::MAX => Self::Enabled,
            handle => Self::Flow(handle),
        }
    }

    /// Encodes the state as the field of a session record.
    pub fn bits(self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Bypassed => BYPASSED,
            Self::Pending => PENDING,
            Self::Remarked => REMARKED,
            Self::Denied(None) => DENIED,
            Self::Denied(Some(RejectKind::Reset)) => RESET,
            Self::Denied(Some(RejectKind::PortUnreachable)) => PORT_UNREACHABLE,
            Self::Denied(Some(RejectKind::Prohibited)) => PROHIBITED,
            Self::Enabled => u32::MAX,
            Self::Flow(handle) => handle,
        }
    }
}
