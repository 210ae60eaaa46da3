//! Cost of packets with many virtual routers compared with one router: frames, destinations and number of routes are
//! the same.

use sluice_dpdk::eal::Eal;
use sluice_dpdk::memory::Region;
use sluice_dpdk::tsc;
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::snapshot::{Interface, Router, Snapshot};
use sluice_route::{Address, Prefix, RouteSet};
use sluice_wire::Checksums;
use sluice_wire::vlan::Tag;

use super::forward::{Forward, destinations, packet, plane};
use super::internet::routes;
use crate::rig::frames::{INSIDE_MAC, ROUTER_MAC, Random, SEED, Tagged, Written};
use crate::rig::gateway::Gateway;
use crate::rig::measure::add_cost;
use crate::rig::policy::{Job, interfaces, route};
use crate::rig::{BURST, LAG, join};
use crate::rows::{Failure, Row, Run, Runs};

/// Number of links; each link consists of an inside and an outside interface and belongs to one router.
const LINKS: u16 = 1_000;
/// Number of links that have ports of their own.
const PORTS: u16 = 6;
/// First VLAN ID.
const TAG: u16 = 2;
/// Number of packets per run, if links have their own ports.
const PACKETS: usize = 1 << 20;

/// Address of a host on a link. Each interface has a separate /30, so that a single router can contain all interfaces.
fn address(base: u32, link: u16, host: u32) -> Address {
    Address::V4(base + 4 * u32::from(link) + host)
}

const INSIDE: u32 = 0x6440_0000;
const OUTSIDE: u32 = 0xc612_0000;

/// Links are assigned to routers in turn; they either are tagged on two shared ports or have their own ports.
#[derive(Clone, Copy, Debug)]
struct Shape {
    links: u16,
    routers: u16,
    tagged: bool,
}

impl Shape {
    fn interfaces(&self) -> Result<Vec<Interface>, Failure> {
        let usual = interfaces(Job::Forward)?;
        let mut all = Vec::new();
        for link in 0..self.links {
            for (side, (base, usual)) in [INSIDE, OUTSIDE].into_iter().zip(&usual).enumerate() {
                let mut interface = usual.clone();
                interface.name = format!("link{link}-{side}");
                interface.port = if self.tagged { 0 } else { 2 * link } + side as u16;
                interface.tags = self.tagged.then(|| Tag::vlan(TAG + link)).into_iter().collect();
                interface.link.index = all.len() as u16;
                interface.link.addresses = vec![(address(base, link, 1), 30)];
                (interface.router, interface.context) = (link % self.routers, (link % self.routers).into());
                all.push(interface);
            }
        }
        Ok(all)
    }

    /// Creates a control plane with these routes. The next hop of route `k` is on link number `k` modulo the number of
    /// links, and the route belongs to the router of that link.
    fn plane(&self, prefixes: &[Prefix]) -> Result<ControlPlane, Failure> {
        let interfaces = self.interfaces()?;
        let mut configured = vec![Vec::new(); self.routers.into()];
        for (number, prefix) in prefixes.iter().enumerate() {
            let link = (number % usize::from(self.links)) as u16;
            let route = route(prefix.address(), prefix.length(), address(OUTSIDE, link, 2));
            configured[usize::from(link % self.routers)].push(route);
        }
        let sets = (0..self.routers).zip(&configured).map(|(router, routes)| {
            let own = interfaces.iter().filter(|interface| interface.router == router);
            RouteSet::new(&own.map(|interface| interface.link.clone()).collect::<Vec<_>>(), routes)
        });
        let sets = sets.collect::<Result<Vec<_>, _>>()?;
        let mut policy = Snapshot::new(if self.tagged { 2 } else { 2 * usize::from(self.links) }, interfaces);
        policy.routers = vec![Router::default(); self.routers.into()];
        policy.hosts = vec![Default::default(); self.routers.into()];
        plane(policy, &sets)
    }

    fn know(&self, gateway: &mut Gateway<'_>) -> Result<(), Failure> {
        (0..self.links).try_for_each(|link| gateway.know((2 * link + 1, address(OUTSIDE, link, 2), ROUTER_MAC)))
    }

    fn row(&self, count: usize) -> Row {
        let row = Row::new("forward")
            .key("fib", "ours")
            .key("family", 4)
            .key("routers", self.routers);
        row.key("routes", count)
            .key("links", self.links)
            .key("tagged", self.tagged)
    }
}

/// Routes, and addresses within them, each with the index of its route.
struct Destinations {
    prefixes: Vec<Prefix>,
    drawn: Vec<(u32, u32)>,
}

impl Destinations {
    /// Creates `count` routes that do not overlap with the networks of the links.
    fn new(count: usize) -> Self {
        let mut random = Random(SEED);
        let blocks = [(INSIDE, 10), (OUTSIDE, 15)].map(|(base, length)| Prefix::new(Address::V4(base), length));
        let is_beside = |prefix: &Prefix| {
            let meets = |block: &Prefix| block.contains(prefix.address()) || prefix.contains(block.address());
            !blocks.iter().any(meets)
        };
        let all = routes(false, count + count / 64 + 64, &mut random).into_iter();
        let prefixes: Vec<_> = all.filter(is_beside).take(count).collect();
        let drawn = destinations(&prefixes, &mut random);
        Self { prefixes, drawn }
    }
}

/// A packet from the host of a link to an address.
#[inline(always)]
fn of_link(random: &mut Random, destination: u32) -> Written {
    let packet = packet(random, Some(destination));
    Written {
        macs: (INSIDE_MAC, packet.macs.1),
        ..packet
    }
}

/// A gateway whose links are tagged, and its packets.
struct Tags<'m> {
    shape: Shape,
    forward: Forward<'m>,
}

impl<'m> Tags<'m> {
    fn open(
        eal: &'static Eal,
        number: u32,
        (routers, links): (u16, u16),
        destinations: &Destinations,
        memory: &'m mut Option<Region>,
    ) -> Result<Self, Failure> {
        let shape = Shape {
            links,
            routers,
            tagged: true,
        };
        let mut forward = Forward::new(eal, number, shape.plane(&destinations.prefixes)?, memory)?;
        shape.know(&mut forward.gateway)?;
        Ok(Self { shape, forward })
    }

    fn close(self) {
        self.forward.gateway.close();
    }

    fn run(&mut self, destinations: &Destinations) -> Result<(), Failure> {
        let Shape { links, routers, .. } = self.shape;
        self.forward.run(|random| {
            let (route, destination) = *random.of(&destinations.drawn);
            // Choose any link of the router to which the route belongs.
            let router = (route % u32::from(routers)) as u16;
            let link = router + routers * random.below(u64::from(links / routers)) as u16;
            let [high, low] = (TAG + link).to_be_bytes();
            let tags = Some([0x81, 0, high, low]);
            Tagged {
                frame: of_link(random, destination),
                tags,
            }
        })
    }
}

/// Measures a row for each number of routers, with the same links and routes. Each row is compared with one router in
/// the same rounds. Also measures one router with one link.
pub fn tagged(
    run: &mut Run<'_>,
    eal: &'static Eal,
    next: &mut impl FnMut() -> u32,
    count: usize,
    runs: usize,
) -> Result<(), Failure> {
    let destinations = Destinations::new(count);
    let (mut memory, mut other) = (None, None);
    let mut one = Tags::open(eal, next(), (1, LINKS), &destinations, &mut memory)?;
    for shape in [(1, 1), (10, LINKS), (100, LINKS), (LINKS, LINKS)] {
        let mut many = Tags::open(eal, next(), shape, &destinations, &mut other)?;
        for _ in 0..runs {
            one.run(&destinations)?;
            many.run(&destinations)?;
        }
        let row = many.shape.row(count).runs(&many.forward.runs);
        (run.row)(row.figure("over_one_router", &many.forward.over(&one.forward.runs)));
        many.close();
        other = None;
    }
    (run.row)(one.shape.row(count).runs(&one.forward.runs));
    one.close();
    Ok(())
}

/// Measures rows of untagged frames: each router has its own ports, and is compared with one router that has all ports.
pub fn ports(
    run: &mut Run<'_>,
    eal: &'static Eal,
    next: &mut impl FnMut() -> u32,
    count: usize,
    runs: usize,
) -> Result<(), Failure> {
    let destinations = Destinations::new(count);
    for routers in [1, PORTS] {
        let shape = Shape {
            links: PORTS,
            routers,
            tagged: false,
        };
        let plane = shape.plane(&destinations.prefixes)?;
        let mut memory = crate::rig::policy::memory(&plane)?;
        let receives = (0..PORTS).map(|link| 2 * link).collect();
        let mut gateway = Gateway::over(join(eal, next(), 2 * PORTS, 8_192)?, plane, receives, &mut memory)?;
        shape.know(&mut gateway)?;
        let of_link_addresses = |link: u16| {
            let same = |route: u32| route % u32::from(routers) == u32::from(link % routers);
            let drawn = destinations.drawn.iter().filter(|(route, _)| same(*route));
            drawn.map(|(_, destination)| *destination).collect::<Vec<_>>()
        };
        let by_link: Vec<_> = (0..PORTS).map(of_link_addresses).collect();
        let (mut random, mut all) = (Random(SEED), Runs::default());
        let mut draw = |link: u16| {
            let destination = *random.of(&by_link[usize::from(link)]);
            Some(of_link(&mut random, destination))
        };
        let mut feed = |gateway: &mut Gateway<'_>, port: u16, link: u16| {
            gateway
                .source
                .feed(&[(port, BURST)], Checksums::Vouched, |_| draw(link))
        };
        let discard = |gateway: &mut Gateway<'_>| {
            gateway.round();
            (0..PORTS)
                .map(|link| gateway.source.discard(2 * link + 1))
                .sum::<usize>()
        };
        for _ in 0..runs {
            let rounds = PACKETS / BURST;
            let begin = tsc::now();
            for round in 0..rounds {
                feed(&mut gateway, 2 * PORTS, round as u16 % PORTS);
                gateway.source.discard(2 * PORTS);
            }
            let base = (tsc::now() - begin) as f64 / (rounds * BURST) as f64;
            let (mut sent, mut came) = (0, 0);
            for round in 0..LAG / BURST {
                let link = round as u16 % PORTS;
                sent += feed(&mut gateway, 2 * link, link);
            }
            let rounds = PACKETS / BURST / usize::from(PORTS);
            let begin = tsc::now();
            for _ in 0..rounds {
                sent += (0..PORTS).map(|link| feed(&mut gateway, 2 * link, link)).sum::<usize>();
                came += discard(&mut gateway);
            }
            let looped = (tsc::now() - begin) as f64 / (rounds * BURST * usize::from(PORTS)) as f64;
            came += (0..2 * LAG / BURST).map(|_| discard(&mut gateway)).sum::<usize>();
            if sent != came {
                return Err(format!("{sent} packets went in and {came} came out").into());
            }
            add_cost(&mut all, looped, base);
        }
        (run.row)(shape.row(count).runs(&all));
        gateway.close();
    }
    Ok(())
}
