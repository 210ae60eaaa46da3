//! The IPv4 address family.

use std::net::{IpAddr, Ipv4Addr};

use sluice_nat::icmp::translate_error4;
use sluice_nat::rewrite::{Rewrite, Transport, rewrite_plain4, rewrite4};
use sluice_nat::tracking::Segment;
use sluice_table::hash::Hasher;
use sluice_wire::ipv4::protocol::TCP;
use sluice_wire::layers::{Layers, Plain};
use sluice_wire::quote::{Quoted, quoted};
use sluice_wire::{Context, Direction, FlowKey4, Tuple4, ipv4};

use crate::packet::io::BURST_BUFFERS;
use crate::packet::reason::Reason;
use crate::session::ip_id;
use crate::session::record::{Session4, Track, Verdict};

use super::{Family, PerFamily, Session, Tracked, V6, track_fast};

/// The IPv4 address family.
#[derive(Clone, Copy, Debug)]
pub struct V4;

impl Family for V4 {
    type Address = u32;
    type Tuple = Tuple4;
    type Key = FlowKey4;
    type Session = Session4;
    type Number = u32;
    const IS_V6: bool = false;

    #[inline(always)]
    fn select<'t, T: PerFamily>(v4: &'t T::Of<V4>, _v6: &'t T::Of<V6>) -> &'t T::Of<Self> {
        v4
    }

    #[inline(always)]
    fn select_mut<'t, T: PerFamily>(v4: &'t mut T::Of<V4>, _v6: &'t mut T::Of<V6>) -> &'t mut T::Of<Self> {
        v4
    }

    #[inline(always)]
    fn key(layers: &Layers, frame: &[u8], context: Context) -> FlowKey4 {
        layers.key4(frame, context)
    }

    fn quoted_key(quoted: &Quoted, frame: &[u8], context: Context) -> FlowKey4 {
        quoted.key4(frame, context)
    }

    #[inline(always)]
    fn make_key(tuple: Tuple4, protocol: u8) -> FlowKey4 {
        FlowKey4::new(tuple, protocol)
    }

    #[inline(always)]
    fn tuple(key: &FlowKey4) -> Tuple4 {
        key.tuple()
    }

    #[inline(always)]
    fn protocol(key: &FlowKey4) -> u8 {
        key.protocol()
    }

    fn reversed(key: &FlowKey4) -> FlowKey4 {
        key.reversed()
    }

    #[inline(always)]
    fn hash(hasher: &Hasher, keys: &[FlowKey4], out: &mut [u64]) {
        hasher.hash4(keys, out);
    }

    #[inline(always)]
    fn hash_one(hasher: &Hasher, key: &FlowKey4) -> u64 {
        hasher.one4(key)
    }

    #[inline(always)]
    fn number(address: u32) -> u32 {
        address
    }

    #[inline(always)]
    fn numbers<'a>(addresses: &'a [u32], _: &'a mut [u32; BURST_BUFFERS]) -> &'a [u32] {
        addresses
    }

    fn ip(address: u32) -> IpAddr {
        Ipv4Addr::from_bits(address).into()
    }

    #[inline(always)]
    fn address(address: u32) -> sluice_route::Address {
        sluice_route::Address::V4(Self::number(address))
    }

    #[inline(always)]
    fn rewrite(frame: &mut [u8], layers: &Layers, session: &Session4, direction: Direction, hops: u8) -> bool {
        let (forward, reverse) = (session.forward(), session.reverse());
        let rewrite = Rewrite::new(&forward, &reverse, session.verdict.nat, direction);
        let (l3, l4) = (layers.l3 as usize, layers.l4 as usize);
        rewrite4(frame, l3, l4, Transport::of_layers(layers), &rewrite, hops)
    }

    #[inline(always)]
    fn plain<'f>(
        frame: &'f mut [u8],
        layers: &Layers,
        session: &mut Session4,
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
        rewrite_plain4(network, transport, !tcp, (other, session.verdict.nat, direction));

        let atomic = ip_id::is_atomic(network);
        Some((track_fast(&mut session.track, direction, tcp, segment, atomic), link))
    }

    #[cold]
    fn rewrite_error(
        frame: &mut [u8],
        layers: &Layers,
        session: &Session4,
        direction: Direction,
        hops: u8,
    ) -> Result<(), Reason> {
        let quote = quoted(frame, layers)?;
        let (forward, reverse) = (session.forward(), session.reverse());
        let rewrite = Rewrite::new(&forward, &reverse, session.verdict.nat, direction);
        Ok(translate_error4(frame, layers, &quote, &rewrite, hops)?)
    }

    #[inline(always)]
    fn count_down<'f>(frame: &'f mut [u8], layers: &Layers) -> Option<&'f mut [u8]> {
        let Plain { link, network, .. } = layers.plain_mut(frame)?;
        ipv4::decrement_header_ttl(network);
        Some(link)
    }
}

impl Session<V4> for Session4 {
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
    fn set_keys(&mut self, forward: FlowKey4, reverse: FlowKey4) {
        self.keys = [forward.words, reverse.words];
        let [arrival, answer] = self.verdict.arrivals;
        self.verdict.arrivals = [arrival.with_high(forward.high), answer.with_high(reverse.high)];
    }
}
