//! Builds the keys with which packets are looked up.

use sluice_nat::Tuple;
use sluice_wire::Context;
use sluice_wire::layers::{Flags, Fragment};

use crate::features::context::NodeContext;
use crate::nodes::bridge;
use crate::packet::batch::{Batch, Meta, Origin, put};
use crate::packet::counters::HandOffCause;
use crate::packet::hand_off::{EntryPoint, HandOffNote};
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::Lists;
use crate::session::family::Family;
use crate::snapshot::sites::AccessInterface;
use crate::snapshot::steering::Steering;
use crate::snapshot::{Nat, Snapshot};

use super::lookups::Lookups;

/// The properties of an ingress interface that determine the keys of its packets.
struct Arrival<'p> {
    number: u16,
    /// Context of the packets that belong to no site.
    own: Context,
    /// Context of the last packet.
    context: Context,
    outside: bool,
    bridged: bool,
    access: Option<&'p AccessInterface>,
}

impl<'p> Arrival<'p> {
    const NONE: Self = Self {
        number: u16::MAX,
        own: 0,
        context: 0,
        outside: false,
        bridged: false,
        access: None,
    };

    /// Switches to the interface of a packet.
    #[inline(always)]
    fn follow<const SITES: bool>(&mut self, number: u16, snapshot: &'p Snapshot) {
        if number == self.number {
            return;
        }
        self.number = number;
        (self.context, self.outside, self.bridged) = snapshot
            .interface(number)
            .map_or((0, false, false), |i| (i.context, i.outside, i.bridge.is_some()));
        if SITES {
            self.access = snapshot
                .sites
                .as_deref()
                .and_then(|sites| sites.access_interface(number));
            self.own = self.context;
        }
    }

    /// The context of a packet's flow.
    #[inline(always)]
    fn context<const SITES: bool>(&mut self, meta: &Meta, frame: &[u8], snapshot: &Snapshot) -> Context {
        if self.bridged {
            self.context = snapshot.context(meta, frame);
        } else if SITES && let Some(access) = self.access {
            // A hairpinned packet is processed like a packet from outside.
            let site = match meta.origin {
                Origin::Hairpinned => None,
                _ => access.context(&meta.layers, frame),
            };
            self.context = site.unwrap_or(self.own);
        }
        self.context
    }
}

/// Builds the keys of a group's packets from position `made` on. Packets for shards of other workers are handed off and
/// get no key. Returns the position after the last key.
#[inline(always)]
pub(super) fn keys<F: Family, const SITES: bool, const SPREAD: bool>(
    group: &[BufferIndex],
    mut made: usize,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    nat: &Nat<F>,
    work: &mut Lookups<F>,
) -> usize {
    // Most packets of a group arrive on the same interface.
    let mut arrival = Arrival::NONE;
    for &slot in group {
        let meta = &mut batch.meta[slot as usize % BURST_BUFFERS];
        let frame = batch.packets[slot as usize].bytes();
        arrival.follow::<SITES>(meta.interface, ctx.snapshot);
        let (context, bridged) = (arrival.context::<SITES>(meta, frame, ctx.snapshot), arrival.bridged);
        let key = if meta.layers.flags.has(Flags::ICMP_ERROR) {
            match F::quoted(&meta.layers, frame, context, bridged) {
                Ok(key) => key,
                Err(fault) => {
                    bridge::unattributed_error(slot, fault, batch, lists, ctx);
                    continue;
                }
            }
        } else {
            F::key(&meta.layers, frame, context)
        };
        let outside = arrival.outside | (meta.origin == Origin::Hairpinned);
        meta.shard = match bridged {
            false => shard_of::<F, SITES, SPREAD>(&ctx.start.steering, nat, meta, &key, outside),
            true => ctx.start.steering.of_bridged::<F>(&key),
        };
        if let Some(seen) = ctx.seen.get_mut(meta.shard as usize) {
            *seen += 1;
        }
        if ctx.shards.get(meta.shard as usize).is_none_or(Option::is_none) {
            pass_on::<F>(slot, meta, &key, (nat, outside), lists, ctx);
            continue;
        }
        if ctx.defers {
            put(&mut lists.queue, slot);
            continue;
        }
        if let (Some(place), Some(of)) = (work.keys.get_mut(made), work.slots.get_mut(made)) {
            (*place, *of) = (key, slot);
            made += 1;
        }
    }
    made
}

/// The shard of a packet that did not arrive on a bridge.
#[inline(always)]
fn shard_of<F: Family, const SITES: bool, const SPREAD: bool>(
    steering: &Steering,
    nat: &Nat<F>,
    meta: &Meta,
    key: &F::Key,
    outside: bool,
) -> u16 {
    if SPREAD && meta.is_from_gateway() {
        steering.of_host_flow::<F>(nat, key)
    } else if SITES {
        steering.shard_among_sites::<F>(nat, key, meta.interface, outside)
    } else {
        let spread = nat.spread.as_ref().filter(|_| SPREAD);
        steering.shard_by::<F>(nat, spread, key, meta.interface, outside)
    }
}

/// Hands a packet to the worker that owns its shard. While the shard moves to this worker, the packet is held.
#[cold]
#[inline(never)]
fn pass_on<F: Family>(
    slot: BufferIndex,
    meta: &Meta,
    key: &F::Key,
    (nat, outside): (&Nat<F>, bool),
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let owner = ctx.start.owners.of(meta.shard).unwrap_or(ctx.own);
    if owner == ctx.own {
        put(&mut lists.hold, slot);
        return;
    }
    let cause = match ctx.role.sessions.is_empty() {
        true => cause::<F>(nat, meta, key, outside),
        false => HandOffCause::Stage,
    };
    lists.hand_over_for(cause, slot, owner, HandOffNote::new(EntryPoint::Session, meta));
}

/// Cause of handing off a packet: the reason why it did not arrive at the worker that has its session.
fn cause<F: Family>(nat: &Nat<F>, meta: &Meta, key: &F::Key, outside: bool) -> HandOffCause {
    let tuple = &F::tuple(key);
    if meta.layers.flags.has(Flags::ICMP_ERROR) {
        HandOffCause::IcmpError
    } else if meta.layers.fragment != Fragment::Whole {
        HandOffCause::Fragment
    } else if outside
        && nat
            .pools
            .preserves(tuple.context(), tuple.destination(), tuple.destination_port())
    {
        HandOffCause::KeptPort
    } else {
        HandOffCause::Session
    }
}
