//! ARP for IPv4 over Ethernet (RFC 826).

use crate::field::{Mac, header};

header! {
    /// An ARP message.
    Arp 28
    "Hardware type: 1 for Ethernet." hardware: u16 = HARDWARE @ 0, set_hardware;
    "EtherType of the protocol." protocol: u16 = PROTOCOL @ 2, set_protocol;
    "Lengths of hardware address (8 bits) and protocol address (8)." lengths: u16 = LENGTHS @ 4, set_lengths;
    "Operation: [`REQUEST`] or [`REPLY`]." operation: u16 = OPERATION @ 6, set_operation;
    "Sender's Ethernet address." sender_mac: Mac = SENDER_MAC @ 8, set_sender_mac;
    "Sender's IPv4 address." sender: u32 = SENDER @ 14, set_sender;
    "Target's Ethernet address; zero in a request." target_mac: Mac = TARGET_MAC @ 18, set_target_mac;
    "Target's IPv4 address." target: u32 = TARGET @ 24, set_target;
}

/// Operation: who has the target address?
pub const REQUEST: u16 = 1;
/// Operation: the sender has it.
pub const REPLY: u16 = 2;

impl<B: AsRef<[u8]>> Arp<B> {
    /// Whether the message is for IPv4 over Ethernet.
    pub fn is_ipv4_over_ethernet(&self) -> bool {
        self.hardware() == 1 && self.protocol() == crate::ethernet::ethertype::IPV4 && self.lengths() == 0x0604
    }
}
