//! What a tunnel costs a packet of 64 bytes that goes into it, or comes out of it.

use sluice_dpdk::Devices;
use sluice_dpdk::eal::Eal;
use sluice_dpdk::memory::Region;
use sluice_engine::packet::io::NO_PORT;
use sluice_engine::snapshot::Snapshot;
use sluice_engine::snapshot::tunnels::{Tunnel, TunnelKind};
use sluice_route::{Address, Prefix, Route, RouteSet, Via};
use sluice_wire::tunnel::vxlan;
use sluice_wire::{checksum, ethernet, ipv4};

use super::forward::{Costs, once};
use super::lookup::number4;
use super::{Failure, SEED};
use crate::nat_path::flows::{FRAME, HOST_MAC, Hosts, INSIDE_MAC, ROUTER_MAC, Random, Written, data, write};
use crate::nat_path::rig::{self, Gateway, Job, Source};
use crate::nat_path::rules;
use crate::nat_path::wire::Wire;
use crate::rows::{Row, Run};

/// The tunnel's interface, behind those of the ports.
const TUNNEL: u16 = 2;
const MAC: [u8; 6] = [2, 0, 0, 0, 3, 1];
const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 3, 2];
const IDENTIFIER: u32 = 42;
/// The other end.
const REMOTE: u32 = 0xc633_6409;
/// The tunnel's network, and who is at its other end.
const OWN: u32 = 0x0a63_0001;
const FAR: u32 = 0x0a63_0002;

/// Which way packets take the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Through {
    /// There is none.
    Nothing,
    /// There is one, and they do not take it.
    Beside,
    /// They come in plain and leave by it.
    Out,
    /// They come in by it and leave plain.
    In,
}

const fn name(kind: TunnelKind) -> &'static str {
    match kind {
        TunnelKind::Vxlan(_) => "vxlan",
        TunnelKind::Gre => "gre",
        TunnelKind::Ipip => "ipip",
    }
}

/// The frame that the other end sends to `local`.
#[derive(Clone, Copy)]
struct Wrapped {
    written: Written,
    kind: TunnelKind,
    local: u32,
}

impl Wrapped {
    fn shim(&self) -> usize {
        match self.kind {
            TunnelKind::Vxlan(_) => 16,
            TunnelKind::Gre => 4,
            TunnelKind::Ipip => 0,
        }
    }
}

impl Wire for Wrapped {
    const FAMILY: u32 = 4;
    const LENGTH: usize = FRAME + ipv4::LENGTH;
    const SOURCE: usize = 26;
    const SOURCE_PORT: usize = 34;

    #[inline(always)]
    fn length(&self) -> usize {
        let link = if matches!(self.kind, TunnelKind::Vxlan(_)) {
            ethernet::LENGTH
        } else {
            0
        };
        Self::LENGTH + self.shim() + link
    }

    #[inline(always)]
    fn write(&self, frame: &mut [u8]) {
        let mut plain = [0; FRAME];
        write(&mut plain, &self.written);
        let inside = match self.kind {
            TunnelKind::Vxlan(_) => &plain[..],
            _ => &plain[ethernet::LENGTH..],
        };
        let whole = (ipv4::LENGTH + self.shim() + inside.len()) as u16;
        let protocol = match self.kind {
            TunnelKind::Vxlan(_) => 17,
            TunnelKind::Gre => 47,
            TunnelKind::Ipip => 4,
        };
        let (link, rest) = frame.split_at_mut(ethernet::LENGTH);
        link[..6].copy_from_slice(&INSIDE_MAC);
        link[6..12].copy_from_slice(&HOST_MAC);
        link[12..].copy_from_slice(&[8, 0]);
        let (network, rest) = rest.split_at_mut(ipv4::LENGTH);
        network[..12].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0]);
        network[2..4].copy_from_slice(&whole.to_be_bytes());
        network[12..16].copy_from_slice(&REMOTE.to_be_bytes());
        network[16..].copy_from_slice(&self.local.to_be_bytes());
        let sum = checksum::checksum(network);
        network[10..12].copy_from_slice(&sum.to_be_bytes());
        let (shim, rest) = rest.split_at_mut(self.shim());
        match self.kind {
            TunnelKind::Vxlan(port) => {
                let from = 49_152 | self.written.mark as u16 & 0x3fff;
                shim[..2].copy_from_slice(&from.to_be_bytes());
                shim[2..4].copy_from_slice(&port.to_be_bytes());
                shim[4..6].copy_from_slice(&(whole - ipv4::LENGTH as u16).to_be_bytes());
                // RFC 7348, section 5: no checksum.
                shim[6..8].fill(0);
                vxlan::write(&mut shim[8..], IDENTIFIER);
            }
            TunnelKind::Gre => shim.copy_from_slice(&[0, 0, 8, 0]),
            TunnelKind::Ipip => {}
        }
        rest[..inside.len()].copy_from_slice(inside);
    }
}

/// A tunnel whose outer packets come and go by an interface with this address.
fn tunnel(kind: TunnelKind, underlay: u16, local: Address) -> Tunnel {
    Tunnel {
        kind,
        local,
        remote: Address::V4(REMOTE),
        id: matches!(kind, TunnelKind::Vxlan(_)).then_some(IDENTIFIER),
        ttl: 64,
        underlay,
    }
}

/// The policy and its routes; `through` says by which way everything leaves.
fn policy(kind: TunnelKind, through: Through) -> Result<(Snapshot, RouteSet), Failure> {
    let mut interfaces = rules::interfaces(Job::Forward)?;
    let neighbours = rules::neighbours(Job::Forward)?;
    let underlay = usize::from(through != Through::In);
    let mut routes = Vec::new();
    let mut route = |prefix, length, address| {
        let via = Via::Gateway {
            address,
            interface: None,
        };
        routes.push(Route::new(Prefix::new(Address::V4(prefix), length), via));
    };
    if through != Through::Nothing {
        let mut interface = interfaces[0].clone();
        let tunnel = tunnel(kind, underlay as u16, interfaces[underlay].link.addresses[0].0);
        interface.name = "tunnel".into();
        (interface.port, interface.mac, interface.link.index) = (NO_PORT, MAC, TUNNEL);
        interface.mtu -= tunnel.overhead() as u16;
        interface.link.addresses = vec![(Address::V4(OWN), 24)];
        interface.tunnel = Some(tunnel);
        interfaces.push(interface);
        route(REMOTE, 32, neighbours[underlay]);
    }
    let out = match through {
        Through::Out => Address::V4(FAR),
        _ => neighbours[1],
    };
    route(0, 0, out);
    let links: Vec<_> = interfaces.iter().map(|interface| interface.link.clone()).collect();
    let routes = RouteSet::new(&links, &routes)?;
    Ok((Snapshot::new(2, interfaces), routes))
}

/// A gateway with or without a tunnel, and what its packets cost.
struct Bench<'m> {
    kind: TunnelKind,
    through: Through,
    /// This end's address where packets come in by the tunnel.
    local: u32,
    source: Source,
    devices: Devices,
    gateway: Gateway<'m>,
    random: Random,
    costs: Costs,
}

impl<'m> Bench<'m> {
    fn open(
        eal: &'static Eal,
        number: u32,
        (kind, through): (TunnelKind, Through),
        memory: &'m mut Option<Region>,
    ) -> Result<Self, Failure> {
        let (source, devices, hand) = rig::join(eal, number)?;
        let (policy, routes) = policy(kind, through)?;
        let local = number4(policy.interfaces[0].link.addresses[0].0);
        let plane = rig::plane_of_routers(policy, &[routes])?;
        let memory = memory.insert(rig::memory(&plane)?);
        let mut gateway = Gateway::over(plane, hand, vec![0, 1], memory)?;
        let neighbours = rules::neighbours(Job::Forward)?;
        for ((interface, address), mac) in (0..).zip(neighbours).zip([HOST_MAC, ROUTER_MAC]) {
            gateway.know(interface, address, mac)?;
        }
        if through != Through::Nothing && matches!(kind, TunnelKind::Vxlan(_)) {
            gateway.know(TUNNEL, Address::V4(FAR), FAR_MAC)?;
        }
        Ok(Self {
            kind,
            through,
            local,
            source,
            devices,
            gateway,
            random: Random(SEED),
            costs: Costs::default(),
        })
    }

    /// One run.
    fn run(&mut self) -> Result<(), Failure> {
        let (random, kind, local) = (&mut self.random, self.kind, self.local);
        let mut plain = || data(Hosts::Sixteen, random.below(8_000), None);
        let cost = match self.through {
            Through::In => once(&mut self.source, &mut self.gateway, |_| Wrapped {
                written: Written {
                    macs: (MAC, FAR_MAC),
                    ..plain()
                },
                kind,
                local,
            })?,
            _ => once(&mut self.source, &mut self.gateway, |_| plain())?,
        };
        self.costs.add(cost);
        Ok(())
    }

    fn row(&self) -> Row {
        let row = Row::new("forward").key("family", 4).key("routers", 1).key("routes", 1);
        let row = match self.through {
            Through::Nothing => row.key("tunnel", "none").key("tunnels", 0),
            Through::Beside => row.key("tunnel", "none").key("tunnels", 1),
            Through::Out => row
                .key("tunnel", name(self.kind))
                .key("tunnels", 1)
                .key("direction", "out"),
            Through::In => row
                .key("tunnel", name(self.kind))
                .key("tunnels", 1)
                .key("direction", "in"),
        };
        self.costs.row(row)
    }

    fn close(self) {
        drop(self.gateway);
        self.source.close();
        drop(Devices::close(self.devices));
    }
}

/// Rows of every type and direction, and of packets that take none, each beside a router without tunnels in the same rounds.
pub fn tunnels(
    run: &mut Run<'_>,
    eal: &'static Eal,
    next: &mut impl FnMut() -> u32,
    runs: usize,
) -> Result<(), Failure> {
    let kinds = [TunnelKind::Vxlan(vxlan::PORT), TunnelKind::Gre, TunnelKind::Ipip];
    let through = kinds.map(|kind| [Through::Out, Through::In].map(|through| (kind, through)));
    let (mut memory, mut other) = (None, None);
    let mut plain = Bench::open(eal, next(), (TunnelKind::Gre, Through::Nothing), &mut memory)?;
    for shape in [(TunnelKind::Gre, Through::Beside)]
        .into_iter()
        .chain(through.into_iter().flatten())
    {
        let mut bench = Bench::open(eal, next(), shape, &mut other)?;
        let from = plain.costs.runs().len();
        for _ in 0..runs {
            plain.run()?;
            bench.run()?;
        }
        let rounds = bench.costs.runs().iter().zip(&plain.costs.runs()[from..]);
        let ratios: Vec<_> = rounds.map(|(cost, plain)| cost / plain).collect();
        (run.row)(bench.row().figure("over_no_tunnel", &ratios));
        bench.close();
        other = None;
    }
    (run.row)(plain.row());
    plain.close();
    Ok(())
}
