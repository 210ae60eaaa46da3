//! Packets over many virtual routers beside the same packets over one: the same frames, destinations and number of routes.

use sluice_dpdk::eal::Eal;
use sluice_dpdk::memory::Region;
use sluice_dpdk::{Devices, tsc};
use sluice_engine::policy::{Interface, Policy, Router};
use sluice_route::{Address, Prefix, Route, RouteSet, Via};
use sluice_wire::Checksums;
use sluice_wire::vlan::Tag;

use super::forward::{Costs, DESTINATIONS, once};
use super::internet::{address_of, routes};
use super::lookup::number4;
use super::{Failure, SEED};
use crate::nat_path::flows::{FRAME, Hosts, INSIDE_MAC, ROUTER_MAC, Random, Written, data, write};
use crate::nat_path::rig::{self, Gateway, Job, LAG, Source};
use crate::nat_path::rules;
use crate::nat_path::wire::Wire;
use crate::rows::{Row, Run};

/// Links: each is an interface inside and one outside, whichever router they belong to.
const LINKS: u16 = 1_000;
/// Links whose interfaces are ports.
const PORTS: u16 = 6;
/// The first tag.
const TAG: u16 = 2;
/// Packets of a run over ports.
const PACKETS: usize = 1 << 20;

/// A frame with a tag: 68 bytes on the wire.
#[derive(Clone, Copy)]
pub struct Tagged {
    written: Written,
    tag: u16,
}

impl Wire for Tagged {
    const FAMILY: u32 = 4;
    const LENGTH: usize = FRAME + 4;
    const SOURCE: usize = 30;
    const SOURCE_PORT: usize = 38;

    #[inline(always)]
    fn write(&self, frame: &mut [u8]) {
        if let Some(frame) = frame.first_chunk_mut::<{ FRAME + 4 }>() {
            let mut plain = [0; FRAME];
            write(&mut plain, &self.written);
            frame[..12].copy_from_slice(&plain[..12]);
            frame[12..14].copy_from_slice(&[0x81, 0]);
            frame[14..16].copy_from_slice(&self.tag.to_be_bytes());
            frame[16..].copy_from_slice(&plain[12..]);
        }
    }
}

/// Networks of four addresses, another for each interface: all of them fit into one router too.
fn address(base: u32, link: u16, host: u32) -> Address {
    Address::V4(base + 4 * u32::from(link) + host)
}

const INSIDE: u32 = 0x6440_0000;
const OUTSIDE: u32 = 0xc612_0000;

/// So many links dealt to so many routers in turn, tagged on two ports or each on ports of its own.
#[derive(Clone, Copy, Debug)]
struct Shape {
    links: u16,
    routers: u16,
    tagged: bool,
}

impl Shape {
    fn interfaces(&self) -> Result<Vec<Interface>, Failure> {
        let usual = rules::interfaces(Job::Forward)?;
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

    /// The route with this number leads out by the link of the same number, begun again from the first: its router is that of
    /// all links that packets to it come in by.
    fn route(&self, number: usize, prefix: Prefix) -> (u16, Route) {
        let link = (number % usize::from(self.links)) as u16;
        let via = Via::Gateway {
            address: address(OUTSIDE, link, 2),
            interface: None,
        };
        (link % self.routers, Route::new(prefix, via))
    }

    /// A gateway with these routes, which knows all neighbours.
    fn gateway<'m>(
        &self,
        prefixes: &[Prefix],
        hand: sluice_dpdk::DpdkIo,
        memory: &'m mut Option<Region>,
    ) -> Result<Gateway<'m>, Failure> {
        let interfaces = self.interfaces()?;
        let mut configured = vec![Vec::new(); self.routers.into()];
        for (number, &prefix) in prefixes.iter().enumerate() {
            let (router, route) = self.route(number, prefix);
            configured[usize::from(router)].push(route);
        }
        let sets = (0..self.routers).zip(&configured).map(|(router, routes)| {
            let own = interfaces.iter().filter(|interface| interface.router == router);
            let links: Vec<_> = own.map(|interface| interface.link.clone()).collect();
            RouteSet::new(&links, routes)
        });
        let sets = sets.collect::<Result<Vec<_>, _>>()?;
        let ports = if self.tagged { 2 } else { 2 * self.links };
        let mut policy = Policy::new(ports.into(), interfaces);
        policy.routers = vec![Router::default(); self.routers.into()];
        policy.hosts = vec![Default::default(); self.routers.into()];
        let plane = rig::plane_of_routers(policy, &sets)?;
        let memory = memory.insert(rig::memory(&plane)?);
        let receives = (0..ports).step_by(if self.tagged { 1 } else { 2 }).collect();
        let mut gateway = Gateway::over(plane, hand, receives, memory)?;
        for link in 0..self.links {
            gateway.know(2 * link + 1, address(OUTSIDE, link, 2), ROUTER_MAC)?;
        }
        Ok(gateway)
    }
}

/// Routes, and addresses of them with their routes' numbers.
struct Destinations {
    prefixes: Vec<Prefix>,
    drawn: Vec<(u32, u32)>,
}

impl Destinations {
    fn new(count: usize) -> Self {
        let mut random = Random(SEED);
        let blocks = [(INSIDE, 10), (OUTSIDE, 15)].map(|(base, length)| Prefix::new(Address::V4(base), length));
        // Beside the links' networks, all of which have a longer prefix than any that holds them.
        let all = routes(false, count + count / 64 + 64, &mut random).into_iter();
        let prefixes: Vec<_> = all
            .filter(|prefix| {
                let meets = |block: &Prefix| block.contains(prefix.address()) || prefix.contains(block.address());
                !blocks.iter().any(meets)
            })
            .take(count)
            .collect();
        let drawn = (0..DESTINATIONS).map(|_| {
            let number = random.below(prefixes.len() as u64);
            (number, number4(address_of(prefixes[number as usize], &mut random)))
        });
        let drawn = drawn.collect();
        Self { prefixes, drawn }
    }
}

/// A frame of a link's host to an address.
#[inline(always)]
fn frame(random: &mut Random, destination: u32) -> Written {
    let data = data(Hosts::Sixteen, random.below(8_000), None);
    Written {
        destination: (destination, data.destination.1),
        macs: (INSIDE_MAC, data.macs.1),
        ..data
    }
}

/// A gateway with tagged links, and the packets that it gets.
struct Tags<'m> {
    shape: Shape,
    source: Source,
    devices: Devices,
    gateway: Gateway<'m>,
    random: Random,
    costs: Costs,
}

impl<'m> Tags<'m> {
    fn open(
        eal: &'static Eal,
        number: u32,
        shape: Shape,
        destinations: &Destinations,
        memory: &'m mut Option<Region>,
    ) -> Result<Self, Failure> {
        let (source, devices, hand) = rig::join(eal, number)?;
        Ok(Self {
            gateway: shape.gateway(&destinations.prefixes, hand, memory)?,
            shape,
            source,
            devices,
            random: Random(SEED),
            costs: Costs::default(),
        })
    }

    /// One run.
    fn run(&mut self, destinations: &Destinations) -> Result<(), Failure> {
        let (random, Shape { links, routers, .. }) = (&mut self.random, self.shape);
        let cost = once(&mut self.source, &mut self.gateway, |_| {
            let (route, destination) = destinations.drawn[random.below(DESTINATIONS as u64) as usize];
            // Any link of the route's router.
            let router = (route % u32::from(routers)) as u16;
            let link = router + routers * random.below(u64::from(links / routers)) as u16;
            Tagged {
                written: frame(random, destination),
                tag: TAG + link,
            }
        })?;
        self.costs.add(cost);
        Ok(())
    }

    fn close(self) {
        drop(self.gateway);
        self.source.close();
        drop(Devices::close(self.devices));
    }
}

/// Rows by the number of routers that the same links and routes are of, each beside one router in the same rounds; and of one
/// router that has one link.
pub fn tagged(
    run: &mut Run<'_>,
    eal: &'static Eal,
    next: &mut impl FnMut() -> u32,
    count: usize,
    runs: usize,
) -> Result<(), Failure> {
    let destinations = Destinations::new(count);
    let shape = |routers, links| Shape {
        links,
        routers,
        tagged: true,
    };
    let (mut memory, mut other) = (None, None);
    let mut one = Tags::open(eal, next(), shape(1, LINKS), &destinations, &mut memory)?;
    for (routers, links) in [(1, 1), (10, LINKS), (100, LINKS), (LINKS, LINKS)] {
        let mut many = Tags::open(eal, next(), shape(routers, links), &destinations, &mut other)?;
        let from = one.costs.runs().len();
        for _ in 0..runs {
            one.run(&destinations)?;
            many.run(&destinations)?;
        }
        let rounds = many.costs.runs().iter().zip(&one.costs.runs()[from..]);
        let ratios: Vec<_> = rounds.map(|(many, one)| many / one).collect();
        let row = many.costs.row(key(&many.shape, count));
        (run.row)(row.figure("over_one_router", &ratios));
        many.close();
        other = None;
    }
    (run.row)(one.costs.row(key(&one.shape, count)));
    one.close();
    Ok(())
}

fn key(shape: &Shape, count: usize) -> Row {
    Row::new("forward")
        .key("fib", "ours")
        .key("family", 4)
        .key("routers", shape.routers)
        .key("routes", count)
        .key("links", shape.links)
        .key("tagged", shape.tagged)
}

/// Rows of untagged frames: each router has ports of its own, beside one that has them all.
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
        let (mut source, devices, hand) = rig::join_by(eal, next(), 2 * PORTS, 8_192)?;
        let mut memory = None;
        let mut gateway = shape.gateway(&destinations.prefixes, hand, &mut memory)?;
        let mut random = Random(SEED);
        let of_link = |link: u16| {
            let same = |route: u32| route % u32::from(routers) == u32::from(link % routers);
            let drawn = destinations.drawn.iter().filter(|(route, _)| same(*route));
            drawn.map(|(_, destination)| *destination).collect::<Vec<_>>()
        };
        let by_link: Vec<_> = (0..PORTS).map(of_link).collect();
        let mut draw = |link: u16| {
            let destinations = &by_link[usize::from(link)];
            let destination = destinations[random.below(destinations.len() as u64) as usize];
            Some(frame(&mut random, destination))
        };
        let mut costs = Costs::default();
        for _ in 0..runs {
            let rounds = PACKETS / 64;
            let begin = tsc::now();
            for round in 0..rounds {
                let link = round as u16 % PORTS;
                source.feed(&[(2 * PORTS, 64)], Checksums::Vouched, |_| draw(link));
                source.discard(2 * PORTS);
            }
            let base = (tsc::now() - begin) as f64 / (rounds * 64) as f64;
            let (mut sent, mut came) = (0, 0);
            for round in 0..LAG / 64 {
                let link = round as u16 % PORTS;
                sent += source.feed(&[(2 * link, 64)], Checksums::Vouched, |_| draw(link));
            }
            let rounds = PACKETS / 64 / usize::from(PORTS);
            let begin = tsc::now();
            for _ in 0..rounds {
                for link in 0..PORTS {
                    sent += source.feed(&[(2 * link, 64)], Checksums::Vouched, |_| draw(link));
                }
                let now = gateway.now();
                gateway.worker.round(now);
                for link in 0..PORTS {
                    came += source.discard(2 * link + 1);
                }
            }
            let looped = (tsc::now() - begin) as f64 / (rounds * 64 * usize::from(PORTS)) as f64;
            for _ in 0..2 * LAG / 64 {
                let now = gateway.now();
                gateway.worker.round(now);
                for link in 0..PORTS {
                    came += source.discard(2 * link + 1);
                }
            }
            if sent != came {
                return Err(format!("{sent} packets went in and {came} came out").into());
            }
            costs.add([looped, base]);
        }
        (run.row)(costs.row(key(&shape, count)));
        drop(gateway);
        source.close();
        drop(Devices::close(devices));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tagged_frame_is_the_plain_one_with_a_tag_behind_its_addresses() {
        let written = frame(&mut Random(SEED), 0x0808_0808);
        let mut plain = [0; FRAME];
        write(&mut plain, &written);
        let mut tagged = [0; FRAME + 4];
        Tagged { written, tag: 77 }.write(&mut tagged);
        let expected = [&plain[..12], &[0x81, 0, 0, 77], &plain[12..]].concat();
        assert_eq!(expected, tagged);
    }
}
