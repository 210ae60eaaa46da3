//! Tests arbitrary segments in any order, with arbitrary handling of exceptions. There is no panic, no memory leak, no
//! exceeded limit, and no wrong checksum.

use crate::rig::{BLOCK, Rig, plan, segment};
use proptest::prelude::*;
use sluice_inspect::stream::{Exception, SegmentKind, StreamCapacity};
use sluice_wire::key::Direction::{Forward, Reverse};

#[derive(Clone, Debug)]
enum Event {
    Segment {
        reverse: bool,
        sequence: u32,
        acknowledgment: u32,
        flags: u8,
        data: Vec<u8>,
        pick_up: bool,
        own: bool,
    },
    Skip(bool),
}

/// Sequence numbers that overlap: near each other, near the wrap-around, and far away.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![
        8 => (0u32..120).prop_map(|near| near.wrapping_sub(60)),
        1 => Just(0x4000_0000),
        1 => Just(0xc000_0000),
        1 => any::<u32>(),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let flags = prop_oneof![4 => Just(0x10u8), 2 => Just(0x02), 2 => Just(0x12), 1 => Just(0x11), 1 => any::<u8>()];
    let data = prop::collection::vec(any::<u8>(), 0..90);
    prop_oneof![
        12 => (any::<bool>(), number(), number(), flags, prop_oneof![Just(vec![]), data], any::<bool>(), any::<bool>()).prop_map(
            |(reverse, sequence, acknowledgment, flags, data, pick_up, own)| {
                Event::Segment { reverse, sequence, acknowledgment, flags, data, pick_up, own }
            },
        ),
        1 => any::<bool>().prop_map(Event::Skip),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn streams_of_any_segments_lose_nothing_and_keep_their_bounds(
        window in prop_oneof![Just(1usize), Just(32)],
        windows in 0usize..3,
        events in prop::collection::vec(event(), 1..150),
    ) {
        let plan = StreamCapacity { window, windows, ..plan() };
        let mut rig = Rig::new(&plan);
        let direction = |reverse| if reverse { Reverse } else { Forward };
        for event in events {
            match event {
                Event::Segment { reverse, sequence, acknowledgment, flags, data, pick_up, own } => {
                    let segment = segment(sequence, acknowledgment, flags, &data);
                    let step = rig.send_from(direction(reverse), own, segment.clone());
                    let begins = [Exception::Midstream, Exception::Handshake].map(SegmentKind::Exception);
                    if pick_up && begins.contains(&step) {
                        rig.streams.pick_up(rig.handle, direction(reverse), &segment);
                        let step = rig.send(direction(reverse), segment);
                        prop_assert!(!begins.contains(&step));
                    }
                }
                Event::Skip(reverse) => {
                    if rig.streams.skip_gap(rig.handle, direction(reverse)) {
                        rig.take_kept(direction(reverse));
                    }
                }
            }
            let (_, windows, blocks) = rig.streams.used();
            prop_assert!(windows <= plan.windows && blocks <= plan.share / BLOCK);
        }
        rig.close();
    }
}
