//! The data of an interface that the fast path needs. The data is limited to half a cache line per interface, because a
//! gateway may have hundreds of VLANs.

use sluice_route::{RouterIndex, SourceValidation};
use sluice_wire::ethernet;
use sluice_wire::field::Mac;

use super::{Interface, Snapshot};
use crate::packet::io::{NO_PORT, PortIndex};

/// Maximum number of tags that the fast path supports.
pub const MAX_TAGS: usize = 2;

/// What the express lane may do with plain packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Express {
    /// Nothing: the graph processes them.
    Nothing,
    /// Translate those of known sessions.
    Translates,
    /// Route them without sessions.
    Routes,
}

/// The data of an interface that the fast path needs.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// MAC of the interface, and its tags as in frames.
    head: [u8; 6 + 4 * MAX_TAGS],
    /// Number of tags of the interface.
    pub tags: u8,
    /// Priority bits that frames keep; see [`super::Priority::kept`].
    pub keeps: u8,
    /// Whether arriving plain IPv4 packets (without options, not fragmented) need only a route lookup.
    pub passes: bool,
    /// Whether arriving plain packets are only routed, and none of them can be addressed to a tunnel endpoint, because
    /// the interface's router has none.
    pub places: bool,
    /// Whether arriving packets may need sessions, for IPv4 and for IPv6; see [`Interface::stateful`].
    pub stateful: [bool; 2],
    /// What the express lane may do with arriving packets, for IPv4 and for IPv6.
    pub express: [Express; 2],
    /// Whether the sources of arriving packets must be validated.
    pub validated: bool,
    /// Virtual router to which the interface belongs.
    pub router: RouterIndex,
    /// Port of the interface.
    pub port: PortIndex,
    /// Maximum length of an L3 datagram. For a tunnel, this length is an upper bound.
    pub mtu: u16,
    /// Whether the interface is a tunnel. The path MTU of a tunnel may be lower than `mtu`.
    pub tunnel: bool,
    /// Whether each worker has its own transmit queue of the port.
    pub queued: bool,
}

impl Link {
    /// Entry for an interface that the fast path doesn't support.
    pub const NONE: Link = Link {
        head: [0; _],
        tags: 0,
        keeps: 0,
        passes: false,
        places: false,
        stateful: [false; 2],
        express: [Express::Nothing; 2],
        validated: false,
        router: 0,
        port: NO_PORT,
        mtu: 0,
        tunnel: false,
        queued: false,
    };

    /// Creates the data of an interface for the fast path.
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
        let routes = interface.bridge.is_none() && interface.tags.len() <= MAX_TAGS;
        Self {
            head,
            tags: interface.tags.len() as u8,
            keeps: interface.priority.kept(),
            passes: routes && snapshot.needs_routes_alone(interface),
            places: routes && !snapshot.tunnels.end_in(interface.router),
            stateful: interface.stateful,
            express: snapshot.express(interface),
            validated: interface.validation != SourceValidation::Off,
            router: interface.router,
            port: interface.port,
            mtu: interface.mtu,
            tunnel: interface.tunnel.is_some(),
            queued: senders.is_none_or(|senders| senders.is_empty()),
        }
    }

    /// Whether the fast path supports the interface's number of tags.
    #[inline(always)]
    pub fn is_shallow(&self) -> bool {
        usize::from(self.tags) <= MAX_TAGS
    }

    /// MAC address of the interface.
    #[inline(always)]
    pub fn mac(&self) -> &Mac {
        self.head.first_chunk().unwrap_or(&[0; 6])
    }

    /// The header of frames to `mac`, without the EtherType. Only the bytes of the two MACs and of the interface's tags
    /// are valid.
    #[inline(always)]
    pub fn head(&self, mac: Mac) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..6].copy_from_slice(&mac);
        head[6..].copy_from_slice(&self.head);
        head
    }
}

/// Length in bytes of a header with the MAC addresses and the maximum number of tags.
pub const HEAD: usize = ethernet::LENGTH - 2 + 4 * MAX_TAGS;

const _: () = assert!(size_of::<Link>() <= 32);
