//! What stands between generator and sink.

pub mod linux;
mod sites;
pub mod sluice;

use std::path::Path;

use super::inside::Outside;
use super::topology::Topology;
use crate::rows::Failure;

pub use sluice::{Stages, Times};

/// A gateway to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Case {
    /// None: all is dropped where it would come in, which shows what generator and wire can do.
    Generator,
    /// Linux passes every frame on as it is, from one wire to the other: no gateway in the kernel does less.
    Redirect,
    /// Linux forwards.
    LinuxForward,
    /// Linux translates by iptables.
    Iptables,
    /// Linux translates by nftables, a rule after the other.
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

/// A running gateway; it ends when it is dropped.
#[derive(Debug)]
pub struct Gateway {
    sluice: Option<sluice::Process>,
}

impl Gateway {
    /// Start a case with so many source-NAT rules, for at most `sessions` sessions.
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

    /// Start Sluice for sites of so many terminals each, with so many source-NAT rules beside.
    pub fn of_sites(rules: u32, terminals: u32, topology: &Topology, program: &Path) -> Result<Self, Failure> {
        let sluice = Some(sites::start(rules, terminals, topology, program)?);
        Ok(Self { sluice })
    }

    /// What its own counters say of the time by stage, where it has such.
    pub fn stages(&self) -> Option<Stages> {
        self.sluice.as_ref().and_then(|sluice| sluice.stages().ok())
    }
}
