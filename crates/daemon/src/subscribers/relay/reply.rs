//! From the server to a terminal.

use std::net::Ipv4Addr;

use sluice_wire::Mac;

use super::message::{CLIENT, GATEWAY, Message, REPLY, YOURS, finish, part};
use super::{Home, Refused};
use crate::subscribers::Site;

/// What an answer says of who it is for.
#[derive(Clone, Copy, Debug)]
pub struct Trace<'a> {
    /// The circuit of its option 82; none where it has no such option.
    pub circuit: Option<&'a [u8]>,
    /// The terminal's transaction.
    pub transaction: u32,
    /// The terminal.
    pub hardware: Mac,
}

/// Where an answer goes (RFC 1542 section 4.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To all of the site.
    Broadcast,
    /// To the terminal, at an address that it may not answer ARP for yet.
    Terminal(Ipv4Addr, Mac),
}

/// An answer that goes to a terminal, and what it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// The site.
    pub site: Site,
    /// The relay's address there.
    pub gateway: Ipv4Addr,
    /// Its type (RFC 2132 section 9.6).
    pub kind: u8,
    /// The terminal.
    pub hardware: Mac,
    /// Where to.
    pub to: Destination,
    /// The lease that it acknowledges: an address, and seconds.
    pub lease: Option<(Ipv4Addr, u32)>,
}

const OFFER: u8 = 2;
const ACKNOWLEDGE: u8 = 5;
const REFUSE: u8 = 6;

/// Write a server's message as the terminal is to get it: without option 82. `home` finds the site.
///
/// # Errors
/// Why it goes no further; nothing that is in `out` then means anything.
pub fn reply(
    payload: &[u8],
    home: impl FnOnce(Trace<'_>) -> Result<Home, Refused>,
    out: &mut Vec<u8>,
) -> Result<Acknowledged, Refused> {
    let message = Message::read(payload, REPLY)?;
    if ![OFFER, ACKNOWLEDGE, REFUSE].contains(&message.kind) {
        return Err(Refused::Kind);
    }
    let circuit = match message.relay {
        Some(content) => Some(part(content, 1).ok_or(Refused::Circuit)?),
        None => None,
    };
    let (transaction, hardware) = (message.transaction(), message.hardware());
    let Home { site, gateway } = home(Trace {
        circuit,
        transaction,
        hardware,
    })?;
    if message.address(GATEWAY) != gateway {
        return Err(Refused::Gateway);
    }
    let given = message.address(YOURS);
    let lease = message.lease_time.map(|seconds| (given, seconds));
    let lease = lease.filter(|_| message.kind == ACKNOWLEDGE && !given.is_unspecified());
    message.write_bare(out)?;
    finish(out);
    Ok(Acknowledged {
        site,
        gateway,
        kind: message.kind,
        hardware,
        to: destination(&message),
        lease,
    })
}

fn destination(message: &Message<'_>) -> Destination {
    // Who is refused has no address that it may be reached at (RFC 2131 section 4.1).
    let everyone = message.is_broadcast() || message.kind == REFUSE;
    let addresses = [YOURS, CLIENT].map(|field| message.address(field));
    let address = addresses.into_iter().find(|address| !address.is_unspecified());
    match address.filter(|address| !everyone && !address.is_broadcast() && !address.is_multicast()) {
        Some(address) => Destination::Terminal(address, message.hardware()),
        None => Destination::Broadcast,
    }
}
