//! What a source sends: flows drawn anew for each packet, some of them more often than others, or new ones.

use std::sync::Arc;

use sluice_wire::tcp::flag;
use sluice_wire::{Checksums, Packet, checksum};

use crate::homes::{Homes, TAGS, put_tags};
use crate::nat_path::flows::{FRAME, Hosts, Random, Written, data, write};
use crate::nat_path::{Direction, Publics};

/// Flows that are established.
pub const FLOWS: u32 = 8_000;
/// Flows, beside those, that are opened in turn.
pub const FRESH: u32 = 65_536;

/// Which flows have more packets than others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Skew {
    /// None.
    Even,
    /// One flow has this share of all packets.
    Flow(f64),
    /// One shard's flows together have it.
    Shard(f64),
}

impl Skew {
    /// The share of the busiest shard, where it is not that of all others.
    pub fn busiest(self) -> Option<f64> {
        match self {
            Self::Even => None,
            Self::Flow(share) | Self::Shard(share) => Some(share),
        }
    }
}

/// Which packets open sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opens {
    /// None.
    None,
    /// One in so many from inside.
    OneIn(u32),
    /// Every one from outside: another remote end writes to a mapped port.
    FromOutside,
}

/// Bytes of frames without check sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All have so many.
    One(usize),
    /// How many of a hundred packets have so many.
    Mix(&'static [(usize, u32)]),
}

impl Sizes {
    /// Bytes of frames, each as often as a hundred packets have them.
    pub fn lengths(self) -> Vec<usize> {
        match self {
            Self::One(length) => vec![length],
            Self::Mix(sizes) => {
                let each = sizes.iter().map(|&(length, count)| vec![length; count as usize]);
                each.collect::<Vec<_>>().concat()
            }
        }
    }
}

/// The shortest frames.
pub const SHORT: Sizes = Sizes::One(FRAME);
/// The longest.
pub const LONG: Sizes = Sizes::One(1514);
/// What a French carrier's customers sent and received, by classes of up to 64, 128, 576, 1,280 bytes and above.
pub const SFR: Sizes = Sizes::Mix(&[(60, 20), (90, 28), (350, 16), (900, 9), (1514, 27)]);
/// Packets from inside of one of their sessions.
pub const SFR_SESSION: u32 = 26;

/// The traffic of a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// From where.
    pub direction: Direction,
    /// Sizes of frames.
    pub sizes: Sizes,
    /// Whether a card vouches for checksums.
    pub checksums: Checksums,
    /// Busy flows.
    pub skew: Skew,
    /// New sessions.
    pub opens: Opens,
}

/// What one source draws from.
#[derive(Clone, Debug)]
pub struct Draw {
    /// The traffic.
    pub traffic: Traffic,
    /// Established flows that it sends.
    pub flows: Vec<u32>,
    /// Those with more packets than others.
    pub hot: Vec<u32>,
    /// How many of 2^32 packets are of these.
    pub share: u64,
    /// Flows that it opens, in turn.
    pub fresh: Vec<u32>,
    /// Outside addresses and ports of established flows.
    pub publics: Arc<Publics>,
    /// Draws the flows.
    pub random: Random,
    /// Packets that it has drawn which may open a session.
    pub drawn: u32,
    /// Bytes of frames, each as often as it shall be.
    pub lengths: Vec<usize>,
    /// Sites that the flows are of.
    pub homes: Option<Homes>,
}

impl Draw {
    /// Whether there is anything to send.
    pub fn is_empty(&self) -> bool {
        match self.traffic.opens {
            Opens::OneIn(1) => self.fresh.is_empty(),
            _ => self.flows.is_empty() && self.hot.is_empty(),
        }
    }

    /// Write the next packet by a port.
    #[inline(always)]
    pub fn write(&mut self, port: u16, packet: &mut Packet<'_>) {
        let (written, length) = self.next(port);
        packet.set_checksums(self.traffic.checksums);
        put_frame(packet, &written, length, self.homes.map(|homes| (homes, port == 0)));
    }

    /// The next packet by a port, and its length.
    #[inline(always)]
    fn next(&mut self, port: u16) -> (Written, usize) {
        let length = match self.lengths.len() {
            1 => self.lengths[0],
            count => self.lengths[self.random.below(count as u64) as usize],
        };
        if let Opens::OneIn(many) = self.traffic.opens
            && port == 0
        {
            self.drawn = self.drawn.wrapping_add(1);
            if self.drawn.is_multiple_of(many) {
                let number = self.fresh[(self.drawn / many) as usize % self.fresh.len()];
                return (opening(number), length);
            }
        }
        let of = match self.share > 0 && u64::from(self.random.below(1 << 32)) < self.share || self.flows.is_empty() {
            true => &self.hot,
            false => &self.flows,
        };
        let number = of[self.random.below(of.len() as u64) as usize];
        let public = (port == 1).then(|| self.publics[number as usize]);
        let mut written = data(self.homes.map_or(Hosts::Sixteen, Homes::hosts), number, public);
        if self.traffic.opens == Opens::FromOutside {
            // Ends that no flow was opened to.
            self.drawn = self.drawn.wrapping_add(1);
            let end = self.drawn % (FRESH * 4);
            written.source = (0x0909_0000 + (end >> 8), 1024 + (end & 0xff) as u16);
            (written.flags, written.numbers) = (flag::SYN, (1, 0));
        }
        (written, length)
    }
}

/// The first packet of a flow.
pub fn opening(number: u32) -> Written {
    Written {
        flags: flag::SYN,
        numbers: (1, 0),
        ..data(Hosts::Sixteen, number, None)
    }
}

/// Make a packet a frame of a length, or that of a site: then whether it comes from inside, in tags.
#[inline(always)]
pub fn put_frame(packet: &mut Packet<'_>, written: &Written, length: usize, homes: Option<(Homes, bool)>) {
    let Some((homes, from_inside)) = homes else {
        packet.set_len(length);
        return write_frame(packet.bytes_mut(), written);
    };
    let written = homes.address(*written, from_inside);
    let room = if from_inside { TAGS } else { 0 };
    packet.set_len(length + room);
    let frame = packet.bytes_mut();
    if let Some((_, rest)) = frame.split_at_mut_checked(room) {
        write_frame(rest, &written);
    }
    if from_inside {
        put_tags(frame, homes.tags(written.mark));
    }
}

/// Write a frame of any length from the shortest on, its number in the last four bytes.
#[inline(always)]
pub fn write_frame(frame: &mut [u8], written: &Written) {
    let Some(head) = frame.first_chunk_mut() else { return };
    write(head, written);
    if frame.len() > FRAME {
        stretch(frame, written);
    }
}

fn stretch(frame: &mut [u8], written: &Written) {
    let length = frame.len();
    let payload = if written.tcp { 54 } else { 42 };
    frame[payload..length - 4].fill(0);
    frame[length - 4..].copy_from_slice(&written.mark.to_be_bytes());
    frame[16..18].copy_from_slice(&(length as u16 - 14).to_be_bytes());
    frame[24..26].fill(0);
    let sum = checksum::checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    let (protocol, at) = if written.tcp { (6, 50) } else { (17, 40) };
    let transport = length as u16 - 34;
    if !written.tcp {
        frame[38..40].copy_from_slice(&transport.to_be_bytes());
    }
    frame[at..at + 2].fill(0);
    let pseudo = checksum::pseudo4(written.source.0, written.destination.0, protocol, transport);
    // Between them is nothing but zeros.
    let ends = checksum::add(checksum::sum(&frame[34..payload]), checksum::sum(&frame[length - 4..]));
    let sum = match !checksum::add(ends, pseudo) {
        0 if !written.tcp => 0xffff,
        sum => sum,
    };
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_any_length_have_right_checksums() {
        for length in [60, 90, 350, 1514] {
            for number in 0..4 {
                let mut frame = vec![0xee; length];
                let written = opening(number);
                write_frame(&mut frame, &written);
                assert_eq!(0, checksum::checksum(&frame[14..34]));
                let protocol = if written.tcp { 6 } else { 17 };
                let transport = length as u16 - 34;
                let pseudo = checksum::pseudo4(written.source.0, written.destination.0, protocol, transport);
                assert_eq!(
                    0xffff,
                    checksum::add(checksum::sum(&frame[34..]), pseudo),
                    "{length} {number}"
                );
                assert_eq!(number.to_be_bytes(), frame[length - 4..]);
            }
        }
    }
}
