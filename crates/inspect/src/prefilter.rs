//! Which signatures are worth asking about: one pattern of each rule is searched for, all at once.
//!
//! [`Plan`] chooses the patterns, [`Plan::compile`] makes a database for each [`Class`] of data, [`Group::rules`] says
//! which rules a match stands for. Patterns are literals: of contents, or what every match of an expression holds. A rule of
//! which nothing can be searched for is listed in [`Prefilter::unconditional`], one of which next to nothing can be in
//! [`Prefilter::unsearched`]. The patterns are necessary and never sufficient: whoever is told of a candidate asks the
//! whole rule, `fast_pattern:only` included.
//!
//! Expressions themselves are not searched for: the automata of Vectorscan 5.4 miss some matches, its search for literals
//! none.
//!
//! Compiling takes long and much memory, so that it may be done in another process: [`Prefilter::store`] there,
//! [`Prefilter::load`] here.

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

/// Data that is searched by itself, with patterns of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PatternClass {
    /// What is sent over TCP towards one side, in order; searched in streaming mode, a message at a time: the stream
    /// is finished where a message ends, as `^` and `$` mean its begin and end.
    Stream(Toward),
    /// Payload of single TCP segments, for rules about the segment itself (`dsize`, `flags`, …).
    Packet,
    /// Payload of what is not TCP.
    Datagram,
    /// A buffer of a protocol; never [`Buffer::Payload`] nor [`Buffer::Base64`], which exists only while a rule is asked.
    Buffer(Buffer),
}

/// In the order of their numbers.
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

    /// Its place among all classes.
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

/// Why there is no prefilter at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Vectorscan failed.
    #[error("patterns of {class:?}: {source}")]
    Class {
        /// Whose patterns were compiled.
        class: PatternClass,
        /// What it said.
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
    /// Rules of all patterns, those of pattern n from `starts[n]` to `starts[n + 1]`.
    rules: Box<[u32]>,
    starts: Box<[u32]>,
    shortest: u32,
    longest: u32,
}

impl PatternGroup {
    /// Whose patterns they are.
    pub fn class(&self) -> PatternClass {
        self.class
    }

    /// The database; `None` for [`Class::Stream`].
    pub fn block(&self) -> Option<&Database<Block>> {
        match &self.search {
            Search::Block(database) => Some(database),
            Search::Stream(_) => None,
        }
    }

    /// The database of [`Class::Stream`].
    pub fn stream(&self) -> Option<&Arc<Database<Streaming>>> {
        match &self.search {
            Search::Block(_) => None,
            Search::Stream(database) => Some(database),
        }
    }

    /// Positions, among the signatures, of the rules that a match of this identifier stands for; sorted.
    pub fn rules(&self, id: u32) -> &[u32] {
        let at = id as usize;
        match (self.starts.get(at), self.starts.get(at + 1)) {
            (Some(&begin), Some(&end)) => &self.rules[begin as usize..end as usize],
            _ => &[],
        }
    }

    /// Number of patterns: their identifiers are those below it.
    pub fn patterns(&self) -> usize {
        self.starts.len() - 1
    }

    /// Bytes of the database.
    pub fn size(&self) -> usize {
        match &self.search {
            Search::Block(database) => database.size(),
            Search::Stream(database) => database.size(),
        }
    }

    /// Bytes of the shortest match.
    pub fn shortest(&self) -> u32 {
        self.shortest
    }

    /// Bytes of the longest match.
    pub fn longest(&self) -> u32 {
        self.longest
    }

    /// How many bytes before the new ones must be scanned with them where a buffer grows.
    pub fn overlap(&self) -> usize {
        self.longest.saturating_sub(1) as usize
    }
}

/// What finds the signatures that are worth asking about.
#[derive(Debug)]
pub struct Prefilter {
    /// By class.
    groups: [Option<PatternGroup>; PatternClass::COUNT],
    unconditional: Vec<(Protocol, Box<[u32]>)>,
    /// By class.
    unsearched: [Box<[u32]>; PatternClass::COUNT],
    fingerprint: Fingerprint,
}

impl Prefilter {
    /// The patterns of a class; `None`: no rule asks for any.
    pub fn group(&self, class: PatternClass) -> Option<&PatternGroup> {
        self.groups[class.index()].as_ref()
    }

    /// All classes that have patterns.
    pub fn groups(&self) -> impl Iterator<Item = &PatternGroup> {
        self.groups.iter().flatten()
    }

    /// Positions of the rules, of this protocol in their header, that are to be asked without anything found; sorted.
    pub fn unconditional(&self, protocol: Protocol) -> &[u32] {
        let of_protocol = self.unconditional.iter().find(|(of, _)| *of == protocol);
        of_protocol.map_or(&[], |(_, rules)| rules)
    }

    /// Positions of the rules that are to be asked about all data of a class that comes or goes by their ports, without anything
    /// found; sorted. What could be searched for is too short, or nobody knows what it is.
    pub fn unsearched(&self, class: PatternClass) -> &[u32] {
        &self.unsearched[class.index()]
    }

    /// [`Prefilter::unconditional`] of all protocols.
    pub fn all_unconditional(&self) -> impl Iterator<Item = u32> {
        self.unconditional.iter().flat_map(|(_, rules)| rules.iter().copied())
    }

    /// What it was made from.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Scans that were written down, to be done again; with so many streams in each direction.
    ///
    /// # Errors
    /// There is no memory.
    pub fn replay(&self, streams: u32) -> Result<Replay<'_>, vectorscan::Error> {
        let blocks = self.groups().filter_map(PatternGroup::block).collect();
        let pools: Vec<_> = self.groups().filter_map(|group| group.stream().cloned()).collect();
        Replay::new(blocks, &pools, streams)
    }

    /// A scratch that serves every class; each core takes a clone.
    pub fn scratch(&self) -> Result<Scratch, vectorscan::Error> {
        let mut scratch = Scratch::new();
        self.serve(&mut scratch)?;
        Ok(scratch)
    }

    /// Grow a scratch to serve every class, too.
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
