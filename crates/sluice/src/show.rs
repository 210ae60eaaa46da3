//! `sluice show`: lists of the daemon as tables, as JSON, and sessions as `conntrack -L` writes them.

use std::cell::RefCell;
use std::io::Write;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_daemon::config::api::{
    Alert, Bridge, Core, Drop, FilterRequest, Flow, Initiator, Interface, Lease, Neighbour, Protocol, Route, Router,
    RouterFilter, Session, SessionFilter, Site, Uplink, path,
};

use crate::arguments::Show;
use crate::client::Client;
use crate::columns::{Align, Columns, grouped};
use crate::exit::CommandError;
use crate::graph::Form;
use crate::{applications, bridges, filter, graph, inspection, nat, routes, sites};

use Align::{Left, Right};

/// List what was asked for.
///
/// # Errors
/// Those of the connection and of the output.
pub fn show(socket: &Path, show: &Show, output: &mut dyn Write) -> Result<(), CommandError> {
    let connect = || Client::connect(socket);
    match show {
        Show::Mapping {
            filter,
            config: Some(file),
            json,
        } => nat::mapping_of_file(file, filter, *json, output),
        Show::Nat { request, json } => nat::nat(&mut connect()?, request, *json, output),
        Show::Filter { request, json } => {
            let mut request = FilterRequest::clone(request);
            if request.packet.is_some() {
                request.rules = 0;
            }
            filter::filter(&mut connect()?, &request, *json, output)
        }
        Show::Subscribers { filter, json, limit } => {
            let limit = limit.unwrap_or(u64::MAX);
            nat::subscribers(&mut connect()?, filter, (limit, *json), output)
        }
        Show::Sites { filter, json, limit } => {
            let limit = limit.unwrap_or(u64::MAX);
            match json {
                true => as_json::<_, Site>(&mut connect()?, path::SITES, filter, limit, output),
                false => sites::sites(&mut connect()?, filter, limit, output),
            }
        }
        Show::Leases { filter, json, limit } => {
            let limit = limit.unwrap_or(u64::MAX);
            match json {
                true => as_json::<_, Lease>(&mut connect()?, path::LEASES, filter, limit, output),
                false => sites::leases(&mut connect()?, filter, limit, output),
            }
        }
        Show::Dhcp { json } => sites::dhcp(&mut connect()?, *json, output),
        Show::Mapping { filter, json, .. } => nat::mapping(&mut connect()?, filter, *json, output),
        Show::Interfaces { json: true, filter } => {
            as_json::<_, Interface>(&mut connect()?, path::INTERFACES, filter, u64::MAX, output)
        }
        Show::Routers { json: true, filter } => {
            as_json::<_, Router>(&mut connect()?, path::ROUTERS, filter, u64::MAX, output)
        }
        Show::Routers { filter, .. } => routes::routers(&mut connect()?, filter, output),
        Show::Graph { filter, dot, json } => {
            let form = match (dot, json) {
                (true, _) => Form::Dot,
                (_, true) => Form::Json,
                _ => Form::Text,
            };
            graph::graph(&mut connect()?, filter, form, output)
        }
        Show::Routes { filter, json: true } => {
            as_json::<_, Route>(&mut connect()?, path::ROUTES, filter, u64::MAX, output)
        }
        Show::Routes { filter, .. } => routes::routes(&mut connect()?, filter, output),
        Show::Uplinks { json: true } => as_json::<_, Uplink>(&mut connect()?, path::UPLINKS, &(), u64::MAX, output),
        Show::Uplinks { .. } => routes::uplinks(&mut connect()?, output),
        Show::Cores { json: true } => as_json::<_, Core>(&mut connect()?, path::CORES, &(), u64::MAX, output),
        Show::Bridges { json: true } => as_json::<_, Bridge>(&mut connect()?, path::BRIDGES, &(), u64::MAX, output),
        Show::Bridges { .. } => bridges::bridges(&mut connect()?, output),
        Show::Drops { json: true, .. } => as_json::<_, Drop>(&mut connect()?, path::DROPS, &(), u64::MAX, output),
        Show::Alerts { request, json: true } => {
            as_json::<_, Alert>(&mut connect()?, path::ALERTS, request, u64::MAX, output)
        }
        Show::Alerts { request, .. } => inspection::alerts(&mut connect()?, request, output),
        Show::Applications { all, json } => applications::status(&mut connect()?, *all, *json, output),
        Show::Inspection { json } => inspection::status(&mut connect()?, *json, output),
        Show::Neighbours { json: true, filter } => {
            as_json::<_, Neighbour>(&mut connect()?, path::NEIGHBOURS, filter, u64::MAX, output)
        }
        Show::Sessions {
            filter,
            json: true,
            limit,
            ..
        } => {
            let limit = limit.unwrap_or(u64::MAX);
            as_json::<_, Session>(&mut connect()?, path::SESSIONS, filter, limit, output)
        }
        Show::Sessions {
            filter,
            conntrack: true,
            limit,
            ..
        } => {
            let limit = limit.unwrap_or(u64::MAX);
            each(&mut connect()?, path::SESSIONS, filter, limit, |session| {
                Ok(writeln!(output, "{}", conntrack_line(&session))?)
            })
        }
        Show::Sessions { filter, limit, .. } => {
            session_table(&mut connect()?, filter, limit.unwrap_or(u64::MAX), output)
        }
        Show::Interfaces { filter, .. } => interfaces(&mut connect()?, filter, output),
        Show::Neighbours { filter, .. } => {
            let titles = [
                ("ADDRESS", Left),
                ("MAC", Left),
                ("ROUTER", Left),
                ("INTERFACE", Left),
                ("STATE", Left),
                ("WAITING", Right),
            ];
            table(
                &mut connect()?,
                path::NEIGHBOURS,
                filter,
                &titles,
                output,
                |row: Neighbour| {
                    let mac = row.mac.unwrap_or("-".into());
                    Some([
                        row.address.to_string(),
                        mac,
                        row.router,
                        row.interface,
                        row.state,
                        row.parked.to_string(),
                    ])
                },
            )
        }
        Show::Cores { .. } => {
            let titles = [
                ("WORKER", Right),
                ("CORE", Right),
                ("STATE", Left),
                ("BUSY", Right),
                ("PACKETS/S", Right),
                ("PACKETS", Right),
                ("SESSIONS", Right),
                ("SHARDS", Right),
                ("PARTS", Left),
            ];
            table(&mut connect()?, path::CORES, &(), &titles, output, |row: Core| {
                Some([
                    row.worker.to_string(),
                    row.core.to_string(),
                    row.state,
                    format!("{:.0} %", row.busy * 100.0),
                    grouped(row.rate),
                    grouped(row.packets),
                    grouped(row.sessions),
                    row.shards.to_string(),
                    row.parts,
                ])
            })
        }
        Show::Drops { all, .. } => {
            let titles = [("PACKETS", Right), ("REASON", Left), ("MEANING", Left)];
            table(&mut connect()?, path::DROPS, &(), &titles, output, |row: Drop| {
                (*all || row.packets != 0).then(|| [grouped(row.packets), row.name, row.help])
            })
        }
    }
}

/// Interfaces, and below them what cards offer and how their queues are chosen.
fn interfaces(client: &mut Client, wanted: &RouterFilter, output: &mut dyn Write) -> Result<(), CommandError> {
    let titles = [
        ("INTERFACE", Left),
        ("ROUTER", Left),
        ("DEVICE", Left),
        ("DRIVER", Left),
        ("LINK", Left),
        ("MTU", Right),
        ("QUEUES", Right),
        ("RECEIVED", Right),
        ("SENT", Right),
        ("DROPPED", Right),
        ("ADDRESSES", Left),
    ];
    let cards = RefCell::new(Vec::new());
    table(client, path::INTERFACES, wanted, &titles, output, |row: Interface| {
        if !row.card.is_empty() {
            let Interface {
                name, card, steering, ..
            } = &row;
            cards.borrow_mut().push(format!("  {name}: {card}; {steering}"));
        }
        Some([
            row.name,
            or_dash(row.router),
            row.device,
            or_dash(row.driver),
            row.link,
            row.mtu.to_string(),
            row.queues.to_string(),
            grouped(row.received),
            grouped(row.sent),
            grouped(row.dropped),
            row.addresses.join(" "),
        ])
    })?;
    let cards = cards.into_inner();
    Ok(cards.iter().try_for_each(|card| writeln!(output, "{card}"))?)
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".into() } else { text }
}

pub(crate) fn table<Q: Serialize, T: DeserializeOwned, const N: usize>(
    client: &mut Client,
    path: &str,
    filter: &Q,
    titles: &[(&'static str, Align); N],
    output: &mut dyn Write,
    row: impl Fn(T) -> Option<[String; N]>,
) -> Result<(), CommandError> {
    let mut columns = Columns::new(titles);
    client.list(path, filter, |items: Vec<T>| {
        items.into_iter().filter_map(&row).for_each(|cells| columns.row(cells));
        Ok::<_, CommandError>(true)
    })?;
    Ok(columns.flush(output)?)
}

/// An object with one array, which may be longer than memory. The last part of the path names it: `{"routes":[…]}`.
fn as_json<Q: Serialize, T: DeserializeOwned + Serialize>(
    client: &mut Client,
    path: &str,
    filter: &Q,
    limit: u64,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    write!(output, "{{\"{}\":[", path.rsplit('/').next().unwrap_or_default())?;
    let mut separator = "\n";
    each(client, path, filter, limit, |item: T| {
        write!(output, "{separator}")?;
        separator = ",\n";
        Ok(serde_json::to_writer(&mut *output, &item).map_err(std::io::Error::from)?)
    })?;
    Ok(writeln!(output, "\n]}}")?)
}

/// The entries of a list one by one, up to a limit.
pub(crate) fn each<Q: Serialize, T: DeserializeOwned>(
    client: &mut Client,
    path: &str,
    filter: &Q,
    limit: u64,
    mut entry: impl FnMut(T) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let mut left = limit;
    client.list(path, filter, |items: Vec<T>| {
        for item in items {
            if left == 0 {
                return Ok(false);
            }
            left -= 1;
            entry(item)?;
        }
        Ok::<_, CommandError>(left != 0)
    })
}

/// Rows between two flushes: a million sessions are not held in memory.
const ROWS: usize = 256;

fn session_table(
    client: &mut Client,
    filter: &SessionFilter,
    limit: u64,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let mut columns = Columns::new(&[
        ("PROTOCOL", Left),
        ("INSIDE", Left),
        ("OUTSIDE", Left),
        ("REMOTE", Left),
        ("STATE", Left),
        ("EXPIRES", Right),
        ("UP", Right),
        ("DOWN", Right),
        ("SITE", Left),
        ("APPLICATION", Left),
        ("MARK", Left),
    ]);
    each(client, path::SESSIONS, filter, limit, |session: Session| {
        columns.row(session_row(&session));
        if columns.waiting() >= ROWS {
            columns.flush(output)?;
        }
        Ok(())
    })?;
    Ok(columns.flush(output)?)
}

fn session_row(session: &Session) -> [String; 11] {
    let (up, down) = match session.initiator {
        Initiator::Inside => (session.forward, session.reverse),
        Initiator::Remote => (session.reverse, session.forward),
    };
    [
        session.protocol.to_string(),
        session.inside().to_string(),
        session.outside().to_string(),
        session.remote().to_string(),
        session.state.clone(),
        format!("{} s", session.expires),
        grouped(up.packets),
        grouped(down.packets),
        session.site.clone().unwrap_or_else(|| "-".into()),
        session.application.clone().unwrap_or_else(|| "-".into()),
        match session.mark {
            0 => "-".into(),
            mark => format!("{mark:#x}"),
        },
    ]
}

/// A line in the form of `conntrack -L`, with counters.
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

/// The kernel writes the same names in capitals.
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
