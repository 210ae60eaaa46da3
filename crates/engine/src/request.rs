//! Requests of the control thread, answered by the worker between two bursts: lists, clearing, traces, captures.
//!
//! Whoever asks brings the memory for the answer, so that a worker allocates nothing.

use std::net::IpAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use sluice_nat::{Address as _, PoolIndex, Tuple};
use sluice_route::Prefix;
use sluice_table::flow::{Record, RecordIndex};

use crate::capture::Tap;
use crate::family::{Family, Session, V4, V6};
use crate::policy::Policy;
use crate::shard::{Shard, Tools, end, remaining};
use crate::time::{Now, TICKS_PER_SECOND};
use crate::trace::Tracer;
use sluice_wire::Direction;

/// Records that one round looks at for a list, at most.
pub const LOOKED_AT: u32 = 64;

/// Packets of a round that is full of them, for one record that it looks at.
const PACKETS_PER_RECORD: usize = 16;

/// Records that a round of so many packets looks at: few where packets fill its time, many where it has time to spare.
pub fn portion(packets: usize) -> u32 {
    let spare = (LOOKED_AT as usize).saturating_sub(packets);
    spare.max(packets / PACKETS_PER_RECORD).min(LOOKED_AT as usize) as u32
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
    fn matches(&self, address: IpAddr, port: u16) -> bool {
        self.net.is_none_or(|net| net.contains(address.into())) && self.port.is_none_or(|wanted| wanted == port)
    }
}

/// Which sessions are meant: those that meet every condition given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
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
pub struct Shown {
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
    /// Shard.
    pub shard: u16,
}

impl Shown {
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
    pub fn matches(&self, session: &Shown) -> bool {
        fn is<T: PartialEq>(wanted: Option<T>, value: T) -> bool {
            wanted.is_none_or(|wanted| wanted == value)
        }
        is(self.source, session.forward.source)
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
        into: Vec<Shown>,
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
    /// Trace packets; the trace before comes back.
    Trace(Box<Tracer>),
    /// Give the trace back.
    EndTrace,
    /// Copy frames; the copies before come back.
    Capture(Box<Tap>),
    /// Give the copies back.
    EndCapture,
    /// Forget neighbours that were learned.
    ClearNeighbours {
        /// Of this interface only.
        interface: Option<u16>,
        /// With this address only.
        address: Option<sluice_route::Address>,
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
}

/// What a worker answers.
#[derive(Debug)]
pub enum Reply {
    /// Part of a list, and where it goes on.
    Listed {
        /// Where it goes on; none at its end.
        next: Option<Cursor>,
        /// The part.
        sessions: Vec<Shown>,
    },
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

/// The worker's end.
#[derive(Debug)]
pub struct Desk {
    requests: Receiver<Request>,
    replies: SyncSender<Reply>,
    clearing: Option<(Cursor, Filter, u64)>,
    listing: Option<(Cursor, Filter, Vec<Shown>)>,
}

/// The control thread's end.
#[derive(Debug)]
pub struct Counter {
    /// Where requests go.
    pub requests: SyncSender<Request>,
    /// Where answers come from, in the order of the requests.
    pub replies: Receiver<Reply>,
}

/// Both ends of a worker's requests.
pub fn desk() -> (Desk, Counter) {
    let (requests, inbox) = sync_channel(8);
    let (outbox, replies) = sync_channel(8);
    (
        Desk {
            requests: inbox,
            replies: outbox,
            clearing: None,
            listing: None,
        },
        Counter { requests, replies },
    )
}

impl Desk {
    /// The next request, while none is under way.
    pub(crate) fn next(&mut self) -> Option<Request> {
        if self.clearing.is_some() || self.listing.is_some() {
            return None;
        }
        self.requests.try_recv().ok()
    }

    /// Whether an answer that takes several rounds is under way.
    pub(crate) fn is_answering(&self) -> bool {
        self.clearing.is_some() || self.listing.is_some()
    }

    /// Answer; where nobody listens any more the answer is dropped.
    pub(crate) fn answer(&self, reply: Reply) {
        let _ = self.replies.try_send(reply);
    }

    /// Begin a list.
    pub(crate) fn list(&mut self, cursor: Cursor, filter: Filter, into: Vec<Shown>) {
        self.listing = Some((cursor, filter, into));
    }

    /// Begin to clear.
    pub(crate) fn clear(&mut self, cursor: Cursor, filter: Filter, ended: u64) {
        self.clearing = Some((cursor, filter, ended));
    }

    /// Go on with what is under way, by the records of a [`portion`].
    pub(crate) fn advance(
        &mut self,
        shards: &mut [Option<Box<Shard<'_>>>],
        portion: u32,
        now: Now,
        policy: &Policy,
        tools: &Tools<'_>,
    ) {
        if let Some((cursor, filter, mut into)) = self.listing.take() {
            let room = (into.capacity() - into.len()).min(portion as usize);
            let next = step(shards, cursor, room as u32, now, policy, |_, _, shown| {
                if filter.matches(shown) {
                    into.push(*shown);
                }
            });
            match next {
                Some(next) if into.capacity() > into.len() => {
                    self.listing = Some((next, filter, into));
                }
                next => self.answer(Reply::Listed { next, sessions: into }),
            }
        }
        if let Some((cursor, filter, mut ended)) = self.clearing.take() {
            let mut meant = [(0, false, RecordIndex(0)); LOOKED_AT as usize];
            let mut count = 0;
            let next = step(shards, cursor, portion, now, policy, |six, index, shown| {
                if filter.matches(shown)
                    && let Some(place) = meant.get_mut(count)
                {
                    *place = (shown.shard, six, index);
                    count += 1;
                }
            });
            for &(shard, six, index) in &meant[..count] {
                let Some(shard) = shards.get_mut(shard as usize).and_then(Option::as_mut) else {
                    continue;
                };
                let gone = if six {
                    end::<V6>(shard, index, tools).is_some()
                } else {
                    end::<V4>(shard, index, tools).is_some()
                };
                ended += u64::from(gone);
            }
            match next {
                Some(next) => self.clearing = Some((next, filter, ended)),
                None => self.answer(Reply::Cleared(ended)),
            }
        }
    }
}

/// Visit the next `count` records; where to go on.
fn step(
    shards: &[Option<Box<Shard<'_>>>],
    mut cursor: Cursor,
    count: u32,
    now: Now,
    policy: &Policy,
    mut visit: impl FnMut(bool, RecordIndex, &Shown),
) -> Option<Cursor> {
    loop {
        let place = cursor.shard as usize;
        if place >= shards.len() {
            return None;
        }
        if let Some(shard) = &shards[place] {
            let next = if cursor.six {
                scan::<V6>(shard, (cursor.record, count), now, policy, &mut |index, shown| {
                    visit(true, index, shown)
                })
            } else {
                scan::<V4>(shard, (cursor.record, count), now, policy, &mut |index, shown| {
                    visit(false, index, shown)
                })
            };
            match next {
                Some(record) => return Some(Cursor { record, ..cursor }),
                None if !cursor.six => {
                    return Some(Cursor {
                        six: true,
                        record: 0,
                        ..cursor
                    });
                }
                None => {}
            }
            return Some(Cursor {
                shard: cursor.shard + 1,
                six: false,
                record: 0,
            });
        }
        cursor = Cursor {
            shard: cursor.shard + 1,
            six: false,
            record: 0,
        };
    }
}

fn scan<F: Family>(
    shard: &Shard<'_>,
    (from, count): (u32, u32),
    now: Now,
    policy: &Policy,
    visit: &mut impl FnMut(RecordIndex, &Shown),
) -> Option<u32> {
    F::table_ref(shard).scan(from, count, |index, session| {
        visit(index, &show::<F>(shard.number, session, now, policy));
    })
}

fn flow<T: Tuple>(tuple: &T) -> Flow {
    Flow {
        source: tuple.source().display(),
        destination: tuple.destination().display(),
        source_port: tuple.source_port(),
        destination_port: tuple.destination_port(),
    }
}

fn show<F: Family>(shard: u16, session: &F::Session, now: Now, policy: &Policy) -> Shown {
    let track = session.track();
    let tcp = session.protocol() == sluice_wire::ipv4::protocol::TCP;
    debug_assert!(session.links().is_live());
    Shown {
        forward: flow(session.forward()),
        reverse: flow(session.reverse()),
        protocol: session.protocol(),
        state: tcp.then(|| track.tracking.state().name()),
        answered: track.tracking.answered(),
        packets: track.packets,
        bytes: track.bytes,
        seconds_left: remaining::<F>(session, now, policy).div_ceil(TICKS_PER_SECOND as u32),
        interface: session.interface(),
        egress: session.hop(Direction::Forward).interface() as u16,
        pool: session.nat().pool(),
        inbound: !session.nat().outbound(Direction::Forward),
        shard,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portion_of_a_round_full_of_packets_is_small_and_never_nothing() {
        assert_eq!([64, 63, 4, 4, 8, 64], [0, 1, 60, 64, 128, 10_000].map(portion));
        assert!((0..1000).all(|packets| (1..=LOOKED_AT).contains(&portion(packets))));
    }
}
