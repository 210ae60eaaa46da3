use super::*;
use etherparse::{Ipv4HeaderSlice, TcpHeaderSlice, UdpHeaderSlice};

fn bytes(frame: impl Frame) -> Vec<u8> {
    let mut bytes = vec![0xee; frame.length()];
    frame.write(&mut bytes);
    bytes
}

#[test]
fn frame_of_any_size_has_right_lengths_and_checksums() {
    for size in [64, 65, 90, 128, 1518] {
        let filling = Filling::new(size);
        for number in [0, 1, 7_998, 7_999] {
            let written = data(Hosts::Sixteen, number, None);
            let filled = Filled {
                tail: 0x1234_5678_9abc_def0,
                ..Filled::new(written, &filling)
            };
            let frame = bytes(filled);
            assert_eq!((size - 4, 0x5678_9abc_def0), (frame.len(), tail(&frame)));
            let ip = Ipv4HeaderSlice::from_slice(&frame[14..])
                .expect("an IPv4 header")
                .to_header();
            assert_eq!(
                (ip.calc_header_checksum(), size - 18),
                (ip.header_checksum, ip.total_len.into())
            );
            let (read, right) = match written.tcp {
                true => {
                    let tcp = TcpHeaderSlice::from_slice(&frame[34..])
                        .expect("a TCP header")
                        .to_header();
                    (tcp.checksum, tcp.calc_checksum_ipv4(&ip, &frame[54..]))
                }
                false => {
                    let udp = UdpHeaderSlice::from_slice(&frame[34..])
                        .expect("a UDP header")
                        .to_header();
                    assert_eq!(size - 38, usize::from(udp.length));
                    (udp.checksum, udp.calc_checksum_ipv4(&ip, &frame[42..]))
                }
            };
            assert_eq!(Ok(read), right, "flow {number} of {size} bytes");
            let transport = if written.tcp { 20 } else { 8 };
            assert_eq!(frame[34 + transport..], filling.payload(filled.tail, transport));
        }
    }
}

#[test]
fn frame_is_the_same_whichever_way_it_is_written() {
    let filling = Filling::new(64);
    let written = data(Hosts::Sixteen, 4_711, None);
    assert_eq!(bytes(written), bytes(Filled::new(written, &filling)));
    let filling = Filling::new(128);
    let filled = |number, tail| Filled {
        tail,
        ..Filled::new(data(Hosts::Sixteen, number, None), &filling)
    };
    let (before, expected) = (bytes(filled(0, 0)), bytes(filled(2, 7)));
    let head = expected.first_chunk().expect("headers");
    let mut stamped = before.clone();
    Stamped {
        head,
        tail: 7,
        length: 124,
    }
    .write(&mut stamped);
    let mut kept = before;
    Filled {
        kept: true,
        ..filled(2, 7)
    }
    .write(&mut kept);
    assert_eq!((&expected, &expected), (&stamped, &kept));
}

#[test]
fn tagged_frame_is_the_plain_one_with_tags_behind_its_addresses() {
    let frame = data(Hosts::Sixteen, 7, None);
    let (plain, tags) = (bytes(frame), Some([0x81, 0, 0, 77]));
    let expected = [&plain[..12], &[0x81, 0, 0, 77], &plain[12..]].concat();
    assert_eq!(expected, bytes(Tagged { frame, tags }));
}
