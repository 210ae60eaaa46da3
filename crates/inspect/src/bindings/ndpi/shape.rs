//! Selects the packets that are passed to nDPI. Once nDPI has identified TLS over TCP in a flow, it reads a TCP header
//! in every packet of the flow without checking that the packet is TCP.

/// IP version and transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape(u8, u8);

/// For a packet that is complete and contains all of its headers, returns the IP version, the transport protocol, and
/// the packet without trailing bytes. Returns `None` for every other packet, including fragments other than the first.
pub fn shape(packet: &[u8]) -> Option<(Shape, &[u8])> {
    let (protocol, packet, transport) = match packet.first()? >> 4 {
        4 => version4(packet)?,
        6 => version6(packet)?,
        _ => return None,
    };
    let fits = match protocol {
        6 => {
            let header = usize::from(*transport.get(12)? >> 4) * 4;
            transport.len() >= 20 && (20..=transport.len()).contains(&header)
        }
        1 | 17 | 58 => transport.len() >= 8,
        _ => true,
    };
    fits.then_some((Shape(packet[0] >> 4, protocol), packet))
}

fn version4(packet: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let head = packet.first_chunk::<20>()?;
    let header = usize::from(head[0] & 15) * 4;
    let packet = packet.get(..usize::from(u16::from_be_bytes([head[2], head[3]])))?;
    let first = u16::from_be_bytes([head[6], head[7]]) & 0x1fff == 0;
    (header >= 20 && first).then_some((head[9], packet, packet.get(header..)?))
}

fn version6(packet: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let head = packet.first_chunk::<40>()?;
    let packet = packet.get(..40 + usize::from(u16::from_be_bytes([head[4], head[5]])))?;
    // nDPI stores lengths in 16 bits.
    (packet.len() <= usize::from(u16::MAX)).then_some(())?;
    let (mut next, mut rest) = (head[6], &packet[40..]);
    loop {
        let length = match next {
            0 | 43 | 60 | 135 => 8 + usize::from(*rest.get(1)?) * 8,
            44 if u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]) >> 3 == 0 => 8,
            44 | 59 => return None,
            _ => return Some((next, packet, rest)),
        };
        (next, rest) = (*rest.first()?, rest.get(length..)?);
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    fn built(tcp: bool, version: u8) -> Vec<u8> {
        let mut packet = Vec::new();
        let ip = match version {
            4 => PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
            _ => PacketBuilder::ipv6([1; 16], [2; 16], 64),
        };
        match tcp {
            true => ip.tcp(1, 2, 3, 4).write(&mut packet, b"payload").unwrap(),
            false => ip.udp(1, 2).write(&mut packet, b"payload").unwrap(),
        }
        packet
    }

    #[test]
    fn packet_with_padding_is_shown_without_it() {
        for (tcp, version, protocol) in [(true, 4, 6), (false, 4, 17), (true, 6, 6), (false, 6, 17)] {
            let packet = built(tcp, version);
            let padded = [&packet[..], &[0; 9]].concat();
            assert_eq!(Some((Shape(version, protocol), &packet[..])), shape(&padded));
        }
    }

    #[test]
    fn packet_cut_anywhere_is_not_shown() {
        for (tcp, version) in [(true, 4), (false, 4), (true, 6), (false, 6)] {
            let packet = built(tcp, version);
            assert!((0..packet.len()).all(|length| shape(&packet[..length]).is_none()));
        }
    }

    #[test]
    fn packet_whose_headers_lie_is_not_shown() {
        let changed = |version: u8, place: usize, value: u8| {
            let mut packet = built(true, version);
            packet[place] = value;
            shape(&packet).is_some()
        };
        // The cases are header lengths that are too small or too large, a total length that ends within the headers,
        // and a later fragment.
        let places = [
            (4, 0, 0x44),
            (4, 0, 0x4f),
            (4, 3, 39),
            (4, 7, 1),
            (4, 32, 0x40),
            (4, 32, 0xf0),
            (6, 52, 0x40),
        ];
        for (version, place, value) in places {
            assert!(!changed(version, place, value), "{version} {place} {value}");
        }
        // The first case has no next header; in the second case, an extension header is longer than the packet.
        assert!(!changed(6, 6, 59) && !changed(6, 6, 43));
    }

    #[test]
    fn packet_behind_extension_headers_is_of_its_transport() {
        let udp = built(false, 6);
        let mut packet = udp.clone();
        packet[6] = 0;
        packet[5] += 16;
        let first_fragment = [17, 0, 0, 1, 0, 0, 0, 9];
        packet.splice(40..40, [[44, 0, 1, 4, 0, 0, 0, 0], first_fragment].concat());
        assert_eq!(Some(Shape(6, 17)), shape(&packet).map(|(shape, _)| shape));
        packet[50] = 1;
        assert_eq!(None, shape(&packet));
    }
}
