//! Tests with lease files as servers write them, and with damaged files.

mod following;
mod reading;
mod status;
mod watching;

use std::net::Ipv4Addr;

use super::*;

/// Recorded lease files; see tests/leases/README.md.
const KEA: &[u8] = include_bytes!("../../../../tests/leases/kea-2.2.csv");
const DHCPD: &[u8] = include_bytes!("../../../../tests/leases/dhcpd-4.4.leases");
const DHCPD_REWRITTEN: &[u8] = include_bytes!("../../../../tests/leases/dhcpd-4.4-rewritten.leases");

/// A time before the end of any recorded lease.
const THEN: u64 = 1_795_486_200;

const HEADER: &str =
    "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context\n";

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 1, last)
}

/// A Kea line for the lease of a terminal. The lease begins at `begins` and ends a minute later.
fn line(last: u8, terminal: u8, begins: u64) -> String {
    let end = begins + 60;
    format!("10.77.1.{last},02:00:00:00:00:{terminal:02x},,60,{end},1,0,0,,0,\n")
}

/// The lease that corresponds to a [`line`].
fn leased(last: u8, terminal: u8, begins: u64) -> Lease {
    Lease {
        address: address(last),
        hardware: [2, 0, 0, 0, 0, terminal],
        client_id: None,
        renewed: begins,
        expires: Expiry::At(begins + 60),
        relay: None,
        host_name: None,
    }
}

fn read(format: Format, bytes: &[u8]) -> Vec<Result<Entry, Fault>> {
    let mut out = Vec::new();
    Reader::new(format).read(bytes, &mut out);
    out
}

/// Apply the read entries at time `now`. Returns the resulting table and the faults.
fn table(read: Vec<Result<Entry, Fault>>, now: u64) -> (Table, Vec<Fault>) {
    let (mut table, mut faults) = (Table::new(1000), Vec::new());
    for read in read {
        match read {
            Ok(entry) => table.apply(entry, now, &mut Vec::new()).expect("there is room"),
            Err(fault) => faults.push(fault),
        }
    }
    (table, faults)
}

fn sorted(table: &Table) -> Vec<Lease> {
    let mut leases: Vec<Lease> = table.leases().map(|lease| (**lease).clone()).collect();
    leases.sort_by_key(|lease| lease.address);
    leases
}

/// Short text for a change.
fn word(change: &Change) -> String {
    match change {
        Change::Gained(lease) => format!("+{}={:x}", lease.address.octets()[3], lease.hardware[5]),
        Change::Changed { was, now } => {
            format!(
                "{}={:x}>{:x}",
                now.address.octets()[3],
                was.hardware[5],
                now.hardware[5]
            )
        }
        Change::Renewed(lease) => format!("~{}={:x}", lease.address.octets()[3], lease.hardware[5]),
        Change::Lost { was, why } => format!("-{} {}", was.address.octets()[3], why.name()),
    }
}

fn words(changes: &[Change]) -> Vec<String> {
    changes.iter().map(word).collect()
}
