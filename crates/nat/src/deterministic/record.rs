//! Log record of a configuration change. From these records, an operator can compute which subscriber used a port at a
//! past time (RFC 7422, section 3).

use core::fmt::Write;

use super::{Plan, Ranges};
use crate::Address;

impl<A: Address> Plan<A> {
    /// Formats the record. The caller formats `time`. The fields are the time, and I, O, D, M, A, R and C of RFC 7422.
    /// C is included because it can't be derived from I and O. Prefixes are written as address and length; other ranges
    /// are written as prefixes of length 32 or 128. IPv6 addresses are written in brackets. The key of the random
    /// algorithm is not included.
    pub fn record(&self, time: &str) -> String {
        let mut line = format!("[{time}]:");
        let inside = Ranges::new(vec![(self.first, self.last)]);
        write_addresses(&mut line, &inside);
        line.push(':');
        write_addresses(&mut line, &self.addresses);
        // Writing to a string does not fail.
        let _ = write!(line, ":{}:", self.dynamic);
        let _ = write!(line, "{}", self.max.unwrap_or(self.share));
        let _ = write!(line, ":{}:", self.algorithm.number());
        let reserved = Ranges::without((1, u32::from(u16::MAX)), self.ports.ranges());
        for (at, (first, last)) in reserved.ranges().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let _ = match first == last {
                true => write!(line, "{comma}{first}"),
                false => write!(line, "{comma}{first}-{last}"),
            };
        }
        let _ = write!(line, ":{}", self.compression);
        line
    }
}

fn write_addresses<A: Address>(line: &mut String, addresses: &Ranges<A>) {
    let shown = |address: A| match address.display() {
        core::net::IpAddr::V4(address) => address.to_string(),
        core::net::IpAddr::V6(address) => format!("[{address}]"),
    };
    let mut ranges = addresses.ranges();
    if let (Some((first, last)), None) = (ranges.next(), ranges.next()) {
        let host = (first.number() ^ last.number()).wrapping_add(1);
        let prefix =
            first.number() & host.wrapping_sub(1) == 0 && last.number() & host.wrapping_sub(1) == host.wrapping_sub(1);
        if host.is_power_of_two() && prefix {
            let _ = write!(line, "{}:{}", shown(first), u32::from(A::BITS) - host.trailing_zeros());
            return;
        }
    }
    for (at, (first, last)) in addresses.ranges().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let _ = match first == last {
            true => write!(line, "{comma}{}", shown(first)),
            false => write!(line, "{comma}{}-{}", shown(first), shown(last)),
        };
    }
    let _ = write!(line, ":{}", A::BITS);
}
