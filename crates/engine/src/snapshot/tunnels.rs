//! Tunnels over other networks: their endpoints, the packets that belong to them, and their path MTUs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxBuildHasher;
use sluice_route::{Address, RouterIndex};
use sluice_table::token_bucket::{SharedTokenBucket, TokenRate};
use sluice_wire::ipv4::protocol;
use sluice_wire::layers::{Class, Flags, Fragment, Layers};
use sluice_wire::tunnel::gre;
use sluice_wire::{ethernet, ipv4, ipv6, quoted, tunnel, udp};

use crate::packet::time::Now;
use crate::session::family::{Family, V4, V6};
use crate::snapshot::Interface;

/// Encapsulation of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TunnelKind {
    /// Ethernet frames in UDP with this destination port (RFC 7348).
    Vxlan(u16),
    /// IP in GRE (RFC 2784, 2890).
    Gre,
    /// IP in IP (RFC 2003, 2473, 4213).
    Ipip,
}

/// A tunnel: an interface with a link to a single remote endpoint across another network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Encapsulation of the tunnel.
    pub kind: TunnelKind,
    /// The local endpoint, which is an address of the interface `underlay`.
    pub local: Address,
    /// The remote endpoint, which belongs to the address family of the local endpoint.
    pub remote: Address,
    /// The VXLAN network identifier, or the GRE key if the tunnel has a key.
    pub id: Option<u32>,
    /// TTL or hop limit of outer packets.
    pub ttl: u8,
    /// The interface that has the address `local`. The router of this interface routes the outer packets.
    pub underlay: u16,
}

impl Tunnel {
    /// Whether the tunnel carries Ethernet frames. Otherwise it carries only IP packets.
    #[inline]
    pub fn carries_frames(&self) -> bool {
        matches!(self.kind, TunnelKind::Vxlan(_))
    }

    /// Length of the headers between the outer IP header and the inner packet, in bytes.
    #[inline]
    pub fn shim(&self) -> usize {
        match (self.kind, self.id) {
            (TunnelKind::Vxlan(_), _) => udp::LENGTH + tunnel::vxlan::LENGTH,
            (TunnelKind::Gre, Some(_)) => gre::LENGTH_WITH_KEY,
            (TunnelKind::Gre, None) => gre::LENGTH,
            (TunnelKind::Ipip, _) => 0,
        }
    }

    /// Number of bytes by which an outer IP packet is longer than the inner IP packet.
    #[inline]
    pub fn overhead(&self) -> usize {
        let outer = match self.local {
            Address::V4(_) => ipv4::LENGTH,
            Address::V6(_) => ipv6::LENGTH,
        };
        outer + self.shim() + if self.carries_frames() { ethernet::LENGTH } else { 0 }
    }
}

/// The fields of an outer packet that identify its tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TunnelTag {
    /// The router in which the outer packet arrived.
    pub router: RouterIndex,
    /// Encapsulation of the outer packet.
    pub kind: TunnelKind,
    /// Address of the local endpoint.
    pub local: Address,
    /// Address of the remote endpoint.
    pub remote: Address,
    /// VXLAN network identifier or GRE key.
    pub id: Option<u32>,
}

/// A hash without a secret is sufficient, because only the operator chooses the keys, and an attacker can't provoke
/// collisions. Each outer packet needs two lookups, so the hash must be fast.
type Keys = FxBuildHasher;

/// The tunnels of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Tunnels {
    /// The interface of a tunnel, by the fields of its outer packets.
    by_mark: HashMap<TunnelTag, u16, Keys>,
    /// Local endpoints, each listed once although it may have several remote endpoints.
    ends: HashSet<(RouterIndex, TunnelKind, Address), Keys>,
    /// For each router: whether it has local tunnel endpoints.
    routers: Vec<bool>,
    /// UDP ports of tunnels.
    ports: Vec<u16>,
    /// Path MTUs, by router, local endpoint and remote endpoint.
    forwarding: HashMap<Path, Arc<PathMtu>, Keys>,
    /// For each interface: the path MTU of the tunnel, and the number of bytes that encapsulation adds.
    of_interface: Vec<Option<(Arc<PathMtu>, u16)>>,
    /// For each interface: rate limit of answers to keepalives.
    keepalives: Arc<[SharedTokenBucket]>,
}

type Path = (RouterIndex, Address, Address);

/// Seconds for which a lowered path MTU is used (RFC 1191, 6.3; RFC 8201, 4).
const REMEMBERED: u64 = 600;

/// Rate limit of answers to a tunnel's keepalives: answers per second, and burst size. A router sends at most one
/// keepalive per second.
const KEEPALIVES: TokenRate = TokenRate::new(10, 10);

/// Path MTU of outer packets. The lowest 16 bits are the length; the other bits are the time in seconds until which
/// this length is valid.
#[derive(Debug)]
struct PathMtu(AtomicU64);

impl Default for PathMtu {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl PathMtu {
    fn get(&self, now: Now) -> Option<u16> {
        let word = self.0.load(Ordering::Relaxed);
        (word >> 16 > now.nanoseconds / 1_000_000_000).then_some(word as u16)
    }

    fn set(&self, mtu: u16, now: Now) {
        let until = now.nanoseconds / 1_000_000_000 + REMEMBERED;
        self.0.store(until << 16 | u64::from(mtu), Ordering::Relaxed);
    }
}

impl Tunnels {
    /// Creates the tunnels of interfaces, by number.
    pub fn of(interfaces: &[Interface]) -> Self {
        let mut all = Self::default();
        if interfaces.iter().all(|interface| interface.tunnel.is_none()) {
            return all;
        }
        all.of_interface = vec![None; interfaces.len()];
        let bucket = |_| SharedTokenBucket::new(KEEPALIVES);
        all.keepalives = interfaces.iter().map(bucket).collect();
        for (number, interface) in (0u16..).zip(interfaces) {
            let Some(tunnel) = &interface.tunnel else { continue };
            let Some(underlay) = interfaces.get(usize::from(tunnel.underlay)) else {
                continue;
            };
            let Tunnel {
                kind,
                local,
                remote,
                id,
                ..
            } = *tunnel;
            let router = underlay.router;
            let mark = TunnelTag {
                router,
                kind,
                local,
                remote,
                id,
            };
            all.by_mark.insert(mark, number);
            all.ends.insert((router, kind, local));
            let place = usize::from(router);
            all.routers.resize(all.routers.len().max(place + 1), false);
            all.routers[place] = true;
            if let TunnelKind::Vxlan(port) = kind
                && !all.ports.contains(&port)
            {
                all.ports.push(port);
            }
            let path = all.forwarding.entry((router, local, remote)).or_default();
            all.of_interface[usize::from(number)] = Some((path.clone(), tunnel.overhead() as u16));
        }
        all
    }

    /// Keeps the path MTUs of the previous snapshot.
    pub fn adopt(&mut self, before: &Self) {
        for (path, mtu) in &mut self.forwarding {
            if let Some(known) = before.forwarding.get(path) {
                mtu.0.store(known.0.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    /// Whether a router has local tunnel endpoints.
    #[inline(always)]
    pub fn end_in(&self, router: RouterIndex) -> bool {
        self.routers.get(usize::from(router)).is_some_and(|end| *end)
    }

    /// The interface of the tunnel to which a packet belongs.
    #[inline]
    pub fn find(&self, mark: &TunnelTag) -> Option<u16> {
        self.by_mark.get(mark).copied()
    }

    /// The encapsulation of a packet, according to its protocol and port.
    #[inline(always)]
    fn kind(&self, layers: &Layers) -> Option<TunnelKind> {
        match layers.protocol {
            protocol::UDP => {
                let port = layers.destination_port;
                self.ports.contains(&port).then_some(TunnelKind::Vxlan(port))
            }
            protocol::IPV4 | protocol::IPV6 => Some(TunnelKind::Ipip),
            protocol::GRE => Some(TunnelKind::Gre),
            _ => None,
        }
    }

    /// Whether a packet is addressed to a local tunnel endpoint of a router, or is an ICMP error for an outer packet
    /// sent from such an endpoint.
    #[inline]
    pub fn take(&self, router: RouterIndex, layers: &Layers, frame: &[u8]) -> bool {
        match self.kind(layers) {
            Some(kind) => self.ends.contains(&(router, kind, addresses(layers, frame).1)),
            None if layers.flags.has(Flags::ICMP_ERROR) => self.quoted_ends(router, layers, frame).is_some(),
            None => false,
        }
    }

    /// The encapsulation, local endpoint and remote endpoint of an outer packet that [`Tunnels::take`] has classified.
    #[inline]
    pub fn outer(&self, layers: &Layers, frame: &[u8]) -> Option<(TunnelKind, Address, Address)> {
        let (remote, local) = addresses(layers, frame);
        Some((self.kind(layers)?, local, remote))
    }

    /// The tunnel endpoints of the outer packet that an ICMP error quotes, if the gateway may have sent that packet.
    pub fn quoted_ends(&self, router: RouterIndex, layers: &Layers, frame: &[u8]) -> Option<(Address, Address)> {
        let quote = quoted(frame, layers).ok()?.layers;
        let (local, remote) = addresses(&quote, frame);
        let kind = self.kind(&quote)?;
        let is_local = layers.fragment == Fragment::Whole
            && addresses(layers, frame).1 == local
            && self.ends.contains(&(router, kind, local))
            && self.forwarding.contains_key(&(router, local, remote));
        is_local.then_some((local, remote))
    }

    /// Lowers the path MTU to `mtu`. Returns `false` if the path MTU does not change. The path MTU is never lowered
    /// below the minimum of the protocol (RFC 791, RFC 8200), so that a forged error does little harm.
    pub fn lower(&self, router: RouterIndex, (local, remote): (Address, Address), mtu: u16, now: Now) -> bool {
        let min = match local {
            Address::V4(_) => 576,
            Address::V6(_) => 1_280,
        };
        let Some(path) = self.forwarding.get(&(router, local, remote)) else {
            return false;
        };
        let mtu = mtu.max(min);
        let is_change = path.get(now).is_none_or(|known| mtu < known);
        if is_change {
            path.set(mtu, now);
        }
        is_change
    }

    /// Whether the rate limit permits an answer to a keepalive that arrived through a tunnel's interface.
    pub fn admits_keepalive(&self, number: u16, now: Now) -> bool {
        let bucket = self.keepalives.get(usize::from(number));
        bucket.is_some_and(|bucket| bucket.take(now.nanoseconds))
    }

    /// The MTU of an interface. `mtu` is its configured MTU; for a tunnel, the path MTU may require a lower result.
    #[inline]
    pub fn mtu(&self, number: u16, mtu: u16, now: Now) -> u16 {
        match self.of_interface.get(usize::from(number)) {
            Some(Some((path, overhead))) => {
                let path = path.get(now).map(|path| path.saturating_sub(*overhead));
                path.map_or(mtu, |path| mtu.min(path))
            }
            _ => mtu,
        }
    }
}

/// Source and destination of a packet.
#[inline]
pub fn addresses(layers: &Layers, frame: &[u8]) -> (Address, Address) {
    if layers.class == Class::Ipv6 {
        let (source, destination) = V6::addresses(layers, frame);
        return (V6::address(source), V6::address(destination));
    }
    let (source, destination) = V4::addresses(layers, frame);
    (V4::address(source), V4::address(destination))
}
