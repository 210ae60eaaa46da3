//! The cycles of a worker, by purpose.

use crate::placement::{Core, Part};

/// Purpose for which a worker uses cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A part of packet processing.
    Part(Part),
    /// Handing packets over to other workers.
    HandOver,
    /// Taking packets over from other workers.
    TakeOver,
    /// Receiving into buffers that other workers used last.
    Return,
}

impl Item {
    /// Name of the item in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Part(part) => part.name(),
            Self::HandOver => "hand-over",
            Self::TakeOver => "take-over",
            Self::Return => "return of buffers",
        }
    }
}

/// Cycles of a worker per packet that is offered to the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerLoad {
    /// Core of the worker.
    pub core: Core,
    /// Cycles by part, in the order of [`Part::ALL`].
    pub parts: [f64; 4],
    /// Cycles for handing packets over to other workers.
    pub given: f64,
    /// Cycles for taking packets over from other workers.
    pub taken: f64,
    /// Cycles for receiving into buffers that other workers used last.
    pub returned: f64,
    /// Factor that accounts for a busy sibling hyperthread.
    pub slowdown: f64,
}

impl WorkerLoad {
    pub(super) fn none(core: Core) -> Self {
        Self {
            core,
            parts: [0.0; 4],
            given: 0.0,
            taken: 0.0,
            returned: 0.0,
            slowdown: 1.0,
        }
    }

    /// Total cycles of the worker, including the slowdown.
    pub fn cycles(&self) -> f64 {
        (self.parts.iter().sum::<f64>() + self.given + self.taken + self.returned) * self.slowdown
    }

    /// The item that needs the most cycles.
    pub fn most(&self) -> Item {
        let parts = Part::ALL.map(|part| (self.parts[part as usize], Item::Part(part)));
        let others = [
            (self.given, Item::HandOver),
            (self.taken, Item::TakeOver),
            (self.returned, Item::Return),
        ];
        let all = parts.into_iter().chain(others);
        all.max_by(|one, other| one.0.total_cmp(&other.0))
            .map_or(Item::Part(Part::Session), |(_, item)| item)
    }
}
