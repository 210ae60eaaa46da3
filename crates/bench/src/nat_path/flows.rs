//! The flows: drawn anew for each packet, uniformly, and written into its buffer.

use sluice_wire::checksum;
use sluice_wire::tcp::flag;

/// Length of the frames, without check sequence: 64 bytes on the wire.
pub const FRAME: usize = 60;
/// Where the flow's number is written into the payload: the last four bytes.
pub const MARK: usize = FRAME - 4;

/// Gateway's and neighbours' MAC addresses.
pub const INSIDE_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
/// The outside interface's.
pub const OUTSIDE_MAC: [u8; 6] = [2, 0, 0, 0, 2, 1];
/// All inside hosts', behind one router.
pub const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 1, 254];
/// The outside router's.
pub const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 2, 254];

/// A generator of random numbers, as the probe's.
#[derive(Clone, Copy, Debug)]
pub struct Random(pub u64);

impl Random {
    /// A number below `count`.
    #[inline(always)]
    pub fn below(&mut self, count: u64) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * count) >> 32) as u32
    }
}

/// Addresses and ports of a flow's first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Inside address and port.
    pub inside: (u32, u16),
    /// Remote address and port.
    pub remote: (u32, u16),
    /// TCP; otherwise UDP.
    pub tcp: bool,
}

/// Which inside hosts the flows are of.
#[derive(Clone, Copy, Debug)]
pub enum Hosts {
    /// Sixteen flows of each, one after the other.
    Sixteen,
    /// So many hosts in turn.
    InTurn(u32),
}

/// Flow `number`: half of them are TCP.
#[inline(always)]
pub fn ends(hosts: Hosts, number: u32) -> Ends {
    let remote = 0x0808_0000u32.wrapping_add(number.wrapping_mul(2_654_435_761) >> 12);
    let (host, port) = match hosts {
        Hosts::Sixteen => (number >> 4, 1024 + (number & 15) as u16 * 16),
        Hosts::InTurn(count) => (number % count, 1024 + (number / count) as u16),
    };
    Ends {
        inside: (0x0a00_0000 | host, port),
        remote: (remote, 443),
        tcp: match hosts {
            Hosts::Sixteen => number & 1 == 0,
            Hosts::InTurn(_) => (host ^ u32::from(port)) & 1 == 0,
        },
    }
}

/// What to write: from whom to whom, and how.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// Source address and port.
    pub source: (u32, u16),
    /// Destination address and port.
    pub destination: (u32, u16),
    /// TCP; otherwise UDP.
    pub tcp: bool,
    /// TCP flags.
    pub flags: u8,
    /// Sequence and acknowledgment number.
    pub numbers: (u32, u32),
    /// Ethernet addresses: destination, source.
    pub macs: ([u8; 6], [u8; 6]),
    /// Number of the flow.
    pub mark: u32,
}

/// Write a frame of 60 bytes with right checksums.
#[inline(always)]
pub fn write(frame: &mut [u8; FRAME], w: &Written) {
    frame[..6].copy_from_slice(&w.macs.0);
    frame[6..12].copy_from_slice(&w.macs.1);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    let protocol = if w.tcp { 6 } else { 17 };
    frame[14..26].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
    frame[26..30].copy_from_slice(&w.source.0.to_be_bytes());
    frame[30..34].copy_from_slice(&w.destination.0.to_be_bytes());
    let sum = checksum::checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame[34..36].copy_from_slice(&w.source.1.to_be_bytes());
    frame[36..38].copy_from_slice(&w.destination.1.to_be_bytes());
    frame[38..MARK].fill(0);
    frame[MARK..].copy_from_slice(&w.mark.to_be_bytes());
    let at = if w.tcp {
        frame[38..42].copy_from_slice(&w.numbers.0.to_be_bytes());
        frame[42..46].copy_from_slice(&w.numbers.1.to_be_bytes());
        frame[46..50].copy_from_slice(&[0x50, w.flags, 0x20, 0]);
        50
    } else {
        frame[38..40].copy_from_slice(&26u16.to_be_bytes());
        40
    };
    let pseudo = checksum::pseudo4(w.source.0, w.destination.0, protocol, 26);
    let sum = match !checksum::add(checksum::sum(&frame[34..]), pseudo) {
        0 if !w.tcp => 0xffff,
        sum => sum,
    };
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Data of flow `number`, going out, or coming back to the public address and port.
#[inline(always)]
pub fn data(hosts: Hosts, number: u32, public: Option<(u32, u16)>) -> Written {
    let e = ends(hosts, number);
    match public {
        None => Written {
            source: e.inside,
            destination: e.remote,
            tcp: e.tcp,
            flags: flag::ACK,
            numbers: (2, 2),
            macs: (INSIDE_MAC, HOST_MAC),
            mark: number,
        },
        Some(public) => Written {
            source: e.remote,
            destination: public,
            tcp: e.tcp,
            flags: flag::ACK,
            numbers: (2, 2),
            macs: (OUTSIDE_MAC, ROUTER_MAC),
            mark: number,
        },
    }
}
