//! The IPv6 address family.

use std::net::{IpAddr, Ipv6Addr};

use sluice_nat::icmp::translate_error6;
use sluice_nat::rewrite::{Rewrite, Transport, rewrite_plain6, rewrite6};
use sluice_nat::tracking::Segment;
use sluice_table::hash::Hasher;
use sluice_wire::ipv4::protocol::TCP;
use sluice_wire::layers::{Layers, Plain};
use sluice_wire::quote::{Quoted, quoted};
use sluice_wire::{Context, Direction, FlowKey6, Tuple6, ipv6};

use crate::packet::io::BURST_BUFFERS;
use crate::packet::reason::Reason;
use crate::session::record::{Session6, Track, Verdict};

use super::{Family, PerFamily, Session, Tracked, V4, track_fast};

/// The IPv6 address family.
#[derive(Clone, Copy, Debug)]
pub struct V6;

impl Family for V6 {
    type Address = [u64; 2];
    type Tuple = Tuple6;
    type Key = FlowKey6;
    type Session = Session6;
    type Number = u128;
    const IS_V6: bool = true;

    #[inline(always)]
    fn select<'t, T: PerFamily>(_v4: &'t T::Of<V4>, v6: &'t T::Of<V6>) -> &'t T::Of<Self> {
        v6
    }

    #[inline(always)]
    fn select_mut<'t, T: PerFamily>(_v4: &'t mut T::Of<V4>, v6: &'t mut T::Of<V6>) -> &'t mut T::Of<Self> {
        v6
    }

    #[inline(always)]
    fn key(layers: &Layers, frame: &[u8], context: Context) -> FlowKey6 {
        layers.key6(frame, context)
    }

    fn quoted_key(quoted: &Quoted, frame: &[u8], context: Context) -> FlowKey6 {
        quoted.key6(frame, context)
    }

    #[inline(always)]
    fn make_key(tuple: Tuple6, protocol: u8) -> FlowKey6 {
        FlowKey6::new(tuple, protocol)
    }

    #[inline(always)]
    fn tuple(key: &FlowKey6) -> Tuple6 {
        key.tuple()
    }

    #[inline(always)]
    fn protocol(key: &FlowKey6) -> u8 {
        key.protocol()
    }

    fn reversed(key: &FlowKey6) -> FlowKey6 {
        key.reversed()
    }

    #[inline(always)]
    fn hash(hasher: &Hasher, keys: &[FlowKey6], out: &mut [u64]) {
        hasher.hash6(keys, out);
    }

    #[inline(always)]
    fn hash_one(hasher: &Hasher, key: &FlowKey6) -> u64 {
        hasher.one6(key)
    }

    #[inline(always)]
    fn number(address: [u64; 2]) -> u128 {
        u128::from(address[0]) << 64 | u128::from(address[1])
    }

    #[inline(always)]
    fn numbers<'a>(addresses: &'a [[u64; 2]], numbers: &'a mut [u128; BURST_BUFFERS]) -> &'a [u128] {
        for (number, &address) in numbers.iter_mut().zip(addresses) {
            *number = Self::number(address);
        }
        &numbers[..addresses.len().min(BURST_BUFFERS)]
    }

    fn ip(address: [u64; 2]) -> IpAddr {
        Ipv6Addr::from_bits(Self::number(address)).into()
    }

    #[inline(always)]
    fn address(address: [u64; 2]) -> sluice_route::Address {
        sluice_route::Address::V6(Self::number(address))
    }

    #[inline(always)]
    fn rewrite(frame: &mut [u8], layers: &Layers, session: &Session6, direction: Direction, hops: u8) -> bool {
        let (forward, reverse) = (session.forward(), session.reverse());
        let rewrite = Rewrite::new(&forward, &reverse, session.verdict.nat, direction);
        let (l3, l4) = (layers.l3 as usize, layers.l4 as usize);
        rewrite6(frame, l3, l4, Transport::of_layers(layers), &rewrite, hops)
    }

    #[inline(always)]
    fn plain<'f>(
        frame: &'f mut [u8],
        layers: &Layers,
        session: &mut Session6,
        direction: Direction,
    ) -> Option<(Tracked, &'f mut [u8])> {
        let Plain {
            link,
            network,
            transport,
        } = layers.plain_mut(frame)?;
        let tcp = layers.protocol == TCP;
        // The segment is read before the header is written, because a load that spans a recent store is delayed by that store.
        let segment = Segment::of(transport, layers.end.saturating_sub(layers.l4) as usize);
        let other = &session.keys[direction.opposite() as usize];
        rewrite_plain6(network, transport, !tcp, (other, session.verdict.nat, direction));
        // Routers do not fragment IPv6.
        let atomic = true;
        Some((track_fast(&mut session.track, direction, tcp, segment, atomic), link))
    }

    #[cold]
    fn rewrite_error(
        frame: &mut [u8],
        layers: &Layers,
        session: &Session6,
        direction: Direction,
        hops: u8,
    ) -> Result<(), Reason> {
        let quote = quoted(frame, layers)?;
        let (forward, reverse) = (session.forward(), session.reverse());
        let rewrite = Rewrite::new(&forward, &reverse, session.verdict.nat, direction);
        Ok(translate_error6(frame, layers, &quote, &rewrite, hops)?)
    }

    #[inline(always)]
    fn count_down<'f>(frame: &'f mut [u8], layers: &Layers) -> Option<&'f mut [u8]> {
        let Plain { link, network, .. } = layers.plain_mut(frame)?;
        ipv6::decrement_header_hop_limit(network);
        Some(link)
    }
}

impl Session<V6> for Session6 {
    #[inline(always)]
    fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    #[inline(always)]
    fn verdict_in_lane(&mut self) -> &mut Verdict {
        &mut self.verdict
    }

    #[inline(always)]
    fn track(&self) -> &Track {
        &self.track
    }

    #[inline(always)]
    fn track_in_lane(&mut self) -> &mut Track {
        &mut self.track
    }

    #[inline(always)]
    fn set_keys(&mut self, forward: FlowKey6, reverse: FlowKey6) {
        self.keys = [forward.words, reverse.words];
        let [arrival, answer] = self.verdict.arrivals;
        self.verdict.arrivals = [arrival.with_high(forward.high), answer.with_high(reverse.high)];
    }
}
