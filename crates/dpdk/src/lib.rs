//! Implementation of the engine's packet I/O with DPDK. Only this crate calls DPDK's unsafe functions.
//!
//! An [`Eal`] runs once per process. [`Devices::open`] creates ports, pools and rings from a [`Plan`]. It also creates
//! a [`DpdkIo`] for each worker, with access to these resources. [`device`] and [`driver`] work without a running DPDK:
//! these modules parse device names, choose drivers and report the limits of drivers in advance.

pub mod acl;
pub mod buffers;
pub mod burst_buffers;
mod coalescing;
pub mod device;
pub mod driver;
pub mod eal;
pub mod fib;
mod handover;
#[doc(hidden)]
pub mod injection;
pub mod interface;
pub mod listener;
mod mbufs;
pub mod memory;
mod moderation;
pub mod pci;
pub mod pool;
pub mod port;
mod presence;
mod ring;
mod set;
pub mod steering;
mod sys;
pub mod tap;
pub mod tcp_md5;
pub mod tsc;
pub mod workers;

pub use burst_buffers::BurstBuffers;
pub use device::{Device, PciAddress};
pub use driver::{Driver, DriverLimit, limits};
pub use eal::{Eal, EalError, EalRequirements};
pub use mbufs::WorkerMbufs;
pub use pool::PoolBalance;
pub use port::{Port, PortPlan};
pub use ring::RingError;
pub use set::{Closed, Devices, DpdkIo, Plan, SetError, StillInUse};
pub use steering::{HashKey, Steered, Steering, SteeringError};
