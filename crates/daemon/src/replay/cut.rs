//! Frames that the capture's snap length has truncated.

use sluice_engine::features::inspection::classification;
use sluice_wire::ethernet;
use sluice_wire::ipv4::protocol;
use sluice_wire::layers::{Class, Fragment, parse};

use super::captures::Captured;

/// Length of a TCP header without options.
const TCP: usize = 20;

/// Restores a truncated frame to its original length by adding zeros. `None` if a header is incomplete. Without a
/// complete header, the transport checksum can't be verified.
pub fn filled(frame: &Captured) -> Option<Vec<u8>> {
    let captured = frame.bytes.len();
    if captured < ethernet::LENGTH {
        return None;
    }
    let mut bytes = frame.bytes.clone();
    bytes.resize(frame.length as usize, 0);
    let layers = parse(&bytes).ok()?;
    let start = usize::from(layers.l4);
    let is_ip = matches!(layers.class, Class::Ipv4 | Class::Ipv6);
    let headers = match layers.fragment {
        Fragment::Later => start,
        _ if !is_ip => start,
        _ => {
            let segment = bytes.get(start..).unwrap_or_default();
            let min_header = if layers.protocol == protocol::TCP { TCP } else { 0 };
            start + classification::payload(layers.protocol, segment).max(min_header)
        }
    };
    (headers <= captured).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use sluice_testkit::packet;

    use super::*;

    fn cut(frame: &[u8], at: usize) -> Option<Vec<u8>> {
        filled(&Captured {
            bytes: frame[..at].to_vec(),
            length: frame.len() as u32,
            ..Captured::default()
        })
    }

    #[test]
    fn cut_frame_is_filled_where_all_of_its_headers_are_there() {
        let datagram = packet::udp4("10.0.0.2:5000", "192.0.2.1:53").payload(&[7; 100]).build();
        let segment = packet::tcp4("10.0.0.2:5000", "192.0.2.1:80").payload(&[7; 100]).build();
        for (frame, headers) in [(datagram, 42), (segment, 54)] {
            for at in [0, 13, 20, headers - 1] {
                assert_eq!(None, cut(&frame, at), "{at} of {headers}");
            }
            for at in [headers, headers + 1, headers + 50] {
                let mut expected = frame.clone();
                expected[at..].fill(0);
                assert_eq!(Some(expected), cut(&frame, at));
            }
        }
    }
}
