//! What gateways in memory are told: interfaces, routes, translation, a packet filter, and how work is laid on workers.

use std::sync::Arc;

use sluice_dpdk::memory::Region;
use sluice_engine::control::plane::{ControlPlane, NeighbourLimits};
use sluice_engine::packet::time::Now;
use sluice_engine::placement::Part;
use sluice_engine::session::family::Family;
use sluice_engine::snapshot::assist::Assist;
use sluice_engine::snapshot::fragment_limits::FragmentLimits;
use sluice_engine::snapshot::shard_owners::ShardOwners;
use sluice_engine::snapshot::stages::Stages;
use sluice_engine::snapshot::steering::{Steering, SteeringSettings};
use sluice_engine::snapshot::{Interface, Nat, Snapshot, StartParameters, SubscriberCapacity};
use sluice_filter::{Action, CompiledRule, Counters, Field, MatcherKind, Range, Rule, RuleList, Settings, Verdict};
use sluice_inspect::inspector::InspectorCapacity;
use sluice_nat::rule::{Prefix, Rules, SourceAction, SourceRule};
use sluice_nat::{Behaviour, Blocks, Filtering, MappingBehaviour, Pool, Pools, Timeouts};
use sluice_route::{Address, Route, RouteSet, SourceValidation, Via};
use sluice_wire::validity;

use super::frames::{HOST_MAC, INSIDE_MAC, INSIDE6, OUTSIDE_MAC, PUBLIC6, ROUTER_MAC};
use crate::filter::sets::Set;
use crate::rows::Failure;

/// Shards of a gateway.
pub const SHARDS: u32 = 16;

/// Public IPv4 addresses begin here.
const POOL: u32 = 0xc612_0000;

/// What the gateway does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Translation of IPv4 with sessions.
    Translate,
    /// Translation of IPv6 with sessions.
    Translate6,
    /// Forwarding by the routes.
    Forward,
}

fn address(text: &str) -> Result<Address, Failure> {
    Ok(text.parse::<std::net::IpAddr>()?.into())
}

/// The neighbours inside and outside, with their interfaces and MAC addresses.
pub fn neighbours(job: Job) -> Result<[(u16, Address, [u8; 6]); 2], Failure> {
    let [inside, outside] = match job {
        Job::Translate6 => ["2001:db8:4::fe", "2001:db8:5::fe"],
        Job::Translate | Job::Forward => ["192.168.1.254", "192.0.2.254"],
    };
    Ok([(0, address(inside)?, HOST_MAC), (1, address(outside)?, ROUTER_MAC)])
}

/// An interface of a router's own port that does nothing beside forwarding.
pub fn interface(index: u16, mac: [u8; 6], addresses: Vec<(Address, u8)>) -> Interface {
    Interface {
        name: format!("port{index}"),
        port: index,
        tags: Vec::new(),
        mac,
        mtu: 1500,
        link: sluice_route::Interface { index, addresses },
        router: 0,
        context: 0,
        stateful: [false; 2],
        outside: false,
        validation: SourceValidation::Off,
        validity: validity::Policy::default(),
        complete_checksums: true,
        priority: Default::default(),
        neighbours: Default::default(),
        segment_size: None,
        peer: None,
        tunnel: None,
        host: false,
        bridge: None,
        advertise: None,
    }
}

pub fn interfaces(job: Job) -> Result<Vec<Interface>, Failure> {
    let (own, length) = match job {
        Job::Translate6 => (["2001:db8:4::1", "2001:db8:5::1"], 64),
        Job::Translate | Job::Forward => (["192.168.1.1", "192.0.2.1"], 24),
    };
    let each = (0..).zip([INSIDE_MAC, OUTSIDE_MAC]).zip(own);
    let with = each.map(|((index, mac), own)| {
        Ok(Interface {
            stateful: [job == Job::Translate, job == Job::Translate6],
            outside: job != Job::Forward && index == 1,
            ..interface(index, mac, vec![(address(own)?, length)])
        })
    });
    with.collect()
}

/// A route by a gateway.
pub fn route(prefix: Address, length: u8, address: Address) -> Route {
    let via = Via::Gateway {
        address,
        interface: None,
    };
    Route::new(sluice_route::Prefix::new(prefix, length), via)
}

/// A default route outside, and where something is translated one to the inside hosts.
pub fn routes(job: Job) -> Result<Vec<Route>, Failure> {
    let [(_, inside, _), (_, outside, _)] = neighbours(job)?;
    let hosts6 = Address::V6(u128::from(INSIDE6) << 64);
    Ok(match job {
        Job::Forward => vec![route(Address::V4(0), 0, outside)],
        Job::Translate => vec![
            route(Address::V4(0), 0, outside),
            route(Address::V4(0x0a00_0000), 8, inside),
        ],
        Job::Translate6 => vec![route(Address::V6(0), 0, outside), route(hosts6, 64, inside)],
    })
}

/// The routes of a policy's only router.
pub fn route_set(policy: &Snapshot, routes: &[Route]) -> Result<RouteSet, Failure> {
    let links: Vec<_> = policy
        .interfaces
        .iter()
        .map(|interface| interface.link.clone())
        .collect();
    Ok(RouteSet::new(&links, routes)?)
}

/// How the pool translates.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    pub behaviour: Behaviour,
    /// Ports of a block, where they come in blocks.
    pub blocks: Option<u16>,
    /// Flows to different destinations share ports.
    pub overlap: bool,
    /// Outside addresses; none: as many as the sessions need ports.
    pub addresses: Option<u32>,
    /// Rules of a packet filter by session, none of which matches; without one where 0.
    pub filter_rules: u32,
    /// Rules of translation, of which one matches.
    pub rules: u32,
    /// Timeouts are short: sessions are to end.
    pub short: bool,
}

impl Style {
    /// Every session has a port of its own.
    pub const SESSIONS: Self = Self {
        behaviour: Behaviour::ADDRESS_AND_PORT_DEPENDENT,
        blocks: None,
        overlap: false,
        addresses: None,
        filter_rules: 0,
        rules: 1,
        short: false,
    };

    /// Every inside address and port has one, from blocks of 64.
    pub const MAPPINGS: Self = Self {
        behaviour: Behaviour {
            mapping: MappingBehaviour::EndpointIndependent,
            filtering: Filtering::EndpointIndependent,
        },
        blocks: Some(64),
        ..Self::SESSIONS
    };

    /// Ports are shared by flows to different destinations.
    pub const OVERLAP: Self = Self {
        overlap: true,
        ..Self::SESSIONS
    };

    pub fn mapping(&self) -> &'static str {
        match self.behaviour.mapping {
            MappingBehaviour::EndpointIndependent => "endpoint-independent",
            MappingBehaviour::AddressAndPortDependent => "address-and-port-dependent",
        }
    }

    fn nat<F: Family>(
        self,
        inside: Prefix<F::Address>,
        others: &[Prefix<F::Address>],
        (first, last): (F::Address, F::Address),
    ) -> Result<Nat<F>, Failure> {
        let mut timeouts = Timeouts::default();
        if self.short {
            (timeouts.tcp_transitory_open, timeouts.udp) = (120, 120);
        }
        let blocks = |size| Blocks {
            size,
            most: 8,
            spare: true,
        };
        let pool = Pool {
            timeouts,
            behaviour: [self.behaviour; 3],
            overlap: self.overlap,
            blocks: self.blocks.map(blocks),
            ..Pool::new(first, last)
        };
        let pools = Pools::new(&[pool])?;
        let rule = SourceRule {
            outside: Some(1),
            ..SourceRule::of(inside, SourceAction::Pool(0))
        };
        let others = others.iter().map(|&inside| SourceRule { inside, ..rule });
        let rules = Rules::new(&others.chain([rule]).collect::<Vec<_>>(), &[], &pools)?;
        Ok(Nat {
            rules,
            pools,
            ..Nat::default()
        })
    }
}

/// A policy that translates all inside hosts onto as many public addresses as `sessions` sessions need, or forwards.
pub fn policy(job: Job, style: Style, sessions: u32) -> Result<Snapshot, Failure> {
    let mut policy = Snapshot::new(2, interfaces(job)?);
    let addresses = style.addresses.unwrap_or(sessions / 2 / 32_256 + 2);
    match job {
        Job::Forward => {}
        Job::Translate => {
            let inside = Prefix {
                address: 0x0a00_0000,
                length: 8,
            };
            // Networks of others.
            let other = |number: u32| Prefix {
                address: 0xac10_0000 + (number << 8),
                length: 24,
            };
            let others: Vec<_> = (1..style.rules).map(other).collect();
            policy.nat4 = style.nat(inside, &others, (POOL, POOL + addresses - 1))?;
        }
        Job::Translate6 => {
            let inside = Prefix {
                address: [INSIDE6, 0],
                length: 64,
            };
            let public = |number: u32| [PUBLIC6, number.into()];
            policy.nat6 = style.nat(inside, &[], (public(1), public(addresses)))?;
        }
    }
    if style.filter_rules > 0 {
        policy.filter_by(
            filter_rules(style.filter_rules as usize, MatcherKind::Best, true, 1)?
                .filters()
                .clone(),
        );
    }
    Ok(policy)
}

/// A filter of `web-filter`'s rules, asked about every packet or the first of each flow; none of the rules matches.
pub fn filter_rules(rules: usize, kind: MatcherKind, sessions: bool, workers: usize) -> Result<RuleList<()>, Failure> {
    let settings = Settings {
        kind,
        default: Verdict::Accept,
        sessions,
        workers,
    };
    let set = Set::of_paper(rules).rules;
    let counters = Counters::new(set.len());
    let rules = set.into_iter().map(|rule| (dropping(rule), ()));
    Ok(RuleList::new(rules, settings, counters)?)
}

/// A rule that drops what a host sends to a port that no flow has.
pub fn denied(host: u32) -> CompiledRule {
    let source = Range {
        first: host,
        last: host,
    };
    let any = Rule::<u32>::any();
    let rule = any.clone().between(source, any.destination);
    let rule = rule.and_then(|rule| rule.with(Field::DestinationPort, 9, 9));
    dropping(rule.unwrap_or(any))
}

fn dropping(rule: Rule<u32>) -> CompiledRule {
    CompiledRule {
        action: Action::Decide(Verdict::Drop),
        v4: vec![rule],
        v6: Vec::new(),
        applications: Vec::new(),
        conditions: Default::default(),
    }
}

pub struct Layout {
    pub shards: u32,
    pub steering: SteeringSettings,
    pub stages: Stages,
    pub workers: usize,
    /// Sessions that there is space for, by family.
    pub sessions: [u32; 2],
    pub subscribers: u32,
    pub assist: Option<Arc<Assist>>,
    pub inspection: Option<InspectorCapacity>,
    pub now: Now,
}

impl Layout {
    /// One worker with space for so many sessions, of hosts with 48 flows each or with half as many where they come and go.
    pub fn sessions(job: Job, sessions: u32, short: bool) -> Self {
        Self {
            shards: SHARDS,
            steering: SteeringSettings::default(),
            stages: Stages::default(),
            workers: 1,
            sessions: match job {
                Job::Translate => [sessions, SHARDS],
                Job::Translate6 => [SHARDS, sessions],
                Job::Forward => [SHARDS; 2],
            },
            subscribers: sessions / if short { 24 } else { 48 } + 256,
            assist: None,
            inspection: None,
            now: Now::at(0),
        }
    }

    pub fn plane(self, policy: Snapshot, routes: &[RouteSet]) -> Result<ControlPlane, Failure> {
        let steering = Steering::seeded(self.shards, &self.steering, 0x0f1e_2d3c_4b5a_6978).ok_or("shards")?;
        let setup = StartParameters {
            owners: ShardOwners::dealt(steering.shards(), &self.stages.all(Part::Session, self.workers)).into(),
            steering,
            stages: self.stages,
            assist: self.assist,
            sessions: self.sessions,
            ports: policy.untagged.len(),
            secret: [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210],
            fragments: FragmentLimits {
                datagrams: 64,
                ..FragmentLimits::default()
            },
            unsolicited_syns: 0,
            spare_addresses: 0,
            meters: Default::default(),
            applications: None,
            inspection: self.inspection,
            events: Default::default(),
            interfaces: 0,
            subscribers: SubscriberCapacity {
                most: self.subscribers,
                blocks: self.subscribers,
                ..SubscriberCapacity::default()
            },
        };
        let limits = NeighbourLimits::default();
        Ok(ControlPlane::new(
            setup,
            policy,
            routes,
            limits,
            self.workers,
            self.now,
        )?)
    }
}

/// The control side of a gateway of one worker with the usual routes.
pub fn plane(job: Job, style: Style, sessions: u32) -> Result<ControlPlane, Failure> {
    let policy = policy(job, style, sessions)?;
    let routes = route_set(&policy, &routes(job)?)?;
    Layout::sessions(job, sessions, style.short).plane(policy, &[routes])
}

/// Memory for all shards of a gateway.
pub fn memory(plane: &ControlPlane) -> Result<Region, Failure> {
    let shards = plane.start_parameters().owners.len();
    Ok(Region::new(plane.lines().total().next_multiple_of(2) * 64 * shards)?)
}
