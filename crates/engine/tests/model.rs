//! Tests with random histories of events. The result is compared with a reference model, which stores translations in
//! two ordered maps.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use crate::rig::{HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, flow, plain};
use proptest::collection::vec;
use proptest::prelude::*;
use sluice_engine::worker::request::{Cursor, Filter, Reply, Request};
use sluice_nat::{Behaviour, Filtering};
use sluice_testkit::packet::{self, Frame};

/// An event of a history.
#[derive(Clone, Debug)]
enum Event {
    /// A host sends a packet from a port to a remote endpoint.
    Out {
        host: u8,
        port: u16,
        remote: u8,
        ping: bool,
    },
    /// A remote endpoint sends to the public port of a session. If `other` is set, it is not the session's remote
    /// endpoint.
    Back { session: prop::sample::Index, other: bool },
    /// The clock advances by a number of seconds.
    Wait(u16),
    /// The operator clears the sessions of a port.
    Clear { port: u16 },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let out = (0..4u8, 1..5u16, 1..4u8, prop::bool::weighted(0.2)).prop_map(|(host, port, remote, ping)| Event::Out {
        host,
        port,
        remote,
        ping,
    });
    let back = (any::<prop::sample::Index>(), prop::bool::weighted(0.2))
        .prop_map(|(session, other)| Event::Back { session, other });
    let clear = (1..5u16).prop_map(|port| Event::Clear { port });
    // A session may end up to 0.64 s late. Therefore the clock advances in multiples of seven seconds, which never
    // equal a timeout.
    let wait = (1..30u16).prop_map(|sevens| Event::Wait(7 * sevens));
    vec(prop_oneof![8 => out, 6 => back, 2 => wait, 1 => clear], 1..120)
}

/// A flow from inside. The fields are: whether the flow is a ping, its source, and its remote endpoint.
type Flow = (bool, SocketAddrV4, SocketAddrV4);

/// The reference model: the public source of each flow, and the time of its last use in seconds.
#[derive(Default)]
struct Model {
    sessions: BTreeMap<Flow, (SocketAddrV4, u64)>,
    now: u64,
}

impl Model {
    fn timeout(ping: bool) -> u64 {
        if ping { 60 } else { 300 }
    }
    /// The public source of a flow's session, if it has not timed out.
    fn live(&self, flow: &Flow) -> Option<SocketAddrV4> {
        self.sessions.get(flow).map(|(public, _)| *public)
    }
    fn pass(&mut self, seconds: u64) {
        self.now += seconds;
        let now = self.now;
        self.sessions
            .retain(|(ping, ..), (_, used)| now - *used < Self::timeout(*ping));
    }
}

fn frame(ping: bool, answer: bool, source: SocketAddrV4, destination: SocketAddrV4, seed: u8) -> Frame {
    let payload = vec![seed; usize::from(seed % 40)];
    let frame = match (ping, answer) {
        (false, _) => packet::udp4(source, destination),
        (true, false) => packet::icmp4_echo(*source.ip(), *destination.ip(), source.port(), 1),
        (true, true) => packet::icmp4_echo_reply(*source.ip(), *destination.ip(), destination.port(), 1),
    };
    frame.payload(&payload)
}

fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 1, 10 + number)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn gateway_random_history_agrees_with_the_model(
        events in events(),
        workers in prop::sample::select(vec![1usize, 2, 4]),
        independent in any::<bool>(),
    ) {
        let mut rig = Rig::new(Plan {
            workers,
            sessions: 1024,
            pool_ports: (1024, 3071),
            behaviour: Behaviour {
                filtering: Filtering::AddressAndPortDependent,
                ..if independent { Behaviour::default() } else { Behaviour::ADDRESS_AND_PORT_DEPENDENT }
            },
            snapshot: |snapshot| snapshot.limits[2] = (u64::MAX / 4, 1 << 30),
            ..Plan::default()
        });
        for number in 0..4 {
            rig.know(INSIDE, plain(&host(number).to_string()), HOST_MAC);
        }
        let mut model = Model::default();
        for (step, event) in events.into_iter().enumerate() {
            let (at, seed) = (step % workers, step as u8);
            match event {
                Event::Out { host: number, port, remote, ping } => {
                    let source = SocketAddrV4::new(host(number), port);
                    let remote = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, remote), if ping { port } else { 53 });
                    let sent = rig.send_at(at, INSIDE, &frame(ping, false, source, remote, seed).macs(HOST_MAC, INSIDE_MAC).build());
                    prop_assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
                    let public = flow(&sent[0].frame).0;
                    let key = (ping, source, remote);
                    match model.live(&key) {
                        Some(known) => prop_assert_eq!(known, public),
                        None => {
                            // The flow gets a new session. Only flows of the same mapping may use the same public port,
                            // and the host keeps its public address.
                            let same = |from: SocketAddrV4| independent && from == source;
                            for ((p, from, _), (other, _)) in &model.sessions {
                                prop_assert_eq!(*p == ping && same(*from), *p == ping && *other == public);
                            }
                            let paired = model.sessions.iter().find(|((_, other, _), _)| other.ip() == source.ip());
                            prop_assert!(paired.is_none_or(|(_, (other, _))| other.ip() == public.ip()));
                            prop_assert!((1024..=3071).contains(&public.port()));
                        }
                    }
                    model.sessions.insert(key, (public, model.now));
                    let to = SocketAddrV4::new(*remote.ip(), if ping { public.port() } else { 53 });
                    let expected = frame(ping, false, public, to, seed).ttl(63).macs(OUTSIDE_MAC, ROUTER_MAC);
                    prop_assert_eq!(expected.build(), &sent[0].frame[..]);
                    prop_assert_eq!(OUTSIDE, sent[0].port);
                }
                Event::Back { session, other } => {
                    let Some((&key, &(public, _))) = model.sessions.iter().nth(session.index(model.sessions.len().max(1))) else {
                        continue;
                    };
                    let (ping, inside, remote) = key;
                    let from = if other { Ipv4Addr::new(198, 51, 100, 99) } else { *remote.ip() };
                    let from = SocketAddrV4::new(from, remote.port());
                    let sent = rig.send_at(at, OUTSIDE, &frame(ping, true, from, public, seed).macs(ROUTER_MAC, OUTSIDE_MAC).build());
                    if other {
                        prop_assert!(sent.is_empty());
                        continue;
                    }
                    prop_assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
                    let expected = frame(ping, true, from, inside, seed).ttl(63).macs(INSIDE_MAC, HOST_MAC);
                    prop_assert_eq!(expected.build(), &sent[0].frame[..]);
                    model.sessions.insert(key, (public, model.now));
                }
                Event::Wait(seconds) => {
                    rig.seconds(seconds.into());
                    model.pass(seconds.into());
                }
                Event::Clear { port } => {
                    let filter = Filter { source_port: Some(port), ..Filter::default() };
                    let mut ended = 0;
                    for worker in 0..workers {
                        let Reply::Cleared(count) = rig.ask(worker, Request::Clear { cursor: Cursor::default(), filter, ended: 0 }) else {
                            panic!("not cleared")
                        };
                        ended += count;
                    }
                    let before = model.sessions.len();
                    model.sessions.retain(|(_, source, _), _| source.port() != port);
                    prop_assert_eq!((before - model.sessions.len()) as u64, ended);
                }
            }
        }
        let shown = rig.sessions(Filter::default());
        prop_assert_eq!(model.sessions.len(), shown.len());
    }
}
