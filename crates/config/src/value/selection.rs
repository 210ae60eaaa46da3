//! Values of filter conditions: protocols, ICMP types, TCP flags, marks and code points.

use std::fmt;
use std::str::FromStr;

use super::{ValueError, written_as_text};

/// Names with their numbers.
type Named = [(&'static str, u8)];

fn named(names: &Named, text: &str) -> Option<u8> {
    let found = names.iter().find(|(name, _)| *name == text);
    found.map(|(_, number)| *number).or_else(|| text.parse().ok())
}

fn name_of(names: &Named, number: u8) -> Option<&'static str> {
    names.iter().find(|(_, of)| *of == number).map(|(name, _)| *name)
}

const PROTOCOLS: &Named = &[
    ("icmp", 1),
    ("igmp", 2),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("udplite", 136),
];

/// An IP protocol, by name or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpProtocol(pub u8);

impl FromStr for IpProtocol {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let number = named(PROTOCOLS, text).ok_or_else(|| ValueError::Protocol(text.into()))?;
        Ok(Self(number))
    }
}

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match name_of(PROTOCOLS, self.0) {
            Some(name) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

written_as_text!(IpProtocol, "a protocol such as \"tcp\" or 47");

/// ICMP types for IPv4 (RFC 792 and others).
const TYPES4: &Named = &[
    ("echo-reply", 0),
    ("destination-unreachable", 3),
    ("source-quench", 4),
    ("redirect", 5),
    ("echo-request", 8),
    ("router-advertisement", 9),
    ("router-solicitation", 10),
    ("time-exceeded", 11),
    ("parameter-problem", 12),
    ("timestamp-request", 13),
    ("timestamp-reply", 14),
];

/// ICMPv6 types (RFC 4443, RFC 4861).
const TYPES6: &Named = &[
    ("destination-unreachable", 1),
    ("packet-too-big", 2),
    ("time-exceeded", 3),
    ("parameter-problem", 4),
    ("echo-request", 128),
    ("echo-reply", 129),
    ("router-solicitation", 133),
    ("router-advertisement", 134),
    ("neighbour-solicitation", 135),
    ("neighbour-advertisement", 136),
    ("redirect", 137),
];

/// ICMP type with an optional code, written as a number such as `3` or `3/4`, or as a name. A name represents the types
/// of both families; a number represents a type of the protocol in the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    name: Option<String>,
    types: [Option<u8>; 2],
    /// The code. If omitted, any code matches.
    pub code: Option<u8>,
}

impl Message {
    /// Type in ICMP or ICMPv6. `None` if the protocol does not have the type.
    pub fn kind(&self, v6: bool) -> Option<u8> {
        self.types[usize::from(v6)]
    }
}

impl FromStr for Message {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::Message(text.into());
        let (kind, code) = match text.split_once('/') {
            Some((kind, code)) => (kind, Some(code.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let (name, types) = match kind.parse::<u8>() {
            Ok(number) => (None, [Some(number); 2]),
            Err(_) => (Some(kind.to_owned()), [named(TYPES4, kind), named(TYPES6, kind)]),
        };
        match types {
            [None, None] => Err(wrong()),
            _ => Ok(Self { name, types, code }),
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, self.types) {
            (Some(name), _) => f.write_str(name)?,
            (None, [number, _]) => number.unwrap_or_default().fmt(f)?,
        }
        self.code.map_or(Ok(()), |code| write!(f, "/{code}"))
    }
}

written_as_text!(Message, "an ICMP type such as \"echo-request\" or \"3/4\"");

/// Names of the TCP flags, in the order of their bits (RFC 9293).
const FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];

/// TCP flags that are compared, and the compared flags that must be set. Flags are written as `syn/syn,ack`. Without a
/// slash, only the listed flags are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpFlags {
    /// Flags that must be set.
    pub set: u8,
    /// Flags that are compared.
    pub of: u8,
}

fn flags(text: &str) -> Option<u8> {
    let mut bits = 0;
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        bits |= match name {
            "none" => 0,
            "all" => u8::MAX,
            name => 1 << FLAGS.iter().position(|known| *known == name)?,
        };
    }
    Some(bits)
}

impl FromStr for TcpFlags {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::Flags(text.into());
        let (set, of) = text.split_once('/').unwrap_or((text, text));
        let (set, of) = flags(set).zip(flags(of)).ok_or_else(wrong)?;
        match of != 0 && set & !of == 0 {
            true => Ok(Self { set, of }),
            false => Err(wrong()),
        }
    }
}

impl fmt::Display for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |bits: u8| {
            let names: Vec<_> = (0..8)
                .filter(|bit| bits >> bit & 1 != 0)
                .map(|bit| FLAGS[bit])
                .collect();
            if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(",")
            }
        };
        write!(f, "{}/{}", names(self.set), names(self.of))
    }
}

written_as_text!(TcpFlags, "TCP flags such as \"syn/syn,ack\"");

/// A session mark, with a mask of its significant bits. A mark is written as `value` or `value/mask`. Each of the two
/// is a number; hexadecimal numbers begin with `0x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Value of the significant bits.
    pub value: u32,
    /// Mask of the significant bits.
    pub mask: u32,
}

impl FromStr for Mark {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) if !digits.starts_with('+') => u32::from_str_radix(digits, 16).ok(),
            Some(_) => None,
            None => text.parse().ok(),
        };
        let (value, mask) = text.split_once('/').unwrap_or((text, "0xffffffff"));
        let of = number(value)
            .zip(number(mask))
            .filter(|(value, mask)| value & !mask == 0);
        let (value, mask) = of.ok_or_else(|| ValueError::Mark(text.into()))?;
        Ok(Self { value, mask })
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mask {
            u32::MAX => write!(f, "{:#x}", self.value),
            mask => write!(f, "{:#x}/{mask:#x}", self.value),
        }
    }
}

written_as_text!(Mark, "a mark such as \"0x10\" or \"0x10/0xf0\"");

/// ECN code points (RFC 3168).
const CONGESTION: &[&str] = &["not-ect", "ect1", "ect0", "ce"];

/// A code point of explicit congestion notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ecn(pub u8);

impl FromStr for Ecn {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let number = CONGESTION.iter().position(|name| *name == text);
        let number = number.ok_or_else(|| ValueError::Ecn(text.into()))?;
        Ok(Self(number as u8))
    }
}

impl fmt::Display for Ecn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(CONGESTION.get(usize::from(self.0)).copied().unwrap_or_default())
    }
}

written_as_text!(Ecn, "a code point such as \"ect0\"");

/// DSCPs that have names (RFC 2474, RFC 2597, RFC 3246, RFC 8622).
const CODE_POINTS: &Named = &[
    ("cs0", 0),
    ("le", 1),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

/// A differentiated services code point, by name or number from 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dscp(pub u8);

impl FromStr for Dscp {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let number = named(CODE_POINTS, text).filter(|&number| number < 64);
        number.map(Self).ok_or_else(|| ValueError::Dscp(text.into()))
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match name_of(CODE_POINTS, self.0) {
            Some(name) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

written_as_text!(Dscp, "a code point such as \"ef\" or 46");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{Addresses, OrNot, Ports};

    fn same<T: FromStr<Err = ValueError> + fmt::Display>(text: &str) {
        let read = text.parse::<T>().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(text, read.to_string());
    }

    #[test]
    fn selections_are_written_as_they_were_read() {
        for text in [
            "192.0.2.1",
            "192.0.2.0/24",
            "192.0.2.1-192.0.2.9",
            "2001:db8::/32",
            "0.0.0.0/0",
            "@web",
        ] {
            same::<Addresses>(text);
        }
        ["80", "0-1023", "@mail"].into_iter().for_each(same::<Ports>);
        ["tcp", "icmpv6", "254"].into_iter().for_each(same::<IpProtocol>);
        ["echo-request", "3/4", "13", "packet-too-big"]
            .into_iter()
            .for_each(same::<Message>);
        ["syn/syn,rst,ack", "none/fin,syn"]
            .into_iter()
            .for_each(same::<TcpFlags>);
        ["ef", "45"].into_iter().for_each(same::<Dscp>);
        ["not-ect", "ect0", "ect1", "ce"].into_iter().for_each(same::<Ecn>);
        ["0x10", "0x10/0xf0", "0x0/0x0"].into_iter().for_each(same::<Mark>);
        ["tcp", "!tcp"].into_iter().for_each(same::<OrNot<IpProtocol>>);
    }

    #[test]
    fn selections_that_mean_nothing_are_refused() {
        for text in ["10.0.0.1/24", "10.0.0.9-10.0.0.1", "10.0.0.1-2001:db8::1", "web", ""] {
            assert!(text.parse::<Addresses>().is_err(), "{text}");
        }
        for text in ["65536", "9-1", "http"] {
            assert!(text.parse::<Ports>().is_err(), "{text}");
        }
        assert!("256".parse::<IpProtocol>().is_err());
        assert!("echo".parse::<Message>().is_err());
        for text in ["syn/ack", "none", "syn,foo", "/"] {
            assert!(text.parse::<TcpFlags>().is_err(), "{text}");
        }
        assert!("64".parse::<Dscp>().is_err());
        for text in ["0x11/0xf0", "0x", "1/", "0x+1", "4294967296"] {
            assert!(text.parse::<Mark>().is_err(), "{text}");
        }
        let mark = "7".parse::<Mark>();
        assert_eq!(Ok((7, u32::MAX)), mark.map(|mark| (mark.value, mark.mask)));
    }

    #[test]
    fn message_of_a_name_has_a_type_in_each_family() {
        let echo: Message = "echo-request".parse().unwrap();
        assert_eq!((Some(8), Some(128)), (echo.kind(false), echo.kind(true)));
        let big: Message = "packet-too-big".parse().unwrap();
        assert_eq!((None, Some(2)), (big.kind(false), big.kind(true)));
    }
}
