//! The lane for plain packets that need only a route: the same as `parse`, `ip4-fast-forward` and `forward` do, without sessions.
//!
//! ```text
//! classify    plain packets of this interface with valid addresses
//! look up     routes of all destinations, and of all sources if these are validated
//! chain       if the router has chains: executes them for packets with a next hop (module `chain`)
//! send        checks next hop and length, decrements the TTL, writes the MAC addresses
//! ```

use sluice_route::{RouterIndex, validate_reverse_path};
use sluice_table::prefix::NO_ROUTE;
use sluice_table::simd::bytes::positions_of;
use sluice_wire::{Checksums, Packet, Window, ethernet};

use crate::features::context::{NodeContext, OutputContext};
use crate::nodes::output::AdjacencyCache;
use crate::packet::io::{BURST_SIZE, BufferIndex, Head, Heads};

use super::chain;
use super::chain::Arrived;
use super::groups::Ingress;
use super::head::{LaneFamily, behind, behind_mut};
use super::leaving::Leaving;
use super::{Burst, NO_HEADS, Slots, each, trim};

/// Temporary memory of the lane without sessions. Each array is indexed by the packet's position in the burst.
pub struct RouteArrays<F: LaneFamily> {
    /// Positions of the frames in their buffers.
    windows: [Window; BURST_SIZE],
    /// 1 for plain packets.
    is_plain: [u8; BURST_SIZE],
    /// Lengths of the datagrams.
    lengths: [u16; BURST_SIZE],
    sources: [F::Address; BURST_SIZE],
    destinations: [F::Address; BURST_SIZE],
    /// The routes of the destinations.
    routes: [u32; BURST_SIZE],
    /// The routes of the sources, if these are validated.
    back: [u32; BURST_SIZE],
    /// The router of the interface, once for each packet.
    routers: [RouterIndex; BURST_SIZE],
}

impl<F: LaneFamily> Default for RouteArrays<F> {
    fn default() -> Self {
        Self {
            windows: [Window::default(); BURST_SIZE],
            is_plain: [0; BURST_SIZE],
            lengths: [0; BURST_SIZE],
            sources: [F::Address::default(); BURST_SIZE],
            destinations: [F::Address::default(); BURST_SIZE],
            routes: [0; BURST_SIZE],
            back: [0; BURST_SIZE],
            routers: [0; BURST_SIZE],
        }
    }
}

/// Routes and sends those of the slots that need nothing unusual. Returns their positions in `slots`. Packets of a flow that are left
/// may precede taken ones: [`Lists::sort_sent`](crate::packet::lists::Lists::sort_sent) restores their order.
#[inline(never)]
pub(super) fn run_routes<F: LaneFamily, const TAGS: usize>(
    (work, leaving): (&mut RouteArrays<F>, &mut Leaving),
    burst: &mut Burst<'_, '_>,
    ctx: &mut NodeContext<'_, '_>,
    ingress: &Ingress<'_>,
    slots: &[BufferIndex],
) -> Slots {
    let count = slots.len();
    let mut heads = NO_HEADS;
    burst.buffers.heads(slots, &mut heads, &mut work.windows);
    let chains = ingress.chains(ctx.snapshot);
    let (mut plain, has_unverified) = classify::<F, TAGS>(work, &heads, count, (ingress, chains.is_some()));
    if plain == 0 {
        return 0;
    }
    if has_unverified {
        burst.buffers.with_packets(|packets| {
            plain = verified::<F>(plain, slots, packets, (ingress, TAGS), chains.is_some());
        });
        heads = NO_HEADS;
        burst.buffers.heads(slots, &mut heads, &mut work.windows);
    }
    look_up(work, count, ingress, ctx);
    let exit = ctx.exit();
    leaving.clear();
    let mut sending = Sending {
        adjacencies: AdjacencyCache::default(),
        leaving,
        received: 0,
        trailers: 0,
    };
    let alike = match TAGS {
        0 => alike(work, plain, &mut sending.adjacencies, &exit),
        _ => None,
    };
    let (mut taken, mut routed, mut ends) = (plain, (plain, alike), chain::Ends::default());
    let mut received = 0;
    if let Some(chains) = chains {
        (taken, received) = match &routed.1 {
            Some(alike) => (plain, alike.bytes),
            None => {
                let open = sending.open::<F, TAGS>(plain, work, &exit);
                (open, chain::received(open, &work.windows))
            }
        };
        let arrived = Arrived {
            all: taken,
            heads: &heads,
            windows: &work.windows,
            lengths: &work.lengths,
            received,
            has_trailers: routed.1.is_none(),
        };
        ends = chain::run::<F, TAGS>(chains, arrived, &exit, ingress);
        routed = (ends.passed, routed.1.filter(|_| ends.passed == plain));
    }
    let sent = match routed {
        (routed, Some(alike)) => send_alike::<F>(&mut sending, (routed, alike), &mut heads),
        (routed, None) => send_all::<F, TAGS>(&mut sending, routed, &mut heads, work, &exit),
    };
    match chains {
        Some(_) => ends.drop_others(sent, (slots, ingress.number), burst),
        None => (taken, received) = (sent, sending.received),
    }
    if sending.trailers != 0 {
        trim::<TAGS>(sending.trailers, &mut burst.buffers, slots, &work.lengths);
    }
    sending.leaving.finish(
        sent,
        (slots, ingress.number, TAGS),
        burst,
        (&mut sending.adjacencies, &exit),
    );
    ingress.count_received(taken.count_ones().into(), received, exit.counters);
    taken
}

/// Finds the plain packets among the first `count` packets, and stores their addresses and lengths. For chains, they must be TCP or
/// UDP packets. Also returns whether there are packets with checksums that the device has not verified.
#[inline(never)]
#[expect(
    clippy::needless_range_loop,
    reason = "an index below the number of elements needs no checks in any of the arrays"
)]
fn classify<F: LaneFamily, const TAGS: usize>(
    work: &mut RouteArrays<F>,
    heads: &Heads<'_>,
    count: usize,
    (ingress, has_chains): (&Ingress<'_>, bool),
) -> (Slots, bool) {
    let pattern = F::pattern(Some(&ingress.mac), TAGS);
    let mut checksums = 0;
    for i in 0..count.min(BURST_SIZE) {
        work.is_plain[i] = 0;
        let Some(head) = &heads[i] else { continue };
        let (head, window): (&Head, _) = (head, work.windows[i]);
        checksums |= window.checksums as u8 ^ Checksums::Vouched as u8;
        let matches = head.first_chunk().is_some_and(|bytes| pattern.matches(bytes));
        let head = behind::<TAGS>(head);
        if let Some(length) = F::length_of(head, window.length.saturating_sub(4 * TAGS as u16))
            && length >= F::MIN_ROUTED
            && matches
            && F::is_routable(head)
            && (!has_chains || F::has_transport(head))
        {
            work.is_plain[i] = 1;
            work.lengths[i] = length;
            [work.sources[i], work.destinations[i]] = F::addresses_of(head);
        }
    }
    // This loop is vectorised, because it has a fixed number of elements and no branches.
    for i in 0..BURST_SIZE {
        work.is_plain[i] &= u8::from(F::may_be_routed([work.sources[i], work.destinations[i]]));
    }
    let all = Slots::MAX >> (BURST_SIZE - count.clamp(1, BURST_SIZE));
    let has_unverified = ingress.has_unverified(checksums);
    (positions_of(&work.is_plain, 1) & all, has_unverified)
}

/// The plain packets whose checksums have been verified by the device or by `parse`, or are verified here.
#[cold]
#[inline(never)]
fn verified<F: LaneFamily>(
    plain: Slots,
    slots: &[BufferIndex],
    packets: &[Packet<'_>],
    (ingress, tags): (&Ingress<'_>, usize),
    has_chains: bool,
) -> Slots {
    let packet = |i: usize| packets.get(usize::from(*slots.get(i)?));
    let verify = match has_chains {
        true => F::is_verified,
        false => F::is_verified_transit,
    };
    let is_verified =
        |packet: &Packet<'_>| ingress.is_verified(packet.checksums()) || verify(packet, tags, &ingress.mac);
    let mut verified = plain;
    each(plain, |i| {
        verified &= !(Slots::from(!packet(i).is_some_and(is_verified)) << i);
    });
    verified
}

/// Looks up the routes of the first `count` packets. A packet whose source is perhaps invalid has no route.
#[inline(always)]
fn look_up<F: LaneFamily>(work: &mut RouteArrays<F>, count: usize, ingress: &Ingress<'_>, ctx: &NodeContext<'_, '_>) {
    let router = ctx.snapshot.router_of(ingress.number);
    if work.routers[0] != router || work.routers[BURST_SIZE - 1] != router {
        work.routers = [router; BURST_SIZE];
    }
    let (routers, destinations) = (&work.routers[..count], &work.destinations[..count]);
    let routes = &mut work.routes[..count];
    ctx.forwarding.route_values::<F>(routers, destinations, routes);
    if ingress.link.validated {
        let (sources, back) = (&work.sources[..count], &mut work.back[..count]);
        ctx.forwarding.route_values::<F>(routers, sources, back);
        remove_unverified(work, count, ingress, ctx);
    }
}

/// Removes the routes of packets if the quick check does not prove that their sources are valid (BCP 38). The graph validates these
/// packets completely.
#[inline(never)]
fn remove_unverified<F: LaneFamily>(
    work: &mut RouteArrays<F>,
    count: usize,
    ingress: &Ingress<'_>,
    ctx: &NodeContext<'_, '_>,
) {
    let Some(interface) = ctx.snapshot.interface(ingress.number) else {
        return;
    };
    let next_hops = &ctx.forwarding.next_hops;
    // Most packets of a burst share a route back.
    let mut valid = None;
    for (back, route) in work.back.iter().zip(&mut work.routes).take(count) {
        if valid == Some(*back) {
            continue;
        }
        match validate_reverse_path(interface.validation, *back, ingress.number, next_hops) {
            Ok(()) => valid = Some(*back),
            Err(_) => *route = NO_ROUTE,
        }
    }
}

/// The state of the last pass.
struct Sending<'l> {
    adjacencies: AdjacencyCache,
    leaving: &'l mut Leaving,
    /// Bytes of the received frames that were taken.
    received: u64,
    /// Packets whose frames have padding or a trailer.
    trailers: Slots,
}

/// What untagged packets have in common that all leave to one next hop, without tags.
struct Alike {
    route: u32,
    /// Bytes of their frames.
    bytes: u64,
}

impl Sending<'_> {
    /// Those of the packets that have a resolved next hop and are not too long.
    #[inline(never)]
    fn open<F: LaneFamily, const TAGS: usize>(
        &mut self,
        packets: Slots,
        work: &RouteArrays<F>,
        exit: &OutputContext<'_>,
    ) -> Slots {
        let mut others = 0;
        each(packets, |i| {
            let is_open = self.adjacencies.find(work.routes[i], exit).is_some_and(|adjacency| {
                let length = work.lengths[i];
                adjacency.is_direct_for::<TAGS>(length) || adjacency.is_open_for(length, &work.windows[i])
            });
            others |= Slots::from(!is_open) << i;
        });
        packets & !others
    }
}

/// Looks for what all of the untagged packets have in common. `None` if they have several routes, if their next hop is not resolved, if one of
/// them is too long or has a trailer, or if another packet precedes one of them.
#[inline(never)]
fn alike<F: LaneFamily>(
    work: &RouteArrays<F>,
    plain: Slots,
    adjacencies: &mut AdjacencyCache,
    exit: &OutputContext<'_>,
) -> Option<Alike> {
    let route = work.routes[0];
    let count = plain.count_ones() as usize;
    if plain & plain.wrapping_add(1) != 0 {
        return None;
    }
    let (mut differing, mut longest, mut trailers, mut bytes) = (0, 0, 0, 0);
    for i in 0..count.min(BURST_SIZE) {
        let (length, frame) = (work.lengths[i], work.windows[i].length);
        differing |= work.routes[i] ^ route;
        longest = longest.max(length);
        trailers |= frame ^ length.wrapping_add(ethernet::LENGTH as u16);
        bytes += u64::from(frame);
    }
    if differing != 0 || trailers != 0 {
        return None;
    }
    let adjacency = adjacencies.find(route, exit)?;
    adjacency.is_direct_for::<0>(longest).then_some(Alike { route, bytes })
}

/// Sends packets that have everything in common.
#[inline(never)]
fn send_alike<F: LaneFamily>(
    sending: &mut Sending<'_>,
    (plain, Alike { route, bytes }): (Slots, Alike),
    heads: &mut Heads<'_>,
) -> Slots {
    let count = plain.count_ones() as usize;
    let adjacency = sending.adjacencies.at(route).0;
    let addresses = adjacency.rewrite_heads(count, bytes);
    for head in heads[..count.min(BURST_SIZE)].iter_mut().flatten() {
        if let Some(inner) = behind_mut::<0>(head) {
            F::decrement_hop_limit(inner);
        }
        if let Some(link) = head.first_chunk_mut() {
            *link = addresses;
        }
    }
    sending.leaving.add_all(adjacency.port_and_interface());
    sending.received += bytes;
    plain
}

/// Sends those of the packets that have a resolved next hop and are not too long, and returns their slots. The other packets are
/// left unchanged.
#[inline(never)]
fn send_all<F: LaneFamily, const TAGS: usize>(
    sending: &mut Sending<'_>,
    slots: Slots,
    heads: &mut Heads<'_>,
    work: &RouteArrays<F>,
    exit: &OutputContext<'_>,
) -> Slots {
    let mut others = 0;
    each(slots, |i| {
        let (route, length) = (work.routes[i], work.lengths[i]);
        let Some(head) = heads[i].as_deref_mut() else {
            others |= 1 << i;
            return;
        };
        let Some(adjacency) = sending.adjacencies.find(route, exit) else {
            others |= 1 << i;
            return;
        };
        let is_direct = adjacency.is_direct_for::<TAGS>(length);
        if !is_direct && !adjacency.is_open_for(length, &work.windows[i]) {
            others |= 1 << i;
            return;
        }
        let frame = usize::from(work.windows[i].length);
        let end = ethernet::LENGTH + 4 * TAGS + usize::from(length);
        let mut sent = frame;
        if end != frame {
            sending.trailers |= 1 << i;
            sent = end.max(frame.min(ethernet::MIN_FRAME));
        }
        if let Some(inner) = behind_mut::<TAGS>(head) {
            F::decrement_hop_limit(inner);
        }
        sending.received += frame as u64;
        if is_direct {
            adjacency.rewrite_head::<TAGS>(head, sent);
            sending.leaving.add(i, adjacency.port_and_interface());
        } else {
            sending.leaving.add_moved(i, adjacency.index());
        }
    });
    slots & !others
}
