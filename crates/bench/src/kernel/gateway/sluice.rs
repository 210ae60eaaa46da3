//! Sluice as the gateway: the daemon on AF_XDP, with one worker on the gateway's core.

use std::path::Path;

use serde_json::{Value, json};

use crate::daemon::{self, Daemon, FOLDER};
use crate::kernel::topology::{
    GATEWAY, GENERATOR_ADDRESS, GENERATOR_MAC, INSIDE, INSIDE_ADDRESS, INSIDE_NETWORKS, OUTSIDE, OUTSIDE_ADDRESS, POOL,
    SINK_ADDRESS, SINK_MAC, Topology, inside_network, mac_text,
};
use crate::kernel::traffic::{NEW_FLOWS, OPENED};
use crate::netns::within;
use crate::rows::Failure;

/// Networks to which the gateway has routes.
pub const NETWORKS: [&str; 2] = [INSIDE_NETWORKS, "0.0.0.0/0"];

/// Starts the daemon, and waits until it has its routes.
pub fn start(configuration: &Value, topology: &Topology, program: &Path) -> Result<Daemon, Failure> {
    let cores = [topology.cores.traffic, topology.cores.gateway];
    Daemon::start(
        &within(GATEWAY),
        cores,
        program,
        Path::new(FOLDER),
        configuration,
        &NETWORKS,
    )
}

/// Configuration of the gateway between the links of the topology.
pub fn on_wires(rules: u32, topology: &Topology) -> Value {
    let sessions = NEW_FLOWS + 2 * OPENED;
    configuration(
        rules,
        topology.cores.gateway,
        [INSIDE, OUTSIDE],
        Path::new(FOLDER),
        sessions,
    )
}

/// Configuration of a gateway between two devices, with room for `sessions` sessions if it translates.
pub fn configuration(rules: u32, core: usize, devices: [&str; 2], folder: &Path, sessions: u32) -> Value {
    let mut more = json!({
        "interfaces": {
            "inside": {"device": devices[0], "addresses": [INSIDE_ADDRESS]},
            "outside": {"device": devices[1], "addresses": [OUTSIDE_ADDRESS]},
        },
        "routes": [
            {"to": NETWORKS[0], "via": GENERATOR_ADDRESS},
            {"to": NETWORKS[1], "via": SINK_ADDRESS},
        ],
        "neighbours": {"static": [
            {"address": GENERATOR_ADDRESS, "mac": mac_text(GENERATOR_MAC), "interface": "inside"},
            {"address": SINK_ADDRESS, "mac": mac_text(SINK_MAC), "interface": "outside"},
        ]},
    });
    if rules == 0 {
        return daemon::configuration(core, 1_024, folder, more);
    }
    let rule = |rule| json!({"from": format!("{}/24", inside_network(rule)), "out": "outside", "pool": "outside"});
    more["nat"] = json!({
        "pools": {"outside": {"addresses": [POOL[2]]}},
        "source": (0..rules).map(rule).collect::<Vec<_>>(),
    });
    daemon::configuration(core, sessions, folder, more)
}

/// Cycles and packets counted by all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// Cycles from session lookup to rewrite, including the slow path.
    session: u64,
    /// Cycles of all work on packets, including the kernel's part of transmit, but not those of empty polls.
    work: u64,
    packets: u64,
}

impl Stages {
    /// The counters of a daemon; `None` if it does not answer.
    pub fn read(daemon: Option<&Daemon>) -> Option<Self> {
        Some(Self::sum(&daemon?.show("cores").ok()?))
    }

    /// Sums of the rows of `sluice show cores`.
    fn sum(cores: &[Value]) -> Self {
        let mut stages = Self::default();
        for core in cores {
            for counter in core["counters"].as_array().into_iter().flatten() {
                let (name, count) = (counter["name"].as_str(), counter["count"].as_u64().unwrap_or(0));
                let name = name.unwrap_or_default();
                if name == "cycles-session" {
                    stages.session += count;
                }
                if name.starts_with("cycles-") && name != "cycles-housekeeping" {
                    stages.work += count;
                }
            }
            stages.packets += core["packets"].as_u64().unwrap_or(0);
        }
        stages
    }

    /// Times per packet since an earlier reading; `None` if no packet was counted since then.
    pub fn since(&self, before: &Self, tsc_hz: u64) -> Option<Times> {
        let grown = |now: u64, then: u64| now.checked_sub(then).filter(|&grown| grown > 0);
        let packets = grown(self.packets, before.packets)?;
        let per_packet = |cycles: u64| cycles as f64 * 1e9 / tsc_hz as f64 / packets as f64;
        Some(Times {
            session_ns: per_packet(grown(self.session, before.session)?),
            work_ns: per_packet(grown(self.work, before.work)?),
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
    fn configuration_has_as_many_rules_as_asked() {
        for rules in [0, 1, 1_000] {
            let all = configuration(rules, 1, [INSIDE, OUTSIDE], Path::new(FOLDER), 10_000);
            let text = toml::to_string(&all).expect("a configuration");
            assert_eq!(rules as usize, text.matches("[[nat.source]]").count());
            assert_eq!(rules > 0, text.contains("[nat.pools.outside]"));
            assert_eq!(rules == 1_000, text.contains("from = \"10.3.231.0/24\""));
        }
    }

    #[test]
    fn stages_are_summed_over_workers() {
        let core = json!({"worker": 0, "packets": 100, "counters": [
            {"name": "cycles-session", "count": 4000}, {"name": "cycles-parse", "count": 9},
            {"name": "cycles-housekeeping", "count": 70}, {"name": "sessions-created", "count": 3}]});
        let stages = Stages::sum(&[core.clone(), core]);
        let expected = Stages {
            session: 8_000,
            work: 8_018,
            packets: 200,
        };
        assert_eq!(expected, stages);
        let times = Times {
            session_ns: 20.0,
            work_ns: 20.045,
        };
        assert_eq!(Some(times), stages.since(&Stages::default(), 2_000_000_000));
        assert_eq!(None, stages.since(&stages, 2_000_000_000));
        assert_eq!(None, Stages::sum(&[]).since(&stages, 1));
    }
}
