//! Tests of link aggregation: LACP between Sluice and the kernel's bonding, and between two Sluice bonds.

use crate::support::{command, exchange_by_kernel, on_each_memory, port, veth, wait_for};
use sluice_dpdk::{DpdkIo, Driver, Plan, PortPlan};
use sluice_engine::packet::io::PacketIo;

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

#[test]
fn bond_lets_go_of_a_member_without_a_carrier_and_keeps_the_last_one() {
    on_each_memory(
        "bond_lets_go_of_a_member_without_a_carrier_and_keeps_the_last_one",
        |scenario| {
            veth("a1", "b1", 1500);
            veth("a2", "b2", 1500);
            let opened = scenario.open(&Plan::new(vec![port("bond:a1+a2"), port("bond:b1+b2")], 1));
            let ports = opened.devices.ports();
            let lost = || ports.iter().map(|port| port.lost_members().len()).sum::<usize>();
            assert_eq!(0, lost());
            command("ip link set a1 down");
            wait_for("both ends to see that the carrier is gone", || {
                (lost() == 2).then_some(())
            });
            assert!(
                ports.iter().all(|port| port.absent_members().is_empty()),
                "the bond has it yet"
            );
            command("ip link set a2 down");
            wait_for("the members to be alike", || (lost() == 0).then_some(()));
            assert!(ports.iter().all(|port| !port.link().up && !port.is_removed()));
            drop(ports);
            opened.close();
        },
    );
}

#[test]
fn bond_goes_on_without_a_member_and_takes_it_again() {
    on_each_memory("bond_goes_on_without_a_member_and_takes_it_again", |scenario| {
        veth("a1", "b1", 1500);
        veth("a2", "b2", 1500);
        let mut opened = scenario.open(&Plan::new(vec![port("bond:a1+a2"), port("bond:b1+b2")], 1));
        let ports = opened.devices.ports();
        let hand = &mut opened.hand;
        let agree = |hand: &mut DpdkIo, members: usize| {
            wait_for("LACP to agree", || {
                for port in 0..2 {
                    let came = hand.receive(port);
                    hand.free(&(0..came as u8).collect::<Vec<_>>());
                    hand.end();
                }
                ports.iter().all(|port| port.active_members() == members).then_some(())
            });
        };
        agree(hand, 2);
        command("ip link delete a2");
        for (place, port) in (0..).zip(&ports) {
            assert_eq!((1, false), (port.lost_members().len(), port.is_removed()));
            opened.devices.pause(place, port);
            hand.replace_device(place);
            assert_eq!(0, hand.receive(place));
            drop(port.part_members());
            opened.devices.resume(place, port);
            hand.replace_device(place);
            assert_eq!(
                (0, 0),
                (port.lost_members().len(), port.absent_members().len()),
                "it is not back"
            );
        }
        agree(hand, 1);
        exchange_by_kernel(hand, 0, 1, 1_000, 64);
        veth("a2", "b2", 1500);
        for port in &ports {
            let device = wait_for("the member to be back", || port.absent_members().pop());
            let member = port.open_member(&device).unwrap_or_else(|error| panic!("{error}"));
            port.join_member(&device, member)
                .unwrap_or_else(|error| panic!("{error}"));
        }
        agree(hand, 2);
        exchange_by_kernel(hand, 1, 0, 1_000, 1514);
        drop(ports);
        opened.close();
    });
}
