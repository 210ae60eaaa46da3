//! Tests of ports that are attached and detached while a worker uses other ports.

use crate::support::{
    command, exchange, exchange_by_kernel, frame, is_ours, on_each_memory, port, receive_some, send_some, veth,
};
use sluice_dpdk::{Driver, Plan, PortPlan, SetError};
use sluice_engine::packet::io::{PacketIo, PortIndex};

const SPARE: PortIndex = 2;
const MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x42];

fn plan() -> Plan {
    Plan {
        places: 3,
        ..Plan::new(vec![port("ring:one,end=a"), port("ring:one,end=b")], 1)
    }
}

#[test]
fn port_that_is_attached_later_carries_frames_and_one_that_is_detached_none() {
    on_each_memory(
        "port_that_is_attached_later_carries_frames_and_one_that_is_detached_none",
        |scenario| {
            let mut plan = plan();
            // Ordinary pages provide memory only for the planned buffers.
            plan.buffers = 65_535;
            let mut opened = scenario.open(&plan);
            assert!(!opened.hand.has_device(SPARE));
            assert_eq!(0, opened.hand.receive(SPARE));
            assert_eq!(
                0,
                send_some(&mut opened.hand, SPARE, &[frame(1, 64)]),
                "nobody takes it"
            );
            for _ in 0..3 {
                veth("va", "vb", 1500);
                let attached = PortPlan {
                    driver: Some(Driver::AfPacket),
                    mac: Some(MAC),
                    ..port("va")
                };
                let attached = opened
                    .devices
                    .attach(SPARE, &attached)
                    .unwrap_or_else(|error| panic!("{error}"));
                assert!(!opened.hand.has_device(SPARE), "not before the worker has renewed it");
                assert_eq!(
                    MAC,
                    attached.mac(),
                    "the address that it was given, not the one that it came with"
                );
                opened.hand.replace_device(SPARE);
                assert!(opened.hand.has_device(SPARE) && opened.devices.receives(0, SPARE));
                exchange(&mut opened.hand, 0, 1, 64, 64);
                let before = attached.statistics().sent;
                exchange_by_kernel_loop(&mut opened.hand);
                assert!(attached.statistics().sent > before);
                assert!(!attached.is_removed());
                command("ip link delete va");
                assert!(attached.is_removed());
                let detached = opened.devices.detach(SPARE).expect("it is there");
                opened.hand.replace_device(SPARE);
                assert_eq!(0, opened.hand.receive(SPARE));
                drop((attached, detached));
                assert_eq!(2, opened.devices.ports().len());
            }
            exchange(&mut opened.hand, 1, 0, 64, 1514);
            opened.close();
        },
    );
}

/// Send frames on the spare port. Only the interface of the spare port counts received frames.
fn exchange_by_kernel_loop(hand: &mut sluice_dpdk::DpdkIo) {
    let frames: Vec<_> = (0..32).map(|number| frame(number, 128)).collect();
    assert_eq!(32, send_some(hand, SPARE, &frames));
    receive_some(hand, SPARE, is_ours);
}

#[test]
fn af_xdp_interface_that_was_deleted_and_made_again_is_attached_again() {
    on_each_memory(
        "af_xdp_interface_that_was_deleted_and_made_again_is_attached_again",
        |scenario| {
            veth("va", "vb", 1500);
            let other = PortPlan {
                driver: Some(Driver::AfPacket),
                ..port("vb")
            };
            let mut plan = Plan::new(vec![port("va"), other.clone()], 1);
            plan.buffers = 65_535;
            let mut opened = scenario.open(&plan);
            exchange_by_kernel(&mut opened.hand, 1, 0, 500, 64);
            for place in [0, 1] {
                drop(opened.devices.detach(place));
            }
            // Both ports are detached and closed. Renew the ports before the burst buffers can use them.
            (0..2).for_each(|place| opened.hand.replace_device(place));
            command("ip link delete va");
            veth("va", "vb", 1500);
            for (place, wanted) in [(0, port("va")), (1, other)] {
                opened
                    .devices
                    .attach(place, &wanted)
                    .unwrap_or_else(|error| panic!("{error}"));
                opened.hand.replace_device(place);
            }
            exchange_by_kernel(&mut opened.hand, 1, 0, 500, 64);
            exchange_by_kernel(&mut opened.hand, 0, 1, 500, 1514);
            opened.close();
        },
    );
}

#[test]
fn port_beyond_the_places_or_with_larger_frames_than_at_the_start_is_refused() {
    on_each_memory(
        "port_beyond_the_places_or_with_larger_frames_than_at_the_start_is_refused",
        |scenario| {
            let opened = scenario.open(&plan());
            let refused = |place, mtu| {
                let wanted = PortPlan {
                    mtu,
                    ..port("ring:two")
                };
                opened.devices.attach(place, &wanted).expect_err("it is refused")
            };
            assert!(matches!(refused(3, 1500), SetError::NoFreeIndex { places: 3, .. }));
            assert!(matches!(refused(SPARE, 9000), SetError::Mtu { mtu: 9000, .. }));
            opened.close();
        },
    );
}

#[test]
fn af_xdp_interface_that_stays_is_attached_again_after_it_was_detached() {
    on_each_memory(
        "af_xdp_interface_that_stays_is_attached_again_after_it_was_detached",
        |scenario| {
            veth("va", "vb", 1500);
            let other = PortPlan {
                driver: Some(Driver::AfPacket),
                ..port("vb")
            };
            let mut plan = Plan::new(vec![port("va"), other], 1);
            plan.buffers = 65_535;
            let mut opened = scenario.open(&plan);
            for _ in 0..3 {
                exchange_by_kernel(&mut opened.hand, 1, 0, 500, 64);
                drop(opened.devices.detach(0));
                opened.hand.replace_device(0);
                opened
                    .devices
                    .attach(0, &port("va"))
                    .unwrap_or_else(|error| panic!("{error}"));
                opened.hand.replace_device(0);
            }
            exchange_by_kernel(&mut opened.hand, 0, 1, 500, 1514);
            opened.close();
        },
    );
}
