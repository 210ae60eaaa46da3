//! ARP for IPv4 over Ethernet (RFC 826).

use crate::ethernet::{self, Link, ethertype};
use crate::field::{Mac, header};
use crate::packet::Packet;

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

/// Operation: request for the MAC of the target address.
pub const REQUEST: u16 = 1;
/// Operation: reply with the sender's MAC.
pub const REPLY: u16 = 2;

impl<B: AsRef<[u8]>> Arp<B> {
    /// Whether the message is for IPv4 over Ethernet.
    pub fn is_ipv4_over_ethernet(&self) -> bool {
        self.hardware() == 1 && self.protocol() == ethertype::IPV4 && self.lengths() == 0x0604
    }
}

/// Writes a broadcast request for `target` to `packet`. Returns false, without effect, if the buffer is too small.
pub fn emit_request(packet: &mut Packet<'_>, sender_mac: Mac, sender: u32, target: u32) -> bool {
    let link = Link {
        source: sender_mac,
        destination: ethernet::BROADCAST,
    };
    emit(packet, link, REQUEST, sender, [0; 6], target)
}

/// Writes to `packet` a unicast request, which verifies that the host with the MAC `link.destination` still has the
/// address `target` (RFC 1122, section 2.3.2.1). Returns false, without effect, if the buffer is too small.
pub fn emit_probe(packet: &mut Packet<'_>, link: Link, sender: u32, target: u32) -> bool {
    emit(packet, link, REQUEST, sender, [0; 6], target)
}

/// Writes to `packet` a reply that reports `link.source` as the MAC of `sender`. Returns false, without effect, if the
/// buffer is too small.
pub fn emit_reply(packet: &mut Packet<'_>, link: Link, sender: u32, target: u32) -> bool {
    emit(packet, link, REPLY, sender, link.destination, target)
}

fn emit(packet: &mut Packet<'_>, link: Link, operation: u16, sender: u32, target_mac: Mac, target: u32) -> bool {
    let Some(body) = ethernet::start(packet, link, ethertype::ARP, LENGTH) else {
        return false;
    };
    HARDWARE.write(body, 1);
    PROTOCOL.write(body, ethertype::IPV4);
    LENGTHS.write(body, 0x0604);
    OPERATION.write(body, operation);
    SENDER_MAC.write(body, link.source);
    SENDER.write(body, sender);
    TARGET_MAC.write(body, target_mac);
    TARGET.write(body, target);
    true
}
