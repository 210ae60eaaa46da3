//! Gateways between generator and sink.

pub mod linux;
mod sites;
pub mod sluice;

use std::path::Path;

use super::inside::Outside;
use super::topology::Topology;
use crate::rows::Failure;

pub use sluice::{Stages, Times};

/// A gateway to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Case {
    /// No gateway: packets are dropped at the ingress of its interface, which shows the capacity of generator and link.
    Generator,
    /// Linux redirects every frame unchanged from one link to the other. Redirection is the minimum work of a gateway
    /// in the kernel.
    Redirect,
    /// Linux forwards.
    LinuxForward,
    /// Linux translates by iptables.
    Iptables,
    /// Linux translates by nftables, with a list of rules.
    NftablesLinear,
    /// Linux translates by nftables, with a map.
    NftablesMap,
    /// Sluice forwards.
    SluiceForward,
    /// Sluice translates.
    Sluice,
}

impl Case {
    pub fn translates(self) -> bool {
        matches!(
            self,
            Self::Iptables | Self::NftablesLinear | Self::NftablesMap | Self::Sluice
        )
    }

    pub fn is_sluice(self) -> bool {
        matches!(self, Self::SluiceForward | Self::Sluice)
    }
}

/// A running gateway, which is stopped when this value is dropped.
#[derive(Debug)]
pub struct Gateway {
    sluice: Option<sluice::Process>,
}

impl Gateway {
    /// Starts a gateway with this number of source-NAT rules, for at most `sessions` sessions.
    pub fn start(
        case: Case,
        rules: u32,
        topology: &Topology,
        program: &Path,
        napi_thread: bool,
        outside: &mut Outside<'_>,
    ) -> Result<Self, Failure> {
        if case.is_sluice() {
            let rules = if case.translates() { rules } else { 0 };
            let sluice = sluice::Process::start(rules, topology, program)?;
            if napi_thread {
                sluice::receive_in_threads(topology, outside)?;
            }
            let sluice = Some(sluice);
            return Ok(Self { sluice });
        }
        linux::start(case, rules, topology)?;
        Ok(Self { sluice: None })
    }

    /// Start Sluice for sites with this number of terminals each, in addition to source-NAT rules.
    pub fn of_sites(rules: u32, terminals: u32, topology: &Topology, program: &Path) -> Result<Self, Failure> {
        let sluice = Some(sites::start(rules, terminals, topology, program)?);
        Ok(Self { sluice })
    }

    /// Times per stage according to the gateway's own counters; `None` if it has no such counters.
    pub fn stages(&self) -> Option<Stages> {
        self.sluice.as_ref().and_then(|sluice| sluice.stages().ok())
    }
}
