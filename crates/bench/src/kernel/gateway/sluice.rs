//! Sluice as the gateway: the daemon on AF_XDP, with one worker on the gateway's core.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

use crate::daemon::{Daemon, socket};
use crate::kernel::command::feed;
use crate::kernel::inside::Outside;
use crate::kernel::topology::{
    GATEWAY, GENERATOR_ADDRESS, GENERATOR_MAC, INSIDE, INSIDE_ADDRESS, INSIDE_NETWORKS, OUTSIDE, OUTSIDE_ADDRESS, POOL,
    SINK_ADDRESS, SINK_MAC, Topology, inside_network, mac_text,
};
use crate::kernel::traffic::{NEW_FLOWS, OPENED};
use crate::rows::Failure;

/// Folder of the daemon's files.
pub const FOLDER: &str = "/run/sluice-bench";

/// The running daemon.
#[derive(Debug)]
pub struct Process(Daemon);

impl Process {
    pub fn start(rules: u32, topology: &Topology, program: &Path) -> Result<Self, Failure> {
        Self::with(&configuration(rules, topology.cores.gateway), topology, program)
    }

    pub fn with(configuration: &str, topology: &Topology, program: &Path) -> Result<Self, Failure> {
        let cores = [topology.cores.traffic, topology.cores.gateway];
        let prefix = format!("ip netns exec {GATEWAY}");
        let daemon = Daemon::start(&prefix, &cores, program, Path::new(FOLDER), configuration)?;
        for network in [INSIDE_NETWORKS, "0.0.0.0/0"] {
            daemon.await_route(network)?;
        }
        Ok(Self(daemon))
    }

    pub fn daemon(&self) -> &Daemon {
        &self.0
    }

    pub fn stages(&self) -> Result<Stages, Failure> {
        Ok(Stages::parse(&self.0.show("cores")?))
    }
}

/// Makes kernel threads on the generator's core run the receive half of AF_XDP.
pub fn receive_in_threads(topology: &Topology, outside: &mut Outside<'_>) -> Result<(), Failure> {
    for interface in [INSIDE, OUTSIDE] {
        let file = format!("/sys/class/net/{interface}/threaded");
        feed(&format!("ip netns exec {GATEWAY} tee {file}"), "1")?;
        outside.pin(&format!("napi/{interface}-"), topology.cores.traffic);
    }
    Ok(())
}

/// Parameters of a daemon configuration except its rules.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub core: usize,
    /// Names of the inside and outside device.
    pub devices: [&'a str; 2],
    /// Folder of the control socket.
    pub folder: &'a Path,
    /// Session capacity, if the gateway translates.
    pub sessions: u32,
    /// Log level of the daemon.
    pub log: &'a str,
    pub more: &'a str,
}

pub fn configuration(rules: u32, core: usize) -> String {
    let wires = Place {
        core,
        devices: [INSIDE, OUTSIDE],
        folder: Path::new(FOLDER),
        sessions: NEW_FLOWS + 2 * OPENED,
        log: "warn",
        more: "",
    };
    configuration_at(rules, &wires)
}

pub fn configuration_at(rules: u32, place: &Place<'_>) -> String {
    let Place { core, log, more, .. } = place;
    let socket = socket(place.folder);
    let [inside, outside] = place.devices;
    let sessions = if rules == 0 { 1_024 } else { place.sessions };
    let mut text = format!(
        r#"[system]
name = "bench"
workers = [{core}]

[sessions]
ipv4 = {sessions}
ipv6 = 1024

[control]
socket = "{}"
log = "{log}"

[interfaces.inside]
device = "{inside}"
addresses = ["{INSIDE_ADDRESS}"]

[interfaces.outside]
device = "{outside}"
addresses = ["{OUTSIDE_ADDRESS}"]

[[routes]]
to = "{INSIDE_NETWORKS}"
via = "{GENERATOR_ADDRESS}"

[[routes]]
to = "0.0.0.0/0"
via = "{SINK_ADDRESS}"

[[neighbours.static]]
address = "{GENERATOR_ADDRESS}"
mac = "{}"
interface = "inside"

[[neighbours.static]]
address = "{SINK_ADDRESS}"
mac = "{}"
interface = "outside"
{more}"#,
        socket.display(),
        mac_text(GENERATOR_MAC),
        mac_text(SINK_MAC)
    );
    if rules > 0 {
        let _ = write!(text, "\n[nat.pools.outside]\naddresses = [\"{}\"]\n", POOL[2]);
    }
    for rule in 0..rules {
        let network = inside_network(rule);
        let _ = write!(
            text,
            "\n[[nat.source]]\nfrom = \"{network}/24\"\nout = \"outside\"\npool = \"outside\"\n"
        );
    }
    text
}

/// Cycles and packets counted by all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// Cycles from session lookup to rewrite, including the slow path.
    pub session: u64,
    /// Cycles of all work on packets, including the kernel's part of transmit, but not those of empty polls.
    pub work: u64,
    pub packets: u64,
}

impl Stages {
    /// Parses the sums in the output of `sluice show cores --json`.
    fn parse(text: &str) -> Self {
        let whole: Value = serde_json::from_str(text).unwrap_or_default();
        let cores = whole.as_array().or_else(|| whole.get("cores")?.as_array());
        let mut stages = Self::default();
        for core in cores.into_iter().flatten() {
            let counters = core.get("counters").and_then(Value::as_array);
            for counter in counters.into_iter().flatten() {
                let name = counter.get("name").and_then(Value::as_str).unwrap_or_default();
                let count = counter.get("count").and_then(Value::as_u64).unwrap_or(0);
                match name {
                    "cycles-session" => stages.session += count,
                    "cycles-housekeeping" => continue,
                    _ if !name.starts_with("cycles-") => continue,
                    _ => {}
                }
                stages.work += count;
            }
            stages.packets += core.get("packets").and_then(Value::as_u64).unwrap_or(0);
        }
        stages
    }

    /// Times per packet since an earlier reading; `None` if no packet was counted since then.
    pub fn since(&self, before: &Self, tsc_hz: u64) -> Option<Times> {
        let packets = self
            .packets
            .checked_sub(before.packets)
            .filter(|&packets| packets > 0)?;
        let per_packet = |now: u64, then: u64| {
            let cycles = now.checked_sub(then).filter(|&cycles| cycles > 0)?;
            Some(cycles as f64 * 1e9 / tsc_hz as f64 / packets as f64)
        };
        Some(Times {
            session_ns: per_packet(self.session, before.session)?,
            work_ns: per_packet(self.work, before.work)?,
        })
    }
}

/// Times that workers spend per packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// Nanoseconds from session lookup to rewrite.
    pub session_ns: f64,
    /// Nanoseconds in total per packet.
    pub work_ns: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_is_valid_with_as_many_rules_as_asked() {
        for rules in [0, 1, 1_000] {
            let text = configuration(rules, 1);
            assert_eq!(rules as usize, text.matches("[[nat.source]]").count());
            assert_eq!(rules > 0, text.contains("[nat.pools.outside]"));
        }
        assert!(configuration(1_000, 1).contains("from = \"10.3.231.0/24\""));
    }

    #[test]
    fn stages_are_summed_over_workers() {
        let core = r#"{"worker":0,"packets":100,"counters":[
            {"name":"cycles-session","count":4000},{"name":"cycles-parse","count":9},{"name":"cycles-housekeeping","count":70},{"name":"sessions-created","count":3}]}"#;
        let stages = Stages::parse(&format!("[{core},{core}]"));
        let expected = Stages {
            session: 8_000,
            work: 8_018,
            packets: 200,
        };
        assert_eq!(expected, stages);
        assert_eq!(expected, Stages::parse(&format!("{{\"cores\":[{core},{core}]}}")));
        let times = Times {
            session_ns: 20.0,
            work_ns: 20.045,
        };
        assert_eq!(Some(times), stages.since(&Stages::default(), 2_000_000_000));
        assert_eq!(None, stages.since(&stages, 2_000_000_000));
        assert_eq!(None, Stages::parse("[]").since(&stages, 1));
    }
}
