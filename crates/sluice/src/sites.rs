//! `sluice show sites` and `sluice show leases`: what subscribers' sites are outside, and who is in them.

use std::io::Write;

use sluice_daemon::config::api::{Counter, DhcpStatus, Lease, LeaseFilter, Site, SiteFilter, path};

use crate::client::Client;
use crate::columns::{Align, Columns, grouped};
use crate::exit::CommandError;
use crate::routes::age;
use crate::show::each;

use Align::{Left, Right};

/// Rows between two flushes: a hundred thousand sites are not held in memory.
const ROWS: usize = 256;

const SITE: [(&str, Align); 10] = [
    ("SITE", Left),
    ("OUTSIDE", Left),
    ("STATE", Left),
    ("RENEWS", Right),
    ("EXPIRES", Right),
    ("SERVER", Left),
    ("VIRTUAL MAC", Left),
    ("TERMINALS", Right),
    ("INTERFACE", Left),
    ("NOTES", Left),
];

const LEASE: [(&str, Align); 8] = [
    ("ADDRESS", Left),
    ("MAC", Left),
    ("SITE", Left),
    ("STATE", Left),
    ("SINCE", Right),
    ("EXPIRES", Right),
    ("HOST NAME", Left),
    ("SOURCE", Left),
];

/// Sites in the order of their numbers.
///
/// # Errors
/// Those of the connection and of the output.
pub(crate) fn sites(
    client: &mut Client,
    filter: &SiteFilter,
    limit: u64,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let mut columns = Columns::new(&SITE);
    each(client, path::SITES, filter, limit, |site: Site| {
        columns.row(site_row(site));
        if columns.waiting() >= ROWS {
            columns.flush(output)?;
        }
        Ok(())
    })?;
    Ok(columns.flush(output)?)
}

/// Private leases, as the servers' files have them.
///
/// # Errors
/// Those of the connection and of the output.
pub(crate) fn leases(
    client: &mut Client,
    filter: &LeaseFilter,
    limit: u64,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let mut columns = Columns::new(&LEASE);
    each(client, path::LEASES, filter, limit, |lease: Lease| {
        columns.row(lease_row(lease));
        if columns.waiting() >= ROWS {
            columns.flush(output)?;
        }
        Ok(())
    })?;
    Ok(columns.flush(output)?)
}

/// How DHCP goes: what has happened, of each file, relay and client.
///
/// # Errors
/// Those of the connection and of the output.
pub(crate) fn dhcp(client: &mut Client, json: bool, output: &mut dyn Write) -> Result<(), CommandError> {
    let status: DhcpStatus = client.get(path::DHCP, "")?;
    if json {
        serde_json::to_writer_pretty(&mut *output, &status).map_err(std::io::Error::from)?;
        return Ok(writeln!(output)?);
    }
    let mut columns = Columns::new(&[("DHCP", Left), ("", Right)]);
    let [terminals, most] = status.terminals;
    columns.row(["sites".into(), grouped(status.sites)]);
    columns.row([
        "terminals".into(),
        format!("{} of {}", grouped(terminals), grouped(most)),
    ]);
    columns.row(["leases left out".into(), grouped(status.left_out)]);
    counted(&mut columns, status.counters);
    for server in status.servers {
        let file = match (&server.error, server.there, server.watched) {
            (Some(_), ..) => "unreadable",
            (None, false, _) => "missing",
            (None, true, false) => "looked at",
            (None, true, true) => "followed",
        };
        columns.row([format!("server {}: {}", server.name, server.source), file.into()]);
        columns.row(["  leases".into(), grouped(server.leases)]);
        counted(&mut columns, server.counters);
    }
    for client in status.clients {
        columns.row([format!("client {}", client.interface), client.servers]);
        columns.row(["  sites with an address".into(), grouped(client.bound)]);
        counted(&mut columns, client.counters);
    }
    Ok(columns.flush(output)?)
}

fn counted(columns: &mut Columns, counters: Vec<Counter>) {
    for counter in counters.into_iter().filter(|counter| counter.count > 0) {
        columns.row([format!("  {}", counter.name), grouped(counter.count)]);
    }
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".into())
}

fn site_row(site: Site) -> [String; 10] {
    let pool = site.pool.map(|pool| format!("pool {pool}"));
    // A lease without an end has no time to show, and is told from none at all.
    let expires = match (site.public, site.expires) {
        (Some(_), None) => Some("never".into()),
        (_, expires) => expires.map(age),
    };
    [
        site.name,
        or_dash(site.public.map(|public| public.to_string()).or(pool)),
        or_dash(site.state),
        or_dash(site.renews.map(age)),
        or_dash(expires),
        or_dash(site.server.map(|server| server.to_string())),
        or_dash(site.mac),
        grouped(site.terminals.into()),
        site.interface,
        site.flags.join(" "),
    ]
}

fn lease_row(lease: Lease) -> [String; 8] {
    [
        lease.address.to_string(),
        lease.mac,
        or_dash(lease.site),
        lease.state,
        age(lease.since),
        lease.expires.map_or_else(|| "never".into(), age),
        or_dash(lease.host_name),
        lease.source,
    ]
}
