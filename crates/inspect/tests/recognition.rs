//! Tests rules for protocols. Each rule fires on flows of its protocol on any port, and on no other flows. The
//! applications of real captures are identified.

use crate::captured;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use crate::flows::play::{Message, Wire, play};
use crate::lab::Lab;
use sluice_inspect::protocols::{ProbeResult, ProtocolProbe};
use sluice_inspect::signature::Service;
use sluice_inspect::signature::Toward::{self, Client, Server};
use sluice_inspect::signatures::Dialect::{Snort3, Suricata};
use sluice_inspect::signatures::{Classes, RuleError, Variables, read};
use sluice_wire::Direction;

const ODD_PORT: u16 = 4_321;

fn wire(protocol: u8, port: u16) -> Wire {
    let mut wire = Wire {
        ports: [40_000, port],
        ..Wire::default()
    };
    wire.ip.protocol = protocol;
    wire
}

fn said(messages: &[(Toward, &[u8])]) -> Vec<Message> {
    let message = |(toward, bytes): &(Toward, &[u8])| Message {
        toward: *toward,
        bytes: bytes.to_vec(),
    };
    messages.iter().map(message).collect()
}

type Conversation = (&'static str, u8, &'static [(Toward, &'static [u8])]);

/// A conversation in each protocol, over TCP (6) or UDP (17). The last message of a conversation contains the word
/// `marker`.
const CONVERSATIONS: &[Conversation] = &[
    ("smtp", 6, &[(Client, b"220 a ready\r\n"), (Server, b"EHLO marker\r\n")]),
    ("ftp", 6, &[(Client, b"220 a ready\r\n"), (Server, b"USER marker\r\n")]),
    ("imap", 6, &[(Client, b"* OK a\r\n"), (Server, b"1 LOGIN marker x\r\n")]),
    ("pop3", 6, &[(Client, b"+OK a\r\n"), (Server, b"USER marker\r\n")]),
    ("ssh", 6, &[(Client, b"SSH-2.0-x\r\n"), (Server, b"SSH-2.0-marker\r\n")]),
    ("smb", 6, &[(Server, b"\0\0\0\x2d\xffSMBr\0\0\0\0 marker")]),
    ("rdp", 6, &[(Server, b"\x03\0\0\x24\x1f\xe0\0\0\0\0\0Cookie: mstshash=marker\r\n")]),
    ("ldap", 6, &[(Server, b"\x30\x12\x02\x01\x01\x60\x0d\x02\x01\x03\x04\x06marker\x80\0")]),
    ("sip", 6, &[(Server, b"INVITE sip:marker@example.org SIP/2.0\r\n\r\n")]),
    ("sip", 17, &[(Server, b"INVITE sip:marker@example.org SIP/2.0\r\n\r\n")]),
    ("irc", 6, &[(Server, b"NICK a\r\nUSER marker 0 * :b\r\n")]),
    ("telnet", 6, &[(Client, b"\xff\xfd\x18\xff\xfd\x20"), (Server, b"\xff\xfb\x18\xff\xfc\x20marker")]),
    ("krb5", 6, &[(Server, b"\0\0\0\x18\x6a\x16\x30\x14\xa1\x03\x02\x01\x05\xa2\x03\x02\x01\x0a\xa4\x08\x04\x06marker")]),
    ("nfs", 6, &[(Server, b"\x80\0\0\x2e\x12\x34\0\x01\0\0\0\0\0\0\0\x02\0\x01\x86\xa3\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0marker")]),
    ("nfs", 17, &[(Server, b"\x12\x34\0\x01\0\0\0\0\0\0\0\x02\0\x01\x86\xa3\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0marker")]),
    ("dcerpc", 6, &[(Server, b"\x05\0\x0b\x03\x10\0\0\0\x48\0\0\0\x01\0\0\0\xb8\x10marker")]),
    ("pgsql", 6, &[(Server, b"\0\0\0\x14\0\x03\0\0user\0marker\0\0")]),
    ("mysql", 6, &[(Client, b"\x4a\0\0\0\x0a8.0.36-marker\0")]),
    ("mqtt", 6, &[(Server, b"\x10\x12\0\x04MQTT\x04\x02\0\x3c\0\x06marker")]),
    ("http2", 6, &[(Server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmarker")]),
    ("dns", 6, &[(Server, b"\0\x18\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x06marker\0\0\x01\0\x01")]),
    ("dns", 17, &[(Server, b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x06marker\0\0\x01\0\x01")]),
    ("tftp", 17, &[(Server, b"\0\x01marker\0octet\0")]),
    ("snmp", 17, &[(Server, b"\x30\x26\x02\x01\x01\x04\x06marker\xa0\x19\x02\x01\x01\x02\x01\0\x02\x01\0\x30\x0e\x30\x0c\x06\x08\x2b\x06\x01\x02\x01\x01\x01\0\x05\0")]),
];

#[test]
fn rule_about_a_protocol_fires_on_any_port_and_at_no_other_protocol() {
    let names: Vec<&str> = {
        let mut names: Vec<_> = CONVERSATIONS.iter().map(|(name, ..)| *name).collect();
        names.dedup();
        names
    };
    let rules: String = (1..)
        .zip(&names)
        .map(|(sid, name)| format!("alert {name} any any -> any any (msg:\"m\"; content:\"marker\"; sid:{sid};)\n"))
        .collect();
    let mut lab = Lab::new(Suricata, &rules);
    for (name, protocol, messages) in CONVERSATIONS {
        let sid = |name| 1 + names.iter().position(|other| *other == name).unwrap() as u32;
        // SMB carries DCE RPC.
        let expected = match *name {
            "smb" => vec![sid("smb"), sid("dcerpc")],
            name => vec![sid(name)],
        };
        let whole = said(messages);
        lab.fired.clear();
        play(&mut lab, &wire(*protocol, ODD_PORT), &whole);
        assert_eq!(expected, lab.fired, "{name}");
        if *protocol == 17 {
            continue;
        }
        // The conversation is sent byte by byte.
        lab.fired.clear();
        let bytes: Vec<Message> = whole
            .iter()
            .flat_map(|message| {
                message.bytes.iter().map(|byte| Message {
                    toward: message.toward,
                    bytes: vec![*byte],
                })
            })
            .collect();
        play(&mut lab, &wire(6, ODD_PORT), &bytes);
        assert_eq!(expected, lab.fired, "{name}, byte by byte");
    }
}

#[test]
fn greeting_of_a_server_that_names_its_protocol_fires_before_the_client_answers() {
    let rules = r#"drop smtp any any -> any any (msg:"m"; content:"marker"; sid:1;)
        drop ftp any any -> any any (msg:"m"; content:"marker"; sid:2;)"#;
    let mut lab = Lab::new(Suricata, rules);
    play(
        &mut lab,
        &wire(6, ODD_PORT),
        &said(&[(Client, b"220 marker ESMTP\r\n")]),
    );
    play(
        &mut lab,
        &wire(6, ODD_PORT),
        &said(&[(Client, b"220 marker FTP server\r\n")]),
    );
    play(
        &mut lab,
        &wire(6, ODD_PORT),
        &said(&[(Client, b"220 marker server\r\n")]),
    );
    assert_eq!(vec![1, 2], lab.fired);
}

#[test]
fn service_of_a_rule_decides_where_it_is_recognised_and_ports_where_it_is_not() {
    let rules = r#"alert tcp any any -> any 25 ( msg:"m"; content:"marker"; service:smtp; sid:1; )
        alert tcp any any -> any 502 ( msg:"m"; content:"marker"; service:modbus; sid:2; )"#;
    let mut lab = Lab::new(Snort3, rules);
    let mail = said(&[(Client, b"220 a ESMTP\r\n"), (Server, b"EHLO marker\r\n")]);
    let other = said(&[(Server, b"\0\x01\0\0\0\x06marker")]);
    for (port, messages, expected) in [
        (ODD_PORT, &mail, vec![1]),
        (25, &mail, vec![1]),
        (502, &mail, vec![1]),
        (25, &other, vec![1]),
        (502, &other, vec![2]),
        (ODD_PORT, &other, vec![]),
    ] {
        lab.fired.clear();
        play(&mut lab, &wire(6, port), messages);
        assert_eq!(expected, lab.fired, "port {port}");
    }
}

#[test]
fn rule_about_a_protocol_that_is_not_recognised_is_refused_by_its_name() {
    for (dialect, rule, option) in [
        (
            Suricata,
            r#"alert modbus any any -> any any (msg:"m"; sid:1;)"#,
            "modbus",
        ),
        (
            Suricata,
            r#"alert tcp any any -> any 502 (msg:"m"; app-layer-protocol:modbus; sid:1;)"#,
            "app-layer-protocol",
        ),
        (Snort3, r#"alert modbus ( msg:"m"; sid:1; )"#, "modbus"),
        (
            Snort3,
            r#"alert tcp any any -> any any ( msg:"m"; content:"a"; service:modbus; sid:1; )"#,
            "service",
        ),
    ] {
        let mut file = read(rule.as_bytes(), dialect, &Variables::default(), &Classes::default());
        let refusal = file.refused.pop().unwrap_or_else(|| panic!("{rule} loads"));
        assert_eq!(
            (option, RuleError::NotIdentified("modbus".into())),
            (&*refusal.option, refusal.why)
        );
    }
}

#[test]
fn data_connection_is_recognised_where_its_control_connection_has_agreed_on_it() {
    let rules = r#"alert ftp-data any any -> any any (msg:"m"; content:"marker"; sid:1;)"#;
    let mut lab = Lab::new(Suricata, rules);
    let passive = said(&[
        (Client, b"220 a FTP server\r\n"),
        (Server, b"USER a\r\n"),
        (Client, b"331 a\r\n"),
        (Server, b"PASV\r\n"),
        (Client, b"227 Entering Passive Mode (198,51,100,7,16,1)\r\n"),
        (Server, b"RETR a\r\n"),
    ]);
    let data = said(&[(Client, b"some marker")]);
    play(&mut lab, &wire(6, 4097), &data);
    assert_eq!(Vec::<u32>::new(), lab.fired, "nothing is expected");
    play(&mut lab, &wire(6, 21), &passive);
    play(&mut lab, &wire(6, 4098), &data);
    assert_eq!(Vec::<u32>::new(), lab.fired, "on another port");
    let mut stranger = wire(6, 4097);
    stranger.addresses[0] = [192, 168, 0, 3].into();
    play(&mut lab, &stranger, &data);
    assert_eq!(Vec::<u32>::new(), lab.fired, "of another host");
    play(&mut lab, &wire(6, 4097), &data);
    assert_eq!(vec![1], lab.fired);
    play(&mut lab, &wire(6, 4097), &data);
    assert_eq!(vec![1], lab.fired, "once");
    // The client listens, and the server connects.
    let active = said(&[
        (Client, b"220 a FTP server\r\n"),
        (Server, b"PORT 192,168,0,2,16,1\r\n"),
    ]);
    play(&mut lab, &wire(6, 21), &active);
    let mut called = wire(6, 4097);
    called.addresses.reverse();
    play(&mut lab, &called, &said(&[(Server, b"some marker")]));
    assert_eq!(vec![1, 1], lab.fired);
}

/// The name in nDPI's listing for each flow, by protocol and endpoints.
fn listed(path: &Path) -> HashMap<String, String> {
    let Ok(text) = fs::read_to_string(path) else {
        return HashMap::new();
    };
    let mut flows = HashMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if let [_, protocol @ ("TCP" | "UDP"), from, _, to, ..] = words[..]
            && let Some((_, rest)) = line.split_once("[proto: ")
            && let Some((name, _)) = rest.split_once(']')
        {
            flows.insert(format!("{protocol} {from} {to}"), name.to_owned());
            flows.insert(format!("{protocol} {to} {from}"), name.to_owned());
        }
    }
    flows
}

/// nDPI's names of a service.
fn names(service: Service) -> &'static [&'static str] {
    match service {
        Service::Http => &["HTTP", "WebSocket", "SOAP", "OCSP", "IPP", "RTSP", "WebDAV"],
        Service::Http2 => &["HTTP2", "gRPC"],
        Service::Tls => &["TLS", "SSL", "POPS", "IMAPS", "SMTPS", "DoH", "Tor"],
        Service::Dns => &["DNS", "LLMNR"],
        Service::Smb => &["SMB", "NetBIOS"],
        Service::Nfs => &["NFS"],
        Service::Rpc => &["RPC", "NFS"],
        Service::Ftp => &["FTP_CONTROL"],
        Service::FtpData => &["FTP_DATA"],
        Service::Irc => &["IRC"],
        Service::MySql => &["MySQL"],
        Service::Postgres => &["PostgreSQL"],
        Service::Quic => &["QUIC"],
        Service::Tftp => &["TFTP"],
        Service::Dhcp => &["DHCP"],
        Service::Ntp => &["NTP"],
        Service::Snmp => &["SNMP"],
        Service::Sip => &["SIP"],
        Service::Ssh => &["SSH"],
        Service::Telnet => &["Telnet"],
        Service::Rdp => &["RDP"],
        Service::Ldap => &["LDAP"],
        Service::Krb5 => &["Kerberos"],
        Service::Dcerpc => &["DCE_RPC", "RPC"],
        Service::Mqtt => &["MQTT"],
        Service::Smtp => &["SMTP"],
        Service::Imap => &["IMAP"],
        Service::Pop3 => &["POP"],
        Service::Other(_) => &[],
    }
}

#[test]
fn flows_of_captures_are_recognised_as_their_listings_say() {
    let (mut found, mut wrong) = (BTreeMap::<String, usize>::new(), Vec::new());
    for path in captured::captures() {
        let listing = listed(&path.with_added_extension("out"));
        let mut flows: HashMap<captured::Key, (ProtocolProbe, ProbeResult)> = HashMap::new();
        for packet in captured::packets(&path) {
            let (recognise, said) = flows
                .entry(packet.key.clone())
                .or_insert((ProtocolProbe::default(), ProbeResult::NeedMore));
            let layers = etherparse::SlicedPacket::from_ip(&packet.bytes);
            let Ok(Some(transport)) = layers.as_ref().map(|layers| &layers.transport) else {
                continue;
            };
            let toward = match packet.direction {
                Direction::Forward => Toward::Server,
                Direction::Reverse => Toward::Client,
            };
            if *said != ProbeResult::NeedMore {
                continue;
            }
            *said = match transport {
                etherparse::TransportSlice::Tcp(tcp) => recognise.bytes(toward, tcp.payload()).0,
                etherparse::TransportSlice::Udp(udp) => {
                    recognise.datagram(toward, [udp.source_port(), udp.destination_port()], udp.payload())
                }
                _ => continue,
            };
        }
        for (key, (_, said)) in flows {
            let ProbeResult::Identified(service) = said else {
                continue;
            };
            let [(from, from_port), (to, to_port)] = key.ends;
            let end = |address: std::net::IpAddr, port| match address {
                std::net::IpAddr::V4(address) => format!("{address}:{port}"),
                std::net::IpAddr::V6(address) => format!("[{address}]:{port}"),
            };
            let protocol = if key.protocol == 6 { "TCP" } else { "UDP" };
            let flow = format!("{protocol} {} {}", end(from, from_port), end(to, to_port));
            let Some(name) = listing.get(&flow) else { continue };
            *found.entry(format!("{service:?}")).or_default() += 1;
            if !names(service).iter().any(|known| name.contains(known)) {
                wrong.push(format!(
                    "{}: {flow} is {name}, not {service:?}",
                    path.file_name().unwrap().display()
                ));
            }
        }
    }
    println!("{found:?}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
