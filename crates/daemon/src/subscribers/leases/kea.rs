//! Parses the lines of Kea's `kea-leases4.csv`.

use serde::Deserialize;

use super::fault::Reason;
use super::text::{address, hardware, hexadecimal, octets, parse};
use super::{Entry, Expiry, Lease, Lost, RelayInformation};

/// Columns that are read, in the order of Kea 2.2. Newer versions append more columns.
const NAMES: [&str; 8] = [
    "address",
    "hwaddr",
    "client_id",
    "valid_lifetime",
    "expire",
    "hostname",
    "state",
    "user_context",
];
const DEFAULT_COLUMNS: [usize; NAMES.len()] = [0, 1, 2, 3, 4, 8, 9, 10];
const DEFAULT_COLUMN_COUNT: usize = 11;

/// Columns that are ignored.
const UNREAD: [&str; 4] = ["subnet_id", "fqdn_fwd", "fqdn_rev", "pool_id"];

const ADDRESS: usize = 0;
const HARDWARE: usize = 1;
const CLIENT: usize = 2;
const LIFETIME: usize = 3;
const EXPIRE: usize = 4;
const HOST: usize = 5;
const STATE: usize = 6;
const CONTEXT: usize = 7;

/// Lifetime of an infinite lease (RFC 2131, section 3.3).
const INFINITE: u64 = 0xffff_ffff;

/// Parses lines according to the last header line.
#[derive(Debug)]
pub struct Kea {
    columns: [usize; NAMES.len()],
    /// Number of fields per line according to the header.
    count: Option<usize>,
}

impl Kea {
    pub fn new() -> Self {
        Self {
            columns: DEFAULT_COLUMNS,
            count: None,
        }
    }

    /// Whether a header has been read.
    pub fn is_headed(&self) -> bool {
        self.count.is_some()
    }

    /// Parse a line. `None` for a header or an empty line.
    pub fn line(&mut self, line: &[u8]) -> Result<Option<Entry>, Reason> {
        if line.is_empty() {
            return Ok(None);
        }
        if line.starts_with(b"address,") {
            return self.header(line).map(|()| None);
        }
        let mut fields = [&b""[..]; NAMES.len()];
        let mut count = 0;
        for (at, field) in line.split(|&byte| byte == b',').enumerate() {
            if let Some(name) = self.columns.iter().position(|&column| column == at) {
                fields[name] = field;
            }
            count += 1;
        }
        match self.count {
            Some(expected) if expected != count => Err(Reason::Fields),
            None if !(DEFAULT_COLUMN_COUNT..=DEFAULT_COLUMN_COUNT + 1).contains(&count) => Err(Reason::Fields),
            _ => entry(&fields).map(Some),
        }
    }

    /// If a header is invalid, the following lines are read with the default columns. The order of the default columns
    /// has not changed since Kea's first version, so no lease is lost.
    fn header(&mut self, line: &[u8]) -> Result<(), Reason> {
        *self = Self::new();
        let names: Vec<&[u8]> = line.split(|&byte| byte == b',').collect();
        let is_known = |name: &&[u8]| NAMES.iter().chain(&UNREAD).any(|known| known.as_bytes() == *name);
        let place = |known: &str| names.iter().position(|name| known.as_bytes() == *name);
        let columns = NAMES.map(place);
        if columns.contains(&None) || !names.iter().take(DEFAULT_COLUMN_COUNT).all(is_known) {
            return Err(Reason::Header);
        }
        self.columns = columns.map(Option::unwrap_or_default);
        self.count = Some(names.len());
        Ok(())
    }
}

fn entry(fields: &[&[u8]; NAMES.len()]) -> Result<Entry, Reason> {
    let address = address(fields[ADDRESS]).ok_or(Reason::Address)?;
    let lifetime: u64 = parse(fields[LIFETIME]).ok_or(Reason::Time)?;
    let expire: u64 = parse(fields[EXPIRE]).ok_or(Reason::Time)?;
    let renewed = expire.saturating_sub(lifetime);
    let free = |why| Ok(Entry::Free { address, renewed, why });
    match fields[STATE] {
        b"0" | b"" => {}
        b"1" => return free(Lost::Declined),
        b"2" => return free(Lost::Expired),
        b"3" => return free(Lost::Released),
        _ => return Err(Reason::State),
    }
    if lifetime == 0 {
        return free(Lost::Released);
    }
    let client_id = match fields[CLIENT] {
        b"" => None,
        text => Some(octets(text).ok_or(Reason::Client)?.into()),
    };
    let expires = match lifetime {
        INFINITE => Expiry::Never,
        _ => Expiry::At(expire),
    };
    let host_name = match fields[HOST] {
        b"" => None,
        text => Some(String::from_utf8_lossy(&plain(text)).into()),
    };
    Ok(Entry::Leased(Lease {
        address,
        hardware: hardware(fields[HARDWARE]).ok_or(Reason::Hardware)?,
        client_id,
        renewed,
        expires,
        relay: relay(fields[CONTEXT])?,
        host_name,
    }))
}

/// Replace the escapes in a field: `&#x2c` is a comma.
fn plain(field: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, behind)) = rest.split_first() {
        let escaped = rest.strip_prefix(b"&#x").and_then(|rest| rest.split_at_checked(2));
        let value = escaped.and_then(|(digits, behind)| Some((*hexadecimal(digits)?.first()?, behind)));
        let (byte, behind) = value.unwrap_or((byte, behind));
        text.push(byte);
        rest = behind;
    }
    text
}

/// Relay information, which Kea stores if `store-extended-info` is enabled.
#[derive(Deserialize)]
struct Context {
    #[serde(rename = "ISC")]
    own: Option<Own>,
}

#[derive(Deserialize)]
struct Own {
    #[serde(rename = "relay-agent-info")]
    relay: Option<Information>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Information {
    /// Format of Kea versions up to 2.2.
    Plain(String),
    Nested {
        #[serde(rename = "sub-options")]
        parts: Option<String>,
    },
}

fn relay(field: &[u8]) -> Result<Option<Box<RelayInformation>>, Reason> {
    if field.is_empty() {
        return Ok(None);
    }
    let context: Context = serde_json::from_slice(&plain(field)).map_err(|_| Reason::Context)?;
    let text = match context.own.and_then(|own| own.relay) {
        Some(Information::Plain(text) | Information::Nested { parts: Some(text) }) => text,
        Some(Information::Nested { parts: None }) | None => return Ok(None),
    };
    let digits = text.strip_prefix("0x").ok_or(Reason::Relay)?;
    let content = hexadecimal(digits.as_bytes()).ok_or(Reason::Relay)?;
    let information = RelayInformation::parse(&content).ok_or(Reason::Relay)?;
    Ok(Some(Box::new(information)))
}
