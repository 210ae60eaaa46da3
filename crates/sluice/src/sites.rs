//! `sluice show dhcp`: status of DHCP for subscriber sites.

use std::io::Write;

use sluice_daemon::config::api::{Counter, DhcpStatus, operation};

use crate::columns::{Align, Columns, grouped};
use crate::exit::CommandError;
use crate::show::{NoOptions, ShowAnswer};

use Align::{Left, Right};

impl ShowAnswer for operation::Dhcp {
    type Options = NoOptions;

    /// Print the counters of each lease file, relay and client.
    fn text(status: &DhcpStatus, _: &NoOptions, output: &mut dyn Write) -> Result<(), CommandError> {
        let mut columns = Columns::new(&[("DHCP", Left), ("", Right)]);
        let [terminals, max] = status.terminals;
        columns.row(["sites".into(), grouped(status.sites)]);
        columns.row([
            "terminals".into(),
            format!("{} of {}", grouped(terminals), grouped(max)),
        ]);
        columns.row(["leases ignored".into(), grouped(status.left_out)]);
        counted(&mut columns, &status.counters);
        for server in &status.servers {
            let file = match (&server.error, server.there, server.watched) {
                (Some(_), ..) => "unreadable",
                (None, false, _) => "missing",
                (None, true, false) => "looked at",
                (None, true, true) => "followed",
            };
            columns.row([format!("server {}: {}", server.name, server.source), file.into()]);
            columns.row(["  leases".into(), grouped(server.leases)]);
            counted(&mut columns, &server.counters);
        }
        for client in &status.clients {
            columns.row([format!("client {}", client.interface), client.servers.clone()]);
            columns.row(["  sites with an address".into(), grouped(client.bound)]);
            counted(&mut columns, &client.counters);
        }
        Ok(columns.flush(output)?)
    }
}

fn counted(columns: &mut Columns, counters: &[Counter]) {
    for counter in counters.iter().filter(|counter| counter.count > 0) {
        columns.row([format!("  {}", counter.name), grouped(counter.count)]);
    }
}
