//! Chains. The lane executes a chain after all checks: after the chain, packets are sent or dropped.

use std::marker::PhantomData;

use arrayvec::ArrayVec;
use sluice_filter::{NONE, Rule};
use sluice_nat::sites::outer;
use sluice_route::Reason::NeighbourUnresolved;
use sluice_table::simd::bytes::positions_of;
use sluice_wire::{Window, ethernet};

use crate::features::context::OutputContext;
use crate::nodes::chain::steps::{BEFORE_ROUTING, ChainPackets, walk};
use crate::packet::batch::put;
use crate::packet::io::{BURST_SIZE, BufferIndex, Heads};
use crate::packet::reason::{EngineReason, Reason};
use crate::snapshot::chains::{AllFinders, Chains, Classify, Column, Conditions, Constant};

use super::groups::Ingress;
use super::head::{LaneFamily, Untagged, behind};
use super::leaving::drop_all;
use super::{Burst, Slots, each};

/// The values of the fields that classes compare, by field and by the packet's position. The values of a field are stored when they are
/// compared for the first time in a burst.
pub(super) struct Columns {
    values: [[u16; BURST_SIZE]; Column::COUNT],
    /// The fields that are stored, one bit for each.
    stored: u8,
}

const _: () =
    assert!(Column::SourcePort as u8 == 0 && Column::DestinationPort as u8 == 1 && Column::Protocol as u8 == 2);

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
    /// Packets that go on to session lookup or routing.
    pub(super) passed: Slots,
    /// Packets that are dropped, by reason.
    pub(super) dropped: ArrayVec<(Slots, Reason), 2>,
}

impl Ends {
    /// Drops the packets that the chain drops, and those that have passed it but were not sent, because their next hop or their
    /// terminal was lost meanwhile. They arrived on `interface`.
    pub(super) fn drop_others(
        &self,
        sent: Slots,
        (slots, interface): (&[BufferIndex], u16),
        burst: &mut Burst<'_, '_>,
    ) {
        let lost = (self.passed & !sent, NeighbourUnresolved.into());
        for (packets, reason) in self.dropped.iter().copied().chain([lost]) {
            drop_all(packets, reason, (slots, interface), burst.meta, burst.lists);
        }
    }
}

/// The packets of one interface.
#[derive(Clone, Copy)]
pub(super) struct Arrived<'a, 'h> {
    /// The positions of those for which the chain is executed.
    pub(super) all: Slots,
    pub(super) heads: &'a Heads<'h>,
    pub(super) windows: &'a [Window; BURST_SIZE],
    /// Lengths of the datagrams.
    pub(super) lengths: &'a [u16; BURST_SIZE],
    /// Number of bytes in the received frames.
    pub(super) received: u64,
    /// Whether frames may have trailers.
    pub(super) has_trailers: bool,
}

/// Number of bytes in the received frames of these packets.
pub(super) fn received(packets: Slots, windows: &[Window; BURST_SIZE]) -> u64 {
    let mut bytes = 0;
    each(packets, |i| bytes += u64::from(windows[i].length));
    bytes
}

/// Executes a chain for packets that arrived on one interface.
#[inline(never)]
pub(super) fn run<F: LaneFamily, const TAGS: usize>(
    chains: &Chains,
    arrived: Arrived<'_, '_>,
    exit: &OutputContext<'_>,
    ingress: &Ingress<'_>,
) -> Ends {
    let mut packets = LanePackets::<F, TAGS> {
        arrived,
        total: 0,
        columns: Columns::default(),
        exit,
        ingress,
        ends: Ends::default(),
        family: PhantomData,
    };
    packets.total = match arrived.has_trailers {
        true => packets.sum(arrived.all),
        false => arrived.received,
    };
    walk(chains, arrived.all.into(), &mut packets, exit.own, exit.now.nanoseconds);
    packets.ends
}

/// The packets that the lane takes from one interface. Masks contain their positions.
struct LanePackets<'a, 'h, 'c, F: LaneFamily, const TAGS: usize> {
    arrived: Arrived<'a, 'h>,
    /// Bytes in the frames of all packets.
    total: u64,
    columns: Columns,
    exit: &'a OutputContext<'c>,
    ingress: &'a Ingress<'a>,
    ends: Ends,
    family: PhantomData<F>,
}

impl<F: LaneFamily, const TAGS: usize> ChainPackets for LanePackets<'_, '_, '_, F, TAGS> {
    #[inline(always)]
    fn length(&self, packet: usize) -> u64 {
        let packet = packet % BURST_SIZE;
        let end = ethernet::LENGTH + 4 * TAGS + usize::from(self.arrived.lengths[packet]);
        // Chains count frames without trailers.
        end.max(ethernet::MIN_FRAME.min(self.arrived.windows[packet].length.into())) as u64
    }

    #[inline(always)]
    fn bytes(&self, packets: u128) -> u64 {
        let (packets, others) = (packets as Slots, self.arrived.all & !(packets as Slots));
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
        self.ends.passed |= packets as Slots;
    }

    fn routes(&mut self, packets: u128) {
        // The interface has no sessions: otherwise the lane does not execute chains with such a step.
        self.ends.passed |= packets as Slots;
    }
}

impl<F: LaneFamily, const TAGS: usize> LanePackets<'_, '_, '_, F, TAGS> {
    /// Number of bytes in the frames of these packets.
    #[inline(always)]
    fn sum(&self, packets: Slots) -> u64 {
        let mut bytes = 0;
        each(packets, |i| bytes += self.length(i));
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
        let [source, destination] =
            [conditions.source, conditions.destination].map(|range| range.unwrap_or(Rule::any().source));
        if conditions.source.is_some() || conditions.destination.is_some() {
            each(self.arrived.all, |i| {
                let addresses = self.arrived.heads[i]
                    .as_deref()
                    .map(|head| F::addresses_of(behind::<TAGS>(head)));
                let [from, to] = addresses.unwrap_or_default().map(F::number);
                matching[i] &= u8::from(source.contains(from) & destination.contains(to));
            });
        }
        positions_of(&matching, 1)
    }

    /// The value of a field that is equal for all packets.
    fn constant(&self, constant: Constant) -> u32 {
        let interface = self.exit.snapshot.interface(self.ingress.number);
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

    /// Stores the values of a field, and of those that are compared together with it most often.
    #[inline(never)]
    fn store(&mut self, column: Column) {
        let Columns { values, stored } = &mut self.columns;
        let (all, heads) = (self.arrived.all, self.arrived.heads);
        let mut of_heads = |column: Column, value: fn(&Untagged) -> u16| {
            let values = &mut values[column as usize % Column::COUNT];
            each_head::<TAGS>(heads, all, |i, head| values[i] = value(head));
        };
        match column {
            Column::SourcePort | Column::DestinationPort | Column::Protocol => {
                // In the order of the columns.
                let [from, to, protocols, ..] = values;
                each_head::<TAGS>(heads, all, |i, head| {
                    let [a, b, c, d, ..] = *F::transport(head);
                    (from[i], to[i]) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
                    protocols[i] = F::protocol_of(head).into();
                });
                *stored |=
                    1 << Column::SourcePort as u8 | 1 << Column::DestinationPort as u8 | 1 << Column::Protocol as u8;
            }
            Column::Length => values[Column::Length as usize] = *self.arrived.lengths,
            Column::Dscp => of_heads(column, |head| (F::traffic_class(head) >> 2).into()),
            Column::Ecn => of_heads(column, |head| (F::traffic_class(head) & 3).into()),
            Column::Ttl => of_heads(column, |head| F::hop_limit(head).into()),
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

/// Calls a function with the position and the head of each packet.
#[inline(always)]
fn each_head<const TAGS: usize>(heads: &Heads<'_>, packets: Slots, mut f: impl FnMut(usize, &Untagged)) {
    each(packets, |i| {
        if let Some(head) = &heads[i] {
            f(i, behind::<TAGS>(head));
        }
    });
}
