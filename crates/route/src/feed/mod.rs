//! Route feeds: decodes the netlink messages of routing daemons and of the kernel, and offers the routes to a [`Rib`].
//!
//! A [`Feed`] contains the state of one peer. An invalid message does not end a feed. Ignored messages are counted by
//! reason.

mod count;
pub mod fpm;
mod hostile;
mod kernel;
mod mirror;
pub mod netlink;
mod objects;
mod protocol;
mod refused;
pub mod writer;

use std::collections::BTreeMap;

pub use count::FeedCounts;
#[doc(hidden)]
pub use hostile::hostile;
use mirror::KernelTable;
use netlink::{Message, NextHopMember, NextHopMessage, RouteMessage, RouteType, kind};
use netlink_packet_route::link::{LinkFlags, LinkHeader};
use objects::{NextHopObjects, ObjectKind, refusal};
use protocol::DERIVED;
pub use protocol::{OWN_PROTOCOL, distance, protocol_name};
pub use refused::Refused;

use crate::rib::{Group, MAX_HOPS, Offer, OfferedNextHop, Origin, Rib, Target, WeightedNextHop};
use crate::{Address, DropKind, InterfaceIndex, Prefix, Time};

/// Meaning of interface numbers in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Links {
    /// Interface numbers in the router's own network namespace.
    Numbered(BTreeMap<u32, InterfaceIndex>),
    /// Interface numbers of another host. The feed ignores these interface numbers, and resolves next hops by gateway
    /// address.
    Foreign,
}

/// A peer that sends routes.
#[derive(Clone, Debug)]
pub struct RoutePeer {
    /// Origin of the peer's routes: [`Origin::Fpm`] or [`Origin::Kernel`].
    pub origin: Origin,
    /// Number of the routing table from which routes are accepted.
    pub table: u32,
    /// Meaning of interface numbers in the peer's messages.
    pub links: Links,
}

/// Number of the kernel's main table, which routing daemons use by default.
pub const MAIN_TABLE: u32 = 254;

/// Result of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpResult {
    /// The dump is complete.
    Complete,
    /// The dump may lack routes, because the table changed during the dump.
    Incomplete,
}

/// State of one route feed.
#[derive(Debug)]
pub struct Feed {
    peer: RoutePeer,
    objects: NextHopObjects,
    /// Mirror of the kernel's table, if the peer is the kernel.
    mirror: KernelTable,
    counts: FeedCounts,
    /// Next hops of the message that is being processed.
    hops: Vec<WeightedNextHop>,
    /// Result of the requested dump; `None` until the dump has ended.
    listed: Option<DumpResult>,
    /// Whether the table changed during the dump.
    is_torn: bool,
    /// Sequence number and netlink port of the request that last changed a next-hop object.
    object_request: Option<(u32, u32)>,
    /// For each link of the network namespace, by number: whether the link is up.
    links_up: BTreeMap<u32, bool>,
    /// Whether an event may have removed routes without a message for each route.
    is_incomplete: bool,
}

impl Feed {
    /// Creates a feed without routes.
    pub fn new(peer: RoutePeer) -> Self {
        Self {
            peer,
            objects: NextHopObjects::default(),
            mirror: KernelTable::default(),
            counts: FeedCounts::default(),
            hops: Vec::with_capacity(MAX_HOPS),
            listed: None,
            is_torn: false,
            object_request: None,
            links_up: BTreeMap::new(),
            is_incomplete: false,
        }
    }

    /// The peer that sends the routes.
    pub fn peer(&self) -> &RoutePeer {
        &self.peer
    }

    /// Changes the meaning of interface numbers for later messages. Earlier routes are not affected.
    pub fn set_links(&mut self, links: Links) {
        self.peer.links = links;
    }

    /// Counters of this feed.
    pub fn counts(&self) -> &FeedCounts {
        &self.counts
    }

    /// Handles a new connection of the peer. The peer's earlier next-hop numbers become invalid. Each route of the peer
    /// is stale until the peer sends the route again.
    pub fn begin(&mut self, rib: &mut Rib) {
        self.objects.clear(rib);
        self.mirror.begin();
        (self.listed, self.is_torn, self.is_incomplete) = (None, false, false);
        rib.start_replay(self.peer.origin);
    }

    /// The result of a dump that has ended since the last call.
    pub fn take_dump_result(&mut self) -> Option<DumpResult> {
        self.listed.take()
    }

    /// Ends the dump. All later messages report changes. Returns false if a dumped route may be older than an earlier
    /// reported change. The caller must then request another dump.
    pub fn end_dump(&mut self) -> bool {
        self.mirror.end_listing()
    }

    /// Whether routes may have changed without a message since the last call. The kernel removes routes silently when a
    /// link is set down or an address is deleted (`fib_sync_down_dev`). If the result is true, the caller must request
    /// another dump.
    pub fn take_resync_needed(&mut self) -> bool {
        std::mem::take(&mut self.is_incomplete)
    }

    /// Processes messages in order. The changes take effect at the next [`Rib::publish`].
    pub fn follow(&mut self, rib: &mut Rib, bytes: &[u8], now: Time) {
        for message in netlink::messages(bytes) {
            self.counts.messages += 1;
            if let Ok(message) = &message {
                self.is_torn |= message.flags() & netlink::DUMP_INTERRUPTED != 0;
            }
            let followed = message.and_then(|message| self.follow_one(rib, &message, now));
            if let Err(refused) = followed {
                self.counts.refuse(refused);
            }
        }
    }

    fn follow_one(&mut self, rib: &mut Rib, message: &Message<'_>, now: Time) -> Result<(), Refused> {
        match message.message_type() {
            kind::NEW_ROUTE => self.new_route(rib, message, now),
            kind::DELETE_ROUTE => self.delete_route(rib, message, now),
            kind::NEW_NEXT_HOP => {
                self.object_request = Some(request(message));
                self.new_next_hop(rib, message.payload())
            }
            kind::DELETE_NEXT_HOP => self.delete_next_hop(rib, message.payload()),
            kind::NEW_LINK | kind::DELETE_LINK | kind::NEW_ADDRESS | kind::DELETE_ADDRESS if self.is_kernel() => {
                self.is_incomplete |= self.disturbs(message);
                Ok(())
            }
            kind::DONE => {
                let is_torn = std::mem::take(&mut self.is_torn) || message.flags() & netlink::DUMP_INTERRUPTED != 0;
                self.listed = Some(if is_torn {
                    DumpResult::Incomplete
                } else {
                    DumpResult::Complete
                });
                Ok(())
            }
            kind::NOOP => Ok(()),
            _ => Err(Refused::Message),
        }
    }

    fn is_kernel(&self) -> bool {
        self.peer.origin == Origin::Kernel
    }

    /// Whether a link or address event may have removed or restored routes.
    fn disturbs(&mut self, message: &Message<'_>) -> bool {
        let is_v4 = message.payload().first() == Some(&netlink::INET);
        match (message.message_type(), LinkHeader::parse(message.payload())) {
            (kind::NEW_LINK, Ok(link)) => {
                let is_up = link.flags.contains(LinkFlags::Up);
                self.links_up.insert(link.index, is_up) != Some(is_up)
            }
            (kind::DELETE_LINK, Ok(link)) => self.links_up.remove(&link.index).is_some(),
            // The first IPv4 address of an interface makes dead next hops usable again.
            (kind::NEW_ADDRESS, _) => is_v4,
            _ => true,
        }
    }

    /// Checks that a message concerns a route in the peer's table.
    fn is_relevant(&self, message: &RouteMessage) -> Result<(), Refused> {
        if message.table != self.peer.table {
            return Err(Refused::Table);
        }
        if message.is_conditional || message.is_cloned {
            return Err(Refused::Condition);
        }
        Ok(())
    }

    /// Checks that the route is neither derived from an interface address nor created by Sluice.
    fn is_foreign(message: &RouteMessage) -> Result<(), Refused> {
        match message.protocol {
            DERIVED => Err(Refused::Connected),
            OWN_PROTOCOL => Err(Refused::Own),
            _ => Ok(()),
        }
    }

    fn new_route(&mut self, rib: &mut Rib, message: &Message<'_>, now: Time) -> Result<(), Refused> {
        let route = RouteMessage::read(message)?;
        self.is_relevant(&route)?;
        if self.is_kernel() {
            let is_of_object = self.object_request == Some(request(message));
            return self.mirror_route(rib, &route, is_of_object, now);
        }
        Self::is_foreign(&route)?;
        let origin = self.peer.origin;
        let offered = self.target(rib, &route).and_then(|group| {
            let offer = Offer {
                origin,
                protocol: route.protocol,
                distance: distance(route.protocol),
                metric: route.metric,
                target: group.map_or(Target::Hops(&self.hops), Target::Group),
            };
            rib.offer(route.prefix, &offer, now).map_err(refusal)
        });
        match offered {
            Ok(()) => self.counts.offered += 1,
            // Withdraw the old route, because the new target is unusable.
            Err(_) => drop(rib.withdraw(route.prefix, origin, route.metric)),
        }
        offered
    }

    /// RIB group of a route. If the route has no group, stores the next hops of the route in `self.hops` and returns
    /// `None`.
    fn target(&mut self, rib: &mut Rib, message: &RouteMessage) -> Result<Option<Group>, Refused> {
        self.hops.clear();
        if let Some(refusal) = drops(message.kind) {
            self.hops.push(WeightedNextHop::new(OfferedNextHop::Drop(refusal)));
            return Ok(None);
        }
        if message.kind != RouteType::Unicast {
            return Err(Refused::Kind);
        }
        if let Some(id) = message.next_hop {
            return self.objects.group(rib, id).map(Some);
        }
        for leg in message.legs() {
            // Omit an unusable next hop, and use the usable next hops.
            match self.next_hop(message.prefix, leg) {
                Ok(_) if self.hops.len() == MAX_HOPS => return Err(Refused::NextHops),
                Ok(next_hop) => self.hops.push(WeightedNextHop {
                    weight: leg.weight,
                    ..WeightedNextHop::new(next_hop)
                }),
                Err(refused) => self.counts.refuse(refused),
            }
        }
        if self.hops.is_empty() {
            Err(Refused::NextHops)
        } else {
            Ok(None)
        }
    }

    /// Converts a next hop of a message to the form of the RIB.
    fn next_hop(&self, to: Prefix, leg: &NextHopMember) -> Result<OfferedNextHop, Refused> {
        if leg.wraps {
            return Err(Refused::Encapsulation);
        }
        if let (Address::V6(_), Some(Address::V4(_))) = (to.address(), leg.gateway) {
            return Err(Refused::OtherFamily);
        }
        if leg.is_dead {
            return Err(Refused::NextHops);
        }
        if leg.is_onlink && leg.gateway == Some(PLACEHOLDER) && !self.is_kernel() {
            return Err(Refused::Placeholder);
        }
        let numbers = match &self.peer.links {
            Links::Numbered(numbers) => numbers,
            Links::Foreign => {
                let gateway = leg.gateway.filter(|gateway| !gateway.is_link_local());
                return gateway.map(OfferedNextHop::Via).ok_or(Refused::Gateway);
            }
        };
        let interface = numbers.get(&leg.interface).copied();
        match (leg.gateway, interface) {
            (Some(address), Some(interface)) => Ok(OfferedNextHop::Gateway { interface, address }),
            (None, Some(interface)) => Ok(OfferedNextHop::Attached(interface)),
            (Some(gateway), None) if leg.interface == 0 && !gateway.is_link_local() => Ok(OfferedNextHop::Via(gateway)),
            (_, None) => Err(Refused::Interface),
        }
    }

    fn delete_route(&mut self, rib: &mut Rib, message: &Message<'_>, now: Time) -> Result<(), Refused> {
        let route = RouteMessage::read(message)?;
        self.is_relevant(&route)?;
        if self.is_kernel() {
            return self.remove_mirrored(rib, &route, now);
        }
        Self::is_foreign(&route)?;
        if rib.withdraw(route.prefix, self.peer.origin, route.metric) {
            self.counts.withdrawn += 1;
        }
        Ok(())
    }

    fn new_next_hop(&mut self, rib: &mut Rib, body: &[u8]) -> Result<(), Refused> {
        let message = NextHopMessage::read(body)?;
        let meaning = match message.group {
            _ if message.is_bridging => ObjectKind::One(Err(Refused::Bridging)),
            Some(members) if members.len() > MAX_HOPS => ObjectKind::One(Err(Refused::NextHops)),
            Some(members) => ObjectKind::Group(members),
            None if message.is_blackhole => {
                ObjectKind::One(Ok(WeightedNextHop::new(OfferedNextHop::Drop(DropKind::Blackhole))))
            }
            None => ObjectKind::One(self.next_hop(ANY, &message.leg).map(WeightedNextHop::new)),
        };
        let refused = match meaning {
            ObjectKind::One(Err(refused)) => Err(refused),
            _ => Ok(()),
        };
        let was_resolvable = self.objects.usable(message.id).is_ok();
        self.objects.set(rib, message.id, meaning)?;
        if self.is_kernel() && was_resolvable != self.objects.usable(message.id).is_ok() {
            self.mirror.move_object(message.id);
        }
        self.counts.next_hops += 1;
        refused
    }

    fn delete_next_hop(&mut self, rib: &mut Rib, body: &[u8]) -> Result<(), Refused> {
        let message = NextHopMessage::read(body)?;
        if self.is_kernel() {
            self.mirror.delete_object(message.id);
            self.objects.empty(rib, message.id);
        }
        match self.objects.remove(rib, message.id) {
            true => Ok(()),
            false => Err(Refused::NextHop),
        }
    }
}

/// Address that FRR writes in place of an IPv6 gateway (`ipv4_ll` in its `rt_netlink.c`). FRR adds a neighbour entry
/// for this address only to the local kernel. FPM peers don't receive the entry.
const PLACEHOLDER: Address = Address::V4(0xa9fe_0001);

/// Prefix that stands for any destination. The prefix is an IPv4 prefix, because an IPv4 route may have an IPv4 or an
/// IPv6 gateway.
const ANY: Prefix = Prefix::ALL_V4;

/// Sequence number and netlink port of the request that caused a message.
fn request(message: &Message<'_>) -> (u32, u32) {
    (message.sequence_number(), message.port_number())
}

/// How a route drops packets; `None` for any other route.
fn drops(kind: RouteType) -> Option<DropKind> {
    match kind {
        RouteType::BlackHole => Some(DropKind::Blackhole),
        RouteType::Unreachable => Some(DropKind::Unreachable),
        RouteType::Prohibit => Some(DropKind::Prohibit),
        RouteType::Throw => Some(DropKind::NoRoute),
        _ => None,
    }
}
