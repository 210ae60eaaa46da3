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

/// Names of pools at the places of their indexes; none where a pool was removed.
pub type PoolNames = Vec<Option<String>>;

/// The names of a configuration's pools: those of the configuration `before` keep their indexes, which sessions hold,
/// and a new one gets a place that was free before.
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

/// Pools and rules. A pool's index is the place of its name in `names`: sessions hold it.
///
/// # Errors
/// Pools or rules that contradict one another.
pub fn translation(config: &Config, names: &PoolNames) -> Result<Nat<V4>, BuildError> {
    let find = |name: &Option<String>| config.pools.iter().find(|pool| Some(&pool.name) == name.as_ref());
    let pools: Vec<_> = names.iter().map(|name| find(name).map(pool)).collect();
    let pools = Pools::placed(&pools.iter().map(Option::as_ref).collect::<Vec<_>>())?;
    let index = |place: u16| {
        let name = config.pools.get(usize::from(place)).map(|pool| &pool.name);
        let known = names.iter().position(|known| known.as_ref() == name);
        known.unwrap_or(0) as PoolIndex
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
        ..Pool::new(0, 0)
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
        let machine = Machine {
            cores: vec![0, 1],
            memory: 1 << 40,
            entry: EntryBytes::default(),
        };
        let checked = check("test", &text, &machine).unwrap_or_else(|wrong| panic!("{wrong}"));
        checked.config.into_inner()
    }

    #[test]
    fn pool_names_keep_their_places_and_a_new_one_gets_a_place_long_free() {
        let name = |name: &str| Some(name.to_owned());
        let first = pool_names(&config(&["a", "b", "c"]), &Vec::new());
        assert_eq!(vec![name("a"), name("b"), name("c")], first);
        // Sessions may still name the place of `b`.
        let second = pool_names(&config(&["d", "c", "a"]), &first);
        assert_eq!(vec![name("a"), None, name("c"), name("d")], second);
        let third = pool_names(&config(&["e", "c", "d"]), &second);
        assert_eq!(vec![None, name("e"), name("c"), name("d")], third);
        let nat = translation(&config(&["e", "c", "d"]), &third).unwrap();
        assert_eq!(0, nat.pools.get(0).unwrap().addresses());
        assert_eq!(Some(2), nat.pools.owner(0xc633_6401));
    }
}
