//! What was listed, in the terms that both ways of listing share.

use indexmap::{IndexMap, IndexSet};

use super::packets::Packets;
use super::sets::Known;
use crate::schema::{RejectWith, Verdict};
use crate::value::PortRange;

/// Number of a line, in [`Listing::lines`].
pub type LineIndex = usize;

/// Where something stands, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The file.
    pub file: String,
    /// Its line, counted from 1; none in JSON.
    pub line: Option<usize>,
    /// In JSON, what it is: family, table, chain and handle.
    pub place: Option<String>,
    /// The line, or the rule's JSON.
    pub text: String,
}

/// All files together.
#[derive(Debug, Default)]
pub struct Listing {
    /// Lines that something may be said about.
    pub lines: Vec<Line>,
    /// Tables in their order.
    pub tables: Vec<Table>,
    /// Interfaces that are named; their fields hold numbers of this list.
    pub interfaces: IndexSet<String>,
    /// Lines that are not carried over before anything is asked about them.
    pub leftovers: Vec<(LineIndex, String)>,
    /// Lines that are carried over in another form before anything is asked about them.
    pub notes: Vec<(LineIndex, String)>,
    /// Sets that change, by name.
    pub sets: IndexMap<String, Known>,
    /// Families whose rules are all here.
    pub complete: [bool; 2],
}

impl Listing {
    /// Remember a line.
    pub fn line(&mut self, line: Line) -> LineIndex {
        self.lines.push(line);
        self.lines.len() - 1
    }

    /// Number of an interface.
    pub fn interface(&mut self, name: &str) -> Result<u128, String> {
        let (number, _) = self.interfaces.insert_full(name.to_owned());
        // The largest stands for those that nothing names.
        match number < 65_535 {
            true => Ok(number as u128),
            false => Err("too many interfaces".into()),
        }
    }
}

/// A table of chains.
#[derive(Debug)]
pub struct Table {
    /// As messages name it.
    pub name: String,
    /// IPv4, IPv6 or both.
    pub families: Vec<bool>,
    /// Its chains by name.
    pub chains: IndexMap<String, Chain>,
}

/// Where a chain begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// What is not tracked.
    Raw,
    /// The filter of forwarded packets.
    Forward,
    /// The filter of packets to the gateway itself.
    Input,
    /// Translation before routing.
    Prerouting,
    /// Translation after routing.
    Postrouting,
    /// Something that has no counterpart.
    Other,
}

/// A chain of rules.
#[derive(Debug)]
pub struct Chain {
    /// Where it is declared.
    pub line: LineIndex,
    /// Where packets come to it; other chains lead there where not given.
    pub hook: Option<Hook>,
    /// Smaller ones are asked first.
    pub priority: i64,
    /// With a hook: what happens at its end.
    pub policy: Verdict,
    /// Its rules.
    pub rules: Vec<Rule>,
}

/// A rule, or why it can't be understood.
#[derive(Debug)]
pub struct Rule {
    /// Where it stands.
    pub line: LineIndex,
    /// What it means.
    pub meaning: Result<Meaning, String>,
}

/// What a rule means.
#[derive(Debug)]
pub struct Meaning {
    /// Packets that match; the boxes don't overlap.
    pub when: Vec<Packets>,
    /// What is done with them, in order.
    pub then: Vec<Step>,
    /// What it is to be called.
    pub name: Option<String>,
}

/// What is done with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask another chain, then go on here.
    Jump(String),
    /// Ask another chain, then go on where this one was asked.
    Goto(String),
    /// Go on where this chain was asked.
    Return,
    /// Something that ends here or has an effect.
    Do(Action),
}

impl Step {
    /// The chain that it asks.
    pub fn target(&self) -> Option<&str> {
        match self {
            Self::Jump(to) | Self::Goto(to) => Some(to),
            Self::Return | Self::Do(_) => None,
        }
    }
}

/// What a decision does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Pass; in tables of translation: leave as it is.
    Accept,
    /// Pass, and make no session.
    AcceptUntracked,
    /// Before connections are tracked: leave these packets out.
    Notrack,
    /// Drop.
    Drop,
    /// Drop and tell.
    Reject(RejectWith),
    /// Count.
    Count,
    /// Log.
    Log,
    /// Add the source address to a set.
    AddToSet(String),
    /// Another source address.
    Snat(Target),
    /// The address of the interface as source, from these ports.
    Masquerade(Option<PortRange>),
    /// Another destination.
    Dnat(Target),
    /// The address of the interface as destination, and one of these ports.
    Redirect(Option<PortRange>),
    /// One network in the place of another: first and last address.
    Netmap(u32, u32),
}

/// Addresses and ports that are put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// First and last address.
    pub addresses: (u32, u32),
    /// Ports, where they are changed.
    pub ports: Option<PortRange>,
}

/// Some packets and what happens to them.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The line that says so.
    pub line: LineIndex,
    /// Which of the line's steps.
    pub step: usize,
    /// Which.
    pub packets: Packets,
    /// What.
    pub action: Action,
    /// What it is to be called.
    pub name: Option<String>,
}

impl Decision {
    /// Whether nothing behind it is asked.
    pub fn decides(&self) -> bool {
        !matches!(
            self.action,
            Action::Count | Action::Log | Action::AddToSet(_) | Action::Notrack
        )
    }

    /// Whether the packets end here.
    pub fn refuses(&self) -> bool {
        matches!(self.action, Action::Drop | Action::Reject(_))
    }
}
