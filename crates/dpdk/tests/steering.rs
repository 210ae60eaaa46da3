//! Tests of receive steering: the device's settings equal the requested settings. DPDK's null driver supports hash, key
//! and table. Other drivers without a card have no configurable hash.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{close, on_each_memory, port, receive_some, veth};
use sluice_dpdk::steering::{Functions, KEY_BYTES, Shortfall};
use sluice_dpdk::{Devices, Driver, Eal, HashKey, Plan, PortPlan, Steering, SteeringError};
use sluice_engine::packet::io::PortIndex;

const PORT: PortIndex = 0;
const QUEUES: u16 = 4;

fn key() -> HashKey {
    let bytes: Vec<u8> = (0..52).map(|at| at * 4 + 1).collect();
    HashKey::new(&bytes).expect("a key of 52 bytes")
}

fn steered_port(name: &str) -> PortPlan {
    PortPlan {
        queues: QUEUES,
        hash_key: Some(key()),
        ..port(name)
    }
}

fn plan(port: PortPlan) -> Plan {
    Plan::new(vec![port], QUEUES)
}

#[test]
fn null_port_has_the_hash_key_and_table_that_it_was_opened_with() {
    on_each_memory(
        "null_port_has_the_hash_key_and_table_that_it_was_opened_with",
        |scenario| {
            let (devices, hands) = scenario.open_many(&plan(PortPlan {
                table: vec![3, 1, 0, 2],
                ..steered_port("null:")
            }));
            let steered = devices.ports()[0].steering();
            assert_eq!("hashes addresses and ports", steered.to_string());
            assert_eq!(Vec::<Shortfall>::new(), steered.shortfalls);
            assert_eq!(Some(Steering::FiveTuple), steered.steering);
            assert!(
                steered
                    .functions
                    .is_some_and(|functions| functions.contains(Functions::IPV4_TCP | Functions::IPV6_UDP))
            );
            assert_eq!(
                Some(&key().bytes()[..KEY_BYTES]),
                steered.key.as_ref().map(HashKey::bytes)
            );
            assert_eq!(Some([3, 1, 0, 2].repeat(32)), steered.table);
            assert_eq!(Some(2), steered.queue_of(7));
            close(devices, hands);
        },
    );
}

#[test]
fn null_port_takes_tables_while_frames_come() {
    on_each_memory("null_port_takes_tables_while_frames_come", |scenario| {
        let (devices, mut hands) = scenario.open_many(&plan(steered_port("null:")));
        let port = &devices.ports()[0];
        assert_eq!(Some([0, 1, 2, 3].repeat(32)), port.steering().table, "each in turn");
        let (ended, received) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let hand = &mut hands[0];
            let (ended, received) = (&ended, &received);
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    receive_some(hand, PORT, |_| false);
                    received.store(true, Ordering::Relaxed);
                }
            });
            while !received.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            for round in 0..100 {
                let table: Vec<u16> = (0..128).map(|entry| (entry * 7 + round) % QUEUES).collect();
                assert_eq!(Ok(()), port.set_table(&table));
                assert_eq!(Some(table), port.steering().table);
            }
            ended.store(true, Ordering::Relaxed);
        });
        assert_eq!(Ok(()), port.set_table(&[1]));
        let no_such = SteeringError::NoSuchQueue {
            entry: 1,
            queue: QUEUES,
            queues: QUEUES,
        };
        assert_eq!(Err(no_such), port.set_table(&[0, QUEUES]));
        let length = SteeringError::TableLength {
            given: 129,
            entries: 128,
        };
        assert_eq!(Err(length), port.set_table(&[0; 129]));
        assert_eq!(
            Some(vec![1; 128]),
            port.steering().table,
            "what is refused changes nothing"
        );
        close(devices, hands);
    });
}

#[test]
fn null_port_that_can_not_hash_the_source_alone_says_so() {
    on_each_memory("null_port_that_can_not_hash_the_source_alone_says_so", |scenario| {
        let own = HashKey::new(&[0x3c; 52]).expect("a key of 52 bytes");
        let (devices, hands) = scenario.open_many(&plan(PortPlan {
            steering: Steering::Source,
            fallback_key: Some(own.clone()),
            ..steered_port("null:")
        }));
        let steered = devices.ports()[0].steering();
        assert_eq!(
            "hashes addresses and ports: the device can't hash only the source address",
            steered.to_string()
        );
        assert_eq!(
            Some(&own.bytes()[..KEY_BYTES]),
            steered.key.as_ref().map(HashKey::bytes)
        );
        close(devices, hands);
    });
}

#[test]
fn one_queue_is_left_as_it_is() {
    on_each_memory("one_queue_is_left_as_it_is", |scenario| {
        let opened = scenario.open(&Plan::new(vec![steered_port("null:")], 1));
        let port = &opened.devices.ports()[0];
        let steered = port.steering();
        assert_eq!("a single queue, without steering", steered.to_string());
        assert_eq!((None, None, None), (steered.functions, steered.key, steered.table));
        assert_eq!(Err(SteeringError::NoTable), port.set_table(&[0]));
        opened.close();
    });
}

#[test]
fn table_that_names_a_queue_that_is_not_there_opens_nothing() {
    on_each_memory("table_that_names_a_queue_that_is_not_there_opens_nothing", |scenario| {
        let wrong = plan(PortPlan {
            table: vec![0, 4],
            ..steered_port("null:")
        });
        scenario.eal(wrong.bytes());
        let eal = Eal::get().expect("DPDK runs");
        let error = Devices::open(eal, &wrong).map(|_| ()).expect_err("queue 4 of 4");
        assert_eq!(
            "null:: entry 1 of the table refers to queue 4, but there are only 4 queues, counted from 0",
            error.to_string()
        );
    });
}

#[test]
fn ports_without_a_hash_leave_it_to_software() {
    on_each_memory("ports_without_a_hash_leave_it_to_software", |scenario| {
        veth("va", "vb", 1500);
        let none = "software distributes: the device has no RSS hash that can be set";
        // TAP claims support for hash functions, but neither accepts nor reports hash functions.
        let untold =
            "software distributes: the device does not report which fields it hashes (Operation not supported)";
        for (device, expected) in [("ring:r", none), ("tap:t0", untold), ("va", none)] {
            let (devices, hands) = scenario.open_many(&plan(PortPlan {
                driver: (device == "va").then_some(Driver::AfPacket),
                ..steered_port(device)
            }));
            let steered = devices.ports()[0].steering();
            assert_eq!((QUEUES, None), (steered.queues, steered.steering), "{device}");
            assert_eq!(expected, steered.to_string(), "{device}");
            close(devices, hands);
        }
    });
}
