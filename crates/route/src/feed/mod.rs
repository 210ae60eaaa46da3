//! Routes that daemons and the kernel tell, as netlink messages: from their bytes to offers of a [`Rib`].
//!
//! A [`Feed`] is what one teller has told so far. Whatever it is told, it goes on: what is not followed has a counter.

pub mod fpm;
mod mirror;
pub mod netlink;
mod objects;
mod refused;
pub mod writer;

use std::collections::BTreeMap;

use mirror::{Chosen, Effect, Lead, Mirror};
use netlink::{Kind, Leg, Message, NextHopMessage, RouteMessage, kind};
use objects::{Meaning, Objects, refusal};
pub use refused::Refused;

use crate::rib::{Group, Hop, MAX_HOPS, Offer, Origin, Rib, Target, Way};
use crate::{Address, InterfaceIndex, Prefix, Refusal, Time};

/// What the numbers of interfaces in messages mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Links {
    /// They are of the router's own namespace.
    Numbered(BTreeMap<u32, InterfaceIndex>),
    /// They are another host's, and mean nothing: next hops are found by the addresses of their gateways.
    Foreign,
}

/// Who tells.
#[derive(Clone, Debug)]
pub struct Teller {
    /// As what its routes are offered: [`Origin::Fpm`] or [`Origin::Kernel`].
    pub origin: Origin,
    /// The routing table that is listened to.
    pub table: u32,
    /// What interfaces are called.
    pub links: Links,
}

/// The kernel's main table, where daemons have their routes unless they are told otherwise.
pub const MAIN_TABLE: u32 = 254;

/// RTPROT that Sluice marks routes with that it gives to the kernel.
pub const OWN_PROTOCOL: u8 = 0x53;

/// RTPROT_KERNEL
const DERIVED: u8 = 2;

/// Administrative distance of a daemon's routes by RTPROT, as routers have it by default.
pub fn distance(protocol: u8) -> u8 {
    match protocol {
        // BOOT, STATIC, FRR's ZSTATIC: a person wrote them.
        3 | 4 | 196 => 1,
        // RA, DHCP
        9 | 16 => 5,
        // BGP
        186 => 20,
        // EIGRP
        192 => 90,
        // BABEL
        42 => 100,
        // OSPF
        188 => 110,
        // ISIS, OPENFABRIC
        187 | 197 => 115,
        // RIP, RIPNG
        189 | 190 => 120,
        _ => 150,
    }
}

/// Name of an RTPROT, where it has one.
pub fn protocol_name(protocol: u8) -> Option<&'static str> {
    Some(match protocol {
        2 => "kernel",
        3 => "boot",
        4 | 196 => "static",
        9 => "ra",
        11 => "zebra",
        12 => "bird",
        16 => "dhcp",
        42 => "babel",
        99 => "openr",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        190 => "ripng",
        191 => "nhrp",
        192 => "eigrp",
        193 => "ldp",
        194 => "sharp",
        195 => "pbr",
        197 => "openfabric",
        198 => "srte",
        _ => return None,
    })
}

/// What a feed has counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedCounts {
    /// Messages.
    pub messages: u64,
    /// Routes offered, those that were offered before too.
    pub offered: u64,
    /// Routes taken back.
    pub withdrawn: u64,
    /// Next hops and groups of them set.
    pub next_hops: u64,
    refused: [u64; Refused::ALL.len()],
}

impl Default for FeedCounts {
    fn default() -> Self {
        Self {
            messages: 0,
            offered: 0,
            withdrawn: 0,
            next_hops: 0,
            refused: [0; Refused::ALL.len()],
        }
    }
}

impl FeedCounts {
    /// Messages, or next hops of one, that were not followed for this reason.
    pub fn refused(&self, reason: Refused) -> u64 {
        self.refused[reason as usize]
    }

    fn refuse(&mut self, reason: Refused) {
        self.refused[reason as usize] += 1;
    }
}

/// How a listing has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// It has everything.
    Whole,
    /// What is listed changed meanwhile, and some of it may be missing.
    Torn,
}

/// What one teller has told.
#[derive(Debug)]
pub struct Feed {
    teller: Teller,
    objects: Objects,
    /// The kernel's table, where the kernel is the teller.
    mirror: Mirror,
    counts: FeedCounts,
    /// Next hops of the message under way.
    hops: Vec<Hop>,
    /// The listing that was asked for has come to its end.
    listed: Option<Listed>,
    /// What is listed changed meanwhile.
    is_torn: bool,
    /// The request that the last change of a next-hop object came of.
    object_request: Option<(u32, u32)>,
    /// Links of the namespace, and whether each is up.
    links_up: BTreeMap<u32, bool>,
    /// Something has happened that takes routes away without a message of its own.
    is_disturbed: bool,
}

impl Feed {
    /// Nothing was told yet.
    pub fn new(teller: Teller) -> Self {
        Self {
            teller,
            objects: Objects::default(),
            mirror: Mirror::default(),
            counts: FeedCounts::default(),
            hops: Vec::with_capacity(MAX_HOPS),
            listed: None,
            is_torn: false,
            object_request: None,
            links_up: BTreeMap::new(),
            is_disturbed: false,
        }
    }

    /// Who tells.
    pub fn teller(&self) -> &Teller {
        &self.teller
    }

    /// Interfaces have other numbers from now on; what was told before keeps what it meant.
    pub fn set_links(&mut self, links: Links) {
        self.teller.links = links;
    }

    /// What was counted.
    pub fn counts(&self) -> &FeedCounts {
        &self.counts
    }

    /// The teller begins anew: numbers of next hops mean nothing any more, and routes that it does not tell again are
    /// stale.
    pub fn begin(&mut self, rib: &mut Rib) {
        self.objects.clear(rib);
        self.mirror.begin();
        (self.listed, self.is_torn, self.is_disturbed) = (None, false, false);
        rib.begin_replay(self.teller.origin);
    }

    /// Whether a listing has come to its end since this was asked last, and how.
    pub fn take_listed(&mut self) -> Option<Listed> {
        self.listed.take()
    }

    /// All that was listed is there: routes told from now on are changes of it. False where a part of the listing is older
    /// than a change that came before it, and all has to be listed again.
    pub fn end_listing(&mut self) -> bool {
        self.mirror.end_listing()
    }

    /// Whether routes may have changed without a message since this was asked last: the kernel takes routes away in silence
    /// when a link is set down or an address goes (`fib_sync_down_dev`). Everything has to be listed again.
    pub fn take_disturbed(&mut self) -> bool {
        std::mem::take(&mut self.is_disturbed)
    }

    /// Follow messages, in order. What came of them is there with the next [`Rib::publish`].
    pub fn follow(&mut self, rib: &mut Rib, bytes: &[u8], now: Time) {
        for message in netlink::messages(bytes) {
            self.counts.messages += 1;
            if let Ok(message) = &message {
                self.is_torn |= message.flags & netlink::TORN != 0;
            }
            let followed = message.and_then(|message| self.follow_one(rib, &message, now));
            if let Err(refused) = followed {
                self.counts.refuse(refused);
            }
        }
    }

    fn follow_one(&mut self, rib: &mut Rib, message: &Message<'_>, now: Time) -> Result<(), Refused> {
        match message.kind {
            kind::NEW_ROUTE => self.new_route(rib, message, now),
            kind::DELETE_ROUTE => self.delete_route(rib, message, now),
            kind::NEW_NEXT_HOP => {
                self.object_request = Some(message.request);
                self.new_next_hop(rib, message.body)
            }
            kind::DELETE_NEXT_HOP => self.delete_next_hop(rib, message.body),
            kind::NEW_LINK | kind::DELETE_LINK | kind::NEW_ADDRESS | kind::DELETE_ADDRESS if self.is_kernel() => {
                self.is_disturbed |= self.disturbs(message);
                Ok(())
            }
            kind::DONE => {
                let is_torn = std::mem::take(&mut self.is_torn) || message.flags & netlink::TORN != 0;
                self.listed = Some(if is_torn { Listed::Torn } else { Listed::Whole });
                Ok(())
            }
            kind::NOOP => Ok(()),
            _ => Err(Refused::Message),
        }
    }

    fn is_kernel(&self) -> bool {
        self.teller.origin == Origin::Kernel
    }

    /// Whether what happened to a link or an address may have taken routes away, or brought them back.
    fn disturbs(&mut self, message: &Message<'_>) -> bool {
        let is_v4 = message.body.first() == Some(&netlink::INET);
        match (message.kind, netlink::link(message.body)) {
            (kind::NEW_LINK, Some(link)) => self.links_up.insert(link.index, link.is_up) != Some(link.is_up),
            (kind::DELETE_LINK, Some(link)) => self.links_up.remove(&link.index).is_some(),
            // Next hops that were dead come back with the first address of IPv4.
            (kind::NEW_ADDRESS, _) => is_v4,
            _ => true,
        }
    }

    /// Whether a message is about a route of this teller.
    fn concerns(&self, message: &RouteMessage<'_>) -> Result<(), Refused> {
        if message.table != self.teller.table {
            return Err(Refused::Table);
        }
        if message.is_conditional || message.is_cloned {
            return Err(Refused::Condition);
        }
        Ok(())
    }

    /// Whether a route is others', not one that was derived from addresses or that Sluice made.
    fn is_foreign(message: &RouteMessage<'_>) -> Result<(), Refused> {
        match message.protocol {
            DERIVED => Err(Refused::Connected),
            OWN_PROTOCOL => Err(Refused::Own),
            _ => Ok(()),
        }
    }

    fn new_route(&mut self, rib: &mut Rib, message: &Message<'_>, now: Time) -> Result<(), Refused> {
        let route = RouteMessage::read(message)?;
        self.concerns(&route)?;
        if self.is_kernel() {
            let is_of_object = self.object_request == Some(message.request);
            return self.mirror_route(rib, &route, is_of_object, now);
        }
        Self::is_foreign(&route)?;
        let origin = self.teller.origin;
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
            // It leads elsewhere by now, and where is not known.
            Err(_) => drop(rib.withdraw(route.prefix, origin, route.metric)),
        }
        offered
    }

    /// A route of the kernel's table is new or changed.
    fn mirror_route(
        &mut self,
        rib: &mut Rib,
        route: &RouteMessage<'_>,
        is_of_object: bool,
        now: Time,
    ) -> Result<(), Refused> {
        // Where a next-hop object changes, the kernel sends every route by it as if that replaced one: it is where it was.
        if let Some(id) = route.next_hop.filter(|_| is_of_object)
            && self.mirror.has_object(route.prefix, route.metric, id)
        {
            return Ok(());
        }
        let lead = lead(route)?;
        let followed = Self::is_foreign(route).and_then(|()| self.count_legs(route, &lead));
        let is_listed = route.flags & netlink::LISTED != 0;
        let offered = if self.mirror.is_empty(route.prefix) {
            // Nearly every prefix has one route, which there is nothing to choose from.
            let only = followed.is_ok().then(|| Chosen {
                metric: route.metric,
                protocol: route.protocol,
                leads: vec![lead.clone()],
            });
            self.mirror.new_route(route, lead, is_listed);
            let offered = self.offer_all(rib, route.prefix, only.as_slice(), now);
            if offered == Err(Refused::Quota) {
                self.mirror.forget(route.prefix);
            }
            offered
        } else {
            let before = self.metrics(route.prefix);
            self.mirror.new_route(route, lead, is_listed);
            self.offer_chosen(rib, route.prefix, &before, now)
        };
        followed.and(offered).inspect(|()| self.counts.offered += 1)
    }

    /// Count what can't be followed of a route; an error where nothing of it can.
    fn count_legs(&mut self, route: &RouteMessage<'_>, lead: &Lead) -> Result<(), Refused> {
        match lead {
            Lead::Legs(legs) => {
                let mut usable = false;
                for leg in legs {
                    match self.way(route.prefix, leg) {
                        Ok(_) => usable = true,
                        Err(refused) => self.counts.refuse(refused),
                    }
                }
                usable.then_some(()).ok_or(Refused::NextHops)
            }
            Lead::Object(id) => self.objects.usable(*id),
            Lead::Refused(_) => Ok(()),
            Lead::Unfollowed | Lead::Deleted => Err(Refused::Kind),
        }
    }

    /// The metrics at which the kernel has routes to a prefix.
    fn metrics(&self, prefix: Prefix) -> Vec<u32> {
        let all = self.mirror.chosen(prefix, |_| true);
        all.into_iter().map(|chosen| chosen.metric).collect()
    }

    /// Offer what the kernel uses of a prefix, and take back what it offered before at other metrics.
    ///
    /// The kernel knows no distances: the distance of all of a prefix's routes is that of the one that it uses.
    fn offer_chosen(&mut self, rib: &mut Rib, prefix: Prefix, before: &[u32], now: Time) -> Result<(), Refused> {
        let usable = |lead: &Lead| match lead {
            Lead::Legs(legs) => legs.iter().any(|leg| self.way(prefix, leg).is_ok()),
            Lead::Object(id) => self.objects.usable(*id).is_ok(),
            Lead::Refused(_) => true,
            Lead::Unfollowed | Lead::Deleted => false,
        };
        let all = self.mirror.chosen(prefix, usable);
        let result = self.offer_all(rib, prefix, &all, now);
        let stays = |metric: u32| all.iter().any(|chosen| chosen.metric == metric);
        for &metric in before.iter().filter(|metric| !stays(**metric)) {
            rib.withdraw(prefix, Origin::Kernel, metric);
        }
        result
    }

    fn offer_all(&mut self, rib: &mut Rib, prefix: Prefix, all: &[Chosen], now: Time) -> Result<(), Refused> {
        let distance = all.first().map_or(0, |first| distance(first.protocol));
        let mut result = Ok(());
        for chosen in all {
            let offered = self.chosen_target(rib, prefix, chosen).and_then(|group| {
                let offer = Offer {
                    origin: Origin::Kernel,
                    protocol: chosen.protocol,
                    distance,
                    metric: chosen.metric,
                    target: group.map_or(Target::Hops(&self.hops), Target::Group),
                };
                rib.offer(prefix, &offer, now).map_err(refusal)
            });
            if offered.is_err() {
                rib.withdraw(prefix, Origin::Kernel, chosen.metric);
            }
            result = result.and(offered);
        }
        result
    }

    /// The group that a chosen route names; or else its next hops, in `self.hops`.
    fn chosen_target(&mut self, rib: &mut Rib, prefix: Prefix, chosen: &Chosen) -> Result<Option<Group>, Refused> {
        self.hops.clear();
        for lead in &chosen.leads {
            match lead {
                Lead::Object(id) => return self.objects.group(rib, *id).map(Some),
                Lead::Refused(refusal) => self.hops.push(Hop::new(Way::Drop(*refusal))),
                Lead::Legs(legs) => {
                    for leg in legs {
                        let Ok(way) = self.way(prefix, leg) else { continue };
                        if self.hops.len() == MAX_HOPS {
                            return Err(Refused::NextHops);
                        }
                        let weight = leg.weight;
                        self.hops.push(Hop {
                            weight,
                            ..Hop::new(way)
                        });
                    }
                }
                Lead::Unfollowed | Lead::Deleted => {}
            }
        }
        Ok(None)
    }

    /// Choose again where next-hop objects have changed or gone since the last time. It looks at all routes then: call it
    /// once for all messages that are there.
    pub fn settle(&mut self, rib: &mut Rib, now: Time) {
        for (prefix, metrics) in self.mirror.settle() {
            if let Err(refused) = self.offer_chosen(rib, prefix, &metrics, now) {
                self.counts.refuse(refused);
            }
        }
    }

    /// The group that a route names; or else its next hops, in `self.hops`.
    fn target(&mut self, rib: &mut Rib, message: &RouteMessage<'_>) -> Result<Option<Group>, Refused> {
        self.hops.clear();
        if message.kind == Kind::Other {
            return Err(Refused::Kind);
        }
        if let Some(refusal) = drops(message.kind) {
            self.hops.push(Hop::new(Way::Drop(refusal)));
            return Ok(None);
        }
        if let Some(id) = message.next_hop {
            return self.objects.group(rib, id).map(Some);
        }
        for leg in message.legs() {
            // A next hop that can't be used leaves the others to do.
            let leg = leg?;
            match self.way(message.prefix, &leg) {
                Ok(_) if self.hops.len() == MAX_HOPS => return Err(Refused::NextHops),
                Ok(way) => self.hops.push(Hop {
                    weight: leg.weight,
                    ..Hop::new(way)
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

    /// Where a next hop leads.
    fn way(&self, to: Prefix, leg: &Leg) -> Result<Way, Refused> {
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
        let numbers = match &self.teller.links {
            Links::Numbered(numbers) => numbers,
            Links::Foreign => {
                let gateway = leg.gateway.filter(|gateway| !gateway.is_link_local());
                return gateway.map(Way::Via).ok_or(Refused::Gateway);
            }
        };
        let interface = numbers.get(&leg.interface).copied();
        match (leg.gateway, interface) {
            (Some(address), Some(interface)) => Ok(Way::Gateway { interface, address }),
            (None, Some(interface)) => Ok(Way::Attached(interface)),
            (Some(gateway), None) if leg.interface == 0 && !gateway.is_link_local() => Ok(Way::Via(gateway)),
            (_, None) => Err(Refused::Interface),
        }
    }

    fn delete_route(&mut self, rib: &mut Rib, message: &Message<'_>, now: Time) -> Result<(), Refused> {
        let route = RouteMessage::read(message)?;
        self.concerns(&route)?;
        if self.is_kernel() {
            return self.unmirror_route(rib, &route, now);
        }
        Self::is_foreign(&route)?;
        if rib.withdraw(route.prefix, self.teller.origin, route.metric) {
            self.counts.withdrawn += 1;
        }
        Ok(())
    }

    /// A route of the kernel's table, or some of its next hops, is gone.
    fn unmirror_route(&mut self, rib: &mut Rib, route: &RouteMessage<'_>, now: Time) -> Result<(), Refused> {
        let lead = lead(route)?;
        let before = self.metrics(route.prefix);
        match self.mirror.delete_route(route, lead) {
            Effect::Known => return Ok(()),
            Effect::Changed => self.counts.withdrawn += 1,
            // What is kept here is not what the kernel has.
            Effect::Astray => self.is_disturbed = true,
        }
        Self::is_foreign(route)?;
        self.offer_chosen(rib, route.prefix, &before, now)
    }

    fn new_next_hop(&mut self, rib: &mut Rib, body: &[u8]) -> Result<(), Refused> {
        let message = NextHopMessage::read(body)?;
        let meaning = match message.group() {
            _ if message.is_bridging => Meaning::One(Err(Refused::Bridging)),
            Some(members) => {
                let members: Vec<_> = members.take(MAX_HOPS + 1).collect();
                match members.len() {
                    ..=MAX_HOPS => Meaning::Several(members),
                    _ => Meaning::One(Err(Refused::NextHops)),
                }
            }
            None if message.is_blackhole => Meaning::One(Ok(Hop::new(Way::Drop(Refusal::Blackhole)))),
            None => Meaning::One(self.way(ANY, &message.leg).map(Hop::new)),
        };
        let refused = match meaning {
            Meaning::One(Err(refused)) => Err(refused),
            _ => Ok(()),
        };
        let was_usable = self.objects.usable(message.id).is_ok();
        self.objects.set(rib, message.id, meaning)?;
        if self.is_kernel() && was_usable != self.objects.usable(message.id).is_ok() {
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

/// What FRR writes in the place of a gateway of IPv6 (`ipv4_ll` of its `rt_netlink.c`); its own kernel has a neighbour of this
/// address, which no message to others has.
const PLACEHOLDER: Address = Address::V4(0xa9fe_0001);

/// A prefix of IPv4, where a gateway may be of either family.
const ANY: Prefix = Prefix::ALL_V4;

/// How a route drops, where it does.
fn drops(kind: Kind) -> Option<Refusal> {
    match kind {
        Kind::Blackhole => Some(Refusal::Blackhole),
        Kind::Unreachable => Some(Refusal::Unreachable),
        Kind::Prohibit => Some(Refusal::Prohibit),
        Kind::Throw => Some(Refusal::NoRoute),
        Kind::Unicast | Kind::Other => None,
    }
}

/// What a route of the kernel leads to.
fn lead(route: &RouteMessage<'_>) -> Result<Lead, Refused> {
    if let Some(id) = route.next_hop {
        return Ok(Lead::Object(id));
    }
    if matches!(route.protocol, DERIVED | OWN_PROTOCOL) || route.kind == Kind::Other {
        return Ok(Lead::Unfollowed);
    }
    match drops(route.kind) {
        Some(refusal) => Ok(Lead::Refused(refusal)),
        None => route.legs().collect::<Result<_, _>>().map(Lead::Legs),
    }
}

/// Reads whatever bytes there are as a connection's: for tests and the fuzzer.
#[doc(hidden)]
pub fn hostile(bytes: &[u8]) {
    struct Nothing;
    impl crate::rib::Sink for Nothing {
        fn set(&mut self, _: Prefix, set: &crate::rib::ResolvedSet) {
            assert!((1..=MAX_HOPS).contains(&set.members().len()));
        }
        fn remove(&mut self, _: Prefix) {}
    }
    let settings = crate::rib::Settings {
        quota: 100,
        sets: 50,
        by_default_route: true,
    };
    let numbers = BTreeMap::from([(1, 0), (2, 1)]);
    for (origin, links) in [
        (Origin::Fpm, Links::Foreign),
        (Origin::Kernel, Links::Numbered(numbers)),
    ] {
        let mut rib = Rib::new(settings, [1, 2]);
        let table = MAIN_TABLE;
        let mut feed = Feed::new(Teller { origin, table, links });
        let mut frames = fpm::Frames::default();
        for piece in bytes.chunks(bytes.len() / 3 + 1) {
            frames.push(piece);
            while let Ok(Some(frame)) = frames.take() {
                feed.follow(&mut rib, frame, 0);
            }
            rib.publish(&mut Nothing);
        }
        feed.begin(&mut rib);
        feed.follow(&mut rib, bytes, 0);
        feed.settle(&mut rib, 0);
        feed.end_listing();
        feed.follow(&mut rib, bytes, 0);
        feed.settle(&mut rib, 0);
        rib.end_replay(origin, usize::MAX);
        rib.publish(&mut Nothing);
        assert_eq!(0, rib.stale(origin));
    }
}
