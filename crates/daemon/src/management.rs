//! Detection of management access. If the operator reaches this machine over a device, Sluice must not take over the
//! device, since this would lock the operator out.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_dpdk::Device;
use sluice_dpdk::pci::System;

use crate::host::netlink::Netlink;

/// TCP port of SSH.
const SSH: u16 = 22;

/// How this machine uses a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// The machine's default route uses this interface.
    DefaultRoute(String),
    /// The local address of an SSH session belongs to this interface.
    Session(String, IpAddr),
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DefaultRoute(interface) => write!(f, "the default route of this machine uses {interface}"),
            Self::Session(interface, from) => write!(f, "an SSH session from {from} uses {interface}"),
        }
    }
}

/// How this machine uses a device, as seen from the network namespace in which Sluice was started. Only uses that the
/// kernel reports are detected.
pub(crate) fn use_of(device: &Device) -> Option<Use> {
    let mut interfaces = HashSet::new();
    match device {
        Device::Bond { members } => members.iter().for_each(|member| found(member, &mut interfaces)),
        _ => found(device, &mut interfaces),
    }
    if interfaces.is_empty() {
        return None;
    }
    let file = |path| fs::read_to_string(path).unwrap_or_default();
    let (v4, v6) = (file("/proc/net/route"), file("/proc/net/ipv6_route"));
    if let Some(interface) = defaults4(&v4)
        .chain(defaults6(&v6))
        .find(|name| interfaces.contains(name))
    {
        return Some(Use::DefaultRoute(interface));
    }
    let mut sessions = sessions(&file("/proc/net/tcp"));
    sessions.extend(self::sessions(&file("/proc/net/tcp6")));
    if sessions.is_empty() {
        return None;
    }
    let addresses = addresses().unwrap_or_default();
    let session = addresses.into_iter().filter(|(name, _)| interfaces.contains(name));
    session.into_iter().find_map(|(name, own)| {
        let (_, from) = sessions.iter().find(|(local, _)| *local == own)?;
        Some(Use::Session(name, *from))
    })
}

/// Add the kernel interfaces of a device, and the VLANs, bonds and bridges above them.
fn found(device: &Device, interfaces: &mut HashSet<String>) {
    let mut next = match device {
        Device::Kernel { interface } => vec![interface.clone()],
        // A card may have a kernel driver in addition to its DPDK driver.
        Device::Pci(address) => System::this().card(*address).map_or(Vec::new(), |card| card.interfaces),
        _ => return,
    };
    while let Some(name) = next.pop() {
        let own = entries(&format!("/sys/class/net/{name}"));
        let upper = own.iter().filter_map(|entry| entry.strip_prefix("upper_"));
        next.extend(upper.filter(|upper| !interfaces.contains(*upper)).map(str::to_owned));
        interfaces.insert(name);
    }
}

fn entries(path: &str) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// Interfaces of default routes in `/proc/net/route`: `eth0 00000000 010200C0 0003 0 0 100 00000000 …`.
fn defaults4(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_default = words.get(1) == Some(&"00000000") && words.get(7) == Some(&"00000000");
        let name = words.first().filter(|_| is_default)?;
        Some((*name).to_owned())
    })
}

/// Interfaces of default routes in `/proc/net/ipv6_route`: network, prefix length, and the interface in the last
/// column. Unreachable routes that the kernel itself adds have the interface `lo` and are skipped.
fn defaults6(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_default = words.get(1) == Some(&"00") && words.first()?.bytes().all(|digit| digit == b'0');
        let name = words.last().filter(|name| is_default && **name != "lo")?;
        Some((*name).to_owned())
    })
}

/// Local and remote address of the established SSH sessions in `/proc/net/tcp` or `tcp6`.
fn sessions(text: &str) -> Vec<(IpAddr, IpAddr)> {
    let session = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (own, other, state) = (endpoint(words.next()?)?, endpoint(words.next()?)?, words.next()?);
        (own.1 == SSH && state == "01").then_some((own.0, other.0))
    };
    text.lines().filter_map(session).collect()
}

/// Parse `0100007F:0016`: 32-bit words of the address in this machine's byte order, and the port.
fn endpoint(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let words: Option<Vec<u32>> = address
        .as_bytes()
        .chunks(8)
        .map(|word| u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok())
        .collect();
    let bytes: Vec<u8> = words?.into_iter().flat_map(u32::to_ne_bytes).collect();
    let address = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(v4) => Ipv4Addr::from(v4).into(),
        Err(_) => Ipv6Addr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?).to_canonical(),
    };
    Some((address, u16::from_str_radix(port, 16).ok()?))
}

/// Interfaces with their addresses.
fn addresses() -> std::io::Result<Vec<(String, IpAddr)>> {
    let mut netlink = Netlink::open()?;
    let links = netlink.links()?;
    let addresses = netlink.addresses()?;
    let name = |number| {
        links
            .iter()
            .find(|link| link.index == number)
            .map(|link| link.name.clone())
    };
    Ok(addresses
        .into_iter()
        .filter_map(|address| Some((name(address.link)?, address.address.0)))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_routes_are_those_of_both_families() {
        let v4 = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
                    eth0\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                    eth1\t0000A8C0\t00000000\t0001\t0\t0\t100\t0000FFFF\t0\t0\t0\n";
        assert_eq!(vec!["eth0"], defaults4(v4).collect::<Vec<_>>());
        let zero = "0".repeat(32);
        let v6 = format!(
            "{zero} 00 {zero} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth2\n\
             20010db8000000000000000000000000 20 {zero} 00 {zero} 00000100 00000001 00000000 00000001     eth3\n"
        );
        assert_eq!(vec!["eth2"], defaults6(&v6).collect::<Vec<_>>());
    }

    #[test]
    fn sessions_are_established_ones_with_the_port_of_ssh() {
        let words = |bytes: &[u8]| -> String {
            let word = |word: &[u8]| format!("{:08X}", u32::from_ne_bytes(word.try_into().unwrap()));
            bytes.chunks(4).map(word).collect()
        };
        let [own, other] = [[192, 0, 2, 1], [198, 51, 100, 7]].map(|bytes: [u8; 4]| words(&bytes));
        let line = |port: u16, state: &str| format!("   0: {own}:{port:04X} {other}:C000 {state} 00000000:00000000\n");
        let text = format!(
            "  sl  local_address rem_address   st\n{}{}{}",
            line(22, "0A"),
            line(80, "01"),
            line(22, "01")
        );
        let expected: (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "198.51.100.7".parse().unwrap());
        assert_eq!(vec![expected], sessions(&text));
        let [own, other]: [Ipv6Addr; 2] = ["2001:db8::1", "::ffff:192.0.2.9"].map(|text| text.parse().unwrap());
        let text = format!("0: {}:0016 {}:C000 01\n", words(&own.octets()), words(&other.octets()));
        assert_eq!(
            vec![(own.into(), "192.0.2.9".parse::<IpAddr>().unwrap())],
            sessions(&text)
        );
    }

    #[test]
    fn device_that_is_not_the_kernels_is_not_in_use() {
        assert_eq!(None, use_of(&Device::Null));
        let lo = Device::Kernel { interface: "lo".into() };
        assert!(!matches!(use_of(&lo), Some(Use::DefaultRoute(_))));
    }
}
