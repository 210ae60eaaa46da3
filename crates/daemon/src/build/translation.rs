//! Pools and rules of address translation.

use sluice_config::Config;
use sluice_config::config::{DestinationRule, SourceRule};
use sluice_config::schema;
use sluice_config::value::Transport;
use sluice_engine::family::V4;
use sluice_engine::policy::Nat;
use sluice_nat::{Pairing, Pool, PoolIndex, Pools, Prefix, Rules};
use sluice_wire::ipv4::protocol;

use super::{BuildError, timeouts};

/// The pools' names in the order of the file.
pub fn pool_names(config: &Config) -> Vec<String> {
    config.pools.iter().map(|pool| pool.name.clone()).collect()
}

/// Pools and rules. A pool's index is the place of its name in `names`: sessions keep it.
///
/// # Errors
/// Pools or rules that contradict one another.
pub fn translation(config: &Config, names: &[String]) -> Result<Nat<V4>, BuildError> {
    let ordered = names
        .iter()
        .filter_map(|name| config.pools.iter().find(|pool| pool.name == *name));
    let pools: Vec<_> = ordered.map(pool).collect();
    let pools = Pools::new(&pools)?;
    let index = |place: u16| {
        let name = config.pools.get(usize::from(place)).map(|pool| &pool.name);
        names.iter().position(|known| Some(known) == name).unwrap_or(0) as PoolIndex
    };
    let source: Vec<_> = config
        .source
        .iter()
        .map(|rule| source(rule, index(rule.pool)))
        .collect();
    let destination: Vec<_> = config.destination.iter().map(destination).collect();
    let rules = Rules::new(&source, &destination, &pools)?;
    Ok(Nat { rules, pools })
}

fn pool(configured: &sluice_config::config::Pool) -> Pool<u32> {
    let range = |range: &sluice_config::value::AddressRange| (range.first().to_bits(), range.last().to_bits());
    Pool {
        addresses: configured.addresses.iter().map(range).collect(),
        ports: configured.ports.first()..=configured.ports.last(),
        pairing: match configured.pairing {
            schema::Pairing::Hard => Pairing::Hard,
            schema::Pairing::Soft => Pairing::Soft,
        },
        timeouts: timeouts(&configured.timeouts),
    }
}

fn source(rule: &SourceRule, pool: PoolIndex) -> sluice_nat::SourceRule<u32> {
    sluice_nat::SourceRule {
        context: 0,
        inside: Prefix {
            address: rule.from.network().to_bits(),
            length: rule.from.prefix_len(),
        },
        outside: rule.out,
        pool,
    }
}

fn destination(rule: &DestinationRule) -> sluice_nat::DestinationRule<u32> {
    sluice_nat::DestinationRule {
        context: 0,
        protocol: Some(match rule.protocol {
            Transport::Tcp => protocol::TCP,
            Transport::Udp => protocol::UDP,
        }),
        external: rule.address.to_bits(),
        ports: Some((rule.ports.first(), rule.ports.last())),
        target: rule.to.to_bits(),
        target_port: Some(rule.to_ports.first()),
    }
}
