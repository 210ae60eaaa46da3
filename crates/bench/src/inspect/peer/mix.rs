//! Generated captures: TCP connections between clients and web servers, 64 of them concurrently, with valid checksums.

use std::fs::File;
use std::io::{BufWriter, Error};
use std::path::Path;
use std::time::Duration;

use pcap_file::pcap::{PcapPacket, PcapWriter};

use super::super::traffic::{End, WORDS, tcp_frame, text};
use crate::rig::frames::Random;

/// Number of concurrent connections.
const AT_A_TIME: usize = 64;
/// Data bytes per segment.
const SEGMENT: usize = 1_460;
/// Interval between frames: about 5 Gb/s with long frames.
const GAP: Duration = Duration::from_nanos(2_000);
/// Sizes of response bodies, equally frequent.
const BODIES: [u64; 4] = [1_500, 6_000, 20_000, 60_000];
/// Kind of the connections' content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mix {
    /// HTTP: four requests per connection, each answered with a page of words.
    Http,
    /// TLS: a ClientHello with a server name, then records of random bytes.
    Tls,
}

struct Connection {
    client: End,
    server: End,
    /// Next sequence number of each side.
    next: [u32; 2],
    frames: std::collections::VecDeque<Vec<u8>>,
}

impl Connection {
    fn new(number: u32, mix: Mix, random: &mut Random) -> Self {
        let [_, a, b, c] = (number / 200 + 2).to_be_bytes();
        let port = if mix == Mix::Http { 80 } else { 443 };
        let mut connection = Self {
            client: ([10, a, b, c], 20_000 + (number % 40_000) as u16),
            server: ([198, 18, (number % 7) as u8, 1 + (number % 250) as u8], port),
            next: [1_000, 2_000],
            frames: Default::default(),
        };
        connection.push(0, (true, false), b"");
        connection.push(1, (true, true), b"");
        connection.push(0, (false, true), b"");
        match mix {
            Mix::Http => (0..4).for_each(|_| connection.http(random)),
            Mix::Tls => connection.tls(number, random),
        }
        connection
    }

    /// Appends a segment from a side, with the given SYN and ACK flags; segments with data also have PSH.
    fn push(&mut self, side: usize, (syn, ack): (bool, bool), data: &[u8]) {
        let mut ends = [self.client, self.server];
        ends.rotate_left(side);
        let numbers = (self.next[side], ack.then_some(self.next[1 - side]));
        self.frames.push_back(tcp_frame(ends, numbers, syn, &[], data));
        self.next[side] += data.len() as u32 + u32::from(syn);
    }

    /// Appends data sent by a side; the other side acknowledges every second segment and the last segment.
    fn say(&mut self, side: usize, message: &[u8]) {
        for (number, data) in message.chunks(SEGMENT).enumerate() {
            self.push(side, (false, true), data);
            if number % 2 == 1 {
                self.push(1 - side, (false, true), b"");
            }
        }
        self.push(1 - side, (false, true), b"");
    }

    fn http(&mut self, random: &mut Random) {
        let page = random.below(100_000);
        let request = format!(
            "GET /articles/{page}/index.html?session=a1b2{page} HTTP/1.1\r\nHost: www{}.example.net\r\nUser-Agent: Mozilla/5.0 \
             (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\nAccept: text/html,application/xhtml+xml;q=0.9\r\n\
             Accept-Language: en\r\nConnection: keep-alive\r\nReferer: http://www.example.net/{page}\r\n\r\n",
            page % 50
        );
        self.say(0, request.as_bytes());
        let length = BODIES[random.below(BODIES.len() as u64) as usize] as usize;
        let head = format!(
            "HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {length}\r\n\r\n"
        );
        let answer = [head.as_bytes(), &text(&WORDS[..10], random, length)].concat();
        self.say(1, &answer);
    }

    fn tls(&mut self, number: u32, random: &mut Random) {
        let mut bytes = |length: u64| -> Vec<u8> { (0..length).map(|_| random.below(256) as u8).collect() };
        let name = format!("www{}.example.net", number % 50);
        let record = |kind: u8, body: &[u8]| {
            let length = (body.len() as u16).to_be_bytes();
            [&[kind, 3, 3], length.as_slice(), body].concat()
        };
        let counted = |body: &[u8]| [(body.len() as u16).to_be_bytes().as_slice(), body].concat();
        let hello = |kind: u8, body: &[u8]| {
            let [_, a, b, c] = (body.len() as u32).to_be_bytes();
            [&[kind, a, b, c], body].concat()
        };
        // The ClientHello has only the extension server_name (RFC 6066, section 3).
        let name = counted(&counted(&[&[0], counted(name.as_bytes()).as_slice()].concat()));
        let extensions = counted(&[&[0, 0], name.as_slice()].concat());
        let client = [
            &[3, 3],
            bytes(32).as_slice(),
            &[0, 0, 4, 0x13, 1, 0xc0, 0x2f, 1, 0],
            &extensions,
        ]
        .concat();
        self.say(0, &record(22, &hello(1, &client)));
        let server = [&[3, 3], bytes(32).as_slice(), &[0, 0xc0, 0x2f, 0]].concat();
        let certificate = hello(11, &[&[0, 3, 0xe8, 0, 3, 0xe5], bytes(0x3e5).as_slice()].concat());
        let done = record(22, &hello(14, &[]));
        self.say(
            1,
            &[record(22, &hello(2, &server)), record(22, &certificate), done].concat(),
        );
        let finished = [
            record(22, &hello(16, &counted(&bytes(64)))),
            record(20, &[1]),
            record(22, &bytes(40)),
        ];
        self.say(0, &finished.concat());
        self.say(1, &[record(20, &[1]), record(22, &bytes(40))].concat());
        for _ in 0..4 {
            self.say(0, &record(23, &bytes(500)));
            let length = BODIES[(number as usize + self.frames.len()) % BODIES.len()];
            let mut answer = Vec::new();
            for begin in (0..length).step_by(16_000) {
                answer.extend(record(23, &bytes((length - begin).min(16_000))));
            }
            self.say(1, &answer);
        }
    }
}

/// Writes a capture with this number of connections. Returns the numbers of packets and bytes.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write(path: &Path, mix: Mix, connections: u32) -> Result<(u64, u64), Error> {
    let failed = |error: pcap_file::PcapError| match error {
        pcap_file::PcapError::IoError(error) => error,
        other => Error::other(other.to_string()),
    };
    let mut writer = PcapWriter::new(BufWriter::new(File::create(path)?)).map_err(failed)?;
    let mut random = Random(0x5eed);
    let mut numbers = 0..connections;
    let mut active: Vec<Connection> = Vec::new();
    let (mut packets, mut bytes) = (0u64, 0u64);
    loop {
        while active.len() < AT_A_TIME {
            match numbers.next() {
                Some(number) => active.push(Connection::new(number, mix, &mut random)),
                None => break,
            }
        }
        if active.is_empty() {
            break;
        }
        for connection in &mut active {
            // Send one to three segments of a connection before another connection's turn.
            for _ in 0..1 + random.below(3) {
                let Some(frame) = connection.frames.pop_front() else {
                    break;
                };
                let at = Duration::from_secs(1_700_000_000) + GAP * packets as u32;
                let packet = PcapPacket::new(at, frame.len() as u32, &frame);
                writer.write_packet(&packet).map_err(failed)?;
                packets += 1;
                bytes += frame.len() as u64;
            }
        }
        active.retain(|connection| !connection.frames.is_empty());
    }
    std::io::Write::flush(&mut writer.into_writer())?;
    Ok((packets, bytes))
}

#[cfg(test)]
mod tests {
    use pcap_file::pcap::PcapReader;
    use sluice_wire::Checksums;
    use sluice_wire::layers::parse;
    use sluice_wire::validity::{Policy, Validity, validate};

    use super::*;

    #[test]
    fn frames_are_valid_and_the_same_each_time() {
        let folder = tempfile::tempdir().unwrap();
        for mix in [Mix::Http, Mix::Tls] {
            let [first, second] = ["a", "b"].map(|name| folder.path().join(name));
            let counts = write(&first, mix, 70).unwrap();
            assert_eq!(counts, write(&second, mix, 70).unwrap());
            assert!(std::fs::read(&first).unwrap() == std::fs::read(&second).unwrap());
            let mut reader = PcapReader::new(File::open(&first).unwrap()).unwrap();
            let (mut packets, mut bytes) = (0, 0);
            while let Some(packet) = reader.next_packet() {
                let frame = packet.unwrap().data;
                let layers = parse(&frame).unwrap();
                let valid = validate(&frame, Checksums::Unverified, &layers, &Policy::default());
                assert_eq!(Ok(Validity::Valid), valid);
                packets += 1;
                bytes += frame.len() as u64;
            }
            assert_eq!(counts, (packets, bytes));
        }
    }
}
