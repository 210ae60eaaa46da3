//! A trait that abstracts over IPv4 and IPv6, so that one implementation of a node processes both families.

use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_filter::{Filter, Filters};
use sluice_nat::icmp::{translate_error4, translate_error6};
use sluice_nat::rewrite::{Rewrite, Transport, rewrite_plain4, rewrite_plain6, rewrite4, rewrite6};
use sluice_nat::tracking::Segment;
use sluice_nat::{Bindings, Decision, PoolIndex, Tuple};
use sluice_table::flow::{FlowTable, Record};
use sluice_table::hash::Hasher;
use sluice_table::wheel::Wheel;
use sluice_wire::ipv4::protocol::{self, TCP};
use sluice_wire::layers::{Layers, Plain};
use sluice_wire::quote::{Quoted, quoted, quoted_flow};
use sluice_wire::{Context, Direction, Fault, FlowKey4, FlowKey6, Tuple4, Tuple6, ipv4, ipv6};

use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::io::BURST_BUFFERS;
use crate::packet::lists::ByFamily;
use crate::packet::reason::Reason;
use crate::session::application::Application;
use crate::session::bound_interfaces::BoundInterfaces;
use crate::session::inspect_state::InspectState;
use crate::session::ip_id;
use crate::session::record::{Session4, Session6, Track, Verdict};
use crate::session::shard::Shard;

/// The methods of a session record that nodes use.
pub trait Session<F: Family>: Record<Key = F::Key> + Default {
    /// Key of packets in the forward direction, in which the session's first packet was sent.
    fn forward(&self) -> &F::Tuple;
    /// Key of packets in the reverse direction.
    fn reverse(&self) -> &F::Tuple;
    /// The decisions that the slow path has made.
    fn verdict(&self) -> &Verdict;
    /// The decisions that the slow path has made, mutable.
    fn verdict_mut(&mut self) -> &mut Verdict;
    /// The state that is updated by packets.
    fn track(&self) -> &Track;
    /// The state that is updated by packets, mutable.
    fn track_mut(&mut self) -> &mut Track;
    /// Sets the keys of both directions. The caller must set the keys before it inserts the record into a table.
    fn set_keys(&mut self, forward: F::Tuple, reverse: F::Tuple);

    /// How the session's packets are translated.
    #[inline(always)]
    fn nat(&self) -> Decision {
        self.verdict().nat
    }
    /// Generation of the snapshot under which the session was decided.
    #[inline(always)]
    fn generation(&self) -> u32 {
        self.verdict().generation
    }
    /// Sets the generation of the snapshot under which the session was decided.
    fn set_generation(&mut self, generation: u32) {
        self.verdict_mut().generation = generation;
    }
    /// State of application identification. The state is [`Application::Nothing`] for ICMP sessions, which are never identified.
    #[inline(always)]
    fn application(&self) -> Application {
        match protocol::is_icmp(self.protocol()) {
            true => Application::Nothing,
            false => Application::from_bits(self.verdict().application),
        }
    }
    /// Sets the state of application identification.
    fn set_application(&mut self, application: Application) {
        if !protocol::is_icmp(self.protocol()) {
            self.verdict_mut().application = application.bits();
        }
    }
    /// IP protocol of the session.
    #[inline(always)]
    fn protocol(&self) -> u8 {
        self.verdict().bound.protocol()
    }
    /// Whether packets of a direction refresh the session.
    #[inline(always)]
    fn refreshes(&self, direction: Direction) -> bool {
        self.verdict().bound.refreshes(direction)
    }
    /// Interface on which packets of a direction arrive; [`BoundInterfaces::NONE`] if every packet must pass source validation.
    #[inline(always)]
    fn bound_interface(&self, direction: Direction) -> u16 {
        self.verdict().bound.interface(direction)
    }
    /// Binds a direction to another interface.
    fn set_bound_interface(&mut self, direction: Direction, interface: u16) {
        let verdict = self.verdict_mut();
        verdict.bound = verdict.bound.with(direction, interface);
    }
    /// Interface on which the first packet arrived.
    #[inline(always)]
    fn interface(&self) -> u16 {
        self.bound_interface(Direction::Forward)
    }
    /// Adjacency of a direction.
    #[inline(always)]
    fn adjacency(&self, direction: Direction) -> AdjacencyIndex {
        self.verdict().adjacency(direction)
    }
    /// Sets the adjacency of a direction.
    fn set_adjacency(&mut self, direction: Direction, adjacency: AdjacencyIndex) {
        self.verdict_mut().adjacencies[direction as usize] = adjacency.0;
    }
    /// State of the session's inspection.
    #[inline(always)]
    fn inspect(&self) -> InspectState {
        InspectState::from_bits(self.verdict().inspect)
    }
    /// Whether the session's packets are inspected, remarked or dropped before translation.
    #[inline(always)]
    fn diverts(&self) -> bool {
        self.verdict().inspect != 0
    }
    /// Sets the state of the session's inspection.
    fn set_inspect(&mut self, inspect: InspectState) {
        self.verdict_mut().inspect = inspect.bits();
    }
    /// Requests the remarking of forward packets, if packets are not diverted for another reason.
    fn remark(&mut self) {
        if matches!(self.inspect(), InspectState::Nothing | InspectState::Pending) {
            self.set_inspect(InspectState::Remarked);
        }
    }
    /// Sets the pool that owns the allocated port.
    fn set_pool(&mut self, pool: PoolIndex) {
        let verdict = self.verdict_mut();
        verdict.nat = verdict.nat.with_pool(pool);
    }
    /// Sets the reverse key and the translation. The caller must set them before it inserts the record into a table.
    fn translate_as(&mut self, reverse: F::Tuple, nat: Decision) {
        let forward = *self.forward();
        self.set_keys(forward, reverse);
        self.verdict_mut().nat = nat;
    }
    /// Creates a record with all decisions of the slow path.
    fn made(parts: SessionParts<F>) -> Self {
        let mut session = Self::default();
        session.set_keys(parts.forward, parts.reverse);
        *session.verdict_mut() = Verdict {
            nat: parts.nat,
            adjacencies: parts.hops.map(|hop| hop.0),
            generation: parts.generation,
            application: 0,
            inspect: 0,
            bound: BoundInterfaces::new(
                parts.protocol,
                // Reverse packets arrive on the egress interface of forward packets. A hairpinned flow's reverse direction is not bound.
                [parts.interface, parts.hops[0].interface() as u16],
                [Direction::Forward, Direction::Reverse]
                    .map(|direction| parts.inbound_refresh | parts.nat.outbound(direction)),
            ),
        };
        session
    }
}

/// The fields of a new session.
#[derive(Clone, Copy, Debug)]
pub struct SessionParts<F: Family> {
    /// Key of the first packet.
    pub forward: F::Tuple,
    /// Key of the reverse direction.
    pub reverse: F::Tuple,
    /// Translation of the session.
    pub nat: Decision,
    /// Adjacencies by direction.
    pub hops: [AdjacencyIndex; 2],
    /// Generation of the snapshot.
    pub generation: u32,
    /// IP protocol of the session.
    pub protocol: u8,
    /// Whether inbound packets refresh the session.
    pub inbound_refresh: bool,
    /// Interface of the first packet.
    pub interface: u16,
}

impl<T> ByFamily<T> {
    /// The list of an address family.
    #[inline(always)]
    pub fn of<F: Family>(&mut self) -> &mut T {
        match F::IS_V6 {
            true => &mut self.v6,
            false => &mut self.v4,
        }
    }
}

/// A family of types, indexed by address family, for [`Family::select`].
pub trait PerFamily {
    /// The type for an address family.
    type Of<F: Family>;
}

/// An address family.
pub trait Family: Copy + std::fmt::Debug + Sized + 'static {
    /// Addresses of the family.
    type Address: sluice_nat::Address + Default;
    /// Address and port tuples of the family.
    type Tuple: Tuple<Address = Self::Address>;
    /// Flow keys of the family.
    type Key: Copy + Default + Eq + std::fmt::Debug;
    /// Session records of the family.
    type Session: Session<Self>;
    /// Type of the family's addresses as integers, for the packet filter and the routing tables.
    type Number: sluice_filter::Address + sluice_table::prefix::Address + Default + Into<u128>;
    /// Whether the family is IPv6.
    const IS_V6: bool;

    /// Selects the value of this family.
    fn select<'t, T: PerFamily>(v4: &'t T::Of<V4>, v6: &'t T::Of<V6>) -> &'t T::Of<Self>;
    /// Selects the value of this family, mutable.
    fn select_mut<'t, T: PerFamily>(v4: &'t mut T::Of<V4>, v6: &'t mut T::Of<V6>) -> &'t mut T::Of<Self>;

    /// Key of a packet.
    fn key(layers: &Layers, frame: &[u8], context: Context) -> Self::Key;
    /// Key of the packet that an ICMP error quotes, in the direction of the quoted packet.
    fn quoted_key(quoted: &Quoted, frame: &[u8], context: Context) -> Self::Key;
    /// Creates a key from a tuple and a protocol.
    fn make_key(tuple: Self::Tuple, protocol: u8) -> Self::Key;
    /// The tuple of a key.
    fn tuple(key: &Self::Key) -> &Self::Tuple;
    /// The protocol of a key.
    fn protocol(key: &Self::Key) -> u8;
    /// The key of the opposite direction.
    fn reversed(key: &Self::Key) -> Self::Key;
    /// Hashes keys.
    fn hash(hasher: &Hasher, keys: &[Self::Key], out: &mut [u64]);
    /// Hashes one key.
    fn hash_one(hasher: &Hasher, key: &Self::Key) -> u64;
    /// An address as an integer.
    fn number(address: Self::Address) -> Self::Number;
    /// The addresses as integers. Addresses that are not integers already are converted into `numbers`.
    fn numbers<'a>(
        addresses: &'a [Self::Address],
        numbers: &'a mut [Self::Number; BURST_BUFFERS],
    ) -> &'a [Self::Number];
    /// An address as a type of the standard library.
    fn ip(address: Self::Address) -> IpAddr;
    /// An address as a type of the routing crate.
    fn address(address: Self::Address) -> sluice_route::Address;
    /// Translates a packet of a session and decrements its TTL by `hops`. Returns `false` if the headers are too short.
    fn rewrite(frame: &mut [u8], layers: &Layers, session: &Self::Session, direction: Direction, hops: u8) -> bool;
    /// Translates a plain packet of a session (unfragmented TCP or UDP), decrements its TTL and tracks it. Returns the
    /// result of tracking, and the link header to write. If the packet is not plain, returns `None` without an effect.
    fn plain<'f>(
        frame: &'f mut [u8],
        layers: &Layers,
        session: &mut Self::Session,
        direction: Direction,
    ) -> Option<(Tracked, &'f mut [u8])>;
    /// Translates an ICMP error for a packet of a session, and decrements the error's TTL by a number of hops.
    fn rewrite_error(
        frame: &mut [u8],
        layers: &Layers,
        session: &Self::Session,
        direction: Direction,
        hops: u8,
    ) -> Result<(), Reason>;
    /// Decrements the TTL of a plain packet. Returns the link header to write. If the packet is not plain, returns
    /// `None` without an effect.
    fn count_down<'f>(frame: &'f mut [u8], layers: &Layers) -> Option<&'f mut [u8]>;

    /// The session lookup key for an ICMP error, which is the key of packets in the direction opposite to the quoted
    /// packet. If `as_it_came` is set, the error is not rewritten, so that quoted ports are sufficient.
    fn quoted(layers: &Layers, frame: &[u8], context: Context, as_it_came: bool) -> Result<Self::Key, Fault> {
        let quoted = match as_it_came {
            true => quoted_flow(frame, layers)?,
            false => quoted(frame, layers)?,
        };
        Ok(Self::reversed(&Self::quoted_key(&quoted, frame, context)))
    }
    /// Source and destination of a packet.
    #[inline(always)]
    fn addresses(layers: &Layers, frame: &[u8]) -> (Self::Address, Self::Address) {
        let key = Self::key(layers, frame, 0);
        let tuple = Self::tuple(&key);
        (tuple.source(), tuple.destination())
    }
    /// Destination of a packet.
    #[inline(always)]
    fn destination(layers: &Layers, frame: &[u8]) -> Self::Address {
        Self::addresses(layers, frame).1
    }
    /// The session table of a shard.
    #[inline(always)]
    fn table<'t, 'm>(shard: &'t mut Shard<'m>) -> &'t mut FlowTable<'m, Self::Session> {
        Self::select_mut::<Tables<'m>>(&mut shard.sessions4, &mut shard.sessions6)
    }
    /// The session table of a shard, immutable.
    #[inline(always)]
    fn table_ref<'t, 'm>(shard: &'t Shard<'m>) -> &'t FlowTable<'m, Self::Session> {
        Self::select::<Tables<'m>>(&shard.sessions4, &shard.sessions6)
    }
    /// The timer wheel of a shard, with its session table.
    #[inline(always)]
    fn wheel<'t, 'm>(shard: &'t mut Shard<'m>) -> (&'t mut Wheel, &'t mut FlowTable<'m, Self::Session>) {
        let wheel = match Self::IS_V6 {
            true => &mut shard.wheel6,
            false => &mut shard.wheel4,
        };
        (
            wheel,
            Self::select_mut::<Tables<'m>>(&mut shard.sessions4, &mut shard.sessions6),
        )
    }
    /// Ports, mappings and subscribers of a shard.
    #[inline(always)]
    fn bindings<'t, 'm>(shard: &'t mut Shard<'m>) -> &'t mut Bindings<'m, Self::Address> {
        Self::select_mut::<AllBindings<'m>>(&mut shard.bindings4, &mut shard.bindings6)
    }
    /// Ports, mappings and subscribers of a shard, immutable.
    #[inline(always)]
    fn bindings_ref<'t, 'm>(shard: &'t Shard<'m>) -> &'t Bindings<'m, Self::Address> {
        Self::select::<AllBindings<'m>>(&shard.bindings4, &shard.bindings6)
    }
    /// The packet filter.
    #[inline(always)]
    fn filter(filters: &Filters) -> &Filter<Self::Number> {
        Self::select::<AllFilters>(&filters.v4, &filters.v6)
    }
    /// The filter rules for packets to the gateway itself, if any.
    #[inline(always)]
    fn gateway_filter(filters: &Filters) -> Option<&Filter<Self::Number>> {
        let gateway = filters.gateway.as_ref()?;
        Some(Self::select::<AllFilters>(&gateway.v4, &gateway.v6))
    }
    /// Whether an address is multicast, or the limited broadcast address.
    #[inline(always)]
    fn is_group(address: Self::Address) -> bool {
        let [high, low] = Self::words(address);
        if Self::IS_V6 {
            high >> 56 == 0xff
        } else {
            // 240.0.0.0/4 is unicast except the limited broadcast address. Its addresses are used only if they are configured for hosts.
            low as u32 >= 0xe000_0000 && ((low as u32) < 0xf000_0000 || low as u32 == u32::MAX)
        }
    }
    /// The prefix of an address, as two words.
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
    /// An address as two words.
    fn words(address: Self::Address) -> [u64; 2] {
        sluice_nat::Address::words(address)
    }
}

/// Result of tracking a packet.
#[derive(Clone, Copy, Debug)]
pub enum Tracked {
    /// The common case: the packet has been tracked and needs no IP ID, and the session's timer was already running.
    Known,
    /// The packet is a TCP segment that must still be tracked.
    Segment(Segment),
    /// The packet is a datagram that must still be tracked.
    Datagram,
    /// The packet does not change the state.
    Nothing,
}

/// The IPv4 address family.
#[derive(Clone, Copy, Debug)]
pub struct V4;
/// The IPv6 address family.
#[derive(Clone, Copy, Debug)]
pub struct V6;

/// The session tables of both families.
struct Tables<'m>(PhantomData<&'m ()>);

impl<'m> PerFamily for Tables<'m> {
    type Of<F: Family> = FlowTable<'m, F::Session>;
}

/// The bindings of both families.
struct AllBindings<'m>(PhantomData<&'m ()>);

impl<'m> PerFamily for AllBindings<'m> {
    type Of<F: Family> = Bindings<'m, F::Address>;
}

/// The filters of both families.
struct AllFilters;

impl PerFamily for AllFilters {
    type Of<F: Family> = Filter<F::Number>;
}

/// Tracks a plain packet.
#[inline(always)]
fn track_plain(track: &mut Track, direction: Direction, tcp: bool, segment: Segment, atomic: bool) -> Tracked {
    if track.tracking.track_plain(direction, tcp, &segment, atomic) {
        Tracked::Known
    } else if tcp {
        Tracked::Segment(segment)
    } else {
        Tracked::Datagram
    }
}

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
        FlowKey4 { tuple, protocol }
    }

    #[inline(always)]
    fn tuple(key: &FlowKey4) -> &Tuple4 {
        &key.tuple
    }

    #[inline(always)]
    fn protocol(key: &FlowKey4) -> u8 {
        key.protocol
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
        let rewrite = Rewrite::new(&session.forward, &session.reverse, session.verdict.nat, direction);
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
        let rewrite = Rewrite::new(&session.forward, &session.reverse, session.verdict.nat, direction);
        rewrite_plain4(network, transport, !tcp, &rewrite, 1);

        let atomic = ip_id::is_atomic(network);
        Some((track_plain(&mut session.track, direction, tcp, segment, atomic), link))
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
        let rewrite = Rewrite::new(&session.forward, &session.reverse, session.verdict.nat, direction);
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
    fn forward(&self) -> &Tuple4 {
        &self.forward
    }

    #[inline(always)]
    fn reverse(&self) -> &Tuple4 {
        &self.reverse
    }

    #[inline(always)]
    fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    #[inline(always)]
    fn verdict_mut(&mut self) -> &mut Verdict {
        &mut self.verdict
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
    fn set_keys(&mut self, forward: Tuple4, reverse: Tuple4) {
        (self.forward, self.reverse) = (forward, reverse);
    }
}

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
        FlowKey6 { tuple, protocol }
    }

    #[inline(always)]
    fn tuple(key: &FlowKey6) -> &Tuple6 {
        &key.tuple
    }

    #[inline(always)]
    fn protocol(key: &FlowKey6) -> u8 {
        key.protocol
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
        let rewrite = Rewrite::new(&session.forward, &session.reverse, session.verdict.nat, direction);
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
        let rewrite = Rewrite::new(&session.forward, &session.reverse, session.verdict.nat, direction);
        rewrite_plain6(network, transport, !tcp, &rewrite, 1);
        // Routers do not fragment IPv6.
        let atomic = true;
        Some((track_plain(&mut session.track, direction, tcp, segment, atomic), link))
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
        let rewrite = Rewrite::new(&session.forward, &session.reverse, session.verdict.nat, direction);
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
    fn forward(&self) -> &Tuple6 {
        &self.forward
    }

    #[inline(always)]
    fn reverse(&self) -> &Tuple6 {
        &self.reverse
    }

    #[inline(always)]
    fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    #[inline(always)]
    fn verdict_mut(&mut self) -> &mut Verdict {
        &mut self.verdict
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
    fn set_keys(&mut self, forward: Tuple6, reverse: Tuple6) {
        (self.forward, self.reverse) = (forward, reverse);
    }
}
