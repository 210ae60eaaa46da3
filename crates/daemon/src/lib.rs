//! The daemon: it converts a valid configuration to the parameters of the data plane, and serves the control API.

#![forbid(unsafe_code)]

mod alerts;
mod api;
pub mod bind;
mod bridges;
mod cards;
pub mod compiling;
mod control;
pub mod counters;
mod devices;
mod eve;
#[cfg(test)]
mod faults;
mod files;
mod filter;
mod handle;
mod health;
pub mod host;
mod hosts;
mod known;
mod links;
mod load;
mod log;
pub mod lowering;
mod machine;
mod management;
mod numbers;
mod packet_text;
mod pcapng;
pub mod plan;
mod ports;
mod rebalance;
pub mod replay;
pub mod routing;
mod rules;
mod run;
mod shares;
mod sites;
mod socket;
mod start;
pub mod subscribers;
pub mod topology;
mod uplinks;
mod watchdog;
mod workers;

pub use sluice_config as config;
pub use sluice_dpdk::Plan as PortsPlan;
pub use sluice_engine::snapshot::stages::Stages;

pub use cards::{buffer_memory, hugepages};
pub use filter::{FilterOutlook, filter_outlook};
pub use load::{Loaded, load, load_for_replay, read_text};
pub use lowering::{SignatureError, SignatureReport, signatures};
pub use machine::{MachineError, core_list, machine};
pub use ports::{Outlook, outlook, plan};
pub use routing::key_faults;
pub use run::run;
pub use shares::Shares;

use std::path::PathBuf;

use sluice_config::Diagnosis;

/// Why the process could not start, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// A file can't be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the kernel.
        error: std::io::Error,
    },
    /// Cores or memory of the machine can't be read.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The configuration is invalid.
    #[error("{0}")]
    Configuration(Diagnosis),
    /// A replay failed.
    #[error(transparent)]
    Replay(#[from] Box<replay::ReplayError>),
    /// A plan can't be computed.
    #[error(transparent)]
    Plan(#[from] Box<plan::PlanError>),
    /// The control socket can't be created.
    #[error(transparent)]
    Socket(#[from] socket::SocketError),
    /// DPDK can't be started.
    #[error(transparent)]
    Eal(#[from] sluice_dpdk::EalError),
    /// Devices, buffer pools or rings can't be created.
    #[error(transparent)]
    Devices(Box<sluice_dpdk::SetError>),
    /// Memory for the tables can't be allocated.
    #[error(transparent)]
    Memory(#[from] sluice_dpdk::memory::MemoryError),
    /// A worker can't be started.
    #[error(transparent)]
    Worker(#[from] sluice_dpdk::workers::WorkerError),
    /// The host stack of a router can't be created.
    #[error(transparent)]
    Host(#[from] host::HostError),
    /// Virtual MACs for sites can't be set up.
    #[error(transparent)]
    VirtualMac(#[from] subscribers::virtual_mac::VirtualMacError),
    /// The subscriber service can't be started.
    #[error(transparent)]
    Subscribers(#[from] subscribers::SubscribersError),
    /// A worker ended.
    #[error(transparent)]
    WorkerEnded(#[from] handle::WorkerEnded),
    /// The configuration can't be converted to engine parameters.
    #[error(transparent)]
    Lowering(#[from] lowering::LoweringError),
    /// The process that compiles inspection rules failed.
    #[error(transparent)]
    Compiling(#[from] compiling::ChildError),
    /// Inspection rules can't be loaded.
    #[error(transparent)]
    Signatures(#[from] lowering::SignatureError),
    /// Records can't be written.
    #[error("{}: {error}: see `eve` under [inspection]", path.display())]
    Eve {
        /// Path of the file or socket.
        path: std::path::PathBuf,
        /// Error of the kernel.
        error: std::io::Error,
    },
    /// The data plane can't be created.
    #[error(transparent)]
    Plane(#[from] sluice_engine::control::plane::ControlPlaneError),
    /// The kernel provides no random numbers.
    #[error("the kernel provides no random numbers: {0}")]
    Randomness(getrandom::Error),
    /// The control thread can't be started.
    #[error("the control thread can't be started: {0}")]
    Runtime(std::io::Error),
    /// Standard output can't be written.
    #[error("the counters can't be printed: {0}")]
    Output(std::io::Error),
}
