//! Tests of ports on kernel interfaces: AF_XDP and AF_PACKET over veth, and TAP.

use std::time::{Duration, Instant};

use crate::support::{
    close, exchange_by_kernel, frame, is_ours, on_each_memory, plan, port, receive_some, send, veth, wait_for,
};
use sluice_dpdk::workers::{Idle, IdlePolicy};
use sluice_dpdk::{Devices, DpdkIo, Driver, Plan, PortPlan};

fn by(driver: Driver, name: &str) -> PortPlan {
    PortPlan {
        driver: Some(driver),
        ..port(name)
    }
}

fn receive_one(hand: &mut DpdkIo) -> Vec<u8> {
    wait_for("a frame", || receive_some(hand, 0, is_ours).pop())
}

#[test]
fn af_xdp_and_af_packet_on_veth_exchange_frames() {
    on_each_memory("af_xdp_and_af_packet_on_veth_exchange_frames", |scenario| {
        veth("va", "vb", 1500);
        let mut opened = scenario.open(&Plan::new(vec![port("va"), by(Driver::AfPacket, "vb")], 1));
        assert_eq!(Driver::AfXdp, opened.devices.ports()[0].driver());
        exchange_by_kernel(&mut opened.hand, 1, 0, 20_000, 64);
        exchange_by_kernel(&mut opened.hand, 0, 1, 20_000, 1514);
        assert_eq!(Some(20_000), Some(opened.devices.ports()[0].statistics().sent));
        opened.close();
    });
}

#[test]
fn af_xdp_on_veth_gathers_frames_that_keep_coming_and_leaves_the_interface_as_it_is() {
    on_each_memory(
        "af_xdp_on_veth_gathers_frames_that_keep_coming_and_leaves_the_interface_as_it_is",
        |scenario| {
            let settings = || {
                ["napi_defer_hard_irqs", "gro_flush_timeout"].map(|name| {
                    let text = std::fs::read_to_string(format!("/sys/class/net/va/{name}"));
                    text.expect("a setting of every interface").trim().to_owned()
                })
            };
            veth("va", "vb", 1500);
            let before = settings();
            let mut opened = scenario.open(&Plan::new(vec![port("va"), by(Driver::AfPacket, "vb")], 1));
            assert_eq!(before, settings());
            let hand = &mut opened.hand;
            for number in 0..20 {
                send(hand, 1, &[frame(2 * number, 60)]);
                let (first, came) = wait_for("the first frame", || {
                    let now = Instant::now();
                    Some((now, receive_some(hand, 0, is_ours).pop()?))
                });
                assert_eq!(frame(2 * number, 60), came);
                send(hand, 1, &[frame(2 * number + 1, 60)]);
                assert_eq!(frame(2 * number + 1, 60), receive_one(hand));
                let apart = first.elapsed();
                assert!(
                    apart >= Duration::from_micros(50),
                    "{apart:?} from one burst to the next"
                );
            }
            opened.close();
        },
    );
}

#[test]
fn af_packet_carries_jumbo_frames_whole() {
    on_each_memory("af_packet_carries_jumbo_frames_whole", |scenario| {
        veth("va", "vb", 9000);
        let jumbo = |name| PortPlan {
            mtu: 9000,
            ..port(name)
        };
        let mut opened = scenario.open(&Plan::new(vec![jumbo("va"), jumbo("vb")], 1));
        assert_eq!(Driver::AfPacket, opened.devices.ports()[0].driver());
        for length in [60, 1900, 1983, 8014, 9014] {
            exchange_by_kernel(&mut opened.hand, 0, 1, 200, length);
            exchange_by_kernel(&mut opened.hand, 1, 0, 200, length);
        }
        opened.close();
    });
}

#[test]
fn tap_exchanges_frames_with_the_kernel() {
    on_each_memory("tap_exchanges_frames_with_the_kernel", |scenario| {
        let plan = Plan {
            buffers: 4095,
            ..plan(&["tap:t0"])
        };
        let eal = scenario.eal(64 << 20);
        let (tap, mut taps) = Devices::open(eal, &plan).unwrap_or_else(|error| panic!("{error}"));
        let plan = Plan {
            buffers: 4095,
            ..Plan::new(vec![by(Driver::AfPacket, "t0")], 1)
        };
        let (kernel, mut kernels) = Devices::open(eal, &plan).unwrap_or_else(|error| panic!("{error}"));
        for number in 0..2000 {
            let frames = [frame(number, 60 + number as usize % 1400)];
            send(&mut taps[0], 0, &frames);
            assert_eq!(frames[0], receive_one(&mut kernels[0]));
            send(&mut kernels[0], 0, &frames);
            assert_eq!(frames[0], receive_one(&mut taps[0]));
        }
        close(kernel, kernels);
        close(tap, taps);
    });
}

/// Test a TAP interface that has this MTU, and a port that opens the same interface through a packet socket.
fn tap_has_the_mtu(test: &str, mtu: u16) {
    on_each_memory(test, |scenario| {
        let eal = scenario.eal(192 << 20);
        let of = |port: PortPlan| Plan {
            buffers: 4095,
            ..Plan::new(vec![PortPlan { mtu, ..port }], 1)
        };
        let (tap, mut taps) = Devices::open(eal, &of(port("tap:t0"))).unwrap_or_else(|error| panic!("{error}"));
        let text = std::fs::read_to_string("/sys/class/net/t0/mtu").expect("the MTU of an interface");
        assert_eq!(mtu.to_string(), text.trim());
        let kernel = of(by(Driver::AfPacket, "t0"));
        let (kernel, mut kernels) = Devices::open(eal, &kernel).unwrap_or_else(|error| panic!("{error}"));
        let longest = usize::from(mtu) + 14;
        for length in [60, 1024, longest - 1, longest] {
            for number in 0..40 {
                let frames = [frame(number, length)];
                send(&mut taps[0], 0, &frames);
                assert_eq!(frames[0], receive_one(&mut kernels[0]), "{length} bytes to the kernel");
                send(&mut kernels[0], 0, &frames);
                assert_eq!(frames[0], receive_one(&mut taps[0]), "{length} bytes from the kernel");
            }
        }
        close(kernel, kernels);
        close(tap, taps);
    });
}

#[test]
fn tap_of_the_least_mtu_of_ipv6_carries_that_both_ways() {
    tap_has_the_mtu("tap_of_the_least_mtu_of_ipv6_carries_that_both_ways", 1280);
}

#[test]
fn tap_of_an_ordinary_mtu_carries_that_both_ways() {
    tap_has_the_mtu("tap_of_an_ordinary_mtu_carries_that_both_ways", 1500);
}

#[test]
fn tap_of_an_mtu_with_room_for_two_tags_carries_that_both_ways() {
    tap_has_the_mtu("tap_of_an_mtu_with_room_for_two_tags_carries_that_both_ways", 1508);
}

#[test]
fn tap_of_a_jumbo_mtu_is_refused_in_place_of_losing_frames() {
    on_each_memory("tap_of_a_jumbo_mtu_is_refused_in_place_of_losing_frames", |scenario| {
        let tap = PortPlan {
            mtu: 9000,
            ..port("tap:t0")
        };
        let refused = Devices::open(scenario.eal(192 << 20), &Plan::new(vec![tap], 1));
        let text = refused.map(drop).expect_err("TAP has no jumbo frames").to_string();
        assert!(text.contains("can't have an MTU of 9000 (at most 1508"), "{text}");
    });
}

#[test]
fn idle_worker_is_woken_by_a_tap_and_the_frame_is_there() {
    on_each_memory("idle_worker_is_woken_by_a_tap_and_the_frame_is_there", |scenario| {
        let eal = scenario.eal(64 << 20);
        let mut tap = port("tap:t0");
        tap.interrupts = true;
        let plan = |port| Plan {
            buffers: 4095,
            ..Plan::new(vec![port], 1)
        };
        let open = |plan: &Plan| Devices::open(eal, plan).unwrap_or_else(|error| panic!("{error}"));
        let (tap, mut taps) = open(&plan(tap));
        let (kernel, mut kernels) = open(&plan(by(Driver::AfPacket, "t0")));
        assert!(tap.ports()[0].interrupts());
        assert!(!kernel.ports()[0].interrupts());
        let waiting = IdlePolicy {
            spin: 0,
            pause: 2,
            sleep: Some(Duration::from_secs(20)),
            interrupt: true,
        };
        let mut idle = Idle::new(waiting, tap.queues(0));
        for number in 0..3 {
            while !idle.sleeps_next() {
                idle.quiet();
            }
            let frames = [frame(number, 100)];
            send(&mut kernels[0], 0, &frames);
            idle.quiet();
            assert!(!idle.sleeps_next(), "it slept until the time was over");
            assert_eq!(frames[0], receive_one(&mut taps[0]));
        }
        close(kernel, kernels);
        close(tap, taps);
    });
}

#[test]
fn af_packet_spreads_flows_over_the_queues_of_two_workers() {
    on_each_memory("af_packet_spreads_flows_over_the_queues_of_two_workers", |scenario| {
        veth("va", "vb", 1500);
        let two = |name| PortPlan {
            queues: 2,
            ..by(Driver::AfPacket, name)
        };
        let (devices, mut hands) = scenario.open_many(&Plan::new(vec![two("va"), two("vb")], 2));
        assert_eq!(2, devices.ports()[0].queues());
        let mut came = [0, 0];
        for number in 0..400u32 {
            let sender = number as usize % 2;
            send(&mut hands[sender], 0, &[flow(number)]);
            wait_for("the frame at one of the workers", || {
                let before = came;
                for (hand, came) in hands.iter_mut().zip(&mut came) {
                    *came += receive_some(hand, 1, |bytes| bytes.get(12..14) == Some(&[8, 0])).len();
                }
                (came != before).then_some(())
            });
        }
        assert_eq!(400, came[0] + came[1]);
        assert!(came[0] > 0 && came[1] > 0, "flows at both workers: {came:?}");
        close(devices, hands);
    });
}

/// A frame of the UDP flow with this number.
fn flow(number: u32) -> Vec<u8> {
    let mut bytes = frame(number, 60);
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14..34].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes[34..36].copy_from_slice(&(number as u16 + 1024).to_be_bytes());
    bytes
}
