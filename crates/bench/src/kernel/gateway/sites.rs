//! Sluice as the gateway of subscriber sites. Terminals have leases in a lease file in Kea's format. Sites get their
//! public addresses from a real Kea server at the sink, which is stopped before packets are measured.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::sluice;
use crate::daemon::{Daemon, FOLDER};
use crate::kernel::frame::HOSTS;
use crate::kernel::topology::{INSIDE_ADDRESS, SINK, SINK_ADDRESS, SINK_INTERFACE, SITES, Topology, inside_network};
use crate::kernel::traffic::Hits;
use crate::netns::within;
use crate::rows::Failure;
use crate::subscribers::kea::Kea;
use crate::subscribers::public_leases::await_addresses;
use crate::subscribers::site::LeaseFile;

/// Maximum time until all sites have their addresses.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts the gateway, and waits until all sites have addresses.
pub fn start(rules: u32, terminals: u32, topology: &Topology, program: &Path) -> Result<Daemon, Failure> {
    let failed = |error: Failure| Failure::from(format!("sites are not served: {error}"));
    let network = inside_network(Hits::Last.of(rules).0);
    let leases = Path::new(FOLDER).join("kea-leases4.csv");
    write(&leases, network, terminals).map_err(failed)?;
    let kea = Kea::start(&within(SINK), SINK_INTERFACE, SINK_ADDRESS, SITES).map_err(failed)?;
    let mut configuration = sluice::on_wires(rules, topology);
    serve(&mut configuration, network, terminals, &leases);
    let daemon = sluice::start(&configuration, topology, program)?;
    await_addresses(&daemon, HOSTS.div_ceil(terminals) as usize, PATIENCE, || Ok(true)).map_err(failed)?;
    drop(kea);
    Ok(daemon)
}

/// Writes the lease file of all terminals.
fn write(file: &Path, network: Ipv4Addr, terminals: u32) -> Result<(), Failure> {
    std::fs::create_dir_all(FOLDER)?;
    let address = |host| Ipv4Addr::from(u32::from(network) + 1 + host);
    LeaseFile::create(file)?.add((0..HOSTS).map(|host| (host / terminals, host, address(host))))
}

/// Adds sites behind the inside interface to a configuration.
fn serve(configuration: &mut Value, network: Ipv4Addr, terminals: u32, leases: &Path) {
    let gateway = format!("{}/24", Ipv4Addr::from(u32::from(network) + 254));
    configuration["interfaces"]["inside"]["addresses"] = json!([gateway, INSIDE_ADDRESS]);
    let tags = format!("100.1-{}", HOSTS.div_ceil(terminals));
    configuration["subscribers"] = json!({
        "sites": {"homes": {"interface": "inside", "tags": tags, "dhcp": "inside", "public": "outside"}},
        "dhcp": {"inside": {"server": SINK_ADDRESS, "leases": leases, "format": "kea"}},
        "public": {"outside": {"prefixes": [SITES[0]]}},
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_stand_beside_the_rules_and_have_a_gateway_in_the_terminals_network() {
        let mut all = sluice::configuration(1_000, 1, ["a", "b"], Path::new(FOLDER), 10_000);
        serve(&mut all, inside_network(999), 4, Path::new("/leases"));
        let text = toml::to_string(&all).expect("a configuration");
        assert!(
            text.contains("addresses = [\"10.3.231.254/24\", \"192.168.0.1/24\"]"),
            "{text}"
        );
        assert!(text.contains("tags = \"100.1-63\""));
        assert_eq!(1_000, text.matches("[[nat.source]]").count());
    }

    #[test]
    fn lease_file_has_all_terminals() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("leases");
        write(&file, inside_network(1), 4).expect("a lease file");
        let text = std::fs::read_to_string(file).expect("what was written");
        assert_eq!(1 + HOSTS as usize, text.lines().count());
        assert!(
            text.lines()
                .nth(250)
                .is_some_and(|line| line.starts_with("10.0.0.250,06:00:00:00:00:f9,"))
        );
    }
}
