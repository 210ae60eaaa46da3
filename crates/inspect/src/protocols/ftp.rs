//! The control connection of FTP (RFC 959, RFC 2428): commands, replies, and the data connections that they agree on.

use std::net::IpAddr;

use arrayvec::ArrayVec;

use super::Store;
use super::expected::{Ends, LOOKED_THROUGH, Transfer};
use crate::signature::Toward;

/// Bytes of a line that are read; a longer line is read up to there.
const LINE: usize = 160;

/// The two hosts of a control connection, and when something came.
#[derive(Clone, Copy, Debug)]
pub struct Hosts {
    /// Who called.
    pub client: IpAddr,
    /// Who was called.
    pub server: IpAddr,
    /// Number of the flow.
    pub flow: u64,
    /// Seconds since the start.
    pub second: u32,
}

/// A control connection.
#[derive(Debug, Default)]
pub struct Ftp {
    lines: [ArrayVec<u8, LINE>; 2],
}

impl Ftp {
    /// Bytes of one side.
    pub fn bytes(&mut self, store: &mut Store, toward: Toward, bytes: &[u8], hosts: &Hosts) {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let line = &mut self.lines[toward as usize];
            let fits = part.len().min(line.remaining_capacity());
            line.extend(part[..fits].iter().copied());
            if part.ends_with(b"\n") {
                let line = std::mem::take(line);
                match toward {
                    Toward::Server => command(store, line.trim_ascii(), hosts),
                    Toward::Client => reply(store, line.trim_ascii(), hosts),
                }
            }
        }
    }
}

fn command(store: &mut Store, line: &[u8], hosts: &Hosts) {
    let (word, value) = match line.iter().position(|&byte| byte == b' ') {
        Some(end) => (&line[..end], line[end..].trim_ascii()),
        None => (line, &[][..]),
    };
    let is = |known: &[u8]| word.eq_ignore_ascii_case(known);
    // The client listens.
    let port = match () {
        () if is(b"PORT") => host_port(value),
        () if is(b"EPRT") => extended(value),
        () => None,
    };
    if let Some(port) = port {
        expect(store, (hosts.client, hosts.server), port, hosts);
    }
    let transfer = match () {
        () if is(b"RETR") => Transfer::Retrieve,
        () if is(b"STOR") || is(b"STOU") || is(b"APPE") => Transfer::Store,
        () => return,
    };
    // All of them are looked through.
    if store.work.charge(LOOKED_THROUGH) {
        store.expected.transfer(hosts.flow, transfer);
    }
}

fn reply(store: &mut Store, line: &[u8], hosts: &Hosts) {
    let Some((code, text)) = line.split_at_checked(4) else {
        return;
    };
    let inside = || {
        let begin = text.iter().position(|&byte| byte == b'(').map_or(0, |at| at + 1);
        let end = text.iter().rposition(|&byte| byte == b')').unwrap_or(text.len());
        text.get(begin..end).unwrap_or_default()
    };
    // The server listens.
    let port = match code {
        b"227 " => host_port(inside()).or_else(|| host_port(behind_text(text))),
        b"229 " => extended(inside()),
        _ => None,
    };
    if let Some(port) = port {
        expect(store, (hosts.server, hosts.client), port, hosts);
    }
}

/// Some servers leave out the parentheses (RFC 1123, section 4.1.2.6).
fn behind_text(text: &[u8]) -> &[u8] {
    let begin = text.iter().position(u8::is_ascii_digit).unwrap_or(text.len());
    let digits = text[begin..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit() || **byte == b',')
        .count();
    &text[begin..begin + digits]
}

/// The data connection is between the two hosts of the control connection, whatever address is named: a third host would
/// be a bounce (RFC 2577, section 3).
fn expect(store: &mut Store, (listener, peer): (IpAddr, IpAddr), port: u16, hosts: &Hosts) {
    let ends = Ends { listener, peer, port };
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
    use crate::protocols::Capacity;

    const CLIENT: [u8; 4] = [10, 0, 0, 1];
    const SERVER: [u8; 4] = [192, 0, 2, 1];

    /// Ports that are expected of the client, and of the server, after these bytes, in pieces of so many.
    fn expected(toward: Toward, bytes: &[u8], step: usize) -> Vec<(bool, u16)> {
        let mut store = Store::new(&Capacity {
            messages: 1,
            names: 1,
            inflaters: 1,
            ..Capacity::default()
        });
        let mut ftp = Ftp::default();
        let hosts = Hosts {
            client: CLIENT.into(),
            server: SERVER.into(),
            flow: 1,
            second: 5,
        };
        for part in bytes.chunks(step) {
            ftp.bytes(&mut store, toward, part, &hosts);
        }
        let mut found = Vec::new();
        for client in [true, false] {
            for port in 1..=u16::MAX {
                let (listener, peer) = if client { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
                let ends = Ends {
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
