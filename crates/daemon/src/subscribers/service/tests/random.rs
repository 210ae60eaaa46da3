//! Invariants under random behaviour of servers, terminals and neighbours.

use proptest::prelude::*;

use super::*;
use crate::subscribers::leases::{Entry, Table};

#[derive(Clone, Debug)]
enum Step {
    /// The lease file has a new entry for an address.
    Say {
        last: u8,
        terminal: u8,
        circuit: usize,
        free: bool,
        expires: u64,
    },
    /// The server replies to a terminal through the relay.
    Answer { site: u32, terminal: u8, last: u8 },
    /// An upstream host claims a site's public address.
    Claim(u32),
    /// The clock advances by quarters of a second.
    Run(u64),
    /// The upstream server changes its behaviour.
    Mood(u8),
    /// The table has capacity for this number of terminals.
    Room(usize),
    /// The service fails and is rebuilt.
    Fail,
    /// An arbitrary frame arrives.
    Frame(u16, Vec<u8>),
}

const CIRCUITS: [&str; 8] = [
    "homes-100.5",
    "homes-100.6",
    "homes-101.7",
    "shops-8",
    "shops-9",
    "hall",
    "nobody",
    "",
];

fn step() -> impl Strategy<Value = Step> {
    let say = (0..9_u8, 1..6_u8, 0..CIRCUITS.len(), 0..4_u8, 1..900_u64);
    prop_oneof![
        6 => say.prop_map(|(last, terminal, circuit, free, expires)| Step::Say {
            last, terminal, circuit, free: free == 0, expires
        }),
        3 => (0..8_u32, 1..6_u8, 0..9_u8).prop_map(|(site, terminal, last)| Step::Answer { site, terminal, last }),
        1 => (0..6_u32).prop_map(Step::Claim),
        2 => (0..40_u64).prop_map(Step::Run),
        1 => (40..4_000_u64).prop_map(Step::Run),
        1 => (0..5_u8).prop_map(Step::Mood),
        1 => (0..7_usize).prop_map(Step::Room),
        1 => Just(Step::Fail),
        1 => (0..4_u16, proptest::collection::vec(any::<u8>(), 0..100)).prop_map(|(interface, bytes)| {
            Step::Frame(interface, bytes)
        }),
    ]
}

fn mood(number: u8) -> Box<dyn FnMut(Message) -> Vec<Message>> {
    Box::new(move |mut answer| {
        match number {
            1 => return vec![],
            2 => drop(answer.opts_mut().insert(DhcpOption::MessageType(MessageType::Nak))),
            3 => return vec![answer.clone(), answer],
            _ => {}
        }
        vec![answer]
    })
}

/// Apply an entry to the lease table, and pass the resulting changes to the service.
fn say(world: &mut World, table: &mut Table, entry: Option<Entry>) {
    let (mut changes, unix) = (Vec::new(), present(world.now).unix);
    table.expire(unix, &mut changes);
    if let Some(entry) = entry {
        table.apply(entry, unix, &mut changes).expect("there is room");
    }
    for change in changes {
        world.change(INSIDE, &change);
        world.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn entries_are_what_book_and_client_say_whatever_happens(steps in proptest::collection::vec(step(), 1..50)) {
        let (mut world, mut table) = (World::new(), Table::new(100));
        for step in steps {
            match step {
                Step::Say { last, terminal, circuit, free, expires } => {
                    let unix = present(world.now).unix;
                    let entry = match free {
                        true => Entry::Free { address: address(last), renewed: unix, why: Lost::Released },
                        false => Entry::Leased(Lease {
                            renewed: unix,
                            expires: Expiry::At(unix + expires),
                            relay: lease(1, 1, CIRCUITS[circuit]).relay.filter(|relay| !relay.circuit.is_empty()),
                            ..lease(last, terminal, "")
                        }),
                    };
                    say(&mut world, &mut table, Some(entry));
                }
                Step::Answer { site, terminal, last } => {
                    let frame = request_frame(&world.parameters, Site(site), terminal, MessageType::Request);
                    world.sent.clear();
                    world.receive(ACCESS, &frame);
                    if let Some(relayed) = world.sent.pop() {
                        let answer = answered(&relayed.bytes, MessageType::Ack, address(last));
                        world.receive(OUTSIDE, &answer);
                    }
                }
                Step::Claim(site) => {
                    if let Some(public) = world.public(Site(site)) {
                        world.claim(public, ROUTER_MAC);
                        prop_assert!(world.public(Site(site)).is_none_or(|now| now == public));
                    }
                }
                Step::Run(time) => {
                    world.run(time * SECOND / 4);
                    say(&mut world, &mut table, None);
                }
                Step::Mood(number) => {
                    world.twist = mood(number);
                    // The server gives the same address to all clients.
                    world.operator.stuck = (number == 4).then_some(Ipv4Addr::new(203, 0, 0, 77));
                }
                Step::Room(most) => {
                    // The capacity is not set below the number of existing entries.
                    world.entries.most = most.max(world.entries.terminals.len());
                }
                Step::Fail => {
                    let saved = world.service.saved();
                    let World { parameters, entries, operator, twist, now, .. } = world;
                    world = World { operator, twist, ..World::of(parameters, entries, saved, now) };
                    for lease in table.leases() {
                        world.change(INSIDE, &Change::Gained(lease.clone()));
                    }
                    world.environment(|service, environment| service.settle(environment));
                }
                Step::Frame(interface, bytes) => world.receive(interface, &bytes),
            }
            world.check();
        }
        // After all leases have ended, no mapping remains.
        for lease in table.leases() {
            world.lose(lease);
        }
        world.twist = mood(0);
        world.run(4_000 * SECOND);
        prop_assert_eq!((0, 0), (world.entries.terminals.len(), world.entries.publics.len()));
        world.check();
    }
}
