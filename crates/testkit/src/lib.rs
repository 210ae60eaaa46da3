//! Test support: packets built by an independent library, strategies for them, a virtual clock, a ledger of counters,
//! captures of failures, and simulated file systems of machines with network cards.
#![forbid(unsafe_code)]

pub mod capture;
pub mod clock;
pub mod hostile;
pub mod layers;
pub mod ledger;
pub mod machine;
pub mod packet;
pub mod process;
pub mod strategy;

pub use clock::Clock;
pub use layers::Layers;
pub use ledger::Ledger;
pub use machine::Machine;
pub use packet::Frame;
