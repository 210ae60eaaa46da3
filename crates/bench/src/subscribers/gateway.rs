//! Configuration of a gateway that serves sites.

use std::net::Ipv4Addr;
use std::path::Path;

use sluice_daemon::subscribers::virtual_mac::text;
use sluice_wire::Mac;

use super::Failure;
use crate::daemon::socket;
use crate::rig::sites::{OF_SERVICE, tags};

/// Address of the next hop to all outside destinations.
pub const OPERATOR: Ipv4Addr = Ipv4Addr::new(203, 0, 0, 1);
/// [`OPERATOR`] as text.
pub const ROUTER: &str = "203.0.0.1";
pub const OPERATOR_MAC: Mac = [2, 0, 0, 0, 0, 0xfe];
/// Prefix length of the operator's network, which contains the sites' addresses.
pub const PREFIX: u8 = 14;
/// Network of the sites' public addresses, and the range from which the DHCP server leases them; it has more addresses
/// than there can be sites.
pub const SUBNET: &str = "203.0.0.0/14";
pub const POOL: &str = "203.0.1.0 - 203.3.250.255";
/// The gateway's own address in that network.
const OWN: Ipv4Addr = Ipv4Addr::new(203, 0, 0, 2);

/// Parameters of a gateway between terminals and an operator.
#[derive(Clone, Copy, Debug)]
pub struct Gateway<'g> {
    /// The gateway's devices on the terminals' side and on the operator's side.
    pub devices: [&'g str; 2],
    pub sites: u32,
    /// Maximum number of terminals per site.
    pub terminals: u32,
    /// Session capacity.
    pub flows: u32,
    pub rate: u32,
    pub core: usize,
    /// Folder of the gateway's files.
    pub folder: &'g Path,
    /// Lease file that the terminals' DHCP server writes.
    pub leases: &'g Path,
}

/// VLAN tags of all sites, in the format of the configuration.
///
/// # Errors
/// If more than one S-tag is needed, the number of sites must be a multiple of the number of C-tags.
fn ranges(sites: u32) -> Result<String, Failure> {
    let (first, last) = (tags(0), tags(sites - 1));
    match sites {
        ..=OF_SERVICE => Ok(format!("{}.{}-{}", first.0, first.1, last.1)),
        _ if sites.is_multiple_of(OF_SERVICE) => Ok(format!("{}-{}.{}-{}", first.0, last.0, first.1, last.1)),
        _ => Err(format!("{sites} sites: up to {OF_SERVICE}, or so many thousands").into()),
    }
}

impl Gateway<'_> {
    pub fn text(&self) -> Result<String, Failure> {
        let terminals = self.sites * self.terminals;
        Ok(format!(
            r#"[system]
name = "bench"
workers = [{core}]

[sessions]
ipv4 = {sessions}
ipv6 = 64

[control]
socket = "{socket}"
log = "warn"

[interfaces.access]
device = "{access}"
addresses = ["10.0.0.1/8"]

[interfaces.outside]
device = "{outside}"
addresses = ["{OWN}/{PREFIX}"]

[[routes]]
to = "0.0.0.0/0"
via = "{OPERATOR}"

[[neighbours.static]]
address = "{OPERATOR}"
mac = "{operator}"
interface = "outside"

[subscribers]
terminals = {room}

[subscribers.sites.homes]
interface = "access"
tags = "{tags}"
dhcp = "inside"
public = "outside"

[subscribers.dhcp.inside]
server = "{OPERATOR}"
leases = "{leases}"
format = "kea"

[subscribers.public.outside]
prefixes = ["{SUBNET}"]
rate = {rate}
"#,
            core = self.core,
            sessions = 2 * self.flows + 16 * 1024,
            socket = socket(self.folder).display(),
            access = self.devices[0],
            outside = self.devices[1],
            operator = text(OPERATOR_MAC),
            room = terminals.max(1_024),
            tags = ranges(self.sites)?,
            leases = self.leases.display(),
            rate = self.rate,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_of_one_tag_or_of_whole_ones_have_ranges() {
        assert_eq!("100.1-7", ranges(7).expect("a range"));
        assert_eq!("100.1-1000", ranges(1_000).expect("a range"));
        assert_eq!("100-199.1-1000", ranges(100_000).expect("ranges"));
        assert!(ranges(1_001).is_err());
        assert_eq!(ROUTER, OPERATOR.to_string());
    }

    #[test]
    fn configuration_is_valid_and_its_sites_have_the_names_of_the_bench() {
        let gateway = Gateway {
            devices: ["null:", "null:"],
            sites: 2_000,
            terminals: 4,
            flows: 8_000,
            rate: 500,
            core: 0,
            folder: Path::new("/tmp/bench"),
            leases: Path::new("/tmp/bench/leases"),
        };
        let text = gateway.text().expect("whole tags");
        for part in [
            "tags = \"100-101.1-1000\"",
            "terminals = 8000",
            "rate = 500",
            "leases = \"/tmp/bench/leases\"",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
