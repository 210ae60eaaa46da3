//! Requests of the control thread: lists, clearing, traces, captures. The worker answers requests between two bursts.
//!
//! The requester provides the memory for the answer, so that the worker allocates no memory.

mod bindings;
mod server;

use std::net::IpAddr;

use sluice_inspect::applications::{ApplicationSelector, ProtocolPair};
use sluice_nat::PoolIndex;
use sluice_nat::sites::outer;
use sluice_route::Prefix;
use sluice_wire::Context;

pub use self::bindings::{BindingFilter, BindingList, BindingUsage, BlockInfo, MappingInfo, SubscriberInfo};
pub use self::server::{RequestServer, WorkerHandle, channel};
use crate::packet::io::{PortIndex, WorkerIndex};
use crate::snapshot::probes::Probe;
use crate::worker::capture::Tap;
use crate::worker::trace::Tracer;

/// Maximum number of records that one round visits.
pub const RECORDS_PER_ROUND: u32 = 64;

/// In a full round, one record is visited for this number of packets.
const PACKETS_PER_RECORD: usize = 16;

/// Number of records that a round with this number of packets visits. A full round visits one record per
/// [`PACKETS_PER_RECORD`] packets; an idle round visits [`RECORDS_PER_ROUND`] records.
pub fn portion(packets: usize) -> u32 {
    let spare = (RECORDS_PER_ROUND as usize).saturating_sub(packets);
    spare.max(packets / PACKETS_PER_RECORD).min(RECORDS_PER_ROUND as usize) as u32
}

/// Condition on the address and port of one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Prefix that must contain the address; `None` matches any address.
    pub net: Option<Prefix>,
    /// Port or ICMP identifier; `None` matches any port.
    pub port: Option<u16>,
}

impl Endpoint {
    /// Whether an address matches, regardless of the port.
    fn lies_in(&self, address: IpAddr) -> bool {
        self.net.is_none_or(|net| net.contains(address.into()))
    }

    fn matches(&self, address: IpAddr, port: u16) -> bool {
        self.net.is_none_or(|net| net.contains(address.into())) && self.port.is_none_or(|wanted| wanted == port)
    }
}

/// A filter for sessions. A session must match all given conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Context of the session: number of the virtual router, or context of the subscriber's site.
    pub context: Option<Context>,
    /// Source address of the first packet.
    pub source: Option<IpAddr>,
    /// Source port or ICMP identifier of the first packet.
    pub source_port: Option<u16>,
    /// Destination address of the first packet.
    pub destination: Option<IpAddr>,
    /// Destination port of the first packet.
    pub destination_port: Option<u16>,
    /// Source address of the reverse direction.
    pub reply_source: Option<IpAddr>,
    /// Source port of the reverse direction.
    pub reply_source_port: Option<u16>,
    /// Destination address of the reverse direction, which is the translated address.
    pub reply_destination: Option<IpAddr>,
    /// Destination port of the reverse direction.
    pub reply_destination_port: Option<u16>,
    /// IP protocol number.
    pub protocol: Option<u8>,
    /// Interface on which the first packet arrived.
    pub interface: Option<u16>,
    /// Prefix that must contain an address of the session, in either direction.
    pub address: Option<Prefix>,
    /// Port that one of the endpoints must have, in either direction.
    pub port: Option<u16>,
    /// Condition on the inside host, before translation.
    pub inside: Option<Endpoint>,
    /// Condition on the outside address and port to which the inside host is translated.
    pub outside: Option<Endpoint>,
    /// Condition on the remote host.
    pub remote: Option<Endpoint>,
    /// Interface that leads to the inside host or to the remote host.
    pub either: Option<u16>,
    /// The pool of the session's outside address.
    pub pool: Option<PoolIndex>,
    /// Prefix that must contain the address of the inside host.
    pub subscriber: Option<Prefix>,
    /// The application of the session.
    pub application: Option<ApplicationSelector>,
    /// Whether to match only sessions with an outside address from a pool.
    pub translated: bool,
}

/// Addresses and ports of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Source port or ICMP identifier.
    pub source_port: u16,
    /// Destination port or ICMP identifier.
    pub destination_port: u16,
}

/// A session, as shown in lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Context of the session's flows: number of the virtual router, or context of a bridge or a subscriber's site.
    pub context: Context,
    /// The direction of the first packet.
    pub forward: Flow,
    /// The reverse direction.
    pub reverse: Flow,
    /// IP protocol of the session.
    pub protocol: u8,
    /// State of a TCP connection; `None` for other protocols.
    pub state: Option<&'static str>,
    /// Whether packets of the reverse direction were received.
    pub answered: bool,
    /// Number of packets in each direction.
    pub packets: [u64; 2],
    /// Number of bytes in each direction.
    pub bytes: [u64; 2],
    /// Seconds until the session expires if no packet arrives.
    pub seconds_left: u32,
    /// Interface on which the first packet arrived.
    pub interface: u16,
    /// Egress interface of the first packet.
    pub egress: u16,
    /// Pool to which the source is translated, if any.
    pub pool: Option<PoolIndex>,
    /// Whether the first packet came from outside and matched a destination rule.
    pub inbound: bool,
    /// Application of the session, if identification has finished. Both numbers are 0 if the application is unknown.
    pub application: Option<ProtocolPair>,
    /// Mark of the session; 0 if it has none.
    pub mark: u32,
    /// Shard of the session.
    pub shard: u16,
}

impl SessionInfo {
    /// Three endpoints (address and port): the inside host, the outside endpoint to which it is translated, and the
    /// remote host.
    fn sides(&self) -> [(IpAddr, u16); 3] {
        let [from, to] = [&self.forward, &self.reverse].map(|flow| {
            let source = (flow.source, flow.source_port);
            (source, (flow.destination, flow.destination_port))
        });
        match self.inbound {
            false => [from.0, to.1, from.1],
            true => [to.0, from.1, from.0],
        }
    }
}

impl Filter {
    /// Whether a session matches the filter.
    pub fn matches(&self, session: &SessionInfo) -> bool {
        fn is<T: PartialEq>(wanted: Option<T>, value: T) -> bool {
            wanted.is_none_or(|wanted| wanted == value)
        }
        self.context
            .is_none_or(|wanted| wanted == session.context || wanted == outer(session.context))
            && is(self.source, session.forward.source)
            && is(self.source_port, session.forward.source_port)
            && is(self.destination, session.forward.destination)
            && is(self.destination_port, session.forward.destination_port)
            && is(self.reply_source, session.reverse.source)
            && is(self.reply_source_port, session.reverse.source_port)
            && is(self.reply_destination, session.reverse.destination)
            && is(self.reply_destination_port, session.reverse.destination_port)
            && is(self.protocol, session.protocol)
            && is(self.interface, session.interface)
            && self.address.is_none_or(|net| {
                let flows = [&session.forward, &session.reverse];
                let mut addresses = flows.into_iter().flat_map(|flow| [flow.source, flow.destination]);
                addresses.any(|address| net.contains(address.into()))
            })
            && self.port.is_none_or(|port| {
                let flows = [&session.forward, &session.reverse];
                let mut ports = flows
                    .into_iter()
                    .flat_map(|flow| [flow.source_port, flow.destination_port]);
                ports.any(|known| known == port)
            })
            && [self.inside, self.outside, self.remote]
                .into_iter()
                .zip(session.sides())
                .all(|(wanted, (address, port))| wanted.is_none_or(|wanted| wanted.matches(address, port)))
            && self
                .either
                .is_none_or(|wanted| [session.interface, session.egress].contains(&wanted))
            && self.pool.is_none_or(|wanted| session.pool == Some(wanted))
            && self
                .subscriber
                .is_none_or(|net| net.contains(session.sides()[0].0.into()))
            && self
                .application
                .is_none_or(|wanted| session.application.is_some_and(|known| wanted.matches(known)))
            && (session.pool.is_some() || !self.translated)
    }
}

/// Position at which a list continues: shard, address family and record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    shard: u16,
    v6: bool,
    record: u32,
}

impl Cursor {
    /// Encodes the cursor as a word.
    pub fn pack(self) -> u64 {
        u64::from(self.shard) << 33 | u64::from(self.v6) << 32 | u64::from(self.record)
    }

    /// Decodes a word. If the word is not an encoded cursor, the list is empty or starts at an arbitrary record.
    pub fn unpack(word: u64) -> Self {
        Self {
            shard: (word >> 33) as u16,
            v6: word >> 32 & 1 != 0,
            record: word as u32,
        }
    }

    /// The cursor that follows the last record of its shard and family.
    fn turn(self) -> Self {
        match self.v6 {
            false => Self {
                v6: true,
                record: 0,
                ..self
            },
            true => self.skip(),
        }
    }

    /// The cursor that follows the last record of its shard.
    fn skip(self) -> Self {
        Self {
            shard: self.shard + 1,
            v6: false,
            record: 0,
        }
    }
}

/// A request of the control thread to a worker.
#[derive(Debug)]
pub enum Request {
    /// List sessions from a cursor on. The sessions are written to `into`, up to its capacity.
    List {
        /// Position at which the list continues.
        cursor: Cursor,
        /// Filter for sessions.
        filter: Filter,
        /// Memory for the listed sessions.
        into: Vec<SessionInfo>,
    },
    /// End sessions from a cursor on.
    Clear {
        /// Position at which clearing continues.
        cursor: Cursor,
        /// Filter for sessions.
        filter: Filter,
        /// Number of sessions that were ended so far.
        ended: u64,
    },
    /// List mappings, subscribers or blocks from a cursor on. The items are written to `into`, up to its capacity.
    ListBindings {
        /// Position at which the list continues.
        cursor: Cursor,
        /// Filter for mappings, subscribers and blocks.
        filter: BindingFilter,
        /// Memory for the listed items.
        into: BindingList,
    },
    /// Add the allocations of IPv4 pools in the worker's shards to a [`BindingUsage`] that has an element for each pool.
    Use(Box<BindingUsage>),
    /// Start a trace. The reply contains the previous trace.
    Trace(Box<Tracer>),
    /// End the trace. The reply contains the trace.
    EndTrace,
    /// Start a capture. The reply contains the previous capture.
    Capture(Box<Tap>),
    /// End the capture. The reply contains the capture.
    EndCapture,
    /// Hold packets of a shard that another worker will release.
    Expect {
        /// The shard that will arrive.
        shard: u16,
    },
    /// Start to release a shard to a worker that expects it. From this request on, this worker hands packets of the
    /// shard that it receives from devices to that worker.
    StartRelease {
        /// The shard to release.
        shard: u16,
        /// The worker that expects the shard.
        to: WorkerIndex,
    },
    /// Complete the release of a shard. All workers must have made two rounds since [`Request::StartRelease`] was answered, and
    /// the devices must be steered. If this worker expects a shard instead, the request cancels the move.
    Release,
    /// Remove learned neighbours.
    ClearNeighbours {
        /// Remove only neighbours of this interface.
        interface: Option<u16>,
        /// Remove only neighbours with this address.
        address: Option<sluice_route::Address>,
        /// Whether to remove static neighbours as well.
        permanent: bool,
    },
    /// Configure a static neighbour, which needs no resolution.
    SetNeighbour {
        /// Interface of the neighbour.
        interface: u16,
        /// IP address of the neighbour.
        address: sluice_route::Address,
        /// MAC address of the neighbour.
        mac: [u8; 6],
    },
    /// Send an echo request. If the gateway's neighbour is not resolved, the worker refuses the request and starts the
    /// resolution. Workers other than the owner worker refuse the request.
    Probe(Probe),
    /// Reopen a port after its device was attached or detached, and start receiving from the port or stop it. The
    /// worker refuses the request while a shard moves.
    RenewPort {
        /// The port to reopen.
        port: PortIndex,
        /// Whether the worker has a receive queue of the port.
        receives: bool,
    },
}

/// Answer of a worker to a request.
#[derive(Debug)]
pub enum Reply {
    /// A part of a list of sessions, and the position at which the list continues.
    Listed {
        /// Position at which the list continues; `None` at the end of the list.
        next: Option<Cursor>,
        /// The sessions in this part of the list.
        sessions: Vec<SessionInfo>,
    },
    /// A part of a list of mappings, subscribers or blocks.
    ListedBindings {
        /// Position at which the list continues; `None` at the end of the list.
        next: Option<Cursor>,
        /// The items in this part of the list.
        into: BindingList,
    },
    /// Allocations of the worker's pools.
    Used(Box<BindingUsage>),
    /// All matching sessions have ended. The value is their number.
    Cleared(u64),
    /// The trace that has ended, if any.
    Traced(Option<Box<Tracer>>),
    /// The capture that has ended, if any.
    Captured(Option<Box<Tap>>),
    /// The request was executed.
    Done,
    /// The request is not possible, because a table is full, or because another worker is responsible.
    Refused,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portion_of_a_round_full_of_packets_is_small_and_never_nothing() {
        assert_eq!([64, 63, 4, 4, 8, 64], [0, 1, 60, 64, 128, 10_000].map(portion));
        assert!((0..1000).all(|packets| (1..=RECORDS_PER_ROUND).contains(&portion(packets))));
    }
}
