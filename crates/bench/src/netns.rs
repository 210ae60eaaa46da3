//! Network namespaces, and links between them.

use std::process::Command;

use sluice_dpdk::{Driver, Plan, PortPlan};

use crate::process::{command as of_line, run};
use crate::rig::Source;
use crate::rows::Failure;

/// Network namespaces, which are deleted when this value is dropped.
#[derive(Debug)]
pub struct Namespaces(Vec<&'static str>);

impl Namespaces {
    /// Creates namespaces in which IPv6 is disabled, because IPv6 would send frames of its own.
    pub fn new(names: &[&'static str]) -> Result<Self, Failure> {
        let mut made = Self(Vec::new());
        for name in names {
            run(&format!("ip netns add {name}"))?;
            made.0.push(name);
            run(&format!(
                "{} sysctl -q -w net.ipv6.conf.default.disable_ipv6=1",
                within(name)
            ))?;
            run(&format!("ip -n {name} link set lo up"))?;
        }
        Ok(made)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in self.0.iter().rev() {
            let _ = run(&format!("ip netns delete {name}"));
        }
    }
}

/// Prefix of commands that run in the given namespace.
pub fn within(host: &str) -> String {
    format!("ip netns exec {host}")
}

/// Beginning of a command that runs in the given namespace on the given core.
pub fn command(host: &str, core: usize) -> Command {
    of_line(&format!("{} taskset -c {core}", within(host)))
}

/// Opens interfaces of this process's namespace for one worker on a core. `waiting` is the maximum
/// number of waiting frames of a process that forwards frames of other hosts.
pub fn open(
    interfaces: &[impl AsRef<str>],
    driver: Driver,
    core: usize,
    waiting: Option<usize>,
) -> Result<Source, Failure> {
    let port = |name: &str| -> Result<_, Failure> {
        Ok(PortPlan {
            driver: Some(driver),
            promiscuous: waiting.is_some(),
            ..PortPlan::new(name, name.parse()?)
        })
    };
    let ports = interfaces.iter().map(|name| port(name.as_ref()));
    let mut plan = Plan::new(ports.collect::<Result<_, _>>()?, 1);
    if let Some(waiting) = waiting {
        plan.parked = waiting;
        plan.buffers = (2 * waiting as u32 + plan.buffers).next_power_of_two() - 1;
    }
    Ok(Source::alone(&plan, core)?.1)
}

/// Creates a veth pair between two namespaces and sets both ends up, without veth's simulated offloads; each end has
/// its own options.
pub fn wire(ends: [(&str, &str, String); 2]) -> Result<(), Failure> {
    let [left, right] = ends
        .each_ref()
        .map(|(host, name, options)| format!("{name} netns {host} {options}"));
    run(&format!("ip link add {left} type veth peer name {right}"))?;
    ends.iter()
        .try_for_each(|(host, name, _)| bring_up(&within(host), name))
}

/// Sets an interface up and disables its offloads; `prefix` is the command prefix of its namespace.
pub fn bring_up(prefix: &str, interface: &str) -> Result<(), Failure> {
    let off = "rx off tx off sg off tso off gso off gro off";
    run(&format!("{prefix} ethtool -K {interface} {off}"))?;
    run(&format!("{prefix} ip link set {interface} up")).map(drop)
}
