//! A record as a line of EVE JSON, in the words of Suricata.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use sluice_config::api;
use sluice_config::schema::EveType;
use sluice_config::text::to_json;
use sluice_engine::session::records::{About, EndReason, Ended, FlowState};
use sluice_inspect::applications::Names;
use sluice_inspect::signature::{Service, Toward};
use sluice_inspect::transactions::names::{self, Message};
use sluice_inspect::transactions::{Part, Transaction};

use crate::known::KnownRule;

/// What is said of every record.
pub struct Scene<'a> {
    /// Interfaces by number.
    pub interfaces: &'a [String],
    /// When the engine's clock began.
    pub started: SystemTime,
    /// What applications are called, where they are looked for.
    pub applications: Option<&'a Names>,
}

impl Scene<'_> {
    /// A moment of the engine's clock.
    pub fn time(&self, nanoseconds: u64) -> String {
        humantime::format_rfc3339_micros(self.started + Duration::from_nanos(nanoseconds)).to_string()
    }

    /// An interface's name.
    pub fn interface(&self, number: u16) -> &str {
        self.interfaces.get(usize::from(number)).map_or("", String::as_str)
    }

    /// What numbers of flows are to be told apart by from those of another run: Suricata's have 53 bits, too.
    fn flow(&self, number: u64) -> Option<u64> {
        let run = self.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut mixed = number ^ run.as_nanos() as u64;
        for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
            mixed = (mixed ^ mixed >> 30).wrapping_mul(factor);
        }
        (number != 0).then_some((mixed ^ mixed >> 31) >> 11)
    }

    /// A line of one type.
    pub fn line(&self, about: &About, kind: EveType, said: impl Serialize) -> Vec<u8> {
        let [source, destination] = about.addresses;
        let port = |port| matches!(about.protocol, 6 | 17).then_some(port);
        finish(&Line {
            timestamp: self.time(about.at),
            flow_id: self.flow(about.flow),
            in_iface: self.interface(about.interface),
            event_type: kind,
            src_ip: source.to_string(),
            src_port: port(about.ports[0]),
            dest_ip: destination.to_string(),
            dest_port: port(about.ports[1]),
            proto: protocol(about.protocol),
            direction: matches!(kind, EveType::Alert | EveType::Drop).then_some(match about.to_server {
                true => "to_server",
                false => "to_client",
            }),
            app_proto: about.service.and_then(application),
            said,
        })
    }

    /// How a flow ended.
    pub fn ended(&self, about: &About, ended: &Ended) -> Vec<u8> {
        let [begin, end] = ended.seen;
        let said = FlowSaid {
            flow: Flow {
                counts: Counts::new(ended.packets, ended.bytes),
                start: self.time(begin),
                end: self.time(end),
                age: end.saturating_sub(begin) / 1_000_000_000,
                state: match ended.state {
                    FlowState::New => "new",
                    FlowState::Established => "established",
                    FlowState::Closed => "closed",
                    FlowState::Bypassed => "bypassed",
                },
                reason: match ended.why {
                    EndReason::Timeout => "timeout",
                    EndReason::Forced => "forced",
                    EndReason::Bypass => "bypass",
                },
                alerted: ended.alerted,
            },
            ndpi: ended.application.and_then(|pair| {
                let proto = self.applications?.text(pair);
                Some(Ndpi { proto })
            }),
        };
        self.line(about, EveType::Flow, said)
    }

    /// What a flow said; none where it can't be read.
    pub fn transaction(&self, about: &About, said: &Transaction) -> Option<Vec<u8>> {
        match said.service {
            Service::Http => Some(self.line(about, EveType::Http, http(said))),
            Service::Tls => Some(self.line(about, EveType::Tls, tls(said))),
            Service::Dns => {
                let message = Message::read(said.text(Part::Message))?;
                Some(self.line(about, EveType::Dns, dns(said, message)))
            }
            _ => None,
        }
    }

    /// How inspection goes, `uptime` seconds after the start.
    pub fn statistics(&self, now: u64, stats: impl Serialize) -> Vec<u8> {
        #[derive(Serialize)]
        struct Statistics<S> {
            timestamp: String,
            event_type: EveType,
            stats: S,
        }
        finish(&Statistics {
            timestamp: self.time(now),
            event_type: EveType::Stats,
            stats,
        })
    }
}

/// As a line. Nothing that is serialized here can fail to be.
fn finish(line: &impl Serialize) -> Vec<u8> {
    let mut text = to_json(line).unwrap_or_default();
    text.push('\n');
    text.into_bytes()
}

/// A protocol over IP by its name.
pub fn protocol(number: u8) -> String {
    match number {
        1 => "ICMP".into(),
        6 => "TCP".into(),
        17 => "UDP".into(),
        58 => "ICMPv6".into(),
        other => other.to_string(),
    }
}

fn application(service: Service) -> Option<&'static str> {
    Some(match service {
        Service::Http => "http",
        Service::Tls => "tls",
        Service::Dns => "dns",
        Service::Http2 => "http2",
        Service::Ftp => "ftp",
        Service::FtpData => "ftp-data",
        Service::Smtp => "smtp",
        Service::Imap => "imap",
        Service::Pop3 => "pop3",
        Service::Ssh => "ssh",
        Service::Smb => "smb",
        Service::Telnet => "telnet",
        Service::Sip => "sip",
        Service::Rdp => "rdp",
        Service::Nfs => "nfs",
        Service::Ntp => "ntp",
        Service::Snmp => "snmp",
        Service::Tftp => "tftp",
        Service::Dhcp => "dhcp",
        Service::Krb5 => "krb5",
        Service::Quic => "quic",
        Service::Irc => "irc",
        Service::Rpc => "rpc",
        Service::Dcerpc => "dcerpc",
        Service::MySql => "mysql",
        Service::Postgres => "pgsql",
        Service::Ldap => "ldap",
        Service::Mqtt => "mqtt",
        Service::Other(_) => return None,
    })
}

#[derive(Serialize)]
struct Line<'a, S> {
    timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    flow_id: Option<u64>,
    in_iface: &'a str,
    event_type: EveType,
    src_ip: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    src_port: Option<u16>,
    dest_ip: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    dest_port: Option<u16>,
    proto: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    direction: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    app_proto: Option<&'static str>,
    #[serde(flatten)]
    said: S,
}

/// What an alert says.
#[derive(Serialize)]
pub struct AlertSaid<'a> {
    alert: Rule<'a>,
    flow: Counts,
}

#[derive(Serialize)]
struct Rule<'a> {
    action: &'static str,
    gid: u32,
    signature_id: u32,
    rev: u32,
    signature: &'a str,
    category: &'a str,
    severity: u8,
}

#[derive(Serialize)]
struct Counts {
    pkts_toserver: u64,
    pkts_toclient: u64,
    bytes_toserver: u64,
    bytes_toclient: u64,
}

impl Counts {
    fn new(packets: [u64; 2], bytes: [u64; 2]) -> Self {
        Self {
            pkts_toserver: packets[0],
            pkts_toclient: packets[1],
            bytes_toserver: bytes[0],
            bytes_toclient: bytes[1],
        }
    }
}

impl<'a> AlertSaid<'a> {
    /// Of an alert that is shown.
    pub fn new(alert: &'a api::Alert) -> Self {
        Self {
            alert: Rule {
                action: if alert.action == "alert" { "allowed" } else { "blocked" },
                gid: alert.generator,
                signature_id: alert.signature,
                rev: alert.revision,
                signature: &alert.message,
                category: &alert.class,
                severity: alert.priority,
            },
            flow: Counts::new(alert.packets, alert.bytes),
        }
    }
}

/// What the record of a dropped packet says.
#[derive(Serialize)]
pub struct DropSaid<'a> {
    drop: Dropped,
    #[serde(skip_serializing_if = "Option::is_none")]
    alert: Option<Rule<'a>>,
}

#[derive(Serialize)]
struct Dropped {
    #[serde(skip_serializing_if = "Option::is_none")]
    len: Option<u32>,
    reason: &'static str,
}

impl<'a> DropSaid<'a> {
    /// Of a packet of so many bytes, 0 where they are not known, for a reason, by a rule if one did it.
    pub fn new(length: u32, reason: &'static str, rule: Option<&'a KnownRule>) -> Self {
        Self {
            drop: Dropped {
                len: (length > 0).then_some(length),
                reason,
            },
            alert: rule.map(|rule| Rule {
                action: "blocked",
                gid: rule.id.generator,
                signature_id: rule.id.signature,
                rev: rule.id.revision,
                signature: &rule.message,
                category: &rule.class,
                severity: rule.priority,
            }),
        }
    }
}

#[derive(Serialize)]
struct FlowSaid {
    flow: Flow,
    #[serde(skip_serializing_if = "Option::is_none")]
    ndpi: Option<Ndpi>,
}

/// As nDPI's own records have it.
#[derive(Serialize)]
struct Ndpi {
    proto: String,
}

#[derive(Serialize)]
struct Flow {
    #[serde(flatten)]
    counts: Counts,
    start: String,
    end: String,
    age: u64,
    state: &'static str,
    reason: &'static str,
    alerted: bool,
}

/// A text; none where there is none.
fn text(said: &Transaction, part: Part) -> Option<String> {
    let bytes = said.text(part);
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into())
}

/// The names of texts that did not fit.
fn cut(said: &Transaction, parts: &[(Part, &'static str)]) -> Vec<&'static str> {
    let cut = parts.iter().filter(|(part, _)| said.is_cut(*part));
    cut.map(|(_, name)| *name).collect()
}

#[derive(Serialize)]
struct HttpSaid {
    tx_id: u32,
    http: Http,
}

#[derive(Serialize)]
struct Http {
    #[serde(skip_serializing_if = "Option::is_none")]
    hostname: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    http_user_agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    http_content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    http_refer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    http_method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    http2: Option<Http2>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    length: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    truncated: Vec<&'static str>,
}

#[derive(Serialize)]
struct Http2 {
    stream_id: u32,
}

fn http(said: &Transaction) -> HttpSaid {
    let protocol = match said.version.to_be_bytes() {
        [0, 0] => None,
        [2, 0] => Some("HTTP/2".into()),
        [major, minor] => Some(format!("HTTP/{major}.{minor}")),
    };
    let parts = [
        (Part::Host, "hostname"),
        (Part::Url, "url"),
        (Part::Agent, "http_user_agent"),
        (Part::ContentType, "http_content_type"),
        (Part::Referrer, "http_refer"),
        (Part::Method, "http_method"),
    ];
    let [
        hostname,
        url,
        http_user_agent,
        http_content_type,
        http_refer,
        http_method,
    ] = parts.map(|(part, _)| text(said, part));
    HttpSaid {
        tx_id: said.number,
        http: Http {
            hostname,
            url,
            http_user_agent,
            http_content_type,
            http_refer,
            http_method,
            protocol,
            http2: (said.stream > 0).then_some(Http2 { stream_id: said.stream }),
            status: (said.status > 0).then_some(said.status),
            length: said.length,
            truncated: cut(said, &parts),
        },
    }
}

#[derive(Serialize)]
struct TlsSaid {
    tls: Tls,
}

#[derive(Serialize)]
struct Tls {
    #[serde(skip_serializing_if = "Option::is_none")]
    sni: Option<String>,
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ja3: Option<Ja3>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    truncated: Vec<&'static str>,
}

#[derive(Serialize)]
struct Ja3 {
    hash: String,
}

fn tls(said: &Transaction) -> TlsSaid {
    let version = match said.version {
        0 => "UNDETERMINED".into(),
        0x0300 => "SSLv3".into(),
        0x0301 => "TLSv1".into(),
        0x0302 => "TLS 1.1".into(),
        0x0303 => "TLS 1.2".into(),
        0x0304 => "TLS 1.3".into(),
        other => format!("{other:#06x}"),
    };
    TlsSaid {
        tls: Tls {
            sni: text(said, Part::ServerName),
            version,
            ja3: text(said, Part::Ja3).map(|hash| Ja3 { hash }),
            truncated: cut(said, &[(Part::ServerName, "sni")]),
        },
    }
}

#[derive(Serialize)]
struct DnsSaid {
    dns: Dns,
}

#[derive(Serialize)]
struct Dns {
    #[serde(rename = "type")]
    kind: &'static str,
    tx_id: u32,
    id: u16,
    opcode: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    rrname: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rrtype: Option<String>,
    #[serde(flatten)]
    answer: Option<DnsAnswer>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

#[derive(Serialize)]
struct DnsAnswer {
    flags: String,
    rcode: String,
    answers: Vec<DnsRecord>,
}

#[derive(Serialize)]
struct DnsRecord {
    rrname: String,
    rrtype: String,
    ttl: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    rdata: Option<String>,
}

fn dns(said: &Transaction, message: Message) -> DnsSaid {
    let answers = message.is_answer() || said.toward == Toward::Client;
    let answer = answers.then(|| DnsAnswer {
        flags: format!("{:04x}", message.flags),
        rcode: message.code(),
        answers: message
            .answers
            .iter()
            .map(|answer| DnsRecord {
                rrname: answer.name.clone(),
                rrtype: names::kind(answer.kind),
                ttl: answer.ttl,
                rdata: answer.data.clone(),
            })
            .collect(),
    });
    let question = message.questions.first();
    DnsSaid {
        dns: Dns {
            kind: if answers { "answer" } else { "query" },
            tx_id: said.number,
            id: message.id,
            opcode: message.operation(),
            rrname: question.map(|question| question.name.clone()),
            rrtype: question.map(|question| names::kind(question.kind)),
            answer,
            truncated: message.is_cut || said.is_cut(Part::Message),
        },
    }
}
