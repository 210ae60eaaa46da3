//! Tests the command `sluice plan`.

use crate::serving;
use std::borrow::Cow;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::routing::{get, post};
use axum::{Json, Router};
use pcap_file::DataLink;
use pcap_file::pcap::{PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use sluice_config::api::{CaptureRequest, CaptureSource, Interface, Page, operation};
use sluice_testkit::packet;
use tempfile::TempDir;

const CONFIGURATION: &str = r#"
[sessions]
ipv4 = 4096
ipv6 = 1024

[interfaces.inside]
device = "null:"
addresses = ["10.0.0.1/24"]
mac = "02:00:00:00:00:01"

[interfaces.outside]
device = "null:"
addresses = ["198.51.100.1/24"]

[[routes]]
to = "0.0.0.0/0"
via = "198.51.100.254"

[nat.pools.public]
addresses = ["198.51.100.10-198.51.100.11"]

[[nat.source]]
from = "10.0.0.0/24"
out = "outside"
pool = "public"
"#;

/// A datagram from a host to a server.
fn datagram() -> Vec<u8> {
    let frame = packet::udp4("10.0.0.2:5000", "192.0.2.1:4500").payload(&[7; 400]);
    frame.macs([2, 0, 0, 0, 9, 9], [2, 0, 0, 0, 0, 1]).build()
}

/// The capture of a daemon with one interface.
fn capture(interface: &str, frames: usize) -> Vec<u8> {
    let mut writer = PcapNgWriter::new(Vec::new()).unwrap();
    let options = vec![InterfaceDescriptionOption::IfName(Cow::Borrowed(interface))];
    let block = InterfaceDescriptionBlock {
        linktype: DataLink::ETHERNET,
        snaplen: 0,
        options,
    };
    writer.write_pcapng_block(block).unwrap();
    for _ in 0..frames {
        let frame = datagram();
        let block = EnhancedPacketBlock {
            original_len: frame.len() as u32,
            data: Cow::Owned(frame),
            interface_id: 0,
            timestamp: Duration::ZERO,
            options: Vec::new(),
        };
        writer.write_pcapng_block(block).unwrap();
    }
    writer.into_inner()
}

/// A fake daemon whose only interface receives `frames` frames between two polls.
fn daemon(interface: &'static str, frames: usize) -> (TempDir, PathBuf) {
    let counted = Arc::new(AtomicU64::new(0));
    let interfaces = async move || {
        let packets = counted.fetch_add(frames as u64, Ordering::Relaxed);
        let interface = serde_json::json!({
            "name": interface, "device": "null:", "driver": "null", "link": "up", "mac": "", "mtu": 1500, "queues": 1,
            "steering": "", "addresses": [], "received": packets, "received-bytes": 442 * packets, "sent": 0,
            "sent-bytes": 0, "originated": 0, "dropped": 0, "to-host": 0, "parked": 0, "unparked": 0, "counters": [],
        });
        let interface: Interface = serde_json::from_value(interface).unwrap();
        Json(Page::whole(vec![interface]))
    };
    let captured = async move |Json(request): Json<CaptureRequest>| {
        assert_eq!((CaptureSource::Received, 1), (request.source, request.seconds));
        capture(interface, frames)
    };
    let router = Router::new().route(operation::Interfaces::PATH, get(interfaces));
    serving::serve(router.route(operation::Capture::PATH, post(captured)))
}

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        fs::write(folder.path("sluice.toml"), CONFIGURATION).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A capture with datagrams from one host to one server.
    fn elephant(&self, name: &str) {
        let mut writer = PcapWriter::new(File::create(self.path(name)).unwrap()).unwrap();
        for number in 0..500 {
            let frame = datagram();
            let at = Duration::from_millis(number);
            writer
                .write_packet(&PcapPacket::new(at, frame.len() as u32, &frame))
                .unwrap();
        }
    }

    fn plan(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.current_dir(self.0.path()).args(["plan", "-c", "sluice.toml"]);
        command.env_remove("SLUICE_SOCKET");
        command.args(arguments).output().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let output = self.plan(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// A core that this test may use.
fn core() -> String {
    let machine = sluice_daemon::machine(Default::default()).unwrap();
    machine.cores[0].to_string()
}

#[test]
fn plan_names_costs_candidates_choice_and_reasons() {
    let folder = Folder::new();
    let output = folder.plan(&["--for", "1G sfr"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for part in [
        "receive",
        "parse",
        "session",
        "transmit",
        "a worker alone",
        "PLACEMENT",
        "Choice: ",
        "is the bottleneck",
    ] {
        assert!(text.contains(part), "no {part} in:\n{text}");
    }
    assert!(
        text.contains("1G sfr corresponds to 0.21 million packets per second, 4,0"),
        "{text}"
    );
}

#[test]
fn plan_on_one_core_runs_to_completion_there() {
    let folder = Folder::new();
    let plan = folder.json(&["--cores", &core()]);
    assert_eq!(format!("run-to-completion on {}", core()), plan["choice"]["placement"]);
    assert_eq!(1, plan["candidates"].as_array().unwrap().len());
    let cycles: f64 = plan["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| part["undivided"].as_f64().unwrap())
        .sum();
    let rate = plan["choice"]["packets-per-second"].as_f64().unwrap();
    let expected = plan["frequency"].as_f64().unwrap() / cycles;
    assert!((rate / expected - 1.0).abs() < 1e-6, "{rate} {expected}");
}

#[test]
fn plan_for_a_capture_of_one_flow_sees_the_elephant() {
    let folder = Folder::new();
    folder.elephant("in.pcap");
    let plan = folder.json(&["--in", "inside=in.pcap", "--for", "100M"]);
    assert_eq!(1.0, plan["traffic"]["busiest-shard"]);
    assert_eq!(442.0, plan["traffic"]["bytes"]);
    let rate = plan["answer"]["packets-per-second"].as_f64().unwrap();
    assert!((rate - 100e6 / 8.0 / 442.0).abs() < 1.0, "{rate}");
    assert!(plan["answer"]["cores"].as_u64().unwrap() >= 1);
}

#[test]
fn plan_on_live_traffic_measures_with_what_the_daemon_received() {
    let folder = Folder::new();
    let (_daemon, socket) = daemon("inside", 500);
    let socket = socket.to_str().unwrap();
    let plan = folder.json(&["--live", "1s", "--socket", socket, "--for", "100M"]);
    let source = &plan["traffic"]["source"];
    assert_eq!("daemon", source["from"]);
    assert_eq!(
        [500, 500],
        [&source["packets"], &source["kept"]].map(|number| number.as_u64().unwrap())
    );
    assert_eq!(
        [442.0, 442.0],
        [&source["bytes"], &plan["traffic"]["bytes"]].map(|number| number.as_f64().unwrap())
    );
    assert_eq!(1.0, plan["traffic"]["busiest-shard"]);
    let text = String::from_utf8(folder.plan(&["--live", "1s", "--socket", socket]).stdout).unwrap();
    assert!(
        text.contains("500 packets in")
            && text
                .contains("inside: 500 packets with 442 bytes on average, of which 500 are used for the measurement"),
        "{text}"
    );
}

#[test]
fn plan_without_live_traffic_is_refused_with_what_to_do() {
    let folder = Folder::new();
    let (_silent, silent) = daemon("inside", 0);
    let (_other, other) = daemon("elsewhere", 5);
    for (socket, part) in [
        (
            silent.to_str().unwrap(),
            "received no packet on inside (null:), outside (null:)",
        ),
        (
            other.to_str().unwrap(),
            "none of the interfaces of this configuration (inside, outside)",
        ),
        ("no-such", "no daemon runs, and none of the devices ("),
    ] {
        let output = folder.plan(&["--live", "1s", "--socket", socket]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (Some(1), ""),
            (output.status.code(), std::str::from_utf8(&output.stdout).unwrap())
        );
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn plan_that_makes_no_sense_is_refused_with_what_to_write() {
    let folder = Folder::new();
    folder.elephant("in.pcap");
    let cases: [(&[&str], i32, &str); 6] = [
        (&["--for", "10"], 2, "write bits per second, such as 10G"),
        (&["--for", "10G imix"], 2, "a profile (sfr)"),
        (&["--cores", "x"], 2, "0-3,8"),
        (&["--cores", "1000"], 1, "write other cores with --cores"),
        (
            &["--in", "inside=in.pcap", "--for", "1G 64"],
            1,
            "--in and `1G 64` describe different traffic",
        ),
        (
            &["--live", "--for", "1G sfr"],
            1,
            "--live and `1G sfr` describe different traffic",
        ),
    ];
    for (arguments, status, part) in cases {
        let output = folder.plan(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(Some(status), output.status.code(), "{said}");
        assert!(said.contains(part), "{arguments:?}: {said}");
    }
}
