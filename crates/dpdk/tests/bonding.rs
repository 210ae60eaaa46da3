//! Link aggregation: LACP between Sluice and the kernel's bonding, and between two bonds of Sluice.

mod support;

use sluice_dpdk::{Driver, Plan, PortPlan};
use sluice_engine::io::PacketIo;
use support::{exchange_by_kernel, on_each_memory, port, veth, wait_for};

#[test]
fn bonds_by_lacp_exchange_frames() {
    on_each_memory("bonds_by_lacp_exchange_frames", |scenario| {
        veth("a1", "b1", 1500);
        veth("a2", "b2", 1500);
        let mut opened = scenario.open(&Plan::new(vec![port("bond:a1+a2"), port("bond:b1+b2")], 1));
        assert_eq!(Driver::Bond, opened.devices.ports()[0].driver());
        let hand = &mut opened.hand;
        wait_for("LACP to agree on both members of both bonds", || {
            for port in 0..2 {
                let came = hand.receive(port);
                let slots: Vec<u8> = (0..came as u8).collect();
                hand.free(&slots);
                hand.end();
            }
            opened
                .devices
                .ports()
                .iter()
                .all(|port| port.active_members() == 2 && port.link().up)
                .then_some(())
        });
        exchange_by_kernel(hand, 0, 1, 2_000, 64);
        exchange_by_kernel(hand, 1, 0, 2_000, 1514);
        opened.close();
    });
}

#[test]
fn bond_with_jumbo_carries_frames_whole() {
    on_each_memory("bond_with_jumbo_carries_frames_whole", |scenario| {
        veth("a1", "b1", 9000);
        veth("a2", "b2", 9000);
        let jumbo = |name| PortPlan {
            mtu: 9000,
            ..port(name)
        };
        let mut opened = scenario.open(&Plan::new(vec![jumbo("bond:a1+a2"), jumbo("bond:b1+b2")], 1));
        let hand = &mut opened.hand;
        wait_for("LACP to agree", || {
            for port in 0..2 {
                let came = hand.receive(port);
                hand.free(&(0..came as u8).collect::<Vec<_>>());
                hand.end();
            }
            opened
                .devices
                .ports()
                .iter()
                .all(|port| port.active_members() == 2)
                .then_some(())
        });
        exchange_by_kernel(hand, 0, 1, 200, 9014);
        opened.close();
    });
}
