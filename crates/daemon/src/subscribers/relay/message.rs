//! Reads and writes the fields of DHCP messages in place (RFC 2131, section 2; RFC 2132).

use std::net::Ipv4Addr;
use std::ops::Range;

use sluice_wire::Mac;
use sluice_wire::ethernet::is_group;

use super::Refused;

/// Operation code of messages from terminals.
pub const REQUEST: u8 = 1;
/// Operation code of messages from servers.
pub const REPLY: u8 = 2;

pub const HOPS: usize = 3;
const TRANSACTION: Range<usize> = 4..8;
const FLAGS: usize = 10;
pub const CLIENT: Range<usize> = 12..16;
pub const YIADDR: Range<usize> = 16..20;
pub const GATEWAY: Range<usize> = 24..28;
const HARDWARE: Range<usize> = 28..34;
const SERVER_NAME: Range<usize> = 44..108;
const FILE: Range<usize> = 108..236;
const COOKIE: Range<usize> = 236..240;
/// Offset of the options.
pub const OPTIONS: usize = 240;

const MAGIC: [u8; 4] = [99, 130, 83, 99];

pub const PAD: u8 = 0;
pub const END: u8 = 255;
const LEASE_TIME: u8 = 51;
const OVERLOAD: u8 = 52;
const KIND: u8 = 53;
/// Relay agent information option (RFC 3046).
pub const RELAY: u8 = 82;

/// Minimum message length that old clients accept (RFC 1542, section 2.1).
pub const SHORTEST: usize = 300;

/// A message that contains all fixed fields and terminated options.
#[derive(Debug)]
pub struct Message<'a> {
    pub bytes: &'a [u8],
    /// Message type (option 53).
    pub kind: u8,
    /// Lease time in seconds (option 51).
    pub lease_time: Option<u32>,
    /// Content of the first option 82.
    pub relay: Option<&'a [u8]>,
    /// Number of occurrences of option 82.
    pub relays: usize,
    /// Option overload: whether the file and server name fields contain options.
    overload: u8,
}

impl<'a> Message<'a> {
    /// Parse a message with the given operation code.
    pub fn read(bytes: &'a [u8], operation: u8) -> Result<Self, Refused> {
        if bytes.len() <= OPTIONS {
            return Err(Refused::Short);
        }
        if bytes[0] != operation {
            return Err(Refused::Direction);
        }
        let mut message = Self {
            bytes,
            kind: 0,
            lease_time: None,
            relay: None,
            relays: 0,
            overload: 0,
        };
        let hardware = message.hardware();
        if bytes[1..3] != [1, 6] || is_group(hardware) || hardware == [0; 6] {
            return Err(Refused::Hardware);
        }
        if bytes[COOKIE] != MAGIC {
            return Err(Refused::Cookie);
        }
        message.parse_options(OPTIONS..bytes.len())?;
        for area in message.overloaded() {
            message.parse_options(area)?;
        }
        Ok(message)
    }

    /// Overloaded fields that contain options.
    fn overloaded(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let overload = self.overload;
        let areas = [(1, FILE), (2, SERVER_NAME)].into_iter();
        areas.filter_map(move |(bit, area)| (overload & bit != 0).then_some(area))
    }

    fn parse_options(&mut self, area: Range<usize>) -> Result<(), Refused> {
        let own = area.start == OPTIONS;
        let mut options = Options::of(&self.bytes[area]);
        while let Some(option) = options.next()? {
            match (option.code, option.content) {
                (KIND, [kind]) if self.kind == 0 => self.kind = *kind,
                (KIND, [_]) => {}
                (OVERLOAD, [areas]) if own => self.overload |= *areas,
                (OVERLOAD, [_]) => {}
                (LEASE_TIME, content) => {
                    let content = content.try_into().map_err(|_| Refused::Malformed)?;
                    self.lease_time.get_or_insert(u32::from_be_bytes(content));
                }
                (KIND | OVERLOAD, _) => return Err(Refused::Malformed),
                (RELAY, content) => {
                    self.relay.get_or_insert(content);
                    self.relays += 1;
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub fn hops(&self) -> u8 {
        self.bytes[HOPS]
    }

    pub fn transaction(&self) -> u32 {
        u32::from_be_bytes(self.array(TRANSACTION))
    }

    /// Broadcast flag: whether the terminal can't receive unicast yet.
    pub fn is_broadcast(&self) -> bool {
        self.bytes[FLAGS] & 0x80 != 0
    }

    pub fn address(&self, field: Range<usize>) -> Ipv4Addr {
        Ipv4Addr::from(self.array::<4>(field))
    }

    pub fn hardware(&self) -> Mac {
        self.array(HARDWARE)
    }

    /// Content of a fixed-length field.
    fn array<const N: usize>(&self, field: Range<usize>) -> [u8; N] {
        let mut array = [0; N];
        array.copy_from_slice(&self.bytes[field]);
        array
    }

    /// Write the message without any option 82 and without the end option.
    pub fn write_bare(&self, out: &mut Vec<u8>) -> Result<(), Refused> {
        out.clear();
        out.extend_from_slice(&self.bytes[..OPTIONS]);
        for area in self.overloaded() {
            let mut options = Options::of(&self.bytes[area.clone()]);
            while let Some(option) = options.next()? {
                if option.code == RELAY {
                    out[area.start + option.start..area.start + options.at].fill(PAD);
                }
            }
        }
        let area = &self.bytes[OPTIONS..];
        let mut options = Options::of(area);
        while let Some(option) = options.next()? {
            if option.code != RELAY {
                out.extend_from_slice(&area[option.start..options.at]);
            }
        }
        Ok(())
    }
}

/// Write the end option and the padding.
pub fn finish(out: &mut Vec<u8>) {
    out.push(END);
    if out.len() < SHORTEST {
        out.resize(SHORTEST, PAD);
    }
}

/// An option with its position.
struct Piece<'a> {
    code: u8,
    content: &'a [u8],
    start: usize,
}

/// Iterator over the options of a field. The options must be terminated.
struct Options<'a> {
    area: &'a [u8],
    /// Offset after the last option.
    at: usize,
}

impl<'a> Options<'a> {
    fn of(area: &'a [u8]) -> Self {
        Self { area, at: 0 }
    }

    fn next(&mut self) -> Result<Option<Piece<'a>>, Refused> {
        loop {
            let start = self.at;
            match self.area.get(start..).unwrap_or_default() {
                [PAD, ..] => self.at += 1,
                [END, ..] => return Ok(None),
                [code, length, rest @ ..] => {
                    let content = rest.get(..usize::from(*length)).ok_or(Refused::Malformed)?;
                    self.at = start + 2 + content.len();
                    let code = *code;
                    return Ok(Some(Piece { code, content, start }));
                }
                _ => return Err(Refused::Malformed),
            }
        }
    }
}

/// Find a suboption of option 82. `None` if the suboption is absent or the suboptions are malformed.
pub fn part(mut content: &[u8], wanted: u8) -> Option<&[u8]> {
    while let [code, length, rest @ ..] = content {
        let (part, behind) = rest.split_at_checked(usize::from(*length))?;
        if *code == wanted {
            return Some(part);
        }
        content = behind;
    }
    None
}
