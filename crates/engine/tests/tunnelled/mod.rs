//! A gateway with a tunnel on its outside interface, and outer packets that an independent library builds.
#![allow(dead_code, reason = "each test file uses its part")]

use std::cell::Cell;
use std::net::IpAddr;

use sluice_engine::packet::io::NO_PORT;
use sluice_engine::snapshot::Interface;
use sluice_engine::snapshot::tunnels::{Tunnel, TunnelKind};
use sluice_route::Via;
use sluice_testkit::packet::{self, Frame, IpNumber, Network, Transport};

use crate::rig::{OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, plain, route};

/// Number of the tunnel's interface.
pub const TUNNEL: u16 = 2;
/// MAC address of the tunnel's interface.
pub const MAC: [u8; 6] = [2, 0, 0, 0, 3, 1];
/// The MAC of the remote host of a VXLAN tunnel.
pub const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 3, 2];

thread_local! {
    static PLANNED: Cell<Option<(Tunnel, u16)>> = const { Cell::new(None) };
}

/// A tunnel between the default endpoints of the tests.
pub fn tunnel(kind: TunnelKind, id: Option<u32>, v6: bool) -> Tunnel {
    let (local, remote) = match v6 {
        false => ("203.0.113.1", "198.51.100.9"),
        true => ("2001:db8:2::1", "2001:db8:9::9"),
    };
    Tunnel {
        kind,
        local: plain(local),
        remote: plain(remote),
        id,
        ttl: 47,
        underlay: OUTSIDE,
    }
}

/// Tunnels of every type, over both families.
pub fn all() -> Vec<Tunnel> {
    let types = [
        (TunnelKind::Vxlan(4789), Some(0x00ab_cdef)),
        (TunnelKind::Gre, None),
        (TunnelKind::Gre, Some(0xfeed_0042)),
        (TunnelKind::Ipip, None),
    ];
    let both = types
        .iter()
        .flat_map(|&(kind, id)| [false, true].map(|v6| tunnel(kind, id, v6)));
    both.collect()
}

fn add(interfaces: &mut Vec<Interface>) {
    let (tunnel, mtu) = PLANNED.get().expect("a tunnel");
    let mut interface = interfaces[0].clone();
    interface.name = "tunnel".into();
    interface.port = NO_PORT;
    interface.mac = MAC;
    interface.mtu = mtu;
    interface.link.index = TUNNEL;
    interface.link.addresses = vec![(plain("10.99.0.1"), 24), (plain("2001:db8:99::1"), 64)];
    interface.tunnel = Some(tunnel);
    interfaces.push(interface);
}

/// A plan with a tunnel. Routes for 10.77.0.0/16 and 2001:db8:77::/48 use the tunnel.
pub fn plan(tunnel: Tunnel) -> Plan {
    PLANNED.set(Some((tunnel, 1500 - tunnel.overhead() as u16)));
    let via = |address| Via::Gateway {
        address: plain(address),
        interface: Some(TUNNEL),
    };
    Plan {
        translate: false,
        interfaces: add,
        routes: vec![
            route("10.77.0.0", 16, via("10.99.0.2")),
            route("2001:db8:77::", 48, via("2001:db8:99::2")),
        ],
        ..Plan::default()
    }
}

/// The gateway of a plan. The remote host of a VXLAN tunnel is a configured neighbour.
pub fn started(plan: Plan) -> Rig {
    let (tunnel, _) = PLANNED.get().expect("a tunnel");
    let mut rig = Rig::new(plan);
    if tunnel.carries_frames() {
        rig.know(TUNNEL, plain("10.99.0.2"), FAR_MAC);
        rig.know(TUNNEL, plain("2001:db8:99::2"), FAR_MAC);
    }
    rig
}

/// A gateway with a tunnel.
pub fn rig(tunnel: Tunnel) -> Rig {
    started(plan(tunnel))
}

/// The header between the outer IP or UDP header and the inner packet.
pub fn shim(tunnel: &Tunnel, six_inside: bool) -> Vec<u8> {
    let inside: [u8; 2] = if six_inside { [0x86, 0xdd] } else { [8, 0] };
    match (tunnel.kind, tunnel.id) {
        (TunnelKind::Vxlan(_), id) => [[8, 0, 0, 0], (id.unwrap() << 8).to_be_bytes()].concat(),
        (TunnelKind::Gre, None) => [[0, 0], inside].concat(),
        (TunnelKind::Gre, Some(key)) => [&[0x20, 0], &inside[..], &key.to_be_bytes()].concat(),
        (TunnelKind::Ipip, _) => Vec::new(),
    }
}

/// The outer packet of a tunnel, with this payload. `ends` contains its source and destination. `port` is the source
/// port of a VXLAN packet.
pub fn outer(tunnel: &Tunnel, ends: [sluice_route::Address; 2], six_inside: bool, port: u16, payload: &[u8]) -> Frame {
    let transport = match tunnel.kind {
        TunnelKind::Vxlan(to) => Transport::Udp(port, to),
        TunnelKind::Gre => Transport::Raw(IpNumber(47)),
        TunnelKind::Ipip => Transport::Raw(IpNumber(if six_inside { 41 } else { 4 })),
    };
    let frame = match ends.map(IpAddr::from) {
        [IpAddr::V4(from), IpAddr::V4(to)] => packet::frame4(from, to, transport),
        [IpAddr::V6(from), IpAddr::V6(to)] => packet::frame6(from, to, transport),
        _ => panic!("ends of two families"),
    };
    frame.ttl(tunnel.ttl).payload(payload)
}

/// The inner packet of a frame. The inner packet has no Ethernet header if the tunnel carries only IP.
pub fn inside(tunnel: &Tunnel, frame: &Frame) -> Vec<u8> {
    let bytes = frame.build();
    let carried = if tunnel.carries_frames() {
        &bytes[..]
    } else {
        &bytes[14..]
    };
    let v6 = matches!(frame.network, Network::V6(..));
    [shim(tunnel, v6), carried.to_vec()].concat()
}

/// The outer packet in which the remote endpoint sends a frame.
pub fn arriving(tunnel: &Tunnel, frame: &Frame) -> Frame {
    let v6 = matches!(frame.network, Network::V6(..));
    let frame = frame.clone().macs(FAR_MAC, MAC);
    outer(
        tunnel,
        [tunnel.remote, tunnel.local],
        v6,
        50_000,
        &inside(tunnel, &frame),
    )
    .macs(ROUTER_MAC, OUTSIDE_MAC)
}

/// Sets the type of service or traffic class of a frame.
pub fn service(mut frame: Frame, service: u8) -> Frame {
    match &mut frame.network {
        Network::V4(header) => {
            header.dscp = (service >> 2).try_into().unwrap();
            header.ecn = (service & 3).try_into().unwrap();
        }
        Network::V6(header, _) => header.traffic_class = service,
    }
    frame
}
