//! Configuration of in-memory gateways: interfaces, routes, translation, packet filter, and distribution over workers.

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

/// Number of shards of a gateway.
pub const SHARDS: u32 = 16;

/// First public IPv4 address.
const POOL: u32 = 0xc612_0000;

/// What the gateway does with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Stateful translation of IPv4.
    Translate,
    /// Stateful translation of IPv6.
    Translate6,
    /// Forwarding by routes.
    Forward,
}

fn address(text: &str) -> Result<Address, Failure> {
    Ok(text.parse::<std::net::IpAddr>()?.into())
}

/// The inside and the outside neighbour, each with its interface and MAC address.
pub fn neighbours(job: Job) -> Result<[(u16, Address, [u8; 6]); 2], Failure> {
    let [inside, outside] = match job {
        Job::Translate6 => ["2001:db8:4::fe", "2001:db8:5::fe"],
        Job::Translate | Job::Forward => ["192.168.1.254", "192.0.2.254"],
    };
    Ok([(0, address(inside)?, HOST_MAC), (1, address(outside)?, ROUTER_MAC)])
}

/// An interface on a separate port, with no features except forwarding.
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

/// A route whose next hop is `address`.
pub fn route(prefix: Address, length: u8, address: Address) -> Route {
    let via = Via::Gateway {
        address,
        interface: None,
    };
    Route::new(sluice_route::Prefix::new(prefix, length), via)
}

/// A default route on the outside, and, for translation, a route to the inside hosts.
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

/// Route set with the given routes for the only router of a snapshot.
pub fn route_set(policy: &Snapshot, routes: &[Route]) -> Result<RouteSet, Failure> {
    let links: Vec<_> = policy
        .interfaces
        .iter()
        .map(|interface| interface.link.clone())
        .collect();
    Ok(RouteSet::new(&links, routes)?)
}

/// Settings of the NAT pool.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    pub behaviour: Behaviour,
    /// Number of ports per block, if ports are allocated in blocks.
    pub blocks: Option<u16>,
    /// Whether flows to different destinations may use the same port.
    pub overlap: bool,
    /// Number of public addresses; `None`: as many as the sessions need.
    pub addresses: Option<u32>,
    /// Number of rules of a session-based packet filter, none of which matches; 0 for no filter.
    pub filter_rules: u32,
    /// Number of translation rules, one of which matches.
    pub rules: u32,
    /// Whether timeouts are short, so that sessions end during a run.
    pub short: bool,
}

impl Style {
    /// Every session has its own public port.
    pub const SESSIONS: Self = Self {
        behaviour: Behaviour::ADDRESS_AND_PORT_DEPENDENT,
        blocks: None,
        overlap: false,
        addresses: None,
        filter_rules: 0,
        rules: 1,
        short: false,
    };

    /// Every inside address and port has one public port, from blocks of 64 ports.
    pub const MAPPINGS: Self = Self {
        behaviour: Behaviour {
            mapping: MappingBehaviour::EndpointIndependent,
            filtering: Filtering::EndpointIndependent,
        },
        blocks: Some(64),
        ..Self::SESSIONS
    };

    /// Flows to different destinations may use the same public port.
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
            max: 8,
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

/// Creates a snapshot that translates all inside hosts to as many public addresses as `sessions` sessions need, or that
/// only forwards.
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
            // Networks that contain no host of the traffic.
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

/// A filter with the rules of `web-filter`, applied to every packet or only to the first packet of each flow; no rule
/// matches the traffic.
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

/// A rule that drops packets from a host to a port that no flow uses.
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
    /// Capacity of the session tables: IPv4 and IPv6.
    pub sessions: [u32; 2],
    pub subscribers: u32,
    pub assist: Option<Arc<Assist>>,
    pub inspection: Option<InspectorCapacity>,
    pub now: Now,
}

impl Layout {
    /// Capacity of one worker for `sessions` sessions, with 48 flows per host, or 24 if sessions are short-lived.
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
            owners: ShardOwners::distribute(steering.shards(), &self.stages.all(Part::Session, self.workers)).into(),
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
                max: self.subscribers,
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

/// Control plane of a gateway with one worker and the default routes.
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
