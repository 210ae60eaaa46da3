//! What a source sends: datagrams of flows that all send in both directions, each direction by its own side of a bridge.

use sluice_wire::{checksum, ethernet};

use crate::nat_path::flows::Random;

/// Flows.
pub const FLOWS: u32 = 2_048;
/// Where a datagram's payload begins.
const PAYLOAD: usize = 42;
/// Words as protocols use them, none of which is what a rule looks for alone.
const WORDS: [&str; 12] = [
    "the ",
    "and ",
    "of ",
    "<div class=\"",
    "\">",
    "</div>\n",
    "session=",
    "index",
    ".html",
    "0",
    "a1b2",
    "&",
];
/// Payloads that flows take theirs from.
const PAGES: usize = 16;

/// What kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Frames of one size (RFC 2544).
    Rfc2544,
    /// Sizes as a carrier's customers send them.
    Mix,
    /// Frames of one size, half of which one flow has.
    Elephant,
}

impl Kind {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rfc2544 => "rfc2544",
            Self::Mix => "mix",
            Self::Elephant => "elephant",
        }
    }
}

/// Payloads of words, drawn once.
#[derive(Debug)]
pub struct Pages(Vec<Vec<u8>>);

impl Pages {
    /// All of them, as long as the longest frame's.
    pub fn new() -> Self {
        let mut random = Random(0x0123_4567_89ab_cdef);
        let mut page = |_| {
            let mut page = Vec::new();
            while page.len() < 1_600 {
                page.extend_from_slice(WORDS[random.below(WORDS.len() as u64) as usize].as_bytes());
            }
            page
        };
        Self((0..PAGES).map(&mut page).collect())
    }
}

/// The ends of a flow: client and server, each with address and port. No port is one that a protocol is known by.
pub fn ends(flow: u32) -> [(u32, u16); 2] {
    let port = 20_000 + (flow % 4_096) as u16;
    [(0x0a00_0000 | flow >> 2, port), (0xc612_0000 | flow & 0xff, 40_000)]
}

/// Write the frame of a flow that comes in by a side of the bridge; `number` is how many it has sent there before.
#[inline(always)]
pub fn write(frame: &mut [u8], flow: u32, side: u16, number: u32, pages: &Pages) {
    let length = frame.len();
    let [client, server] = ends(flow);
    let (source, destination) = if side == 0 { (client, server) } else { (server, client) };
    let mac = |last: u16| [2, 0, 0, 0, 0, last as u8];
    frame[..6].copy_from_slice(&mac(1 - side));
    frame[6..12].copy_from_slice(&mac(side));
    frame[12..14].copy_from_slice(&ethernet::ethertype::IPV4.to_be_bytes());
    frame[14..26].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame[16..18].copy_from_slice(&(length as u16 - 14).to_be_bytes());
    frame[26..30].copy_from_slice(&source.0.to_be_bytes());
    frame[30..34].copy_from_slice(&destination.0.to_be_bytes());
    let sum = checksum::checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame[34..36].copy_from_slice(&source.1.to_be_bytes());
    frame[36..38].copy_from_slice(&destination.1.to_be_bytes());
    frame[38..40].copy_from_slice(&(length as u16 - 34).to_be_bytes());
    // None: the card vouches for what it has.
    frame[40..PAYLOAD].fill(0);
    frame[PAYLOAD..PAYLOAD + 4].copy_from_slice(&flow.to_be_bytes());
    frame[PAYLOAD + 4..PAYLOAD + 8].copy_from_slice(&number.to_be_bytes());
    let page = &pages.0[flow as usize % PAGES];
    frame[PAYLOAD + 8..].copy_from_slice(&page[..length - PAYLOAD - 8]);
}

/// Flow and number of a frame that [`write`] wrote.
pub fn read(frame: &[u8]) -> Option<(u32, u32)> {
    let word = |at| frame.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    Some((word(PAYLOAD)?, word(PAYLOAD + 4)?))
}

/// What one source draws from.
pub struct Draw {
    /// Its flows.
    pub flows: Vec<u32>,
    /// The flow with more packets than others, where that is here.
    pub hot: Option<u32>,
    /// How many of 2^32 packets it has.
    pub share: u64,
    /// Lengths of frames, each as often as it shall be.
    pub lengths: Vec<usize>,
    /// The sides that it sends by.
    pub sides: Vec<u16>,
    /// Draws the flows.
    pub random: Random,
    /// Frames that each flow has sent, by side.
    pub numbers: [Vec<u32>; 2],
}

impl Draw {
    /// The next frame by a side: its flow and length.
    #[inline(always)]
    pub fn next(&mut self, side: u16) -> (u32, usize, u32) {
        let length = match self.lengths.len() {
            1 => self.lengths[0],
            count => self.lengths[self.random.below(count as u64) as usize],
        };
        let flow = match self.hot {
            Some(hot) if u64::from(self.random.below(1 << 32)) < self.share => hot,
            _ => self.flows[self.random.below(self.flows.len() as u64) as usize],
        };
        let number = &mut self.numbers[usize::from(side)][flow as usize];
        *number += 1;
        (flow, length, *number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_wire::layers;

    #[test]
    fn frame_is_a_datagram_between_its_flow_s_ends_in_either_direction() {
        let pages = Pages::new();
        for length in [60, 1514] {
            for side in [0, 1] {
                let mut frame = vec![0; length];
                write(&mut frame, 7, side, 3, &pages);
                let layers = layers::parse(&frame).unwrap();
                assert_eq!(length, usize::from(layers.end));
                let [client, server] = ends(7).map(|(_, port)| port);
                let expected = if side == 0 { (client, server) } else { (server, client) };
                assert_eq!(expected, (layers.source_port, layers.destination_port));
                assert_eq!(Some((7, 3)), read(&frame));
            }
        }
    }

    #[test]
    fn flows_have_ends_of_their_own() {
        let mut all: Vec<_> = (0..FLOWS).map(ends).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(FLOWS as usize, all.len());
    }
}
