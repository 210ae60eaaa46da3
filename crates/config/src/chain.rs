//! Chains as the daemon uses them, with references resolved.

use crate::config::{InterfaceIndex, RouterIndex};
use crate::filter::Selection;

/// The chains of a router. Packets enter at the chain `input`. Chains must not form a loop.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterChains {
    /// Router of the chains.
    pub router: RouterIndex,
    /// Chains in the order of the file.
    pub chains: Vec<Chain>,
}

/// A chain.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// Name of the chain.
    pub name: String,
    /// Steps of the chain.
    pub steps: Vec<Step>,
}

/// A step of a chain.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Description of the step for lists.
    pub text: String,
    /// Action of the step.
    pub action: StepAction,
}

/// Action of a step. References to other chains are by name.
#[derive(Clone, Debug, PartialEq)]
pub enum StepAction {
    /// Count packets under a name.
    Count(String),
    /// Packets that match continue at a chain.
    Classify(Box<Selection>, String),
    /// Packets above a rate are dropped, or continue at a chain. Steps with the same policer name share one rate.
    Police(Option<String>, PoliceRate, Option<String>),
    /// Send a copy of each packet on an interface.
    Mirror(InterfaceIndex),
    /// All packets continue at a chain.
    To(String),
    /// Drop all packets.
    Drop,
    /// Look up the session of a packet, then route the packet.
    Sessions,
    /// Route packets without a session lookup.
    Forward,
}

/// A rate with its burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoliceRate {
    /// Packets per second, and burst in packets.
    Packets(u64, u64),
    /// Bits per second, and burst in bytes.
    Bits(u64, u64),
}

impl StepAction {
    /// Chain at which all packets, or those to which the step applies, continue.
    pub fn to(&self) -> Option<&String> {
        match self {
            Self::Classify(_, to) | Self::To(to) => Some(to),
            Self::Police(_, _, exceed) => exceed.as_ref(),
            _ => None,
        }
    }
}
