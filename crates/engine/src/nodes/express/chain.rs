//! Chains of packets that are only routed. The lane executes a chain after all checks: after the chain, packets are sent or dropped.

use arrayvec::ArrayVec;
use sluice_filter::NONE;
use sluice_nat::sites::outer;
use sluice_table::simd::bytes::positions_of;

use crate::features::context::NodeContext;
use crate::nodes::chain::steps::{BEFORE_ROUTING, ChainPackets, walk};
use crate::packet::batch::put;
use crate::packet::io::{BURST_SIZE, Heads};
use crate::packet::reason::{EngineReason, Reason};
use crate::snapshot::chains::{AllFinders, Chains, Classify, Column, Conditions, Constant};

use super::groups::Ingress;
use super::head::{LaneFamily, Untagged, behind};
use super::route::RouteArrays;
use super::{Slots, each};

/// The values of the fields that classes compare, by field and by the packet's position. The values of a field are stored when they are
/// compared for the first time in a burst.
pub(super) struct Columns {
    values: [[u16; BURST_SIZE]; Column::COUNT],
    /// The fields that are stored, one bit for each.
    stored: u8,
}

impl Default for Columns {
    fn default() -> Self {
        Self {
            values: [[0; BURST_SIZE]; _],
            stored: 0,
        }
    }
}

/// Where packets leave a chain.
#[derive(Default)]
pub(super) struct Ends {
    /// Packets that are routed.
    pub(super) routed: Slots,
    /// Packets that are dropped, by reason.
    pub(super) dropped: ArrayVec<(Slots, Reason), 2>,
}

/// Executes a chain for packets that arrived on one interface.
#[inline(never)]
pub(super) fn run<F: LaneFamily, const TAGS: usize>(
    chains: &Chains,
    (all, work): (Slots, &RouteArrays<F>),
    heads: &Heads<'_>,
    ctx: &NodeContext<'_, '_>,
    ingress: &Ingress<'_>,
) -> Ends {
    let mut packets = LanePackets::<F, TAGS> {
        all,
        total: 0,
        work,
        heads,
        columns: Columns::default(),
        ctx,
        ingress,
        ends: Ends::default(),
    };
    packets.total = packets.sum(all);
    walk(chains, all.into(), &mut packets, ctx.own, ctx.now.nanoseconds);
    packets.ends
}

/// The packets that the lane takes from one interface. Masks contain their positions.
struct LanePackets<'a, 'h, 'c, 'm, F: LaneFamily, const TAGS: usize> {
    all: Slots,
    /// Bytes in the frames of all packets.
    total: u64,
    work: &'a RouteArrays<F>,
    heads: &'a Heads<'h>,
    columns: Columns,
    ctx: &'a NodeContext<'c, 'm>,
    ingress: &'a Ingress<'a>,
    ends: Ends,
}

impl<F: LaneFamily, const TAGS: usize> ChainPackets for LanePackets<'_, '_, '_, '_, F, TAGS> {
    #[inline(always)]
    fn length(&self, packet: usize) -> u64 {
        self.work.length_of::<TAGS>(packet % BURST_SIZE) as u64
    }

    #[inline(always)]
    fn bytes(&self, packets: u128) -> u64 {
        let (packets, others) = (packets as Slots, self.all & !(packets as Slots));
        match packets.count_ones() < others.count_ones() {
            true => self.sum(packets),
            false => self.total - self.sum(others),
        }
    }

    #[inline(always)]
    fn sort(&mut self, classes: &Classify, packets: u128, found: &mut impl FnMut(u128, usize, &Self)) {
        let mut remaining = packets as Slots;
        let finder = F::select::<AllFinders>(&classes.v4, &classes.v6);
        for (number, conditions) in finder.conditions().unwrap_or_default() {
            let members = remaining & self.matching(conditions);
            if members != 0 {
                remaining &= !members;
                found(members.into(), *number as usize, self);
            }
        }
    }

    fn copy(&mut self, _: u16, _: u128) -> u128 {
        // The lane does not execute chains that copy packets.
        0
    }

    fn drop(&mut self, packets: u128, reason: EngineReason) {
        let (packets, reason) = (packets as Slots, reason.into());
        match self.ends.dropped.iter_mut().find(|(_, of)| *of == reason) {
            Some((dropped, _)) => *dropped |= packets,
            None => put(&mut self.ends.dropped, (packets, reason)),
        }
    }

    fn sessions(&mut self, packets: u128) {
        // The interface has no sessions.
        self.routes(packets);
    }

    fn routes(&mut self, packets: u128) {
        self.ends.routed |= packets as Slots;
    }
}

impl<F: LaneFamily, const TAGS: usize> LanePackets<'_, '_, '_, '_, F, TAGS> {
    /// Number of bytes in the frames of these packets.
    #[inline(always)]
    fn sum(&self, packets: Slots) -> u64 {
        let mut bytes = 0;
        each(packets, |i| bytes += self.work.length_of::<TAGS>(i) as u64);
        bytes
    }

    /// The packets that satisfy all conditions. Positions without a packet of the lane may be included.
    #[inline(never)]
    fn matching(&mut self, conditions: &Conditions<F::Number>) -> Slots {
        let constant = |constant| self.constant(constant);
        if !conditions
            .constants
            .iter()
            .all(|(of, range)| range.contains(constant(*of)))
        {
            return 0;
        }
        let mut matching = [1; BURST_SIZE];
        for (column, first, span) in &conditions.columns {
            restrict(&mut matching, self.column(*column), *first, *span);
        }
        let addresses = [
            (&conditions.source, &self.work.sources),
            (&conditions.destination, &self.work.destinations),
        ];
        for (range, addresses) in addresses {
            let Some(range) = range else { continue };
            for (matches, address) in matching.iter_mut().zip(addresses) {
                *matches &= u8::from(range.contains(F::number(*address)));
            }
        }
        positions_of(&matching, 1)
    }

    /// The value of a field that is equal for all packets.
    fn constant(&self, constant: Constant) -> u32 {
        let interface = self.ctx.snapshot.interface(self.ingress.number);
        match constant {
            Constant::Message => NONE,
            Constant::Fragment => 0,
            Constant::Vlan => interface
                .and_then(|interface| interface.tags.first())
                .map_or(NONE, |tag| tag.id().into()),
            Constant::Incoming => self.ingress.number.into(),
            Constant::Outgoing => BEFORE_ROUTING.into(),
            Constant::Context => outer(self.ingress.context),
        }
    }

    /// The values of a field.
    #[inline(always)]
    fn column(&mut self, column: Column) -> &[u16; BURST_SIZE] {
        let at = column as usize % Column::COUNT;
        if self.columns.stored & 1 << at == 0 {
            self.columns.stored |= 1 << at;
            self.store(column);
        }
        &self.columns.values[at]
    }

    /// Stores the values of a field.
    #[inline(never)]
    fn store(&mut self, column: Column) {
        let values = &mut self.columns.values[column as usize % Column::COUNT];
        let (all, heads) = (self.all, self.heads);
        let port = |at: usize| {
            move |head: &_| {
                let transport = F::transport(head);
                u16::from_be_bytes([transport[at], transport[at + 1]])
            }
        };
        match column {
            Column::SourcePort => fill::<TAGS>(values, heads, all, port(0)),
            Column::DestinationPort => fill::<TAGS>(values, heads, all, port(2)),
            Column::Protocol => fill::<TAGS>(values, heads, all, |head| F::protocol_of(head).into()),
            Column::Length => *values = self.work.lengths,
            Column::Dscp => fill::<TAGS>(values, heads, all, |head| (F::traffic_class(head) >> 2).into()),
            Column::Ecn => fill::<TAGS>(values, heads, all, |head| (F::traffic_class(head) & 3).into()),
            Column::Ttl => fill::<TAGS>(values, heads, all, |head| F::hop_limit(head).into()),
        }
    }
}

/// Removes packets whose value is less than `first`, or greater by more than `span`.
#[inline(never)]
fn restrict(matching: &mut [u8; BURST_SIZE], values: &[u16; BURST_SIZE], first: u16, span: u16) {
    for i in 0..BURST_SIZE {
        matching[i] &= u8::from(values[i].wrapping_sub(first) <= span);
    }
}

/// Stores a value of each packet.
#[inline(always)]
fn fill<const TAGS: usize>(
    values: &mut [u16; BURST_SIZE],
    heads: &Heads<'_>,
    packets: Slots,
    value: impl Fn(&Untagged) -> u16,
) {
    each(packets, |i| {
        if let Some(head) = &heads[i] {
            values[i] = value(behind::<TAGS>(head));
        }
    });
}
