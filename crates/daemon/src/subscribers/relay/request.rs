//! Relays messages from a terminal to the server.

use std::net::Ipv4Addr;

use sluice_wire::Mac;

use super::message::{GATEWAY, HOPS, Message, RELAY, REQUEST, finish};
use super::{Noted, Refused};
use crate::subscribers::Site;

/// Origin of a terminal's message, as sent to the server.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The site.
    pub site: Site,
    /// Address of the relay in the site. The server selects the subnet by this address.
    pub gateway: Ipv4Addr,
    /// Circuit ID of the site (RFC 3046, section 3.1). Not empty.
    pub circuit: &'a [u8],
    /// Remote ID (RFC 3046, section 3.2). Omitted if empty.
    pub remote: &'a [u8],
    /// Link selection (RFC 3527): subnet of the address, if it differs from the subnet of `gateway`.
    pub link: Option<Ipv4Addr>,
    /// Whether relays within the site may add option 82.
    pub trusted: bool,
}

/// Limits of messages.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of relays. A message that has passed this number of relays is dropped (RFC 1542, section 4.1.1).
    pub max_hops: u8,
    /// Maximum length of a message in bytes, which is the capacity of a datagram.
    pub max_bytes: usize,
}

impl Default for Limits {
    /// Default limits: at most 16 relays, and datagrams of the Ethernet MTU.
    fn default() -> Self {
        Self {
            max_hops: 16,
            max_bytes: 1500 - 28,
        }
    }
}

/// A message relayed to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relayed {
    /// Message type (RFC 2132, section 9.6).
    pub kind: u8,
    /// Transaction ID.
    pub transaction: u32,
    /// Hardware address of the terminal.
    pub hardware: Mac,
    /// True if option 82 in the reply will identify the site, or if the server will send the reply to another relay.
    pub marked: bool,
    /// Whether an option 82 from a trusted relay was removed.
    pub replaced: bool,
    /// Whether the terminal was not metered individually.
    pub unmetered: bool,
}

impl Relayed {
    /// Conditions that must be counted.
    pub fn noted(&self) -> impl Iterator<Item = Noted> + use<> {
        let noted = [
            (!self.marked, Noted::OptionLeftOut),
            (self.replaced, Noted::OptionReplaced),
            (self.unmetered, Noted::Unmetered),
        ];
        noted.into_iter().filter_map(|(so, noted)| so.then_some(noted))
    }
}

/// Message types of terminals: discover, request, decline, release, inform.
const KINDS: [u8; 5] = [1, 3, 4, 7, 8];

/// Convert a terminal's message to the message for the server. `admit` checks the rate of the terminal, and returns
/// whether the terminal is metered individually.
///
/// # Errors
/// Returns the reason for which the message is dropped. The content of `out` is then undefined.
pub fn request(
    payload: &[u8],
    origin: &Origin<'_>,
    limits: &Limits,
    admit: impl FnOnce(Mac) -> Result<bool, Refused>,
    out: &mut Vec<u8>,
) -> Result<Relayed, Refused> {
    if payload.len() > limits.max_bytes {
        return Err(Refused::Long);
    }
    let message = Message::read(payload, REQUEST)?;
    if !KINDS.contains(&message.kind) {
        return Err(Refused::Kind);
    }
    if message.hops() >= limits.max_hops {
        return Err(Refused::Hops);
    }
    let gateway = message.address(GATEWAY);
    let direct = gateway.is_unspecified();
    if !direct && (!origin.trusted || gateway == origin.gateway) {
        return Err(Refused::Gateway);
    }
    if direct && message.relays > 0 && !origin.trusted {
        return Err(Refused::OptionForged);
    }
    let metered = admit(message.hardware())?;
    let mut relayed = Relayed {
        kind: message.kind,
        transaction: message.transaction(),
        hardware: message.hardware(),
        marked: true,
        replaced: direct && message.relays > 0,
        unmetered: !metered,
    };
    if direct {
        message.write_bare(out)?;
        out[GATEWAY].copy_from_slice(&origin.gateway.octets());
        let information = Information::of(origin)?;
        // One byte is reserved for the end option.
        relayed.marked = out.len() + information.length < limits.max_bytes;
        if relayed.marked {
            information.write(origin, out);
        }
        finish(out);
    } else {
        // The first relay has added the terminal's location, and receives the reply (RFC 3046, section 2.1.1).
        out.clear();
        out.extend_from_slice(payload);
    }
    out[HOPS] = message.hops() + 1;
    Ok(relayed)
}

/// Option 82 with its header.
struct Information {
    length: usize,
    content: u8,
}

impl Information {
    fn of(origin: &Origin<'_>) -> Result<Self, Refused> {
        let parts = [
            2 + origin.circuit.len(),
            some(origin.remote.len()),
            some(origin.link.map_or(0, |_| 4)),
        ];
        let content: usize = parts.into_iter().sum();
        match u8::try_from(content) {
            Ok(fitting) if !origin.circuit.is_empty() => Ok(Self {
                length: 2 + content,
                content: fitting,
            }),
            _ => Err(Refused::Information),
        }
    }

    fn write(&self, origin: &Origin<'_>, out: &mut Vec<u8>) {
        let link = origin.link.map(|link| link.octets());
        let parts: [(u8, &[u8]); 3] = [
            (1, origin.circuit),
            (2, origin.remote),
            (5, link.as_ref().map_or(&[], |link| link)),
        ];
        out.extend([RELAY, self.content]);
        for (code, part) in parts {
            if !part.is_empty() {
                out.extend([code, part.len() as u8]);
                out.extend_from_slice(part);
            }
        }
    }
}

/// Length of a suboption with its header. An empty suboption is omitted.
fn some(length: usize) -> usize {
    if length == 0 { 0 } else { 2 + length }
}
