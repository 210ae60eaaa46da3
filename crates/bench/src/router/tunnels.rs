//! Cost of a tunnel for a 64-byte packet that enters or leaves it.

use sluice_dpdk::eal::Eal;
use sluice_dpdk::memory::Region;
use sluice_engine::packet::io::NO_PORT;
use sluice_engine::snapshot::Snapshot;
use sluice_engine::snapshot::tunnels::{Tunnel, TunnelKind};
use sluice_route::{Address, RouteSet};
use sluice_wire::tunnel::vxlan;
use sluice_wire::{checksum, ethernet, ipv4};

use super::forward::{Forward, packet, plane};
use super::lookup::number4;
use crate::rig::frames::{Frame, HOST_MAC, INSIDE_MAC, SHORTEST, Written};
use crate::rig::policy::{Job, interfaces, neighbours, route, route_set};
use crate::rows::{Failure, Row, Run};

/// Index of the tunnel's interface, after those of the ports.
const TUNNEL: u16 = 2;
const MAC: [u8; 6] = [2, 0, 0, 0, 3, 1];
const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 3, 2];
const IDENTIFIER: u32 = 42;
/// Address of the tunnel's remote endpoint.
const REMOTE: u32 = 0xc633_6409;
/// Inner network of the tunnel, with the address of the tunnel's remote end.
const OWN: u32 = 0x0a63_0001;
const FAR: u32 = 0x0a63_0002;

/// Direction in which packets use the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Through {
    Nothing,
    /// A tunnel is configured, but packets do not use it.
    Beside,
    /// Packets arrive without encapsulation and leave through the tunnel.
    Out,
    /// Packets arrive through the tunnel and leave without encapsulation.
    In,
}

const fn name(kind: TunnelKind) -> &'static str {
    match kind {
        TunnelKind::Vxlan(_) => "vxlan",
        TunnelKind::Gre => "gre",
        TunnelKind::Ipip => "ipip",
    }
}

/// An encapsulated frame that the remote endpoint sends to `local`.
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

impl Frame for Wrapped {
    #[inline(always)]
    fn length(&self) -> usize {
        let link = if matches!(self.kind, TunnelKind::Vxlan(_)) {
            ethernet::LENGTH
        } else {
            0
        };
        SHORTEST + ipv4::LENGTH + self.shim() + link
    }

    #[inline(always)]
    fn write(&self, frame: &mut [u8]) {
        let mut plain = [0; SHORTEST];
        self.written.write(&mut plain);
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
                // The UDP checksum is zero (RFC 7348, section 5).
                shim[6..8].fill(0);
                vxlan::write(&mut shim[8..], IDENTIFIER);
            }
            TunnelKind::Gre => shim.copy_from_slice(&[0, 0, 8, 0]),
            TunnelKind::Ipip => {}
        }
        rest[..inside.len()].copy_from_slice(inside);
    }
}

/// Creates a snapshot and its routes; `through` determines the path of all packets.
fn policy(kind: TunnelKind, through: Through) -> Result<(Snapshot, RouteSet), Failure> {
    let mut interfaces = interfaces(Job::Forward)?;
    let neighbours = neighbours(Job::Forward)?.map(|(_, address, _)| address);
    let underlay = usize::from(through != Through::In);
    let mut routes = Vec::new();
    if through != Through::Nothing {
        let mut interface = interfaces[0].clone();
        let tunnel = Tunnel {
            kind,
            local: interfaces[underlay].link.addresses[0].0,
            remote: Address::V4(REMOTE),
            id: matches!(kind, TunnelKind::Vxlan(_)).then_some(IDENTIFIER),
            ttl: 64,
            underlay: underlay as u16,
        };
        interface.name = "tunnel".into();
        (interface.port, interface.mac, interface.link.index) = (NO_PORT, MAC, TUNNEL);
        interface.mtu -= tunnel.overhead() as u16;
        interface.link.addresses = vec![(Address::V4(OWN), 24)];
        interface.tunnel = Some(tunnel);
        interfaces.push(interface);
        routes.push(route(Address::V4(REMOTE), 32, neighbours[underlay]));
    }
    let out = if through == Through::Out {
        Address::V4(FAR)
    } else {
        neighbours[1]
    };
    routes.push(route(Address::V4(0), 0, out));
    let policy = Snapshot::new(2, interfaces);
    let routes = route_set(&policy, &routes)?;
    Ok((policy, routes))
}

/// A gateway with or without a tunnel, and the cost of its packets.
struct Bench<'m> {
    kind: TunnelKind,
    through: Through,
    /// Address of the local tunnel endpoint, if packets arrive through the tunnel.
    local: u32,
    forward: Forward<'m>,
}

impl<'m> Bench<'m> {
    fn open(
        eal: &'static Eal,
        number: u32,
        (kind, through): (TunnelKind, Through),
        memory: &'m mut Option<Region>,
    ) -> Result<Self, Failure> {
        let (policy, routes) = policy(kind, through)?;
        let local = number4(policy.interfaces[0].link.addresses[0].0);
        let mut forward = Forward::new(eal, number, plane(policy, &[routes])?, memory)?;
        neighbours(Job::Forward)?
            .into_iter()
            .try_for_each(|neighbour| forward.gateway.know(neighbour))?;
        if through != Through::Nothing && matches!(kind, TunnelKind::Vxlan(_)) {
            forward.gateway.know((TUNNEL, Address::V4(FAR), FAR_MAC))?;
        }
        Ok(Self {
            kind,
            through,
            local,
            forward,
        })
    }

    fn close(self) {
        self.forward.gateway.close();
    }

    fn run(&mut self) -> Result<(), Failure> {
        let (kind, local) = (self.kind, self.local);
        match self.through {
            Through::In => self.forward.run(|random| {
                let written = Written {
                    macs: (MAC, FAR_MAC),
                    ..packet(random, None)
                };
                Wrapped { written, kind, local }
            }),
            _ => self.forward.run(|random| packet(random, None)),
        }
    }

    fn row(&self) -> Row {
        let row = Row::new("forward").key("family", 4).key("routers", 1).key("routes", 1);
        let (tunnel, tunnels, direction) = match self.through {
            Through::Nothing => ("none", 0, None),
            Through::Beside => ("none", 1, None),
            Through::Out => (name(self.kind), 1, Some("out")),
            Through::In => (name(self.kind), 1, Some("in")),
        };
        let row = row
            .key("tunnel", tunnel)
            .key("tunnels", tunnels)
            .runs(&self.forward.runs);
        direction
            .into_iter()
            .fold(row, |row, direction| row.key("direction", direction))
    }
}

/// Measures rows of every tunnel type and direction, and of packets that use no tunnel, each compared with a router
/// without tunnels in the same rounds.
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
        for _ in 0..runs {
            plain.run()?;
            bench.run()?;
        }
        (run.row)(
            bench
                .row()
                .figure("over_no_tunnel", &bench.forward.over(&plain.forward.runs)),
        );
        bench.close();
        other = None;
    }
    (run.row)(plain.row());
    plain.close();
    Ok(())
}
