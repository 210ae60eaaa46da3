//! Parses addresses and bytes in the notation of lease files.

use std::net::Ipv4Addr;
use std::str::FromStr;

use sluice_wire::Mac;

/// Parse a value from its text.
pub fn parse<T: FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parse a unicast IPv4 address.
pub fn address(text: &[u8]) -> Option<Ipv4Addr> {
    let address: Ipv4Addr = parse(text)?;
    let host = !address.is_unspecified() && !address.is_broadcast() && !address.is_multicast();
    host.then_some(address)
}

/// Parse a unicast Ethernet address.
pub fn hardware(text: &[u8]) -> Option<Mac> {
    let bytes: Mac = octets(text)?.try_into().ok()?;
    (!sluice_wire::ethernet::is_group(bytes) && bytes != [0; 6]).then_some(bytes)
}

/// Parse bytes such as `1:2f:0`, with one or two digits each.
pub fn octets(text: &[u8]) -> Option<Vec<u8>> {
    let parts = text.split(|&byte| byte == b':');
    parts
        .map(|part| match *part {
            [low] => digit(low),
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        })
        .collect()
}

/// Parse bytes such as `012f`, with an even number of digits.
pub fn hexadecimal(text: &[u8]) -> Option<Vec<u8>> {
    let pairs = text.chunks(2);
    pairs
        .map(|pair| match *pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        })
        .collect()
}

/// Value of a hexadecimal digit.
pub fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}
