//! What a flow is found by: 5-tuple and context, one key per direction.
//!
//! Addresses and ports are kept as numbers in host order.

use bytemuck::{Pod, Zeroable};

/// Virtual router, bridge or subscriber site that a key belongs to.
pub type Context = u32;

/// Which way a packet of a session goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Direction {
    /// As the session's first packet.
    Forward = 0,
    /// As the answers to it.
    Reverse = 1,
}

impl Direction {
    /// The other direction.
    #[inline(always)]
    pub fn opposite(self) -> Self {
        match self {
            Direction::Forward => Direction::Reverse,
            Direction::Reverse => Direction::Forward,
        }
    }
}

/// IPv4 addresses, ports and context: 16 bytes, compared as two words. Of ICMP queries the port of who asks is the identifier, and
/// the other one that and the request's type added up.
#[derive(Clone, Copy, Debug, Default, Eq, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Tuple4 {
    /// Source address.
    pub source: u32,
    /// Destination address.
    pub destination: u32,
    /// Source port; of an ICMP query as above.
    pub source_port: u16,
    /// Destination port; of an ICMP query as above.
    pub destination_port: u16,
    /// Context.
    pub context: Context,
}

impl PartialEq for Tuple4 {
    /// All at once, not field by field: the record that it is held against has just come from memory.
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

/// IPv6 addresses, ports and context: 40 bytes. Ports of ICMPv6 queries are as in [`Tuple4`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Tuple6 {
    /// Source address, in network order as two big-endian numbers: high half first.
    pub source: [u64; 2],
    /// Destination address, likewise.
    pub destination: [u64; 2],
    /// Source port; of an ICMP query as above.
    pub source_port: u16,
    /// Destination port; of an ICMP query as above.
    pub destination_port: u16,
    /// Context.
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
            /// The key of the packets that answer, where nothing is translated.
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
