//! Frames of any size, all of whose bytes are written.

use sluice_wire::checksum;

use crate::nat_path::flows::{HEADERS, Written, headers};
use crate::nat_path::wire::Wire;

/// Bytes of the check sequence, which count in a frame's size and are not in memory.
pub const CHECK_SEQUENCE: usize = 4;

/// Bytes at the end of a frame that tell it from others: a time in 48 bits, or a flow's number in the last 32.
pub const TAIL: usize = 6;

/// What frames of one size hold between their headers and their tails.
#[derive(Clone, Debug)]
pub struct Filling {
    bytes: Box<[u8]>,
    sum: u16,
}

impl Filling {
    /// For frames of `size` bytes, check sequence counted: an even number from 64 on.
    pub fn new(size: usize) -> Self {
        let length = size - CHECK_SEQUENCE - TAIL - HEADERS;
        let bytes: Box<[u8]> = (0..length).map(|at| at as u8).collect();
        let sum = checksum::sum(&bytes);
        Self { bytes, sum }
    }

    /// Length of the frames, without check sequence.
    pub fn length(&self) -> usize {
        HEADERS + self.bytes.len() + TAIL
    }

    /// What is behind a transport header of so many bytes, in a frame with this tail.
    pub fn payload(&self, tail: u64, transport: usize) -> Vec<u8> {
        // The longest headers are those of TCP, 20 bytes.
        let zeros = vec![0; 20 - transport];
        [&zeros, &*self.bytes, &tail.to_be_bytes()[2..]].concat()
    }
}

/// A frame to be written.
#[derive(Clone, Copy, Debug)]
pub struct Filled<'f> {
    /// Its headers.
    pub written: Written,
    /// Its tail, of which 48 bits are written.
    pub tail: u64,
    /// What is between them.
    pub filling: &'f Filling,
    /// The buffer holds that already.
    pub kept: bool,
}

impl Wire for Filled<'_> {
    const FAMILY: u32 = 4;
    const LENGTH: usize = HEADERS + TAIL;
    const SOURCE: usize = 26;
    const SOURCE_PORT: usize = 34;

    #[inline(always)]
    fn length(&self) -> usize {
        self.filling.length()
    }

    #[inline(always)]
    fn write(&self, frame: &mut [u8]) {
        let length = frame.len();
        let Some((head, rest)) = frame.split_first_chunk_mut() else {
            return;
        };
        let Some((body, tail)) = rest.split_last_chunk_mut::<TAIL>() else {
            return;
        };
        if !self.kept {
            body.copy_from_slice(&self.filling.bytes);
        }
        tail.copy_from_slice(&self.tail.to_be_bytes()[8 - TAIL..]);
        let sum = checksum::add(self.filling.sum, checksum::sum(tail));
        headers(head, &self.written, length, sum);
    }
}

/// A frame of which headers and tail alone are written: between them is what the buffer held before. Its transport
/// checksum is that of other data, so that it has to be vouched for.
#[derive(Clone, Copy, Debug)]
pub struct Stamped<'f> {
    /// Its headers.
    pub head: &'f [u8; HEADERS],
    /// Its tail, of which 48 bits are written.
    pub tail: u64,
    /// Its length, without check sequence.
    pub length: usize,
}

impl Wire for Stamped<'_> {
    const FAMILY: u32 = 4;
    const LENGTH: usize = HEADERS + TAIL;
    const SOURCE: usize = 26;
    const SOURCE_PORT: usize = 34;

    #[inline(always)]
    fn length(&self) -> usize {
        self.length
    }

    #[inline(always)]
    fn write(&self, frame: &mut [u8]) {
        if let Some(head) = frame.first_chunk_mut() {
            *head = *self.head;
        }
        if let Some(tail) = frame.last_chunk_mut::<TAIL>() {
            tail.copy_from_slice(&self.tail.to_be_bytes()[8 - TAIL..]);
        }
    }
}

/// The tail of a frame.
#[inline(always)]
pub fn tail(frame: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    if let Some(tail) = frame.last_chunk::<TAIL>() {
        bytes[8 - TAIL..].copy_from_slice(tail);
    }
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nat_path::flows::{Hosts, data};
    use etherparse::{Ipv4HeaderSlice, TcpHeaderSlice, UdpHeaderSlice};

    #[test]
    fn frame_of_any_size_has_right_lengths_and_checksums() {
        for size in super::super::SIZES {
            let filling = Filling::new(size);
            for number in [0, 1, 7_998, 7_999] {
                let written = data(Hosts::Sixteen, number, None);
                let filled = Filled {
                    written,
                    tail: 0x1234_5678_9abc_def0,
                    filling: &filling,
                    kept: false,
                };
                assert_eq!(size - 4, filled.length());
                let mut frame = vec![0xff; filled.length()];
                filled.write(&mut frame);
                assert_eq!(0x5678_9abc_def0, tail(&frame));
                let ip = Ipv4HeaderSlice::from_slice(&frame[14..])
                    .expect("an IPv4 header")
                    .to_header();
                assert_eq!(ip.calc_header_checksum(), ip.header_checksum, "{size} bytes");
                assert_eq!(size - 18, usize::from(ip.total_len));
                let (told, right) = match written.tcp {
                    true => {
                        let tcp = TcpHeaderSlice::from_slice(&frame[34..]).expect("a TCP header");
                        let tcp = tcp.to_header();
                        (tcp.checksum, tcp.calc_checksum_ipv4(&ip, &frame[54..]))
                    }
                    false => {
                        let udp = UdpHeaderSlice::from_slice(&frame[34..]).expect("a UDP header");
                        let udp = udp.to_header();
                        assert_eq!(size - 38, usize::from(udp.length));
                        (udp.checksum, udp.calc_checksum_ipv4(&ip, &frame[42..]))
                    }
                };
                assert_eq!(Ok(told), right, "flow {number} of {size} bytes");
                let transport = if written.tcp { 20 } else { 8 };
                assert_eq!(frame[34 + transport..], filling.payload(filled.tail, transport));
            }
        }
    }

    #[test]
    fn stamped_frame_has_new_headers_and_tail_around_what_was_there() {
        let filling = Filling::new(128);
        let filled = |number, tail| Filled {
            written: data(Hosts::Sixteen, number, None),
            tail,
            filling: &filling,
            kept: false,
        };
        let [mut before, mut expected] = [[0; 124], [0; 124]];
        filled(0, 0).write(&mut before);
        filled(2, 7).write(&mut expected);
        let mut frame = before;
        let stamped = Stamped {
            head: expected.first_chunk().expect("headers"),
            tail: 7,
            length: filling.length(),
        };
        stamped.write(&mut frame);
        assert_eq!((124, expected), (stamped.length(), frame));
        let kept = Filled {
            kept: true,
            ..filled(2, 7)
        };
        let mut frame = before;
        kept.write(&mut frame);
        assert_eq!(expected, frame);
    }

    #[test]
    fn frame_of_64_bytes_is_that_of_the_other_benches() {
        let filling = Filling::new(64);
        for number in [0, 1, 4_711] {
            let written = data(Hosts::Sixteen, number, None);
            let (mut expected, mut frame) = ([0xff; 60], [0xee; 60]);
            written.write(&mut expected);
            let filled = Filled {
                written,
                tail: number.into(),
                filling: &filling,
                kept: false,
            };
            filled.write(&mut frame);
            assert_eq!(expected, frame);
        }
    }
}
