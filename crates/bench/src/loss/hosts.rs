//! Client, relay, gateway and server, and the paths between them; all are removed when the value is dropped.
//!
//! ```text
//! before:  client ── relay ── gateway ── server       behind:  client ── gateway ── relay ── server
//! direct:  client ── relay ── server
//! ```

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{Failure, LossArguments, Place};
use crate::daemon::{Daemon, program, socket};
use crate::kernel::command::run;
use crate::kernel::machine::Cores;
use crate::netns::{self, Namespaces};
use crate::process::{Answering, await_some};
use crate::rows::Named;

/// Namespace of the client.
pub const CLIENT: &str = "sll-client";
const RELAY: &str = "sll-relay";
const GATEWAY: &str = "sll-gateway";
/// Namespace of the server.
pub const SERVER: &str = "sll-server";

/// Folder of the benchmark's temporary files.
const FOLDER: &str = "/run/sluice-bench";

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
    relay: Answering,
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
                netns::set(host, &format!("net.ipv4.tcp_congestion_control={name}"))?;
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
        run(&format!(
            "ip netns exec {CLIENT} cat /proc/sys/net/ipv4/tcp_congestion_control"
        ))
    }

    /// Sets the packet loss in percent in each direction, and the delay of packets that are not lost.
    pub fn lose(&mut self, percent: f64, delay: Duration, seed: u64) -> Result<(), Failure> {
        let per_million = (percent * 10_000.0).round();
        let line = format!("set {per_million} {} {seed}", delay.as_micros());
        self.relay.tell(&line)?;
        self.relay.expect("set").map(drop)
    }

    /// Numbers of packets that the relay has forwarded, dropped on purpose, and dropped because it had no room.
    pub fn counts(&mut self) -> Result<[u64; 3], Failure> {
        self.relay.tell("count")?;
        let answer = self.relay.expect("count")?;
        let mut numbers = answer
            .split_whitespace()
            .skip(1)
            .map(|word| word.parse::<u64>().unwrap_or(0));
        Ok([(); 3].map(|()| numbers.next().unwrap_or(0)))
    }

    /// Number of packets that the gateway dropped for the reasons that `counts` selects.
    pub fn dropped(&self, counts: impl Fn(&str) -> bool) -> Result<u64, Failure> {
        let shown: serde_json::Value = serde_json::from_str(&self.daemon.show("drops")?)?;
        Ok(dropped_of(&shown, &counts))
    }

    /// A program on a host; it runs on the core that all hosts share.
    pub fn command(&self, host: &str, program: &Path) -> Command {
        let mut command = netns::command(host, self.cores.traffic);
        command.arg(program);
        command
    }
}

/// Sum of the drop counters that `counts` selects, at any depth of the output of `sluice show drops`.
fn dropped_of(shown: &serde_json::Value, counts: &impl Fn(&str) -> bool) -> u64 {
    match shown {
        serde_json::Value::Array(all) => all.iter().map(|one| dropped_of(one, counts)).sum(),
        serde_json::Value::Object(fields) => {
            let name = fields
                .get("name")
                .or(fields.get("reason"))
                .and_then(|name| name.as_str());
            let count = fields
                .get("count")
                .or(fields.get("packets"))
                .and_then(|count| count.as_u64());
            match (name, count) {
                (Some(name), Some(count)) if counts(name) => count,
                (Some(_), Some(_)) => 0,
                _ => fields.values().map(|one| dropped_of(one, counts)).sum(),
            }
        }
        _ => 0,
    }
}

fn lay(way: Way, place: Place) -> Result<(), Failure> {
    let name = |name: &str| format!("{name}{}", way as u8);
    let [client, server, near, far, left, right] = ["client", "server", "near", "far", "left", "right"].map(name);
    match (way, place) {
        (Way::Direct, _) => {
            wire((CLIENT, &client), (RELAY, &near))?;
            wire((RELAY, &far), (SERVER, &server))?;
        }
        (_, Place::Before) => {
            wire((CLIENT, &client), (RELAY, &near))?;
            wire((RELAY, &far), (GATEWAY, &left))?;
            wire((GATEWAY, &right), (SERVER, &server))?;
        }
        (_, Place::Behind) => {
            wire((CLIENT, &client), (GATEWAY, &left))?;
            wire((GATEWAY, &right), (RELAY, &near))?;
            wire((RELAY, &far), (SERVER, &server))?;
        }
    }
    run(&format!("ip -n {CLIENT} address add {}/24 dev {client}", way.client()))?;
    run(&format!("ip -n {SERVER} address add {}/24 dev {server}", way.server()))?;
    Ok(())
}

fn wire((left, near): (&str, &str), (right, far): (&str, &str)) -> Result<(), Failure> {
    netns::wire([(left, near, String::new()), (right, far, String::new())])
}

fn configuration(core: usize, signatures: &Path, dialect: &str) -> String {
    let socket = socket(Path::new(FOLDER));
    let mut text = format!(
        "[system]\nname = \"bench\"\nworkers = [{core}]\n\n[sessions]\nipv4 = 65536\nipv6 = 1024\n\n\
         [control]\nsocket = \"{}\"\nlog = \"warn\"\n\n\
         [inspection]\ncache = \"\"\ninterfaces = [\"left0\", \"right0\"]\nflows = 8192\n\n\
         [[inspection.signatures]]\nfile = \"{}\"\ndialect = \"{dialect}\"\n",
        socket.display(),
        signatures.display(),
    );
    for way in [Way::Inspected, Way::Plain].map(|way| way as u8) {
        for side in ["left", "right"] {
            text += &format!("\n[interfaces.{side}{way}]\ndevice = \"{side}{way}\"\n");
        }
        text += &format!("\n[bridges.bridge{way}]\ninterfaces = [\"left{way}\", \"right{way}\"]\n");
    }
    text
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
    let text = configuration(cores.gateway, &signatures, &dialect);
    let prefix = format!("ip netns exec {GATEWAY}");
    let all = [cores.traffic, cores.gateway];
    Daemon::start(&prefix, &all, &program(arguments.sluice.as_ref()), folder, &text)
}

/// Waits until a packet and its reply get through on this path.
fn await_way(way: Way) -> Result<(), Failure> {
    let line = format!("ip netns exec {CLIENT} ping -n -c 1 -W 1 {}", way.server());
    match await_some(READY, || Ok(run(&line).ok()))? {
        Some(_) => Ok(()),
        None => run(&line).map(drop),
    }
}

/// Starts the relay, which connects both halves of all paths.
fn relay(core: usize) -> Result<Answering, Failure> {
    let interfaces = Way::ALL.map(|way| format!("near{0},far{0}", way as u8)).join(",");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", RELAY]).arg(std::env::current_exe()?);
    Answering::start(command.args(["relay", "--interfaces", &interfaces, "--core", &core.to_string()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_has_two_bridges_of_which_one_is_inspected() {
        let text = configuration(1, Path::new("/x.rules"), "snort3");
        assert_eq!(2, text.matches("[bridges.").count());
        assert_eq!(4, text.matches("[interfaces.").count());
        assert!(text.contains("interfaces = [\"left0\", \"right0\"]\nflows"), "{text}");
    }

    #[test]
    fn drops_are_summed_by_their_names() {
        let shown = serde_json::json!({"drops": [
            {"name": "stream-out-of-window", "count": 3}, {"name": "not-our-mac", "count": 5}, {"name": "signature", "count": 1}]});
        assert_eq!(3, dropped_of(&shown, &|name: &str| name.starts_with("stream-")));
        assert_eq!(9, dropped_of(&shown, &|_: &str| true));
    }
}
