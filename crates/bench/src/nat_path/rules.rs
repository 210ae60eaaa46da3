//! What the gateways of this bench are told: interfaces, routes, and translation.

use sluice_engine::snapshot::{Interface, Nat, Snapshot};
use sluice_filter::{Action, Counters, Field, Kind, Range, Rule, RuleList, Settings, Verdict, Written};
use sluice_nat::rule::{Prefix, Rules, SourceAction, SourceRule};
use sluice_nat::{Behaviour, Blocks, Filtering, MappingBehaviour, Pool, Pools, Timeouts};
use sluice_route::{Address, Route, SourceValidation, Via};
use sluice_wire::validity;

use super::flows::{INSIDE_MAC, OUTSIDE_MAC};
use super::rig::Job;
use super::{Failure, six};
use crate::filter::sets::Set;

/// Public IPv4 addresses begin here.
const POOL: u32 = 0xc612_0000;

/// The gateway's addresses and its neighbours', inside and outside.
struct Sides {
    own: [&'static str; 2],
    neighbours: [&'static str; 2],
    length: u8,
}

fn sides(job: Job) -> Sides {
    match job {
        Job::Translate6 => Sides {
            own: ["2001:db8:4::1", "2001:db8:5::1"],
            neighbours: ["2001:db8:4::fe", "2001:db8:5::fe"],
            length: 64,
        },
        Job::Translate | Job::Forward => Sides {
            own: ["192.168.1.1", "192.0.2.1"],
            neighbours: ["192.168.1.254", "192.0.2.254"],
            length: 24,
        },
    }
}

fn address(text: &str) -> Result<Address, Failure> {
    Ok(text.parse::<std::net::IpAddr>()?.into())
}

/// The neighbours inside and outside.
pub fn neighbours(job: Job) -> Result<[Address; 2], Failure> {
    let [inside, outside] = sides(job).neighbours;
    Ok([address(inside)?, address(outside)?])
}

/// The interfaces inside and outside.
pub fn interfaces(job: Job) -> Result<Vec<Interface>, Failure> {
    let Sides { own, length, .. } = sides(job);
    let mut interfaces = Vec::new();
    for ((index, mac), own) in (0..).zip([INSIDE_MAC, OUTSIDE_MAC]).zip(own) {
        interfaces.push(Interface {
            name: format!("port{index}"),
            port: index,
            tags: Vec::new(),
            mac,
            mtu: 1500,
            link: sluice_route::Interface {
                index,
                addresses: vec![(address(own)?, length)],
            },
            router: 0,
            context: 0,
            stateful: [job == Job::Translate, job == Job::Translate6],
            outside: job != Job::Forward && index == 1,
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
        });
    }
    Ok(interfaces)
}

/// A default route outside, and where something is translated one to the inside hosts.
pub fn routes(job: Job) -> Result<Vec<Route>, Failure> {
    let [inside, outside] = neighbours(job)?;
    let route = |prefix: Address, length, address| {
        let via = Via::Gateway {
            address,
            interface: None,
        };
        Route::new(sluice_route::Prefix::new(prefix, length), via)
    };
    let hosts = |half: u64| Address::V6(u128::from(half) << 64);
    Ok(match job {
        Job::Forward => vec![route(Address::V4(0), 0, outside)],
        Job::Translate => vec![
            route(Address::V4(0), 0, outside),
            route(Address::V4(0x0a00_0000), 8, inside),
        ],
        Job::Translate6 => vec![route(Address::V6(0), 0, outside), route(hosts(six::INSIDE), 64, inside)],
    })
}

/// How the pool translates.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Mapping and filtering.
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
    };

    /// Every inside address and port has one, from blocks of 64.
    pub const MAPPINGS: Self = Self {
        behaviour: Behaviour {
            mapping: MappingBehaviour::EndpointIndependent,
            filtering: Filtering::EndpointIndependent,
        },
        blocks: Some(64),
        overlap: false,
        addresses: None,
        filter_rules: 0,
        rules: 1,
    };

    /// Ports are shared by flows to different destinations.
    pub const OVERLAP: Self = Self {
        overlap: true,
        ..Self::SESSIONS
    };

    /// The mapping's name in rows.
    pub fn mapping(&self) -> &'static str {
        match self.behaviour.mapping {
            MappingBehaviour::EndpointIndependent => "endpoint-independent",
            MappingBehaviour::AddressAndPortDependent => "address-and-port-dependent",
        }
    }
}

fn nat<F: sluice_engine::session::family::Family>(
    inside: Prefix<F::Address>,
    others: &[Prefix<F::Address>],
    (first, last): (F::Address, F::Address),
    style: Style,
    timeouts: Timeouts,
) -> Result<Nat<F>, Failure> {
    let pool = Pool {
        timeouts,
        behaviour: [style.behaviour; 3],
        overlap: style.overlap,
        blocks: style.blocks.map(|size| Blocks {
            size,
            most: 8,
            spare: true,
        }),
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

/// A filter of `web-filter`'s rules, asked about the first packets of flows; what none of them matches passes.
pub fn filter_rules(rules: u32) -> Result<RuleList<()>, Failure> {
    let settings = Settings {
        kind: Kind::Best,
        default: Verdict::Accept,
        sessions: true,
        workers: 1,
    };
    let set = Set::of_paper(rules as usize).rules;
    let counters = Counters::new(set.len());
    let rules = set.into_iter().map(|rule| (dropping(rule), ()));
    Ok(RuleList::new(rules, settings, counters)?)
}

/// A rule that shuts out what a host asks of a port that nobody has.
pub fn denied(host: u32) -> Written {
    let source = Range {
        first: host,
        last: host,
    };
    let any = Rule::<u32>::any();
    let rule = any.clone().between(source, any.destination);
    let rule = rule.and_then(|rule| rule.with(Field::DestinationPort, 9, 9));
    dropping(rule.unwrap_or(any))
}

fn dropping(rule: Rule<u32>) -> Written {
    Written {
        action: Action::Decide(Verdict::Drop),
        four: vec![rule],
        six: Vec::new(),
        applications: Vec::new(),
        conditions: Default::default(),
    }
}

/// Ask that filter about the first packets of flows.
pub fn filter(policy: &mut Snapshot, rules: u32) -> Result<(), Failure> {
    policy.filter_by(filter_rules(rules)?.filters().clone());
    Ok(())
}

/// Translation of all inside hosts onto as many public addresses as `sessions` sessions need; short timeouts where
/// sessions shall end.
pub fn translate(policy: &mut Snapshot, job: Job, style: Style, sessions: u32, short: bool) -> Result<(), Failure> {
    let addresses = match style.addresses {
        Some(addresses) => addresses,
        None => sessions / 2 / 32_256 + 2,
    };
    let timeouts = match short {
        true => Timeouts {
            tcp_transitory_open: 120,
            udp: 120,
            ..Timeouts::default()
        },
        false => Timeouts::default(),
    };
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
            policy.nat4 = nat(inside, &others, (POOL, POOL + addresses - 1), style, timeouts)?;
        }
        Job::Translate6 => {
            let inside = Prefix {
                address: [six::INSIDE, 0],
                length: 64,
            };
            let public = |number: u32| [six::PUBLIC, number.into()];
            policy.nat6 = nat(inside, &[], (public(1), public(addresses)), style, timeouts)?;
        }
    }
    Ok(())
}
