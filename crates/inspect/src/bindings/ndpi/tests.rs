use std::collections::HashMap;

use sluice_wire::Direction;

use super::DetectionModule;
use crate::applications::{ApplicationCapacity, ApplicationDetector, DetectionHandle};

#[path = "../../../tests/captured/mod.rs"]
mod captured;

/// The test refuses the first allocation of a packet, then the second, and so on, for every kind of flow. nDPI must not
/// crash, and the memory of the flow must be released.
#[test]
fn flows_refused_memory_at_any_request_are_given_up() {
    let mut applications = ApplicationDetector::new(ApplicationCapacity::default()).unwrap();
    let mut flows = Vec::new();
    for capture in captured::captures() {
        let mut packets: HashMap<_, Vec<_>> = HashMap::new();
        for packet in captured::packets(&capture) {
            packets.entry(packet.key.clone()).or_default().push(packet);
        }
        flows.extend(packets.into_values());
    }
    let mut given_up = 0;
    for flow in &flows {
        for requests in 0.. {
            let before = applications.counters().out_of_memory;
            let state = applications.allocate().unwrap();
            show(&mut applications, state, flow, requests);
            applications.module().refuse_in(None);
            applications.give_up(state);
            assert_eq!((0, 0), (applications.memory().used, applications.memory().foreign));
            if applications.counters().out_of_memory == before {
                break;
            }
            given_up += 1;
        }
    }
    let (used, peak, refused) = applications.module().memories.ciphers.arena.usage();
    assert_eq!((0, 0), (used, refused));
    assert!(peak <= 32 << 10, "{peak} bytes for ciphers");
    println!("{peak} bytes for ciphers");
    println!("{given_up} refusals in {} flows", flows.len());
}

fn show(applications: &mut ApplicationDetector, state: DetectionHandle, flow: &[captured::Packet], requests: u32) {
    for packet in flow {
        applications.module().refuse_in(Some(requests));
        applications.packet(state, &packet.bytes, packet.direction, packet.time_ms);
        if !applications.is_active(state) {
            break;
        }
    }
}

#[test]
fn module_of_this_release_gives_flows_of_a_known_size() {
    let mut module = DetectionModule::new(1, 1 << 16).unwrap();
    assert!(super::revision().starts_with("4.2"));
    assert!(
        (500..4000).contains(&DetectionModule::FLOW),
        "{} bytes",
        DetectionModule::FLOW
    );
    println!("{} bytes a flow", DetectionModule::FLOW);
    let packet = captured::segment(1025, Direction::Forward, captured::REQUEST);
    let pair = module.packet(0, &packet, Direction::Forward, 1).unwrap();
    assert_eq!(7, pair.application);
    assert!(module.arena_counters().used > 0);
    module.release(0);
    assert_eq!(0, module.arena_counters().used);
}
