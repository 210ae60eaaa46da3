//! Gateways between generator and sink.

pub mod linux;
mod sites;
pub mod sluice;

use std::path::Path;

use super::KernelArguments;
use super::topology::{GATEWAY, INSIDE, OUTSIDE, Topology, steer};
use super::traffic::Site;
use super::trials::Trial;
use crate::daemon::{Daemon, program};
use crate::inside;
use crate::netns::within;
use crate::process::{feed, script};
use crate::rows::Failure;

/// A gateway to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
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

/// Starts the gateway of a trial; returns the daemon if the gateway is Sluice.
pub fn start(trial: &Trial, topology: &Topology, arguments: &KernelArguments) -> Result<Option<Daemon>, Failure> {
    let program = program(arguments.sluice.as_ref());
    if !trial.case.is_sluice() {
        if topology.cores.are_apart() {
            steer(GATEWAY, INSIDE, topology.cores.gateway)?;
            steer(GATEWAY, OUTSIDE, topology.cores.gateway)?;
        }
        script(&within(GATEWAY), &linux::script(trial.case, trial.rules))?;
        return Ok(None);
    }
    if trial.site != Site::None {
        return sites::start(trial.rules, trial.site.terminals(), topology, &program).map(Some);
    }
    let daemon = sluice::start(&sluice::on_wires(trial.rules, topology), topology, &program)?;
    if arguments.napi_thread {
        receive_in_threads(topology)?;
    }
    Ok(Some(daemon))
}

/// Makes kernel threads on the generator's core run the receive half of AF_XDP.
fn receive_in_threads(topology: &Topology) -> Result<(), Failure> {
    for interface in [INSIDE, OUTSIDE] {
        let file = Path::new("/sys/class/net").join(interface).join("threaded");
        feed(&format!("{} tee {}", within(GATEWAY), file.display()), "1")?;
        inside::pin(&format!("napi/{interface}-"), topology.cores.traffic);
    }
    Ok(())
}
