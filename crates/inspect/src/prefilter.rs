//! The prefilter finds the candidate rules: it searches for one pattern of each rule, and for all patterns in one pass.
//!
//! [`PatternSet`] chooses the patterns, [`PatternSet::compile`] compiles a database for each [`PatternClass`] of data,
//! and [`PatternGroup::rules`] maps a match to its rules. Patterns are literals: contents, or strings that every match
//! of an expression contains. [`Prefilter::unconditional`] lists the rules without any pattern;
//! [`Prefilter::without_pattern`] lists the rules whose patterns are too short to be searched for. A match of a pattern
//! is necessary for its rule, never sufficient: every candidate is evaluated completely, even a rule with
//! `fast_pattern:only`.
//!
//! The prefilter does not search for the expressions themselves, because the automata of Vectorscan 5.4 miss some matches.
//! Vectorscan's search for literals misses none.
//!
//! Compilation takes a long time and needs much memory, so another process can do it. That process saves the result
//! with [`Prefilter::store`], and this process reads it with [`Prefilter::load`].

mod bytes;
mod cache;
mod choice;
mod pattern_set;
mod rarity;
mod required_literal;

use std::sync::Arc;

use crate::bindings::vectorscan::{self, Block, Database, Replay, Scratch, Streaming};
use crate::signature::{Buffer, Protocol, Toward};

pub use bytes::Truncated;
pub use cache::CacheError;
pub use choice::anchor_content;
pub use pattern_set::{Fingerprint, PatternSet};

/// A class of data that is searched separately, with its own patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PatternClass {
    /// TCP stream data of one direction, in order. The data is searched in streaming mode, one message at a time: the
    /// Vectorscan stream is closed at the end of each message, because `^` and `$` match at the message boundaries.
    Stream(Toward),
    /// Payload of single TCP segments, for rules that test segments (`dsize`, `flags`, …).
    Packet,
    /// Payload of packets other than TCP.
    Datagram,
    /// A buffer of a protocol. Two buffers are excluded: [`Buffer::Payload`], and [`Buffer::Base64`], which exists only
    /// during the evaluation of a rule.
    Buffer(Buffer),
}

/// All buffers in the order of their numbers.
const BUFFERS: [Buffer; 39] = [
    Buffer::Payload,
    Buffer::HttpUri,
    Buffer::HttpRawUri,
    Buffer::HttpMethod,
    Buffer::HttpHeader,
    Buffer::HttpRawHeader,
    Buffer::HttpHost,
    Buffer::HttpRawHost,
    Buffer::HttpCookie,
    Buffer::HttpUserAgent,
    Buffer::HttpClientBody,
    Buffer::HttpStatusCode,
    Buffer::HttpStatusMessage,
    Buffer::FileData,
    Buffer::DnsQuery,
    Buffer::TlsSni,
    Buffer::Ja3Hash,
    Buffer::Ja3sHash,
    Buffer::Ja4Hash,
    Buffer::TlsCertSubject,
    Buffer::TlsCertIssuer,
    Buffer::TlsCertSerial,
    Buffer::TlsCertFingerprint,
    Buffer::TlsVersion,
    Buffer::TlsAlpn,
    Buffer::SmtpHelo,
    Buffer::SmtpMailFrom,
    Buffer::SmtpRecipient,
    Buffer::FtpDataCommand,
    Buffer::FtpCommand,
    Buffer::FtpCommandData,
    Buffer::FtpCompletionCode,
    Buffer::FtpReply,
    Buffer::FtpMode,
    Buffer::FtpDynamicPort,
    Buffer::FileMd5,
    Buffer::FileSha1,
    Buffer::FileSha256,
    Buffer::Base64,
];

impl PatternClass {
    const COUNT: usize = 4 + BUFFERS.len();

    /// Index of the class.
    fn index(self) -> usize {
        match self {
            PatternClass::Stream(Toward::Server) => 0,
            PatternClass::Stream(Toward::Client) => 1,
            PatternClass::Packet => 2,
            PatternClass::Datagram => 3,
            PatternClass::Buffer(buffer) => 4 + buffer as usize,
        }
    }

    fn from_index(index: usize) -> Option<PatternClass> {
        Some(match index {
            0 => PatternClass::Stream(Toward::Server),
            1 => PatternClass::Stream(Toward::Client),
            2 => PatternClass::Packet,
            3 => PatternClass::Datagram,
            _ => PatternClass::Buffer(*BUFFERS.get(index - 4)?),
        })
    }
}

/// Why the prefilter can't be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Vectorscan failed to compile patterns.
    #[error("patterns of {class:?}: {source}")]
    Class {
        /// Class of the patterns.
        class: PatternClass,
        /// Error that Vectorscan returned.
        source: vectorscan::Error,
    },
}

#[derive(Debug)]
enum Search {
    Block(Database<Block>),
    Stream(Arc<Database<Streaming>>),
}

/// The patterns of a class.
#[derive(Debug)]
pub struct PatternGroup {
    class: PatternClass,
    search: Search,
    /// Rules of all patterns. The rules of pattern n are in `starts[n]..starts[n + 1]`.
    rules: Box<[u32]>,
    starts: Box<[u32]>,
    shortest: u32,
    longest: u32,
}

impl PatternGroup {
    /// Class of the patterns.
    pub fn class(&self) -> PatternClass {
        self.class
    }

    /// The block-mode database; `None` for [`PatternClass::Stream`].
    pub fn block(&self) -> Option<&Database<Block>> {
        match &self.search {
            Search::Block(database) => Some(database),
            Search::Stream(_) => None,
        }
    }

    /// The streaming-mode database of [`PatternClass::Stream`].
    pub fn stream(&self) -> Option<&Arc<Database<Streaming>>> {
        match &self.search {
            Search::Block(_) => None,
            Search::Stream(database) => Some(database),
        }
    }

    /// Sorted indices of the rules that have this pattern.
    pub fn rules(&self, id: u32) -> &[u32] {
        let at = id as usize;
        match (self.starts.get(at), self.starts.get(at + 1)) {
            (Some(&start), Some(&end)) => &self.rules[start as usize..end as usize],
            _ => &[],
        }
    }

    /// Number of patterns. All pattern identifiers are below this number.
    pub fn patterns(&self) -> usize {
        self.starts.len() - 1
    }

    /// Size of the database in bytes.
    pub fn size(&self) -> usize {
        match &self.search {
            Search::Block(database) => database.size(),
            Search::Stream(database) => database.size(),
        }
    }

    /// Length of the shortest pattern in bytes.
    pub fn shortest(&self) -> u32 {
        self.shortest
    }

    /// Length of the longest pattern in bytes.
    pub fn longest(&self) -> u32 {
        self.longest
    }

    /// Number of preceding bytes that must be scanned together with the new bytes of a growing buffer.
    pub fn overlap(&self) -> usize {
        self.longest.saturating_sub(1) as usize
    }
}

/// The prefilter: finds the candidate rules for data.
#[derive(Debug)]
pub struct Prefilter {
    /// Pattern groups, indexed by class.
    groups: [Option<PatternGroup>; PatternClass::COUNT],
    unconditional: Vec<(Protocol, Box<[u32]>)>,
    /// Rules that have only patterns too short for the search, indexed by class.
    without_pattern: [Box<[u32]>; PatternClass::COUNT],
    fingerprint: Fingerprint,
}

impl Prefilter {
    /// The patterns of a class; `None` if no rule has a pattern of this class.
    pub fn group(&self, class: PatternClass) -> Option<&PatternGroup> {
        self.groups[class.index()].as_ref()
    }

    /// All classes that have patterns.
    pub fn groups(&self) -> impl Iterator<Item = &PatternGroup> {
        self.groups.iter().flatten()
    }

    /// Sorted indices of the rules that have this protocol in their header and must be evaluated without a pattern
    /// match.
    pub fn unconditional(&self, protocol: Protocol) -> &[u32] {
        let of_protocol = self.unconditional.iter().find(|(of, _)| *of == protocol);
        of_protocol.map_or(&[], |(_, rules)| rules)
    }

    /// Sorted indices of the rules that must be evaluated without a pattern match, for all data of a class on their
    /// ports. The patterns of these rules are unknown or too short for the search.
    pub fn without_pattern(&self, class: PatternClass) -> &[u32] {
        &self.without_pattern[class.index()]
    }

    /// Rules of [`Prefilter::unconditional`] for all protocols.
    pub fn all_unconditional(&self) -> impl Iterator<Item = u32> {
        self.unconditional.iter().flat_map(|(_, rules)| rules.iter().copied())
    }

    /// Fingerprint of the patterns from which the prefilter was compiled.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Prepares the replay of recorded scans, with `streams` streams in each direction.
    ///
    /// # Errors Returns an error if no memory is left.
    pub fn replay(&self, streams: u32) -> Result<Replay<'_>, vectorscan::Error> {
        let blocks = self.groups().filter_map(PatternGroup::block).collect();
        let pools: Vec<_> = self.groups().filter_map(|group| group.stream().cloned()).collect();
        Replay::new(blocks, &pools, streams)
    }

    /// A scratch that is large enough for every class. Each core clones this scratch.
    pub fn scratch(&self) -> Result<Scratch, vectorscan::Error> {
        let mut scratch = Scratch::new();
        self.serve(&mut scratch)?;
        Ok(scratch)
    }

    /// Enlarges a scratch so that it is large enough for every class of this prefilter.
    pub fn serve(&self, scratch: &mut Scratch) -> Result<(), vectorscan::Error> {
        for group in self.groups() {
            match &group.search {
                Search::Block(database) => scratch.serve(database)?,
                Search::Stream(database) => scratch.serve(database)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
