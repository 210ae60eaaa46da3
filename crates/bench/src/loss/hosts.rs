//! Client, relay, gateway and server, and the paths between them; all are removed when the value is dropped.
//!
//! ```text
//! before:  client ── relay ── gateway ── server       behind:  client ── gateway ── relay ── server
//! direct:  client ── relay ── server
//! ```

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::relay::{Counts, Faults, Settings, Task};
use super::{Failure, LossArguments, Place};
use crate::daemon::{self, Daemon, FOLDER, program};
use crate::kernel::machine::Cores;
use crate::netns::{self, Namespaces, within};
use crate::process::{Peer, await_some, run};
use crate::role::Role;
use crate::rows::Named;

/// Namespace of the client.
pub const CLIENT: &str = "sll-client";
const RELAY: &str = "sll-relay";
const GATEWAY: &str = "sll-gateway";
/// Namespace of the server.
pub const SERVER: &str = "sll-server";

/// Maximum time until the first packet gets through.
const READY: Duration = Duration::from_secs(30);

/// Rules of the most frequent kinds, none of which matches a file of the benchmark or a stream of iperf3.
const RULES: &str = r#"
drop tcp any any -> any any (msg:"stream"; flow:established; content:"EICAR-STANDARD-ANTIVIRUS-TEST-FILE"; sid:1;)
drop tcp any any -> any any (msg:"file"; flow:to_client,established; file_data; content:"|7f|ELF|02 01 01 00|"; depth:8; content:"/bin/sh -c"; sid:2;)
drop tcp any any -> any any (msg:"path"; flow:to_server,established; http.uri; content:"/../"; sid:3;)
alert tcp any any -> any any (msg:"agent"; flow:to_server,established; http.header; content:"sqlmap"; nocase; sid:4;)
"#;

/// A path between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Inspected,
    Plain,
    Direct,
}

impl Way {
    pub const ALL: [Self; 3] = [Self::Inspected, Self::Plain, Self::Direct];

    pub fn server(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 9, self as u8, 2)
    }

    fn client(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 9, self as u8, 1)
    }
}

pub struct Hosts {
    pub cores: Cores,
    daemon: Daemon,
    relay: Peer,
    _namespaces: Namespaces,
}

impl Hosts {
    /// Creates the hosts with the relay on one side of the gateway, and waits until packets get through on all paths.
    pub fn build(place: Place, arguments: &LossArguments) -> Result<Self, Failure> {
        let of = sluice_dpdk::eal::allowed_cores();
        let cores = Cores::apart(&of).ok_or("hosts and gateway need a core each, and this process may use one only")?;
        let namespaces = Namespaces::new(&[CLIENT, RELAY, GATEWAY, SERVER])?;
        if let Some(name) = &arguments.congestion {
            for host in [CLIENT, SERVER] {
                let prefix = within(host);
                run(&format!("{prefix} sysctl -q -w net.ipv4.tcp_congestion_control={name}"))?;
            }
        }
        Way::ALL.into_iter().try_for_each(|way| lay(way, place))?;
        let hosts = Self {
            relay: relay(cores.traffic)?,
            daemon: start(&cores, arguments)?,
            cores,
            _namespaces: namespaces,
        };
        Way::ALL.into_iter().try_for_each(await_way)?;
        Ok(hosts)
    }

    /// TCP congestion control that the hosts use.
    pub fn congestion(&self) -> Result<String, Failure> {
        let prefix = within(CLIENT);
        run(&format!("{prefix} cat /proc/sys/net/ipv4/tcp_congestion_control"))
    }

    /// Sets the packet loss in percent in each direction, and the delay of packets that are not lost.
    pub fn lose(&mut self, percent: f64, delay: Duration, seed: u64) -> Result<(), Failure> {
        let per_million = (percent * 10_000.0).round() as u32;
        self.relay.ask(&Task::Set(Faults {
            per_million,
            delay,
            seed,
        }))
    }

    /// Numbers of packets in the relay since the loss was set.
    pub fn counts(&mut self) -> Result<Counts, Failure> {
        self.relay.ask(&Task::Count)
    }

    /// Number of packets that the gateway dropped for the reasons that `counts` selects.
    pub fn dropped(&self, counts: impl Fn(&str) -> bool) -> Result<u64, Failure> {
        Ok(sum(&self.daemon.show("drops")?, counts))
    }
}

/// Sum of the packets in a listing of drop reasons, over the reasons that `counts` selects.
fn sum(drops: &[Value], counts: impl Fn(&str) -> bool) -> u64 {
    let counted = drops.iter().filter(|drop| drop["name"].as_str().is_some_and(&counts));
    counted.filter_map(|drop| drop["packets"].as_u64()).sum()
}

fn lay(way: Way, place: Place) -> Result<(), Failure> {
    let relay = (RELAY, "near", "far");
    let gateway = (GATEWAY, "left", "right");
    let hops = match (way, place) {
        (Way::Direct, _) => vec![relay],
        (_, Place::Before) => vec![relay, gateway],
        (_, Place::Behind) => vec![gateway, relay],
    };
    // Each link connects the far interface of a host with the near interface of the next host.
    let from = [(CLIENT, "client")]
        .into_iter()
        .chain(hops.iter().map(|&(host, _, far)| (host, far)));
    let to = hops
        .iter()
        .map(|&(host, near, _)| (host, near))
        .chain([(SERVER, "server")]);
    for ends in from.zip(to) {
        let [left, right] = [ends.0, ends.1].map(|(host, name)| (host, format!("{name}{}", way as u8)));
        netns::wire([(left.0, &left.1, String::new()), (right.0, &right.1, String::new())])?;
    }
    for (host, name, address) in [(CLIENT, "client", way.client()), (SERVER, "server", way.server())] {
        run(&format!(
            "ip -n {host} address add {address}/24 dev {name}{}",
            way as u8
        ))?;
    }
    Ok(())
}

/// Configuration with two bridges, the first of which is inspected.
fn configuration(core: usize, signatures: &Path, dialect: &str) -> Value {
    let mut more = json!({
        "inspection": {
            "cache": "", "interfaces": ["left0", "right0"], "flows": 8192,
            "signatures": [{"file": signatures, "dialect": dialect}],
        },
    });
    for way in [Way::Inspected, Way::Plain].map(|way| way as u8) {
        let interfaces = ["left", "right"].map(|side| format!("{side}{way}"));
        for name in &interfaces {
            more["interfaces"][name] = json!({"device": name});
        }
        more["bridges"][format!("bridge{way}")] = json!({"interfaces": interfaces});
    }
    daemon::configuration(core, 65_536, Path::new(FOLDER), more)
}

fn start(cores: &Cores, arguments: &LossArguments) -> Result<Daemon, Failure> {
    let folder = Path::new(FOLDER);
    std::fs::create_dir_all(folder)?;
    let (signatures, dialect) = match &arguments.signatures {
        Some(file) => (file.canonicalize()?, arguments.dialect.name()),
        None => {
            let file = folder.join("bench.rules");
            std::fs::write(&file, RULES)?;
            (file, crate::inspect::Written::Suricata.name())
        }
    };
    let all = configuration(cores.gateway, &signatures, &dialect);
    let both = [cores.traffic, cores.gateway];
    Daemon::start(
        &within(GATEWAY),
        both,
        &program(arguments.sluice.as_ref()),
        folder,
        &all,
        &[],
    )
}

/// Waits until a packet and its reply get through on this path.
fn await_way(way: Way) -> Result<(), Failure> {
    let line = format!("{} ping -n -c 1 -W 1 {}", within(CLIENT), way.server());
    match await_some(READY, || Ok(run(&line).ok()))? {
        Some(_) => Ok(()),
        None => run(&line).map(drop),
    }
}

/// Starts the relay, which connects both halves of all paths.
fn relay(core: usize) -> Result<Peer, Failure> {
    let interfaces = Way::ALL.map(|way| ["near", "far"].map(|end| format!("{end}{}", way as u8)));
    let interfaces = interfaces.concat();
    Peer::start(RELAY, core, &Role::Relay(Settings { interfaces, core }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_has_two_bridges_of_which_one_is_inspected() {
        let all = configuration(1, Path::new("/x.rules"), "snort3");
        let text = toml::to_string(&all).expect("a configuration");
        assert_eq!(2, text.matches("[bridges.").count());
        assert_eq!(4, text.matches("[interfaces.").count());
        assert_eq!(json!(["left0", "right0"]), all["inspection"]["interfaces"]);
    }

    #[test]
    fn drops_are_summed_by_their_names() {
        let drops = [("stream-out-of-window", 3), ("not-our-mac", 5), ("signature", 1)];
        let drops = drops.map(|(name, packets)| json!({"name": name, "packets": packets}));
        assert_eq!(3, sum(&drops, |name| name.starts_with("stream-")));
        assert_eq!(9, sum(&drops, |_| true));
    }
}
