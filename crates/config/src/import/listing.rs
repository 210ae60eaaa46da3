//! Content of listings, in a form that both formats share.

use indexmap::{IndexMap, IndexSet};

use super::packets::Packets;
use super::sets::DeclaredSet;
use crate::schema::{RejectWith, Verdict};
use crate::value::PortRange;

/// Index of a line in [`Listing::lines`].
pub type LineIndex = usize;

/// A line with its position and text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Name of the line's file.
    pub file: String,
    /// Line number, counted from 1. `None` for a rule in JSON.
    pub line: Option<usize>,
    /// Identification in JSON: family, table, chain and handle.
    pub place: Option<String>,
    /// Text of the line, or JSON of the rule.
    pub text: String,
}

/// Content of all imported files together.
#[derive(Debug, Default)]
pub struct Listing {
    /// Lines to which reports may refer.
    pub lines: Vec<Line>,
    /// Tables in order.
    pub tables: Vec<Table>,
    /// Interfaces that occur in rules. The indexes of interfaces are the values of interface fields.
    pub interfaces: IndexSet<String>,
    /// Lines that the parser can't convert, with the reason.
    pub leftovers: Vec<(LineIndex, String)>,
    /// Lines that the parser converts to a different form, with a note.
    pub notes: Vec<(LineIndex, String)>,
    /// Changeable sets by name.
    pub sets: IndexMap<String, DeclaredSet>,
    /// For IPv4 and IPv6, whether all rules of the family are listed.
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
        // The highest number represents all interfaces that do not occur in rules.
        match number < 65_535 {
            true => Ok(number as u128),
            false => Err("the rules name too many interfaces".into()),
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
    /// The hook before connection tracking.
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
    /// Hook of a base chain. `None` for a chain that is reached only by jumps.
    pub hook: Option<Hook>,
    /// Priority. Chains with a lower priority number are evaluated first.
    pub priority: i64,
    /// Policy of a base chain.
    pub policy: Verdict,
    /// Rules of the chain.
    pub rules: Vec<Rule>,
}

/// A rule, or the reason for which it can't be converted.
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

/// Action of a rule on the matching packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Evaluate another chain, then continue with the next rule of this chain.
    Jump(String),
    /// Evaluate another chain, then return from this chain.
    Goto(String),
    /// Return from this chain.
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
    /// Accept. In NAT tables: do not translate.
    Accept,
    /// Accept without creating a session.
    AcceptUntracked,
    /// Exclude the packets from connection tracking. The action occurs only in chains before connection tracking.
    Notrack,
    /// Drop the packet.
    Drop,
    /// Drop the packet, and send a reply.
    Reject(RejectWith),
    /// Count the packet.
    Count,
    /// Log the packet.
    Log,
    /// Add the source address to a set.
    AddToSet(String),
    /// Translate the source address.
    Snat(Target),
    /// Translate the source to the address of the output interface and to a port of this range.
    Masquerade(Option<PortRange>),
    /// Translate the destination.
    Dnat(Target),
    /// Translate the destination to the address of the input interface and to a port of this range.
    Redirect(Option<PortRange>),
    /// Translate a network one to one to the network with this first and last address.
    Netmap(u32, u32),
}

/// Addresses and ports of a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// First and last address.
    pub addresses: (u32, u32),
    /// Range of ports, if ports are translated.
    pub ports: Option<PortRange>,
}

/// A decision on a set of packets.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Line from which the decision results.
    pub line: LineIndex,
    /// Number of the step within the line's rule.
    pub step: usize,
    /// Packets that match.
    pub packets: Packets,
    /// Action on the packets.
    pub action: Action,
    /// Name for the converted rule.
    pub name: Option<String>,
}

impl Decision {
    /// Whether the action ends the evaluation of the packets, so that later decisions do not apply.
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
