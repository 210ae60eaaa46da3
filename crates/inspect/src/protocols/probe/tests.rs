use super::*;
use ProbeResult::{Identified, NeedMore as Undecided, Unknown};

const TO_SERVER: Toward = Toward::Server;
const TO_CLIENT: Toward = Toward::Client;

/// A name, the protocol and the messages of a conversation.
type Case = (&'static str, Service, &'static [(Toward, &'static [u8])]);

/// First bytes, taken from the specifications of the protocols and from captures.
const POSITIVE: &[Case] = &[
    ("http", Service::Http, &[(TO_SERVER, b"GET / HTTP/1.1\r\n")]),
    ("http behind blank lines", Service::Http, &[(TO_SERVER, b"\r\n\r\nGET\t/")]),
    ("http, unknown method", Service::Http, &[(TO_SERVER, b"BREW /pot")]),
    ("http, method in lower case", Service::Http, &[(TO_SERVER, b"get /a HTTP/1.0\r\n")]),
    (
        "http, method in lower case, long target",
        Service::Http,
        &[(TO_SERVER, b"get /0123456789012345678901234567890123456789012345678901234567890123456789")],
    ),
    ("http, options", Service::Http, &[(TO_SERVER, b"OPTIONS * HTTP/1.1")]),
    ("http, proxy", Service::Http, &[(TO_SERVER, b"BREW  http")]),
    ("http, response", Service::Http, &[(TO_CLIENT, b"HTTP/1.1 200 OK")]),
    ("http, lower case", Service::Http, &[(TO_CLIENT, b"http/")]),
    ("http2", Service::Http2, &[(TO_SERVER, PREFACE)]),
    ("tls", Service::Tls, &[(TO_SERVER, b"\x16\x03\x01\x02\x00\x01")]),
    ("tls, server", Service::Tls, &[(TO_CLIENT, b"\x16\x03\x03\x00\x40\x02")]),
    ("tls, alert", Service::Tls, &[(TO_CLIENT, b"\x15\x03\x03\x00\x02\x02\x28")]),
    ("ssh", Service::Ssh, &[(TO_CLIENT, b"SSH-2.0-OpenSSH_9.6 Debian\r\n")]),
    ("ssh 1", Service::Ssh, &[(TO_SERVER, b"SSH-1.99-PuTTY")]),
    ("smtp, greeting", Service::Smtp, &[(TO_CLIENT, b"220 foo.com Simple Mail Transfer ESMTP\r\n")]),
    (
        "smtp, silent greeting",
        Service::Smtp,
        &[(TO_CLIENT, b"220 mx.example.org ready\r\n"), (TO_SERVER, b"EHLO bar.com\r\n")],
    ),
    ("smtp, HELO", Service::Smtp, &[(TO_SERVER, b"HELO bar.com\r\n")]),
    ("smtp, host named ftp", Service::Smtp, &[(TO_CLIENT, b"220 ftp.example.org ESMTP\r\n"), (TO_SERVER, b"EHLO a\r\n")]),
    ("smtp without a hello", Service::Smtp, &[(TO_CLIENT, b"220 a\r\n"), (TO_SERVER, b"VRFY root\r\n")]),
    ("ftp, greeting", Service::Ftp, &[(TO_CLIENT, b"220 (vsFTPd 3.0.3)\r\n")]),
    ("ftp, silent greeting", Service::Ftp, &[(TO_CLIENT, b"220 Service ready.\r\n"), (TO_SERVER, b"USER anonymous\r\n")]),
    ("ftp, TLS", Service::Ftp, &[(TO_CLIENT, b"220-Welcome\r\n220 x\r\n"), (TO_SERVER, b"AUTH TLS\r\n")]),
    ("pop3", Service::Pop3, &[(TO_CLIENT, b"+OK POP3 server ready <1896.697170952@dbc.mtview.ca.us>\r\n")]),
    ("pop3, client first", Service::Pop3, &[(TO_SERVER, b"USER mrose\r\n"), (TO_CLIENT, b"+OK name is a valid mailbox\r\n")]),
    ("imap", Service::Imap, &[(TO_CLIENT, b"* OK IMAP4rev2 server ready\r\n")]),
    ("imap, preauthenticated", Service::Imap, &[(TO_CLIENT, b"* PREAUTH IMAP4rev1 ready\r\n")]),
    ("imap, client first", Service::Imap, &[(TO_SERVER, b"a001 login mrc secret\r\n"), (TO_CLIENT, b"* OK x\r\n")]),
    ("sip", Service::Sip, &[(TO_SERVER, b"INVITE sip:bob@biloxi.com SIP/2.0\r\n")]),
    ("sip, options", Service::Sip, &[(TO_SERVER, b"OPTIONS sips:carol@chicago.com SIP/2.0\r\n")]),
    ("sip, response", Service::Sip, &[(TO_CLIENT, b"SIP/2.0 200 OK\r\n")]),
    ("irc", Service::Irc, &[(TO_SERVER, b"NICK Wiz\r\nUSER guest 0 * :Ronnie Reagan\r\n")]),
    ("irc, password", Service::Irc, &[(TO_SERVER, b"PASS x\r\nNICK Wiz\r\nUSER guest 0 * :R\r\n")]),
    ("irc, capabilities", Service::Irc, &[(TO_SERVER, b"CAP LS 302\r\n")]),
    ("irc, notice", Service::Irc, &[(TO_SERVER, b"NICK Wiz\r\n"), (TO_CLIENT, b":irc.example.org NOTICE AUTH :*** Looking\r\n")]),
    ("irc, welcome", Service::Irc, &[(TO_SERVER, b"NICK Wiz\r\n"), (TO_CLIENT, b":irc.example.org 001 Wiz :Welcome")]),
    ("telnet", Service::Telnet, &[(TO_CLIENT, b"\xff\xfd\x18\xff\xfd\x20\xff\xfd\x23\xff\xfd\x27")]),
    ("telnet, one by one", Service::Telnet, &[(TO_SERVER, b"\xff\xfd\x03"), (TO_CLIENT, b"\xff\xfb\x03")]),
    (
        "smb 1",
        Service::Smb,
        &[(TO_SERVER, b"\x00\x00\x00\x85\xffSMBr\x00\x00\x00\x00\x18\x53\xc8\x00\x00\x00\x00\x00\x00\x00\x00")],
    ),
    ("smb 2", Service::Smb, &[(TO_SERVER, b"\x00\x00\x00\x6c\xfeSMB\x40\x00\x00\x00\x00\x00\x00\x00")]),
    ("smb 3, encrypted", Service::Smb, &[(TO_CLIENT, b"\x00\x00\x00\x9c\xfdSMB")]),
    (
        "netbios",
        Service::Smb,
        &[(TO_SERVER, b"\x81\x00\x00\x44\x20CKFDENECFDEFFCFGEFFCCACACACACACA\x00\x20")],
    ),
    (
        "rdp, cookie",
        Service::Rdp,
        &[(TO_SERVER, b"\x03\x00\x00\x2c\x27\xe0\x00\x00\x00\x00\x00Cookie: mstshash=eltons\r\n\x01\x00\x08\x00")],
    ),
    (
        "rdp, negotiation",
        Service::Rdp,
        &[(TO_SERVER, b"\x03\x00\x00\x13\x0e\xe0\x00\x00\x00\x00\x00\x01\x00\x08\x00\x03\x00\x00\x00")],
    ),
    (
        "rdp, answer",
        Service::Rdp,
        &[(TO_CLIENT, b"\x03\x00\x00\x13\x0e\xd0\x00\x00\x12\x34\x00\x02\x00\x08\x00\x00\x00\x00\x00")],
    ),
    ("rdp, plain", Service::Rdp, &[(TO_SERVER, b"\x03\x00\x00\x0b\x06\xe0\x00\x00\x00\x00\x00")]),
    ("ldap, bind", Service::Ldap, &[(TO_SERVER, b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00")]),
    (
        "ldap, search with long lengths",
        Service::Ldap,
        &[(TO_SERVER, b"\x30\x84\x00\x00\x00\x2d\x02\x01\x07\x63\x84\x00\x00\x00\x24\x04\x00\x0a\x01\x00")],
    ),
    (
        "ldap, StartTLS",
        Service::Ldap,
        &[(TO_SERVER, b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037")],
    ),
    ("ldap, bind response", Service::Ldap, &[(TO_CLIENT, b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x00\x04\x00\x04\x00")]),
    (
        "kerberos",
        Service::Krb5,
        &[(TO_SERVER, b"\x00\x00\x00\x12\x6a\x10\x30\x0e\xa1\x03\x02\x01\x05\xa2\x03\x02\x01\x0a\xa4\x02\x30\x00")],
    ),
    (
        "portmapper",
        Service::Rpc,
        &[(
            TO_SERVER,
            b"\x80\x00\x00\x38\x00\x00\x00\x05\0\0\0\0\0\0\0\x02\0\x01\x86\xa0\0\0\0\x02\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0",
        )],
    ),
    (
        "nfs",
        Service::Nfs,
        &[(
            TO_SERVER,
            b"\x80\x00\x00\x28\x12\x34\x00\x01\0\0\0\0\0\0\0\x02\0\x01\x86\xa3\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        )],
    ),
    (
        "dcerpc",
        Service::Dcerpc,
        &[(TO_SERVER, b"\x05\x00\x0b\x03\x10\x00\x00\x00\x48\x00\x00\x00\x01\x00\x00\x00\xb8\x10\xb8\x10")],
    ),
    ("postgresql, encryption", Service::Postgres, &[(TO_SERVER, b"\0\0\0\x08\x04\xd2\x16\x2f")]),
    ("postgresql, start", Service::Postgres, &[(TO_SERVER, b"\0\0\0\x21\0\x03\0\0user\0oryx\0database\0mailstore\0\0")]),
    ("mysql", Service::MySql, &[(TO_CLIENT, b"\x4a\0\0\0\x0a8.0.36-debian\0\x08\0\0\0")]),
    ("mariadb", Service::MySql, &[(TO_CLIENT, b"\x6a\0\0\0\x0a5.5.5-10.6.16-MariaDB\0\x05\0\0\0")]),
    ("mysql, refused", Service::MySql, &[(TO_CLIENT, b"\x45\0\0\0\xff\x6a\x04Host '10.0.0.1' is not allowed")]),
    ("mqtt 3.1.1", Service::Mqtt, &[(TO_SERVER, b"\x10\x12\0\x04MQTT\x04\x02\0\x3c\0\x06client")]),
    ("mqtt 3.1", Service::Mqtt, &[(TO_SERVER, b"\x10\x92\x01\0\x06MQIsdp\x03\x02")]),
    (
        "dns",
        Service::Dns,
        &[(
            TO_SERVER,
            b"\x00\x1d\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01",
        )],
    ),
    (
        "dns, name beyond the head",
        Service::Dns,
        &[(
            TO_SERVER,
            b"\x00\x60\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x3f0123456789012345678901234567890123456789012345678901234567890123",
        )],
    ),
];

/// Conversations that resemble a supported protocol, but belong to another protocol.
const NEGATIVE: &[&[(Toward, &[u8])]] = &[
    &[(TO_SERVER, b"EXPN *@example.org\r\n")],
    &[(TO_SERVER, b"STAT *\r\n")],
    &[(TO_SERVER, b"OPTIONS rtsp://example.org/a RTSP/1.0\r\n")],
    &[(TO_SERVER, b"\x16\x02\x01\x02\xff\xff")],
    // H.225 in TPKT, and S7 with its parameters in COTP.
    &[(TO_SERVER, b"\x03\x00\x01\x2d\x08\x02\x10\x00\x05\x04\x03\x80\x90\xa5")],
    &[(
        TO_SERVER,
        b"\x03\x00\x00\x16\x11\xe0\x00\x00\x00\x01\x00\xc0\x01\x0a\xc1\x02\x01\x00\xc2\x02\x01\x02",
    )],
    &[(
        TO_SERVER,
        b"0032git-upload-pack /project.git\0host=example.org\0 padding of no meaning",
    )],
    &[(TO_SERVER, b"ls /etc\n")],
    // Redis, whose server also answers `+OK`.
    &[(TO_SERVER, b"*1\r\n$4\r\nPING\r\n"), (TO_CLIENT, b"+OK\r\n")],
    // SNMP over TCP, with a string as its second element.
    &[(TO_SERVER, b"\x30\x26\x02\x01\x01\x04\x06public\xa0\x19")],
    // An MPEG audio frame.
    &[(TO_SERVER, b"\xff\xfb\x90\x44\x00\x00\x00\x00")],
    &[(TO_CLIENT, b"220x no reply\r\n")],
    &[(TO_SERVER, b"HELOX bar.com\r\n")],
    &[(TO_SERVER, b"\0\0\0\x21\0\x04\0\0user\0")],
    &[(TO_CLIENT, b"\x4a\0\0\0\x0aversion\0")],
    &[(TO_SERVER, b"\x10\x12\0\x04MQTU\x04")],
    &[(TO_SERVER, b"PRI * HTTP/2.1\r\n")],
    &[(TO_SERVER, b"SSH:2.0\r\n")],
    // The question is longer than the length field states.
    &[(
        TO_SERVER,
        b"\x00\x12\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01",
    )],
];

/// The result after the first `upto` bytes of a conversation, passed in segments of `step` bytes.
fn decided(conversation: &[(Toward, &[u8])], upto: usize, step: usize) -> ProbeResult {
    let mut probe = ProtocolProbe::default();
    let mut remaining = upto;
    for (toward, bytes) in conversation {
        let bytes = &bytes[..bytes.len().min(remaining)];
        remaining -= bytes.len();
        for part in bytes.chunks(step) {
            match probe.bytes(*toward, part).0 {
                Undecided => {}
                said => return said,
            }
        }
    }
    Undecided
}

#[test]
fn first_bytes_of_each_protocol_are_recognised_and_no_prefix_is_taken_for_another() {
    for (name, service, conversation) in POSITIVE {
        let whole = conversation.iter().map(|(_, bytes)| bytes.len()).sum();
        assert_eq!(Identified(*service), decided(conversation, whole, usize::MAX), "{name}");
        for step in [1, 2, 3, 7] {
            assert_eq!(
                Identified(*service),
                decided(conversation, whole, step),
                "{name}, {step} bytes each"
            );
        }
        for upto in 0..whole {
            let said = decided(conversation, upto, usize::MAX);
            assert!(
                [Undecided, Identified(*service)].contains(&said),
                "{name}, the first {upto} bytes: {said:?}"
            );
        }
    }
}

#[test]
fn what_only_looks_like_a_protocol_is_none() {
    for conversation in NEGATIVE {
        let whole = conversation.iter().map(|(_, bytes)| bytes.len()).sum();
        for upto in 0..=whole {
            let said = decided(conversation, upto, 1);
            assert!(
                [Undecided, Unknown].contains(&said),
                "{:?}, the first {upto} bytes: {said:?}",
                conversation[0].1.escape_ascii().to_string()
            );
        }
    }
}

/// Xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

#[test]
fn random_bytes_are_of_no_protocol() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..100_000 {
        let (request, response) = (random.bytes(MAX_HEAD), random.bytes(MAX_HEAD));
        for heads in [[&request[..], &[]], [&[], &response], [&request, &response]] {
            // Telnet negotiations don't count as a final result here.
            let said = probe(heads);
            assert!([Unknown, Undecided].contains(&said), "{heads:?}: {said:?}");
        }
        let datagram = random.bytes(MAX_HEAD * 4);
        assert_eq!(None, probe_datagram(TO_SERVER, [50_000, 60_000], &datagram));
        assert_eq!(None, probe_datagram(TO_CLIENT, [50_000, 60_000], &datagram));
    }
}

#[test]
fn two_sides_that_do_not_agree_are_of_no_protocol() {
    assert_eq!(Unknown, probe([b"USER x\r\n", b"hello there\r\n"]));
    assert_eq!(Undecided, probe([b"USER x\r\n", b""]));
    assert_eq!(Identified(Service::Ftp), probe([b"USER x\r\n", b"220 a\r\n"]));
    assert_eq!(Identified(Service::Pop3), probe([b"USER x\r\n", b"+OK a\r\n"]));
    assert_eq!(Identified(Service::Smtp), probe([b"RSET\r\n", b"220 a\r\n"]));
}

/// A padded Initial packet of a client with this version.
fn initial(version: [u8; 4]) -> Vec<u8> {
    let mut datagram = [&[0xc3], &version[..], &[8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x44, 0x9e]].concat();
    datagram.resize(1200, 0);
    datagram
}

fn dhcp_discover() -> Vec<u8> {
    let mut datagram = vec![0; 236];
    datagram[..4].copy_from_slice(&[1, 1, 6, 0]);
    datagram.extend([99, 130, 83, 99, 53, 1, 1, 255]);
    datagram
}

#[test]
fn datagrams_are_recognised_by_what_they_hold() {
    let query = b"\x12\x34\x01\x00\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01";
    let netbios = b"\x12\x34\x01\x10\0\x01\0\0\0\0\0\0\x20CKFDENECFDEFFCFGEFFCCACACACACACA\0\0\x20\0\x01";
    let mut response = query.to_vec();
    (response[2], response[7]) = (0x81, 1);
    response.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01");
    let snmp = b"\x30\x26\x02\x01\x01\x04\x06public\xa0\x19\x02\x01\x01\x02\x01\0\x02\x01\0\x30\x0e\x30\x0c\x06\x08\x2b\x06\x01\x02\x01\x01\x01\0\x05\0";
    let snmp3 = b"\x30\x3e\x02\x01\x03\x30\x11\x02\x04\x31\x27\xd7\x4f\x02\x03\0\xff\xe3\x04\x01\x04\x02\x01\x03\x04\x10\x30\x0e\x04\0\x02\x01\0\x02\x01\0\x04\0\x04\0\x04\0\x30\x14\x04\0\x04\0\xa0\x0e\x02\x04\x18\xf1\xc4\x21\x02\x01\0\x02\x01\0\x30\0";
    let call = b"\x12\x34\x56\x78\0\0\0\0\0\0\0\x02\0\x01\x86\xa0\0\0\0\x02\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let nfs = b"\x12\x34\x56\x78\0\0\0\0\0\0\0\x02\0\x01\x86\xa3\0\0\0\x03\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut ntp = vec![0; 48];
    ntp[0] = 0x23;
    let kerberos = b"\x6a\x10\x30\x0e\xa1\x03\x02\x01\x05\xa2\x03\x02\x01\x0a\xa4\x02\x30\x00";
    let cldap = b"\x30\x25\x02\x01\x01\x63\x20\x04\0\x0a\x01\0\x0a\x01\0\x02\x01\0\x02\x01\0\x01\x01\0\x87\x0bobjectclass\x30\0";
    let cases: &[(Toward, u16, &[u8], Option<Service>)] = &[
        (TO_SERVER, 6000, query, Some(Service::Dns)),
        (TO_CLIENT, 6000, query, None),
        (TO_CLIENT, 6000, &response, Some(Service::Dns)),
        (TO_SERVER, 6000, &response, None),
        (TO_SERVER, 53, b"no message", Some(Service::Dns)),
        (TO_SERVER, 6000, b"no message", None),
        (TO_SERVER, 137, netbios, None),
        (TO_SERVER, 6000, &query[..query.len() - 1], None),
        (TO_SERVER, 6000, &initial([0, 0, 0, 1]), Some(Service::Quic)),
        (TO_SERVER, 6000, &initial([0x6b, 0x33, 0x43, 0xcf]), Some(Service::Quic)),
        (TO_SERVER, 6000, &initial([0, 0, 0, 2]), None),
        (TO_SERVER, 443, &initial([0, 0, 0, 1])[..1199], None),
        (
            TO_SERVER,
            6000,
            b"REGISTER sip:registrar.biloxi.com SIP/2.0\r\n",
            Some(Service::Sip),
        ),
        (TO_CLIENT, 6000, b"SIP/2.0 100 Trying\r\n", Some(Service::Sip)),
        (TO_SERVER, 6000, &dhcp_discover(), Some(Service::Dhcp)),
        (TO_SERVER, 67, &dhcp_discover()[..238], None),
        (
            TO_SERVER,
            6000,
            b"\0\x01pxelinux.0\0octet\0blksize\x001456\0",
            Some(Service::Tftp),
        ),
        (TO_SERVER, 6000, b"\0\x02a\0NetASCII\0", Some(Service::Tftp)),
        (TO_SERVER, 69, b"\0\x01\0octet\0", None),
        (TO_SERVER, 69, b"\0\x01a\0octets\0", None),
        (TO_SERVER, 6000, snmp, Some(Service::Snmp)),
        (TO_SERVER, 161, &snmp[..snmp.len() - 1], None),
        (TO_SERVER, 6000, snmp3, Some(Service::Snmp)),
        (TO_SERVER, 6000, call, Some(Service::Rpc)),
        (TO_SERVER, 6000, nfs, Some(Service::Nfs)),
        (TO_CLIENT, 6000, call, None),
        (TO_SERVER, 123, &ntp, Some(Service::Ntp)),
        (TO_SERVER, 123, b"\x17\0\x03\x2a\0\0\0\0", Some(Service::Ntp)),
        (TO_SERVER, 6000, &ntp, None),
        (TO_SERVER, 123, &ntp[..47], None),
        (TO_SERVER, 6000, kerberos, Some(Service::Krb5)),
        (TO_SERVER, 6000, cldap, Some(Service::Ldap)),
    ];
    for (number, (toward, port, bytes, expected)) in cases.iter().enumerate() {
        assert_eq!(
            *expected,
            probe_datagram(*toward, [50_000, *port], bytes),
            "case {number}: {}",
            bytes[..bytes.len().min(32)].escape_ascii()
        );
    }
}
