//! The FTP control connection (RFC 959, RFC 2428): commands, replies, and the negotiated data connections. The parser
//! stops after `AUTH TLS` (RFC 4217).

use std::net::IpAddr;

use arrayvec::ArrayVec;

use super::anomaly::AnomalySet;
use super::expectations::{DataEndpoints, LOOKUP_COST, Transfer};
use super::writer::MessageWriter;
use super::{Anomaly, MessageEvent, ParserPools, Slot};
use crate::signature::{Buffer, Toward};

/// Maximum number of parsed bytes of a line. Further bytes of a longer line are ignored.
pub const MAX_LINE: usize = 448;
/// Units of work for a line. The packets of a command and its reply add more units to the budget than the two lines
/// cost.
const LINE_COST: u32 = 192;
/// First byte of a TLS connection: the type of a handshake record.
const HANDSHAKE: u8 = 22;

/// The two hosts of a control connection, with the flow and the time of a packet.
#[derive(Clone, Copy, Debug)]
pub struct ControlHosts {
    /// Address of the client.
    pub client: IpAddr,
    /// Address of the server.
    pub server: IpAddr,
    /// Number of the flow.
    pub flow: u64,
    /// Seconds since the start.
    pub second: u32,
}

/// The current line of a direction.
#[derive(Debug, Default)]
struct Line {
    bytes: ArrayVec<u8, MAX_LINE>,
    /// Whether the line is longer than [`MAX_LINE`].
    is_cut: bool,
}

/// Progress of the switch to TLS (RFC 4217, section 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Security {
    #[default]
    Clear,
    /// The client sent `AUTH`; the server has not replied yet.
    Requested,
    /// The server accepted: the next bytes of the client may be TLS.
    Accepted,
    /// The connection is encrypted and no longer parsed.
    Encrypted,
}

/// A control connection.
#[derive(Debug, Default)]
pub struct Ftp {
    lines: [Line; 2],
    security: Security,
    /// Code of the multi-line reply in progress.
    multiline: Option<[u8; 3]>,
}

impl Ftp {
    /// Parses bytes of one direction. Each command, and each line of a reply, is a separate message.
    pub fn bytes<S>(
        &mut self,
        store: &mut ParserPools,
        toward: Toward,
        bytes: &[u8],
        hosts: &ControlHosts,
        sink: &mut S,
    ) where
        S: FnMut(Slot<'_>, MessageEvent),
    {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let line = &mut self.lines[toward as usize];
            if self.security == Security::Accepted && toward == Toward::Server && line.bytes.is_empty() {
                self.security = match part.first() {
                    Some(&HANDSHAKE) => Security::Encrypted,
                    _ => Security::Clear,
                };
            }
            if self.security == Security::Encrypted {
                return;
            }
            let fits = part.len().min(line.bytes.remaining_capacity());
            line.bytes.extend(part[..fits].iter().copied());
            // The line end is not a part of the line.
            line.is_cut |= part[fits..].iter().any(|byte| !b"\r\n".contains(byte));
            if part.ends_with(b"\n") {
                let mut line = std::mem::take(line);
                match toward {
                    Toward::Server => self.command(store, &mut line, hosts, sink),
                    Toward::Client => self.reply(store, &line, hosts, sink),
                }
            }
        }
    }

    fn command<S>(&mut self, store: &mut ParserPools, line: &mut Line, hosts: &ControlHosts, sink: &mut S)
    where
        S: FnMut(Slot<'_>, MessageEvent),
    {
        let start = line.bytes.len() - line.bytes.trim_ascii_start().len();
        let words = &mut line.bytes[start..];
        let end = words.iter().position(u8::is_ascii_whitespace).unwrap_or(words.len());
        // Commands are case-insensitive (RFC 959, section 5.3).
        words[..end].make_ascii_uppercase();
        let (word, value) = (&words[..end], words[end..].trim_ascii());
        // Active mode: the client listens.
        let port = match word {
            b"PORT" => host_port(value),
            b"EPRT" => extended(value),
            _ => None,
        };
        if let Some(port) = port {
            expect(store, (hosts.client, hosts.server), port, hosts);
        }
        let transfer = match word {
            b"RETR" => Some(Transfer::Retrieve),
            b"STOR" | b"STOU" | b"APPE" => Some(Transfer::Store),
            _ => None,
        };
        // Charge the search of the whole table.
        if let Some(transfer) = transfer
            && store.work.charge(LOOKUP_COST)
        {
            store.expected.transfer(hosts.flow, transfer);
        }
        if word == b"AUTH" {
            self.security = Security::Requested;
        }
        let texts = [(Buffer::FtpCommand, word), (Buffer::FtpCommandData, value)];
        report(store, Toward::Server, line.is_cut, texts, (b"active", port), sink);
    }

    fn reply<S>(&mut self, store: &mut ParserPools, line: &Line, hosts: &ControlHosts, sink: &mut S)
    where
        S: FnMut(Slot<'_>, MessageEvent),
    {
        let text = line.bytes.trim_ascii();
        let own = text.first_chunk().filter(|code| code.iter().all(u8::is_ascii_digit));
        let own = own.filter(|_| matches!(text.get(3), None | Some(b' ' | b'-')));
        let (code, text) = match own {
            Some(code) => {
                let is_continued = text.get(3) == Some(&b'-');
                match self.multiline {
                    // Lines within a multi-line reply may have other codes (RFC 959, section 4.2).
                    Some(open) if is_continued || open != *code => {}
                    _ => self.multiline = is_continued.then_some(*code),
                }
                (*code, text.get(4..).unwrap_or_default().trim_ascii_start())
            }
            None => (self.multiline.unwrap_or_default(), text),
        };
        if self.security == Security::Requested {
            match own {
                Some(b"234") => self.security = Security::Accepted,
                // A reply with a different code may belong to an earlier command, so it does not change the state.
                Some([b'4' | b'5', ..]) => self.security = Security::Clear,
                _ => {}
            }
        }
        let inside = || {
            let start = text.iter().position(|&byte| byte == b'(').map_or(0, |at| at + 1);
            let end = text.iter().rposition(|&byte| byte == b')').unwrap_or(text.len());
            text.get(start..end).unwrap_or_default()
        };
        // Passive mode: the server listens.
        let port = match own {
            Some(b"227") => host_port(inside()).or_else(|| host_port(behind_text(text))),
            Some(b"229") => extended(inside()),
            _ => None,
        };
        if let Some(port) = port {
            expect(store, (hosts.server, hosts.client), port, hosts);
        }
        let code: &[u8] = match code {
            [0, ..] => &[],
            _ => &code,
        };
        let texts = [(Buffer::FtpCompletionCode, code), (Buffer::FtpReply, text)];
        report(store, Toward::Client, line.is_cut, texts, (b"passive", port), sink);
    }
}

/// Reports a line as a separate message. The slot of the message is released immediately, so that idle connections
/// occupy no slots.
fn report<S: FnMut(Slot<'_>, MessageEvent)>(
    store: &mut ParserPools,
    toward: Toward,
    is_cut: bool,
    texts: [(Buffer, &[u8]); 2],
    (mode, port): (&[u8], Option<u16>),
    sink: &mut S,
) {
    let is_empty = texts.iter().all(|(_, text)| text.is_empty());
    if is_empty || !store.work.charge(LINE_COST) {
        return;
    }
    let mut writer = MessageWriter {
        slots: &mut store.commands,
        counts: &mut store.anomalies,
        handle: None,
        seen: AnomalySet::default(),
        sink,
    };
    writer.start(toward == Toward::Server);
    if let Some(handle) = writer.handle {
        writer.slots.set_whole(handle);
    }
    let port = port.map(u16::to_be_bytes);
    let agreed = port
        .iter()
        .flat_map(|port| [(Buffer::FtpMode, mode), (Buffer::FtpDynamicPort, &port[..])]);
    for (buffer, text) in texts.into_iter().chain(agreed) {
        if !text.is_empty() {
            writer.append(buffer, text);
        }
    }
    if is_cut {
        writer.anomaly(Anomaly::TooLong);
    }
    writer.end();
    writer.release();
}

/// Some servers omit the parentheses (RFC 1123, section 4.1.2.6).
fn behind_text(text: &[u8]) -> &[u8] {
    let start = text.iter().position(u8::is_ascii_digit).unwrap_or(text.len());
    let digits = text[start..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit() || **byte == b',')
        .count();
    &text[start..start + digits]
}

/// Expects the data connection between the two hosts of the control connection, and ignores the address in the command.
/// An address of a third host would be a bounce attack (RFC 2577, section 3).
fn expect(store: &mut ParserPools, (listener, peer): (IpAddr, IpAddr), port: u16, hosts: &ControlHosts) {
    let ends = DataEndpoints { listener, peer, port };
    store.expected.add(ends, hosts.flow, hosts.second, &mut store.anomalies);
}

fn number(text: &[u8]) -> Option<u16> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// `h1,h2,h3,h4,p1,p2`
fn host_port(text: &[u8]) -> Option<u16> {
    let mut fields = [0; 6];
    let mut written = text.split(|&byte| byte == b',');
    for field in &mut fields {
        *field = number(written.next()?).filter(|&number| number < 256)?;
    }
    let port = fields[4] << 8 | fields[5];
    (written.next().is_none() && port != 0).then_some(port)
}

/// `|1|132.235.1.2|6275|`, `|||6446|` (RFC 2428)
fn extended(text: &[u8]) -> Option<u16> {
    let (delimiter, rest) = text.split_first()?;
    let port = number(rest.split(|byte| byte == delimiter).nth(2)?)?;
    (port != 0 && !delimiter.is_ascii_alphanumeric()).then_some(port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocols::ParserCapacity;

    const CLIENT: [u8; 4] = [10, 0, 0, 1];
    const SERVER: [u8; 4] = [192, 0, 2, 1];

    /// Expected ports of the client and the server after these bytes are parsed in segments of `step` bytes.
    fn expected(toward: Toward, bytes: &[u8], step: usize) -> Vec<(bool, u16)> {
        let mut store = ParserPools::new(&ParserCapacity {
            messages: 1,
            names: 1,
            inflaters: 1,
            ..ParserCapacity::default()
        });
        let mut ftp = Ftp::default();
        let hosts = ControlHosts {
            client: CLIENT.into(),
            server: SERVER.into(),
            flow: 1,
            second: 5,
        };
        for part in bytes.chunks(step) {
            ftp.bytes(&mut store, toward, part, &hosts, &mut |_: Slot<'_>, _| {});
        }
        let mut found = Vec::new();
        for client in [true, false] {
            for port in 1..=u16::MAX {
                let (listener, peer) = if client { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
                let ends = DataEndpoints {
                    listener: listener.into(),
                    peer: peer.into(),
                    port,
                };
                if store.expected.take(&ends, 5).is_some() {
                    found.push((client, port));
                }
            }
        }
        found
    }

    #[test]
    fn data_connections_are_read_of_commands_and_replies_however_they_are_cut() {
        use Toward::{Client, Server};
        type Case = (Toward, &'static [u8], &'static [(bool, u16)]);
        let cases: &[Case] = &[
            (Server, b"PORT 10,0,0,1,19,137\r\n", &[(true, 5001)]),
            (Server, b"port 10,0,0,1,19,137\n", &[(true, 5001)]),
            (
                Server,
                b"PORT 10,0,0,1,19\r\nPORT 10,0,0,1,19,256\r\nPORT 1,2,3,4,0,0\r\n",
                &[],
            ),
            (Server, b"EPRT |1|132.235.1.2|6275|\r\n", &[(true, 6275)]),
            (Server, b"EPRT |2|1080::8:800:200C:417A|5282|\r\n", &[(true, 5282)]),
            (Server, b"EPRT |1|132.235.1.2|66275|\r\n", &[]),
            (
                Client,
                b"227 Entering Passive Mode (192,0,2,1,0,21)\r\n",
                &[(false, 21)],
            ),
            (Client, b"227 =192,0,2,1,4,1\r\n", &[(false, 1025)]),
            (
                Client,
                b"229 Entering Extended Passive Mode (|||6446|)\r\n",
                &[(false, 6446)],
            ),
            (Client, b"200 (192,0,2,1,0,21)\r\n230 (|||6446|)\r\n227\r\n", &[]),
            (Server, b"227 Entering Passive Mode (192,0,2,1,0,21)\r\n", &[]),
        ];
        for (toward, bytes, ports) in cases {
            for step in [1, 7, 1000] {
                assert_eq!(
                    ports.to_vec(),
                    expected(*toward, bytes, step),
                    "{}",
                    bytes.escape_ascii()
                );
            }
        }
        let long = [&[b'x'; 4000][..], b"PORT 10,0,0,1,19,137\r\nPORT 10,0,0,1,19,138\r\n"].concat();
        assert_eq!(vec![(true, 5002)], expected(Server, &long, 100));
    }
}
