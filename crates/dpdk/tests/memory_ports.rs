//! Tests of ports without a kernel interface: rings, null, and capture files.

use crate::support::{exchange, frame, is_ours, on_each_memory, plan, private_path, receive_some, send, wait_for};
use sluice_engine::packet::io::PacketIo;

#[test]
fn ring_loop_gives_back_what_was_sent() {
    on_each_memory("ring_loop_gives_back_what_was_sent", |scenario| {
        let mut opened = scenario.open(&plan(&["ring:loop"]));
        exchange(&mut opened.hand, 0, 0, 20_000, 64);
        opened.close();
    });
}

#[test]
fn ring_pair_carries_frames_both_ways() {
    on_each_memory("ring_pair_carries_frames_both_ways", |scenario| {
        let mut opened = scenario.open(&plan(&["ring:pair,end=a,depth=8192", "ring:pair,end=b,depth=8192"]));
        exchange(&mut opened.hand, 0, 1, 20_000, 1514);
        exchange(&mut opened.hand, 1, 0, 20_000, 60);
        opened.close();
    });
}

#[test]
fn ring_pair_closed_with_frames_inside_loses_none() {
    on_each_memory("ring_pair_closed_with_frames_inside_loses_none", |scenario| {
        let mut opened = scenario.open(&plan(&["ring:pair,end=a", "ring:pair,end=b"]));
        send(
            &mut opened.hand,
            0,
            &(0..500).map(|number| frame(number, 64)).collect::<Vec<_>>(),
        );
        assert_eq!(
            (500, 0),
            (
                opened.devices.ports()[1].waiting().0,
                opened.devices.ports()[1].waiting().1
            )
        );
        opened.close();
    });
}

#[test]
fn ring_that_is_full_leaves_the_rest_in_the_hand() {
    on_each_memory("ring_that_is_full_leaves_the_rest_in_the_hand", |scenario| {
        let mut opened = scenario.open(&plan(&["ring:full,end=a,depth=64", "ring:full,end=b,depth=64"]));
        let hand = &mut opened.hand;
        assert_eq!(100, hand.allocate(100));
        let slots: Vec<u8> = (0..100).collect();
        assert_eq!(64, hand.transmit(0, &slots));
        assert_eq!(36, hand.outstanding());
        assert_eq!(0, hand.transmit(0, &slots[64..]));
        assert_eq!(36, hand.end(), "what was left is freed at the end");
        opened.close();
    });
}

#[test]
fn null_port_gives_and_takes_without_end() {
    on_each_memory("null_port_gives_and_takes_without_end", |scenario| {
        let mut opened = scenario.open(&plan(&["null:"]));
        for _ in 0..1000 {
            let came = opened.hand.receive(0);
            assert_eq!(64, came);
            let slots: Vec<u8> = (0..came as u8).collect();
            assert_eq!(64, opened.hand.transmit(0, &slots));
            assert_eq!(0, opened.hand.end());
        }
        opened.close();
    });
}

#[test]
fn capture_file_is_written_and_read_back() {
    on_each_memory("capture_file_is_written_and_read_back", |scenario| {
        let path = private_path("written.pcap");
        let frames: Vec<_> = (0..300).map(|number| frame(number, 60 + number as usize)).collect();
        let mut opened = scenario.open(&plan(&[&format!("pcap:,out={path}")]));
        send(&mut opened.hand, 0, &frames);
        opened.close();
        let mut opened = scenario.open(&plan(&[&format!("pcap:{path}")]));
        let mut came = Vec::new();
        wait_for("the capture's frames", || {
            came.extend(receive_some(&mut opened.hand, 0, is_ours));
            (came.len() >= frames.len()).then_some(())
        });
        assert_eq!(frames, came);
        opened.close();
        std::fs::remove_file(path).expect("the capture is removed");
    });
}
