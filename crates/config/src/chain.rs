//! Chains as the daemon uses them: references resolved.

use crate::config::{InterfaceIndex, RouterIndex};
use crate::filter::Selection;

/// The chains of a router. Packets begin at the one called `input`; no chain leads back to itself.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterChains {
    /// The router.
    pub router: RouterIndex,
    /// The chains in the order of the file.
    pub chains: Vec<Chain>,
}

/// A chain.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// Its steps.
    pub steps: Vec<Step>,
}

/// A step.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// How it is listed.
    pub text: String,
    /// What it does.
    pub action: StepAction,
}

/// What a step does; other chains by name.
#[derive(Clone, Debug, PartialEq)]
pub enum StepAction {
    /// Counts under a name.
    Count(String),
    /// What matches goes on at a chain.
    Classify(Box<Selection>, String),
    /// What is above a rate is dropped, or goes on at a chain. With a name the rate is for all that name it together.
    Police(Option<String>, PoliceRate, Option<String>),
    /// A copy leaves by an interface.
    Mirror(InterfaceIndex),
    /// All go on at a chain.
    To(String),
    /// All are dropped.
    Drop,
    /// To their sessions, and to be routed.
    Sessions,
    /// To be routed without a session.
    Forward,
}

/// A rate and what may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoliceRate {
    /// Packets a second, and packets.
    Packets(u64, u64),
    /// Bits a second, and bytes.
    Bits(u64, u64),
}

impl StepAction {
    /// The chain that some packets, or all, go on at.
    pub fn to(&self) -> Option<&String> {
        match self {
            Self::Classify(_, to) | Self::To(to) => Some(to),
            Self::Police(_, _, exceed) => exceed.as_ref(),
            _ => None,
        }
    }
}
