//! What a session's record keeps of its inspection.

use sluice_filter::RejectKind;

/// What a session says of inspection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InspectState {
    /// Nothing: it is not inspected.
    #[default]
    Nothing,
    /// It will be, from its next packet on.
    Wanted,
    /// It is: the handle of its flow, in the pool of its shard.
    Flow(u32),
    /// It was: nothing of it is looked at any more, and each packet is counted.
    Left,
    /// It is not, but its application is looked for.
    Sought,
    /// It is not, but packets get another code point; its application may be looked for.
    Remarked,
    /// It is dropped: a rule of the filter about its application says so, and what its senders are told.
    Denied(Option<RejectKind>),
}

/// What a record keeps of [`InspectState::Left`].
const LEFT: u32 = 1;
/// What it keeps of [`InspectState::Sought`].
const PENDING: u32 = 2;
/// What it keeps of [`InspectState::Remarked`].
const REMARKED: u32 = 3;
/// What it keeps of [`InspectState::Denied`], by what is told.
const DENIED: u32 = 4;
const RESET: u32 = 5;
const PORT_UNREACHABLE: u32 = 6;
const PROHIBITED: u32 = 7;

impl InspectState {
    /// As a record keeps it. No handle is below 16, or the largest number.
    #[inline(always)]
    pub fn from_bits(bits: u32) -> Self {
        match bits {
            0 => Self::Nothing,
            LEFT => Self::Left,
            PENDING => Self::Sought,
            REMARKED => Self::Remarked,
            DENIED => Self::Denied(None),
            RESET => Self::Denied(Some(RejectKind::Reset)),
            PORT_UNREACHABLE => Self::Denied(Some(RejectKind::PortUnreachable)),
            PROHIBITED => Self::Denied(Some(RejectKind::Prohibited)),
            u32::MAX => Self::Wanted,
            handle => Self::Flow(handle),
        }
    }

    /// As a record keeps it.
    pub fn bits(self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Left => LEFT,
            Self::Sought => PENDING,
            Self::Remarked => REMARKED,
            Self::Denied(None) => DENIED,
            Self::Denied(Some(RejectKind::Reset)) => RESET,
            Self::Denied(Some(RejectKind::PortUnreachable)) => PORT_UNREACHABLE,
            Self::Denied(Some(RejectKind::Prohibited)) => PROHIBITED,
            Self::Wanted => u32::MAX,
            Self::Flow(handle) => handle,
        }
    }
}
