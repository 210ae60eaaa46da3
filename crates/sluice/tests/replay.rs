//! Runs the program on capture files, and checks its input, output and errors.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use sluice_testkit::packet;
use tempfile::TempDir;

const CONFIGURATION: &str = r#"
[sessions]
ipv4 = 4096
ipv6 = 1024

[interfaces.inside]
device = "null:"
addresses = ["10.0.0.1/24", "2001:db8:1::1/64"]
mac = "02:00:00:00:00:01"

[interfaces.outside]
device = "null:"
addresses = ["198.51.100.1/24", "2001:db8:2::1/64"]
mac = "02:00:00:00:00:02"

[[routes]]
to = "0.0.0.0/0"
via = "198.51.100.254"

[[routes]]
to = "::/0"
via = "2001:db8:2::fe"

[nat.pools.public]
addresses = ["198.51.100.10-198.51.100.11"]

[[nat.source]]
from = "10.0.0.0/24"
out = "outside"
pool = "public"
"#;

const INSIDE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OUTSIDE: [u8; 6] = [2, 0, 0, 0, 0, 2];
const HOST: [u8; 6] = [2, 0, 0, 0, 9, 9];

/// A directory with a configuration and captures.
struct Folder(TempDir);

impl Folder {
    fn new(configuration: &str) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        fs::write(folder.path("sluice.toml"), configuration).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A capture of frames that are one millisecond apart.
    fn capture(&self, name: &str, link: DataLink, frames: &[Vec<u8>]) {
        let header = PcapHeader {
            datalink: link,
            ..PcapHeader::default()
        };
        let mut writer = PcapWriter::with_header(File::create(self.path(name)).unwrap(), header).unwrap();
        for (number, frame) in (0u64..).zip(frames) {
            let at = Duration::from_millis(1_700_000_000_000 + 3 * number);
            writer
                .write_packet(&PcapPacket::new(at, frame.len() as u32, frame))
                .unwrap();
        }
    }

    fn replay(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.current_dir(self.0.path()).args(["replay", "-c", "sluice.toml"]);
        command.args(arguments).output().unwrap()
    }

    fn frames(&self, name: &str) -> Vec<Vec<u8>> {
        let mut reader = PcapReader::new(File::open(self.path(name)).unwrap()).unwrap();
        std::iter::from_fn(|| Some(reader.next_packet()?.unwrap().data.into_owned())).collect()
    }

    /// Run a replay that must fail. Returns the error message.
    fn refusal(&self, status: i32, arguments: &[&str]) -> String {
        let output = self.replay(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(Some(status), output.status.code(), "{said}");
        said
    }
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// UDP datagrams from many hosts to many servers, echo requests that are forwarded, and an echo request to the gateway.
fn traffic() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for number in 0..200u16 {
        let host = Ipv4Addr::new(10, 0, 0, 2 + (number % 40) as u8);
        let server = Ipv4Addr::new(192, 0, 2, 1 + (number % 7) as u8);
        let (source, port) = (format!("{host}:{}", 5000 + number), 53 + number % 3);
        let frame = packet::udp4(source.as_str(), format!("{server}:{port}").as_str());
        frames.push(frame.macs(HOST, INSIDE).payload(&number.to_be_bytes()).build());
        let echo = packet::icmp4_echo(host.to_string().as_str(), "192.0.2.9", number, 1);
        frames.push(echo.macs(HOST, INSIDE).build());
        let six = packet::udp6("[2001:db8:1::7]:4000", "[2001:db8:9::1]:53");
        frames.push(six.macs(HOST, INSIDE).build());
    }
    frames.push(
        packet::icmp4_echo("10.0.0.7", "10.0.0.1", 1, 1)
            .macs(HOST, INSIDE)
            .build(),
    );
    frames
}

#[test]
fn flow_out_is_translated_and_counted() {
    let folder = Folder::new(CONFIGURATION);
    let datagram = packet::udp4("10.0.0.2:5000", "192.0.2.1:53").payload(b"question");
    folder.capture("in.pcap", DataLink::ETHERNET, &[datagram.macs(HOST, INSIDE).build()]);
    let output = folder.replay(&["--in", "inside=in.pcap", "--out", "outside=out.pcap", "--json"]);
    let summary = json(&output);
    let sent: Vec<_> = folder
        .frames("out.pcap")
        .into_iter()
        .filter(|frame| frame.get(12..14) == Some(&[8, 0]))
        .collect();
    assert_eq!(1, sent.len(), "{summary}");
    let frame = &sent[0];
    let (source, port) = (&frame[26..30], u16::from_be_bytes([frame[34], frame[35]]));
    assert!(
        [[198, 51, 100, 10], [198, 51, 100, 11]]
            .iter()
            .any(|address| address == source)
    );
    assert!(port >= 1024);
    // The sent packets are equal, byte by byte, to packets that an independent library builds with the translated addresses.
    let source = format!("{}.{}.{}.{}:{port}", source[0], source[1], source[2], source[3]);
    let expected = packet::udp4(source.as_str(), "192.0.2.1:53")
        .payload(b"question")
        .ttl(63);
    let next_hop: [u8; 6] = frame[..6].try_into().unwrap();
    assert_eq!(expected.macs(OUTSIDE, next_hop).build(), *frame);
    assert_eq!(true, summary["balanced"]);
    let invented = summary["invented-neighbours"].as_array().unwrap();
    let addresses: Vec<_> = invented.iter().map(|neighbour| &neighbour["address"]).collect();
    assert_eq!(vec!["10.0.0.2", "198.51.100.254"], addresses);
}

#[test]
fn any_number_of_workers_gives_the_same_bytes() {
    let folder = Folder::new(CONFIGURATION);
    folder.capture("in.pcap", DataLink::ETHERNET, &traffic());
    let mut seen = Vec::new();
    for workers in ["1", "2", "4"] {
        let output = folder.replay(&[
            "--in",
            "inside=in.pcap",
            "--out",
            "inside=i.pcap",
            "--out",
            "outside=o.pcap",
            "--workers",
            workers,
            "--json",
        ]);
        assert_eq!(true, json(&output)["balanced"]);
        seen.push((
            fs::read(folder.path("i.pcap")).unwrap(),
            fs::read(folder.path("o.pcap")).unwrap(),
        ));
    }
    assert!(folder.frames("o.pcap").len() >= 600);
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0], seen[2]);
}

/// Uses captures of real applications, if they are available on this machine.
#[test]
fn real_captures_give_the_same_bytes_with_any_number_of_workers() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/captures/applications");
    let Ok(files) = fs::read_dir(&captures) else {
        println!(
            "no captures at {}: generated ones alone were replayed",
            captures.display()
        );
        return;
    };
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|kind| kind == "pcap"));
    files.sort();
    let open = CONFIGURATION
        .replace("mac = \"02:00:00:00:00:01\"", "source-validation = \"off\"")
        .replace("mac = \"02:00:00:00:00:02\"", "source-validation = \"off\"")
        .replace("10.0.0.0/24", "0.0.0.0/0");
    let folder = Folder::new(&open);
    let mut replayed = 0;
    for file in files.iter().take(12) {
        let input = format!("inside={}", file.display());
        let mut seen: Vec<Vec<u8>> = Vec::new();
        for workers in ["1", "2", "4"] {
            let output = folder.replay(&[
                "--in",
                &input,
                "--out",
                "outside=o.pcap",
                "--workers",
                workers,
                "--json",
            ]);
            if !output.status.success() {
                let said = String::from_utf8(output.stderr).unwrap();
                assert!(said.contains("the link type"), "{}: {said}", file.display());
                break;
            }
            assert_eq!(true, json(&output)["balanced"], "{}", file.display());
            seen.push(fs::read(folder.path("o.pcap")).unwrap());
        }
        replayed += usize::from(seen.len() == 3);
        assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{}", file.display());
    }
    assert!(replayed > 0);
}

#[test]
fn capture_that_is_cut_off_is_named_with_its_last_frame() {
    let folder = Folder::new(CONFIGURATION);
    folder.capture("in.pcap", DataLink::ETHERNET, &traffic());
    let whole = fs::read(folder.path("in.pcap")).unwrap();
    // Length of the file header, of two frames with packet headers of 16 bytes each, and of a part of the third frame.
    let traffic = traffic();
    let two = 24 + 32 + traffic[0].len() + traffic[1].len();
    fs::write(folder.path("cut.pcap"), &whole[..two + 20]).unwrap();
    let said = folder.refusal(1, &["--in", "inside=cut.pcap"]);
    assert!(said.contains("cut.pcap is truncated after frame 2"), "{said}");
}

#[test]
fn capture_of_a_foreign_link_or_no_capture_is_refused() {
    let folder = Folder::new(CONFIGURATION);
    folder.capture("wifi.pcap", DataLink::IEEE802_11, &traffic());
    let said = folder.refusal(1, &["--in", "inside=wifi.pcap"]);
    assert!(
        said.contains("wifi.pcap, in its header: the link type IEEE802_11 (105) is not supported: Ethernet, raw IP"),
        "{said}"
    );
    let said = folder.refusal(1, &["--in", "inside=sluice.toml"]);
    assert!(said.contains("sluice.toml is no capture file"), "{said}");
    let said = folder.refusal(1, &["--in", "inside=nowhere.pcap"]);
    assert!(said.contains("nowhere.pcap"), "{said}");
}

#[test]
fn frames_that_a_snap_length_cut_are_replayed_where_their_headers_are_there_and_counted() {
    let folder = Folder::new(CONFIGURATION);
    let datagram = |length| {
        let payload = vec![b'x'; length];
        let frame = packet::udp4("10.0.0.2:5000", "192.0.2.1:53").payload(&payload);
        frame.macs(HOST, INSIDE).build()
    };
    let whole = [datagram(400), datagram(30), datagram(400)];
    // The second frame is complete. The third frame is truncated within the UDP header.
    let header = PcapHeader {
        snaplen: 96,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(File::create(folder.path("in.pcap")).unwrap(), header).unwrap();
    for (frame, captured) in whole.iter().zip([96, 72, 40]) {
        let cut = PcapPacket::new(Duration::from_secs(1), frame.len() as u32, &frame[..captured]);
        writer.write_packet(&cut).unwrap();
    }
    drop(writer);
    let arguments = ["--in", "inside=in.pcap", "--out", "outside=out.pcap"];
    let summary = json(&folder.replay(&[&arguments[..], &["--json"]].concat()));
    assert_eq!(
        (2, 1, true),
        (
            summary["truncated-capture"].as_u64().unwrap(),
            summary["truncated-headers"].as_u64().unwrap(),
            summary["balanced"].as_bool().unwrap()
        )
    );
    let sent = folder.frames("out.pcap");
    let lengths: Vec<_> = sent
        .iter()
        .filter(|frame| frame[12..14] == [8, 0])
        .map(Vec::len)
        .collect();
    assert_eq!(vec![442, 72], lengths);
    let cut = sent.iter().find(|frame| frame.len() == 442).unwrap();
    assert!(cut[42..96].iter().all(|&byte| byte == b'x') && cut[96..].iter().all(|&byte| byte == 0));
    let text = String::from_utf8(folder.replay(&arguments).stdout).unwrap();
    assert!(
        text.contains("Truncated capture: a snap length cut 2 frames") && text.contains("1 of them were left out"),
        "{text}"
    );
}

#[test]
fn packets_of_other_links_are_replayed_as_ethernet() {
    let folder = Folder::new(CONFIGURATION);
    let ethernet = packet::udp4("10.0.0.2:5000", "192.0.2.1:53").payload(b"question");
    let ethernet = ethernet.macs(HOST, INSIDE).build();
    folder.capture("ethernet.pcap", DataLink::ETHERNET, std::slice::from_ref(&ethernet));
    let sent = |name: &str| {
        let input = format!("inside={name}");
        assert_eq!(
            true,
            json(&folder.replay(&["--in", &input, "--out", "outside=out.pcap", "--json"]))["balanced"]
        );
        let mut frames = folder.frames("out.pcap");
        frames.retain(|frame| frame[12..14] == [8, 0]);
        frames
    };
    let expected = sent("ethernet.pcap");
    assert_eq!(1, expected.len());
    for (link, header) in [
        (DataLink::RAW, vec![]),
        (DataLink::IPV4, vec![]),
        (DataLink::NULL, vec![2, 0, 0, 0]),
        (DataLink::LOOP, vec![0, 0, 0, 2]),
        (DataLink::LINUX_SLL, [[0; 14].as_slice(), &[8, 0]].concat()),
        (DataLink::Unknown(276), [[8, 0].as_slice(), &[0; 18]].concat()),
    ] {
        let packet = [header.as_slice(), &ethernet[14..]].concat();
        folder.capture("other.pcap", link, &[packet]);
        assert_eq!(expected, sent("other.pcap"), "{link:?}");
    }
}

const INSPECTION: &str = r#"
[inspection]
interfaces = ["inside"]
mode = "detect"
cache = ""
alerts = 16

[[inspection.signatures]]
file = "some.rules"
dialect = "suricata"

[inspection.eve]
file = "eve.json"
types = ["alert", "flow", "dns", "stats"]
records = 16
"#;

/// Rules that cause more alerts for one packet than the queue holds, and one record per flow.
fn rules() -> String {
    (1..=40)
        .map(|number| {
            format!("alert udp any any -> any any (msg:\"rule {number}\"; content:\"|00|\"; sid:{number};)\n")
        })
        .collect()
}

/// The written records, except records of type `stats`.
fn records(text: &str) -> Vec<serde_json::Value> {
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines
        .filter(|line: &serde_json::Value| line["event_type"] != "stats")
        .collect()
}

#[test]
fn records_of_inspection_are_the_same_bytes_with_any_number_of_workers_and_shards_and_none_is_lost() {
    let mut written = Vec::new();
    for (workers, shards) in [("1", 16), ("1", 16), ("4", 16), ("1", 1), ("2", 4)] {
        let system = format!("[system]\nshards = {shards}\n");
        let folder = Folder::new(&[&system, CONFIGURATION, INSPECTION].concat());
        fs::write(folder.path("some.rules"), rules()).unwrap();
        folder.capture("in.pcap", DataLink::ETHERNET, &traffic());
        let arguments = ["--in", "inside=in.pcap", "--workers", workers, "--json"];
        let summary = json(&folder.replay(&arguments));
        let text = fs::read_to_string(folder.path("eve.json")).unwrap();
        assert_eq!(0, summary["eve"]["lost"], "{summary}");
        assert_eq!(text.lines().count() as u64, summary["eve"]["written"].as_u64().unwrap());
        written.push(text);
    }
    for other in &written[1..] {
        assert!(written[0] == *other);
    }
    let records = records(&written[0]);
    let of = |kind: &str| records.iter().filter(|line| line["event_type"] == kind).count();
    // Each of the 200 datagrams matches all 40 rules, because the first of its two payload bytes is 0.
    assert_eq!(200 * 40, of("alert"));
    // 200 IPv4 UDP flows, 200 echo flows, and one IPv6 flow.
    assert_eq!(401, of("flow"));
    assert_eq!("2023-11-14T22:13:20.000000Z", records[0]["timestamp"]);
    let times: Vec<_> = records.iter().map(|line| line["timestamp"].as_str().unwrap()).collect();
    assert!(times.is_sorted());
}

#[test]
fn records_go_to_the_file_that_is_named_and_are_refused_where_nothing_is_inspected() {
    let folder = Folder::new(&[CONFIGURATION, INSPECTION].concat());
    fs::write(folder.path("some.rules"), rules()).unwrap();
    folder.capture("in.pcap", DataLink::ETHERNET, &traffic());
    fs::write(folder.path("named.json"), "older\n").unwrap();
    let output = folder.replay(&["--in", "inside=in.pcap", "--eve", "named.json"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("Inspection records: "), "{said}");
    assert!(!folder.path("eve.json").exists());
    assert!(!records(&fs::read_to_string(folder.path("named.json")).unwrap()).is_empty());
    let plain = Folder::new(CONFIGURATION);
    plain.capture("in.pcap", DataLink::ETHERNET, &traffic());
    let said = plain.refusal(1, &["--in", "inside=in.pcap", "--eve", "named.json"]);
    assert!(
        said.contains("named.json: there are no inspection records") && said.contains("[inspection]"),
        "{said}"
    );
}

#[test]
fn interface_that_is_not_configured_or_a_vlan_is_refused() {
    let folder = Folder::new(&(CONFIGURATION.to_owned() + "[interfaces.guests]\nparent = \"inside\"\nvlan = \"7\"\n"));
    folder.capture("in.pcap", DataLink::ETHERNET, &traffic());
    let said = folder.refusal(1, &["--in", "insid=in.pcap"]);
    assert!(
        said.contains("there is no interface `insid`: the interfaces are inside, outside"),
        "{said}"
    );
    let said = folder.refusal(1, &["--in", "guests=in.pcap"]);
    assert!(said.contains("`guests` is a VLAN of `inside`"), "{said}");
    let said = folder.refusal(1, &["--in", "inside=in.pcap", "--in", "inside=in.pcap"]);
    assert!(said.contains("two captures"), "{said}");
}

#[test]
fn configuration_that_is_wrong_is_refused_with_its_place() {
    let folder = Folder::new(&CONFIGURATION.replace("pool = \"public\"", "pool = \"pubic\""));
    folder.capture("in.pcap", DataLink::ETHERNET, &traffic());
    let said = folder.refusal(3, &["--in", "inside=in.pcap"]);
    assert!(said.contains("sluice.toml:") && said.contains("pubic"), "{said}");
}

/// Every example can be run: frames of a host on its first interface are processed, and the counters balance.
#[test]
fn examples_run() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let rules = examples.join("local.rules");
    let mut count = 0;
    for file in fs::read_dir(examples).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|kind| kind != "toml") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        // The tables are small, because this test only checks that the example runs.
        let text: String = text
            .lines()
            .map(|line| match line.split_once(" = ") {
                Some(("ipv4" | "ipv6", value)) if value.trim().starts_with(|c: char| c.is_ascii_digit()) => {
                    format!("{} = 65536\n", line.split(' ').next().unwrap())
                }
                _ => format!("{line}\n"),
            })
            .collect();
        let interface = text.lines().find_map(|line| line.strip_prefix("[interfaces.")).unwrap();
        let interface = interface.trim_end_matches(']').trim_matches('"');
        let folder = Folder::new(&text);
        // Rule files must be in the directory of the configuration that refers to them.
        fs::copy(&rules, folder.path("local.rules")).unwrap();
        folder.capture("in.pcap", DataLink::ETHERNET, &traffic());
        let output = folder.replay(&["--in", &format!("{interface}=in.pcap"), "--json"]);
        assert_eq!(true, json(&output)["balanced"], "{}", path.display());
        count += 1;
    }
    assert!(count > 0);
}
