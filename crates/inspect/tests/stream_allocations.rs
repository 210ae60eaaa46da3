//! Tests that streams don't allocate memory after their construction.

mod rig;

use allocation_counter::measure;
use rig::{BLOCK, plan, segment, streams};
use sluice_inspect::stream::{SegmentKind, StreamCapacity};
use sluice_wire::key::Direction::{Forward, Reverse};
use sluice_wire::tcp::flag;

#[test]
fn streams_of_every_kind_of_segment_allocate_nothing() {
    let mut streams = streams(&StreamCapacity {
        share: 2 * BLOCK,
        ..plan()
    });
    let mut segments: Vec<Vec<u8>> = vec![segment(0, 0, flag::SYN, b""), segment(0, 0, flag::SYN, b"data")];
    for start in [1, 500, 40, 80, 120, 1, 200, 30, 1, 0x5000_0000] {
        for length in [0, 1, 30, 100, 30] {
            segments.push(segment(start, 1, flag::ACK, &vec![start as u8; length]));
        }
    }
    segments.push(segment(1, 1, flag::ACK | flag::FIN, &[1; 300]));
    segments.push(segment(1, 1, flag::ACK | flag::FIN, &[1; 500]));
    segments.push(segment(1, 0, flag::RST, b""));
    let (mut steps, mut kept) = ([0; 4], 0);
    let info = measure(|| {
        for _ in 0..100 {
            let Some(handle) = streams.open() else { break };
            for segment in &mut segments {
                for direction in [Forward, Reverse] {
                    let number = match streams.segment(handle, direction, true, segment) {
                        SegmentKind::InOrder { .. } => 0,
                        SegmentKind::Retransmission { .. } => 1,
                        SegmentKind::OutOfOrder { .. } => 2,
                        SegmentKind::Exception(_) => 3,
                    };
                    steps[number] += 1;
                    while let Some(piece) = streams.next_queued(handle, direction) {
                        kept += piece.length;
                    }
                    std::hint::black_box(streams.view(handle, direction));
                }
            }
            streams.skip_gap(handle, Forward);
            streams.close(handle);
        }
    });
    assert_eq!(0, info.count_total);
    assert!(steps.iter().all(|count| *count > 0) && kept > 0, "{steps:?} {kept}");
}
