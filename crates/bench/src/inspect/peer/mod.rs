//! `inspect --peer suricata=PATH`: compares the offline mode of another inspector with `sluice inspect`, with the same
//! captures and rules, each program on one core, in turn. The cost of a run is its CPU time as reported by the kernel,
//! minus the CPU time of a run with a capture of one packet. The difference excludes the time to load the rules. (With
//! an empty capture, Suricata 8.0.6 does not terminate.) Neither program verifies transport checksums.

mod alerts;
mod mix;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use etherparse::PacketBuilder;
use pcap_file::pcap::{PcapPacket, PcapReader, PcapWriter};

use super::{Failure, InspectArguments};
use crate::rows::{Named, Row, Run, Runs};
use alerts::{Alert, alerts};
use mix::Mix;

/// Number of connections in a generated capture, by default and with --quick.
const CONNECTIONS: [u32; 2] = [3_000, 600];
/// Maximum number of listed alerts that only one of the two programs reported.
const LISTED: usize = 20;

/// Values of variables that community rules use.
const VARIABLES: [(&str, &str); 17] = [
    ("HOME_NET", "[10.0.0.0/8,172.16.0.0/12,192.168.0.0/16]"),
    ("EXTERNAL_NET", "any"),
    ("HTTP_SERVERS", "$HOME_NET"),
    ("SMTP_SERVERS", "$HOME_NET"),
    ("SQL_SERVERS", "$HOME_NET"),
    ("DNS_SERVERS", "$HOME_NET"),
    ("TELNET_SERVERS", "$HOME_NET"),
    ("SIP_SERVERS", "$HOME_NET"),
    ("SSH_SERVERS", "$HOME_NET"),
    ("FTP_SERVERS", "$HOME_NET"),
    ("HTTP_PORTS", "[80,8080]"),
    ("SHELLCODE_PORTS", "!80"),
    ("ORACLE_PORTS", "1521"),
    ("SSH_PORTS", "22"),
    ("FTP_PORTS", "21"),
    ("SIP_PORTS", "5060"),
    ("FILE_DATA_PORTS", "[80,8080,110,143]"),
];

/// Another inspector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    program: PathBuf,
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some(("suricata", path)) if !path.is_empty() => Ok(Self { program: path.into() }),
            _ => Err("write suricata=PATH, with the path of its program".into()),
        }
    }
}

struct Bench<'a> {
    folder: &'a Path,
    core: usize,
    peer: &'a Peer,
    own: PathBuf,
    signatures: &'a Path,
    dialect: String,
}

/// CPU time and alerts of a run.
struct Outcome {
    seconds: f64,
    found: BTreeSet<Alert>,
    lines: usize,
}

/// Configuration of the other inspector: rule variables, and alerts as EVE JSON.
fn settings() -> String {
    let group = |ports: bool| -> String {
        let some = VARIABLES.iter().filter(|(name, _)| name.ends_with("PORTS") == ports);
        some.map(|(name, value)| format!("    {name}: \"{value}\"\n")).collect()
    };
    format!(
        "%YAML 1.1\n---\nvars:\n  address-groups:\n{}  port-groups:\n{}outputs:\n  - eve-log:\n      enabled: yes\n      filetype: \
         regular\n      filename: eve.json\n      types:\n        - alert\nmpm-algo: hs\nspm-algo: hs\n",
        group(false),
        group(true)
    )
}

/// CPU time of the child processes in seconds, parsed from the output of the shell's `times`: user and system time of
/// the shell, then of its children.
fn processor_time(printed: &str) -> Option<f64> {
    let seconds = |text: &str| {
        let (minutes, seconds) = text.strip_suffix('s')?.split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    let mut children = printed.lines().nth(1)?.split_whitespace();
    Some(seconds(children.next()?)? + seconds(children.next()?)?)
}

impl Bench<'_> {
    /// Runs a program on the core; returns its CPU time.
    fn time(&self, program: &Path, arguments: &[OsString], log: &Path) -> Result<f64, Failure> {
        let log_file = fs::File::create(log)?;
        let script = "core=$1; out=$2; shift 2; taskset -c \"$core\" \"$@\" > \"$out\" || exit 1; times";
        let output = Command::new("bash")
            .args(["-c", script, "bash"])
            .arg(self.core.to_string())
            .arg(self.folder.join("out.json"))
            .arg(program)
            .args(arguments)
            .stderr(Stdio::from(log_file))
            .output()?;
        let printed = String::from_utf8_lossy(&output.stdout);
        match processor_time(&printed).filter(|_| output.status.success()) {
            Some(seconds) => Ok(seconds),
            None => {
                let log = fs::read_to_string(log)?;
                let last = log.lines().last().unwrap_or_default();
                Err(format!("{} fails: {last}", program.display()).into())
            }
        }
    }

    fn outcome(&self, seconds: f64, log: &Path) -> Result<Outcome, Failure> {
        let (found, lines) = alerts(&fs::read_to_string(log)?);
        Ok(Outcome { seconds, found, lines })
    }

    fn peer(&self, capture: &Path) -> Result<Outcome, Failure> {
        let log = self.folder.join("eve.json");
        // The program appends to its log, so remove the old log first.
        let _ = fs::remove_file(&log);
        let mut arguments: Vec<OsString> = ["--runmode", "single", "-k", "none"].map(Into::into).into();
        let yaml = self.folder.join("suricata.yaml");
        for (option, path) in [
            ("-c", yaml.as_path()),
            ("-S", self.signatures),
            ("-r", capture),
            ("-l", self.folder),
        ] {
            arguments.extend([option.into(), path.into()]);
        }
        // The shared files are at a path relative to the installed program.
        let prefix = self
            .peer
            .program
            .parent()
            .and_then(Path::parent)
            .unwrap_or(Path::new(""));
        for (key, file) in [
            ("classification-file", "classification.config"),
            ("reference-config-file", "reference.config"),
        ] {
            let path = prefix.join("share/suricata").join(file);
            if path.exists() {
                arguments.extend(["--set".into(), format!("{key}={}", path.display()).into()]);
            }
        }
        let seconds = self.time(&self.peer.program, &arguments, &self.folder.join("suricata.log"))?;
        self.outcome(seconds, &log)
    }

    fn own(&self, capture: &Path) -> Result<Outcome, Failure> {
        let mut arguments: Vec<OsString> = vec!["inspect".into(), capture.into()];
        arguments.extend(["--rules".into(), self.signatures.into()]);
        arguments.extend(["--dialect", &self.dialect, "--json"].map(Into::into));
        arguments.extend(VARIABLES.map(|(name, value)| format!("--var={name}={value}").into()));
        let seconds = self.time(&self.own, &arguments, &self.folder.join("sluice.log"))?;
        self.outcome(seconds, &self.folder.join("out.json"))
    }
}

/// Writes a capture with one datagram that matches no rule.
fn one_packet(path: &Path) -> Result<(), Failure> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let builder = builder.ipv4([198, 18, 0, 1], [198, 18, 0, 2], 64).udp(40_000, 40_001);
    let mut frame = Vec::new();
    builder.write(&mut frame, b"-")?;
    let mut writer = PcapWriter::new(fs::File::create(path)?)?;
    writer.write_packet(&PcapPacket::new(Duration::from_secs(1), frame.len() as u32, &frame))?;
    Ok(())
}

/// Numbers of bytes on the wire and of packets in a capture.
fn size(path: &Path) -> Result<(u64, u64), Failure> {
    let mut reader = PcapReader::new(std::io::BufReader::new(fs::File::open(path)?))?;
    let (mut packets, mut bytes) = (0, 0);
    while let Some(packet) = reader.next_packet() {
        packets += 1;
        bytes += u64::from(packet?.orig_len);
    }
    Ok((packets, bytes))
}

/// Prints the alerts that only one of the two programs reported.
fn list(case: &str, who: &str, alerts: &[&Alert]) {
    for alert in alerts.iter().take(LISTED) {
        eprintln!("{case}: only {who}: {alert}");
    }
    if alerts.len() > LISTED {
        eprintln!("{case}: only {who}: {} others", alerts.len() - LISTED);
    }
}

fn measure(bench: &Bench<'_>, case: &str, capture: &Path, rounds: usize) -> Result<Row, Failure> {
    let (packets, bytes) = size(capture)?;
    let nothing = bench.folder.join("one.pcap");
    let rate = |whole: f64, load: f64| bytes as f64 * 8.0 / 1e6 / (whole - load).max(1e-3);
    let (mut all, mut last) = (Runs::default(), None);
    for _ in 0..rounds {
        let loads = (bench.peer(&nothing)?.seconds, bench.own(&nothing)?.seconds);
        let runs = (bench.peer(capture)?, bench.own(capture)?);
        let (theirs, ours) = (rate(runs.0.seconds, loads.0), rate(runs.1.seconds, loads.1));
        all.extend([
            ("suricata_mbps", theirs),
            ("sluice_mbps", ours),
            ("over_suricata", ours / theirs),
        ]);
        last = Some(runs);
    }
    let row = Row::new(case).key("packets", packets).key("bytes", bytes);
    let row = match &last {
        None => row,
        Some((peer, own)) => {
            let [only_peer, only_own] =
                [(peer, own), (own, peer)].map(|(one, other)| one.found.difference(&other.found).collect::<Vec<_>>());
            list(case, "suricata", &only_peer);
            list(case, "sluice", &only_own);
            row.key("suricata_alerts", peer.lines)
                .key("sluice_alerts", own.lines)
                .key("only_suricata", only_peer.len())
                .key("only_sluice", only_own.len())
        }
    };
    Ok(row.runs(&all))
}

pub fn run(run: &mut Run<'_>, arguments: &InspectArguments, peer: &Peer) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    fs::write(folder.join("suricata.yaml"), settings())?;
    one_packet(&folder.join("one.pcap"))?;
    let cores = sluice_dpdk::eal::allowed_cores();
    let bench = Bench {
        folder,
        core: arguments.on.first().or(cores.first()).copied().unwrap_or(0),
        peer,
        own: crate::daemon::program(arguments.sluice.as_ref()),
        signatures: &arguments.signatures,
        dialect: arguments.dialect.name(),
    };
    let rounds = if run.quick { 3 } else { 5 };
    for mix in [Mix::Http, Mix::Tls] {
        let capture = folder.join(mix.name());
        mix::write(&capture, mix, CONNECTIONS[usize::from(run.quick)])?;
        (run.row)(measure(&bench, &mix.name(), &capture, rounds)?);
    }
    for capture in &arguments.captures {
        let name = capture.file_name().unwrap_or_default().to_string_lossy();
        (run.row)(measure(&bench, &name, capture, rounds)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_is_named_with_its_program() {
        let peer = Peer {
            program: "/opt/bin/suricata".into(),
        };
        assert_eq!(Ok(peer), "suricata=/opt/bin/suricata".parse());
        for wrong in ["suricata", "suricata=", "zeek=/usr/bin/zeek"] {
            assert!(wrong.parse::<Peer>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn processor_time_is_that_of_the_children() {
        assert_eq!(Some(61.75), processor_time("0m0.010s 0m0.020s\n1m1.250s 0m0.500s\n"));
        assert_eq!(None, processor_time("0m0.010s 0m0.020s\n"));
        assert_eq!(None, processor_time("a b\nc d\n"));
    }
}
