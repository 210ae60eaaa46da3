//! Tunnels over other networks: where they begin and end, which packets are theirs, and how much fits their paths.

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

/// How a tunnel wraps what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TunnelKind {
    /// Ethernet frames in UDP to this port (RFC 7348).
    Vxlan(u16),
    /// IP behind a GRE header (RFC 2784, 2890).
    Gre,
    /// IP in IP (RFC 2003, 2473, 4213).
    Ipip,
}

/// A tunnel: an interface whose link leads over another network to one other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// How it wraps.
    pub kind: TunnelKind,
    /// This end: an address of the interface `underlay`.
    pub local: Address,
    /// The other end, of the same family.
    pub remote: Address,
    /// VXLAN's network identifier, or GRE's key where there is one.
    pub id: Option<u32>,
    /// Time to live, or hop limit, of outer packets.
    pub ttl: u8,
    /// The interface that has `local`. Outer packets are routed in its router.
    pub underlay: u16,
}

impl Tunnel {
    /// Whether it carries Ethernet frames; otherwise IP alone.
    #[inline]
    pub fn carries_frames(&self) -> bool {
        matches!(self.kind, TunnelKind::Vxlan(_))
    }

    /// Bytes of the header that stands behind the outer IP header.
    #[inline]
    pub fn shim(&self) -> usize {
        match (self.kind, self.id) {
            (TunnelKind::Vxlan(_), _) => udp::LENGTH + tunnel::vxlan::LENGTH,
            (TunnelKind::Gre, Some(_)) => gre::LENGTH_WITH_KEY,
            (TunnelKind::Gre, None) => gre::LENGTH,
            (TunnelKind::Ipip, _) => 0,
        }
    }

    /// Bytes by which outer IP packets are longer than inner ones.
    #[inline]
    pub fn overhead(&self) -> usize {
        let outer = match self.local {
            Address::V4(_) => ipv4::LENGTH,
            Address::V6(_) => ipv6::LENGTH,
        };
        outer + self.shim() + if self.carries_frames() { ethernet::LENGTH } else { 0 }
    }
}

/// What an outer packet says of its tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TunnelTag {
    /// The router that it came in by.
    pub router: RouterIndex,
    /// How it wraps.
    pub kind: TunnelKind,
    /// The end that it is for.
    pub local: Address,
    /// The end that it is from.
    pub remote: Address,
    /// Network identifier or key.
    pub id: Option<u32>,
}

/// Keys are the operator's own, whoever asks: nobody can choose those that collide, and each outer packet asks twice.
type Keys = FxBuildHasher;

/// The tunnels of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Tunnels {
    /// By mark: the tunnel's interface.
    by_mark: HashMap<TunnelTag, u16, Keys>,
    /// Ends here, whoever the others are.
    ends: HashSet<(RouterIndex, TunnelKind, Address), Keys>,
    /// By router: whether tunnels end in it.
    routers: Vec<bool>,
    /// UDP ports of tunnels.
    ports: Vec<u16>,
    /// Paths by router, this end and the other.
    paths: HashMap<Path, Arc<PathMtu>, Keys>,
    /// By interface: the tunnel's path, and the bytes by which outer packets are longer.
    of_interface: Vec<Option<(Arc<PathMtu>, u16)>>,
    /// By interface.
    keepalives: Arc<[SharedTokenBucket]>,
}

type Path = (RouterIndex, Address, Address);

/// Seconds for which a lower MTU counts (RFC 1191, 6.3; RFC 8201, 4).
const REMEMBERED: u64 = 600;

/// Keepalives of a tunnel that are answered, a second and at once. Routers send one each second at most.
const KEEPALIVES: TokenRate = TokenRate::new(10, 10);

/// Largest outer packet that a path takes: second until which that counts, and bytes in the lowest 16 bits.
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
    /// Of interfaces by number.
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
            let path = all.paths.entry((router, local, remote)).or_default();
            all.of_interface[usize::from(number)] = Some((path.clone(), tunnel.overhead() as u16));
        }
        all
    }

    /// Take over what was found out about paths that were there before.
    pub fn adopt(&mut self, before: &Self) {
        for (path, mtu) in &mut self.paths {
            if let Some(known) = before.paths.get(path) {
                mtu.0.store(known.0.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    /// Whether tunnels end in a router.
    #[inline(always)]
    pub fn end_in(&self, router: RouterIndex) -> bool {
        self.routers.get(usize::from(router)).is_some_and(|end| *end)
    }

    /// The tunnel that a packet is of: its interface.
    #[inline]
    pub fn find(&self, mark: &TunnelTag) -> Option<u16> {
        self.by_mark.get(mark).copied()
    }

    /// How a packet wraps what it may carry, by its protocol and port.
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

    /// Whether a packet of a router in which tunnels end is addressed to such an end, or tells of an outer packet from one.
    #[inline]
    pub fn take(&self, router: RouterIndex, layers: &Layers, frame: &[u8]) -> bool {
        match self.kind(layers) {
            Some(kind) => self.ends.contains(&(router, kind, addresses(layers, frame).1)),
            None if layers.flags.has(Flags::ICMP_ERROR) => self.quoted_ends(router, layers, frame).is_some(),
            None => false,
        }
    }

    /// The kind of a packet that [`Tunnels::take`] takes as an outer packet, and the ends that it leads to and comes from.
    #[inline]
    pub fn outer(&self, layers: &Layers, frame: &[u8]) -> Option<(TunnelKind, Address, Address)> {
        let (remote, local) = addresses(layers, frame);
        Some((self.kind(layers)?, local, remote))
    }

    /// The ends of the outer packet that an ICMP error quotes, where it was one that may have been sent from here.
    pub fn quoted_ends(&self, router: RouterIndex, layers: &Layers, frame: &[u8]) -> Option<(Address, Address)> {
        let quote = quoted(frame, layers).ok()?.layers;
        let (local, remote) = addresses(&quote, frame);
        let kind = self.kind(&quote)?;
        let is_ours = layers.fragment == Fragment::Whole
            && addresses(layers, frame).1 == local
            && self.ends.contains(&(router, kind, local))
            && self.paths.contains_key(&(router, local, remote));
        is_ours.then_some((local, remote))
    }

    /// A path takes outer packets of `mtu` bytes only. False where that is nothing new. No less is believed than everybody must
    /// take (RFC 791, RFC 8200), so that a forged error does little harm.
    pub fn lower(&self, router: RouterIndex, (local, remote): (Address, Address), mtu: u16, now: Now) -> bool {
        let least = match local {
            Address::V4(_) => 576,
            Address::V6(_) => 1_280,
        };
        let Some(path) = self.paths.get(&(router, local, remote)) else {
            return false;
        };
        let mtu = mtu.max(least);
        let is_news = path.get(now).is_none_or(|known| mtu < known);
        if is_news {
            path.set(mtu, now);
        }
        is_news
    }

    /// Whether a keepalive that came by a tunnel's interface is to be answered now.
    pub fn admits_keepalive(&self, number: u16, now: Now) -> bool {
        let bucket = self.keepalives.get(usize::from(number));
        bucket.is_some_and(|bucket| bucket.take(now.nanoseconds))
    }

    /// The MTU of an interface, which its configuration says to be `mtu`: less where it is a tunnel whose path takes less.
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
