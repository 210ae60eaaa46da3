//! `sluice show bridges`.

use std::io::Write;

use sluice_daemon::config::api::operation;

use crate::client::Client;
use crate::columns::{Align, Columns, grouped};
use crate::exit::CommandError;
use crate::show::{NoOptions, ShowList, each};

use Align::{Left, Right};

impl ShowList for operation::Bridges {
    type Options = NoOptions;

    /// Print the bridges. Then print the number of packets that the bridges forwarded although a drop reason applied.
    fn text(
        client: &mut Client,
        request: &Self::Request,
        limit: u64,
        _: &NoOptions,
        output: &mut dyn Write,
    ) -> Result<(), CommandError> {
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
        each::<Self>(client, request, limit, |bridge| {
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
            for counter in bridge.exempted {
                any = true;
                spared.row([grouped(counter.count), counter.name, bridge.name.clone()]);
            }
            Ok(())
        })?;
        sides.flush(output)?;
        if any {
            writeln!(output)?;
            spared.flush(output)?;
        }
        Ok(())
    }
}
