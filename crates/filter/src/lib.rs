//! The packet filter: rules over ranges of header fields, and matchers that find the first matching rule.
//!
//! A rule is a hyperrectangle: it has a range for each field. Among the rules that match a packet's header, the first
//! rule decides. Every [`Matcher`] gives the same result as [`Linear`], which compares the rules one by one.
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

/// Number of a rule. If several rules match, the lowest number takes precedence.
pub type RuleNumber = u32;

/// Finds the first rule of a list that matches a header.
pub trait Matcher<A: Address> {
    /// State that a core keeps between lookups.
    type Cache: Send;

    /// Creates empty state for a core.
    fn cache(&self) -> Self::Cache;

    /// The first rule that matches the header.
    fn first(&self, memory: &mut Self::Cache, header: &Header<A>) -> Option<RuleNumber>;

    /// The first matching rule for each header. If the slices differ in length, only as many headers are matched as the
    /// shorter slice has elements.
    fn first_of_batch(&self, memory: &mut Self::Cache, headers: &[Header<A>], found: &mut [Option<RuleNumber>]) {
        for (header, found) in headers.iter().zip(found) {
            *found = self.first(memory, header);
        }
    }

    /// Size of the matcher in bytes, including the rules.
    fn bytes(&self) -> usize;

    /// Size of a core's state in bytes.
    fn cache_bytes(&self) -> usize {
        0
    }
}
