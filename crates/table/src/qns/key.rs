//! Keys of rules, queries, and the layout of table entries for both address families.

use std::fmt::Debug;

use super::sync::AtomicU64;
use crate::hash::Hasher;

/// Key of a translation rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key<A> {
    /// Context: virtual router, bridge, or subscriber site.
    pub context: u32,
    /// First address of the prefix.
    pub prefix: A,
    /// Length of the prefix in bits.
    pub length: u8,
    /// Port; `None` matches packets with any port or without a port.
    pub port: Option<u16>,
    /// IP protocol; `None` matches any protocol.
    pub protocol: Option<u8>,
    /// Interface; `None` matches any interface.
    pub interface: Option<u16>,
}

/// The fields of a packet that a lookup compares with rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Query<A> {
    /// Context: virtual router, bridge, or subscriber site.
    pub context: u32,
    /// Address to look up.
    pub address: A,
    /// Port of the packet; `None` for a protocol without ports, which matches only rules without a port.
    pub port: Option<u16>,
    /// IP protocol of the packet.
    pub protocol: u8,
    /// Interface of the packet.
    pub interface: u16,
}

/// The most specific matching rule. The longest prefix takes precedence, then a rule with a port, then a rule with a
/// protocol, then a rule with an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match<V> {
    /// Value of the rule.
    pub value: V,
    /// Prefix length in bits.
    pub length: u8,
    /// Whether the rule has a port.
    pub port: bool,
}

/// Value of an IPv4 rule: a 64-bit word, and a small number in the entry bits that the key leaves unused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Value4 {
    /// The value's 64-bit word.
    pub word: u64,
    /// Small number, less than [`Value4::NOTES`].
    pub note: u16,
}

impl Value4 {
    /// Exclusive upper bound of the note.
    pub const NOTES: u16 = 1 << (64 - NOTE);
}

/// Value of an IPv6 rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Value6(pub [u64; 3]);

// Layout of the entry word that contains the whole key except address and context.
const WILDCARD: u64 = 1 << 8;
const ANY_INTERFACE: u32 = 9;
const ANY_PROTOCOL: u32 = 10;
const PROTOCOL: u32 = 11;
const PORT: u32 = 19;
const INTERFACE: u32 = 35;
const NOTE: u32 = 51;

/// Entry word of a key, without the note. The word contains all fields of the key except address and context.
fn shape<A>(key: &Key<A>) -> u64 {
    let port = key.port.map_or(WILDCARD, |port| u64::from(port) << PORT);
    let protocol = key
        .protocol
        .map_or(1 << ANY_PROTOCOL, |number| u64::from(number) << PROTOCOL);
    let interface = key
        .interface
        .map_or(1 << ANY_INTERFACE, |number| u64::from(number) << INTERFACE);
    u64::from(key.length) | port | protocol | interface
}

/// The hashed bits of the entry word of [`shape`]: prefix length, and port or its absence.
#[inline(always)]
fn hashed(candidate: Candidate, port: u16) -> u64 {
    let with_port = u64::from(candidate.0 & 1).wrapping_neg();
    u64::from(candidate.length()) | u64::from(port) << PORT & with_port | WILDCARD & !with_port
}

/// The bits of the entry word of [`shape`] that are not hashed, as they are in an entry that has the protocol and the
/// interface of the query.
#[inline(always)]
pub(super) fn discriminator<A>(query: &Query<A>) -> u64 {
    u64::from(query.protocol) << PROTOCOL | u64::from(query.interface) << INTERFACE
}

/// Rank of an entry that matches `wanted`: 0 for the most specific entry (protocol and interface) to 3 for the least
/// specific. `None` if the entry does not match.
#[inline(always)]
fn rank(shape: u64, wanted: u64) -> Option<u8> {
    let any_interface = shape >> ANY_INTERFACE & 1;
    let any_protocol = shape >> ANY_PROTOCOL & 1;
    let always = 0x1ff | 0xffff << PORT;
    let protocol = any_protocol.wrapping_sub(1) & 0xff << PROTOCOL;
    let interface = any_interface.wrapping_sub(1) & 0xffff << INTERFACE;
    ((shape ^ wanted) & (always | protocol | interface) == 0).then_some((any_protocol << 1 | any_interface) as u8)
}

/// Number of a candidate, which is a sub-table together with one of its two kinds of keys: twice the prefix length,
/// plus 1 for keys with a port. Higher numbers are more specific.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate(pub u32);

impl Candidate {
    pub fn of<A>(key: &Key<A>) -> Self {
        Candidate(u32::from(key.length) << 1 | u32::from(key.port.is_some()))
    }

    #[inline(always)]
    pub fn length(self) -> u8 {
        (self.0 >> 1) as u8
    }

    #[inline(always)]
    pub fn has_port(self) -> bool {
        self.0 & 1 != 0
    }
}

/// Address type of a family, with the layout of its entries.
pub trait Address: crate::prefix::Address + Default + sealed::Layout {}

impl Address for u32 {}
impl Address for u128 {}

pub(super) mod sealed {
    use super::*;

    /// Layout of entries, lines and hash input of one address family.
    pub trait Layout: Copy + Sized {
        /// Type of a rule's value.
        type Value: Copy + Default + PartialEq + Debug + Send + Sync + 'static;
        /// The words of an entry.
        type Entry: Copy + Default + AsRef<[u64]> + AsMut<[u64]>;
        /// A line of the table: header, link and entries.
        type Line: AsRef<[AtomicU64]> + 'static;
        /// Hash input: the address and the context, encoded as in an entry, then the prefix length and the port.
        type Block: Copy + Default;
        /// Bit set of candidates, without the candidates of prefix length 0.
        type Candidates: Copy + Default + AsRef<[u64]> + AsMut<[u64]> + Debug;
        /// Number of words in a line.
        const WORDS: usize;
        /// Whether the family has bitmaps by region.
        const REGIONS: bool;

        /// The line that starts at a word.
        fn line(words: &[AtomicU64], first: usize) -> Option<&Self::Line>;
        /// Creates the entry of a key and its value.
        fn entry(key: &Key<Self>, value: Self::Value) -> Self::Entry;
        /// Key and value of an entry.
        fn open(entry: &Self::Entry) -> (Key<Self>, Self::Value);
        /// Whether the entries have equal keys.
        fn same_key(one: &Self::Entry, other: &Self::Entry) -> bool;
        /// Rank of an entry, from 0 (most specific) to 3. `None` if the entry has a different hash input, or does not
        /// match the protocol and the interface of a query.
        fn rank(entry: &Self::Entry, block: &Self::Block, discriminator: u64) -> Option<u8>;
        /// Value of an entry.
        fn value(entry: &Self::Entry) -> Self::Value;
        /// Creates the hash input of an entry or a query.
        fn block(context: u32, masked: Self, hashed: u64) -> Self::Block;
        /// Hash of one block.
        fn hash_one(hasher: &Hasher, block: &Self::Block) -> u64;
        /// Hashes of several blocks.
        fn hash(hasher: &Hasher, blocks: &[Self::Block], out: &mut [u64]);
        /// The first 32 bits of the address.
        fn first_bits(self) -> u32;
        /// The address with all bits after the first `length` bits cleared.
        fn cut(self, length: u8) -> Self;
    }
}

use sealed::Layout;

/// Hash input of a key.
pub(super) fn block_of<A: Address>(key: &Key<A>) -> A::Block {
    let hashed = hashed(Candidate::of(key), key.port.unwrap_or(0));
    A::block(key.context, key.prefix, hashed)
}

/// Hash input of a query in the sub-table of a candidate.
#[inline(always)]
pub(super) fn block<A: Address>(query: &Query<A>, candidate: Candidate) -> A::Block {
    let address = query.address.cut(candidate.length());
    A::block(query.context, address, hashed(candidate, query.port.unwrap_or(0)))
}

fn key_of_shape<A>(shape: u64, context: u32, prefix: A) -> Key<A> {
    let named = |any: u32, number: u64| (shape >> any & 1 == 0).then_some(number);
    Key {
        context,
        prefix,
        length: shape as u8,
        port: (shape & WILDCARD == 0).then_some((shape >> PORT) as u16),
        protocol: named(ANY_PROTOCOL, shape >> PROTOCOL).map(|number| number as u8),
        interface: named(ANY_INTERFACE, shape >> INTERFACE).map(|number| number as u16),
    }
}

/// Mask of the entry word that excludes the note.
const SHAPE: u64 = (1 << NOTE) - 1;

impl Layout for u32 {
    type Value = Value4;
    type Entry = [u64; 3];
    type Line = [AtomicU64; 8];
    type Block = [u64; 2];
    type Candidates = [u64; 1];
    const WORDS: usize = 8;
    const REGIONS: bool = true;

    #[inline(always)]
    fn line(words: &[AtomicU64], first: usize) -> Option<&Self::Line> {
        words.get(first..)?.first_chunk()
    }

    fn entry(key: &Key<u32>, value: Value4) -> [u64; 3] {
        [
            u64::from(key.context) << 32 | u64::from(key.prefix),
            shape(key) | u64::from(value.note) << NOTE,
            value.word,
        ]
    }

    fn open(entry: &[u64; 3]) -> (Key<u32>, Value4) {
        let key = key_of_shape(entry[1], (entry[0] >> 32) as u32, entry[0] as u32);
        (key, Self::value(entry))
    }

    fn same_key(one: &[u64; 3], other: &[u64; 3]) -> bool {
        one[0] == other[0] && (one[1] ^ other[1]) & SHAPE == 0
    }

    #[inline(always)]
    fn rank(entry: &[u64; 3], block: &[u64; 2], discriminator: u64) -> Option<u8> {
        rank(entry[1], block[1] | discriminator).filter(|_| entry[0] == block[0])
    }

    #[inline(always)]
    fn value(entry: &[u64; 3]) -> Value4 {
        Value4 {
            word: entry[2],
            note: (entry[1] >> NOTE) as u16,
        }
    }

    #[inline(always)]
    fn block(context: u32, masked: u32, hashed: u64) -> [u64; 2] {
        [u64::from(context) << 32 | u64::from(masked), hashed]
    }

    #[inline(always)]
    fn hash_one(hasher: &Hasher, block: &[u64; 2]) -> u64 {
        hasher.block(*block)
    }

    #[inline(always)]
    fn hash(hasher: &Hasher, blocks: &[[u64; 2]], out: &mut [u64]) {
        hasher.blocks(blocks, out);
    }

    #[inline(always)]
    fn first_bits(self) -> u32 {
        self
    }

    #[inline(always)]
    fn cut(self, length: u8) -> u32 {
        (u64::from(self) & u64::MAX << (32 - (length & 63))) as u32
    }
}

impl Layout for u128 {
    type Value = Value6;
    type Entry = [u64; 7];
    type Line = [AtomicU64; 16];
    type Block = [u64; 4];
    type Candidates = [u64; 4];
    const WORDS: usize = 16;
    const REGIONS: bool = false;

    #[inline(always)]
    fn line(words: &[AtomicU64], first: usize) -> Option<&Self::Line> {
        words.get(first..)?.first_chunk()
    }

    fn entry(key: &Key<u128>, value: Value6) -> [u64; 7] {
        let [high, low, context, _] = Self::block(key.context, key.prefix, 0);
        let [a, b, c] = value.0;
        [high, low, context, shape(key), a, b, c]
    }

    fn open(entry: &[u64; 7]) -> (Key<u128>, Value6) {
        let prefix = u128::from(entry[0]) << 64 | u128::from(entry[1]);
        (key_of_shape(entry[3], entry[2] as u32, prefix), Self::value(entry))
    }

    fn same_key(one: &[u64; 7], other: &[u64; 7]) -> bool {
        one[..4] == other[..4]
    }

    #[inline(always)]
    fn rank(entry: &[u64; 7], block: &[u64; 4], discriminator: u64) -> Option<u8> {
        rank(entry[3], block[3] | discriminator).filter(|_| entry[..3] == block[..3])
    }

    #[inline(always)]
    fn value(entry: &[u64; 7]) -> Value6 {
        Value6([entry[4], entry[5], entry[6]])
    }

    #[inline(always)]
    fn block(context: u32, masked: u128, hashed: u64) -> [u64; 4] {
        [(masked >> 64) as u64, masked as u64, u64::from(context), hashed]
    }

    fn hash_one(hasher: &Hasher, block: &[u64; 4]) -> u64 {
        let mut hash = [0];
        hasher.double_blocks(&[*block], &mut hash);
        hash[0]
    }

    #[inline(always)]
    fn hash(hasher: &Hasher, blocks: &[[u64; 4]], out: &mut [u64]) {
        hasher.double_blocks(blocks, out);
    }

    #[inline(always)]
    fn first_bits(self) -> u32 {
        (self >> 96) as u32
    }

    #[inline(always)]
    fn cut(self, length: u8) -> u128 {
        crate::prefix::Address::masked(self, length)
    }
}
