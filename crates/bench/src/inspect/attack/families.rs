//! Initial conversations of the attack search; each family makes another kind of work expensive.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{Conversation, MOST, Piece, one_of};
use crate::rig::frames::Random;

/// Number of segments that arrive after a gap in the stream: one megabyte in total.
const AHEAD: u32 = 720;

/// Kind of work that a conversation makes expensive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Family {
    /// Pattern words of the rules, in a stream of unknown protocol.
    Contents,
    /// One byte value, repeated.
    Runs,
    /// One byte value, repeated after an HTTP request, where regular expressions of rules are evaluated.
    Requests,
    /// HTTP header fields of one byte each.
    Fields,
    /// HTTP chunks of one byte each.
    Chunks,
    /// An HTTP body with a high compression ratio.
    Gzip,
    /// Indexed HPACK fields of one byte each.
    Hpack,
    /// A TLS ClientHello with the maximum number of extensions.
    Hello,
    /// QUIC initial packets, each of which requires key derivation.
    Quic,
    /// DNS names with chains of compression pointers.
    Dns,
    /// SMTP commands.
    Mail,
    /// FTP commands.
    Ftp,
    /// A gap in the stream, followed by a megabyte of pattern words.
    Gap,
    /// Retransmissions of one sequence range, each with different bytes.
    Again,
    /// Datagrams that contain pattern words.
    Datagrams,
}

impl Family {
    /// Creates the initial conversation of this family.
    pub fn seed(self, words: &[Vec<u8>], random: &mut Random) -> Conversation {
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let client = |port, parts: &[&[u8]]| Conversation::over_tcp(port, &[(true, &parts.concat())]);
        let answer = |parts: &[&[u8]]| Conversation::over_tcp(80, &[(true, request), (false, &parts.concat())]);
        match self {
            Self::Contents => client(80, &[&text(words, random, 4 * MOST)]),
            Self::Runs => client(80, &[&[b'a'; 4 * MOST]]),
            Self::Requests => {
                let (path, cookie) = ([b'/'; 1000], [b'a'; 4000]);
                client(80, &[b"GET /", &path, b" HTTP/1.1\r\nCookie: ", &cookie, b"\r\n\r\n"])
            }
            Self::Fields => client(80, &[b"GET / HTTP/1.1\r\n", &b"a:b\r\n".repeat(1000)]),
            Self::Chunks => {
                let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                answer(&[head, &b"1\r\na\r\n".repeat(1000)])
            }
            Self::Gzip => {
                let body = gzip(&text(words, random, 200_000));
                let body = &body[..body.len().min(6 * MOST)];
                answer(&[b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", body])
            }
            Self::Hpack => {
                let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
                let fields = [0x82; 4 * MOST];
                let [_, high, middle, low] = (fields.len() as u32).to_be_bytes();
                client(80, &[preface, &[high, middle, low, 1, 4, 0, 0, 0, 1], &fields])
            }
            Self::Hello => client(443, &[&hello()]),
            Self::Quic => {
                let head = [0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x44, 0x9e];
                let datagram = [&head[..], &[0x5a; 1182]].concat();
                Conversation::of_datagrams(443, &[&datagram[..]; 4])
            }
            Self::Dns => {
                let head = [0, 1, 1, 0, 0, 0xff, 0, 0, 0, 0, 0, 0];
                let question = b"\x01a\x01b\x01c\xc0\x0c\0\x01\0\x01";
                let datagram = [&head[..], &question.repeat(100)].concat();
                Conversation::of_datagrams(53, &[&datagram[..]; 4])
            }
            Self::Mail => {
                let commands = b"RCPT TO:<a@b>\r\n".repeat(300);
                let said = [&b"EHLO a\r\nMAIL FROM:<a@b>\r\n"[..], &commands].concat();
                Conversation::over_tcp(25, &[(false, b"220 a ESMTP\r\n"), (true, &said)])
            }
            Self::Ftp => {
                let commands = b"PORT 10,0,0,1,4,5\r\n".repeat(300);
                Conversation::over_tcp(21, &[(false, b"220 a\r\n"), (true, b"USER a\r\n"), (true, &commands)])
            }
            Self::Gap => {
                let ahead = (0..AHEAD).map(|number| Piece {
                    forward: true,
                    place: 1 + number * MOST as u32,
                    bytes: text(words, random, MOST),
                });
                let mut gap = client(80, &[b"G"]);
                gap.pieces.splice(..0, ahead);
                gap
            }
            Self::Again => {
                let mut again = client(80, &[&text(words, random, 2 * MOST)]);
                let mut others = again.pieces.clone();
                for piece in &mut others {
                    piece.bytes.iter_mut().step_by(2).for_each(|byte| *byte ^= 1);
                }
                again.pieces.append(&mut others);
                again
            }
            Self::Datagrams => {
                let [one, other] = [(); 2].map(|()| text(words, random, MOST));
                Conversation::of_datagrams(1434, &[&one, &other])
            }
        }
    }
}

/// Concatenates randomly chosen pattern words up to a length.
fn text(words: &[Vec<u8>], random: &mut Random, length: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(length + MOST);
    while text.len() < length {
        text.extend_from_slice(one_of(words, random).map_or(&b"a"[..], Vec::as_slice));
        text.push(b' ');
    }
    text.truncate(length);
    text
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to memory does not fail.
    let _ = encoder.write_all(content);
    encoder.finish().unwrap_or_default()
}

/// A ClientHello in one record, with empty extensions of unknown types.
fn hello() -> Vec<u8> {
    let extensions: Vec<u8> = (0..1000u16)
        .flat_map(|number| [&(0x4000 + number).to_be_bytes()[..], &[0, 0]].concat())
        .collect();
    let length = |count: usize| (count as u16).to_be_bytes();
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0, 0, 2, 0x13, 1, 1, 0],
        &length(extensions.len()),
        &extensions,
    ]
    .concat();
    let [_, high, middle, low] = (body.len() as u32).to_be_bytes();
    let message = [&[1, high, middle, low][..], &body].concat();
    [&[22, 3, 1][..], &length(message.len()), &message].concat()
}
