//! Tests that the parsers find the names in nDPI's listings of captures of real applications.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};
use sluice_inspect::protocols::{
    ClientHello, Dns, DnsStream, Http, MessageEvent, ParserCapacity, ParserPools, ProbeResult, ProtocolProbe, Slot,
    TlsServer,
};
use sluice_inspect::signature::Toward;
use sluice_inspect::signature::{Buffer, Service};

type Names = BTreeSet<String>;
type End = (Vec<u8>, u16);

/// A connection whose segments are processed in order. Segments out of order are ignored.
#[derive(Default)]
struct Connection {
    client: Option<End>,
    next: [Option<u32>; 2],
    recognise: ProtocolProbe,
    protocol: Option<ProbeResult>,
    http: Http,
    tls: ClientHello,
    server: TlsServer,
    dns: [DnsStream; 2],
}

impl Connection {
    fn segment(&mut self, store: &mut ParserPools, toward: Toward, mut bytes: &[u8], names: &mut Names) {
        let sink = &mut |slot: Slot<'_>, piece| note(names, slot, piece);
        if self.protocol.is_none() {
            let (said, taken) = self.recognise.bytes(toward, bytes);
            if said == ProbeResult::NeedMore {
                return;
            }
            self.protocol = Some(said);
            let heads = [Toward::Server, Toward::Client].map(|toward| (toward, self.recognise.head(toward).to_vec()));
            for (toward, head) in heads {
                self.parse(store, toward, &head, sink);
            }
            bytes = &bytes[taken..];
        }
        self.parse(store, toward, bytes, sink);
    }

    fn parse(
        &mut self,
        store: &mut ParserPools,
        toward: Toward,
        bytes: &[u8],
        sink: &mut impl FnMut(Slot<'_>, MessageEvent),
    ) {
        match (self.protocol, toward) {
            (Some(ProbeResult::Identified(Service::Http)), Toward::Server) => _ = self.http.request(store, bytes, sink),
            (Some(ProbeResult::Identified(Service::Http)), Toward::Client) => {
                _ = self.http.response(store, bytes, sink)
            }
            (Some(ProbeResult::Identified(Service::Tls)), Toward::Server) => self.tls.bytes(store, bytes, sink),
            (Some(ProbeResult::Identified(Service::Tls)), Toward::Client) => self.server.bytes(store, bytes, sink),
            (Some(ProbeResult::Identified(Service::Dns)), _) => self.dns[toward as usize].bytes(store, bytes, sink),
            _ => {}
        }
    }
}

fn note(names: &mut Names, slot: Slot<'_>, piece: MessageEvent) {
    if let MessageEvent::Grew {
        buffer, complete: true, ..
    } = piece
        && [
            Buffer::HttpHost,
            Buffer::TlsSni,
            Buffer::Ja3Hash,
            Buffer::Ja3sHash,
            Buffer::Ja4Hash,
            Buffer::TlsCertFingerprint,
            Buffer::TlsCertSubject,
            Buffer::TlsCertIssuer,
            Buffer::DnsQuery,
        ]
        .contains(&buffer)
    {
        let name = String::from_utf8_lossy(slot.buffer(buffer).bytes).to_lowercase();
        names.insert(match buffer {
            Buffer::Ja4Hash => hashes(&name),
            _ => name,
        });
    }
}

/// The two hashes of a JA4 fingerprint. nDPI formats the part before the hashes differently, and writes a hash instead
/// of zeros for an empty list of extensions.
fn hashes(ja4: &str) -> String {
    let (_, hashes) = ja4.split_once('_').unwrap_or_default();
    hashes.replace("e3b0c44298fc", "000000000000")
}

fn frames(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).expect("a capture");
    let mut frames = Vec::new();
    if let Ok(mut reader) = PcapReader::new(&bytes[..]) {
        while let Some(Ok(packet)) = reader.next_packet() {
            frames.push(packet.data.to_vec());
        }
    } else if let Ok(mut reader) = PcapNgReader::new(&bytes[..]) {
        while let Some(Ok(block)) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block {
                frames.push(packet.data.to_vec());
            }
        }
    }
    frames
}

/// Parses a frame of any link type.
fn sliced(frame: &[u8]) -> Option<SlicedPacket<'_>> {
    // The link type is Ethernet, none, or Linux's cooked header of 16 bytes.
    let ethernet = SlicedPacket::from_ethernet(frame)
        .ok()
        .filter(|packet| packet.transport.is_some());
    let bare = || SlicedPacket::from_ip(frame).ok();
    let cooked = || SlicedPacket::from_ip(frame.get(16..)?).ok();
    ethernet.or_else(bare).or_else(cooked)
}

fn found(path: &Path) -> Names {
    let mut store = ParserPools::new(&ParserCapacity::default());
    let mut connections: HashMap<(End, End), Connection> = HashMap::new();
    let mut names = Names::new();
    for frame in frames(path) {
        let Some(packet) = sliced(&frame) else {
            continue;
        };
        let (from, to) = match &packet.net {
            Some(NetSlice::Ipv4(ip)) => (ip.header().source().to_vec(), ip.header().destination().to_vec()),
            Some(NetSlice::Ipv6(ip)) => (ip.header().source().to_vec(), ip.header().destination().to_vec()),
            _ => continue,
        };
        match &packet.transport {
            Some(TransportSlice::Udp(udp)) if udp.source_port() == 53 || udp.destination_port() == 53 => {
                let mut dns = Dns::default();
                dns.message(&mut store, udp.payload(), &mut |slot: Slot<'_>, piece| {
                    note(&mut names, slot, piece)
                });
                dns.release(&mut store);
            }
            Some(TransportSlice::Tcp(tcp)) => {
                let (from, to) = ((from, tcp.source_port()), (to, tcp.destination_port()));
                let pair = if from < to {
                    (from.clone(), to.clone())
                } else {
                    (to.clone(), from.clone())
                };
                let connection = connections.entry(pair).or_default();
                if tcp.syn() {
                    connection
                        .client
                        .get_or_insert(if tcp.ack() { to.clone() } else { from.clone() });
                }
                // If the start of the connection is missing, the side with the higher port is the client.
                let lower = if from.1 < to.1 { to.clone() } else { from.clone() };
                let toward = if *connection.client.get_or_insert(lower) == from {
                    Toward::Server
                } else {
                    Toward::Client
                };
                let start = tcp.sequence_number().wrapping_add(tcp.syn().into());
                let next = connection.next[toward as usize].get_or_insert(start);
                let known = next.wrapping_sub(start) as usize;
                if let Some(fresh) = tcp.payload().get(known..) {
                    *next = next.wrapping_add(fresh.len() as u32);
                    connection.segment(&mut store, toward, fresh, &mut names);
                }
            }
            _ => {}
        }
    }
    for connection in connections.values_mut() {
        connection.http.close_request(&mut store, &mut |_: Slot<'_>, _| {});
        connection.http.close_response(&mut store, &mut |_: Slot<'_>, _| {});
        connection.http.release(&mut store);
        connection.tls.release(&mut store);
        connection.server.release(&mut store);
        connection.dns.iter_mut().for_each(|dns| dns.release(&mut store));
    }
    assert_eq!(
        (1024, 1024),
        (store.messages.available(), store.names.available()),
        "every slot came back"
    );
    names
}

/// Names and fingerprints that a listing contains for flows of HTTP, TLS and DNS.
fn listed(path: &Path) -> Names {
    let text = fs::read_to_string(path).expect("a listing");
    let mut names = Names::new();
    for line in text
        .lines()
        .filter(|line| line.contains("\tTCP ") || line.contains("DNS"))
    {
        // This test does not parse flows within a tunnel.
        let http = !line.contains("GTP:") && ["/HTTP", "/TLS", "/DNS"].iter().any(|protocol| line.contains(protocol));
        for key in [
            "[Hostname/SNI: ",
            "[JA3C: ",
            "[JA3S: ",
            "[JA4: ",
            "[Certificate SHA-1: ",
            "[Subject: ",
            "[Issuer: ",
        ] {
            // Segments of the listed servers are out of order or missing, so their fields are not compared.
            let is_server = ["[JA3S: ", "[Certificate SHA-1: ", "[Subject: ", "[Issuer: "].contains(&key);
            let disordered = ["http_ipv6", "tls_multiple_synack"]
                .iter()
                .any(|capture| path.to_string_lossy().contains(capture));
            if is_server && disordered {
                continue;
            }
            let value = line.split_once(key).and_then(|(_, rest)| rest.split_once(']'));
            let value = value.map(|(value, _)| value.trim_end_matches(" (WEAK)").to_lowercase());
            names.extend(value.filter(|_| http).map(|value| match key {
                "[JA4: " => hashes(&value),
                _ => value,
            }));
        }
    }
    names
}

#[test]
fn real_captures_give_the_names_of_their_listings() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/captures/applications");
    let Ok(files) = fs::read_dir(&folder) else {
        println!("no captures at {}: none was read", folder.display());
        return;
    };
    let (mut expected, mut missing) = (0, Vec::new());
    for file in files.map(|file| file.unwrap().path()) {
        let listing = file.with_added_extension("out");
        if file.extension().is_some_and(|kind| kind == "out") || !listing.exists() {
            continue;
        }
        let found = found(&file);
        for name in listed(&listing) {
            expected += 1;
            if !found.contains(&name) {
                missing.push(format!("{}: {name}", file.display()));
            }
        }
    }
    println!(
        "{} of {expected} names were found; not: {missing:#?}",
        expected - missing.len()
    );
    assert!(missing.is_empty(), "{missing:#?}");
}
