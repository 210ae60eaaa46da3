//! Splits TCP packets that the kernel's GRO has joined, so that the frames resemble the frames on the wire.

use sluice_wire::checksum;
use sluice_wire::layers::{Class, Fragment, Layers, parse};

/// Flags that only the last segment has: FIN and PSH.
const OF_THE_LAST: u8 = 0x09;

/// Length of an IPv6 header. The payload length field does not count the header.
const IPV6: usize = 40;

/// Split a frame into TCP segments with IP packets of at most `mtu` bytes and correct checksums. `None` if the frame is
/// not a TCP segment that can be split.
pub fn cut(frame: &[u8], mtu: usize) -> Option<Vec<Vec<u8>>> {
    let layers = parse(frame).ok()?;
    if layers.protocol != 6 || layers.fragment != Fragment::Whole {
        return None;
    }
    let (l3, l4) = (usize::from(layers.l3), usize::from(layers.l4));
    // A TCP header length of less than 20 bytes is invalid.
    let head = Some(usize::from(frame.get(l4 + 12)? >> 4) * 4).filter(|head| *head >= 20)?;
    let data = l4 + head;
    let capacity = mtu.checked_sub(data - l3).filter(|capacity| *capacity > 0)?;
    let head = frame.get(..data)?;
    let payload = frame.get(data..usize::from(layers.end))?;
    let count = payload.len().div_ceil(capacity);
    let pieces = payload.chunks(capacity).enumerate();
    let pieces = pieces.map(|(number, piece)| {
        let mut segment = [head, piece].concat();
        header(&mut segment, &layers, number as u16);
        let sequence = read(frame, l4 + 4).wrapping_add((number * capacity) as u32);
        segment[l4 + 4..l4 + 8].copy_from_slice(&sequence.to_be_bytes());
        if number + 1 < count {
            segment[l4 + 13] &= !OF_THE_LAST;
        }
        segment[l4 + 16..l4 + 18].fill(0);
        let length = (segment.len() - l4) as u16;
        let pseudo = match layers.class {
            Class::Ipv4 => checksum::pseudo4(read(&segment, l3 + 12), read(&segment, l3 + 16), 6, length),
            _ => checksum::pseudo6(address6(&segment, l3 + 8), address6(&segment, l3 + 24), 6, length),
        };
        let sum = !checksum::add(checksum::sum(&segment[l4..]), pseudo);
        segment[l4 + 16..l4 + 18].copy_from_slice(&sum.to_be_bytes());
        segment
    });
    Some(pieces.collect())
}

/// Update length, identification and checksum of the IP header.
fn header(segment: &mut [u8], layers: &Layers, number: u16) {
    let (l3, l4) = (usize::from(layers.l3), usize::from(layers.l4));
    let length = segment.len() - l3;
    if layers.class != Class::Ipv4 {
        segment[l3 + 4..l3 + 6].copy_from_slice(&((length - IPV6) as u16).to_be_bytes());
        return;
    }
    let identification = u16::from_be_bytes([segment[l3 + 4], segment[l3 + 5]]).wrapping_add(number);
    segment[l3 + 2..l3 + 4].copy_from_slice(&(length as u16).to_be_bytes());
    segment[l3 + 4..l3 + 6].copy_from_slice(&identification.to_be_bytes());
    segment[l3 + 10..l3 + 12].fill(0);
    let sum = checksum::checksum(&segment[l3..l4]);
    segment[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
}

fn read(frame: &[u8], at: usize) -> u32 {
    let bytes = frame.get(at..).and_then(|tail| tail.first_chunk());
    bytes.copied().map_or(0, u32::from_be_bytes)
}

fn address6(frame: &[u8], at: usize) -> u128 {
    let bytes = frame.get(at..).and_then(|tail| tail.first_chunk());
    bytes.copied().map_or(0, u128::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use sluice_testkit::packet;

    use super::*;

    #[test]
    fn segments_cut_are_as_an_independent_builder_makes_them() {
        let data: Vec<u8> = (0..3000u32).map(|k| (k % 251) as u8).collect();
        let built = |payload: &[u8], sequence, flags| {
            let v6 = packet::tcp6("[2001:db8::1]:5000", "[2001:db8::2]:443");
            v6.payload(payload).flags(flags).numbers(sequence, 7).build()
        };
        let capacity = 1500 - 60;
        let expected = vec![
            built(&data[..capacity], 100, 0x10),
            built(&data[capacity..2 * capacity], 100 + capacity as u32, 0x10),
            built(&data[2 * capacity..], 100 + 2 * capacity as u32, 0x19),
        ];
        assert_eq!(Some(expected), cut(&built(&data, 100, 0x19), 1500));
        let v4 = |payload: &[u8], sequence| {
            let v4 = packet::tcp4("10.0.0.2:5000", "192.0.2.1:443");
            v4.payload(payload).flags(0x10).numbers(sequence, 7).build()
        };
        let found = cut(&v4(&data, 5), 1500).unwrap();
        // The packet builder uses the same identification for all packets.
        assert_eq!(v4(&data[..1460], 5), found[0]);
        assert_eq!(3, found.len());
        assert!(found.iter().all(|frame| checksum::checksum(&frame[14..34]) == 0));
    }

    #[test]
    fn frame_that_no_segments_make_is_left() {
        assert_eq!(
            None,
            cut(
                &packet::udp4("10.0.0.2:1", "192.0.2.1:2").payload(&[7; 3000]).build(),
                1500
            )
        );
        assert_eq!(None, cut(&[7; 3000], 1500));
        let short = packet::tcp4("10.0.0.2:1", "192.0.2.1:2").build();
        assert_eq!(None, cut(&short[..40], 1500));
        for length in 0..short.len() {
            cut(&short[..length], 30);
        }
        for offset in 0..=0xff {
            let mut wrong = packet::tcp4("10.0.0.2:1", "192.0.2.1:2").payload(&[7; 30]).build();
            wrong[14 + 20 + 12] = offset;
            cut(&wrong, 50);
        }
    }
}
