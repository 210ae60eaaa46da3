//! A trait that abstracts from the address family, so that one implementation of a node processes both IPv4 and IPv6.

use std::marker::PhantomData;
use std::net::IpAddr;

use sluice_filter::{Filter, Filters};
use sluice_nat::tracking::Segment;
use sluice_nat::{Bindings, Tuple};
use sluice_table::flow::FlowTable;
use sluice_table::hash::Hasher;
use sluice_table::wheel::Wheel;
use sluice_wire::layers::Layers;
use sluice_wire::quote::{Quoted, quoted, quoted_flow};
use sluice_wire::{Context, Direction, Fault};

use crate::packet::io::BURST_BUFFERS;
use crate::packet::lists::ByFamily;
use crate::packet::reason::Reason;
use crate::session::record::Track;
use crate::session::shard::Shard;

mod session;
mod v4;
mod v6;

pub use session::{Session, SessionParts};
pub use v4::V4;
pub use v6::V6;

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
    fn tuple(key: &Self::Key) -> Self::Tuple;
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
    /// packet. If `is_untranslated` is set, the error is not rewritten, so that quoted ports are sufficient.
    fn quoted(layers: &Layers, frame: &[u8], context: Context, is_untranslated: bool) -> Result<Self::Key, Fault> {
        let quoted = match is_untranslated {
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
            // Addresses in 240.0.0.0/4, except the limited broadcast address, are unicast. They are used only if they
            // are configured for hosts.
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
    #[inline(always)]
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
fn track_fast(track: &mut Track, direction: Direction, tcp: bool, segment: Segment, atomic: bool) -> Tracked {
    if track.tracking.track_fast(direction, tcp, &segment, atomic) {
        Tracked::Known
    } else if tcp {
        Tracked::Segment(segment)
    } else {
        Tracked::Datagram
    }
}
