//! Requests of the control thread, answered by the worker between two bursts: lists, clearing, traces, captures.
//!
//! Whoever asks brings the memory for the answer, so that a worker allocates nothing.

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

/// Records that one round looks at for a list, at most.
pub const RECORDS_PER_ROUND: u32 = 64;

/// Packets of a round that is full of them, for one record that it looks at.
const PACKETS_PER_RECORD: usize = 16;

/// Records that a round of so many packets looks at: few where packets fill its time, many where it has time to spare.
pub fn portion(packets: usize) -> u32 {
    let spare = (RECORDS_PER_ROUND as usize).saturating_sub(packets);
    spare.max(packets / PACKETS_PER_RECORD).min(RECORDS_PER_ROUND as usize) as u32
}

/// Addresses and a port of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Addresses; any where not given.
    pub net: Option<Prefix>,
    /// Port or ICMP identifier; any where not given.
    pub port: Option<u16>,
}

impl Endpoint {
    /// Whether an address is meant, whatever the port.
    fn lies_in(&self, address: IpAddr) -> bool {
        self.net.is_none_or(|net| net.contains(address.into()))
    }

    fn matches(&self, address: IpAddr, port: u16) -> bool {
        self.net.is_none_or(|net| net.contains(address.into())) && self.port.is_none_or(|wanted| wanted == port)
    }
}

/// Which sessions are meant: those that meet every condition given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Whose sessions: of a virtual router, by its number, or of a subscriber's site, by its context.
    pub context: Option<Context>,
    /// The first packet's source.
    pub source: Option<IpAddr>,
    /// The first packet's source port or ICMP identifier.
    pub source_port: Option<u16>,
    /// The first packet's destination.
    pub destination: Option<IpAddr>,
    /// The first packet's destination port.
    pub destination_port: Option<u16>,
    /// The answers' source.
    pub reply_source: Option<IpAddr>,
    /// The answers' source port.
    pub reply_source_port: Option<u16>,
    /// The answers' destination: the translated address.
    pub reply_destination: Option<IpAddr>,
    /// The answers' destination port.
    pub reply_destination_port: Option<u16>,
    /// Protocol number.
    pub protocol: Option<u8>,
    /// Interface of the first packet.
    pub interface: Option<u16>,
    /// Addresses of which one must be the session's, in whichever direction.
    pub address: Option<Prefix>,
    /// A port in whichever direction.
    pub port: Option<u16>,
    /// The inside host, before translation.
    pub inside: Option<Endpoint>,
    /// What the outside sees in its place.
    pub outside: Option<Endpoint>,
    /// The other host.
    pub remote: Option<Endpoint>,
    /// The interface towards either host.
    pub either: Option<u16>,
    /// The pool that its outside address is from.
    pub pool: Option<PoolIndex>,
    /// Addresses of which one must be the inside host's.
    pub subscriber: Option<Prefix>,
    /// What its application is.
    pub application: Option<ApplicationSelector>,
    /// Those alone whose outside address is from a pool.
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

/// A session, to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// What keeps its flows apart from others': the virtual router's number, or the context of a bridge or a subscriber's site.
    pub context: Context,
    /// As the first packet.
    pub forward: Flow,
    /// As the answers.
    pub reverse: Flow,
    /// IP protocol.
    pub protocol: u8,
    /// State of a TCP connection; none for other protocols.
    pub state: Option<&'static str>,
    /// Answers were seen.
    pub answered: bool,
    /// Packets by direction.
    pub packets: [u64; 2],
    /// Bytes by direction.
    pub bytes: [u64; 2],
    /// Seconds until it ends if nothing more comes.
    pub seconds_left: u32,
    /// Interface of the first packet.
    pub interface: u16,
    /// Interface that the first packet left by.
    pub egress: u16,
    /// Pool that a translated source is from.
    pub pool: Option<PoolIndex>,
    /// The first packet came from outside, by a destination rule.
    pub inbound: bool,
    /// Its application, once packets have told it or it was given up; both numbers are 0 where it stayed unknown.
    pub application: Option<ProtocolPair>,
    /// Its mark; 0 where it has none.
    pub mark: u32,
    /// Shard.
    pub shard: u16,
}

impl SessionInfo {
    /// Address and port of the inside host, of what the outside sees in its place, and of the other host.
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
    /// Whether a session is meant.
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

/// Where a list goes on: shard, family, record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    shard: u16,
    six: bool,
    record: u32,
}

impl Cursor {
    /// As one word.
    pub fn pack(self) -> u64 {
        u64::from(self.shard) << 33 | u64::from(self.six) << 32 | u64::from(self.record)
    }

    /// From one word; where it was not packed here, the list is empty or begins somewhere.
    pub fn unpack(word: u64) -> Self {
        Self {
            shard: (word >> 33) as u16,
            six: word >> 32 & 1 != 0,
            record: word as u32,
        }
    }

    /// Behind the last record of its shard and family.
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

    /// Behind its shard.
    fn skip(self) -> Self {
        Self {
            shard: self.shard + 1,
            six: false,
            record: 0,
        }
    }
}

/// What the control thread asks of a worker.
#[derive(Debug)]
pub enum Request {
    /// List sessions from a cursor on into `into`, as many as it has capacity for.
    List {
        /// Where to go on.
        cursor: Cursor,
        /// Which.
        filter: Filter,
        /// Memory for the answer.
        into: Vec<SessionInfo>,
    },
    /// End sessions from a cursor on.
    Clear {
        /// Where to go on.
        cursor: Cursor,
        /// Which.
        filter: Filter,
        /// Ended so far.
        ended: u64,
    },
    /// List mappings, subscribers or blocks from a cursor on into `into`, as many as it has capacity for.
    ListBindings {
        /// Where to go on.
        cursor: Cursor,
        /// Which.
        filter: BindingFilter,
        /// Memory for the answer.
        into: BindingList,
    },
    /// Add up what the worker's shards have lent of IPv4 pools, into a [`BindingUsage`] with as many pools as there are.
    Use(Box<BindingUsage>),
    /// Trace packets; the trace before comes back.
    Trace(Box<Tracer>),
    /// Give the trace back.
    EndTrace,
    /// Copy frames; the copies before come back.
    Capture(Box<Tap>),
    /// Give the copies back.
    EndCapture,
    /// Hold what comes for a shard, which another worker gives.
    Expect {
        /// The shard.
        shard: u16,
    },
    /// Leave a shard to a worker that expects it: packets from devices at once.
    Give {
        /// The shard.
        shard: u16,
        /// The worker.
        to: WorkerIndex,
    },
    /// All workers have made two rounds since the last [`Request::Give`] was answered, and devices know: let the shard go. To a
    /// worker that expects one: it does not come.
    Release,
    /// Forget neighbours that were learned.
    ClearNeighbours {
        /// Of this interface only.
        interface: Option<u16>,
        /// With this address only.
        address: Option<sluice_route::Address>,
        /// Those too that were set.
        permanent: bool,
    },
    /// Set a neighbour that is never asked for.
    SetNeighbour {
        /// Its interface.
        interface: u16,
        /// Its address.
        address: sluice_route::Address,
        /// Its MAC address.
        mac: [u8; 6],
    },
    /// Send an echo request. Refused while the gateway's neighbour is not known, which is asked for then, and by other workers than
    /// the one with the neighbours.
    Probe(Probe),
    /// The device of a port has come, or goes: take it over from the devices, and receive from it or no more. Not while
    /// a shard moves.
    RenewPort {
        /// The port.
        port: PortIndex,
        /// Whether the worker has a queue to receive from.
        receives: bool,
    },
}

/// What a worker answers.
#[derive(Debug)]
pub enum Reply {
    /// Part of a list, and where it goes on.
    Listed {
        /// Where it goes on; none at its end.
        next: Option<Cursor>,
        /// The part.
        sessions: Vec<SessionInfo>,
    },
    /// Part of a list of mappings, subscribers or blocks.
    ListedBindings {
        /// Where it goes on; none at its end.
        next: Option<Cursor>,
        /// The part.
        into: BindingList,
    },
    /// What is lent.
    Used(Box<BindingUsage>),
    /// All that were meant have ended: how many.
    Cleared(u64),
    /// The trace.
    Traced(Option<Box<Tracer>>),
    /// The frames.
    Captured(Option<Box<Tap>>),
    /// It is done.
    Done,
    /// It can't be done: the table is full, or this worker is not the one to ask.
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
