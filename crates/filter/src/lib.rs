//! The packet filter: rules over ranges of header fields, and matchers that find the first rule that matches.
//!
//! A rule is a box: a range per field. Of the rules that hold a packet's header the first in order decides. Every
//! [`Matcher`] gives the answer of [`Linear`], which compares rule by rule.
#![forbid(unsafe_code)]

mod classbench;
mod cut_tree;
mod field;
mod filter;
mod header;
mod interval;
mod linear;
mod reason;
mod rule;
mod trie;

pub use classbench::{ParseError, parse_classbench};
pub use cut_tree::{CapacityError, CutTree, VisitCounts};
pub use field::{Field, IpHeader, NONE};
pub use filter::{
    Action, AddressSet, ApplicationMatch, ChangeResult, CompiledRule, Conditions, Counter, Counters, DecidedBy,
    Element, ElementKind, ElementSet, Filter, FilterError, FilterResult, Filters, GatewayFilters, LOGGED, LogRecord,
    MacCondition, MacTable, Mark, MarkCondition, MatcherKind, Membership, PortSet, Rebuild, RejectKind, RuleList,
    RulePosition, SessionApplication, SessionMarking, SetFull, Sets, Settings, SharedSet, TrafficClass, Verdict,
};
pub use header::{Address, Header};
pub use linear::Linear;
pub use reason::Reason;
pub use rule::{FlagsMask, Range, Rule, RuleError};
pub use trie::{CachedTrie, ListSearch, NodeLists, SearchCounts, Trie, TrieTooLarge};

/// Place of a rule in its list, counted from 0: the lower one goes first.
pub type RuleNumber = u32;

/// Finds the first rule of a list that matches a header.
pub trait Matcher<A: Address> {
    /// What one core keeps between packets.
    type Cache: Send;

    /// A core's memory, empty.
    fn cache(&self) -> Self::Cache;

    /// The first rule that holds the header.
    fn first(&self, memory: &mut Self::Cache, header: &Header<A>) -> Option<RuleNumber>;

    /// The same of many, as far as both reach.
    fn first_of_batch(&self, memory: &mut Self::Cache, headers: &[Header<A>], found: &mut [Option<RuleNumber>]) {
        for (header, found) in headers.iter().zip(found) {
            *found = self.first(memory, header);
        }
    }

    /// Bytes that the matcher takes, rules included.
    fn bytes(&self) -> usize;

    /// Bytes of one core's memory.
    fn cache_bytes(&self) -> usize {
        0
    }
}
