//! The packet filter: rules over ranges of header fields, and matchers that find the first rule that matches.
//!
//! A rule is a box: a range per field. Of the rules that hold a packet's header the first in order decides. Every
//! [`Matcher`] gives the answer of [`Linear`], which compares rule by rule.
#![forbid(unsafe_code)]

mod best;
mod classbench;
mod filter;
mod header;
mod interval;
mod linear;
mod reason;
mod rule;
mod trie;

pub use best::{Best, Full, Visits};
pub use classbench::{NotARule, parse_classbench};
pub use filter::{
    Action, AddressSet, By, Change, Conditions, Counter, Counters, Element, ElementKind, ElementSet, Fate, Filter,
    FilterError, Filters, Fold, GatewayFilters, Kind, Known, LOGGED, LogRecord, Macs, Mark, Marked, Marking,
    Membership, Named, Place, PortSet, RuleList, SetFull, Sets, Settings, Shared, Stations, TrafficClass, Verdict,
    With, Written,
};
pub use header::{Address, Field, Header, NONE};
pub use linear::Linear;
pub use reason::Reason;
pub use rule::{Impossible, Mask, Range, Rule};
pub use trie::{CachedTrie, Lists, Probe, Searches, TooLarge, Trie};

/// Place of a rule in its list, counted from 0: the lower one goes first.
pub type RuleNumber = u32;

/// Finds the first rule of a list that matches a header.
pub trait Matcher<A: Address> {
    /// What one core keeps between packets.
    type Memory: Send;

    /// A core's memory, empty.
    fn memory(&self) -> Self::Memory;

    /// The first rule that holds the header.
    fn first(&self, memory: &mut Self::Memory, header: &Header<A>) -> Option<RuleNumber>;

    /// The same of many, as far as both reach.
    fn first_of_each(&self, memory: &mut Self::Memory, headers: &[Header<A>], found: &mut [Option<RuleNumber>]) {
        for (header, found) in headers.iter().zip(found) {
            *found = self.first(memory, header);
        }
    }

    /// Bytes that the matcher takes, rules included.
    fn bytes(&self) -> usize;

    /// Bytes of one core's memory.
    fn memory_bytes(&self) -> usize {
        0
    }
}
