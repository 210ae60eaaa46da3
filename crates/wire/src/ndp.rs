//! Neighbour discovery (RFC 4861): validation of received messages, and creation of messages from a router.

use crate::ethernet::Link;
use crate::fault::Fault;
use crate::field::{Field, Mac};
use crate::icmpv6::{self, kind};
use crate::ipv4::protocol;
use crate::ipv6;
use crate::layers::{Class, Fragment, Layers};
use crate::packet::Packet;

/// Types of neighbour discovery options.
pub mod option {
    /// Link-layer address of the sender.
    pub const SOURCE_LINK: u8 = 1;
    /// Link-layer address of the target.
    pub const TARGET_LINK: u8 = 2;
    /// A prefix of the link.
    pub const PREFIX: u8 = 3;
    /// The packet that caused a redirect.
    pub const REDIRECTED: u8 = 4;
    /// MTU of the link.
    pub const MTU: u8 = 5;
}

/// Target of a neighbour solicitation or advertisement.
pub const TARGET: Field<u128> = Field::at(8);

/// Flags of a neighbour advertisement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advertised {
    /// The sender is a router.
    pub router: bool,
    /// The message is the response to a solicitation.
    pub solicited: bool,
    /// The message overrides existing entries.
    pub overriding: bool,
}

/// A neighbour discovery message, validated according to RFC 4861, sections 6.1 and 7.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Router solicitation.
    RouterSolicitation {
        /// Link-layer address of the sender, if included.
        source_link: Option<Mac>,
    },
    /// Router advertisement.
    RouterAdvertisement {
        /// Lifetime of the default router in seconds; 0 if the sender is not a default router.
        lifetime: u16,
        /// Link-layer address of the sender, if included.
        source_link: Option<Mac>,
    },
    /// Neighbour solicitation.
    NeighbourSolicitation {
        /// Address for which a MAC is requested.
        target: u128,
        /// Link-layer address of the sender, if included.
        source_link: Option<Mac>,
    },
    /// Neighbour advertisement.
    NeighbourAdvertisement {
        /// Advertised address.
        target: u128,
        /// Flags of the advertisement.
        flags: Advertised,
        /// Link-layer address of the target, if included.
        target_link: Option<Mac>,
    },
}

/// Reads a neighbour discovery message. `Ok(None)` for other packets.
pub fn read(frame: &[u8], layers: &Layers) -> Result<Option<Message>, Fault> {
    let message = layers.payload(frame);
    let kind = icmpv6::KIND.read(message);
    if layers.class != Class::Ipv6 || layers.protocol != protocol::ICMPV6 || layers.fragment == Fragment::Later {
        return Ok(None);
    }
    let fixed = match kind {
        kind::ROUTER_SOLICITATION => 8,
        kind::ROUTER_ADVERTISEMENT => 16,
        kind::NEIGHBOUR_SOLICITATION | kind::NEIGHBOUR_ADVERTISEMENT => 24,
        _ => return Ok(None),
    };
    let options = message.get(fixed..).ok_or(Fault::BadNeighbourMessage)?;
    let (source_link, target_link) = link_options(options).ok_or(Fault::BadNeighbourMessage)?;
    let target = TARGET.read(message);
    let datagram = layers.datagram(frame);
    let (source, destination) = (ipv6::SOURCE.read(datagram), ipv6::DESTINATION.read(datagram));
    let flags = icmpv6::PARAMETER.read(message);
    let advertised = Advertised {
        router: flags >> 31 & 1 != 0,
        solicited: flags >> 30 & 1 != 0,
        overriding: flags >> 29 & 1 != 0,
    };
    let sound = match kind {
        kind::ROUTER_SOLICITATION => source != 0 || source_link.is_none(),
        kind::ROUTER_ADVERTISEMENT => source >> 118 == 0xfe80 >> 6,
        kind::NEIGHBOUR_SOLICITATION => {
            !is_multicast(target) && (source != 0 || (source_link.is_none() && destination == solicited_node(target)))
        }
        _ => !(is_multicast(target) || is_multicast(destination) && advertised.solicited),
    };
    if !sound || layers.ttl != 255 || icmpv6::CODE.read(message) != 0 || layers.fragment != Fragment::Whole {
        return Err(Fault::BadNeighbourMessage);
    }
    Ok(Some(match kind {
        kind::ROUTER_SOLICITATION => Message::RouterSolicitation { source_link },
        kind::ROUTER_ADVERTISEMENT => Message::RouterAdvertisement {
            lifetime: Field::<u16>::at(6).read(message),
            source_link,
        },
        kind::NEIGHBOUR_SOLICITATION => Message::NeighbourSolicitation { target, source_link },
        _ => Message::NeighbourAdvertisement {
            target,
            flags: advertised,
            target_link,
        },
    }))
}

fn is_multicast(address: u128) -> bool {
    address >> 120 == 0xff
}

/// The addresses in the source and the target link-layer address options. The outer `None` means that an option is
/// empty or too long.
fn link_options(options: &[u8]) -> Option<(Option<Mac>, Option<Mac>)> {
    let (mut source, mut target) = (None, None);
    let mut rest = options;
    while let Some((&kind, tail)) = rest.split_first() {
        let length = *tail.first()? as usize * 8;
        let option = rest.get(..length).filter(|option| !option.is_empty())?;
        match kind {
            option::SOURCE_LINK => source = Some(LINK.read(option)),
            option::TARGET_LINK => target = Some(LINK.read(option)),
            _ => {}
        }
        rest = rest.get(length..)?;
    }
    Some((source, target))
}

/// Position of the address in a link-layer address option.
const LINK: Field<Mac> = Field::at(2);

/// The solicited-node multicast group of `target` (RFC 4291, section 2.7.1).
pub const fn solicited_node(target: u128) -> u128 {
    0xff02_0000_0000_0000_0000_0001_ff00_0000 | (target & 0x00ff_ffff)
}

/// Group of all nodes on the link.
pub const ALL_NODES: u128 = 0xff02_0000_0000_0000_0000_0000_0000_0001;

/// Group of all routers on the link.
pub const ALL_ROUTERS: u128 = 0xff02_0000_0000_0000_0000_0000_0000_0002;

/// The link-local address derived from a MAC address (RFC 4291, appendix A).
pub const fn link_local(mac: Mac) -> u128 {
    let [a, b, c, d, e, f] = mac;
    (0xfe80 << 112) | u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]) as u128
}

/// Writes a link-layer address option at `offset`.
fn link_option(message: &mut [u8], offset: usize, kind: u8, address: Mac) {
    if let Some(option) = message.get_mut(offset..) {
        Field::<u16>::at(0).write(option, (kind as u16) << 8 | 1);
        LINK.write(option, address);
    }
}

/// Writes to `packet` a neighbour solicitation for `target`, which is sent from `source` to `destination`. The
/// destination of a reachability probe is the target, and `link` contains its MAC. The destination of other
/// solicitations is the target's [`solicited_node`] group. A solicitation for duplicate address detection has an
/// unspecified source and no link-layer address. Returns false, without effect, if the buffer is too small.
pub fn emit_solicitation(packet: &mut Packet<'_>, link: Link, source: u128, destination: u128, target: u128) -> bool {
    let length = if source == 0 { 24 } else { 32 };
    let head = (kind::NEIGHBOUR_SOLICITATION, 0);
    let Some((message, pseudo)) = icmpv6::start(packet, link, (source, destination), 255, head, length) else {
        return false;
    };
    TARGET.write(message, target);
    if source != 0 {
        link_option(message, 24, option::SOURCE_LINK, link.source);
    }
    icmpv6::finish(message, pseudo);
    true
}

/// Writes to `packet` an advertisement that reports `link.source` as the MAC of `target`. Returns false, without
/// effect, if the buffer is too small.
pub fn emit_advertisement(
    packet: &mut Packet<'_>,
    link: Link,
    (source, destination): (u128, u128),
    target: u128,
    flags: Advertised,
) -> bool {
    let head = (kind::NEIGHBOUR_ADVERTISEMENT, 0);
    let Some((message, pseudo)) = icmpv6::start(packet, link, (source, destination), 255, head, 32) else {
        return false;
    };
    let bits = (flags.router as u32) << 31 | (flags.solicited as u32) << 30 | (flags.overriding as u32) << 29;
    icmpv6::PARAMETER.write(message, bits);
    TARGET.write(message, target);
    link_option(message, 24, option::TARGET_LINK, link.source);
    icmpv6::finish(message, pseudo);
    true
}

/// A redirect to a better first hop (RFC 4861, section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The better first hop: the destination itself, or the link-local address of a router.
    pub target: u128,
    /// Destination to which the redirect applies.
    pub destination: u128,
    /// MAC of the target, if known.
    pub target_link: Option<Mac>,
}

/// Writes a redirect to `packet`. The redirect quotes `datagram` in multiples of 8 bytes, up to a total length of 1,280
/// bytes. Returns false, without effect, if the buffer is too small.
pub fn emit_redirect(
    packet: &mut Packet<'_>,
    link: Link,
    ends: (u128, u128),
    redirect: &Redirect,
    datagram: &[u8],
) -> bool {
    const HEAD: usize = 40;
    let known = 8 * usize::from(redirect.target_link.is_some());
    let max = icmpv6::LONGEST_ERROR - ipv6::LENGTH - HEAD - known - 8;
    let quoted = datagram.len().min(max) & !7;
    let Some(quote) = datagram.get(..quoted) else {
        return false;
    };
    let length = HEAD + known + 8 + quoted;
    let Some((message, pseudo)) = icmpv6::start(packet, link, ends, 255, (kind::REDIRECT, 0), length) else {
        return false;
    };
    icmpv6::PARAMETER.write(message, 0);
    TARGET.write(message, redirect.target);
    Field::<u128>::at(24).write(message, redirect.destination);
    if let Some(mac) = redirect.target_link {
        link_option(message, HEAD, option::TARGET_LINK, mac);
    }
    if let Some((head, body)) = message
        .get_mut(HEAD + known..)
        .and_then(|rest| rest.split_at_mut_checked(8))
    {
        head.fill(0);
        Field::<u16>::at(0).write(head, u16::from(option::REDIRECTED) << 8 | (1 + quoted / 8) as u16);
        body.copy_from_slice(quote);
    }
    icmpv6::finish(message, pseudo);
    true
}

/// A prefix in a router advertisement (RFC 4861, section 4.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// First address of the prefix.
    pub address: u128,
    /// Length of the prefix in bits.
    pub length: u8,
    /// Whether the prefix is on-link.
    pub on_link: bool,
    /// Whether hosts may autonomously configure addresses from the prefix (RFC 4862).
    pub autonomous: bool,
    /// Valid lifetime in seconds.
    pub valid: u32,
    /// Preferred lifetime in seconds.
    pub preferred: u32,
}

/// Contents of a router advertisement (RFC 4861, section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Router<'a> {
    /// Recommended hop limit for hosts; 0 means no recommendation.
    pub hop_limit: u8,
    /// Whether addresses are available by DHCPv6.
    pub managed: bool,
    /// Whether other configuration is available by DHCPv6.
    pub other: bool,
    /// Lifetime of the default router in seconds; 0 if the router is not a default router.
    pub lifetime: u16,
    /// MTU of the link; `None` omits the option.
    pub mtu: Option<u32>,
    /// Prefixes of the link.
    pub prefixes: &'a [Prefix],
}

/// Writes to `packet` a router advertisement from `source`, which is link-local, to `destination`. Returns false,
/// without effect, if the buffer is too small.
pub fn emit_router(
    packet: &mut Packet<'_>,
    link: Link,
    (source, destination): (u128, u128),
    router: &Router<'_>,
) -> bool {
    let mtu = if router.mtu.is_some() { 8 } else { 0 };
    let length = 16 + 8 + mtu + 32 * router.prefixes.len();
    let head = (kind::ROUTER_ADVERTISEMENT, 0);
    let Some((message, pseudo)) = icmpv6::start(packet, link, (source, destination), 255, head, length) else {
        return false;
    };
    Field::<u8>::at(4).write(message, router.hop_limit);
    Field::<u8>::at(5).write(message, (router.managed as u8) << 7 | (router.other as u8) << 6);
    Field::<u16>::at(6).write(message, router.lifetime);
    link_option(message, 16, option::SOURCE_LINK, link.source);
    if let Some(mtu) = router.mtu {
        Field::<u16>::at(24).write(message, (option::MTU as u16) << 8 | 1);
        Field::<u32>::at(28).write(message, mtu);
    }
    let options = message.get_mut(24 + mtu..).unwrap_or_default();
    for (option, prefix) in options.chunks_exact_mut(32).zip(router.prefixes) {
        Field::<u16>::at(0).write(option, (option::PREFIX as u16) << 8 | 4);
        Field::<u8>::at(2).write(option, prefix.length);
        Field::<u8>::at(3).write(option, (prefix.on_link as u8) << 7 | (prefix.autonomous as u8) << 6);
        Field::<u32>::at(4).write(option, prefix.valid);
        Field::<u32>::at(8).write(option, prefix.preferred);
        Field::<u128>::at(16).write(option, prefix.address);
    }
    icmpv6::finish(message, pseudo);
    true
}
