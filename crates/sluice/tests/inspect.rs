//! Tests `sluice inspect`: matches of rules in captures, and the report on other packets.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use sluice_testkit::packet;
use tempfile::TempDir;

const RULES: &str = "\
alert tcp any any -> $WEB $HTTP_PORTS (msg:\"admin\"; flow:established,to_server; content:\"/admin\"; classtype:web-application-attack; sid:1; rev:3;)
alert tcp $WEB any -> any any (msg:\"secret\"; flow:established,to_client; content:\"secret\"; sid:2;)
alert udp any any -> any 53 (msg:\"question\"; content:\"example\"; sid:3;)
alert tcp any any -> any any (msg:\"no such option\"; no_such_option:x; sid:4;)
";

const CLIENT: &str = "192.0.2.9:40000";
const SERVER: &str = "10.0.0.1:8080";

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        fs::write(folder.path("some.rules"), RULES).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A capture of frames that are one millisecond apart, each truncated to `snap` bytes.
    fn capture(&self, frames: &[Vec<u8>], snap: usize) {
        let header = PcapHeader::default();
        let mut writer = PcapWriter::with_header(File::create(self.path("some.pcap")).unwrap(), header).unwrap();
        for (number, frame) in (0u64..).zip(frames) {
            let at = Duration::from_millis(1_700_000_000_000 + 3 * number);
            let packet = PcapPacket::new(at, frame.len() as u32, &frame[..frame.len().min(snap)]);
            writer.write_packet(&packet).unwrap();
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.current_dir(self.0.path()).args(["inspect"]).args(arguments);
        command
    }

    fn inspect(&self, more: &[&str]) -> Output {
        let usual = [
            "some.pcap",
            "--rules",
            "some.rules",
            "--var",
            "WEB=10.0.0.1",
            "--var",
            "HTTP_PORTS=[80,8080]",
        ];
        let output = self.command(&[&usual[..], more].concat()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A TCP connection with a request in two segments, and a DNS query. The client of the TCP connection has the higher
/// address.
fn traffic() -> Vec<Vec<u8>> {
    let segment = |from: &str, to: &str, flags: u8, (sequence, acknowledgment): (u32, u32), payload: &[u8]| {
        let frame = packet::tcp4(from, to).flags(flags).numbers(sequence, acknowledgment);
        frame.payload(payload).build()
    };
    let (syn, ack, push) = (2, 16, 24);
    vec![
        segment(CLIENT, SERVER, syn, (99, 0), b""),
        segment(SERVER, CLIENT, syn | ack, (499, 100), b""),
        segment(CLIENT, SERVER, ack, (100, 500), b""),
        segment(CLIENT, SERVER, push, (100, 500), b"GET /ad"),
        segment(CLIENT, SERVER, push, (107, 500), b"min HTTP/1.1\r\n\r\n"),
        segment(
            SERVER,
            CLIENT,
            push,
            (500, 123),
            b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret",
        ),
        packet::udp4("10.0.0.7:5000", "192.0.2.53:53")
            .payload(b"an example")
            .build(),
    ]
}

const EXPECTED: [&str; 3] = [
    "11/14/2023-22:13:20.012000  [**] [1:1:3] admin [**] [Classification: web-application-attack] [Priority: 1] {TCP} \
     192.0.2.9:40000 -> 10.0.0.1:8080",
    "11/14/2023-22:13:20.015000  [**] [1:2:0] secret [**] [Classification: (none)] [Priority: 3] {TCP} 10.0.0.1:8080 -> \
     192.0.2.9:40000",
    "11/14/2023-22:13:20.018000  [**] [1:3:0] question [**] [Classification: (none)] [Priority: 3] {UDP} 10.0.0.7:5000 -> \
     192.0.2.53:53",
];

#[test]
fn alerts_are_printed_as_lines_in_the_order_of_the_capture_and_summarised() {
    let folder = Folder::new();
    folder.capture(&traffic(), usize::MAX);
    let output = folder.inspect(&[]);
    assert_eq!(EXPECTED.to_vec(), text(&output.stdout).lines().collect::<Vec<_>>());
    let said = text(&output.stderr);
    for expected in [
        "7 packets",
        "2 flows; 3 alerts",
        "3 rules active, 1 refused",
        "some.rules:4: no_such_option",
    ] {
        assert!(said.contains(expected), "{said}");
    }
    assert!(!said.contains("not inspected"), "{said}");
}

#[test]
fn alerts_and_records_are_lines_of_eve_json_and_the_same_at_each_run() {
    let folder = Folder::new();
    folder.capture(&traffic(), usize::MAX);
    let mut seen = Vec::new();
    for _ in 0..2 {
        let output = folder.inspect(&["--json", "--eve", "eve.json"]);
        seen.push((output.stdout, fs::read(folder.path("eve.json")).unwrap()));
    }
    assert!(seen[0] == seen[1]);
    let read = |bytes: &[u8]| -> Vec<serde_json::Value> {
        text(bytes)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let printed = read(&seen[0].0);
    let numbers: Vec<_> = printed
        .iter()
        .map(|line| line["alert"]["signature_id"].as_u64().unwrap())
        .collect();
    assert_eq!(vec![1, 2, 3], numbers);
    assert_eq!("2023-11-14T22:13:20.012000Z", printed[0]["timestamp"]);
    let written = read(&seen[0].1);
    let of = |kind: &str| {
        written
            .iter()
            .filter(|line| line["event_type"] == kind)
            .collect::<Vec<_>>()
    };
    assert_eq!([3, 2, 1], ["alert", "flow", "http"].map(|kind| of(kind).len()));
    let http = of("http")[0];
    assert_eq!(
        ("/admin", 200),
        (
            http["http"]["url"].as_str().unwrap(),
            http["http"]["status"].as_u64().unwrap()
        )
    );
    assert_eq!("192.0.2.9", http["src_ip"]);
}

#[test]
fn capture_from_standard_input_and_one_that_was_cut_are_taken() {
    let folder = Folder::new();
    folder.capture(&traffic(), usize::MAX);
    let arguments = [
        "-",
        "-S",
        "some.rules",
        "--var",
        "WEB=10.0.0.1",
        "--var",
        "HTTP_PORTS=any",
    ];
    let mut child = folder
        .command(&arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let bytes = fs::read(folder.path("some.pcap")).unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(EXPECTED.to_vec(), text(&output.stdout).lines().collect::<Vec<_>>());
    // The captured bytes contain all headers and the first bytes of each payload. Only the text for the last of the
    // three rules is missing.
    folder.capture(&traffic(), 80);
    let output = folder.inspect(&[]);
    assert!(text(&output.stdout).contains("admin") && !text(&output.stdout).contains("secret"));
    let said = text(&output.stderr);
    assert!(said.contains("Truncated capture: a snap length cut 1 frames"), "{said}");
}

#[test]
fn packets_with_wrong_checksums_are_left_out_where_that_is_wanted() {
    let folder = Folder::new();
    let mut traffic = traffic();
    let question = traffic.last_mut().unwrap();
    question[40] ^= 1;
    folder.capture(&traffic, usize::MAX);
    assert_eq!(3, text(&folder.inspect(&[]).stdout).lines().count());
    let output = folder.inspect(&["--checksums"]);
    assert_eq!(EXPECTED[..2].to_vec(), text(&output.stdout).lines().collect::<Vec<_>>());
    assert!(text(&output.stderr).contains("1 packets were not inspected: "));
}

#[test]
fn capture_or_rules_that_cannot_be_read_are_named() {
    let folder = Folder::new();
    folder.capture(&traffic(), usize::MAX);
    let refusal = |arguments: &[&str]| {
        let output = folder.command(arguments).output().unwrap();
        assert_eq!(Some(1), output.status.code());
        text(&output.stderr)
    };
    fs::write(folder.path("bad.rules"), "alert nonsense\n").unwrap();
    for (arguments, expected) in [
        (["nowhere.pcap", "-S", "some.rules"], "nowhere.pcap"),
        (["some.rules", "-S", "some.rules"], "some.rules is no capture file"),
        (["some.pcap", "-S", "nowhere.rules"], "nowhere.rules"),
        (["some.pcap", "-S", "bad.rules"], "bad.rules:1"),
    ] {
        let said = refusal(&arguments);
        assert!(said.contains(expected), "{said}");
    }
}
