//! Protocols over UDP: each datagram is complete.

use super::binary::{kerberos_message, ldap_message, length, rpc_call};
use super::{Certain, Head, is_class, text};
use crate::signature::{Service, Toward};

const DNS: u16 = 53;
const MULTICAST_DNS: u16 = 5353;
const NTP: u16 = 123;

/// Identifies the protocol of a datagram. `ports` are the source and destination port of the datagram.
pub fn probe_datagram(toward: Toward, ports: [u16; 2], bytes: &[u8]) -> Option<Service> {
    let by = |wanted: &[u16]| ports.iter().any(|port| wanted.contains(port));
    let head = Head {
        toward,
        bytes,
        first: true,
    };
    if by(&[DNS, MULTICAST_DNS]) || dns(toward, bytes) {
        Some(Service::Dns)
    } else if quic(bytes) {
        Some(Service::Quic)
    } else if text::sip(&head) == Certain {
        Some(Service::Sip)
    } else if dhcp(bytes) {
        Some(Service::Dhcp)
    } else if tftp(bytes) {
        Some(Service::Tftp)
    } else if snmp(bytes).is_some() {
        Some(Service::Snmp)
    } else if ldap_message(toward, bytes) == Ok(Certain) {
        Some(Service::Ldap)
    } else if kerberos_message(toward, bytes, bytes.len()) == Ok(Certain) {
        Some(Service::Krb5)
    } else if by(&[NTP]) && ntp(bytes) {
        Some(Service::Ntp)
    } else {
        rpc(toward, bytes)
    }
}

/// DNS: one question (RFC 1035, section 4.1), with flags that are valid in this direction, and not more records than
/// the header specifies.
fn dns(toward: Toward, bytes: &[u8]) -> bool {
    let Some((header, mut rest)) = bytes.split_at_checked(12) else {
        return false;
    };
    let answer = header[2] & 0x80 != 0;
    let count = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let records = [6, 8, 10].map(count);
    let opcode = header[2] >> 3 & 15;
    if answer != (toward == Toward::Client) || opcode != 0 || count(4) != 1 || header[3] & 0x40 != 0 {
        return false;
    }
    if !answer && (records[0] != 0 || records[1] != 0 || header[3] & 15 != 0) || records.iter().any(|&count| count > 64)
    {
        return false;
    }
    // NetBIOS name service messages (RFC 1002, section 4.2.1.2) have the same header.
    if let [32, name @ ..] = rest
        && name.len() > 32
        && name[..32].iter().all(|byte| (b'A'..=b'P').contains(byte))
    {
        return false;
    }
    loop {
        match rest {
            [0, 0, 0, ..] => return false,
            [0, _, _, class, low, behind @ ..] => {
                return is_class([*class, *low]) && behind.is_empty() == (records == [0; 3]);
            }
            [bytes @ 1..64, label @ ..] if label.len() >= usize::from(*bytes) => rest = &label[usize::from(*bytes)..],
            _ => return false,
        }
    }
}

/// A QUIC long header of a known version (RFC 9000, section 17.2; RFC 9369). An Initial packet of a client must have at
/// least the minimum size (section 14.1).
fn quic(bytes: &[u8]) -> bool {
    let &[first, a, b, c, d, dcid, ref rest @ ..] = bytes else {
        return false;
    };
    let known = matches!(
        [a, b, c, d],
        [0, 0, 0, 1] | [0x6b, 0x33, 0x43, 0xcf] | [0xff, 0, 0, 29..=34]
    );
    let ids = rest
        .get(usize::from(dcid))
        .is_some_and(|&scid| scid <= 20 && rest.len() > usize::from(dcid) + 1 + usize::from(scid));
    first & 0xc0 == 0xc0 && known && dcid <= 20 && ids && bytes.len() >= 1200
}

/// A BOOTP header and the magic cookie (RFC 2131, section 3).
fn dhcp(bytes: &[u8]) -> bool {
    matches!(bytes.first(), Some(1 | 2))
        && bytes.get(2).is_some_and(|&length| length <= 16)
        && bytes.get(236..240) == Some(&[99, 130, 83, 99])
}

/// A TFTP read or write request: a file name and a mode, each terminated by a zero (RFC 1350, section 5). Data and
/// error packets use other ports and don't match.
fn tftp(bytes: &[u8]) -> bool {
    let [0, 1 | 2, rest @ ..] = bytes else { return false };
    let mut words = rest.split(|&byte| byte == 0);
    let (Some(name), Some(mode), Some(_)) = (words.next(), words.next(), words.next()) else {
        return false;
    };
    let modes: [&[u8]; 3] = [b"octet", b"netascii", b"mail"];
    !name.is_empty() && modes.iter().any(|known| mode.eq_ignore_ascii_case(known))
}

/// An SNMP message: for versions 1 and 2c a community and a PDU (RFC 1157, RFC 1901), for version 3 its header (RFC
/// 3412, section 6).
fn snmp(bytes: &[u8]) -> Option<()> {
    let (outer, rest) = length(bytes.strip_prefix(&[0x30])?).ok()?;
    if outer != rest.len() {
        return None;
    }
    match *rest {
        [2, 1, 0 | 1, 4, ref rest @ ..] => {
            let (community, rest) = length(rest).ok()?;
            matches!(rest.get(community)?, 0xa0..=0xa8).then_some(())
        }
        [2, 1, 3, 0x30, ref rest @ ..] => {
            let (header, rest) = length(rest).ok()?;
            (rest.first() == Some(&2) && rest.get(header) == Some(&4)).then_some(())
        }
        _ => None,
    }
}

/// NTP modes 1 to 5 of versions 1 to 4 (RFC 5905, section 7.3), and control and private messages (RFC 9327, section 2).
fn ntp(bytes: &[u8]) -> bool {
    let Some(&first) = bytes.first() else { return false };
    let (version, mode) = (first >> 3 & 7, first & 7);
    let min = match mode {
        1..=5 => 48,
        6 => 12,
        7 => 8,
        _ => return false,
    };
    (1..=4).contains(&version) && bytes.len() >= min
}

/// An ONC RPC call (RFC 5531, section 9). A reply does not contain the program number.
fn rpc(toward: Toward, bytes: &[u8]) -> Option<Service> {
    match toward {
        Toward::Server if rpc_call(bytes, true) == Certain => Some(Service::Nfs),
        Toward::Server if rpc_call(bytes, false) == Certain => Some(Service::Rpc),
        _ => None,
    }
}
