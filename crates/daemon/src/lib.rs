//! The process: it turns a valid configuration into the parameters of the data plane, and serves the control API.

#![forbid(unsafe_code)]

mod alerts;
mod api;
pub mod bind;
mod bridges;
mod cards;
pub mod compiling;
mod control;
mod desk;
mod devices;
mod eve;
#[cfg(test)]
mod faults;
mod files;
mod filter;
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
    /// A file that can't be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// What the kernel says.
        error: std::io::Error,
    },
    /// The machine could not be asked.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A wrong configuration.
    #[error("{0}")]
    Configuration(Diagnosis),
    /// A replay that fails.
    #[error(transparent)]
    Replay(#[from] Box<replay::ReplayError>),
    /// A plan that can't be made.
    #[error(transparent)]
    Plan(#[from] Box<plan::PlanError>),
    /// No control socket.
    #[error(transparent)]
    Socket(#[from] socket::SocketError),
    /// DPDK does not start.
    #[error(transparent)]
    Eal(#[from] sluice_dpdk::EalError),
    /// Devices, pools or rings can't be had.
    #[error(transparent)]
    Devices(Box<sluice_dpdk::SetError>),
    /// The memory of the tables can't be had.
    #[error(transparent)]
    Memory(#[from] sluice_dpdk::memory::MemoryError),
    /// A worker can't be had.
    #[error(transparent)]
    Worker(#[from] sluice_dpdk::workers::WorkerError),
    /// The host of a router can't be had.
    #[error(transparent)]
    Host(#[from] host::HostError),
    /// Sites that can't be seen by MACs of their own.
    #[error(transparent)]
    VirtualMac(#[from] subscribers::virtual_mac::VirtualMacError),
    /// Sites can't be served.
    #[error(transparent)]
    Subscribers(#[from] subscribers::SubscribersError),
    /// A worker ended.
    #[error(transparent)]
    Gone(#[from] desk::Gone),
    /// A configuration without parameters.
    #[error(transparent)]
    Lowering(#[from] lowering::LoweringError),
    /// The process that compiles rules fails.
    #[error(transparent)]
    Compiling(#[from] compiling::ChildError),
    /// No rules to inspect by.
    #[error(transparent)]
    Signatures(#[from] lowering::SignatureError),
    /// Records can't be written.
    #[error("{}: {error}: see `eve` under [inspection]", path.display())]
    Eve {
        /// The file or socket.
        path: std::path::PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// A data plane that can't be made.
    #[error(transparent)]
    Plane(#[from] sluice_engine::control::plane::ControlPlaneError),
    /// The kernel has no randomness.
    #[error("the kernel gives no random numbers: {0}")]
    Randomness(getrandom::Error),
    /// The control thread can't be had.
    #[error("the control thread can't run: {0}")]
    Runtime(std::io::Error),
    /// Standard output is gone.
    #[error("the counters can't be printed: {0}")]
    Output(std::io::Error),
}
