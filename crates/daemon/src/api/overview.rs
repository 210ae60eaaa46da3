//! `GET /v1/nat`: utilisation of pools and tables, and the subscribers with the most ports.

use std::net::Ipv4Addr;
use std::sync::Arc;

use sluice_config::api::{
    ByProtocol, HostState, Nat, NatRequest, Pool, PoolBlocks, Position, Rule, RuleAction, RuleHost, RuleKind,
    Subscriber, TableUse, operation,
};
use sluice_config::value::Protocol;
use sluice_engine::worker::request::{BindingFilter, BindingUsage, Reply, Request, SubscriberInfo};
use sluice_nat::pool::ValidPool;
use sluice_nat::rule::{
    DestinationAction, DestinationRule, FROM_HOST, HostSet, Rules, SetHost, SourceAction, SourceRule,
};

use super::nat::{some_subscribers, subscriber};
use super::{Refusal, Serve};
use crate::control::Control;
use crate::lowering::PoolNames;

/// Maximum number of subscribers listed.
const TOP: usize = 1_000;

/// Number of subscribers per page.
const PAGE: u32 = 8_192;

/// Sums over all subscribers of a pool.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    subscribers: u64,
    sessions: u64,
    blocks: u64,
    ports: [u64; 3],
}

impl Serve for operation::Nat {
    async fn serve(control: Arc<Control>, request: NatRequest) -> Result<Self::Answer, Refusal> {
        let names = control.pools();
        let allocated_ports = allocated(&control, names.len()).await?;
        let (sums, most) = subscribers(&control, &names, (request.top as usize).min(TOP)).await?;
        let plane = control.plane();
        let valid = &plane.snapshot().nat4.pools;
        let pools = (0..).zip(&names).filter_map(|(index, name)| {
            let place = usize::from(index);
            let sum = sums.get(place).copied().unwrap_or_default();
            let allocated_ports = allocated_ports.ports.get(place).copied().unwrap_or_default();
            Some(pool(name.clone()?, valid.get(index)?, &sum, allocated_ports))
        });
        let table = |name: &str, [used, most]: [u64; 2]| TableUse {
            name: name.into(),
            used,
            capacity: most,
        };
        let held = u64::from(plane.start_parameters().subscribers.held);
        Ok(Nat {
            pools: pools.collect(),
            subscribers: most,
            tables: vec![
                table("mappings", allocated_ports.mappings),
                table("subscribers", allocated_ports.subscribers),
                table("port blocks", allocated_ports.blocks),
                table("quarantined ports", [allocated_ports.held, held]),
            ],
            quarantine_overflows: allocated_ports.unquarantined,
            borrowed_blocks: valid.borrowed_blocks().into(),
            hosts: hosts(&control, &plane.snapshot().nat4.rules),
            rules: rules(&control, &plane.snapshot().nat4.rules, &names, request.rules as usize),
            rules_in_all: plane.snapshot().nat4.rules.len() as u64,
        })
    }
}

/// Hosts over which destination rules balance flows, for each host set.
fn hosts(control: &Control, rules: &Rules<u32>) -> Vec<RuleHost> {
    let config = control.config();
    let checked = |set: usize| config.host_sets.get(set).is_some_and(|set| set.health.is_some());
    let of_set = |(number, set): (usize, &HostSet<u32>)| {
        let host = |host: &SetHost<u32>| RuleHost {
            hosts: number as u64 + 1,
            address: Ipv4Addr::from_bits(host.address),
            weight: host.weight,
            state: match (checked(number), host.state.is_up()) {
                (false, _) => HostState::Unchecked,
                (true, true) => HostState::Up,
                (true, false) => HostState::Down,
            },
            flows: host.state.flows(),
        };
        set.hosts.iter().map(host).collect::<Vec<_>>()
    };
    rules.sets().iter().enumerate().flat_map(of_set).collect()
}

/// Returns the first `most` rules, with destination rules before source rules.
fn rules(control: &Control, rules: &Rules<u32>, names: &PoolNames, most: usize) -> Vec<Rule> {
    let config = control.config();
    let out = |index: u16| Some(config.interfaces.get(usize::from(index))?.name.clone());
    let destinations = rules.destinations(most);
    let sources = rules.sources(most - destinations.len());
    let destinations = destinations
        .into_iter()
        .map(|(_, rule, flows)| destination(&rule, flows, &out));
    let sources = sources
        .into_iter()
        .map(|(_, rule, flows)| source(&rule, flows, &out, names));
    destinations.chain(sources).collect()
}

fn destination(rule: &DestinationRule<u32>, flows: u64, name: &dyn Fn(u16) -> Option<String>) -> Rule {
    let length = rule.external.length;
    let (action, to) = match rule.action {
        DestinationAction::Host(host, None) => (RuleAction::Host, Some(Ipv4Addr::from_bits(host).to_string())),
        DestinationAction::Host(host, Some(port)) => {
            (RuleAction::Host, Some(format!("{}:{port}", Ipv4Addr::from_bits(host))))
        }
        DestinationAction::Hosts(set, port) => {
            let port = port.map_or(String::new(), |port| format!(":{port}"));
            (RuleAction::Hosts, Some(format!("{}{port}", set + 1)))
        }
        DestinationAction::Static(inside) => (RuleAction::Static, Some(net(inside, length))),
        DestinationAction::Exempt => (RuleAction::Exempt, None),
    };
    let ports = |(first, last): (u16, u16)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    Rule {
        kind: RuleKind::Destination,
        network: net(rule.external.address, length),
        protocol: rule.protocol.map(Protocol),
        ports: rule.ports.map(ports),
        incoming: rule.inbound.and_then(name),
        local: rule.context & FROM_HOST != 0,
        out: None,
        action,
        to,
        flows,
    }
}

fn source(rule: &SourceRule<u32>, flows: u64, out: &dyn Fn(u16) -> Option<String>, names: &PoolNames) -> Rule {
    let length = rule.inside.length;
    let (action, to) = match rule.action {
        SourceAction::Pool(pool) => (RuleAction::Pool, names.get(usize::from(pool)).cloned().flatten()),
        SourceAction::Static(outside) => (RuleAction::Static, Some(net(outside, length))),
        SourceAction::Exempt => (RuleAction::Exempt, None),
    };
    Rule {
        kind: RuleKind::Source,
        network: net(rule.inside.address, length),
        protocol: rule.protocol.map(Protocol),
        ports: rule.port.map(|port| port.to_string()),
        incoming: None,
        local: rule.context & FROM_HOST != 0,
        out: rule.outside.and_then(out),
        action,
        to,
        flows,
    }
}

fn net(address: u32, length: u8) -> String {
    format!("{}/{length}", Ipv4Addr::from_bits(address))
}

/// Numbers of ports in use, summed over all workers.
async fn allocated(control: &Control, pools: usize) -> Result<BindingUsage, Refusal> {
    let mut sum = BindingUsage {
        ports: vec![[0; 3]; pools],
        ..BindingUsage::default()
    };
    for worker in 0..control.workers() {
        if let Reply::Used(added) = control.ask(worker, Request::Use(Box::new(sum.clone()))).await? {
            sum = *added;
        }
    }
    Ok(sum)
}

/// Sums per pool, and the subscribers that use most ports.
async fn subscribers(control: &Control, names: &PoolNames, top: usize) -> Result<(Vec<Sum>, Vec<Subscriber>), Refusal> {
    let used = |shown: &SubscriberInfo| shown.ports.iter().map(|&ports| u64::from(ports)).sum::<u64>();
    let rank = |shown: &SubscriberInfo| std::cmp::Reverse((used(shown), shown.sessions));
    let mut sums = vec![Sum::default(); names.len()];
    let mut most: Vec<SubscriberInfo> = Vec::new();
    let mut position = Position {
        cursor: None,
        limit: Some(PAGE),
    };
    loop {
        let (found, next) = some_subscribers(control, BindingFilter::default(), &position).await?;
        for shown in &found {
            if let Some(sum) = sums.get_mut(usize::from(shown.pool)) {
                sum.subscribers += 1;
                sum.sessions += u64::from(shown.sessions);
                sum.blocks += u64::from(shown.blocks);
                for (sum, &ports) in sum.ports.iter_mut().zip(&shown.ports) {
                    *sum += u64::from(ports);
                }
            }
        }
        most.extend(found);
        most.sort_by_key(rank);
        most.truncate(top);
        position.cursor = next;
        if position.cursor.is_none() {
            return Ok((sums, most.iter().map(|shown| subscriber(shown, names)).collect()));
        }
    }
}

fn pool(name: String, valid: &ValidPool<u32>, sum: &Sum, allocated_ports: [u64; 3]) -> Pool {
    // Deterministic and preserved ports are counted only per subscriber. All other ports are counted in the pool's
    // bitmap.
    let used = [0, 1, 2].map(|class: usize| sum.ports[class].max(allocated_ports[class]));
    let blocks = valid.blocks().map(|blocks| {
        let size = u64::from(blocks.size);
        let (first, last) = valid
            .plan()
            .map_or(Some(valid.ports()), |plan| plan.dynamic())
            .unwrap_or((1, 0));
        let each = (u64::from(last) / size + 1).saturating_sub(u64::from(first) / size);
        let taken = sum.blocks * size;
        PoolBlocks {
            size: blocks.size,
            count: each * u64::from(valid.addresses()),
            used: sum.blocks,
            fragmentation: match taken {
                0 => 0.0,
                _ => 1.0 - (ByProtocol::from(allocated_ports).largest().min(taken) as f64 / taken as f64),
            },
        }
    });
    Pool {
        name,
        addresses: valid.addresses().into(),
        ports: valid.capacity(),
        used: used.into(),
        subscribers: sum.subscribers,
        sessions: sum.sessions,
        blocks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_nat::{Blocks, Pools};

    #[test]
    fn pool_fragmentation_is_what_of_its_blocks_nobody_uses() {
        let mut pool = sluice_nat::Pool::new(1u32, 4);
        pool.blocks = Some(Blocks {
            size: 64,
            ..Blocks::default()
        });
        let pools = Pools::new(&[pool]).unwrap();
        let sum = Sum {
            subscribers: 3,
            sessions: 90,
            blocks: 5,
            ports: [80, 10, 0],
        };
        let shown = super::pool("a".into(), pools.get(0).unwrap(), &sum, [80, 10, 0]);
        let blocks = shown.blocks.unwrap();
        assert_eq!((4 * 64_512, 80, 10), (shown.ports, shown.used.tcp, shown.used.udp));
        assert_eq!((4 * 1008, 5), (blocks.count, blocks.used));
        assert_eq!(0.75, blocks.fragmentation);
    }
}
