//! Tests that the detector and nDPI's own reader report equal names for flows of real captures.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::captured::{self, Key, Packet};
use sluice_inspect::applications::{ApplicationCapacity, ApplicationDetector, DetectionHandle, DetectionResult};

/// Protocol numbers of carrier and application; 0 if there is no protocol.
type Said = (u16, u16);

/// Identity of a flow in the outputs of detector and reader: its protocol and its endpoints, with the lower endpoint
/// first.
type Name = (u8, [(String, u16); 2]);

/// Results of the detector for every session of a capture.
fn ours(applications: &mut ApplicationDetector, packets: &[Packet]) -> HashMap<Key, Said> {
    let mut said: HashMap<Key, (Option<DetectionHandle>, Said)> = HashMap::new();
    for packet in packets {
        let (state, said) = said
            .entry(packet.key.clone())
            .or_insert_with(|| (Some(applications.allocate().expect("a state")), (0, 0)));
        let Some(flow) = *state else { continue };
        let before = packet.bytes.clone();
        let guess = applications.packet(flow, &packet.bytes, packet.direction, packet.time_ms);
        assert_eq!(before, packet.bytes, "a packet is only read");
        note(said, guess);
        if !applications.is_active(flow) {
            *state = None;
        }
    }
    said.into_iter()
        .map(|(key, (state, mut said))| {
            if let Some(flow) = state {
                note(&mut said, applications.give_up(flow));
            }
            (key, said)
        })
        .collect()
}

fn note(said: &mut Said, guess: DetectionResult) {
    if let DetectionResult::Application {
        master, application, ..
    } = guess
    {
        *said = (master, application);
    }
}

fn name(protocol: u8, mut ends: [(String, u16); 2]) -> Name {
    ends.sort();
    (protocol, ends)
}

/// Identity of a session in the format of nDPI's reader, without ICMP identifiers.
fn name_of(key: &Key) -> Name {
    let ends = key.ends.map(|(address, port)| {
        let port = if matches!(key.protocol, 6 | 17) { port } else { 0 };
        (address.to_string().replace(":0:", "::"), port)
    });
    name(key.protocol, ends)
}

/// Results of nDPI's reader of the same version.
fn readers(capture: &Path, folder: &Path) -> Option<HashMap<Name, Vec<Said>>> {
    let table = folder.join("flows.csv");
    let output = Command::new("ndpiReader")
        // Without `-v 2` the reader omits unknown flows.
        .args(["-v", "2", "-C"])
        .arg(&table)
        .arg("-i")
        .arg(capture)
        .output()
        .ok()?;
    assert!(output.status.success(), "ndpiReader failed on {}", capture.display());
    let mut said: HashMap<Name, Vec<Said>> = HashMap::new();
    for line in fs::read_to_string(table).unwrap_or_default().lines() {
        let field: Vec<_> = line.split(',').collect();
        if line.starts_with('#') || field.len() < 10 {
            continue;
        }
        let end = |at: usize| (field[at].to_string(), field[at + 1].parse().unwrap());
        let numbers = match field[9].split_once('.') {
            Some((master, application)) => (master.parse().unwrap(), application.parse().unwrap()),
            None => (0, field[9].parse().unwrap()),
        };
        let name = name(field[1].parse().unwrap(), [end(5), end(7)]);
        said.entry(name).or_default().push(numbers);
    }
    Some(said)
}

/// Results of a newer nDPI version, by name: `TLS.Google`.
fn expected(capture: &Path) -> HashMap<Name, String> {
    let listing = fs::read_to_string(format!("{}.out", capture.display())).unwrap_or_default();
    listing.lines().filter_map(expected_flow).collect()
}

fn expected_flow(line: &str) -> Option<(Name, String)> {
    let (_, rest) = line.split_once("\t")?.1.split_once("\t")?;
    let (protocol, rest) = rest.split_once(' ')?;
    let protocol = match protocol {
        "TCP" => 6,
        "UDP" => 17,
        _ => return None,
    };
    let (ends, rest) = rest.split_once(" [proto: ")?;
    let (one, other) = ends.split_once(" <-> ").or_else(|| ends.split_once(" -> "))?;
    let end = |text: &str| {
        let (address, port) = text.rsplit_once(':')?;
        Some((address.trim_matches(['[', ']']).to_string(), port.parse().ok()?))
    };
    let (_, named) = rest.split_once(']')?.0.split_once('/')?;
    Some((name(protocol, [end(one)?, end(other)?]), named.to_string()))
}

#[test]
fn applications_of_captures_agree_with_ndpis_reader() {
    let captures = captured::captures();
    if Command::new("ndpiReader").arg("-r").output().is_err() {
        eprintln!("skipped: ndpiReader is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [
        mut flows,
        mut agreed,
        mut named,
        mut named_agreed,
        mut newer,
        mut newer_agreed,
    ] = [0u32; 6];
    for capture in &captures {
        // A new detector for each capture has empty caches, like nDPI's reader.
        let mut applications = ApplicationDetector::new(ApplicationCapacity::default()).unwrap();
        let ours = ours(&mut applications, &captured::packets(capture));
        let mut readers = readers(capture, folder.path()).expect("ndpiReader runs");
        let expected = expected(capture);
        for (key, said) in &ours {
            let name = name_of(key);
            let theirs = readers.get(&name).map_or(&[][..], Vec::as_slice);
            let same = theirs.contains(said);
            if !same {
                eprintln!("{}: {name:?}: {said:?}, the reader: {theirs:?}", capture.display());
            }
            flows += 1;
            agreed += u32::from(same);
            let is_named = u32::from(*said != (0, 0) || theirs.iter().any(|said| *said != (0, 0)));
            named += is_named;
            named_agreed += is_named * u32::from(same);
            if let Some(expected) = expected.get(&name) {
                newer += 1;
                newer_agreed += u32::from(expected.eq_ignore_ascii_case(&names(&applications, *said)));
            }
        }
        for key in ours.keys() {
            readers.remove(&name_of(key));
        }
        for (name, said) in &readers {
            eprintln!("{}: {name:?}: no session, the reader: {said:?}", capture.display());
        }
        flows += readers.values().map(|all| all.len() as u32).sum::<u32>();
        assert_eq!(0, applications.active_flows());
        assert_eq!((0, 0, 0), {
            let memory = applications.memory();
            (memory.used, memory.refused, memory.foreign)
        });
    }
    println!("agreed with the reader: {agreed} of {flows} flows, of those with a name {named_agreed} of {named}");
    println!("agreed with the newer listings: {newer_agreed} of {newer} flows");
    assert!(agreed * 100 >= flows * 99, "{agreed} of {flows}");
    assert!(named_agreed * 100 >= named * 99, "{named_agreed} of {named}");
}

fn names(applications: &ApplicationDetector, (master, application): Said) -> String {
    let name = |number| applications.names().name(number).unwrap_or_default();
    match master {
        0 => name(application).to_string(),
        _ => format!("{}.{}", name(master), name(application)),
    }
}
