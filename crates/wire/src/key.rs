//! Flow keys: 5-tuple and context. A flow has one key per direction.
//!
//! Addresses and ports are stored as numbers in host byte order.

use bytemuck::{Pod, Zeroable};

/// Context of a key: number of a virtual router, bridge or subscriber site.
pub type Context = u32;

/// Direction of a packet in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Direction {
    /// Direction of the session's first packet.
    Forward = 0,
    /// Direction of the replies.
    Reverse = 1,
}

impl Direction {
    /// The opposite direction.
    #[inline(always)]
    pub fn opposite(self) -> Self {
        match self {
            Direction::Forward => Direction::Reverse,
            Direction::Reverse => Direction::Forward,
        }
    }
}

/// IPv4 addresses, ports and context: 16 bytes, compared as two words. For an ICMP query, the port of the requesting
/// host is the identifier. The other port is the sum of the identifier and the request's type.
#[derive(Clone, Copy, Debug, Default, Eq, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Tuple4 {
    /// Source address.
    pub source: u32,
    /// Destination address.
    pub destination: u32,
    /// Source port; for ICMP queries see [`Tuple4`].
    pub source_port: u16,
    /// Destination port; for ICMP queries see [`Tuple4`].
    pub destination_port: u16,
    /// Context of the flow.
    pub context: Context,
}

impl PartialEq for Tuple4 {
    /// Compares whole words instead of fields, because one of the tuples was just loaded from memory.
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        bytemuck::cast::<Self, u128>(*self) == bytemuck::cast::<Self, u128>(*other)
    }
}

impl std::hash::Hash for Tuple4 {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        bytemuck::cast::<Self, u128>(*self).hash(state);
    }
}

/// IPv6 addresses, ports and context: 40 bytes. [`Tuple4`] defines the ports of ICMPv6 queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Tuple6 {
    /// Source address, as two big-endian numbers: high half first.
    pub source: [u64; 2],
    /// Destination address, as two big-endian numbers: high half first.
    pub destination: [u64; 2],
    /// Source port; for ICMPv6 queries see [`Tuple4`].
    pub source_port: u16,
    /// Destination port; for ICMPv6 queries see [`Tuple4`].
    pub destination_port: u16,
    /// Context of the flow.
    pub context: Context,
}

/// An IPv4 tuple with its protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowKey4 {
    /// Addresses, ports, context.
    pub tuple: Tuple4,
    /// IP protocol number.
    pub protocol: u8,
}

/// An IPv6 tuple with its protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowKey6 {
    /// Addresses, ports, context.
    pub tuple: Tuple6,
    /// IP protocol number.
    pub protocol: u8,
}

macro_rules! reversed {
    ($key:ident, $tuple:ident) => {
        impl $key {
            /// Key of the opposite direction of an untranslated flow.
            #[inline(always)]
            pub fn reversed(&self) -> Self {
                let t = &self.tuple;
                Self {
                    tuple: $tuple {
                        source: t.destination,
                        destination: t.source,
                        source_port: t.destination_port,
                        destination_port: t.source_port,
                        context: t.context,
                    },
                    protocol: self.protocol,
                }
            }
        }
    };
}
reversed!(FlowKey4, Tuple4);
reversed!(FlowKey6, Tuple6);
