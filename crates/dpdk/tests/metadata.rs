//! Tests of frame metadata from drivers (stripped tags, checksums), and of buffers that must not be delivered.

use crate::support::{close, frame, on_each_memory, plan, port, receive_some, send, veth, wait_for};
use sluice_dpdk::injection::Injected;
use sluice_dpdk::{Devices, Driver, Plan, PortPlan};
use sluice_engine::packet::io::{PacketIo, Packets, ReceiveError};
use sluice_wire::Checksums;

/// A frame with VLAN tags.
fn tagged(tags: &[[u8; 4]]) -> Vec<u8> {
    let mut bytes = frame(9, 80);
    bytes.splice(12..12, tags.concat());
    bytes
}

#[test]
fn tags_arrive_as_they_were_sent() {
    on_each_memory("tags_arrive_as_they_were_sent", |scenario| {
        veth("va", "vb", 1500);
        let packet_socket = PortPlan {
            driver: Some(Driver::AfPacket),
            ..port("vb")
        };
        let mut opened = scenario.open(&Plan::new(vec![port("va"), packet_socket], 1));
        let one = tagged(&[[0x81, 0, 0x20, 7]]);
        let two = tagged(&[[0x88, 0xa8, 0, 9], [0x81, 0, 0, 7]]);
        // AF_PACKET reports an outer 0x88a8 tag as 0x8100, which `limits` lists as a limitation.
        let two_by_packet_socket = tagged(&[[0x81, 0, 0, 9], [0x81, 0, 0, 7]]);
        for (from, to, sent, expected) in [
            (1, 0, &one, &one),
            (0, 1, &one, &one),
            (1, 0, &two, &two),
            (0, 1, &two, &two_by_packet_socket),
        ] {
            send(&mut opened.hand, from, std::slice::from_ref(sent));
            let came = wait_for("the frame", || {
                receive_some(&mut opened.hand, to, |bytes| {
                    bytes.windows(2).any(|two| two == [0x88, 0xb5])
                })
                .pop()
            });
            assert_eq!(*expected, came, "from port {from} to port {to}");
        }
        opened.close();
    });
}

#[test]
fn stripped_tags_are_put_back_and_kept_ones_left() {
    on_each_memory("stripped_tags_are_put_back_and_kept_ones_left", |scenario| {
        let mut opened = scenario.open(&plan(&["ring:r"]));
        let hand = &mut opened.hand;
        let plain = frame(9, 80);
        for (kind, expected) in [
            (Injected::Tag, tagged(&[[0x81, 0, 0x20, 7]])),
            (Injected::Tags, tagged(&[[0x88, 0xa8, 0, 9], [0x81, 0, 0, 7]])),
            (Injected::KeptTag, plain.clone()),
        ] {
            hand.inject(0, kind, &plain);
            assert_eq!(Some(expected), receive_some(hand, 0, |_| true).pop(), "{kind:?}");
        }
        opened.close();
    });
}

#[test]
fn checksum_flags_become_what_is_known() {
    on_each_memory("checksum_flags_become_what_is_known", |scenario| {
        let mut opened = scenario.open(&plan(&["ring:r"]));
        let hand = &mut opened.hand;
        for (kind, expected) in [
            (Injected::Plain, Checksums::Unverified),
            (Injected::Good, Checksums::Vouched),
            (Injected::BadL3, Checksums::BadL3),
            (Injected::BadL4, Checksums::BadL4),
            (Injected::LeftL4, Checksums::PartialChecksum),
        ] {
            hand.inject(0, kind, &frame(1, 60));
            assert_eq!(1, hand.receive(0));
            let mut lent = Packets::new();
            hand.packets(&mut lent);
            assert_eq!(expected, lent[0].checksums(), "{kind:?}");
            drop(lent);
            // A ring passes on the checksum state of a frame.
            assert_eq!(1, hand.transmit(0, &[0]));
            assert_eq!(0, hand.end());
            assert_eq!(1, hand.receive(0));
            let mut lent = Packets::new();
            hand.packets(&mut lent);
            assert_eq!(expected, lent[0].checksums(), "{kind:?} over a ring");
            drop(lent);
            hand.free(&[0]);
            assert_eq!(0, hand.end());
        }
        opened.close();
    });
}

#[test]
fn segments_become_one_buffer_or_are_refused_by_name() {
    on_each_memory("segments_become_one_buffer_or_are_refused_by_name", |scenario| {
        let mut opened = scenario.open(&plan(&["ring:r"]));
        let hand = &mut opened.hand;
        let (short, long) = (frame(1, 700), frame(2, 1500));
        hand.inject(0, Injected::Segments, &short);
        hand.inject(0, Injected::Segments, &long);
        hand.inject(0, Injected::Plain, &short);
        let came = receive_some(hand, 0, |_| true);
        assert_eq!(vec![[&short[..], &short[..]].concat(), short], came);
        assert_eq!((ReceiveError::TooLongToLinearise, 1), hand.refused(0)[0]);
        opened.close();
    });
}

#[test]
fn shared_and_empty_buffers_are_refused_by_name() {
    on_each_memory("shared_and_empty_buffers_are_refused_by_name", |scenario| {
        let mut opened = scenario.open(&plan(&["ring:r"]));
        let hand = &mut opened.hand;
        let other = hand.inject(0, Injected::Shared, &frame(1, 60));
        hand.inject(0, Injected::Plain, &[]);
        hand.inject(0, Injected::Plain, &frame(3, 60));
        assert_eq!(vec![frame(3, 60)], receive_some(hand, 0, |_| true));
        assert_eq!(
            [
                (ReceiveError::TooLongToLinearise, 0),
                (ReceiveError::Shared, 1),
                (ReceiveError::BadLength, 1)
            ],
            *hand.refused(0)
        );
        // The pool lacks one buffer, because the other holder of the shared buffer still has a reference.
        let balance = opened.devices.balances()[0].clone();
        assert_eq!(balance.size - 1, balance.available);
        drop(other);
        opened.close();
    });
}

#[test]
fn frames_go_from_worker_to_worker_with_what_they_carry() {
    use arrayvec::ArrayVec;
    use sluice_engine::packet::io::Handover;
    on_each_memory("frames_go_from_worker_to_worker_with_what_they_carry", |scenario| {
        let plan = Plan {
            workers: 2,
            handover: 64,
            ..plan(&["ring:r"])
        };
        let (devices, mut hands) = scenario.open_many(&plan);
        let (first, second) = hands.split_at_mut(1);
        let (first, second) = (&mut first[0], &mut second[0]);
        assert_eq!(100, first.allocate(100));
        let slots: Vec<u8> = (0..100).collect();
        let carried: Vec<[u64; 4]> = (0..100).map(|number| [number; 4]).collect();
        {
            let mut lent = Packets::new();
            first.packets(&mut lent);
            for (number, packet) in lent.iter_mut().enumerate() {
                packet.set_len(60);
                packet.bytes_mut().copy_from_slice(&frame(number as u32, 60));
                packet.set_checksums(Checksums::Vouched);
            }
        }
        assert_eq!(64, first.hand_over(1, &slots, &carried), "the ring holds 64");
        assert_eq!(0, first.hand_over(7, &slots[64..], &carried), "there is no such worker");
        assert_eq!(36, first.outstanding());
        first.mark();
        assert!(!first.has_arrived());
        first.free(&slots[64..]);
        first.end();
        let mut came = ArrayVec::new();
        assert_eq!(64, second.take_over(&mut came));
        assert_eq!(carried[..64], came[..]);
        assert!(first.has_arrived());
        assert_eq!(1, first.allocate(1));
        assert_eq!(1, first.hand_over(1, &[0], &carried[..1]));
        assert!(first.has_arrived(), "what comes after the mark does not count");
        first.mark();
        assert!(!first.has_arrived());
        first.end();
        {
            let mut lent = Packets::new();
            second.packets(&mut lent);
            for (number, packet) in lent.iter().enumerate() {
                assert_eq!(frame(number as u32, 60), packet.bytes());
                assert_eq!(Checksums::Vouched, packet.checksums());
            }
        }
        second.free(&slots[..64]);
        assert_eq!(0, second.end());
        close(devices, hands);
    });
}

#[test]
fn one_worker_receives_and_another_sends_by_the_only_queue() {
    on_each_memory("one_worker_receives_and_another_sends_by_the_only_queue", |scenario| {
        let plan = Plan {
            workers: 3,
            receivers: vec![0],
            senders: vec![2, 1],
            ..plan(&["ring:r,end=a", "ring:r,end=b"])
        };
        let (devices, mut hands): (Devices, _) = scenario.open_many(&plan);
        assert_eq!([2], devices.ports()[0].senders());
        let frames: Vec<_> = (0..200).map(|number| frame(number, 100)).collect();
        send(&mut hands[2], 0, &frames);
        assert_eq!(0, hands[2].receive(1), "it has no queue to receive from");
        for idle in [0, 1] {
            assert_eq!(1, hands[idle].allocate(1));
            assert_eq!(0, hands[idle].transmit(0, &[0]), "it has no queue to send by");
            hands[idle].free(&[0]);
            hands[idle].end();
        }
        let mut came = Vec::new();
        wait_for("the frames", || {
            came.extend(receive_some(&mut hands[0], 1, |_| true));
            (came.len() == 200).then_some(())
        });
        assert_eq!(frames, came);
        close(devices, hands);
    });
}
