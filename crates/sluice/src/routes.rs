//! `sluice show routes`: prints routes in a readable order.

use std::io::Write;
use std::net::IpAddr;

use sluice_daemon::config::api::{Route, operation};

use crate::client::Client;
use crate::columns::Table;
use crate::exit::CommandError;
use crate::show::{NoOptions, ShowList, each};

impl ShowList for operation::Routes {
    type Options = NoOptions;

    /// Print routes in the order of router and network. Selected routes come first.
    fn text(
        client: &mut Client,
        request: &Self::Request,
        limit: u64,
        _: &NoOptions,
        output: &mut dyn Write,
    ) -> Result<(), CommandError> {
        let mut rows: Vec<Route> = Vec::new();
        each::<Self>(client, request, limit, |row| {
            rows.push(row);
            Ok(())
        })?;
        rows.sort_by_cached_key(|row| {
            let (network, length) = network(&row.to);
            (
                row.router.clone(),
                row.from.clone(),
                network,
                length,
                !row.used,
                row.distance,
                row.metric,
                row.via,
            )
        });
        let by_source = rows.iter().any(|row| row.from.is_some());
        let mut table = Table::with(|title| match title {
            "FROM" => by_source,
            "USED" => request.all,
            _ => true,
        });
        rows.iter().for_each(|row| table.add(row));
        Ok(table.flush(output)?)
    }
}

/// Sort key of a network.
fn network(text: &str) -> (Option<IpAddr>, Option<u8>) {
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    (address.parse().ok(), length.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_sort_by_number_and_family() {
        let mut all = ["2001:db8::/32", "10.0.0.0/24", "9.0.0.0/8", "10.0.0.0/8", "::/0"];
        all.sort_by_key(|text| network(text));
        assert_eq!(["9.0.0.0/8", "10.0.0.0/8", "10.0.0.0/24", "::/0", "2001:db8::/32"], all);
    }
}
