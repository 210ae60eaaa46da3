//! IPv4 and IPv6 behind one trait, so that a node is written once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_filter::{Filter, Filters};
use sluice_nat::icmp::{translate_error4, translate_error6};
use sluice_nat::rewrite::{Rewrite, Transport, rewrite_plain4, rewrite_plain6, rewrite4, rewrite6};
use sluice_nat::tracking::Segment;
use sluice_nat::{Bindings, Decision, PoolIndex, Tuple};
use sluice_route::RouterIndex;
use sluice_table::flow::{FlowTable, Record};
use sluice_table::hash::Hasher;
use sluice_table::prefix::NO_ROUTE;
use sluice_table::wheel::Wheel;
use sluice_wire::ipv4::protocol::{self, TCP};
use sluice_wire::layers::{Layers, Plain};
use sluice_wire::quote::{quoted, quoted_flow};
use sluice_wire::{Context, Direction, Fault, FlowKey4, FlowKey6, Tuple4, Tuple6, ipv4, ipv6};

use crate::features::applications::Application;
use crate::features::inspection::InspectState;
use crate::packet::batch::{AdjacencyIndex, BufferIndices, Inspected, Lists};
use crate::packet::io::BURST_BUFFERS;
use crate::packet::reason::Reason;
use crate::session::bound_interfaces::BoundInterfaces;
use crate::session::ip_id;
use crate::session::record::{Session4, Session6, Track};
use crate::session::shard::Shard;
use crate::snapshot::forwarding::ForwardingState;
use crate::snapshot::{Nat, Snapshot};

/// What a node needs of a session record.
pub trait Session<F: Family>: Record<Key = F::Key> + Default {
    /// Key of the first packet's direction.
    fn forward(&self) -> &F::Tuple;
    /// Key of the answers.
    fn reverse(&self) -> &F::Tuple;
    /// What translation decided.
    fn nat(&self) -> Decision;
    /// What packets change.
    fn track(&self) -> &Track;
    /// What packets change.
    fn track_mut(&mut self) -> &mut Track;
    /// Generation of the snapshot that decided.
    fn generation(&self) -> u32;
    /// What is known of its application: nothing ever of ICMP, which says it itself.
    fn application(&self) -> Application;
    /// Set what is known of its application.
    fn set_application(&mut self, application: Application);
    /// IP protocol.
    fn protocol(&self) -> u8;
    /// Whether inbound packets keep it alive.
    fn refreshes(&self, direction: Direction) -> bool;
    /// The interface that packets of a direction come in by; [`Arrivals::NOWHERE`] where that has to be asked each time.
    fn bound_interface(&self, direction: Direction) -> u16;
    /// Packets of a direction come in by another interface from now on.
    fn set_bound_interface(&mut self, direction: Direction, interface: u16);
    /// Interface that the opening side is behind.
    #[inline(always)]
    fn interface(&self) -> u16 {
        self.bound_interface(Direction::Forward)
    }
    /// Next hop of a direction.
    fn adjacency(&self, direction: Direction) -> AdjacencyIndex;
    /// Set the next hop of a direction.
    fn set_adjacency(&mut self, direction: Direction, hop: AdjacencyIndex);
    /// Set the generation.
    fn set_generation(&mut self, generation: u32);
    /// What inspection has of it.
    fn inspect(&self) -> InspectState;
    /// Whether its packets are looked at, counted or dropped before they are translated.
    fn diverts(&self) -> bool;
    /// Set what inspection has of it.
    fn set_inspect(&mut self, inspect: InspectState);
    /// Packets of its first one's direction get another code point, whatever else is looked at.
    fn remark(&mut self) {
        if matches!(self.inspect(), InspectState::Nothing | InspectState::Sought) {
            self.set_inspect(InspectState::Remarked);
        }
    }
    /// Set the pool that has the leased port.
    fn set_pool(&mut self, pool: PoolIndex);
    /// Set what answers arrive as, and what translation decided, before the record is in a table.
    fn translate_as(&mut self, reverse: F::Tuple, nat: Decision);
    /// A record with every decision made.
    fn made(parts: SessionParts<F>) -> Self;
}

/// What a new session is made of.
#[derive(Clone, Copy, Debug)]
pub struct SessionParts<F: Family> {
    /// Key of the first packet.
    pub forward: F::Tuple,
    /// Key of the answers.
    pub reverse: F::Tuple,
    /// What translation decided.
    pub nat: Decision,
    /// Next hops by direction.
    pub hops: [AdjacencyIndex; 2],
    /// Generation of the snapshot.
    pub generation: u32,
    /// IP protocol.
    pub protocol: u8,
    /// Whether inbound packets keep it alive.
    pub inbound_refresh: bool,
    /// Interface of the first packet.
    pub interface: u16,
}

/// An address family.
pub trait Family: Copy + std::fmt::Debug + Sized + 'static {
    /// Its addresses.
    type Address: sluice_nat::Address + Default;
    /// Its tuples.
    type Tuple: Tuple<Address = Self::Address>;
    /// Its keys.
    type Key: Copy + Default + Eq + std::fmt::Debug;
    /// Its sessions.
    type Session: Session<Self>;
    /// Its addresses as the packet filter has them.
    type Number: sluice_filter::Address + Into<u128>;
    /// IPv6?
    const IS_V6: bool;

    /// Key of a packet.
    fn key(layers: &Layers, frame: &[u8], context: Context) -> Self::Key;
    /// Key that an ICMP error is looked up by: of the packets that would answer the one it quotes. `as_it_came`: it is not
    /// rewritten, so that ports are enough of what it quotes.
    fn quoted(layers: &Layers, frame: &[u8], context: Context, as_it_came: bool) -> Result<Self::Key, Fault>;
    /// A key of its parts.
    fn make_key(tuple: Self::Tuple, protocol: u8) -> Self::Key;
    /// A key's tuple.
    fn tuple(key: &Self::Key) -> &Self::Tuple;
    /// A key's protocol.
    fn protocol(key: &Self::Key) -> u8;
    /// Hash keys.
    fn hash(hasher: &Hasher, keys: &[Self::Key], out: &mut [u64]);
    /// Hash one key.
    fn hash_one(hasher: &Hasher, key: &Self::Key) -> u64;
    /// The shard's table of this family.
    fn table<'t, 'm>(shard: &'t mut Shard<'m>) -> &'t mut FlowTable<'m, Self::Session>;
    /// The shard's table of this family, to read.
    fn table_ref<'t, 'm>(shard: &'t Shard<'m>) -> &'t FlowTable<'m, Self::Session>;
    /// The list of packets to be looked up.
    fn lookups(lists: &mut Lists) -> &mut BufferIndices;
    /// The list of packets without a session.
    fn slow_path(lists: &mut Lists) -> &mut BufferIndices;
    /// The list of packets of inspected sessions.
    fn inspects(lists: &mut Lists) -> &mut Inspected;
    /// The list of packets of sessions whose application is looked for.
    fn identifies(lists: &mut Lists) -> &mut Inspected;
    /// An address in the form of the standard library.
    fn ip(address: Self::Address) -> IpAddr;
    /// The list of sessions to be decided again.
    fn revalidates(lists: &mut Lists) -> &mut BufferIndices;
    /// The list of packets to be routed.
    fn forwards(lists: &mut Lists) -> &mut BufferIndices;
    /// The packet filter of this family.
    fn filter(filters: &Filters) -> &Filter<Self::Number>;
    /// Its rules about packets to the gateway itself, if there are any.
    fn gateway_filter(filters: &Filters) -> Option<&Filter<Self::Number>>;
    /// An address as the packet filter has it.
    fn number(address: Self::Address) -> Self::Number;
    /// Translation of this family.
    fn nat(snapshot: &Snapshot) -> &Nat<Self>;
    /// The shard's timers of this family.
    fn wheel<'t, 'm>(shard: &'t mut Shard<'m>) -> (&'t mut Wheel, &'t mut FlowTable<'m, Self::Session>);
    /// What the shard has lent of this family.
    fn bindings<'t, 'm>(shard: &'t mut Shard<'m>) -> &'t mut Bindings<'m, Self::Address>;
    /// The same, to read.
    fn bindings_ref<'t, 'm>(shard: &'t Shard<'m>) -> &'t Bindings<'m, Self::Address>;
    /// Rewrite a packet of a session, and count it down by so many hops; false where its headers are too short.
    fn rewrite(frame: &mut [u8], layers: &Layers, session: &Self::Session, direction: Direction, hops: u8) -> bool;
    /// Translate a plain packet of a session, count it down by a hop and track it. Says what tracking found, and gives
    /// the link header back, to be written; none, and nothing done, where the packet is not plain.
    fn plain<'f>(
        frame: &'f mut [u8],
        layers: &Layers,
        session: &mut Self::Session,
        direction: Direction,
    ) -> Option<(Tracked, &'f mut [u8])>;
    /// Translate an ICMP error about a packet of a session, and count it down by so many hops.
    fn rewrite_error(
        frame: &mut [u8],
        layers: &Layers,
        session: &Self::Session,
        direction: Direction,
        hops: u8,
    ) -> Result<(), Reason>;
    /// The value of a router's longest route to an address; [`sluice_table::prefix::NO_ROUTE`] where there is none.
    fn route(paths: &ForwardingState, router: RouterIndex, address: Self::Address) -> u32;
    /// The same of many, each by its router.
    fn routes(paths: &ForwardingState, routers: &[RouterIndex], addresses: &[Self::Address], values: &mut [u32]);
    /// An address as routing has it.
    fn address(address: Self::Address) -> sluice_route::Address;
    /// Source and destination of a packet.
    fn addresses(layers: &Layers, frame: &[u8]) -> (Self::Address, Self::Address);
    /// Destination of a packet.
    #[inline(always)]
    fn destination(layers: &Layers, frame: &[u8]) -> Self::Address {
        Self::addresses(layers, frame).1
    }
    /// Count a plain packet down by a hop, and give its link header back, to be written; none, and nothing done, where
    /// the packet is not plain.
    fn count_down<'f>(frame: &'f mut [u8], layers: &Layers) -> Option<&'f mut [u8]>;
    /// Whether an address is a group's: multicast, or broadcast on a link.
    #[inline(always)]
    fn is_group(address: Self::Address) -> bool {
        let [high, low] = Self::words(address);
        if Self::IS_V6 {
            high >> 56 == 0xff
        } else {
            // From 240.0.0.0 on there are none, and nothing gets here from there that is not configured to be a host's.
            low as u32 >= 0xe000_0000 && ((low as u32) < 0xf000_0000 || low as u32 == u32::MAX)
        }
    }
    /// The first bits of an address, in two words.
    #[inline(always)]
    fn prefix(address: Self::Address, length: u8) -> [u64; 2] {
        let [high, low] = Self::words(address);
        if Self::IS_V6 && length < 128 {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            [high & (mask >> 64) as u64, low & mask as u64]
        } else if !Self::IS_V6 && length < 32 {
            [high, low & u64::MAX << (32 - length)]
        } else {
            [high, low]
        }
    }
    /// An address in two words.
    fn words(address: Self::Address) -> [u64; 2] {
        sluice_nat::Address::words(address)
    }
}

/// What tracking found in a packet.
#[derive(Clone, Copy, Debug)]
pub enum Tracked {
    /// What most are: its timer runs already, and it needs no identification.
    Known,
    /// A TCP segment still to be tracked.
    Segment(Segment),
    /// A datagram still to be tracked.
    Datagram,
    /// What changes nothing.
    Nothing,
}

/// IPv4.
#[derive(Clone, Copy, Debug)]
pub struct V4;
/// IPv6.
#[derive(Clone, Copy, Debug)]
pub struct V6;

fn same(address: u32) -> u32 {
    address
}

fn joined([high, low]: [u64; 2]) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

/// Routers do not cut IPv6.
#[inline(always)]
fn never_cut(_: &[u8; ipv6::LENGTH]) -> bool {
    true
}

fn routes4(paths: &ForwardingState, routers: &[RouterIndex], addresses: &[u32], values: &mut [u32]) {
    paths.fib.v4.lookup_batch(routers, addresses, values);
}

fn routes6(paths: &ForwardingState, routers: &[RouterIndex], addresses: &[[u64; 2]], values: &mut [u32]) {
    let mut numbers = [0; BURST_BUFFERS];
    for (number, &address) in numbers.iter_mut().zip(addresses) {
        *number = joined(address);
    }
    let numbers = &numbers[..addresses.len().min(BURST_BUFFERS)];
    paths.fib.v6.lookup_batch(routers, numbers, values);
}

macro_rules! family {
    ($family:ident, $address:ty, $tuple:ident, $key:ident, $session:ident, $six:literal, $keyfn:ident, $hash:ident,
     $one:ident, $table:ident, $lookup:ident, $decide:ident, $inspect:ident, $recognise:ident, $ip:path, $revise:ident, $forward:ident, $nat:ident,
     $wheel:ident, $bindings:ident, $rewrite:ident, $rewrite_plain:ident, $count_down:path,
     $error:ident, $fib:ident, $plain:ident, $bits:ident, $routes:ident, $atomic:path, $number:ty, $filter:ident) => {
        impl Family for $family {
            type Address = $address;
            type Tuple = $tuple;
            type Key = $key;
            type Session = $session;
            type Number = $number;
            const IS_V6: bool = $six;

            #[inline(always)]
            fn key(layers: &Layers, frame: &[u8], context: Context) -> $key {
                layers.$keyfn(frame, context)
            }
            fn quoted(layers: &Layers, frame: &[u8], context: Context, as_it_came: bool) -> Result<$key, Fault> {
                let quoted = match as_it_came {
                    true => quoted_flow(frame, layers)?,
                    false => quoted(frame, layers)?,
                };
                Ok(quoted.$keyfn(frame, context).reversed())
            }
            #[inline(always)]
            fn make_key(tuple: $tuple, protocol: u8) -> $key {
                $key { tuple, protocol }
            }
            #[inline(always)]
            fn tuple(key: &$key) -> &$tuple {
                &key.tuple
            }
            #[inline(always)]
            fn protocol(key: &$key) -> u8 {
                key.protocol
            }
            #[inline(always)]
            fn hash(hasher: &Hasher, keys: &[$key], out: &mut [u64]) {
                hasher.$hash(keys, out);
            }
            #[inline(always)]
            fn hash_one(hasher: &Hasher, key: &$key) -> u64 {
                hasher.$one(key)
            }
            #[inline(always)]
            fn table<'t, 'm>(shard: &'t mut Shard<'m>) -> &'t mut FlowTable<'m, $session> {
                &mut shard.$table
            }
            #[inline(always)]
            fn table_ref<'t, 'm>(shard: &'t Shard<'m>) -> &'t FlowTable<'m, $session> {
                &shard.$table
            }
            #[inline(always)]
            fn lookups(lists: &mut Lists) -> &mut BufferIndices {
                &mut lists.$lookup
            }
            #[inline(always)]
            fn inspects(lists: &mut Lists) -> &mut Inspected {
                &mut lists.$inspect
            }
            fn identifies(lists: &mut Lists) -> &mut Inspected {
                &mut lists.$recognise
            }
            fn ip(address: $address) -> IpAddr {
                $ip(address)
            }
            #[inline(always)]
            fn slow_path(lists: &mut Lists) -> &mut BufferIndices {
                &mut lists.$decide
            }
            #[inline(always)]
            fn revalidates(lists: &mut Lists) -> &mut BufferIndices {
                &mut lists.$revise
            }
            #[inline(always)]
            fn forwards(lists: &mut Lists) -> &mut BufferIndices {
                &mut lists.$forward
            }
            #[inline(always)]
            fn filter(filters: &Filters) -> &Filter<$number> {
                &filters.$filter
            }
            #[inline(always)]
            fn gateway_filter(filters: &Filters) -> Option<&Filter<$number>> {
                filters.gateway.as_ref().map(|gateway| &gateway.$filter)
            }
            #[inline(always)]
            fn number(address: $address) -> $number {
                $bits(address)
            }
            #[inline(always)]
            fn nat(snapshot: &Snapshot) -> &Nat<Self> {
                &snapshot.$nat
            }
            #[inline(always)]
            fn wheel<'t, 'm>(shard: &'t mut Shard<'m>) -> (&'t mut Wheel, &'t mut FlowTable<'m, $session>) {
                (&mut shard.$wheel, &mut shard.$table)
            }
            #[inline(always)]
            fn bindings<'t, 'm>(shard: &'t mut Shard<'m>) -> &'t mut Bindings<'m, $address> {
                &mut shard.$bindings
            }
            #[inline(always)]
            fn bindings_ref<'t, 'm>(shard: &'t Shard<'m>) -> &'t Bindings<'m, $address> {
                &shard.$bindings
            }
            #[inline(always)]
            fn rewrite(frame: &mut [u8], layers: &Layers, session: &$session, direction: Direction, hops: u8) -> bool {
                let transport = Transport::of_layers(layers);
                let rewrite = Rewrite::new(&session.forward, &session.reverse, session.nat, direction);
                $rewrite(
                    frame,
                    layers.l3 as usize,
                    layers.l4 as usize,
                    transport,
                    &rewrite,
                    hops,
                )
            }
            #[inline(always)]
            fn plain<'f>(
                frame: &'f mut [u8],
                layers: &Layers,
                session: &mut $session,
                direction: Direction,
            ) -> Option<(Tracked, &'f mut [u8])> {
                let Plain {
                    link,
                    network,
                    transport,
                } = layers.plain_mut(frame)?;
                let tcp = layers.protocol == TCP;
                // Read before it is written: a load that spans a fresh store waits for it.
                let segment = Segment::of(transport, layers.end.saturating_sub(layers.l4) as usize);
                let rewrite = Rewrite::new(&session.forward, &session.reverse, session.nat, direction);
                $rewrite_plain(network, transport, !tcp, &rewrite, 1);
                let atomic = $atomic(network);
                let tracked = if session
                    .track
                    .tracking
                    .track_plain(direction, tcp, &segment, atomic)
                {
                    Tracked::Known
                } else if tcp {
                    Tracked::Segment(segment)
                } else {
                    Tracked::Datagram
                };
                Some((tracked, link))
            }
            #[inline(always)]
            fn addresses(layers: &Layers, frame: &[u8]) -> ($address, $address) {
                let key = layers.$keyfn(frame, 0);
                (key.tuple.source, key.tuple.destination)
            }
            #[inline(always)]
            fn count_down<'f>(frame: &'f mut [u8], layers: &Layers) -> Option<&'f mut [u8]> {
                let Plain { link, network, .. } = layers.plain_mut(frame)?;
                $count_down(network);
                Some(link)
            }
            #[cold]
            fn rewrite_error(
                frame: &mut [u8],
                layers: &Layers,
                session: &$session,
                direction: Direction,
                hops: u8,
            ) -> Result<(), Reason> {
                let quote = quoted(frame, layers)?;
                let rewrite = Rewrite::new(&session.forward, &session.reverse, session.nat, direction);
                Ok($error(frame, layers, &quote, &rewrite, hops)?)
            }
            #[inline(always)]
            fn route(paths: &ForwardingState, router: RouterIndex, address: $address) -> u32 {
                paths.fib.$fib.lookup(router, $bits(address)).unwrap_or(NO_ROUTE)
            }
            #[inline(always)]
            fn routes(paths: &ForwardingState, routers: &[RouterIndex], addresses: &[$address], values: &mut [u32]) {
                $routes(paths, routers, addresses, values)
            }
            #[inline(always)]
            fn address(address: $address) -> sluice_route::Address {
                sluice_route::Address::$plain($bits(address))
            }
        }

        impl Session<$family> for $session {
            #[inline(always)]
            fn forward(&self) -> &$tuple {
                &self.forward
            }
            #[inline(always)]
            fn reverse(&self) -> &$tuple {
                &self.reverse
            }
            #[inline(always)]
            fn nat(&self) -> Decision {
                self.nat
            }
            #[inline(always)]
            fn track(&self) -> &Track {
                &self.track
            }
            #[inline(always)]
            fn track_mut(&mut self) -> &mut Track {
                &mut self.track
            }
            #[inline(always)]
            fn generation(&self) -> u32 {
                self.generation
            }
            #[inline(always)]
            fn application(&self) -> Application {
                match protocol::is_icmp(self.arrivals.protocol()) {
                    true => Application::Nothing,
                    false => Application::from_bits(self.application),
                }
            }
            fn set_application(&mut self, application: Application) {
                if !protocol::is_icmp(self.arrivals.protocol()) {
                    self.application = application.bits();
                }
            }
            #[inline(always)]
            fn protocol(&self) -> u8 {
                self.arrivals.protocol()
            }
            #[inline(always)]
            fn refreshes(&self, direction: Direction) -> bool {
                self.arrivals.refreshes(direction)
            }
            #[inline(always)]
            fn bound_interface(&self, direction: Direction) -> u16 {
                self.arrivals.interface(direction)
            }
            fn set_bound_interface(&mut self, direction: Direction, interface: u16) {
                self.arrivals = self.arrivals.with(direction, interface);
            }
            #[inline(always)]
            fn adjacency(&self, direction: Direction) -> AdjacencyIndex {
                AdjacencyIndex(self.hops[direction as usize])
            }
            fn set_adjacency(&mut self, direction: Direction, hop: AdjacencyIndex) {
                self.hops[direction as usize] = hop.0;
            }
            fn set_generation(&mut self, generation: u32) {
                self.generation = generation;
            }
            #[inline(always)]
            fn diverts(&self) -> bool {
                self.inspect != 0
            }
            #[inline(always)]
            fn inspect(&self) -> InspectState {
                InspectState::from_bits(self.inspect)
            }
            fn set_inspect(&mut self, inspect: InspectState) {
                self.inspect = inspect.bits();
            }
            fn set_pool(&mut self, pool: PoolIndex) {
                self.nat = self.nat.with_pool(pool);
            }
            fn translate_as(&mut self, reverse: $tuple, nat: Decision) {
                (self.reverse, self.nat) = (reverse, nat);
            }
            fn made(parts: SessionParts<$family>) -> Self {
                Self {
                    forward: parts.forward,
                    reverse: parts.reverse,
                    nat: parts.nat,
                    hops: [parts.hops[0].0, parts.hops[1].0],
                    generation: parts.generation,
                    arrivals: BoundInterfaces::new(
                        parts.protocol,
                        // Answers come from where packets go; what turns back comes by any interface of the inside.
                        [parts.interface, parts.hops[0].interface() as u16],
                        [Direction::Forward, Direction::Reverse]
                            .map(|direction| parts.inbound_refresh | parts.nat.outbound(direction)),
                    ),
                    ..Self::default()
                }
            }
        }
    };
}

fn ip4(address: u32) -> IpAddr {
    Ipv4Addr::from_bits(address).into()
}

fn ip6(address: [u64; 2]) -> IpAddr {
    Ipv6Addr::from_bits(joined(address)).into()
}

family!(
    V4,
    u32,
    Tuple4,
    FlowKey4,
    Session4,
    false,
    key4,
    hash4,
    one4,
    sessions4,
    lookup4,
    decide4,
    inspect4,
    recognise4,
    ip4,
    revise4,
    forward4,
    nat4,
    wheel4,
    bindings4,
    rewrite4,
    rewrite_plain4,
    ipv4::count_down,
    translate_error4,
    v4,
    V4,
    same,
    routes4,
    ip_id::is_atomic,
    u32,
    four
);
family!(
    V6,
    [u64; 2],
    Tuple6,
    FlowKey6,
    Session6,
    true,
    key6,
    hash6,
    one6,
    sessions6,
    lookup6,
    decide6,
    inspect6,
    recognise6,
    ip6,
    revise6,
    forward6,
    nat6,
    wheel6,
    bindings6,
    rewrite6,
    rewrite_plain6,
    ipv6::count_down,
    translate_error6,
    v6,
    V6,
    joined,
    routes6,
    never_cut,
    u128,
    six
);
