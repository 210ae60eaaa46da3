//! Relays messages from the server to a terminal.

use std::net::Ipv4Addr;

use sluice_wire::Mac;

use super::message::{CLIENT, GATEWAY, Message, REPLY, YIADDR, finish, part};
use super::{Home, Refused};
use crate::subscribers::Site;

/// Fields of a reply that identify its recipient.
#[derive(Clone, Copy, Debug)]
pub struct Trace<'a> {
    /// Circuit ID of option 82. `None` if the message has no option 82.
    pub circuit: Option<&'a [u8]>,
    /// Transaction ID.
    pub transaction: u32,
    /// Hardware address of the terminal.
    pub hardware: Mac,
}

/// Destination of a reply (RFC 1542, section 4.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyDestination {
    /// Broadcast within the site.
    Broadcast,
    /// Unicast to the terminal's MAC, because the terminal may not reply to ARP for the address yet.
    Terminal(Ipv4Addr, Mac),
}

/// A relayed reply, with the fields that the service needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayedReply {
    /// The site.
    pub site: Site,
    /// Address of the relay in the site.
    pub gateway: Ipv4Addr,
    /// Message type (RFC 2132, section 9.6).
    pub kind: u8,
    /// Hardware address of the terminal.
    pub hardware: Mac,
    /// Destination.
    pub to: ReplyDestination,
    /// Acknowledged lease: address, and lease time in seconds.
    pub lease: Option<(Ipv4Addr, u32)>,
}

const OFFER: u8 = 2;
const ACKNOWLEDGE: u8 = 5;
const REFUSE: u8 = 6;

/// Convert a server's message to the message for the terminal, without option 82. `home` finds the site.
///
/// # Errors
/// Returns the reason for which the message is dropped. The content of `out` is then undefined.
pub fn reply(
    payload: &[u8],
    home: impl FnOnce(Trace<'_>) -> Result<Home, Refused>,
    out: &mut Vec<u8>,
) -> Result<RelayedReply, Refused> {
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
    let offered_address = message.address(YIADDR);
    let lease = message.lease_time.map(|seconds| (offered_address, seconds));
    let lease = lease.filter(|_| message.kind == ACKNOWLEDGE && !offered_address.is_unspecified());
    message.write_bare(out)?;
    finish(out);
    Ok(RelayedReply {
        site,
        gateway,
        kind: message.kind,
        hardware,
        to: destination(&message),
        lease,
    })
}

fn destination(message: &Message<'_>) -> ReplyDestination {
    // A terminal that receives a DHCPNAK has no address at which it can be reached (RFC 2131, section 4.1).
    let everyone = message.is_broadcast() || message.kind == REFUSE;
    let addresses = [YIADDR, CLIENT].map(|field| message.address(field));
    let address = addresses.into_iter().find(|address| !address.is_unspecified());
    match address.filter(|address| !everyone && !address.is_broadcast() && !address.is_multicast()) {
        Some(address) => ReplyDestination::Terminal(address, message.hardware()),
        None => ReplyDestination::Broadcast,
    }
}
