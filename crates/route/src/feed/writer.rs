//! Encoder of netlink messages in the format of FRR and the kernel. The encoder creates requests to the kernel, and
//! messages for tests and benchmarks.

use netlink_packet_core::{
    DefaultNla, Emitable, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader,
};

use super::netlink::{INET, INET6};
use crate::{Address, Prefix};

/// Flags of a message that adds or changes an object.
pub const SET: u16 = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE;
/// Flags of FRR's message that deletes an object.
pub const DELETE: u16 = NLM_F_REQUEST | NLM_F_CREATE;
/// Flags of a request for a dump.
pub const LIST: u16 = NLM_F_REQUEST | NLM_F_DUMP;

/// A message under construction.
#[derive(Clone, Debug)]
pub struct Writer {
    header: NetlinkHeader,
    body: Vec<u8>,
}

impl Writer {
    /// Starts a message with its type, its flags and the fixed part of its body.
    pub fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut header = NetlinkHeader::default();
        (header.message_type, header.flags) = (kind, flags);
        let body = fixed.to_vec();
        Self { header, body }
    }

    /// Starts a message about a route of the main table. `kind` is the message type, `protocol` the RTPROT, and
    /// `forwards` the RTN type.
    pub fn route((kind, flags): (u16, u16), prefix: Prefix, protocol: u8, forwards: u8) -> Self {
        let family = family(prefix.address());
        let table = super::MAIN_TABLE as u8;
        let fixed = [family, prefix.length(), 0, 0, table, protocol, 0, forwards, 0, 0, 0, 0];
        Self::new(kind, flags, &fixed).address(1, prefix.address())
    }

    /// Starts a message about a next-hop object with RTPROT_ZEBRA.
    pub fn next_hop((kind, flags): (u16, u16), family: u8, id: u32) -> Self {
        Self::new(kind, flags, &[family, 0, 11, 0, 0, 0, 0, 0]).number(1, id)
    }

    /// Adds an attribute.
    pub fn attribute(mut self, name: u16, value: &[u8]) -> Self {
        let (attribute, begin) = (DefaultNla::new(name, value.to_vec()), self.body.len());
        self.body.resize(begin + attribute.buffer_len(), 0);
        attribute.emit(&mut self.body[begin..]);
        self
    }

    /// Adds an attribute that contains a number.
    pub fn number(self, name: u16, value: u32) -> Self {
        self.attribute(name, &value.to_ne_bytes())
    }

    /// Adds an attribute that contains an address.
    pub fn address(self, name: u16, value: Address) -> Self {
        match value {
            Address::V4(bits) => self.attribute(name, &bits.to_be_bytes()),
            Address::V6(bits) => self.attribute(name, &bits.to_be_bytes()),
        }
    }

    /// Adds the members of a group with their weights.
    pub fn group(self, members: &[(u32, u8)]) -> Self {
        let member = |&(id, weight): &(u32, u8)| {
            let [a, b, c, d] = id.to_ne_bytes();
            [a, b, c, d, weight.saturating_sub(1), 0, 0, 0]
        };
        self.attribute(2, &members.iter().flat_map(member).collect::<Vec<u8>>())
    }

    /// Completes the message and returns its bytes.
    pub fn finish(mut self) -> Vec<u8> {
        let mut bytes = vec![0; self.header.buffer_len()];
        self.header.length = (bytes.len() + self.body.len()) as u32;
        self.header.emit(&mut bytes);
        bytes.append(&mut self.body);
        bytes
    }
}

/// Number of the address family.
pub fn family(address: Address) -> u8 {
    match address {
        Address::V4(_) => INET,
        Address::V6(_) => INET6,
    }
}

/// An FPM frame that contains these messages.
pub fn frame(messages: &[Vec<u8>]) -> Vec<u8> {
    let length = 4 + messages.iter().map(Vec::len).sum::<usize>();
    let [high, low] = (length as u16).to_be_bytes();
    [&[1, 1, high, low], &*messages.concat()].concat()
}
