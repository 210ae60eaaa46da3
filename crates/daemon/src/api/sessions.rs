//! Lists and clears sessions. Each worker lists and clears its own sessions.

use std::sync::Arc;

use sluice_config::Config;
use sluice_config::api::{Cleared, EndpointFilter, Flow, Initiator, Page, Position, Session, SessionFilter, operation};
use sluice_config::value::Protocol;
use sluice_engine::snapshot::Snapshot;
use sluice_engine::worker::request::{Cursor, Endpoint, Filter, Reply, Request, SessionInfo};
use sluice_inspect::applications::ApplicationSelector;
use sluice_nat::sites::outer;
use sluice_route::{Prefix, RouterIndex};
use sluice_wire::Context;

use super::{Refusal, Serve, ServePages, applications, nat};
use crate::control::Control;
use crate::lowering::PoolNames;
use crate::sites::site_name;

/// Default number of sessions per page.
const PAGE: u32 = 1_024;

/// Maximum number of sessions per page. The control thread allocates the memory for a page.
const MAX_PAGE: u32 = 8_192;

fn prefix(net: ipnet::IpNet) -> Prefix {
    Prefix::new(net.addr().into(), net.prefix_len())
}

pub(super) fn endpoint(filter: EndpointFilter) -> Endpoint {
    Endpoint {
        net: filter.net.map(prefix),
        port: filter.port,
    }
}

/// Index of the interface with a name.
pub(super) fn interface(policy: &Snapshot, name: &str) -> Result<u16, Refusal> {
    let place = policy.interfaces.iter().position(|interface| interface.name == name);
    place.map(|place| place as u16).ok_or_else(|| {
        Refusal::Wrong(format!(
            "there is no interface `{name}`: `sluice show interfaces` lists the \
             interfaces"
        ))
    })
}

/// Number of the virtual router with a name, if a name is given.
pub(super) fn router(policy: &Snapshot, name: Option<&str>) -> Result<Option<RouterIndex>, Refusal> {
    let Some(name) = name else { return Ok(None) };
    let number = policy.router_named(name);
    let unknown = || {
        Refusal::Wrong(format!(
            "there is no router `{name}`: `sluice show routers` lists the routers"
        ))
    };
    number.ok_or_else(unknown).map(Some)
}

fn filter(wanted: &SessionFilter, control: &Control) -> Result<Filter, Refusal> {
    // An unknown site name must cause an error. If the name were ignored, sessions of all sites would be cleared.
    let site = wanted.site.as_deref().map(|name| super::sites::context(control, name));
    let site = site.transpose()?;
    let pool = wanted
        .pool
        .as_deref()
        .map(|name| nat::pool(control, name))
        .transpose()?;
    let subscriber = wanted
        .subscriber
        .map(|address| nat::subscriber_net(control, address.into()));
    let plane = control.plane();
    let policy = plane.snapshot();
    let application = wanted.application.as_deref();
    Ok(Filter {
        context: match (site, router(policy, wanted.router.as_deref())?) {
            (Some(site), router) => {
                if router.is_some_and(|router| Context::from(router) != outer(site)) {
                    return Err(Refusal::Wrong("the site belongs to another router".into()));
                }
                Some(site)
            }
            (None, router) => router.map(Into::into),
        },
        application: application.map(|name| meant(policy, name)).transpose()?,
        subscriber: subscriber.map(prefix),
        pool,
        address: wanted.address.map(|filter| prefix(filter.0)),
        port: wanted.port,
        inside: wanted.inside.map(endpoint),
        outside: wanted.outside.map(endpoint),
        remote: wanted.remote.map(endpoint),
        protocol: wanted.protocol.map(|protocol| protocol.0),
        either: wanted
            .interface
            .as_deref()
            .map(|name| interface(policy, name))
            .transpose()?,
        ..Filter::default()
    })
}

/// The applications that a name selects.
fn meant(policy: &Snapshot, name: &str) -> Result<ApplicationSelector, Refusal> {
    let Some(seeking) = &policy.applications else {
        return Err(applications::not_enabled());
    };
    let meant = seeking.names.selector(name);
    meant.ok_or_else(|| {
        Refusal::Wrong(format!(
            "there is no application `{name}`: `sluice show applications --all` lists the applications"
        ))
    })
}

impl ServePages for operation::Sessions {
    async fn serve(control: Arc<Control>, wanted: SessionFilter, position: Position) -> Result<Self::Answer, Refusal> {
        let (filter, config) = (filter(&wanted, &control)?, control.config());
        let (mut worker, mut cursor) = match &position.cursor {
            None => (0, Cursor::default()),
            Some(text) => read_cursor(text)?,
        };
        let limit = position.limit.unwrap_or(PAGE).clamp(64, MAX_PAGE) as usize;
        // If a worker returns no sessions, the page continues with the sessions of the next worker.
        while worker < control.workers() {
            let into = Vec::with_capacity(limit);
            let reply = control.ask(worker, Request::List { cursor, filter, into }).await?;
            let Reply::Listed { next, sessions } = reply else {
                break;
            };
            let next = match next {
                Some(cursor) => Some((worker, cursor)),
                None => Some((worker + 1, Cursor::default())).filter(|(worker, _)| *worker < control.workers()),
            };
            if !sessions.is_empty() || next.is_none() {
                let (pools, plane) = (control.pools(), control.plane());
                let items = sessions
                    .iter()
                    .map(|shown| session(shown, &config, plane.snapshot(), &pools));
                return Ok(Page {
                    items: items.collect(),
                    next: next.map(|(worker, cursor)| format!("{worker}-{}", cursor.pack())),
                });
            }
            let Some(place) = next else { break };
            (worker, cursor) = place;
        }
        Ok(Page::whole(Vec::new()))
    }
}

pub(super) fn read_cursor(text: &str) -> Result<(usize, Cursor), Refusal> {
    let parts = text.split_once('-');
    let read = parts.and_then(|(worker, word)| Some((worker.parse().ok()?, Cursor::unpack(word.parse().ok()?))));
    read.ok_or_else(|| Refusal::Wrong(format!("`{text}` is not a valid cursor of a list")))
}

impl Serve for operation::ClearSessions {
    async fn serve(control: Arc<Control>, wanted: SessionFilter) -> Result<Self::Answer, Refusal> {
        let filter = filter(&wanted, &control)?;
        clear_all(&control, filter).await
    }
}

/// End all sessions that match the filter.
pub(super) async fn clear_all(control: &Control, filter: Filter) -> Result<Cleared, Refusal> {
    // If one worker has handled the request and another has not, no shard may move from the second to the first.
    let _pause = control.pause_shard_moves().await;
    let count = clear_sessions(control, filter).await?;
    tracing::info!("{count} sessions removed on request");
    Ok(Cleared { count })
}

/// End all sessions that match the filter. The caller ensures that no shard moves. Returns the number of ended
/// sessions.
pub(super) async fn clear_sessions(control: &Control, filter: Filter) -> Result<u64, Refusal> {
    let mut count = 0;
    for worker in 0..control.workers() {
        let request = Request::Clear {
            cursor: Cursor::default(),
            filter,
            ended: 0,
        };
        if let Reply::Cleared(ended) = control.ask(worker, request).await? {
            count += ended;
        }
    }
    Ok(count)
}

fn session(shown: &SessionInfo, config: &Config, policy: &Snapshot, pools: &PoolNames) -> Session {
    let flow = |flow: &sluice_engine::worker::request::Flow, direction: usize| Flow {
        source: flow.source,
        source_port: flow.source_port,
        destination: flow.destination,
        destination_port: flow.destination_port,
        packets: shown.packets[direction],
        bytes: shown.bytes[direction],
    };
    let name = |place: u16| policy.interface(place).map(|interface| interface.name.clone());
    let (inside, outside) = match shown.inbound {
        false => (shown.interface, shown.egress),
        true => (shown.egress, shown.interface),
    };
    let plain = if shown.answered { "answered" } else { "unanswered" };
    Session {
        router: policy
            .router(shown.context)
            .map_or(String::new(), |router| router.name.clone()),
        protocol: Protocol(shown.protocol),
        forward: flow(&shown.forward, 0),
        reverse: flow(&shown.reverse, 1),
        initiator: if shown.inbound {
            Initiator::Remote
        } else {
            Initiator::Inside
        },
        state: shown.state.unwrap_or(plain).to_lowercase().replace('_', "-"),
        answered: shown.answered,
        expires: shown.seconds_left.into(),
        inside_interface: name(inside),
        outside_interface: name(outside),
        site: site_name(config, shown.context),
        pool: shown.pool.and_then(|pool| pools.get(usize::from(pool))?.clone()),
        application: shown.application.and_then(|pair| {
            let seeking = policy.applications.as_deref()?;
            Some(seeking.names.text(pair))
        }),
        mark: shown.mark,
        shard: shown.shard,
    }
}
