//! The same flows over IPv6: the numbers of [`Written`] are the last 32 bits of the addresses.

use sluice_wire::checksum;

use super::flows::{INSIDE_MAC, Written};
use super::wire::Wire;

/// First half of all inside hosts' addresses.
pub const INSIDE: u64 = 0x2001_0db8_0001_0000;
/// First half of all remote hosts' addresses.
pub const REMOTE: u64 = 0x2001_0db8_0002_0000;
/// First half of the public addresses.
pub const PUBLIC: u64 = 0x2001_0db8_0003_0000;

/// Length of the frames: a TCP header and the mark.
const FRAME: usize = 78;
/// Bytes behind the IPv6 header.
const PAYLOAD: u16 = 24;

/// What to write, over IPv6.
#[derive(Clone, Copy, Debug)]
pub struct Written6(Written);

impl From<Written> for Written6 {
    fn from(written: Written) -> Self {
        Self(written)
    }
}

/// An address of its half and number.
pub fn address(half: u64, number: u32) -> [u8; 16] {
    (u128::from(half) << 64 | u128::from(number)).to_be_bytes()
}

impl Wire for Written6 {
    const FAMILY: u32 = 6;
    const LENGTH: usize = FRAME;
    const SOURCE: usize = 34;
    const SOURCE_PORT: usize = 54;

    #[inline(always)]
    fn write(&self, frame: &mut [u8]) {
        let Some(frame) = frame.first_chunk_mut::<FRAME>() else {
            return;
        };
        let w = &self.0;
        let up = w.macs.0 == INSIDE_MAC;
        let (from, to) = if up { (INSIDE, REMOTE) } else { (REMOTE, PUBLIC) };
        frame[..6].copy_from_slice(&w.macs.0);
        frame[6..12].copy_from_slice(&w.macs.1);
        let protocol = if w.tcp { 6 } else { 17 };
        frame[12..22].copy_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, PAYLOAD as u8, protocol, 64]);
        frame[22..38].copy_from_slice(&address(from, w.source.0));
        frame[38..54].copy_from_slice(&address(to, w.destination.0));
        frame[54..56].copy_from_slice(&w.source.1.to_be_bytes());
        frame[56..58].copy_from_slice(&w.destination.1.to_be_bytes());
        frame[58..74].fill(0);
        frame[74..].copy_from_slice(&w.mark.to_be_bytes());
        let at = if w.tcp {
            frame[58..62].copy_from_slice(&w.numbers.0.to_be_bytes());
            frame[62..66].copy_from_slice(&w.numbers.1.to_be_bytes());
            frame[66..70].copy_from_slice(&[0x50, w.flags, 0x20, 0]);
            70
        } else {
            frame[58..60].copy_from_slice(&PAYLOAD.to_be_bytes());
            60
        };
        // The pseudo-header: addresses, length, protocol.
        let pseudo = checksum::add(checksum::sum(&frame[22..54]), PAYLOAD + u16::from(protocol));
        let sum = match !checksum::add(checksum::sum(&frame[54..]), pseudo) {
            0 if !w.tcp => 0xffff,
            sum => sum,
        };
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}
