//! Sequences of segments, each with its expected result.

use super::{Rig, plan, segment};
use Is::*;
use sluice_inspect::stream::{Exception, SegmentKind, StreamCapacity};
use sluice_wire::key::Direction::{self, Forward, Reverse};
use sluice_wire::tcp::flag;

/// Initial sequence number of the client. The client's sequence numbers wrap around at 2³² after a few bytes.
pub const CLIENT: u32 = 0xffff_fff8;
pub const SERVER: u32 = 5000;

/// Expected result of a segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Is {
    Fresh,
    /// The segment is in order, with this number of rewritten bytes and flags.
    Mended(usize),
    Repeat,
    /// The segment is a retransmission, with this number of rewritten bytes and flags.
    Right(usize),
    Ahead,
    /// The segment is beyond a gap, with this number of rewritten bytes and flags.
    AheadRight(usize),
    Not(Exception),
}

impl From<SegmentKind> for Is {
    fn from(step: SegmentKind) -> Self {
        match step {
            SegmentKind::InOrder { rewritten: 0, .. } => Fresh,
            SegmentKind::InOrder { rewritten, .. } => Mended(rewritten),
            SegmentKind::Retransmission { rewritten: 0 } => Repeat,
            SegmentKind::Retransmission { rewritten } => Right(rewritten),
            SegmentKind::OutOfOrder { rewritten: 0 } => Ahead,
            SegmentKind::OutOfOrder { rewritten } => AheadRight(rewritten),
            SegmentKind::Exception(exception) => Not(exception),
        }
    }
}

/// Sender (`c` or `s`; upper case if the segment arrives from the wrong side) and flags (`S`, `A`, `F`, `R`, `U`); sequence and acknowledgement
/// number, each relative to the SYN of its stream; data; expected result.
pub type Row = (&'static str, i64, i64, &'static str, Is);

fn flags(text: &str) -> u8 {
    text.chars().skip(1).fold(0, |flags, letter| {
        flags
            | match letter {
                'S' => flag::SYN,
                'A' => flag::ACK,
                'F' => flag::FIN,
                'R' => flag::RST,
                'U' => flag::URG,
                other => panic!("no flag {other}"),
            }
    })
}

pub fn run(rig: &mut Rig, rows: &[Row]) {
    for (number, &(who, sequence, acknowledgment, data, is)) in rows.iter().enumerate() {
        let (direction, own, other) = match &who[..1] {
            "c" | "C" => (Forward, CLIENT, SERVER),
            _ => (Reverse, SERVER, CLIENT),
        };
        let own_side = who.starts_with(char::is_lowercase);
        let at = |initial: u32, offset: i64| initial.wrapping_add(offset as u32);
        let segment = segment(
            at(own, sequence),
            at(other, acknowledgment),
            flags(who),
            data.as_bytes(),
        );
        assert_eq!(
            is,
            Is::from(rig.send_from(direction, own_side, segment)),
            "row {number}: {who} {sequence} {data}"
        );
    }
}

/// The handshake.
pub const OPEN: [Row; 3] = [
    ("cS", 0, 0, "", Repeat),
    ("sSA", 0, 1, "", Repeat),
    ("cA", 1, 1, "", Repeat),
];

#[track_caller]
pub fn case(plan: &StreamCapacity, rows: &[Row], client: &str, server: &str) -> Rig {
    let mut rig = Rig::new(plan);
    run(&mut rig, rows);
    check(&rig, client, server);
    rig
}

#[track_caller]
pub fn check(rig: &Rig, client: &str, server: &str) {
    let text = |direction: Direction| String::from_utf8_lossy(&rig.inspected[direction as usize]);
    assert_eq!((client, server), (&*text(Forward), &*text(Reverse)));
}

#[track_caller]
pub fn opened(rows: &[Row], client: &str, server: &str) -> Rig {
    case(&plan(), &[&OPEN[..], rows].concat(), client, server)
}
