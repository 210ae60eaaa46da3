//! Flow keys: 5-tuple and context. A flow has one key per direction.
//!
//! A tuple contains addresses and ports as numbers in host byte order, for rules and decisions. A key contains them as
//! they lie in the headers of a packet, so that the key of a packet without options takes a few instructions.

use std::hash::{Hash, Hasher};

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

/// Number of bits of a context that the words of a key contain.
const LOW: u32 = 24;

/// An IPv4 tuple with its protocol, as in the headers of a packet without options: the bytes from the TTL to the ports, in
/// which the low 24 bits of the context replace TTL and checksum. All keys with different words belong to different flows;
/// keys with equal words belong to one flow if the high bits of their contexts are equal, too.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct KeyWords4([u64; 2]);

/// An IPv6 tuple with its protocol, as in the headers of a packet without extension headers: the bytes from the payload
/// length to the ports, in which the low 24 bits of the context replace payload length and hop limit. See [`KeyWords4`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct KeyWords6([u64; 5]);

/// An IPv4 tuple with its protocol.
#[derive(Clone, Copy, Default, Eq)]
pub struct FlowKey4 {
    /// Addresses, ports, protocol, and the low bits of the context.
    pub words: KeyWords4,
    /// The high bits of the context.
    pub high: u8,
}

/// An IPv6 tuple with its protocol.
#[derive(Clone, Copy, Default, Eq)]
pub struct FlowKey6 {
    /// Addresses, ports, protocol, and the low bits of the context.
    pub words: KeyWords6,
    /// The high bits of the context.
    pub high: u8,
}

impl Hash for FlowKey4 {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.words, self.high).hash(state);
    }
}

impl PartialEq for FlowKey4 {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.words.is(&other.words) && self.high == other.high
    }
}

impl Hash for FlowKey6 {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.words, self.high).hash(state);
    }
}

impl PartialEq for FlowKey6 {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.words.is(&other.words) && self.high == other.high
    }
}

/// Mask of the bytes of an IPv4 header, from the TTL on, that the context replaces.
const CONTEXT4: u64 = u64::from_le_bytes([0xff, 0, 0xff, 0xff, 0, 0, 0, 0]);

/// Mask of the bytes of an IPv6 header, from the payload length on, that the context replaces.
const CONTEXT6: u64 = u64::from_le_bytes([0xff, 0xff, 0, 0xff, 0, 0, 0, 0]);

/// The low bits of a context at their place in the first word of an IPv4 key.
#[inline(always)]
pub const fn context4(context: Context) -> u64 {
    let [a, b, c, _] = context.to_le_bytes();
    u64::from_le_bytes([a, 0, b, c, 0, 0, 0, 0])
}

/// The low bits of a context at their place in the first word of an IPv6 key.
#[inline(always)]
pub const fn context6(context: Context) -> u64 {
    let [a, b, c, _] = context.to_le_bytes();
    u64::from_le_bytes([a, b, 0, c, 0, 0, 0, 0])
}

impl KeyWords4 {
    /// The key of a packet. `headers` are the bytes of a packet from the TTL to the ports, and `context` is the result of
    /// [`context4`].
    #[inline(always)]
    pub fn of_headers(headers: &[u8; 16], context: u64) -> Self {
        let [low, high]: [u64; 2] = bytemuck::cast(*headers);
        Self([(low.to_le() & !CONTEXT4 | context).to_le(), high])
    }

    /// The words, for a hash. Equal words belong to keys that differ at most in the high bits of their contexts.
    #[inline(always)]
    pub fn words(self) -> [u64; 2] {
        [self.0[0].to_le(), self.0[1].to_le()]
    }

    /// Whether the words are equal. They are compared as numbers of 128 bits, which needs only one branch.
    #[inline(always)]
    pub fn is(&self, other: &Self) -> bool {
        bytemuck::cast::<_, u128>(self.0) == bytemuck::cast::<_, u128>(other.0)
    }

    /// The IP protocol.
    #[inline(always)]
    pub fn protocol(self) -> u8 {
        self.0[0].to_ne_bytes()[1]
    }

    /// Source and destination address, and source and destination port, of the packets that flow against the direction of
    /// the key: as bytes of their headers.
    #[inline(always)]
    pub fn opposite_ends(&self) -> ([u8; 8], [u8; 4]) {
        // Two loads that do not begin at words, instead of words whose halves are exchanged.
        let bytes: &[u8; 16] = bytemuck::cast_ref(&self.0);
        let (addresses, ports) = (bytes[4..].first_chunk(), bytes.last_chunk());
        let addresses = addresses.map_or(0, |addresses| u64::from_ne_bytes(*addresses));
        let ports = ports.map_or(0, |ports| u32::from_ne_bytes(*ports));
        (
            addresses.rotate_left(32).to_ne_bytes(),
            ports.rotate_left(16).to_ne_bytes(),
        )
    }

    /// The tuple of the key that has these words. `high` are the high bits of its context.
    #[inline(always)]
    pub fn tuple(self, high: u8) -> Tuple4 {
        let [low, rest] = self.words();
        let [a, _, b, c, ..] = low.to_le_bytes();
        Tuple4 {
            source: ((low >> 32) as u32).swap_bytes(),
            destination: (rest as u32).swap_bytes(),
            source_port: ((rest >> 32) as u16).swap_bytes(),
            destination_port: ((rest >> 48) as u16).swap_bytes(),
            context: Context::from_le_bytes([a, b, c, high]),
        }
    }
}

impl KeyWords6 {
    /// The key of a packet. `headers` are the bytes of a packet from the payload length to the ports, and `context` is the
    /// result of [`context6`].
    #[inline(always)]
    pub fn of_headers(headers: &[u8; 40], context: u64) -> Self {
        // Calls of `map` on arrays are not always inlined.
        let [w0, w1, w2, w3, w4]: [u64; 5] = bytemuck::cast(*headers);
        Self([
            w0.to_le() & !CONTEXT6 | context,
            w1.to_le(),
            w2.to_le(),
            w3.to_le(),
            w4.to_le(),
        ])
    }

    /// Whether the words are equal. A comparison of the arrays would be a call.
    #[inline(always)]
    pub fn is(&self, other: &Self) -> bool {
        let ([a, b, c, d, e], [f, g, h, i, j]) = (self.0, other.0);
        (a ^ f) | (b ^ g) | (c ^ h) | (d ^ i) | (e ^ j) == 0
    }

    /// The words, for a hash; see [`KeyWords4::words`].
    #[inline(always)]
    pub fn words(self) -> [u64; 5] {
        self.0
    }

    /// The IP protocol.
    #[inline(always)]
    pub fn protocol(self) -> u8 {
        self.0[0].to_le_bytes()[2]
    }

    /// Source and destination address, and source and destination port, of the packets that flow against the direction of
    /// the key: as bytes of their headers.
    #[inline(always)]
    pub fn opposite_ends(self) -> ([u8; 32], [u8; 4]) {
        let [w0, w1, w2, w3, w4] = self.0;
        let join = |first: u64, second: u64| first >> 32 | second << 32;
        let addresses = [
            join(w2, w3).to_le(),
            join(w3, w4).to_le(),
            join(w0, w1).to_le(),
            join(w1, w2).to_le(),
        ];
        let ports = ((w4 >> 32) as u32).rotate_left(16);
        (bytemuck::cast(addresses), ports.to_le_bytes())
    }

    /// The tuple of the key that has these words. `high` are the high bits of its context.
    #[inline(always)]
    pub fn tuple(self, high: u8) -> Tuple6 {
        let [w0, w1, w2, w3, w4] = self.0;
        let [a, b, _, c, ..] = w0.to_le_bytes();
        // The addresses begin in the middle of a word.
        let number = |first: u64, second: u64| (first >> 32 | second << 32).swap_bytes();
        Tuple6 {
            source: [number(w0, w1), number(w1, w2)],
            destination: [number(w2, w3), number(w3, w4)],
            source_port: ((w4 >> 32) as u16).swap_bytes(),
            destination_port: ((w4 >> 48) as u16).swap_bytes(),
            context: Context::from_le_bytes([a, b, c, high]),
        }
    }
}

impl FlowKey4 {
    /// The key of a tuple and an IP protocol.
    #[inline(always)]
    pub fn new(tuple: Tuple4, protocol: u8) -> Self {
        let Tuple4 {
            source,
            destination,
            source_port,
            destination_port,
            context,
        } = tuple;
        let low = context4(context) | u64::from(protocol) << 8 | u64::from(source.swap_bytes()) << 32;
        let ports = u64::from(source_port.swap_bytes()) << 32 | u64::from(destination_port.swap_bytes()) << 48;
        Self {
            words: KeyWords4([low.to_le(), (u64::from(destination.swap_bytes()) | ports).to_le()]),
            high: (context >> LOW) as u8,
        }
    }
}

impl FlowKey6 {
    /// The key of a tuple and an IP protocol.
    #[inline(always)]
    pub fn new(tuple: Tuple6, protocol: u8) -> Self {
        let Tuple6 {
            source,
            destination,
            source_port,
            destination_port,
            context,
        } = tuple;
        let (s0, s1) = (source[0].swap_bytes(), source[1].swap_bytes());
        let (d0, d1) = (destination[0].swap_bytes(), destination[1].swap_bytes());
        let ports = u64::from(source_port.swap_bytes()) << 32 | u64::from(destination_port.swap_bytes()) << 48;
        Self {
            words: KeyWords6([
                context6(context) | u64::from(protocol) << 16 | s0 << 32,
                s0 >> 32 | s1 << 32,
                s1 >> 32 | d0 << 32,
                d0 >> 32 | d1 << 32,
                d1 >> 32 | ports,
            ]),
            high: (context >> LOW) as u8,
        }
    }
}

macro_rules! flow_key {
    ($key:ident, $tuple:ident, $words:ident) => {
        impl $key {
            /// The tuple of the key.
            #[inline(always)]
            pub fn tuple(&self) -> $tuple {
                self.words.tuple(self.high)
            }

            /// The IP protocol.
            #[inline(always)]
            pub fn protocol(&self) -> u8 {
                self.words.protocol()
            }

            /// Key of the opposite direction of an untranslated flow.
            #[inline(always)]
            pub fn reversed(&self) -> Self {
                let t = self.tuple();
                let reversed = $tuple {
                    source: t.destination,
                    destination: t.source,
                    source_port: t.destination_port,
                    destination_port: t.source_port,
                    context: t.context,
                };
                Self::new(reversed, self.protocol())
            }
        }

        impl std::fmt::Debug for $key {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($key))
                    .field("tuple", &self.tuple())
                    .field("protocol", &self.protocol())
                    .finish()
            }
        }

        impl std::fmt::Debug for $words {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_tuple(stringify!($words))
                    .field(&self.tuple(0))
                    .field(&self.protocol())
                    .finish()
            }
        }
    };
}
flow_key!(FlowKey4, Tuple4, KeyWords4);
flow_key!(FlowKey6, Tuple6, KeyWords6);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn key_of_any_tuple_has_this_tuple(
            addresses in any::<[u64; 4]>(), source_port in any::<u16>(), destination_port in any::<u16>(), context in any::<u32>(), protocol in any::<u8>()
        ) {
            let [source, destination, ..] = addresses.map(|address| address as u32);
            let tuple = Tuple4 { source, destination, source_port, destination_port, context };
            let key = FlowKey4::new(tuple, protocol);
            prop_assert_eq!((tuple, protocol), (key.tuple(), key.protocol()));
            prop_assert_eq!(key, key.reversed().reversed());
            let [a, b, c, d] = addresses;
            let tuple = Tuple6 { source: [a, b], destination: [c, d], source_port, destination_port, context };
            let key = FlowKey6::new(tuple, protocol);
            prop_assert_eq!((tuple, protocol), (key.tuple(), key.protocol()));
            prop_assert_eq!(key, key.reversed().reversed());
        }

        #[test]
        fn key_of_headers_is_the_key_of_their_tuple(bytes in any::<[u8; 32]>(), more in any::<[u8; 8]>(), context in any::<u32>()) {
            let headers: [u8; 16] = bytes[..16].try_into().unwrap();
            let number = |at: usize| u32::from_be_bytes(headers[at..at + 4].try_into().unwrap());
            let tuple = Tuple4 {
                source: number(4), destination: number(8),
                source_port: (number(12) >> 16) as u16, destination_port: number(12) as u16, context,
            };
            let words = KeyWords4::of_headers(&headers, context4(context));
            prop_assert_eq!(FlowKey4::new(tuple, headers[1]).words, words);
            let mut headers = [0; 40];
            headers[..32].copy_from_slice(&bytes);
            headers[32..].copy_from_slice(&more);
            let number = |at: usize| u64::from_be_bytes(headers[at..at + 8].try_into().unwrap());
            let port = |at: usize| u16::from_be_bytes(headers[at..at + 2].try_into().unwrap());
            let tuple = Tuple6 {
                source: [number(4), number(12)], destination: [number(20), number(28)],
                source_port: port(36), destination_port: port(38), context,
            };
            let words = KeyWords6::of_headers(&headers, context6(context));
            prop_assert_eq!(FlowKey6::new(tuple, headers[2]).words, words);
        }
    }
}
