//! Tests of ports on memory that is shared with another program: memif pairs, and vhost-user with virtio-user.

use crate::support::{
    self, Opened, exchange, frame, is_ours, on_each_memory, port, private_path, receive_some, send, wait_for,
};
use sluice_dpdk::{Plan, PortPlan};
use sluice_engine::packet::io::{PacketIo, Packets};
use sluice_wire::Checksums;

#[test]
fn memif_pair_exchanges_frames() {
    on_each_memory("memif_pair_exchanges_frames", |scenario| {
        let socket = private_path("memif");
        let server = format!("memif:{socket},role=server");
        let client = format!("memif:{socket},role=client");
        let mut opened = scenario.open(&Plan::new(vec![port(&server), port(&client)], 1));
        wait_for("both links", || {
            opened.devices.ports().iter().all(|port| port.link().up).then_some(())
        });
        exchange(&mut opened.hand, 0, 1, 20_000, 64);
        exchange(&mut opened.hand, 1, 0, 20_000, 1514);
        close_memif_pair(opened);
    });
}

/// Close the client first, because DPDK's memif frees memory twice if both ends close simultaneously.
fn close_memif_pair(mut opened: Opened) {
    drop(opened.devices.detach(1));
    opened.hand.replace_device(1);
    let server = opened.devices.port(0).expect("the server's port");
    wait_for("the server to see its peer go", || (!server.link().up).then_some(()));
    drop(server);
    opened.close();
}

#[test]
fn memif_pair_carries_jumbo_frames_whole() {
    on_each_memory("memif_pair_carries_jumbo_frames_whole", |scenario| {
        let socket = private_path("memif");
        let jumbo = |name: &str| PortPlan {
            mtu: 9000,
            ..port(name)
        };
        let ports = vec![
            jumbo(&format!("memif:{socket},role=server")),
            jumbo(&format!("memif:{socket},role=client")),
        ];
        let mut opened = scenario.open(&Plan::new(ports, 1));
        wait_for("both links", || {
            opened.devices.ports().iter().all(|port| port.link().up).then_some(())
        });
        exchange(&mut opened.hand, 0, 1, 500, 9014);
        close_memif_pair(opened);
    });
}

/// Plans of a vhost port and a virtio port. The vhost port must be opened first.
fn vhost_pair(queues: u16, mtu: u16) -> Vec<PortPlan> {
    let socket = private_path("vhost");
    [format!("vhost:{socket}"), format!("virtio:{socket}")]
        .iter()
        .map(|name| PortPlan {
            queues,
            mtu,
            ..port(name)
        })
        .collect()
}

#[test]
fn vhost_and_virtio_exchange_frames() {
    on_each_memory("vhost_and_virtio_exchange_frames", |scenario| {
        let mut opened = scenario.open(&Plan::new(vhost_pair(1, 1500), 1));
        wait_for("both links", || {
            opened.devices.ports().iter().all(|port| port.link().up).then_some(())
        });
        exchange(&mut opened.hand, 0, 1, 20_000, 64);
        exchange(&mut opened.hand, 1, 0, 20_000, 1514);
        opened.close();
    });
}

#[test]
fn vhost_and_virtio_carry_jumbo_frames_whole() {
    on_each_memory("vhost_and_virtio_carry_jumbo_frames_whole", |scenario| {
        let mut opened = scenario.open(&Plan::new(vhost_pair(1, 9000), 1));
        wait_for("both links", || {
            opened.devices.ports().iter().all(|port| port.link().up).then_some(())
        });
        exchange(&mut opened.hand, 0, 1, 500, 9014);
        exchange(&mut opened.hand, 1, 0, 500, 9014);
        opened.close();
    });
}

#[test]
fn vhost_and_virtio_serve_two_workers_by_two_queues() {
    on_each_memory("vhost_and_virtio_serve_two_workers_by_two_queues", |scenario| {
        let (devices, mut hands) = scenario.open_many(&Plan::new(vhost_pair(2, 1500), 2));
        wait_for("both links", || {
            devices.ports().iter().all(|port| port.link().up).then_some(())
        });
        for hand in &mut hands {
            exchange(hand, 0, 1, 5_000, 200);
            exchange(hand, 1, 0, 5_000, 200);
        }
        support::close(devices, hands);
    });
}

/// A frame that requires checksum offload: its UDP checksum field contains the folded sum of the pseudo-header.
fn left_to_offload() -> Vec<u8> {
    let mut bytes = frame(1, 60);
    bytes[12..14].copy_from_slice(&[8, 0]);
    let ip = [0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0x66, 0xbc, 10, 0, 0, 1, 10, 0, 0, 2];
    bytes[14..34].copy_from_slice(&ip);
    let pseudo: u32 = 0x0a00 + 1 + 0x0a00 + 2 + 17 + 26;
    bytes[34..42].copy_from_slice(&[0, 7, 0, 7, 0, 26, (pseudo >> 8) as u8, pseudo as u8]);
    bytes
}

#[test]
fn checksum_left_to_offload_by_virtio_arrives_as_left() {
    on_each_memory("checksum_left_to_offload_by_virtio_arrives_as_left", |scenario| {
        let mut opened = scenario.open(&Plan::new(vhost_pair(1, 1500), 1));
        wait_for("both links", || {
            opened.devices.ports().iter().all(|port| port.link().up).then_some(())
        });
        assert!(opened.devices.ports().iter().all(|port| port.completes_checksums()));
        for (from, to) in [(1, 0), (0, 1)] {
            let hand = &mut opened.hand;
            assert_eq!(1, hand.allocate(1));
            {
                let mut lent = Packets::new();
                hand.packets(&mut lent);
                lent[0].set_len(60);
                lent[0].bytes_mut().copy_from_slice(&left_to_offload());
                lent[0].set_checksums(Checksums::PartialChecksum);
            }
            assert_eq!(1, hand.transmit(from, &[0]));
            assert_eq!(0, hand.end());
            wait_for("the frame", || (hand.receive(to) == 1).then_some(()));
            {
                let mut lent = Packets::new();
                hand.packets(&mut lent);
                assert_eq!(left_to_offload(), lent[0].bytes());
                assert_eq!(
                    Checksums::PartialChecksum,
                    lent[0].checksums(),
                    "from port {from} to port {to}"
                );
            }
            hand.free(&[0]);
            assert_eq!(0, hand.end());
        }
        opened.close();
    });
}

#[test]
fn link_of_vhost_follows_its_peer() {
    on_each_memory("link_of_vhost_follows_its_peer", |scenario| {
        let mut pair = vhost_pair(1, 1500);
        let virtio = Plan {
            buffers: 4095,
            ..Plan::new(vec![pair.remove(1)], 1)
        };
        let vhost = Plan {
            buffers: 8191,
            ..Plan::new(pair, 1)
        };
        let eal = scenario.eal(vhost.bytes() + virtio.bytes());
        let (vhost, mut hands) = sluice_dpdk::Devices::open(eal, &vhost).unwrap_or_else(|error| panic!("{error}"));
        assert!(!vhost.ports()[0].link().up, "nobody is connected");
        for _ in 0..2 {
            let (devices, mut peers) =
                sluice_dpdk::Devices::open(eal, &virtio).unwrap_or_else(|error| panic!("{error}"));
            wait_for("the link to come up", || vhost.ports()[0].link().up.then_some(()));
            send(&mut peers[0], 0, &[frame(7, 100)]);
            let came = wait_for("a frame", || receive_some(&mut hands[0], 0, is_ours).pop());
            assert_eq!(frame(7, 100), came);
            support::close(devices, peers);
            wait_for("the link to go down", || (!vhost.ports()[0].link().up).then_some(()));
        }
        support::close(vhost, hands);
    });
}
