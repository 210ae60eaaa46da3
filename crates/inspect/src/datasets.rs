//! Lists of values that rules query and change (`dataset`). The initial values of a list are loaded from files.
//!
//! Rules add values to a table of fixed size, which the cores update by compare-and-swap. The table stores keyed 64-bit
//! hashes. If all slots that a hash may use are occupied, the value is not added, and the failure is counted.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Default of the number of values that rules may add to a list.
pub const DEFAULT_HASH_SIZE: usize = 1 << 16;
/// Largest number of added values that a rule may configure.
pub const MAX_HASH_SIZE: usize = 1 << 20;
/// Maximum number of slots probed for a value.
const MAX_PROBES: usize = 8;

/// Type of the values of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetType {
    /// Any bytes, encoded as Base64 in files.
    Text,
    /// MD5 digests of 16 bytes, written as hexadecimal digits in files.
    Md5,
    /// SHA-1 digests of 20 bytes, written as hexadecimal digits in files.
    Sha1,
    /// SHA-256 digests of 32 bytes, written as hexadecimal digits in files.
    Sha256,
    /// IPv4 addresses.
    Ipv4,
    /// IPv4 and IPv6 addresses.
    Ip,
}

/// A list of values that rules query.
#[derive(Debug)]
pub struct Dataset {
    name: Box<str>,
    kind: DatasetType,
    /// Values loaded from the file of the list.
    loaded: HashSet<Box<[u8]>>,
    /// Hashes of the values that rules added; 0 marks a free slot. Allocated only if a rule may add values.
    added: OnceLock<Box<[AtomicU64]>>,
    capacity: usize,
    hasher: RandomState,
    /// Values that were not added because no slot was free.
    pub full: AtomicU64,
}

/// Two lists are equal if name, type, capacity and loaded values are equal; values that rules added at run time are
/// ignored.
impl PartialEq for Dataset {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.kind, self.capacity, &self.loaded) == (&other.name, other.kind, other.capacity, &other.loaded)
    }
}

/// Error: a line of a list file is not a valid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {text:?} is not a valid {expected}")]
pub struct InvalidEntry {
    line: usize,
    text: Box<str>,
    expected: &'static str,
}

impl DatasetType {
    /// Returns the type that has this name in rules.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "string" => Self::Text,
            "md5" => Self::Md5,
            "sha256" => Self::Sha256,
            "ipv4" => Self::Ipv4,
            "ip" => Self::Ip,
            _ => return None,
        })
    }

    /// Whether the values are addresses.
    pub fn is_address(self) -> bool {
        matches!(self, Self::Ip | Self::Ipv4)
    }

    fn expected(self) -> &'static str {
        match self {
            Self::Text => "Base64",
            Self::Md5 => "MD5 of 32 hexadecimal digits",
            Self::Sha1 => "SHA-1 of 40 hexadecimal digits",
            Self::Sha256 => "SHA-256 of 64 hexadecimal digits",
            Self::Ipv4 => "IPv4 address",
            Self::Ip => "address",
        }
    }

    fn accepts(self, value: &[u8]) -> bool {
        match self {
            Self::Text => !value.is_empty(),
            Self::Md5 => value.len() == 16,
            Self::Sha1 => value.len() == 20,
            Self::Sha256 => value.len() == 32,
            Self::Ipv4 => value.len() == 4,
            Self::Ip => matches!(value.len(), 4 | 16),
        }
    }

    /// Parses the value of a line.
    fn value(self, text: &str) -> Option<Box<[u8]>> {
        let value: Box<[u8]> = match self {
            Self::Text => base64(text)?,
            Self::Md5 | Self::Sha1 | Self::Sha256 => hexadecimal(text)?,
            Self::Ipv4 | Self::Ip => match text.parse().ok()? {
                IpAddr::V4(address) => address.octets().into(),
                IpAddr::V6(address) => match address.to_ipv4_mapped() {
                    Some(address) => address.octets().into(),
                    None => address.octets().into(),
                },
            },
        };
        self.accepts(&value).then_some(value)
    }
}

impl Dataset {
    /// Creates a list from a text with one value in each line. Text after a comma is a comment.
    ///
    /// # Errors Returns an error if a line is not a valid value.
    pub fn new(name: &str, kind: DatasetType, places: usize, text: &str) -> Result<Self, InvalidEntry> {
        Self::read(name, kind, places, text, |line| line.split(',').next())
    }

    /// Creates a list of hashes from a text with one hash at the beginning of each line. Text after a blank is ignored,
    /// so the output of `sha256sum` can be read.
    ///
    /// # Errors Returns an error if a line does not begin with a hash.
    pub fn from_hashes(name: &str, kind: DatasetType, text: &str) -> Result<Self, InvalidEntry> {
        Self::read(name, kind, 0, text, |line| line.split([' ', '\t', ',']).next())
    }

    fn read<'t>(
        name: &str,
        kind: DatasetType,
        places: usize,
        text: &'t str,
        value: impl Fn(&'t str) -> Option<&'t str>,
    ) -> Result<Self, InvalidEntry> {
        let lines = (1..).zip(text.lines().map(str::trim));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let loaded = lines.map(|(line, text)| {
            let value = value(text).unwrap_or_default().trim();
            kind.value(value).ok_or_else(|| InvalidEntry {
                line,
                text: value.chars().take(80).collect(),
                expected: kind.expected(),
            })
        });
        Ok(Self {
            name: name.into(),
            kind,
            loaded: loaded.collect::<Result<_, _>>()?,
            added: OnceLock::new(),
            capacity: places.next_power_of_two().max(MAX_PROBES),
            hasher: RandomState::new(),
            full: AtomicU64::new(0),
        })
    }

    /// Name of the list.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Type of the values.
    pub fn kind(&self) -> DatasetType {
        self.kind
    }

    /// Allocates the table of added values, for a list to which a rule adds values.
    pub fn reserve(&self) {
        self.added
            .get_or_init(|| (0..self.capacity).map(|_| AtomicU64::new(0)).collect());
    }

    /// Whether a value has the type of the list, so that the list can contain the value.
    pub fn accepts(&self, value: &[u8]) -> bool {
        self.kind.accepts(value)
    }

    /// Whether the list contains a value.
    pub fn contains(&self, value: &[u8]) -> bool {
        self.loaded.contains(value) || self.entry(self.hash(value), |entry, hash| entry == hash).is_some()
    }

    /// Adds a value. Returns true if the value was not in the list before.
    pub fn add(&self, value: &[u8]) -> bool {
        if self.contains(value) {
            return false;
        }
        let hash = self.hash(value);
        while let Some(entry) = self.entry(hash, |entry, _| entry == 0) {
            if entry.compare_exchange(0, hash, Relaxed, Relaxed).is_ok() {
                return true;
            }
        }
        self.full.fetch_add(1, Relaxed);
        false
    }

    /// Removes an added value. Returns whether the value was in the table.
    pub fn remove(&self, value: &[u8]) -> bool {
        let hash = self.hash(value);
        let entry = self.entry(hash, |entry, hash| entry == hash);
        entry.is_some_and(|entry| entry.compare_exchange(hash, 0, Relaxed, Relaxed).is_ok())
    }

    fn hash(&self, value: &[u8]) -> u64 {
        self.hasher.hash_one(value).max(1)
    }

    fn entry(&self, hash: u64, is: impl Fn(u64, u64) -> bool) -> Option<&AtomicU64> {
        let entries = self.added.get()?;
        let places = (0..MAX_PROBES).map(|place| (hash as usize).wrapping_add(place) & (entries.len() - 1));
        places
            .filter_map(|place| entries.get(place))
            .find(|entry| is(entry.load(Relaxed), hash))
    }
}

fn hexadecimal(text: &str) -> Option<Box<[u8]>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        })
        .collect()
}

fn base64(text: &str) -> Option<Box<[u8]>> {
    let (mut bits, mut held, mut bytes) = (0u32, 0, Vec::new());
    for byte in text.trim_end_matches('=').bytes() {
        let v6 = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (bits, held) = (bits << 6 | u32::from(v6), held + 6);
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    Some(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_by_their_kind() {
        let text = Dataset::new("a", DatasetType::Text, 8, "# hosts\nZXZpbC5leGFtcGxl\n\nb3RoZXI=,why\n").unwrap();
        assert!(text.contains(b"evil.example") && text.contains(b"other") && !text.contains(b"evil"));
        let md5 = Dataset::new("b", DatasetType::Md5, 8, "00112233445566778899AABBCCDDEEFF").unwrap();
        let value: Vec<u8> = (0..16).map(|place| place * 0x11).collect();
        assert!(md5.contains(&value) && !md5.accepts(&value[1..]));
        let ip = Dataset::new("c", DatasetType::Ip, 8, "192.0.2.1\n2001:db8::1\n::ffff:192.0.2.2").unwrap();
        assert!(ip.contains(&[192, 0, 2, 1]) && ip.contains(&[192, 0, 2, 2]) && !ip.contains(&[192, 0, 2, 3]));
        for (kind, text) in [
            (DatasetType::Text, "a-b"),
            (DatasetType::Md5, "0011"),
            (DatasetType::Sha256, "xx"),
            (DatasetType::Ipv4, "2001:db8::1"),
            (DatasetType::Ip, "host"),
        ] {
            let wrong = Dataset::new("d", kind, 8, &format!("\n{text}"))
                .unwrap_err()
                .to_string();
            assert_eq!(format!("line 2: {text:?} is no {}", kind.expected()), wrong);
        }
    }

    #[test]
    fn values_are_added_and_removed_until_there_is_no_place() {
        let set = Dataset::new("a", DatasetType::Text, 8, "YQ==").unwrap();
        assert!(!set.add(b"b") && !set.contains(b"b"), "no rule adds to it");
        set.reserve();
        assert!(set.add(b"b") && !set.add(b"b") && set.contains(b"b") && !set.add(b"a"));
        assert!(set.remove(b"b") && !set.remove(b"b") && !set.contains(b"b") && !set.remove(b"a"));
        let added = (0..100u8).filter(|value| set.add(&[*value, 0])).count();
        assert_eq!((8, 93), (added, set.full.load(Relaxed)));
    }
}
