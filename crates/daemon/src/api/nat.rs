//! Lists of NAT state: port blocks, mappings, subscribers and the port shares of deterministic pools.

use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};
use sluice_config::api::{
    Endpoint, EndpointFilter, Mapping, MappingFilter, NetFilter, Page, PortBlock, Position, Span, Subscriber,
    SubscriberFilter, operation,
};
use sluice_config::value::Protocol;
use sluice_engine::worker::request::{
    BindingFilter, BindingList, BlockInfo, Cursor, Filter, MappingInfo, Reply, Request, SubscriberInfo,
};
use sluice_nat::{PoolIndex, PortClass};

use super::sessions::{self, endpoint, read_cursor};
use super::{Refusal, Serve, ServePages};
use crate::control::Control;
use crate::lowering::PoolNames;
use crate::shares::Shares;

/// Default, minimum and maximum number of entries per page. The blocks of a subscriber are never split between pages.
const PAGE: (usize, usize, usize) = (1_024, 1_024, 8_192);

/// Default and maximum number of shares per page.
const SHARES: (u32, u32) = (256, 4_096);

/// Index of the pool with a name.
pub(super) fn pool(control: &Control, name: &str) -> Result<PoolIndex, Refusal> {
    let names = control.pools();
    let place = names.iter().position(|known| known.as_deref() == Some(name));
    place
        .map(|place| place as PoolIndex)
        .ok_or_else(|| Refusal::Wrong(format!("there is no pool `{name}`: `sluice show nat` lists the pools")))
}

fn name(names: &PoolNames, pool: PoolIndex) -> String {
    names.get(usize::from(pool)).cloned().flatten().unwrap_or_default()
}

/// Subscriber network that contains the given network, or the given network if it is larger.
pub(super) fn subscriber_net(control: &Control, net: IpNet) -> IpNet {
    let length = control.config().document.nat.subscriber_prefix;
    match net {
        IpNet::V4(net) if net.prefix_len() > length => {
            Ipv4Net::new(net.addr(), length).map_or(net, |net| net.trunc()).into()
        }
        net => net,
    }
}

fn class(protocol: Protocol) -> Option<PortClass> {
    PortClass::of(protocol.0, 32)
}

fn protocol(class: PortClass) -> Protocol {
    Protocol(match class {
        PortClass::Tcp => 6,
        PortClass::Udp => 17,
        PortClass::Query => 1,
    })
}

/// Filter for the requests to workers. `None` if nothing can match the filter.
fn wanted(control: &Control, filter: &MappingFilter, of_subscribers: bool) -> Result<Option<BindingFilter>, Refusal> {
    let inside = filter.inside.map(|inside| EndpointFilter {
        net: inside.net.map(|net| match of_subscribers {
            true => subscriber_net(control, net),
            false => net,
        }),
        ..inside
    });
    let pool = filter.pool.as_deref().map(|name| pool(control, name)).transpose()?;
    let wanted = BindingFilter {
        inside: inside.map(endpoint),
        outside: filter.outside.map(endpoint),
        class: filter.protocol.and_then(class),
        pool,
    };
    Ok((filter.protocol.is_none() || wanted.class.is_some()).then_some(wanted))
}

/// A page of the workers' bindings, and the cursor of the next page.
async fn page(
    control: &Control,
    filter: BindingFilter,
    position: &Position,
    memory: fn(usize) -> BindingList,
) -> Result<(BindingList, Option<String>), Refusal> {
    let (mut worker, mut cursor) = match &position.cursor {
        None => (0, Cursor::default()),
        Some(text) => read_cursor(text)?,
    };
    let limit = position
        .limit
        .map_or(PAGE.0, |limit| limit as usize)
        .clamp(PAGE.1, PAGE.2);
    while worker < control.workers() {
        let into = memory(limit);
        let reply = control
            .ask(worker, Request::ListBindings { cursor, filter, into })
            .await?;
        let Reply::ListedBindings { next, into } = reply else {
            break;
        };
        let next = match next {
            Some(cursor) => Some((worker, cursor)),
            None => Some((worker + 1, Cursor::default())).filter(|(worker, _)| *worker < control.workers()),
        };
        if !into.is_empty() || next.is_none() {
            return Ok((into, next.map(|(worker, cursor)| format!("{worker}-{}", cursor.pack()))));
        }
        let Some(place) = next else { break };
        (worker, cursor) = place;
    }
    Ok((memory(0), None))
}

impl ServePages for operation::Mappings {
    async fn serve(control: Arc<Control>, filter: MappingFilter, position: Position) -> Result<Self::Answer, Refusal> {
        let Some(wanted) = wanted(&control, &filter, false)? else {
            return Ok(Page::whole(Vec::new()));
        };
        let memory = |limit| BindingList::Mappings(Vec::with_capacity(limit));
        let (BindingList::Mappings(found), next) = page(&control, wanted, &position, memory).await? else {
            return Ok(Page::whole(Vec::new()));
        };
        let names = control.pools();
        let items = found.iter().map(|shown| mapping(shown, &names)).collect();
        Ok(Page { items, next })
    }
}

fn mapping(shown: &MappingInfo, names: &PoolNames) -> Mapping {
    let endpoint = |(address, port)| Endpoint { address, port };
    Mapping {
        protocol: protocol(shown.class),
        inside: endpoint(shown.inside),
        outside: endpoint(shown.outside),
        pool: name(names, shown.pool),
        sessions: shown.sessions,
        shard: shown.shard,
    }
}

impl ServePages for operation::PortBlocks {
    async fn serve(control: Arc<Control>, filter: MappingFilter, position: Position) -> Result<Self::Answer, Refusal> {
        let Some(wanted) = wanted(&control, &filter, true)? else {
            return Ok(Page::whole(Vec::new()));
        };
        let memory = |limit| BindingList::Blocks(Vec::with_capacity(limit));
        let (BindingList::Blocks(found), next) = page(&control, wanted, &position, memory).await? else {
            return Ok(Page::whole(Vec::new()));
        };
        let names = control.pools();
        let items = found.iter().map(|shown| port_block(shown, &names)).collect();
        Ok(Page { items, next })
    }
}

fn port_block(shown: &BlockInfo, names: &PoolNames) -> PortBlock {
    PortBlock {
        pool: name(names, shown.pool),
        subscriber: shown.subscriber,
        span: Span {
            address: shown.address,
            first: shown.first,
            last: shown.last,
            step: 1,
        },
        used: shown.used.into(),
        shard: shown.shard,
    }
}

impl ServePages for operation::Subscribers {
    async fn serve(
        control: Arc<Control>,
        filter: SubscriberFilter,
        position: Position,
    ) -> Result<Self::Answer, Refusal> {
        let net = |NetFilter(net): NetFilter| EndpointFilter {
            net: Some(net),
            port: None,
        };
        let filter = MappingFilter {
            inside: filter.inside.map(net),
            outside: filter.outside.map(net),
            pool: filter.pool,
            protocol: None,
        };
        let wanted = wanted(&control, &filter, true)?.unwrap_or_default();
        let (found, next) = some_subscribers(&control, wanted, &position).await?;
        let names = control.pools();
        let items = found.iter().map(|shown| subscriber(shown, &names)).collect();
        Ok(Page { items, next })
    }
}

pub(super) async fn some_subscribers(
    control: &Control,
    wanted: BindingFilter,
    position: &Position,
) -> Result<(Vec<SubscriberInfo>, Option<String>), Refusal> {
    let memory = |limit| BindingList::Subscribers(Vec::with_capacity(limit));
    match page(control, wanted, position, memory).await? {
        (BindingList::Subscribers(found), next) => Ok((found, next)),
        _ => Ok((Vec::new(), None)),
    }
}

pub(super) fn subscriber(shown: &SubscriberInfo, names: &PoolNames) -> Subscriber {
    Subscriber {
        address: shown.address,
        paired: shown.paired,
        pool: name(names, shown.pool),
        sessions: shown.sessions,
        ports: shown.ports.into(),
        blocks: shown.blocks,
        shard: shown.shard,
    }
}

impl Serve for operation::ClearMappings {
    // A mapping is removed when its last session ends, so mappings are cleared by ending their sessions.
    async fn serve(control: Arc<Control>, filter: MappingFilter) -> Result<Self::Answer, Refusal> {
        let pool = filter.pool.as_deref().map(|name| pool(&control, name)).transpose()?;
        let sessions = Filter {
            inside: filter.inside.map(endpoint),
            outside: filter.outside.map(endpoint),
            protocol: filter.protocol.map(|protocol| protocol.0),
            pool,
            translated: true,
            ..Filter::default()
        };
        sessions::clear_all(&control, sessions).await
    }
}

impl ServePages for operation::Shares {
    async fn serve(control: Arc<Control>, filter: MappingFilter, position: Position) -> Result<Self::Answer, Refusal> {
        if let Some(name) = &filter.pool {
            pool(&control, name)?;
        }
        let cursor = match &position.cursor {
            None => 0,
            Some(text) => text
                .parse()
                .map_err(|_| Refusal::Wrong(format!("`{text}` is not a valid cursor of a list")))?,
        };
        let limit = position.limit.unwrap_or(SHARES.0).clamp(1, SHARES.1) as usize;
        let (items, next) = Shares::of(&control.config()).list(&filter, cursor, limit);
        Ok(Page {
            items,
            next: next.map(|cursor| cursor.to_string()),
        })
    }
}
