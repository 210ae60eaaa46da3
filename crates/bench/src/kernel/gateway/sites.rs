//! Sluice as the gateway of subscriber sites. Terminals have leases in a lease file in Kea's format. Sites get their
//! public addresses from a real Kea server at the sink, which is stopped before packets are measured.

use std::fmt::Write;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::sluice::{FOLDER, Process, configuration};
use crate::kernel::frame::HOSTS;
use crate::kernel::topology::{INSIDE_ADDRESS, SINK, SINK_ADDRESS, SINK_INTERFACE, SITES, Topology};
use crate::kernel::traffic::Hits;
use crate::process::await_every;
use crate::rows::Failure;
use crate::subscribers::kea::{Kea, Operator};
use crate::subscribers::public_leases::with_addresses;
use crate::subscribers::site::{KEA_HEADER, kea_line};

/// Maximum time until all sites have their addresses.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts the gateway, and waits until all sites have addresses.
pub fn start(rules: u32, terminals: u32, topology: &Topology, program: &Path) -> Result<Process, Failure> {
    let failed = |error: Failure| Failure::from(format!("sites are not served: {error}"));
    let network = network(rules);
    let leases = Path::new(FOLDER).join("kea-leases4.csv");
    let written = fs::create_dir_all(FOLDER).and_then(|()| fs::write(&leases, lines(network, terminals)));
    written.map_err(|error| failed(error.into()))?;
    let kea = Kea::start(&Operator {
        prefix: &format!("ip netns exec {SINK}"),
        interface: SINK_INTERFACE,
        router: SINK_ADDRESS,
        subnet: SITES[0],
        pool: SITES[1],
    })
    .map_err(failed)?;
    let text = with_sites(
        &configuration(rules, topology.cores.gateway),
        network,
        terminals,
        &leases,
    );
    let process = Process::with(&text, topology, program)?;
    let sites = HOSTS.div_ceil(terminals) as usize;
    let mut served = 0;
    let all = await_every(Duration::from_millis(100), PATIENCE, || {
        served = with_addresses(&process.daemon().show("sites")?).map_err(failed)?;
        Ok((served == sites).then_some(()))
    })?;
    let words = || format!("{served} of {sites} have an address; {}", process.daemon().last_words());
    all.ok_or_else(|| failed(words().into()))?;
    drop(kea);
    Ok(process)
}

/// Network of the terminals, which is the network of the last rule.
fn network(rules: u32) -> Ipv4Addr {
    crate::kernel::topology::inside_network(Hits::Last.of(rules).0)
}

/// Lease file of all terminals.
fn lines(network: Ipv4Addr, terminals: u32) -> String {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let line = |host: u32| {
        let address = Ipv4Addr::from(u32::from(network) + 1 + host);
        kea_line(host / terminals, host, address, now.as_secs() + 3_600)
    };
    (0..HOSTS).fold(KEA_HEADER.to_owned(), |text, host| text + &line(host))
}

/// The configuration `plain` with sites behind its inside interface.
fn with_sites(plain: &str, network: Ipv4Addr, terminals: u32, leases: &Path) -> String {
    let gateway = Ipv4Addr::from(u32::from(network) + 254);
    let inside = format!("addresses = [\"{INSIDE_ADDRESS}\"]");
    let mut text = plain.replace(
        &inside,
        &format!("addresses = [\"{gateway}/24\", \"{INSIDE_ADDRESS}\"]"),
    );
    let _ = write!(
        text,
        r#"
[subscribers.sites.homes]
interface = "inside"
tags = "100.1-{}"
dhcp = "inside"
public = "outside"

[subscribers.dhcp.inside]
server = "{SINK_ADDRESS}"
leases = "{}"
format = "kea"

[subscribers.public.outside]
prefixes = ["{}"]
"#,
        HOSTS.div_ceil(terminals),
        leases.display(),
        SITES[0],
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_stand_beside_the_rules_and_have_a_gateway_in_the_terminals_network() {
        let text = with_sites(&configuration(1_000, 1), network(1_000), 4, Path::new("/leases"));
        assert!(
            text.contains("addresses = [\"10.3.231.254/24\", \"192.168.0.1/24\"]"),
            "{text}"
        );
        assert!(text.contains("tags = \"100.1-63\""));
        assert_eq!(1_000, text.matches("[[nat.source]]").count());
    }

    #[test]
    fn lease_file_has_all_terminals() {
        let text = lines(network(1), 4);
        assert_eq!(1 + HOSTS as usize, text.lines().count());
        assert!(
            text.lines()
                .nth(250)
                .is_some_and(|line| line.starts_with("10.0.0.250,06:00:00:00:00:f9,"))
        );
    }
}
