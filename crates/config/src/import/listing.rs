//! Content of listings, in a form common to both formats.

use indexmap::{IndexMap, IndexSet};

use super::packets::Packets;
use super::sets::Known;
use crate::schema::{RejectWith, Verdict};
use crate::value::PortRange;

/// Index of a line in [`Listing::lines`].
pub type LineIndex = usize;

/// A line with its place and text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Name of the file.
    pub file: String,
    /// Line number, counted from 1; `None` in JSON.
    pub line: Option<usize>,
    /// Identification in JSON: family, table, chain and handle.
    pub place: Option<String>,
    /// Text of the line, or JSON of the rule.
    pub text: String,
}

/// Content of all files together.
#[derive(Debug, Default)]
pub struct Listing {
    /// Lines that reports may refer to.
    pub lines: Vec<Line>,
    /// Tables in order.
    pub tables: Vec<Table>,
    /// Interfaces that rules name; their indexes are the values of interface fields.
    pub interfaces: IndexSet<String>,
    /// Lines that are already known not to be converted, with the reason.
    pub leftovers: Vec<(LineIndex, String)>,
    /// Lines that are already known to be converted to another form, with a note.
    pub notes: Vec<(LineIndex, String)>,
    /// Changeable sets by name.
    pub sets: IndexMap<String, Known>,
    /// Families whose rules are all listed.
    pub complete: [bool; 2],
}

impl Listing {
    /// Add a line; returns its index.
    pub fn line(&mut self, line: Line) -> LineIndex {
        self.lines.push(line);
        self.lines.len() - 1
    }

    /// Number of an interface.
    pub fn interface(&mut self, name: &str) -> Result<u128, String> {
        let (number, _) = self.interfaces.insert_full(name.to_owned());
        // The highest number stands for all interfaces that no rule names.
        match number < 65_535 {
            true => Ok(number as u128),
            false => Err("too many interfaces".into()),
        }
    }
}

/// A table with its chains.
#[derive(Debug)]
pub struct Table {
    /// Name in messages.
    pub name: String,
    /// Families of the table: IPv4, IPv6 or both.
    pub families: Vec<bool>,
    /// Chains by name.
    pub chains: IndexMap<String, Chain>,
}

/// Hook of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Before connection tracking.
    Raw,
    /// Filtering of forwarded packets.
    Forward,
    /// Filtering of packets to the gateway itself.
    Input,
    /// Translation before routing.
    Prerouting,
    /// Translation after routing.
    Postrouting,
    /// A hook without an equivalent.
    Other,
}

/// A chain of rules.
#[derive(Debug)]
pub struct Chain {
    /// Line of the declaration.
    pub line: LineIndex,
    /// Hook of a base chain; `None` for a chain that others jump to.
    pub hook: Option<Hook>,
    /// Priority; lower ones are evaluated first.
    pub priority: i64,
    /// Policy of a base chain.
    pub policy: Verdict,
    /// Rules of the chain.
    pub rules: Vec<Rule>,
}

/// A rule, or why it can't be converted.
#[derive(Debug)]
pub struct Rule {
    /// Line of the rule.
    pub line: LineIndex,
    /// Meaning of the rule.
    pub meaning: Result<Meaning, String>,
}

/// Meaning of a rule.
#[derive(Debug)]
pub struct Meaning {
    /// Matching packets, as hyperrectangles that don't overlap.
    pub when: Vec<Packets>,
    /// Actions on the packets, in order.
    pub then: Vec<Step>,
    /// Name for the converted rule.
    pub name: Option<String>,
}

/// A step on matching packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Evaluate another chain, then continue with the next rule.
    Jump(String),
    /// Evaluate another chain, then continue after the jump to this chain.
    Goto(String),
    /// Continue after the jump to this chain.
    Return,
    /// A verdict or an action.
    Do(Action),
}

impl Step {
    /// Chain that the step evaluates.
    pub fn target(&self) -> Option<&str> {
        match self {
            Self::Jump(to) | Self::Goto(to) => Some(to),
            Self::Return | Self::Do(_) => None,
        }
    }
}

/// Action of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Accept; in NAT tables: do not translate.
    Accept,
    /// Accept without creating a session.
    AcceptUntracked,
    /// Before connection tracking: exclude the packets from tracking.
    Notrack,
    /// Drop.
    Drop,
    /// Drop and reply.
    Reject(RejectWith),
    /// Count.
    Count,
    /// Log.
    Log,
    /// Add the source address to a set.
    AddToSet(String),
    /// Translate the source address.
    Snat(Target),
    /// Translate the source to the address of the output interface, with ports from this range.
    Masquerade(Option<PortRange>),
    /// Translate the destination.
    Dnat(Target),
    /// Translate the destination to the address of the input interface, with a port from this range.
    Redirect(Option<PortRange>),
    /// Translate one network to another one, given by its first and last address.
    Netmap(u32, u32),
}

/// Addresses and ports of a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// First and last address.
    pub addresses: (u32, u32),
    /// Ports, if they are translated.
    pub ports: Option<PortRange>,
}

/// A decision about packets.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Line of the decision.
    pub line: LineIndex,
    /// Number of the step within the line.
    pub step: usize,
    /// Packets that match.
    pub packets: Packets,
    /// Action on the packets.
    pub action: Action,
    /// Name for the converted rule.
    pub name: Option<String>,
}

impl Decision {
    /// Whether no later decision applies to the packets.
    pub fn decides(&self) -> bool {
        !matches!(
            self.action,
            Action::Count | Action::Log | Action::AddToSet(_) | Action::Notrack
        )
    }

    /// Whether the packets are dropped or rejected.
    pub fn refuses(&self) -> bool {
        matches!(self.action, Action::Drop | Action::Reject(_))
    }
}
