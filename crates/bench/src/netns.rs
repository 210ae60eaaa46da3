//! Network namespaces, and links between them.

use std::process::Command;

use crate::kernel::command::run;
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
            set(name, "net.ipv6.conf.default.disable_ipv6=1")?;
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

/// Prefix of a command that runs in the given namespace on the given core.
pub fn command(host: &str, core: usize) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", host, "taskset", "-c", &core.to_string()]);
    command
}

/// Set a kernel setting in a namespace.
pub fn set(host: &str, setting: &str) -> Result<(), Failure> {
    run(&format!("ip netns exec {host} sysctl -q -w {setting}")).map(drop)
}

/// Creates a veth pair between two namespaces and sets both ends up, without veth's simulated offloads; each end has
/// its own options.
pub fn wire(ends: [(&str, &str, String); 2]) -> Result<(), Failure> {
    let [left, right] = ends
        .each_ref()
        .map(|(host, name, options)| format!("{name} netns {host} {options}"));
    run(&format!("ip link add {left} type veth peer name {right}"))?;
    let mut ends = ends.iter();
    ends.try_for_each(|(host, name, _)| bring_up(&format!("ip netns exec {host}"), name))
}

/// Sets an interface up and disables its offloads; `prefix` is the command prefix of its namespace.
pub fn bring_up(prefix: &str, interface: &str) -> Result<(), Failure> {
    let off = "rx off tx off sg off tso off gso off gro off";
    run(&format!("{prefix} ethtool -K {interface} {off}"))?;
    run(&format!("{prefix} ip link set {interface} up")).map(drop)
}
