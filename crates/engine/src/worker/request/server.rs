//! The worker's part of the request channel. Lists and clearing take several rounds of the worker, with a limited
//! number of records per round.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use sluice_inspect::applications::ProtocolPair;
use sluice_nat::sites::is_site;
use sluice_nat::{Address as _, Tuple};
use sluice_table::flow::{Record, RecordIndex};
use sluice_wire::ipv4::protocol::is_icmp;
use sluice_wire::{Context, Direction};

use super::bindings::{self, BindingFilter, BindingList};
use super::{Cursor, Filter, Flow, RECORDS_PER_ROUND, Reply, Request, SessionInfo};
use crate::features::inspection::Alerts;
use crate::features::session_end::{SessionTools, end, remaining};
use crate::packet::punt;
use crate::packet::time::TICKS_PER_SECOND;
use crate::session::events::EventReceiver;
use crate::session::family::{Family, Session, V4, V6};
use crate::session::records;
use crate::session::shard::Shard;
use crate::snapshot::Snapshot;

/// The worker's receiver of requests and sender of replies.
#[derive(Debug)]
pub struct RequestServer {
    requests: Receiver<Request>,
    replies: SyncSender<Reply>,
    clearing: Option<(Cursor, Filter, u64)>,
    listing: Option<(Cursor, Filter, Vec<SessionInfo>)>,
    binding: Option<(Cursor, BindingFilter, BindingList)>,
}

/// The control thread's handle of a worker: sender of requests, receiver of replies, and queues.
#[derive(Debug)]
pub struct WorkerHandle {
    /// Sends requests to the worker.
    pub requests: SyncSender<Request>,
    /// Receives replies in the order of the requests.
    pub replies: Receiver<Reply>,
    /// Translation events of the worker, if enabled.
    pub events: Option<EventReceiver>,
    /// Alerts of the worker, if it inspects flows.
    pub alerts: Option<Alerts>,
    /// Records of flows that the worker has inspected, if enabled.
    pub records: Option<records::RecordReceiver>,
    /// Packets from the worker to routers' hosts.
    pub to_hosts: Option<punt::PuntReceiver>,
    /// Packets from routers' hosts to the worker, if it is the owner worker.
    pub from_hosts: Option<punt::PuntSender>,
    /// Packets from the worker to the subscriber service.
    pub to_subscribers: Option<punt::PuntReceiver>,
    /// Packets from the subscriber service to the worker, if it is the owner worker.
    pub from_subscribers: Option<punt::PuntSender>,
}

/// Creates the server and the handle of a worker's request channel.
pub fn channel() -> (RequestServer, WorkerHandle) {
    let (requests, inbox) = sync_channel(8);
    let (outbox, replies) = sync_channel(8);
    (
        RequestServer {
            requests: inbox,
            replies: outbox,
            clearing: None,
            listing: None,
            binding: None,
        },
        WorkerHandle {
            requests,
            replies,
            events: None,
            alerts: None,
            records: None,
            to_hosts: None,
            from_hosts: None,
            to_subscribers: None,
            from_subscribers: None,
        },
    )
}

impl RequestServer {
    /// The next request; `None` while another request is in progress.
    pub(crate) fn next(&mut self) -> Option<Request> {
        if self.is_answering() {
            return None;
        }
        self.requests.try_recv().ok()
    }

    /// Whether a request that takes several rounds is in progress.
    pub(crate) fn is_answering(&self) -> bool {
        self.clearing.is_some() || self.listing.is_some() || self.binding.is_some()
    }

    /// Sends a reply. If the requester no longer exists, the reply is dropped.
    pub(crate) fn answer(&self, reply: Reply) {
        let _ = self.replies.try_send(reply);
    }

    /// Starts a list of sessions.
    pub(crate) fn list(&mut self, cursor: Cursor, filter: Filter, into: Vec<SessionInfo>) {
        self.listing = Some((cursor, filter, into));
    }

    /// Starts a list of mappings, subscribers or blocks.
    pub(crate) fn list_bindings(&mut self, cursor: Cursor, filter: BindingFilter, into: BindingList) {
        self.binding = Some((cursor, filter, into));
    }

    /// Starts to clear sessions.
    pub(crate) fn clear(&mut self, cursor: Cursor, filter: Filter, ended: u64) {
        self.clearing = Some((cursor, filter, ended));
    }

    /// Continues a request in progress with a [`portion`](super::portion) of records.
    pub(crate) fn advance(
        &mut self,
        shards: &mut [Option<Box<Shard<'_>>>],
        portion: u32,
        snapshot: &Snapshot,
        tools: &SessionTools<'_>,
    ) {
        if let Some((cursor, filter, mut into)) = self.listing.take() {
            let capacity = (into.capacity() - into.len()).min(portion as usize);
            let next = step(shards, cursor, capacity as u32, tools, snapshot, |_, _, shown| {
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
        if let Some((cursor, filter, mut into)) = self.binding.take() {
            let progress = bindings::step(shards, cursor, portion, &filter, &mut into);
            match progress.next {
                Some(next) if !progress.full => self.binding = Some((next, filter, into)),
                next => self.answer(Reply::ListedBindings { next, into }),
            }
        }
        if let Some((cursor, filter, mut ended)) = self.clearing.take() {
            let mut selected = [(0, false, RecordIndex(0)); RECORDS_PER_ROUND as usize];
            let mut count = 0;
            let next = step(shards, cursor, portion, tools, snapshot, |v6, index, shown| {
                if filter.matches(shown)
                    && let Some(place) = selected.get_mut(count)
                {
                    *place = (shown.shard, v6, index);
                    count += 1;
                }
            });
            for &(shard, v6, index) in &selected[..count] {
                let Some(shard) = shards.get_mut(shard as usize).and_then(Option::as_mut) else {
                    continue;
                };
                let gone = if v6 {
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

/// Visits the next `count` records. Returns the position at which to continue.
fn step(
    shards: &[Option<Box<Shard<'_>>>],
    mut cursor: Cursor,
    count: u32,
    tools: &SessionTools<'_>,
    snapshot: &Snapshot,
    mut visit: impl FnMut(bool, RecordIndex, &SessionInfo),
) -> Option<Cursor> {
    loop {
        let place = cursor.shard as usize;
        if place >= shards.len() {
            return None;
        }
        if let Some(shard) = &shards[place] {
            let next = if cursor.v6 {
                scan::<V6>(shard, (cursor.record, count), tools, snapshot, &mut |index, shown| {
                    visit(true, index, shown)
                })
            } else {
                scan::<V4>(shard, (cursor.record, count), tools, snapshot, &mut |index, shown| {
                    visit(false, index, shown)
                })
            };
            return Some(match next {
                Some(record) => Cursor { record, ..cursor },
                None => cursor.turn(),
            });
        }
        cursor = cursor.skip();
    }
}

fn scan<F: Family>(
    shard: &Shard<'_>,
    (from, count): (u32, u32),
    tools: &SessionTools<'_>,
    snapshot: &Snapshot,
    visit: &mut impl FnMut(RecordIndex, &SessionInfo),
) -> Option<u32> {
    F::table_ref(shard).scan(from, count, |index, session| {
        visit(index, &show::<F>(shard.number, (index, session), tools, snapshot));
    })
}

/// One direction of a session. For ICMP queries, both ports are the identifier.
fn flow<T: Tuple>(tuple: &T, protocol: u8, direction: Direction) -> Flow {
    let ports = match direction {
        _ if !is_icmp(protocol) => [tuple.source_port(), tuple.destination_port()],
        Direction::Forward => [tuple.source_port(); 2],
        Direction::Reverse => [tuple.destination_port(); 2],
    };
    Flow {
        source: tuple.source().display(),
        destination: tuple.destination().display(),
        source_port: ports[0],
        destination_port: ports[1],
    }
}

fn show<F: Family>(
    shard: u16,
    (index, session): (RecordIndex, &F::Session),
    tools: &SessionTools<'_>,
    snapshot: &Snapshot,
) -> SessionInfo {
    let track = session.track();
    let tcp = session.protocol() == sluice_wire::ipv4::protocol::TCP;
    debug_assert!(session.links().is_live());
    SessionInfo {
        context: context::<F>(session),
        forward: flow(&session.forward(), session.protocol(), Direction::Forward),
        reverse: flow(&session.reverse(), session.protocol(), Direction::Reverse),
        protocol: session.protocol(),
        state: tcp.then(|| track.tracking.state().name()),
        answered: track.tracking.answered(),
        packets: track.packets(),
        bytes: track.bytes(),
        seconds_left: remaining::<F>(session, tools.now, snapshot).div_ceil(TICKS_PER_SECOND as u32),
        interface: session.interface(),
        egress: session.adjacency(Direction::Forward).interface() as u16,
        pool: session.nat().pool(),
        inbound: !session.nat().outbound(Direction::Forward),
        application: application::<F>(session, tools, snapshot),
        mark: snapshot
            .marks
            .as_deref()
            .map_or(0, |marks| marks.get::<F>(shard, index)),
        shard,
    }
}

/// The context of a session. If the session belongs to a site, the result is the context of the inside key.
fn context<F: Family>(session: &F::Session) -> Context {
    let (forward, reverse) = (session.forward().context(), session.reverse().context());
    if is_site(reverse) { reverse } else { forward }
}

/// The application of a session. For ICMP, the protocol determines the application.
fn application<F: Family>(session: &F::Session, tools: &SessionTools<'_>, snapshot: &Snapshot) -> Option<ProtocolPair> {
    let interfaces = [
        session.interface(),
        session.adjacency(Direction::Forward).interface() as u16,
    ];
    let identification = snapshot
        .applications
        .as_deref()
        .filter(|_| snapshot.identifies(interfaces));
    let of_protocol = identification.and_then(|identification| identification.of_protocol(session.protocol()));
    of_protocol.or_else(|| tools.recognition.known(session.application()))
}
