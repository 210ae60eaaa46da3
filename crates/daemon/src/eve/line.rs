//! Formats records as lines of EVE JSON, with Suricata's field names.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use sluice_config::api;
use sluice_config::schema::EveType;
use sluice_config::text::to_json;
use sluice_engine::session::records::{EndReason, Ended, FlowState, RecordSubject};
use sluice_inspect::applications::ApplicationNames;
use sluice_inspect::signature::Service;
use sluice_inspect::transactions::dns_message::Message;
use sluice_inspect::transactions::{Part, Transaction};

use super::transaction::{dns, http, tls};
use crate::known::KnownRule;

/// Data that is needed to format any record.
pub struct Scene<'a> {
    /// Interface names by number.
    pub interfaces: &'a [String],
    /// Time at which the engine's clock started.
    pub started: SystemTime,
    /// Names of applications, if application identification is enabled.
    pub applications: Option<&'a ApplicationNames>,
}

impl Scene<'_> {
    /// Format a time of the engine's clock as text.
    pub fn time(&self, nanoseconds: u64) -> String {
        humantime::format_rfc3339_micros(self.started + Duration::from_nanos(nanoseconds)).to_string()
    }

    /// Name of an interface.
    pub fn interface(&self, number: u16) -> &str {
        self.interfaces.get(usize::from(number)).map_or("", String::as_str)
    }

    /// Flow ID that is also unique across runs of the process. The ID is limited to 53 bits, like the flow IDs of
    /// Suricata.
    fn flow(&self, number: u64) -> Option<u64> {
        let run = self.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut mixed = number ^ run.as_nanos() as u64;
        for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
            mixed = (mixed ^ mixed >> 30).wrapping_mul(factor);
        }
        (number != 0).then_some((mixed ^ mixed >> 31) >> 11)
    }

    /// Format a line of EVE JSON with the given event type.
    pub fn line(&self, about: &RecordSubject, kind: EveType, content: impl Serialize) -> Vec<u8> {
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
            content,
        })
    }

    /// Format the line for the end of a flow.
    pub fn ended(&self, about: &RecordSubject, ended: &Ended) -> Vec<u8> {
        let [first_seen, end] = ended.seen;
        let content = FlowSaid {
            flow: Flow {
                counts: Counts::new(ended.packets, ended.bytes),
                start: self.time(first_seen),
                end: self.time(end),
                age: end.saturating_sub(first_seen) / 1_000_000_000,
                state: match ended.state {
                    FlowState::New => "new",
                    FlowState::Established => "established",
                    FlowState::Closed => "closed",
                    FlowState::Bypassed => "bypassed",
                },
                reason: match ended.reason {
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
        self.line(about, EveType::Flow, content)
    }

    /// Format the line for a transaction. Returns `None` if the transaction can't be decoded.
    pub fn transaction(&self, about: &RecordSubject, content: &Transaction) -> Option<Vec<u8>> {
        match content.service {
            Service::Http => Some(self.line(about, EveType::Http, http(content))),
            Service::Tls => Some(self.line(about, EveType::Tls, tls(content))),
            Service::Dns => {
                let message = Message::read(content.text(Part::Message))?;
                Some(self.line(about, EveType::Dns, dns(content, message)))
            }
            _ => None,
        }
    }

    /// Format the line with the inspection statistics. `uptime` is the time in seconds since the start of the process.
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

/// Serialise a record as a line. Serialisation never fails for the types of records.
fn finish(line: &impl Serialize) -> Vec<u8> {
    let mut text = to_json(line).unwrap_or_default();
    text.push('\n');
    text.into_bytes()
}

/// Name of an IP protocol.
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
    content: S,
}

/// Content of an alert.
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
    /// Content of the line for an alert of the API.
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

/// Content of the record of a dropped packet.
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
    /// Content for a dropped packet: its length (0 if unknown), the drop reason, and the rule that dropped it, if any.
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

/// Fields of application identification, named as in nDPI's own records.
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
