//! Routes that daemons and the kernel tell, as netlink messages: from their bytes to offers of a [`Rib`].
//!
//! A [`Feed`] is what one teller has told so far. Whatever it is told, it goes on: what is not followed has a counter.

pub mod fpm;
pub mod netlink;
mod objects;
mod refused;
pub mod writer;

use std::collections::BTreeMap;

use netlink::{Kind, Leg, NextHopMessage, RouteMessage, kind};
use objects::{Meaning, Objects, refusal};
pub use refused::Refused;

use crate::rib::{Hop, MAX_HOPS, Offer, Origin, Rib, Target, Way};
use crate::{InterfaceIndex, Prefix, Refusal, Time};

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
    counts: FeedCounts,
    /// Next hops of the message under way.
    hops: Vec<Hop>,
    /// The listing that was asked for has come to its end.
    listed: Option<Listed>,
    /// What is listed changed meanwhile.
    is_torn: bool,
}

impl Feed {
    /// Nothing was told yet.
    pub fn new(teller: Teller) -> Self {
        Self {
            teller,
            objects: Objects::default(),
            counts: FeedCounts::default(),
            hops: Vec::with_capacity(MAX_HOPS),
            listed: None,
            is_torn: false,
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
        (self.listed, self.is_torn) = (None, false);
        rib.begin_replay(self.teller.origin);
    }

    /// Whether a listing has come to its end since this was asked last, and how.
    pub fn take_listed(&mut self) -> Option<Listed> {
        self.listed.take()
    }

    /// Follow messages, in order. What came of them is there with the next [`Rib::publish`].
    pub fn follow(&mut self, rib: &mut Rib, bytes: &[u8], now: Time) {
        for message in netlink::messages(bytes) {
            self.counts.messages += 1;
            if let Ok(message) = &message {
                self.is_torn |= message.flags & netlink::TORN != 0;
            }
            let followed = message.and_then(|message| match message.kind {
                kind::NEW_ROUTE => self.new_route(rib, message.body, now),
                kind::DELETE_ROUTE => self.delete_route(rib, message.body),
                kind::NEW_NEXT_HOP => self.new_next_hop(rib, message.body),
                kind::DELETE_NEXT_HOP => self.delete_next_hop(rib, message.body),
                kind::DONE => {
                    let is_torn = std::mem::take(&mut self.is_torn) || message.flags & netlink::TORN != 0;
                    self.listed = Some(if is_torn { Listed::Torn } else { Listed::Whole });
                    Ok(())
                }
                kind::NOOP => Ok(()),
                _ => Err(Refused::Message),
            });
            if let Err(refused) = followed {
                self.counts.refuse(refused);
            }
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
        match message.protocol {
            DERIVED => Err(Refused::Connected),
            OWN_PROTOCOL => Err(Refused::Own),
            _ => Ok(()),
        }
    }

    fn new_route(&mut self, rib: &mut Rib, body: &[u8], now: Time) -> Result<(), Refused> {
        let message = RouteMessage::read(body)?;
        self.concerns(&message)?;
        let origin = self.teller.origin;
        let offered = self.target(rib, &message).and_then(|group| {
            let offer = Offer {
                origin,
                protocol: message.protocol,
                distance: distance(message.protocol),
                metric: message.metric,
                target: group.map_or(Target::Hops(&self.hops), Target::Group),
            };
            rib.offer(message.prefix, &offer, now).map_err(refusal)
        });
        match offered {
            Ok(()) => self.counts.offered += 1,
            // It leads elsewhere by now, and where is not known.
            Err(_) => drop(rib.withdraw(message.prefix, origin, message.metric)),
        }
        offered
    }

    /// The group that a route names; or else its next hops, in `self.hops`.
    fn target(&mut self, rib: &mut Rib, message: &RouteMessage<'_>) -> Result<Option<crate::rib::Group>, Refused> {
        let refusal = match message.kind {
            Kind::Unicast => None,
            Kind::Blackhole => Some(Refusal::Blackhole),
            Kind::Unreachable => Some(Refusal::Unreachable),
            Kind::Prohibit => Some(Refusal::Prohibit),
            Kind::Other => return Err(Refused::Kind),
        };
        self.hops.clear();
        if let Some(refusal) = refusal {
            self.hops.push(Hop::new(Way::Drop(refusal)));
            return Ok(None);
        }
        if let Some(id) = message.next_hop {
            return self.objects.group(rib, id).map(Some);
        }
        for leg in message.legs() {
            // A next hop that can't be used leaves the others to do.
            let leg = leg?;
            match self.way(&leg) {
                Ok(_) if self.hops.len() == MAX_HOPS => return Err(Refused::NextHops),
                Ok(way) => self.hops.push(Hop {
                    way,
                    weight: leg.weight,
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
    fn way(&self, leg: &Leg) -> Result<Way, Refused> {
        if leg.wraps {
            return Err(Refused::Encapsulation);
        }
        if leg.crosses {
            return Err(Refused::OtherFamily);
        }
        if leg.is_dead {
            return Err(Refused::NextHops);
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

    fn delete_route(&mut self, rib: &mut Rib, body: &[u8]) -> Result<(), Refused> {
        let message = RouteMessage::read(body)?;
        self.concerns(&message)?;
        if rib.withdraw(message.prefix, self.teller.origin, message.metric) {
            self.counts.withdrawn += 1;
        }
        Ok(())
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
            None => Meaning::One(self.way(&message.leg).map(Hop::new)),
        };
        let refused = match meaning {
            Meaning::One(Err(refused)) => Err(refused),
            _ => Ok(()),
        };
        self.objects.set(rib, message.id, meaning)?;
        self.counts.next_hops += 1;
        refused
    }

    fn delete_next_hop(&mut self, rib: &mut Rib, body: &[u8]) -> Result<(), Refused> {
        let message = NextHopMessage::read(body)?;
        match self.objects.remove(rib, message.id) {
            true => Ok(()),
            false => Err(Refused::NextHop),
        }
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
        rib.end_replay(origin, usize::MAX);
        rib.publish(&mut Nothing);
        assert_eq!(0, rib.stale(origin));
    }
}
