//! From a terminal to the server.

use std::net::Ipv4Addr;

use sluice_wire::Mac;

use super::message::{GATEWAY, HOPS, Message, RELAY, REQUEST, finish};
use super::{Noted, Refused};
use crate::subscribers::Site;

/// Where a terminal's message came from, and what the server is told of it.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The site.
    pub site: Site,
    /// The relay's address there, by which the server knows the subnet.
    pub gateway: Ipv4Addr,
    /// What names the site, not empty (RFC 3046 section 3.1).
    pub circuit: &'a [u8],
    /// What names its other end; nothing where it is empty (RFC 3046 section 3.2).
    pub remote: &'a [u8],
    /// A subnet to choose an address of, where it is not that of `gateway` (RFC 3527).
    pub link: Option<Ipv4Addr>,
    /// There are relays inside that may say so.
    pub trusted: bool,
}

/// What a message may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// One that has passed so many relays goes no further (RFC 1542 section 4.1.1).
    pub most_hops: u8,
    /// Bytes of a message: what a datagram has room for.
    pub most_bytes: usize,
}

impl Default for Limits {
    /// 16 relays, and Ethernet's datagrams.
    fn default() -> Self {
        Self {
            most_hops: 16,
            most_bytes: 1500 - 28,
        }
    }
}

/// A message that goes to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relayed {
    /// Its type (RFC 2132 section 9.6).
    pub kind: u8,
    /// Its transaction.
    pub transaction: u32,
    /// The terminal.
    pub hardware: Mac,
    /// The answer will name the site, or another relay is waiting for it.
    pub marked: bool,
    /// What somebody trusted said of the site went.
    pub replaced: bool,
    /// Nobody counts what this terminal sends.
    pub unmetered: bool,
}

impl Relayed {
    /// What is counted of it.
    pub fn noted(&self) -> impl Iterator<Item = Noted> + use<> {
        let noted = [
            (!self.marked, Noted::OptionLeftOut),
            (self.replaced, Noted::OptionReplaced),
            (self.unmetered, Noted::Unmetered),
        ];
        noted.into_iter().filter_map(|(so, noted)| so.then_some(noted))
    }
}

/// What a terminal sends: discover, request, decline, release, inform.
const KINDS: [u8; 5] = [1, 3, 4, 7, 8];

/// Write a terminal's message as the server is to get it. `admit` says whether the terminal may send now, and whether
/// it is told apart.
///
/// # Errors
/// Why it goes no further; nothing that is in `out` then means anything.
pub fn request(
    payload: &[u8],
    origin: &Origin<'_>,
    limits: &Limits,
    admit: impl FnOnce(Mac) -> Result<bool, Refused>,
    out: &mut Vec<u8>,
) -> Result<Relayed, Refused> {
    if payload.len() > limits.most_bytes {
        return Err(Refused::Long);
    }
    let message = Message::read(payload, REQUEST)?;
    if !KINDS.contains(&message.kind) {
        return Err(Refused::Kind);
    }
    if message.hops() >= limits.most_hops {
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
        // The end takes one more.
        relayed.marked = out.len() + information.length < limits.most_bytes;
        if relayed.marked {
            information.write(origin, out);
        }
        finish(out);
    } else {
        // Who comes first knows where it is, and gets the answer (RFC 3046 section 2.1.1).
        out.clear();
        out.extend_from_slice(payload);
    }
    out[HOPS] = message.hops() + 1;
    Ok(relayed)
}

/// Option 82, with its head.
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

/// Bytes of a part with its head.
fn some(length: usize) -> usize {
    if length == 0 { 0 } else { 2 + length }
}
