//! Output of `sluice show interfaces`, `show sessions` and `show drops` that is not a table, such as sessions in the
//! format of `conntrack -L`.

use std::io::Write;

use clap::Args;
use sluice_daemon::config::api::{Flow, Session, operation};
use sluice_daemon::config::value::Protocol;

use crate::client::Client;
use crate::exit::CommandError;
use crate::show::{NoOptions, ShowList, each, table};

impl ShowList for operation::Interfaces {
    type Options = NoOptions;
    const ALIASES: &[&str] = &["links"];

    /// Print the table, followed by the capabilities and the receive steering of cards.
    fn text(
        client: &mut Client,
        request: &Self::Request,
        limit: u64,
        _: &NoOptions,
        output: &mut dyn Write,
    ) -> Result<(), CommandError> {
        let mut cards = Vec::new();
        table::<Self>(client, request, limit, output, |row| {
            if !row.card.is_empty() {
                cards.push(format!("  {}: {}; {}", row.name, row.card, row.steering));
            }
            true
        })?;
        Ok(cards.iter().try_for_each(|card| writeln!(output, "{card}"))?)
    }
}

/// Options of `show sessions`.
#[derive(Args, Clone, Copy, Debug)]
pub struct SessionOptions {
    /// Print lines in the format of `conntrack -L`.
    #[arg(long, conflicts_with = "json")]
    conntrack: bool,
}

impl ShowList for operation::Sessions {
    type Options = SessionOptions;

    fn text(
        client: &mut Client,
        request: &Self::Request,
        limit: u64,
        options: &SessionOptions,
        output: &mut dyn Write,
    ) -> Result<(), CommandError> {
        match options.conntrack {
            true => each::<Self>(client, request, limit, |session| {
                Ok(writeln!(output, "{}", conntrack_line(&session))?)
            }),
            false => table::<Self>(client, request, limit, output, |_| true),
        }
    }
}

/// Options of `show drops`.
#[derive(Args, Clone, Copy, Debug)]
pub struct DropOptions {
    /// Include reasons with a zero count.
    #[arg(long)]
    all: bool,
}

impl ShowList for operation::Drops {
    type Options = DropOptions;

    fn text(
        client: &mut Client,
        request: &Self::Request,
        limit: u64,
        options: &DropOptions,
        output: &mut dyn Write,
    ) -> Result<(), CommandError> {
        table::<Self>(client, request, limit, output, |row| options.all || row.packets != 0)
    }
}

/// Format a session in the format of `conntrack -L`, with counters.
pub fn conntrack_line(session: &Session) -> String {
    let Session {
        protocol,
        forward,
        reverse,
        expires,
        answered,
        ..
    } = session;
    let Protocol(number) = protocol;
    let mut line = format!("{protocol:<8} {number} {expires}");
    if *number == 6 {
        line += &format!(" {}", tcp_state(&session.state));
    }
    line += &flow(*number, forward, 8, 128);
    if !answered {
        line += " [UNREPLIED]";
    }
    line += &flow(*number, reverse, 0, 129);
    if *answered {
        line += " [ASSURED]";
    }
    line + &format!(" mark={} use=1", session.mark)
}

/// Convert a TCP state to the name that the kernel uses, which is in capitals.
fn tcp_state(state: &str) -> String {
    state.to_uppercase().replace('-', "_")
}

fn flow(protocol: u8, flow: &Flow, type4: u8, type6: u8) -> String {
    let Flow {
        source,
        destination,
        source_port,
        destination_port,
        packets,
        bytes,
    } = flow;
    let ports = match protocol {
        1 => format!("type={type4} code=0 id={source_port}"),
        58 => format!("type={type6} code=0 id={source_port}"),
        _ => format!("sport={source_port} dport={destination_port}"),
    };
    format!(" src={source} dst={destination} {ports} packets={packets} bytes={bytes}")
}
