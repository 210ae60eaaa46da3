//! Client, relay, gateway and server, and the ways from one to the other; they go when they are dropped.
//!
//! ```text
//! before:  client ── relay ── gateway ── server       behind:  client ── gateway ── relay ── server
//! direct:  client ── relay ── server
//! ```

use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Failure, LossArguments, Place};
use crate::daemon::{Daemon, socket};
use crate::kernel::command::run;
use crate::kernel::machine::Cores;
use crate::rows::Named;

/// Namespaces.
pub const CLIENT: &str = "sll-client";
const RELAY: &str = "sll-relay";
const GATEWAY: &str = "sll-gateway";
/// Of the server.
pub const SERVER: &str = "sll-server";

/// Where files are.
const FOLDER: &str = "/run/sluice-bench";

/// Longest time until the first packet comes through.
const READY: Duration = Duration::from_secs(30);

/// Rules that no file of the bench and no stream of iperf3 matches, in the places where most rules look.
const RULES: &str = r#"
drop tcp any any -> any any (msg:"stream"; flow:established; content:"EICAR-STANDARD-ANTIVIRUS-TEST-FILE"; sid:1;)
drop tcp any any -> any any (msg:"file"; flow:to_client,established; file_data; content:"|7f|ELF|02 01 01 00|"; depth:8; content:"/bin/sh -c"; sid:2;)
drop tcp any any -> any any (msg:"path"; flow:to_server,established; http.uri; content:"/../"; sid:3;)
alert tcp any any -> any any (msg:"agent"; flow:to_server,established; http.header; content:"sqlmap"; nocase; sid:4;)
"#;

/// By which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A bridge that is inspected.
    Inspected,
    /// One that is not.
    Plain,
    /// No gateway.
    Direct,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Inspected, Self::Plain, Self::Direct];

    /// The server's address.
    pub fn server(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 9, self as u8, 2)
    }

    fn client(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 9, self as u8, 1)
    }
}

/// The hosts.
pub struct Hosts {
    pub cores: Cores,
    daemon: Option<Daemon>,
    relay: Option<RelayProcess>,
}

impl Hosts {
    /// Make them, with the relay on one side of the gateway, and wait until packets go all ways.
    pub fn build(place: Place, arguments: &LossArguments) -> Result<Self, Failure> {
        let of = sluice_dpdk::eal::allowed_cores();
        let cores = Cores::apart(&of).ok_or("hosts and gateway need a core each, and this process may use one only")?;
        let mut hosts = Self {
            cores,
            daemon: None,
            relay: None,
        };
        for host in [CLIENT, RELAY, GATEWAY, SERVER] {
            run(&format!("ip netns add {host}"))?;
            run(&format!(
                "ip netns exec {host} sysctl -q -w net.ipv6.conf.default.disable_ipv6=1"
            ))?;
            run(&format!("ip -n {host} link set lo up"))?;
            if let Some(name) = &arguments.congestion {
                run(&format!(
                    "ip netns exec {host} sysctl -q -w net.ipv4.tcp_congestion_control={name}"
                ))?;
            }
        }
        for way in Way::ALL {
            hosts.lay(way, place)?;
        }
        hosts.relay = Some(RelayProcess::start(hosts.cores.traffic)?);
        hosts.daemon = Some(start(&hosts.cores, arguments)?);
        for way in Way::ALL {
            await_way(way)?;
        }
        Ok(hosts)
    }

    fn lay(&self, way: Way, place: Place) -> Result<(), Failure> {
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

    /// How TCP answers loss here.
    pub fn congestion(&self) -> Result<String, Failure> {
        run(&format!(
            "ip netns exec {CLIENT} cat /proc/sys/net/ipv4/tcp_congestion_control"
        ))
    }

    /// Lose so many packets of a hundred each way, and deliver the others later.
    pub fn lose(&mut self, percent: f64, delay: Duration, seed: u64) -> Result<(), Failure> {
        let per_million = (percent * 10_000.0).round();
        let answer = self
            .relay()?
            .ask(&format!("set {per_million} {} {seed}", delay.as_micros()))?;
        match answer.as_str() {
            "set" => Ok(()),
            other => Err(format!("the relay said {other}").into()),
        }
    }

    /// Packets that the relay has passed, lost, and had no place for.
    pub fn counts(&mut self) -> Result<[u64; 3], Failure> {
        let answer = self.relay()?.ask("count")?;
        let mut numbers = answer
            .split_whitespace()
            .skip(1)
            .map(|word| word.parse::<u64>().unwrap_or(0));
        Ok([(); 3].map(|()| numbers.next().unwrap_or(0)))
    }

    fn relay(&mut self) -> Result<&mut RelayProcess, Failure> {
        self.relay.as_mut().ok_or_else(|| "the relay does not run".into())
    }

    /// Packets that the gateway has dropped, by all reasons that `counts`.
    pub fn dropped(&self, counts: impl Fn(&str) -> bool) -> Result<u64, Failure> {
        let daemon = self.daemon.as_ref().ok_or("the gateway does not run")?;
        let shown: serde_json::Value = serde_json::from_str(&daemon.show("drops")?)?;
        Ok(dropped_of(&shown, &counts))
    }

    /// A program of a host, on the core of all hosts.
    pub fn command(&self, host: &str, program: &Path) -> Command {
        let core = self.cores.traffic.to_string();
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", host, "taskset", "-c", &core])
            .arg(program);
        command
    }
}

/// The sum of counters in what `sluice show drops` tells, wherever they are in it.
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

impl Drop for Hosts {
    fn drop(&mut self) {
        self.daemon = None;
        self.relay = None;
        for host in [SERVER, GATEWAY, RELAY, CLIENT] {
            let _ = run(&format!("ip netns delete {host}"));
        }
    }
}

/// A veth pair between two hosts, up, without the offloads that veth would fake.
fn wire(left: (&str, &str), right: (&str, &str)) -> Result<(), Failure> {
    run(&format!(
        "ip link add {} netns {} type veth peer name {} netns {}",
        left.1, left.0, right.1, right.0
    ))?;
    for (host, interface) in [left, right] {
        run(&format!(
            "ip netns exec {host} ethtool -K {interface} rx off tx off sg off tso off gso off gro off"
        ))?;
        run(&format!("ip -n {host} link set {interface} up"))?;
    }
    Ok(())
}

/// The configuration of the gateway.
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
    Daemon::start(&prefix, &all, &arguments.program(), folder, &text)
}

/// Wait until a packet and its answer go this way.
fn await_way(way: Way) -> Result<(), Failure> {
    let began = Instant::now();
    let line = format!("ip netns exec {CLIENT} ping -n -c 1 -W 1 {}", way.server());
    loop {
        match run(&line) {
            Ok(_) => return Ok(()),
            Err(error) if began.elapsed() > READY => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// The running relay; it ends when its input does.
struct RelayProcess {
    child: Child,
    lines: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl RelayProcess {
    fn start(core: usize) -> Result<Self, Failure> {
        let interfaces = Way::ALL.map(|way| format!("near{0},far{0}", way as u8)).join(",");
        let mut child = Command::new("ip")
            .args(["netns", "exec", RELAY])
            .arg(std::env::current_exe()?)
            .args(["relay", "--interfaces", &interfaces, "--core", &core.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = child.stdin.take();
        let answers = child.stdout.take().ok_or("no output of the relay")?;
        let mut relay = Self {
            child,
            lines,
            answers: BufReader::new(answers),
        };
        relay.answer("ready")?;
        Ok(relay)
    }

    /// The next line that begins so; DPDK's own lines are passed over.
    fn answer(&mut self, begins: &str) -> Result<String, Failure> {
        let mut line = String::new();
        while self.answers.read_line(&mut line)? > 0 {
            if line.starts_with(begins) {
                return Ok(line.trim().to_owned());
            }
            line.clear();
        }
        Err("the relay has ended".into())
    }

    fn ask(&mut self, line: &str) -> Result<String, Failure> {
        let lines = self.lines.as_mut().ok_or("the relay has ended")?;
        writeln!(lines, "{line}")?;
        lines.flush()?;
        self.answer(line.split(' ').next().unwrap_or_default())
    }
}

impl Drop for RelayProcess {
    fn drop(&mut self) {
        self.lines = None;
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(5) {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_summed_by_their_names() {
        let shown = serde_json::json!({"drops": [
            {"name": "stream-out-of-window", "count": 3}, {"name": "not-our-mac", "count": 5}, {"name": "signature", "count": 1}]});
        assert_eq!(3, dropped_of(&shown, &|name: &str| name.starts_with("stream-")));
        assert_eq!(9, dropped_of(&shown, &|_: &str| true));
    }
}
