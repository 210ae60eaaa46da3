mod life;
mod many;
mod operators;
mod random;
mod restart;
pub(crate) mod server;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use dhcproto::v4::{Message, MessageType, OptionCode};
use dhcproto::{Decodable as _, Encodable as _};
use sluice_nat::Secret;
use sluice_wire::Mac;
use sluice_wire::ethernet::BROADCAST;

use super::*;
use server::Server;

const MILLISECOND: Nanoseconds = 1_000_000;

/// A sent message with its time.
#[derive(Debug)]
struct Sent {
    at: Nanoseconds,
    kind: MessageType,
    transmit: Transmit,
}

impl Sent {
    fn message(&self) -> Message {
        Message::from_bytes(&self.transmit.payload).expect("a message")
    }

    fn has(&self, code: OptionCode) -> bool {
        self.message().opts().contains(code)
    }

    fn is_broadcast(&self) -> bool {
        self.transmit.destination == Destination::Broadcast
    }
}

/// Changes a server's reply before it reaches the agent.
type Twist = Box<dyn FnMut(&Message, Message) -> Vec<Message>>;

/// The agent, a server with a delay of one millisecond, and a simulated clock.
struct World {
    agent: Agent,
    server: Server,
    twist: Twist,
    now: Nanoseconds,
    underway: BTreeMap<(Nanoseconds, u64), (Vec<u8>, Mac)>,
    answers: u64,
    sent: Vec<Sent>,
    events: Vec<Event>,
    remembers: bool,
}

fn mac(site: u32) -> Mac {
    let [a, b, c, d] = site.to_be_bytes();
    [2, 0, a, b, c, d]
}

fn settings() -> AgentSettings {
    AgentSettings::new(Secret([1, 2]))
}

fn seconds(number: u64) -> Nanoseconds {
    number * SECOND
}

impl World {
    fn new(settings: AgentSettings) -> Self {
        Self {
            agent: Agent::new(settings, 0),
            server: Server::default(),
            twist: Box::new(|_, answer| vec![answer]),
            now: 0,
            underway: BTreeMap::new(),
            answers: 0,
            sent: Vec::new(),
            events: Vec::new(),
            remembers: true,
        }
    }

    /// Create a world in which site 0 has a lease.
    fn bound() -> Self {
        let mut world = Self::new(settings());
        world.want(0);
        world.run(SECOND);
        assert_eq!(State::Bound, world.agent.state(Site(0)));
        world.sent.clear();
        world.events.clear();
        world
    }

    fn want(&mut self, site: u32) {
        self.agent.want(Site(site), mac(site), self.now).expect("a site");
    }

    /// Drop all replies from now on.
    fn be_silent(&mut self) {
        self.twist = Box::new(|_, _| Vec::new());
    }

    fn behave(&mut self) {
        self.twist = Box::new(|_, answer| vec![answer]);
    }

    /// Change each reply.
    fn twist(&mut self, mut change: impl FnMut(&mut Message) + 'static) {
        self.twist = Box::new(move |_, mut answer| {
            change(&mut answer);
            vec![answer]
        });
    }

    /// Advance the clock.
    fn run(&mut self, time: Nanoseconds) {
        let end = self.now + time;
        loop {
            let next = self.step();
            let arrival = self.underway.first_key_value().map(|((at, _), _)| *at);
            match next.into_iter().chain(arrival).min() {
                Some(next) if next <= end => {
                    assert!(
                        next > self.now || arrival == Some(self.now),
                        "poll at {next} again and again"
                    );
                    self.now = next;
                }
                _ => break,
            }
            while let Some(first) = self.underway.first_entry().filter(|first| first.key().0 <= self.now) {
                let (payload, destination) = first.remove();
                self.agent.receive(&payload, destination, self.now);
            }
        }
        self.now = end;
        self.step();
    }

    fn step(&mut self) -> Option<Nanoseconds> {
        let mut output = AgentOutput::default();
        let next = self.agent.poll(self.now, &mut output);
        for transmit in output.transmits {
            let question = Message::from_bytes(&transmit.payload).expect("a message");
            if let Some(answer) = self.server.answer(&question) {
                for answer in (self.twist)(&question, answer) {
                    self.answers += 1;
                    let destination = if question.flags().broadcast() {
                        BROADCAST
                    } else {
                        transmit.source_mac
                    };
                    let payload = answer.to_vec().expect("bytes");
                    self.underway
                        .insert((self.now + MILLISECOND, self.answers), (payload, destination));
                }
            }
            let kind = question.opts().msg_type().expect("a type");
            if self.remembers {
                self.sent.push(Sent {
                    at: self.now,
                    kind,
                    transmit,
                });
            }
        }
        self.events.append(&mut output.events);
        next
    }

    fn kinds(&self) -> Vec<MessageType> {
        self.sent.iter().map(|sent| sent.kind).collect()
    }

    /// Seconds between consecutive messages.
    fn gaps(&self) -> Vec<f64> {
        let gap = |pair: &[Sent]| (pair[1].at - pair[0].at) as f64 / 1e9;
        self.sent.windows(2).map(gap).collect()
    }

    fn faults(&self, fault: Fault) -> u64 {
        self.agent.counters().fault(fault)
    }

    fn lease(&self, site: u32) -> PublicLease {
        self.agent.lease(Site(site)).expect("a lease")
    }

    fn losses(&self) -> Vec<(u32, LossReason)> {
        let loss = |event: &Event| match event {
            Event::Lost { site, reason, .. } => Some((site.0, *reason)),
            _ => None,
        };
        self.events.iter().filter_map(loss).collect()
    }
}

impl Agent {
    /// Check the invariants.
    fn check(&self) {
        let mut owners = BTreeMap::new();
        let mut numbers = BTreeMap::new();
        let (mut timers, mut queued) = (0, 0);
        for (site, entry) in (0..).zip(&self.entries) {
            let (timed, waits) = self.schedule.has(site, entry);
            assert_eq!(entry.due != NEVER, timed, "timer of {site}: {entry:?}");
            assert_eq!(entry.queued.is_some(), waits, "place of {site}: {entry:?}");
            (timers, queued) = (timers + usize::from(timed), queued + usize::from(waits));
            let endless = entry.state == State::Bound && entry.expires == NEVER;
            assert!(
                entry.state == State::Idle || timed || waits || endless,
                "{site} is forgotten: {entry:?}"
            );
            if entry.announced {
                assert!(entry.state.has_lease(), "{site} has told of a lease: {entry:?}");
                assert_eq!(
                    None,
                    owners.insert(entry.address, site),
                    "{} has two sites",
                    entry.address
                );
                assert_eq!(Some(&site), self.addresses.get(&entry.address));
            }
            if entry.xid != 0 {
                assert_eq!(None, numbers.insert(entry.xid, site), "two sites ask as {}", entry.xid);
            }
            if entry.state != State::Idle {
                assert_eq!(Some(&site), self.macs.get(&entry.mac));
            }
        }
        assert_eq!((timers, queued), self.schedule.lengths());
        for (address, site) in &self.addresses {
            assert_eq!(*address, self.entry(*site).address);
        }
    }
}
