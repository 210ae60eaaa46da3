//! Measures memory and time of the control plane with the maximum number of sites.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

use sluice_config::memory::EntryBytes;
use sluice_config::{Machine, check};
use sluice_daemon::subscribers::Site;
use sluice_daemon::subscribers::agent::store::Present;
use sluice_daemon::subscribers::leases::{Change, Expiry, Lease, RelayInformation};
use sluice_daemon::subscribers::service::{
    Environment, Finder, Interface, Parameters, SavedState, Service, ServiceOutput,
};
use sluice_daemon::subscribers::virtual_mac::VirtualMacs;
use sluice_nat::Secret;
use sluice_nat::sites::SiteWriter;

const SITES: u32 = 100_000;
const TERMINALS: u32 = 4;

const TEXT: &str = r#"
[interfaces.access]
device = "null:"
addresses = ["10.0.0.1/8"]
[interfaces.outside]
device = "null:"
addresses = ["203.0.0.1/14"]
[subscribers.sites.homes]
interface = "access"
tags = "100-199.1-1000"
dhcp = "inside"
public = "outside"
[subscribers.dhcp.inside]
server = "192.0.2.10"
relay = "10.255.255.1"
leases = "/kea-leases4.csv"
format = "kea"
[subscribers.public.outside]
prefixes = ["203.0.0.0/14"]
"#;

/// Resident memory of this process in bytes.
fn memory() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("it is there");
    let pages: usize = statm.split(' ').nth(1).expect("a number").parse().expect("a number");
    pages * 4096
}

fn parameters() -> Parameters {
    let machine = Machine {
        cores: vec![0],
        memory: 1 << 40,
        entry: EntryBytes::default(),
    };
    let checked = check("/gateway.toml", TEXT, &machine).unwrap_or_else(|error| panic!("{error}"));
    let subscribers = checked.config.subscribers.clone().expect("subscribers");
    let names: Vec<String> = (0..SITES).map(|site| subscribers.name(site)).collect();
    let named: Vec<_> = names.iter().map(|name| (name.as_str(), None)).collect();
    let interface = |name: &str, address: &str| Interface {
        name: name.into(),
        mac: [2, 0, 0, 0, 1, 0],
        router: 0,
        addresses: vec![address.parse().expect("a network")],
        host: false,
    };
    let macs = VirtualMacs::new(Secret([1, 2]), &[]).expect("no prefix");
    Parameters {
        interfaces: vec![interface("access", "10.0.0.1/8"), interface("outside", "203.0.0.1/14")],
        macs: macs.assign(&named).expect("all have one"),
        pools: Vec::new(),
        secret: Secret([3, 4]),
        finder: Finder::new(&subscribers),
        subscribers,
    }
}

#[test]
fn hundred_thousand_sites_fit_into_a_kilobyte_each() {
    let parameters = Arc::new(parameters());
    let leases: Vec<Arc<Lease>> = (0..SITES * TERMINALS)
        .map(|number| {
            let [_, a, b, c] = number.to_be_bytes();
            Arc::new(Lease {
                address: Ipv4Addr::from_bits(0x0a10_0000 + number),
                hardware: [2, 0, 0, a, b, c],
                client_id: None,
                renewed: 1_800_000_000,
                expires: Expiry::At(1_800_003_600),
                relay: Some(Box::new(RelayInformation {
                    circuit: parameters.subscribers.name(number / TERMINALS).into_bytes().into(),
                    remote: Box::default(),
                })),
                host_name: Some("terminal".into()),
            })
        })
        .collect();
    let before = memory();
    let (mut writer, sites) = SiteWriter::new(SITES, SITES * TERMINALS, &[(0, 0, SITES - 1)], [5, 6]);
    let mut out = ServiceOutput::default();
    let mut environment = Environment {
        present: Present {
            now: 0,
            unix: 1_800_000_000,
        },
        mapping: &mut writer,
        out: &mut out,
    };
    let mut service = Service::new(parameters.clone(), SavedState::default(), &mut environment);
    let started_at = Instant::now();
    for lease in leases {
        service.change(0, &Change::Gained(lease), &mut environment);
    }
    let took = started_at.elapsed();
    service.poll(&mut environment);
    assert_eq!([400_000, 0], service.terminals());
    assert_eq!((400_000, 400_000), sites.terminals());
    let [all, entries] = [memory() - before, sites.bytes()];
    let each = (all - entries.min(all)) / SITES as usize;
    println!(
        "400,000 leases in {took:?}; {each} bytes for each site, and {} in workers' entries",
        entries / SITES as usize
    );
    assert!(each < 1_024, "{each} bytes for each site");
    // The last site is processed like the first.
    let last = service.site(Site(SITES - 1)).expect("a site");
    assert_eq!(TERMINALS, last.terminals);
}
