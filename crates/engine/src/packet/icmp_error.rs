//! The ICMP error with which a packet is answered.

/// The ICMP error with which a packet is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// The TTL or hop limit is exceeded.
    TimeExceeded,
    /// The packet exceeds the MTU of the next link. The value is this MTU.
    TooBig(u16),
    /// There is no route to the destination.
    NoRoute,
    /// The destination host does not answer neighbour requests.
    HostUnreachable,
    /// A policy prohibits the packet.
    Prohibited,
    /// No outside port is free, or a table is full (RFC 6888, REQ-11).
    NoResources,
    /// There is no service on the port.
    PortUnreachable,
    /// The connection is refused with a TCP reset instead of an ICMP error.
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
