//! Converts pools and rules of address translation.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv4Addr;
use std::sync::Arc;

use sluice_config::Config;
use sluice_config::config::{self as configured, DestinationRule, SourceRule};
use sluice_config::schema;
use sluice_config::value::{AddressRange, Transport};
use sluice_engine::session::family::V4;
use sluice_engine::snapshot::Nat;
use sluice_nat::deterministic::Algorithm;
use sluice_nat::rule::{Balance, DestinationAction, FROM_HOST, HostSet, SetHost, SourceAction};
use sluice_nat::{
    Behaviour, Blocks, Deterministic, Filtering, Limits, MappingBehaviour, Pairing, Plan, Pool, PoolIndex, Pools,
    PortSelection, Prefix, Quarantine, Rules, Secret, SubscriberLimits,
};
use sluice_table::token_bucket::TokenRate;
use sluice_wire::Context;
use sluice_wire::ipv4::protocol;

use super::{VALIDATED, timeouts};

/// Pool names by pool index. `None` for a removed pool.
pub type PoolNames = Vec<Option<String>>;

/// Pool names of a configuration. Pools that existed in `before` keep their indexes, because sessions store them. A new
/// pool gets an index that no pool in `before` has.
pub fn pool_names(config: &Config, before: &PoolNames) -> PoolNames {
    let stays = |name: &String| config.pools.iter().any(|pool| pool.name == *name);
    let mut names: PoolNames = before.iter().map(|name| name.clone().filter(&stays)).collect();
    let mut free = before.iter().enumerate().filter(|(_, name)| name.is_none());
    for pool in &config.pools {
        if names.iter().flatten().any(|name| *name == pool.name) {
            continue;
        }
        match free.next() {
            Some((place, _)) => names[place] = Some(pool.name.clone()),
            None => names.push(Some(pool.name.clone())),
        }
    }
    names
}

/// Convert pools and rules. The index of a pool is the position of its name in `names`, because sessions store the
/// index.
pub fn translation(config: &Config, names: &PoolNames) -> Nat<V4> {
    let find = |name: &Option<String>| config.pools.iter().find(|pool| Some(&pool.name) == name.as_ref());
    let pools: Vec<_> = names.iter().map(|name| find(name).map(pool)).collect();
    let pools = Pools::placed(&pools.iter().map(Option::as_ref).collect::<Vec<_>>()).expect(VALIDATED);
    let index = |place: u16| {
        let name = config.pools.get(usize::from(place)).map(|pool| &pool.name);
        let known = names.iter().position(|known| known.as_ref() == name);
        debug_assert!(
            name.is_some() && known.is_some(),
            "pool {place} has a name and an index"
        );
        known.unwrap_or(0) as PoolIndex
    };
    let source: Vec<_> = config.source.iter().map(|rule| source(rule, index)).collect();
    let destination: Vec<_> = config.destination.iter().map(destination).collect();
    let sets = config.host_sets.iter().map(host_set).collect();
    let rules = Rules::new(&source, &destination, &pools)
        .expect(VALIDATED)
        .with_sets(sets);
    Nat {
        rules,
        pools,
        ..Nat::default()
    }
}

/// Convert a pool to the type of the data plane.
pub(crate) fn pool(configured: &configured::Pool) -> Pool<u32> {
    let range = |range: &AddressRange| (range.first().to_bits(), range.last().to_bits());
    Pool {
        context: configured.router.into(),
        addresses: configured.addresses.iter().map(range).collect(),
        ports: configured.ports.first()..=configured.ports.last(),
        reserved: configured
            .reserved
            .iter()
            .map(|range| range.first()..=range.last())
            .collect(),
        pairing: match configured.pairing {
            schema::Pairing::Hard => Pairing::Hard,
            schema::Pairing::Soft => Pairing::Soft,
        },
        timeouts: timeouts(&configured.timeouts),
        behaviour: configured.behaviour.map(behaviour),
        overlap: configured.overlap,
        selection: match configured.selection {
            schema::PortSelection::Random => PortSelection::Random,
            schema::PortSelection::Preserve => PortSelection::Preserve,
        },
        parity: configured.parity,
        blocks: configured.block.map(|block| Blocks {
            size: block.size,
            max: block.maximum,
            spare: block.spare,
        }),
        hold: Quarantine {
            seconds: u32::try_from(configured.hold.as_secs()).unwrap_or(u32::MAX),
            // The number of ports in quarantine is not limited for a single pool. The setting `quarantined-ports`
            // limits their number over all pools.
            max: u32::MAX,
        },
        deterministic: configured.deterministic.as_ref().map(deterministic),
        subscriber: SubscriberLimits {
            ports: configured.subscriber.ports.each(),
            sessions: configured.subscriber.sessions,
            rate: configured.subscriber.new_sessions.map(rate),
        },
        limits: limits(&configured.limits),
        renumber: configured.rewrite_ip_id,
        protocols: configured.protocols.clone(),
    }
}

/// The plan of a pool whose ports are computed.
pub(crate) fn plan(configured: &configured::Pool) -> Option<Plan<u32>> {
    Plan::of(&pool(configured)).map(|plan| plan.expect(VALIDATED))
}

fn behaviour((mapping, filtering): (schema::Mapping, schema::Filtering)) -> Behaviour {
    Behaviour {
        mapping: match mapping {
            schema::Mapping::EndpointIndependent => MappingBehaviour::EndpointIndependent,
            schema::Mapping::AddressAndPortDependent => MappingBehaviour::AddressAndPortDependent,
        },
        filtering: match filtering {
            schema::Filtering::EndpointIndependent => Filtering::EndpointIndependent,
            schema::Filtering::AddressDependent => Filtering::AddressDependent,
            schema::Filtering::AddressAndPortDependent => Filtering::AddressAndPortDependent,
        },
    }
}

fn deterministic(written: &schema::Deterministic) -> Deterministic<u32> {
    debug_assert!(
        written.key.is_some() || written.algorithm != schema::Algorithm::Random,
        "a random algorithm has a key"
    );
    let key = written.key.map_or([0; 2], |key| key.words());
    Deterministic {
        inside: (written.inside.first().to_bits(), written.inside.last().to_bits()),
        compression: written.compression,
        dynamic: written.dynamic,
        max: written.maximum_ports,
        algorithm: match written.algorithm {
            schema::Algorithm::Sequential => Algorithm::Sequential,
            schema::Algorithm::Staggered => Algorithm::Staggered,
            schema::Algorithm::RoundRobin => Algorithm::RoundRobin,
            schema::Algorithm::Interlaced => Algorithm::Interlaced,
            schema::Algorithm::Random => Algorithm::Random(Secret(key)),
        },
    }
}

pub(super) fn limits(written: &schema::SessionLimits) -> Limits {
    Limits {
        sessions: written.sessions,
        rate: written.new_sessions.map(rate),
    }
}

fn rate(written: schema::Rate) -> TokenRate {
    TokenRate::new(written.rate.into(), written.burst.into())
}

/// Context of a rule. Packets that the router's host stack sends have a separate context.
fn context(router: configured::RouterIndex, own: bool) -> Context {
    Context::from(router) | if own { FROM_HOST } else { 0 }
}

fn source(rule: &SourceRule, index: impl Fn(u16) -> PoolIndex) -> sluice_nat::SourceRule<u32> {
    sluice_nat::SourceRule {
        context: context(rule.router, rule.own),
        protocol: rule.protocol.map(number),
        outside: rule.out,
        ..sluice_nat::SourceRule::of(
            prefix(rule.from),
            match rule.action {
                configured::SourceAction::Pool(pool) => SourceAction::Pool(index(pool)),
                configured::SourceAction::Static(outside) => SourceAction::Static(outside.network().to_bits()),
                configured::SourceAction::Exempt => SourceAction::Exempt,
            },
        )
    }
}

fn destination(rule: &DestinationRule) -> sluice_nat::DestinationRule<u32> {
    sluice_nat::DestinationRule {
        context: context(rule.router, rule.own),
        protocol: rule.protocol.map(number),
        ports: rule.ports.map(|ports| (ports.first(), ports.last())),
        inbound: rule.incoming,
        ..sluice_nat::DestinationRule::of(
            prefix(rule.address),
            match rule.action {
                configured::DestinationAction::Host(to, port) => DestinationAction::Host(to.to_bits(), port),
                configured::DestinationAction::Hosts(set, port) => DestinationAction::Hosts(set, port),
                configured::DestinationAction::Static(inside) => DestinationAction::Static(inside.network().to_bits()),
                configured::DestinationAction::Exempt => DestinationAction::Exempt,
            },
        )
    }
}

fn host_set(set: &configured::HostSet) -> HostSet<u32> {
    let mut check = DefaultHasher::new();
    (set.router, &set.health).hash(&mut check);
    let host = |&(host, weight): &(Ipv4Addr, u16)| SetHost {
        address: host.to_bits(),
        weight,
        state: Arc::default(),
    };
    HostSet {
        check: check.finish(),
        balance: match set.balance {
            schema::Balance::Random => Balance::Random,
            schema::Balance::Source => Balance::Source,
        },
        hosts: set.hosts.iter().map(host).collect(),
    }
}

/// Whether the rules require all flows of a client to be in the same shard. All flows must be in one shard if a rule
/// applies to packets of the host stack. A destination rule to the router's own host stack or to a set of hosts also
/// requires one shard.
pub fn keeps_clients(config: &Config) -> bool {
    let is_own = |rule: &DestinationRule, address: Ipv4Addr| {
        let mut of_router = config
            .interfaces
            .iter()
            .filter(|interface| interface.router == rule.router);
        of_router.any(|interface| interface.addresses.iter().any(|own| own.address() == address))
    };
    let mut rules = config.destination.iter();
    config.source.iter().any(|rule| rule.own)
        || rules.any(|rule| {
            rule.own
                || match rule.action {
                    configured::DestinationAction::Hosts(..) => true,
                    configured::DestinationAction::Host(host, _) => rule.incoming.is_some() || is_own(rule, host),
                    configured::DestinationAction::Static(_) | configured::DestinationAction::Exempt => false,
                }
        })
}

fn prefix(net: ipnet::Ipv4Net) -> Prefix<u32> {
    Prefix {
        address: net.network().to_bits(),
        length: net.prefix_len(),
    }
}

fn number(transport: Transport) -> u8 {
    match transport {
        Transport::Tcp => protocol::TCP,
        Transport::Udp => protocol::UDP,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_config::memory::EntryBytes;
    use sluice_config::{Machine, check};

    fn config(pools: &[&str]) -> Config {
        let mut text = String::from("[interfaces.a]\ndevice = \"null:\"\n");
        for (last, name) in pools.iter().enumerate() {
            text += &format!("[nat.pools.{name}]\naddresses = [\"198.51.100.{last}\"]\n");
            text += &format!("[[nat.source]]\nfrom = \"10.{last}.0.0/16\"\npool = \"{name}\"\n");
        }
        read(&text)
    }

    fn read(text: &str) -> Config {
        let machine = Machine {
            cores: vec![0, 1],
            memory: 1 << 40,
            entry: EntryBytes::default(),
        };
        let checked = check("test", text, &machine).unwrap_or_else(|wrong| panic!("{wrong}"));
        checked.config.into_inner()
    }

    #[test]
    fn pool_names_keep_their_places_and_a_new_one_gets_a_place_long_free() {
        let name = |name: &str| Some(name.to_owned());
        let first = pool_names(&config(&["a", "b", "c"]), &Vec::new());
        assert_eq!(vec![name("a"), name("b"), name("c")], first);
        // Sessions may still store the index of pool `b`, so the index is not reused.
        let second = pool_names(&config(&["d", "c", "a"]), &first);
        assert_eq!(vec![name("a"), None, name("c"), name("d")], second);
        let third = pool_names(&config(&["e", "c", "d"]), &second);
        assert_eq!(vec![None, name("e"), name("c"), name("d")], third);
        let nat = translation(&config(&["e", "c", "d"]), &third);
        assert_eq!(0, nat.pools.get(0).unwrap().addresses());
        assert_eq!(Some(2), nat.pools.owner(0, 0xc633_6401));
    }

    #[test]
    fn pool_of_the_configuration_lends_as_it_says() {
        let text = r#"
[interfaces.a]
device = "null:"
[nat.pools.a]
addresses = ["198.51.100.16/28"]
ports = ["1024-4999", "5100-65535"]
reserved-ports = ["5000-6000", 9999]
pairing = "soft"
mapping = { tcp = "address-and-port-dependent" }
filtering = { udp = "address-dependent" }
overlap = true
parity = true
rewrite-ip-id = false
protocols = ["gre", "200"]
quarantine = "30s"
deterministic = { inside = "10.0.0.0/24", compression = 16, dynamic = 0, algorithm = "random", maximum-ports = 5000, key = "000000000000000a000000000000000b" }
subscriber = { ports = { udp = 100 }, sessions = 300, new-sessions = { rate = 5, burst = 7 } }
limits = { sessions = 9000 }
[nat.pools.b]
addresses = ["198.51.100.32/28"]
port-selection = "preserve"
[nat.pools.c]
addresses = ["198.51.100.48/28"]
block = { size = 256, maximum = 3, spare = false }
"#;
        let pools: Vec<_> = read(text).pools.iter().map(pool).collect();
        let plain = |first: u32, last: u32| Pool {
            hold: Quarantine {
                seconds: 120,
                max: u32::MAX,
            },
            ..Pool::new(0xc633_6400 + first, 0xc633_6400 + last)
        };
        let expected = Pool {
            ports: 1024..=u16::MAX,
            reserved: vec![5000..=6000, 9999..=9999],
            pairing: Pairing::Soft,
            behaviour: [
                Behaviour::ADDRESS_AND_PORT_DEPENDENT,
                Behaviour {
                    filtering: Filtering::AddressDependent,
                    ..Behaviour::default()
                },
                Behaviour::default(),
            ],
            overlap: true,
            parity: true,
            renumber: false,
            protocols: vec![47, 200],
            hold: Quarantine {
                seconds: 30,
                max: u32::MAX,
            },
            deterministic: Some(Deterministic {
                inside: (0x0a00_0000, 0x0a00_00ff),
                compression: 16,
                dynamic: 0,
                max: Some(5000),
                algorithm: Algorithm::Random(Secret([10, 11])),
            }),
            subscriber: SubscriberLimits {
                ports: [None, Some(100), None],
                sessions: Some(300),
                rate: Some(TokenRate::new(5, 7)),
            },
            limits: Limits {
                sessions: Some(9000),
                rate: None,
            },
            ..plain(16, 31)
        };
        assert_eq!(expected, pools[0]);
        let expected = Pool {
            selection: PortSelection::Preserve,
            ..plain(32, 47)
        };
        assert_eq!(expected, pools[1]);
        let blocks = Blocks {
            size: 256,
            max: 3,
            spare: false,
        };
        let expected = Pool {
            blocks: Some(blocks),
            ..plain(48, 63)
        };
        assert_eq!(expected, pools[2]);
    }
}
