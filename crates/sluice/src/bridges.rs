//! `sluice show bridges`.

use std::io::Write;

use sluice_daemon::config::api::{Bridge, path};

use crate::client::Client;
use crate::columns::{Align, Columns, grouped};
use crate::exit::CommandError;

use Align::{Left, Right};

/// The bridges, side by side, then what they passed in spite of a reason.
pub fn bridges(client: &mut Client, output: &mut dyn Write) -> Result<(), CommandError> {
    let mut sides = Columns::new(&[
        ("BRIDGE", Left),
        ("INTERFACE", Left),
        ("LINK", Left),
        ("RECEIVED", Right),
        ("SENT", Right),
        ("DROPPED", Right),
    ]);
    let mut spared = Columns::new(&[("PASSED", Right), ("ALTHOUGH", Left), ("BRIDGE", Left)]);
    let mut any = false;
    client.list(path::BRIDGES, &(), |items: Vec<Bridge>| {
        for bridge in items {
            for side in bridge.sides {
                sides.row([
                    bridge.name.clone(),
                    side.interface,
                    side.link,
                    grouped(side.received),
                    grouped(side.sent),
                    grouped(side.dropped),
                ]);
            }
            for counter in bridge.spared {
                any = true;
                spared.row([grouped(counter.count), counter.name, bridge.name.clone()]);
            }
        }
        Ok::<_, CommandError>(true)
    })?;
    sides.flush(output)?;
    if any {
        writeln!(output)?;
        spared.flush(output)?;
    }
    Ok(())
}
