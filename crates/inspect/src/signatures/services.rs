//! Names of applications.

use super::error::nearest;
use super::{Dialect, RuleError};
use crate::signature::Service;

/// Names of applications in the dialects. A name may denote several applications: the name of a protocol that carries
/// another protocol denotes both.
const SERVICES: &[(&str, &[Service])] = &[
    ("http", &[Service::Http, Service::Http2]),
    ("http1", &[Service::Http]),
    ("http2", &[Service::Http2]),
    ("tls", &[Service::Tls]),
    ("ssl", &[Service::Tls]),
    ("dns", &[Service::Dns]),
    ("ftp", &[Service::Ftp]),
    ("ftp-data", &[Service::FtpData]),
    ("smtp", &[Service::Smtp]),
    ("imap", &[Service::Imap]),
    ("pop3", &[Service::Pop3]),
    ("ssh", &[Service::Ssh]),
    ("smb", &[Service::Smb]),
    ("netbios-ssn", &[Service::Smb]),
    ("telnet", &[Service::Telnet]),
    ("sip", &[Service::Sip]),
    ("rdp", &[Service::Rdp]),
    ("nfs", &[Service::Nfs]),
    ("ntp", &[Service::Ntp]),
    ("snmp", &[Service::Snmp]),
    ("tftp", &[Service::Tftp]),
    ("dhcp", &[Service::Dhcp]),
    ("krb5", &[Service::Krb5]),
    ("kerberos", &[Service::Krb5]),
    ("quic", &[Service::Quic]),
    ("irc", &[Service::Irc]),
    ("ircd", &[Service::Irc]),
    ("sunrpc", &[Service::Rpc, Service::Nfs]),
    ("rpc", &[Service::Rpc, Service::Nfs]),
    ("dcerpc", &[Service::Dcerpc, Service::Smb]),
    ("mysql", &[Service::MySql]),
    ("pgsql", &[Service::Postgres]),
    ("postgresql", &[Service::Postgres]),
    ("ldap", &[Service::Ldap]),
    ("mqtt", &[Service::Mqtt]),
    ("bgp", &[Service::Other("bgp")]),
    ("bittorrent", &[Service::Other("bittorrent")]),
    ("bittorrent-dht", &[Service::Other("bittorrent-dht")]),
    ("cip", &[Service::Other("cip")]),
    ("dnp3", &[Service::Other("dnp3")]),
    ("drda", &[Service::Other("drda")]),
    ("enip", &[Service::Other("enip")]),
    ("finger", &[Service::Other("finger")]),
    ("gopher", &[Service::Other("gopher")]),
    ("gtp", &[Service::Other("gtp")]),
    ("iec104", &[Service::Other("iec104")]),
    ("ike", &[Service::Other("ike")]),
    ("ident", &[Service::Other("ident")]),
    ("java_rmi", &[Service::Other("java_rmi")]),
    ("modbus", &[Service::Other("modbus")]),
    ("mssql", &[Service::Other("mssql")]),
    ("ms-sql", &[Service::Other("mssql")]),
    ("netbios-dgm", &[Service::Other("netbios-dgm")]),
    ("netbios-ns", &[Service::Other("netbios-ns")]),
    ("netflow", &[Service::Other("netflow")]),
    ("nntp", &[Service::Other("nntp")]),
    ("oracle", &[Service::Other("oracle")]),
    ("radius", &[Service::Other("radius")]),
    ("rfb", &[Service::Other("vnc")]),
    ("rtmp", &[Service::Other("rtmp")]),
    ("rtsp", &[Service::Other("rtsp")]),
    ("s7commplus", &[Service::Other("s7commplus")]),
    ("socks", &[Service::Other("socks")]),
    ("ssdp", &[Service::Other("ssdp")]),
    ("syslog", &[Service::Other("syslog")]),
    ("teamview", &[Service::Other("teamview")]),
    ("vnc", &[Service::Other("vnc")]),
    ("vnc-server", &[Service::Other("vnc")]),
    ("wins", &[Service::Other("wins")]),
    ("xmpp", &[Service::Other("xmpp")]),
];

/// Applications that carry files: `alert file` of Snort 3 applies to files of these applications.
const CARRY_FILES: &[Service] = &[
    Service::Http,
    Service::Http2,
    Service::FtpData,
    Service::Smtp,
    Service::Imap,
    Service::Pop3,
    Service::Smb,
];

/// Applications that a name denotes.
pub(super) fn services(name: &str, dialect: Dialect) -> Result<Vec<Service>, RuleError> {
    if name == "file" && dialect == Dialect::Snort3 {
        return Ok(CARRY_FILES.to_vec());
    }
    let known = SERVICES.iter().find(|(known, _)| *known == name);
    known
        .map(|(_, services)| services.to_vec())
        .ok_or_else(|| RuleError::Unknown {
            written: name.into(),
            hint: nearest(name, SERVICES.iter().map(|(known, _)| *known)).and_then(literal),
        })
}

/// Applications of an option. Identification must be able to detect at least one application of the option, because
/// otherwise the rule would never match.
pub(super) fn identified_services(name: &str, dialect: Dialect) -> Result<Vec<Service>, RuleError> {
    let services = services(name, dialect)?;
    match services.iter().any(Service::is_identified) {
        true => Ok(services),
        false => Err(RuleError::NotIdentified(name.into())),
    }
}

fn literal(name: &str) -> Option<&'static str> {
    SERVICES.iter().map(|(known, _)| *known).find(|known| *known == name)
}
