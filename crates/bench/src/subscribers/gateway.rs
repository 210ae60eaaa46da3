//! A gateway that serves sites: its configuration, and its links in one network namespace. The terminals are behind one
//! veth pair, the operator's network is behind another.

use std::net::Ipv4Addr;
use std::path::Path;

use serde_json::{Value, json};
use sluice_daemon::subscribers::virtual_mac::text;
use sluice_wire::Mac;

use super::{Failure, Size};
use crate::daemon;
use crate::netns::bring_up;
use crate::process::{run, script};
use crate::rig::sites::{OF_SERVICE, tags};

/// The gateway's devices on the terminals' side and on the operator's side.
pub const DEVICES: [&str; 2] = ["access", "outside"];
/// The opposite ends of both links, used by this process.
pub const FAR: [&str; 2] = ["street", "operator"];
/// MAC addresses of the gateway's devices.
pub const MACS: [Mac; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// MAC addresses of the opposite ends of both links; terminals have MAC addresses of their own.
const FAR_MACS: [Mac; 2] = [[2, 0, 0, 0, 0, 3], OPERATOR_MAC];

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

/// Creates the links in this network namespace.
pub fn wires() -> Result<(), Failure> {
    script(
        "env",
        "ip link set lo up\nsysctl -q -w net.ipv6.conf.default.disable_ipv6=1\n",
    )?;
    for ((near, far), (mac, other)) in DEVICES.into_iter().zip(FAR).zip(MACS.into_iter().zip(FAR_MACS)) {
        let (mac, other) = (text(mac), text(other));
        let far_end = format!("{far} address {other} mtu 1508");
        run(&format!(
            "ip link add {near} address {mac} mtu 1508 type veth peer name {far_end}"
        ))?;
        bring_up("env", near)?;
        bring_up("env", far)?;
    }
    Ok(())
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

/// Configuration of a gateway with room for all flows that serves `sites` sites. `leases` is the lease file that the
/// terminals' DHCP server writes.
pub fn configuration(size: &Size, sites: u32, core: usize, folder: &Path, leases: &Path) -> Result<Value, Failure> {
    let [access, outside] = DEVICES;
    let more = json!({
        "interfaces": {
            "access": {"device": access, "addresses": ["10.0.0.1/8"]},
            "outside": {"device": outside, "addresses": [format!("{OWN}/{PREFIX}")]},
        },
        "routes": [{"to": "0.0.0.0/0", "via": OPERATOR}],
        "neighbours": {"static": [{"address": OPERATOR, "mac": text(OPERATOR_MAC), "interface": "outside"}]},
        "subscribers": {
            "terminals": (sites * size.terminals).max(1_024),
            "sites": {"homes": {
                "interface": "access", "tags": ranges(sites)?, "dhcp": "inside", "public": "outside",
            }},
            "dhcp": {"inside": {"server": OPERATOR, "leases": leases, "format": "kea"}},
            "public": {"outside": {"prefixes": [SUBNET], "rate": size.rate}},
        },
    });
    let sessions = 2 * size.sites * size.terminals + 16 * 1024;
    let mut all = daemon::configuration(core, sessions, folder, more);
    all["sessions"]["ipv6"] = 64.into();
    Ok(all)
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
        let size = Size {
            sites: 2_000,
            terminals: 4,
            rate: 500,
            program: None,
        };
        let [folder, leases] = ["/tmp/bench", "/tmp/bench/leases"].map(Path::new);
        let all = configuration(&size, 2_000, 0, folder, leases).expect("whole tags");
        assert_eq!("100-101.1-1000", all["subscribers"]["sites"]["homes"]["tags"]);
        assert_eq!(8_000, all["subscribers"]["terminals"]);
        assert_eq!(500, all["subscribers"]["public"]["outside"]["rate"]);
        assert_eq!("/tmp/bench/leases", all["subscribers"]["dhcp"]["inside"]["leases"]);
    }
}
