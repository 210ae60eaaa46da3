//! The ICMP error that answers a packet.

/// The ICMP error that answers a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// TTL or hop limit exceeded.
    TimeExceeded,
    /// Larger than the MTU of the next link, which is the value.
    TooBig(u16),
    /// No route.
    NoRoute,
    /// The host does not answer.
    HostUnreachable,
    /// Prohibited by policy.
    Prohibited,
    /// No free outside port, or table full (RFC 6888 REQ-11).
    NoResources,
    /// No service on this port.
    PortUnreachable,
    /// The connection is refused by a TCP reset instead of an ICMP error.
    Reset,
}

impl IcmpError {
    pub(super) fn pack(self) -> u64 {
        match self {
            Self::TimeExceeded => 0,
            Self::TooBig(mtu) => 1 | u64::from(mtu) << 8,
            Self::NoRoute => 2,
            Self::HostUnreachable => 3,
            Self::Prohibited => 4,
            Self::NoResources => 5,
            Self::PortUnreachable => 6,
            Self::Reset => 7,
        }
    }
    pub(super) fn unpack(word: u64) -> Self {
        match word as u8 {
            0 => Self::TimeExceeded,
            1 => Self::TooBig((word >> 8) as u16),
            3 => Self::HostUnreachable,
            4 => Self::Prohibited,
            5 => Self::NoResources,
            6 => Self::PortUnreachable,
            7 => Self::Reset,
            _ => Self::NoRoute,
        }
    }
}
