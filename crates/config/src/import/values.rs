//! Parses values that occur in both formats of listings, as sets of numbers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::listing::Target;
use super::packets::state;
use super::ranges::Ranges;
use crate::value::{Device, Dscp, Ecn, IpProtocol, Mac, Message, PortRange};

/// Ports of a translation target.
pub type Port = PortRange;

fn not(description: &str, text: &str) -> String {
    format!("`{text}` is not {description}")
}

/// Converts an address to a number.
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u32::from(v4).into(),
        IpAddr::V6(v6) => v6.into(),
    }
}

/// Converts a number to an address.
pub fn address(v6: bool, number: u128) -> IpAddr {
    match v6 {
        true => IpAddr::V6(Ipv6Addr::from(number)),
        false => IpAddr::V4(Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX))),
    }
}

/// Parse `192.0.2.0/24`, `192.0.2.0/255.255.255.0`, an address, or a list of these.
pub fn networks(text: &str, v6: bool) -> Result<Ranges, String> {
    let all = text.split(',').map(|one| network(one, v6));
    let all: Vec<_> = all.collect::<Result<_, _>>()?;
    Ok(Ranges::union(all))
}

fn network(text: &str, v6: bool) -> Result<(u128, u128), String> {
    let wrong = || not("a network of this address family", text);
    let (address, length) = match text.split_once('/') {
        None => (text, None),
        Some((address, mask)) => (address, Some(mask)),
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    if address.is_ipv6() != v6 {
        return Err(wrong());
    }
    let length = match length {
        None if v6 => 128,
        None => 32,
        Some(length) => match (length.parse::<u8>(), length.parse::<IpAddr>()) {
            (Ok(length), _) => length,
            (_, Ok(mask)) => ipnet::ip_mask_to_prefix(mask).map_err(|_| "the mask is not contiguous".to_owned())?,
            _ => return Err(wrong()),
        },
    };
    let net = IpNet::new(address, length).map_err(|_| wrong())?;
    Ok((number(net.network()), number(net.broadcast())))
}

/// First and last address of an IPv4 network.
pub fn network4(text: &str) -> Result<(u32, u32), String> {
    let (first, last) = network(text, false)?;
    Ok((first as u32, last as u32))
}

/// Parse `192.0.2.1-192.0.2.9`, or a single address.
pub fn address_range(text: &str, v6: bool) -> Result<Ranges, String> {
    let wrong = || not("a range of addresses of this address family", text);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let read = |text: &str| text.parse::<IpAddr>().ok().filter(|address| address.is_ipv6() == v6);
    let (first, last) = (read(first).ok_or_else(wrong)?, read(last).ok_or_else(wrong)?);
    if first > last {
        return Err(wrong());
    }
    Ok(Ranges::of(number(first), number(last)))
}

/// Parse a protocol name or number.
pub fn protocol(text: &str) -> Result<Ranges, String> {
    let lower = text.to_lowercase();
    let number = match lower.as_str() {
        "ipv6-icmp" | "icmp6" => 58,
        "ipip" | "ipencap" => 4,
        "ipv6" => 41,
        "egp" => 8,
        "ipcomp" => 108,
        "ipv6-nonxt" => 59,
        "mh" | "mobility-header" => 135,
        other => {
            other
                .parse::<IpProtocol>()
                .map_err(|_| not("a known protocol name", text))?
                .0
        }
    };
    Ok(Ranges::of(number.into(), number.into()))
}

/// Parse ports and port ranges such as `22,80:90`. `between` is the character between the first and the last port of a
/// range. Each of the two ports may be omitted.
pub fn ports(text: &str, between: char) -> Result<Ranges, String> {
    let one = |text: &str| {
        let wrong = || not("a number or a range of numbers up to 65535", text);
        let (first, last) = text.split_once(between).unwrap_or((text, text));
        let read = |text: &str, missing: u16| match text {
            "" => Ok(missing),
            text => text.parse::<u16>().map_err(|_| wrong()),
        };
        if text.is_empty() {
            return Err(wrong());
        }
        let (first, last) = (read(first, 0)?, read(last, u16::MAX)?);
        match first <= last {
            true => Ok((u128::from(first), u128::from(last))),
            false => Err(wrong()),
        }
    };
    let all: Vec<_> = text.split(',').map(one).collect::<Result<_, _>>()?;
    Ok(Ranges::union(all))
}

/// Parse an ICMP type with an optional code: `8`, `3/4`, `echo-request`, `any`.
pub fn message(text: &str, v6: bool) -> Result<Ranges, String> {
    let text = match text {
        // Older versions list the type "any" as 255.
        "any" | "255" => return Ok(Ranges::of(0, 0xffff)),
        "ping" => "echo-request",
        "pong" => "echo-reply",
        "ttl-exceeded" => "time-exceeded",
        "port-unreachable" if !v6 => "3/3",
        "host-unreachable" if !v6 => "3/1",
        "network-unreachable" if !v6 => "3/0",
        "fragmentation-needed" if !v6 => "3/4",
        "neighbor-solicitation" | "nd-neighbor-solicit" => "neighbour-solicitation",
        "neighbor-advertisement" | "nd-neighbor-advert" => "neighbour-advertisement",
        "nd-router-solicit" => "router-solicitation",
        "nd-router-advert" => "router-advertisement",
        other => other,
    };
    let message: Message = text.parse().map_err(|_| not("a known ICMP type", text))?;
    let kind = message
        .kind(v6)
        .ok_or_else(|| not("an ICMP type of this address family", text))?;
    Ok(message_range(kind, message.code))
}

/// Messages of a type with the given code. Without a code, messages with any code.
pub fn message_range(kind: u8, code: Option<u8>) -> Ranges {
    let first = u128::from(kind) << 8;
    match code {
        Some(code) => Ranges::of(first | u128::from(code), first | u128::from(code)),
        None => Ranges::of(first, first | 0xff),
    }
}

/// Converts names of TCP flags to bits.
pub fn flag_names(text: &str) -> Result<u8, String> {
    let bit = |name: &str| match name.to_uppercase().as_str() {
        "FIN" => Ok(1),
        "SYN" => Ok(2),
        "RST" => Ok(4),
        "PSH" => Ok(8),
        "ACK" => Ok(16),
        "URG" => Ok(32),
        "ECE" | "ECN" => Ok(64),
        "CWR" => Ok(128),
        // iptables supports six flags.
        "ALL" => Ok(63),
        "NONE" => Ok(0),
        _ => Err(not("a TCP flag", name)),
    };
    text.split(',').map(bit).try_fold(0, |bits, bit| Ok(bits | bit?))
}

/// All values of the flag byte whose bits under the mask `of` equal `set`.
pub fn flags(of: u8, set: u8) -> Ranges {
    let such = (0..=255u8).filter(|flags| flags & of == set);
    Ranges::union(such.map(|flags| (flags.into(), flags.into())))
}

/// Parse connection tracking states.
pub fn states(text: &str) -> Result<Ranges, String> {
    let one = |name: &str| match name.to_uppercase().as_str() {
        "INVALID" => Ok(state::INVALID),
        "NEW" => Ok(state::NEW),
        "ESTABLISHED" => Ok(state::ESTABLISHED),
        "RELATED" => Ok(state::RELATED),
        "UNTRACKED" => Ok(state::UNTRACKED),
        _ => Err(format!("state `{name}` has no counterpart")),
    };
    let all: Vec<_> = text.split(',').map(one).collect::<Result<_, _>>()?;
    Ok(Ranges::union(all.into_iter().map(|state| (state, state))))
}

/// Parse a DSCP: `0x2e`, `46`, `ef`.
pub fn dscp(text: &str) -> Result<Ranges, String> {
    let hexadecimal = text.strip_prefix("0x").map(|digits| u8::from_str_radix(digits, 16));
    let number = match hexadecimal {
        Some(number) => number.ok().filter(|&number| number < 64),
        None if text == "be" => Some(0),
        None => text.parse::<Dscp>().ok().map(|dscp| dscp.0),
    };
    let number = number.ok_or_else(|| not("a code point", text))?;
    Ok(Ranges::of(number.into(), number.into()))
}

/// Parse a DSCP class, which may be in capitals: `EF`.
pub fn dscp_class(text: &str) -> Result<Ranges, String> {
    dscp(&text.to_lowercase())
}

/// Parse a length, or a range of lengths with a colon: `0:100`.
pub fn lengths(text: &str) -> Result<Ranges, String> {
    ports(text, ':')
}

/// Parse a length, or a range of lengths with a hyphen.
pub fn length(text: &str) -> Result<Ranges, String> {
    ports(text, '-')
}

/// Parse an ECN code point: `ect0`, or the number of a code point.
pub fn ecn(text: &str) -> Result<Ranges, String> {
    let named = text.parse::<Ecn>().ok().map(|Ecn(number)| number);
    let number = named.or_else(|| text.parse().ok().filter(|&number: &u8| number < 4));
    let number = number.ok_or_else(|| not("an ECN code point", text))?;
    Ok(Ranges::of(number.into(), number.into()))
}

/// Parse a TTL or a hop limit.
pub fn ttl(text: &str) -> Result<Ranges, String> {
    let number = hops(text)?;
    Ok(Ranges::of(number, number))
}

/// Parse an exclusive upper bound of TTLs.
pub fn ttl_below(text: &str) -> Result<Ranges, String> {
    let below = hops(text)?.checked_sub(1);
    Ok(below.map_or_else(Ranges::default, |last| Ranges::of(0, last)))
}

/// Parse an exclusive lower bound of TTLs.
pub fn ttl_above(text: &str) -> Result<Ranges, String> {
    Ok(Ranges::of(hops(text)? + 1, u8::MAX.into()))
}

fn hops(text: &str) -> Result<u128, String> {
    text.parse::<u8>()
        .map(u128::from)
        .map_err(|_| not("a number from 0 to 255", text))
}

/// Parse a MAC address: `02:00:00:00:00:01`.
pub fn mac(text: &str) -> Result<Ranges, String> {
    let mac: Mac = text.parse().map_err(|_| not("a unicast MAC address", text))?;
    let number = mac
        .bytes()
        .into_iter()
        .fold(0, |number, byte| number << 8 | u128::from(byte));
    Ok(Ranges::of(number, number))
}

/// Parse a translation target: `203.0.113.1` or `203.0.113.1-203.0.113.9`, each optionally followed by a port range
/// such as `:1024-65535`.
pub fn target(text: &str) -> Result<Target, String> {
    if text.contains('[') || text.matches(':').count() > 1 {
        return Err("IPv6 is not translated".into());
    }
    let (addresses, ports) = match text.split_once(':') {
        Some((addresses, ports)) => (addresses, Some(ports)),
        None => (text, None),
    };
    let ports = ports.map(|ports| ports.parse::<PortRange>().map_err(|wrong| wrong.to_string()));
    let range = address_range(addresses, false)?;
    let &[(first, last)] = range.list() else {
        return Err(not("a range of addresses", addresses));
    };
    Ok(Target {
        addresses: (first as u32, last as u32),
        ports: ports.transpose()?,
    })
}

/// Check that the name is valid for an interface in the configuration.
pub fn interface_name(name: &str) -> Result<&str, String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let right = name.bytes().all(plain) && (1..=32).contains(&name.len()) && !name.starts_with(['-', '.']);
    match right && name.parse::<Device>().is_ok() {
        true => Ok(name),
        false => Err(format!("`{name}` is not a valid name of an interface")),
    }
}
