//! Traces from files: in the format of ClassBench, and captures.

use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError};
use sluice_filter::Header;
use sluice_wire::ipv4::protocol;
use sluice_wire::layers::{self, Class, Fragment};

use super::Failure;
use super::traces::{Traffic, header};

/// Name of a trace from a file in rows.
pub const NAME: &str = "file";

/// Minimum number of headers. Shorter traces are repeated, so that all batches except the last are full.
const LEAST: usize = 4096;

/// Magic numbers of capture files: pcap in both byte orders with microseconds and nanoseconds, and pcapng.
const CAPTURES: [[u8; 4]; 5] = [
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x4d, 0x3c, 0xb2, 0xa1],
    PCAPNG,
];
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Reads the headers from a file, which may be compressed (.gz). Errors contain the file name and the number of the
/// line or frame.
pub fn read(path: &Path) -> Result<Traffic, Failure> {
    let named = |error: Failure| format!("{}: {error}", path.display());
    let bytes = contents(path).map_err(named)?;
    let headers = match bytes.first_chunk() {
        Some(magic) if CAPTURES.contains(magic) => capture(&bytes),
        _ => std::str::from_utf8(&bytes)
            .map_err(|_| "neither text nor a capture".into())
            .and_then(text),
    };
    let mut headers = headers.map_err(named)?;
    if headers.is_empty() {
        return Err(named("no packet that has addresses and ports".into()).into());
    }
    let count = headers.len();
    while headers.len() < LEAST {
        headers.extend_from_within(..count);
    }
    Ok(Traffic { name: NAME, headers })
}

/// Read a whole file, decompressed if its name ends in .gz.
pub fn contents(path: &Path) -> Result<Vec<u8>, Failure> {
    let (file, mut bytes) = (BufReader::new(File::open(path)?), Vec::new());
    if path.extension().is_some_and(|extension| extension == "gz") {
        flate2::read::GzDecoder::new(file).read_to_end(&mut bytes)?;
    } else {
        BufReader::new(file).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Parses one header per line: source, destination, source port, destination port and protocol in decimal; further
/// columns are ignored.
fn text(text: &str) -> Result<Vec<Header<u32>>, Failure> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, text)| line(text).map_err(|what| format!("line {}: {what}", number + 1).into()))
        .collect()
}

fn line(line: &str) -> Result<Header<u32>, String> {
    let mut words = line.split_whitespace();
    let mut number = |name: &str, last: u32| {
        let word = words.next().ok_or_else(|| format!("no {name}"))?;
        let value = word.parse().ok().filter(|&value| value <= last);
        value.ok_or_else(|| format!("{name} is {word}, not 0 to {last}"))
    };
    let tuple = [
        number("source", u32::MAX)?,
        number("destination", u32::MAX)?,
        number("source port", u16::MAX.into())?,
        number("destination port", u16::MAX.into())?,
        number("protocol", u8::MAX.into())?,
    ];
    Ok(header(&tuple))
}

/// Headers of the TCP and UDP packets over IPv4 in a capture. Other packets are counted and skipped, because rte_acl
/// does not support packets without ports.
fn capture(bytes: &[u8]) -> Result<Vec<Header<u32>>, Failure> {
    let (mut headers, mut others) = (Vec::new(), 0);
    each_frame(bytes, |frame| match of_frame(frame) {
        Some(header) => headers.push(header),
        None => others += 1,
    })?;
    if others > 0 {
        eprintln!("{others} frames are not TCP or UDP over IPv4 and are passed over");
    }
    Ok(headers)
}

fn each_frame(bytes: &[u8], mut take: impl FnMut(&[u8])) -> Result<(), Failure> {
    let mut frames = 0;
    let damaged = |frames: usize, error: PcapError| format!("frame {}: {error}", frames + 1);
    let ethernet = |link: DataLink| match link {
        DataLink::ETHERNET => Ok(()),
        other => Err(format!("frames of the link type {other:?}, not Ethernet")),
    };
    if !bytes.starts_with(&PCAPNG) {
        let mut reader = PcapReader::new(Cursor::new(bytes))?;
        ethernet(reader.header().datalink)?;
        while let Some(packet) = reader.next_packet() {
            take(&packet.map_err(|error| damaged(frames, error))?.data);
            frames += 1;
        }
        return Ok(());
    }
    let mut reader = PcapNgReader::new(Cursor::new(bytes))?;
    while let Some(block) = reader.next_block() {
        match block.map_err(|error| damaged(frames, error))? {
            Block::InterfaceDescription(interface) => ethernet(interface.linktype)?,
            Block::EnhancedPacket(packet) => take(&packet.data),
            Block::SimplePacket(packet) => take(&packet.data),
            Block::Packet(packet) => take(&packet.data),
            _ => continue,
        }
        frames += 1;
    }
    Ok(())
}

/// Filter header of a TCP or UDP packet over IPv4; `None` for other packets.
#[inline(always)]
pub fn of_frame(frame: &[u8]) -> Option<Header<u32>> {
    let layers = layers::parse(frame).ok()?;
    let has_ports = layers.class == Class::Ipv4
        && layers.fragment != Fragment::Later
        && matches!(layers.protocol, protocol::TCP | protocol::UDP);
    let addresses = frame.get(usize::from(layers.l3) + 12..)?.first_chunk::<8>()?;
    let address =
        |at: usize| u32::from_be_bytes([addresses[at], addresses[at + 1], addresses[at + 2], addresses[at + 3]]);
    has_ports.then(|| {
        let ports = [layers.source_port, layers.destination_port].map(u32::from);
        header(&[address(0), address(4), ports[0], ports[1], layers.protocol.into()])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_of_classbench_is_read_and_further_columns_are_passed_over() {
        let headers = text("167772161\t3221225985 1024 80 6 42 7\n\n1 2 3 4 17\n").expect("a trace");
        let first = header(&[0x0a00_0001, 0xc000_0201, 1024, 80, 6]);
        assert_eq!((2, first), (headers.len(), headers[0]));
    }

    #[test]
    fn trace_that_is_wrong_is_refused_with_file_and_line() {
        let file = std::env::temp_dir().join(format!("sluice-trace-{}", std::process::id()));
        for (wrong, expected) in [
            (
                "1 2 3 4 6\n\n1 2 3 65536 6\n",
                "line 3: destination port is 65536, not 0 to 65535",
            ),
            ("1 2 3 4", "line 1: no protocol"),
            ("1.2.3.4 2 3 4 6", "line 1: source is 1.2.3.4"),
            ("\n", "no packet"),
        ] {
            std::fs::write(&file, wrong).expect("a folder for temporary files");
            let error = read(&file).map(|_| ()).expect_err("wrong").to_string();
            let expected = format!("{}: {expected}", file.display());
            assert!(error.starts_with(&expected), "{error}");
        }
        std::fs::remove_file(&file).expect("it was written");
        let missing = read(&file).map(|_| ()).expect_err("gone").to_string();
        assert!(missing.starts_with(&format!("{}: ", file.display())), "{missing}");
    }

    #[test]
    fn trace_of_a_capture_has_its_packets_of_tcp_and_udp() {
        let mut frame = [0; 60];
        let written = crate::rig::frames::Written {
            source: (0x0a00_0001, 5000),
            destination: (0xc000_0201, 53),
            tcp: false,
            flags: 0,
            numbers: (0, 0),
            macs: ([2; 6], [2; 6]),
            mark: 0,
        };
        crate::rig::frames::Frame::write(&written, &mut frame);
        let mut writer = pcap_file::pcap::PcapWriter::new(Vec::new()).expect("memory");
        for bytes in [&frame[..], &[0xff; 20]] {
            let packet = pcap_file::pcap::PcapPacket::new(std::time::Duration::ZERO, bytes.len() as u32, bytes);
            writer.write_packet(&packet).expect("memory");
        }
        let bytes = writer.into_writer();
        let expected = text("167772161 3221225985 5000 53 17").expect("a trace");
        assert_eq!(expected, capture(&bytes).expect("a capture"));
        let cut = capture(&bytes[..bytes.len() - 5]).expect_err("cut off").to_string();
        assert!(cut.starts_with("frame 2: "), "{cut}");
    }
}
