//! HTTP, TLS and DNS transactions as EVE JSON.

use serde::Serialize;
use sluice_inspect::signature::Toward;
use sluice_inspect::transactions::dns_message::{self, Message};
use sluice_inspect::transactions::{Part, Transaction};

/// A text field of the transaction. `None` if the field is absent.
fn text(transaction: &Transaction, part: Part) -> Option<String> {
    let bytes = transaction.text(part);
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into())
}

/// Names of the text fields that were truncated.
fn cut(transaction: &Transaction, parts: &[(Part, &'static str)]) -> Vec<&'static str> {
    let cut = parts.iter().filter(|(part, _)| transaction.is_cut(*part));
    cut.map(|(_, name)| *name).collect()
}

#[derive(Serialize)]
pub(super) struct HttpSaid {
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

pub(super) fn http(transaction: &Transaction) -> HttpSaid {
    let protocol = match transaction.version.to_be_bytes() {
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
    ] = parts.map(|(part, _)| text(transaction, part));
    HttpSaid {
        tx_id: transaction.number,
        http: Http {
            hostname,
            url,
            http_user_agent,
            http_content_type,
            http_refer,
            http_method,
            protocol,
            http2: (transaction.stream > 0).then_some(Http2 {
                stream_id: transaction.stream,
            }),
            status: (transaction.status > 0).then_some(transaction.status),
            length: transaction.length,
            truncated: cut(transaction, &parts),
        },
    }
}

#[derive(Serialize)]
pub(super) struct TlsSaid {
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

pub(super) fn tls(transaction: &Transaction) -> TlsSaid {
    let version = match transaction.version {
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
            sni: text(transaction, Part::ServerName),
            version,
            ja3: text(transaction, Part::Ja3).map(|hash| Ja3 { hash }),
            truncated: cut(transaction, &[(Part::ServerName, "sni")]),
        },
    }
}

#[derive(Serialize)]
pub(super) struct DnsSaid {
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

pub(super) fn dns(transaction: &Transaction, message: Message) -> DnsSaid {
    let answers = message.is_answer() || transaction.toward == Toward::Client;
    let answer = answers.then(|| DnsAnswer {
        flags: format!("{:04x}", message.flags),
        rcode: message.code(),
        answers: message
            .answers
            .iter()
            .map(|answer| DnsRecord {
                rrname: answer.name.clone(),
                rrtype: dns_message::kind(answer.kind),
                ttl: answer.ttl,
                rdata: answer.data.clone(),
            })
            .collect(),
    });
    let question = message.questions.first();
    DnsSaid {
        dns: Dns {
            kind: if answers { "answer" } else { "query" },
            tx_id: transaction.number,
            id: message.id,
            opcode: message.operation(),
            rrname: question.map(|question| question.name.clone()),
            rrtype: question.map(|question| dns_message::kind(question.kind)),
            answer,
            truncated: message.is_cut || transaction.is_cut(Part::Message),
        },
    }
}
