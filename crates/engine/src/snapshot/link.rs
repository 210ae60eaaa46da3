//! What the short way has to know of an interface, in half a cache line: a gateway may have hundreds behind tags.

use sluice_route::{RouterIndex, SourceValidation};
use sluice_wire::ethernet;
use sluice_wire::field::Mac;

use super::{Interface, Snapshot};
use crate::packet::io::{NO_PORT, PortIndex};

/// Most tags that the short way knows.
const TAGS: usize = 2;

/// An interface as the short way sees it.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Its MAC address, and its tags as frames have them.
    head: [u8; 6 + 4 * TAGS],
    /// How many tags.
    pub tags: u8,
    /// See [`super::Priority::kept`].
    pub keeps: u8,
    /// Plain IPv4 packets that come in need nothing but a route.
    pub passes: bool,
    /// Plain packets that come in are routed, and no tunnel ends here.
    pub places: bool,
    /// A service may concern what comes in of IPv4, IPv6: see [`Interface::stateful`].
    pub stateful: [bool; 2],
    /// Their sources are to be validated.
    pub validated: bool,
    /// Its virtual router.
    pub router: RouterIndex,
    /// Its port.
    pub port: PortIndex,
    /// Largest L3 datagram; of a tunnel at most.
    pub mtu: u16,
    /// It is a tunnel: its path may take less.
    pub tunnel: bool,
    /// Each worker has a queue of its own to send by.
    pub queued: bool,
}

impl Link {
    /// An interface that the short way has nothing to do with.
    pub const NONE: Link = Link {
        head: [0; _],
        tags: 0,
        keeps: 0,
        passes: false,
        places: false,
        stateful: [false; 2],
        validated: false,
        router: 0,
        port: NO_PORT,
        mtu: 0,
        tunnel: false,
        queued: false,
    };

    /// An interface of a snapshot.
    pub(super) fn of(interface: &Interface, snapshot: &Snapshot) -> Self {
        let senders = snapshot.senders.get(usize::from(interface.port));
        let mut head = [0; _];
        let tags = interface.tags.iter().flat_map(|tag| {
            let tag = interface.priority.of(*tag);
            let ([a, b], [c, d]) = (tag.protocol.to_be_bytes(), tag.control.to_be_bytes());
            [a, b, c, d]
        });
        for (byte, value) in head.iter_mut().zip(interface.mac.into_iter().chain(tags)) {
            *byte = value;
        }
        let routes = interface.bridge.is_none() && interface.tags.len() <= TAGS;
        Self {
            head,
            tags: interface.tags.len() as u8,
            keeps: interface.priority.kept(),
            passes: routes && snapshot.needs_routes_alone(interface),
            places: routes && !snapshot.tunnels.end_in(interface.router),
            stateful: interface.stateful,
            validated: interface.validation != SourceValidation::Off,
            router: interface.router,
            port: interface.port,
            mtu: interface.mtu,
            tunnel: interface.tunnel.is_some(),
            queued: senders.is_none_or(|senders| senders.is_empty()),
        }
    }

    /// Whether it has no more tags than the short way knows.
    #[inline(always)]
    pub fn is_shallow(&self) -> bool {
        usize::from(self.tags) <= TAGS
    }

    /// Its MAC address.
    #[inline(always)]
    pub fn mac(&self) -> &Mac {
        self.head.first_chunk().unwrap_or(&[0; 6])
    }

    /// What stands before the type in frames to `mac`: so many bytes as addresses and tags are.
    #[inline(always)]
    pub fn head(&self, mac: Mac) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..6].copy_from_slice(&mac);
        head[6..].copy_from_slice(&self.head);
        head
    }
}

/// Bytes of addresses and of as many tags as the short way knows.
pub const HEAD: usize = ethernet::LENGTH - 2 + 4 * TAGS;

const _: () = assert!(size_of::<Link>() <= 32);
