//! Lists of pool state: mappings, subscribers, and their port blocks.

use std::net::IpAddr;

use sluice_nat::bindings::{Mapping, Subscriber, SubscriberBlock};
use sluice_nat::{Address, PoolIndex, PortClass};

use super::{Cursor, Endpoint};
use crate::session::family::{Family, V4, V6};
use crate::session::shard::Shard;

/// A filter for mappings, subscribers and blocks. An item must match all given conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BindingFilter {
    /// Condition on the inside host. The port applies only to mappings.
    pub inside: Option<Endpoint>,
    /// Condition on the outside address and port. For a subscriber, the condition applies to the paired address. For a
    /// block, any of its ports may match.
    pub outside: Option<Endpoint>,
    /// Port class. The condition applies only to mappings.
    pub class: Option<PortClass>,
    /// Pool of the mapping, subscriber or block.
    pub pool: Option<PoolIndex>,
}

/// A mapping, as shown in lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingInfo {
    /// Inside address and port.
    pub inside: (IpAddr, u16),
    /// Outside address and port.
    pub outside: (IpAddr, u16),
    /// Port class of the mapping.
    pub class: PortClass,
    /// Pool of the mapping.
    pub pool: PoolIndex,
    /// Number of sessions that use the mapping.
    pub sessions: u32,
    /// Shard to which the mapping belongs.
    pub shard: u16,
}

/// A subscriber, as shown in lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriberInfo {
    /// Inside address of the subscriber, or the first address of its prefix.
    pub address: IpAddr,
    /// The outside address with which the subscriber is paired.
    pub paired: IpAddr,
    /// Pool of the subscriber.
    pub pool: PoolIndex,
    /// Number of sessions of the subscriber.
    pub sessions: u32,
    /// Number of outside ports in use, for each class.
    pub ports: [u32; 3],
    /// Number of port blocks of the subscriber.
    pub blocks: u16,
    /// Shard to which the subscriber belongs.
    pub shard: u16,
}

/// A port block, as shown in lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// The subscriber to which the block is allocated: its inside address, or the first address of its prefix.
    pub subscriber: IpAddr,
    /// Outside address of the block.
    pub address: IpAddr,
    /// First port of the block.
    pub first: u16,
    /// Last port of the block.
    pub last: u16,
    /// Number of ports in use, for each class.
    pub used: [u16; 3],
    /// Pool of the block.
    pub pool: PoolIndex,
    /// Shard to which the block belongs.
    pub shard: u16,
}

/// The kind of a list, and the memory for its items.
#[derive(Debug)]
pub enum BindingList {
    /// A list of mappings.
    Mappings(Vec<MappingInfo>),
    /// A list of subscribers.
    Subscribers(Vec<SubscriberInfo>),
    /// A list of port blocks. The blocks of a subscriber are listed together, so the capacity must be at least the maximum number
    /// of blocks per subscriber.
    Blocks(Vec<BlockInfo>),
}

/// Allocations of a worker's shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BindingUsage {
    /// Number of allocated ports, for each pool and class.
    pub ports: Vec<[u64; 3]>,
    /// Number of mappings, including filtering entries, and maximum number of mappings.
    pub mappings: [u64; 2],
    /// Number of subscribers, and maximum number of subscribers.
    pub subscribers: [u64; 2],
    /// Number of port blocks, and maximum number of port blocks.
    pub blocks: [u64; 2],
    /// Number of quarantined ports and blocks.
    pub held: u64,
    /// Number of ports and blocks that were released without quarantine, because the quarantine was full.
    pub unquarantined: u64,
}

impl BindingUsage {
    /// Adds the allocations of a shard.
    pub(crate) fn add(&mut self, shard: &Shard<'_>) {
        let bindings = &shard.bindings4;
        for (pool, ports) in self.ports.iter_mut().enumerate() {
            for (class, ports) in PortClass::ALL.into_iter().zip(ports) {
                *ports += u64::from(bindings.ports().used(pool as PoolIndex, class));
            }
        }
        let (held, unquarantined) = bindings.quarantined();
        for (sum, (used, max)) in [
            (&mut self.mappings, bindings.mappings()),
            (&mut self.subscribers, bindings.subscribers()),
            (&mut self.blocks, bindings.blocks()),
        ] {
            sum[0] += used as u64;
            sum[1] += max as u64;
        }
        self.held += held as u64;
        self.unquarantined += unquarantined;
    }
}

impl BindingList {
    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Mappings(into) => into.is_empty(),
            Self::Subscribers(into) => into.is_empty(),
            Self::Blocks(into) => into.is_empty(),
        }
    }

    /// Number of items for which the list still has space.
    fn capacity(&self) -> usize {
        match self {
            Self::Mappings(into) => into.capacity() - into.len(),
            Self::Subscribers(into) => into.capacity() - into.len(),
            Self::Blocks(into) => into.capacity() - into.len(),
        }
    }
}

/// Progress of a list after a part of its records was visited.
pub(super) struct Progress {
    /// Position at which the list continues.
    pub next: Option<Cursor>,
    /// Whether the memory of the list is full.
    pub full: bool,
}

/// Visits the next `count` records.
pub(super) fn step(
    shards: &[Option<Box<Shard<'_>>>],
    mut cursor: Cursor,
    count: u32,
    filter: &BindingFilter,
    into: &mut BindingList,
) -> Progress {
    while let Some(shard) = shards.get(usize::from(cursor.shard)) {
        let Some(shard) = shard else {
            cursor = cursor.skip();
            continue;
        };
        let progress = match cursor.v6 {
            false => scan::<V4>(shard, (cursor.record, count), filter, into),
            true => scan::<V6>(shard, (cursor.record, count), filter, into),
        };
        return match progress {
            Scan::Full(record) => Progress {
                next: Some(Cursor { record, ..cursor }),
                full: true,
            },
            Scan::Some(record) => Progress {
                next: Some(Cursor { record, ..cursor }),
                full: into.capacity() == 0,
            },
            Scan::End => Progress {
                next: Some(cursor.turn()),
                full: into.capacity() == 0,
            },
        };
    }
    Progress {
        next: None,
        full: false,
    }
}

/// Result of visiting a record.
enum Scan {
    /// The list has no space for the record with this number.
    Full(u32),
    /// The record with this number follows.
    Some(u32),
    /// No records are left.
    End,
}

fn scan<F: Family>(
    shard: &Shard<'_>,
    (from, count): (u32, u32),
    filter: &BindingFilter,
    into: &mut BindingList,
) -> Scan {
    let (bindings, number) = (F::bindings_ref(shard), shard.number);
    let capacity = u32::try_from(into.capacity()).unwrap_or(u32::MAX);
    let next = match into {
        _ if capacity == 0 => return Scan::Full(from),
        BindingList::Mappings(into) => bindings.scan_mappings(from, count.min(capacity), |mapping, subscriber| {
            into.extend(Some(mapping_of(mapping, subscriber, number)).filter(|shown| filter.matches_mapping(shown)));
        }),
        BindingList::Subscribers(into) => bindings.scan_subscribers(from, count.min(capacity), |subscriber, _| {
            into.extend(Some(subscriber_of(subscriber, number)).filter(|shown| filter.matches_subscriber(shown)));
        }),
        BindingList::Blocks(into) => {
            for record in from..from.saturating_add(count) {
                let mut fits = true;
                let next = bindings.scan_subscribers(record, 1, |subscriber, blocks| {
                    let size = bindings.ports().block_size(subscriber.pool());
                    fits = into.is_empty() || usize::from(subscriber.blocks()) <= into.capacity() - into.len();
                    for block in blocks.take(if fits { into.capacity() - into.len() } else { 0 }) {
                        let shown = block_of(subscriber, &block, size, number);
                        into.extend(Some(shown).filter(|shown| filter.matches_block(shown)));
                    }
                });
                match next {
                    _ if !fits => return Scan::Full(record),
                    None => return Scan::End,
                    Some(_) => {}
                }
            }
            Some(from.saturating_add(count))
        }
    };
    next.map_or(Scan::End, Scan::Some)
}

fn mapping_of<A: Address>(mapping: &Mapping<A>, subscriber: &Subscriber<A>, shard: u16) -> MappingInfo {
    let ((inside, inside_port), outside) = (mapping.inside(), mapping.outside());
    MappingInfo {
        inside: (inside.display(), inside_port),
        outside: (outside.address.display(), outside.port),
        class: mapping.class(),
        pool: subscriber.pool(),
        sessions: mapping.sessions(),
        shard,
    }
}

fn subscriber_of<A: Address>(subscriber: &Subscriber<A>, shard: u16) -> SubscriberInfo {
    SubscriberInfo {
        address: subscriber.address().display(),
        paired: subscriber.paired().display(),
        pool: subscriber.pool(),
        sessions: subscriber.sessions(),
        ports: subscriber.ports(),
        blocks: subscriber.blocks(),
        shard,
    }
}

fn block_of<A: Address>(subscriber: &Subscriber<A>, owned: &SubscriberBlock<A>, size: u16, shard: u16) -> BlockInfo {
    let block = owned.block();
    BlockInfo {
        subscriber: subscriber.address().display(),
        address: block.address.display(),
        first: block.first,
        last: block.first.saturating_add(size.saturating_sub(1)),
        used: owned.used(),
        pool: subscriber.pool(),
        shard,
    }
}

impl BindingFilter {
    fn matches_mapping(&self, shown: &MappingInfo) -> bool {
        self.pool.is_none_or(|pool| pool == shown.pool)
            && self.class.is_none_or(|class| class == shown.class)
            && self
                .inside
                .is_none_or(|wanted| wanted.matches(shown.inside.0, shown.inside.1))
            && self
                .outside
                .is_none_or(|wanted| wanted.matches(shown.outside.0, shown.outside.1))
    }

    fn matches_subscriber(&self, shown: &SubscriberInfo) -> bool {
        self.pool.is_none_or(|pool| pool == shown.pool)
            && self.inside.is_none_or(|wanted| wanted.lies_in(shown.address))
            && self.outside.is_none_or(|wanted| wanted.lies_in(shown.paired))
    }

    fn matches_block(&self, shown: &BlockInfo) -> bool {
        let ports = shown.first..=shown.last;
        self.pool.is_none_or(|pool| pool == shown.pool)
            && self.inside.is_none_or(|wanted| wanted.lies_in(shown.subscriber))
            && self.outside.is_none_or(|wanted| {
                wanted.lies_in(shown.address) && wanted.port.is_none_or(|port| ports.contains(&port))
            })
    }
}
