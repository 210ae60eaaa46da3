//! Requests of the control thread, which the worker answers between two bursts: lists, clearing, traces, captures.
//!
//! The requester provides the memory for the answer, so that a worker allocates nothing.

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

/// Maximum number of records that one round visits for a list.
pub const RECORDS_PER_ROUND: u32 = 64;

/// Number of packets of a full round per visited record.
const PACKETS_PER_RECORD: usize = 16;

/// Number of records that a round with this number of packets visits: few if packets take up its time, many if it is idle.
pub fn portion(packets: usize) -> u32 {
    let spare = (RECORDS_PER_ROUND as usize).saturating_sub(packets);
    spare.max(packets / PACKETS_PER_RECORD).min(RECORDS_PER_ROUND as usize) as u32
}

/// Addresses and a port of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Addresses that match; any if not given.
    pub net: Option<Prefix>,
    /// Port or ICMP identifier; any if not given.
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

/// A filter for sessions. All given conditions must match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Virtual router by its number, or subscriber's site by its context.
    pub context: Option<Context>,
    /// Source of the first packet.
    pub source: Option<IpAddr>,
    /// Source port or ICMP identifier of the first packet.
    pub source_port: Option<u16>,
    /// Destination of the first packet.
    pub destination: Option<IpAddr>,
    /// Destination port of the first packet.
    pub destination_port: Option<u16>,
    /// Source of the reverse direction.
    pub reply_source: Option<IpAddr>,
    /// Source port of the reverse direction.
    pub reply_source_port: Option<u16>,
    /// Destination of the reverse direction: the translated address.
    pub reply_destination: Option<IpAddr>,
    /// Destination port of the reverse direction.
    pub reply_destination_port: Option<u16>,
    /// IP protocol number.
    pub protocol: Option<u8>,
    /// Interface of the first packet.
    pub interface: Option<u16>,
    /// Any address of the session, in either direction.
    pub address: Option<Prefix>,
    /// Any port of the session, in either direction.
    pub port: Option<u16>,
    /// The inside host, before translation.
    pub inside: Option<Endpoint>,
    /// The outside address and port of the inside host.
    pub outside: Option<Endpoint>,
    /// The remote host.
    pub remote: Option<Endpoint>,
    /// The interface towards either host.
    pub either: Option<u16>,
    /// The pool of the session's outside address.
    pub pool: Option<PoolIndex>,
    /// Addresses of the inside host.
    pub subscriber: Option<Prefix>,
    /// The application of the session.
    pub application: Option<ApplicationSelector>,
    /// Only sessions whose outside address is from a pool.
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

/// A session as lists show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Context of its flows: the virtual router's number, or the context of a bridge or a subscriber's site.
    pub context: Context,
    /// The direction of the first packet.
    pub forward: Flow,
    /// The reverse direction.
    pub reverse: Flow,
    /// IP protocol of the session.
    pub protocol: u8,
    /// State of a TCP connection; `None` for other protocols.
    pub state: Option<&'static str>,
    /// Packets in the reverse direction were seen.
    pub answered: bool,
    /// Packets by direction.
    pub packets: [u64; 2],
    /// Bytes by direction.
    pub bytes: [u64; 2],
    /// Seconds until it expires if no packet arrives.
    pub seconds_left: u32,
    /// Interface of the first packet.
    pub interface: u16,
    /// Egress interface of the first packet.
    pub egress: u16,
    /// Pool of a translated source.
    pub pool: Option<PoolIndex>,
    /// The first packet came from outside, by a destination rule.
    pub inbound: bool,
    /// Its application once identification has finished; both numbers are 0 if it stayed unknown.
    pub application: Option<ProtocolPair>,
    /// Mark of the session; 0 if it has none.
    pub mark: u32,
    /// Shard of the session.
    pub shard: u16,
}

impl SessionInfo {
    /// Address and port of the inside host, of its outside address, and of the remote host.
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

/// Where a list continues: shard, family, record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    shard: u16,
    six: bool,
    record: u32,
}

impl Cursor {
    /// Encode the cursor as one word.
    pub fn pack(self) -> u64 {
        u64::from(self.shard) << 33 | u64::from(self.six) << 32 | u64::from(self.record)
    }

    /// Decode a word. For a word that was not encoded here, the list is empty or begins at an arbitrary record.
    pub fn unpack(word: u64) -> Self {
        Self {
            shard: (word >> 33) as u16,
            six: word >> 32 & 1 != 0,
            record: word as u32,
        }
    }

    /// The cursor after the last record of its shard and family.
    fn turn(self) -> Self {
        match self.six {
            false => Self {
                six: true,
                record: 0,
                ..self
            },
            true => self.skip(),
        }
    }

    /// The cursor after its shard.
    fn skip(self) -> Self {
        Self {
            shard: self.shard + 1,
            six: false,
            record: 0,
        }
    }
}

/// A request of the control thread to a worker.
#[derive(Debug)]
pub enum Request {
    /// List sessions from a cursor on into `into`, up to its capacity.
    List {
        /// Where the list continues.
        cursor: Cursor,
        /// Filter for sessions.
        filter: Filter,
        /// Memory for the listed sessions.
        into: Vec<SessionInfo>,
    },
    /// End sessions from a cursor on.
    Clear {
        /// Where clearing continues.
        cursor: Cursor,
        /// Filter for sessions.
        filter: Filter,
        /// Number of sessions ended so far.
        ended: u64,
    },
    /// List mappings, subscribers or blocks from a cursor on into `into`, up to its capacity.
    ListBindings {
        /// Where the list continues.
        cursor: Cursor,
        /// Filter for mappings, subscribers and blocks.
        filter: BindingFilter,
        /// Memory for the listed items.
        into: BindingList,
    },
    /// Add up the allocations of IPv4 pools in the worker's shards, into a [`BindingUsage`] sized for the number of pools.
    Use(Box<BindingUsage>),
    /// Start a trace. The previous trace is returned.
    Trace(Box<Tracer>),
    /// End the trace and return it.
    EndTrace,
    /// Start a capture. The previous capture is returned.
    Capture(Box<Tap>),
    /// End the capture and return it.
    EndCapture,
    /// Hold packets of a shard that another worker is about to release.
    Expect {
        /// The shard that is about to arrive.
        shard: u16,
    },
    /// Release a shard to a worker that expects it. Packets from devices go to that worker immediately.
    Give {
        /// The shard to release.
        shard: u16,
        /// The worker that expects the shard.
        to: WorkerIndex,
    },
    /// Complete the release of a shard: all workers have made two rounds since [`Request::Give`] was answered, and the devices
    /// are steered. For a worker that expects a shard, the move is cancelled.
    Release,
    /// Remove learned neighbours.
    ClearNeighbours {
        /// Only remove neighbours of this interface.
        interface: Option<u16>,
        /// Only remove neighbours with this address.
        address: Option<sluice_route::Address>,
        /// Also remove static neighbours.
        permanent: bool,
    },
    /// Set a static neighbour, which is never resolved.
    SetNeighbour {
        /// Interface of the neighbour.
        interface: u16,
        /// IP address of the neighbour.
        address: sluice_route::Address,
        /// MAC address of the neighbour.
        mac: [u8; 6],
    },
    /// Send an echo request. Refused if the gateway's neighbour is not resolved, which starts its resolution, and by workers
    /// other than the owner of neighbours.
    Probe(Probe),
    /// The device of a port was attached or detached: reopen it, and start or stop receiving from it. Refused while a shard
    /// moves.
    RenewPort {
        /// The port to reopen.
        port: PortIndex,
        /// Whether the worker has a queue to receive from.
        receives: bool,
    },
}

/// A worker's answer.
#[derive(Debug)]
pub enum Reply {
    /// Part of a list, and where it continues.
    Listed {
        /// Where the list continues; `None` at its end.
        next: Option<Cursor>,
        /// This part of the list.
        sessions: Vec<SessionInfo>,
    },
    /// Part of a list of mappings, subscribers or blocks.
    ListedBindings {
        /// Where the list continues; `None` at its end.
        next: Option<Cursor>,
        /// This part of the list.
        into: BindingList,
    },
    /// Allocations of the worker's pools.
    Used(Box<BindingUsage>),
    /// All matching sessions have ended. The value is their number.
    Cleared(u64),
    /// The trace that has ended, if there was one.
    Traced(Option<Box<Tracer>>),
    /// The capture that has ended, if there was one.
    Captured(Option<Box<Tap>>),
    /// The request is done.
    Done,
    /// Not possible: the table is full, or this worker is not responsible.
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
