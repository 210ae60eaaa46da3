//! Computes the maximum share of the tables, and of the ports of a pool, that a single host can use.

use serde::Serialize;

use crate::Config;
use crate::config::Pool;
use crate::schema::{Pairing, PortSelection, System};
use crate::value::{AddressRange, PortRange};

/// Number of consecutive ports that always belong to the same shard.
const UNIT: u64 = 64;

/// Number of additional pool addresses from which a subscriber may get ports with soft pairing.
const OTHERS: u64 = 8;

/// Each part of the reserve has at least one sixteenth of all sessions of the table.
const PARTS: u64 = 16;

/// Divides a table with `all` sessions. Returns the sessions reserved for each shard, the number of parts in the
/// reserve that shards share, and the sessions per part. With the reserve, any shard can use half of the table.
pub fn divided(system: &System, all: u32) -> (u64, u64, u64) {
    let all = u64::from(all);
    let own = all.div_ceil(u64::from(system.shards()).max(1));
    let each = all.div_ceil(PARTS).max(own).max(1);
    let parts = all.div_ceil(2).saturating_sub(own).div_ceil(each);
    (own, parts, each)
}

/// Maximum share of one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct HostShare {
    /// Maximum number of IPv4 sessions, over all pools.
    pub sessions_ipv4: u64,
    /// Maximum number of IPv6 sessions, over all pools.
    pub sessions_ipv6: u64,
    /// Maximum share in each pool.
    pub pools: Vec<PoolShare>,
}

/// Maximum share of one host in a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolShare {
    /// Name of the pool.
    pub pool: String,
    /// Maximum number of sessions.
    pub sessions: u64,
    /// Maximum number of outside ports for TCP.
    pub tcp: u64,
    /// Maximum number of outside ports for UDP.
    pub udp: u64,
    /// Maximum number of identifiers for ICMP queries.
    pub icmp: u64,
}

/// Maximum share of one host while no other host uses the tables.
pub fn host_share(config: &Config) -> HostShare {
    let document = &config.document;
    let sessions = [document.sessions.ipv4, document.sessions.ipv6].map(|all| {
        let (own, parts, each) = divided(&document.system, all);
        (own + parts * each).min(all.into())
    });
    let pools = config.pools.iter().map(|pool| {
        let [tcp, udp, icmp] = ports(pool, u64::from(document.system.shards()));
        let limits = [pool.subscriber.sessions, pool.limits.sessions];
        let limit = limits.into_iter().flatten().min().map_or(u64::MAX, u64::from);
        PoolShare {
            pool: pool.name.clone(),
            sessions: sessions[0].min(limit),
            tcp,
            udp,
            icmp,
        }
    });
    HostShare {
        sessions_ipv4: sessions[0],
        sessions_ipv6: sessions[1],
        pools: pools.collect(),
    }
}

/// Maximum numbers of outside ports for TCP and UDP, and of identifiers for ICMP queries.
fn ports(pool: &Pool, shards: u64) -> [u64; 3] {
    let reserved: u64 = pool.reserved.iter().map(|range| u64::from(range.count())).sum();
    let all = u64::from(pool.ports.last() - pool.ports.first()) + 1 - reserved;
    let addresses: u64 = pool.addresses.iter().map(AddressRange::count).sum();
    let addresses = match pool.pairing {
        Pairing::Hard => 1,
        Pairing::Soft => addresses.clamp(1, 1 + OTHERS),
    };
    let size = pool.block.map_or(UNIT, |block| u64::from(block.size.max(1)));
    let first = u64::from(pool.ports.first()) / size;
    let units = u64::from(pool.ports.last()) / size - first + 1;
    let of_shard = || units.div_ceil(shards.max(1)).saturating_mul(size).min(all);
    let of_address = shared(pool, size, shards).unwrap_or_else(of_shard);
    let max = match (&pool.deterministic, pool.block) {
        (Some(dealt), _) => {
            let shares = u64::from(dealt.compression) + u64::from(dealt.dynamic);
            all / shares.max(1)
        }
        _ if pool.selection == PortSelection::Preserve => all * addresses,
        (None, Some(block)) => (of_address * addresses).min(u64::from(block.maximum) * size),
        (None, None) => of_address * addresses,
    };
    pool.subscriber
        .ports
        .each()
        .map(|limit| max.min(limit.map_or(u64::MAX, u64::from)))
}

/// Number of ports of an address that one shard can use if shards share ports. `None` if shards don't share the ports
/// of the pool, because the ports are preserved, computed, or used by several flows.
fn shared(pool: &Pool, size: u64, shards: u64) -> Option<u64> {
    let by_computation = pool.deterministic.is_some() || pool.selection == PortSelection::Preserve;
    if by_computation || pool.overlap {
        return None;
    }
    let within = |range: &PortRange, (from, to): (u64, u64)| {
        (u64::from(range.last()).min(to) + 1).saturating_sub(u64::from(range.first()).max(from))
    };
    within_reach(pool.ports, size, shards, |unit| {
        let reserved = pool.reserved.iter().map(|range| within(range, unit));
        within(&pool.ports, unit) - reserved.sum::<u64>()
    })
}

/// Number of ports of an address that one shard can use: its own ports and all shared ports. The ports are divided into
/// units of `size` ports, and every second unit is shared. `count` counts the usable ports between the first and last
/// port of a unit. `None` if a shard has no complete unit of its own, in which case shards share no ports.
pub fn within_reach(ports: PortRange, size: u64, shards: u64, count: impl Fn((u64, u64)) -> u64) -> Option<u64> {
    let (first, last) = (u64::from(ports.first()), u64::from(ports.last()));
    let whole = ((last + 1) / size).saturating_sub(first.div_ceil(size));
    if shards <= 2 || whole < 2 * shards {
        return None;
    }
    let is_shared = |unit: u64| ((unit / shards) ^ unit) & 1 != 0;
    let mut own = vec![0; 2 * shards as usize];
    let mut shared = 0;
    for unit in first / size..=last / size {
        let counted = count((unit * size, unit * size + size - 1));
        match is_shared(unit) {
            true => shared += counted,
            false => own[(unit % (2 * shards)) as usize] += counted,
        }
    }
    let own = (0..2 * shards).zip(own).filter(|&(unit, _)| !is_shared(unit));
    own.map(|(_, own)| own + shared).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::EntryBytes;
    use crate::{Machine, check};

    fn share(system: &str, pool: &str) -> HostShare {
        let text = format!(
            "[system]\n{system}\n[sessions]\nipv4 = 160_000\nipv6 = 64\n[interfaces.a]\ndevice = \"null:\"\n\
             [nat.pools.p]\naddresses = [\"192.0.2.0/28\"]\n{pool}\n"
        );
        let machine = Machine {
            cores: (0..16).collect(),
            memory: 1 << 34,
            entry: EntryBytes::default(),
        };
        let checked = check("test", &text, &machine).unwrap_or_else(|error| panic!("{error}"));
        host_share(&checked.config)
    }

    #[test]
    fn one_worker_gives_a_host_all_and_several_half_of_the_sessions() {
        let of = |system: &str| {
            let share = share(system, "");
            (share.sessions_ipv4, share.sessions_ipv6, share.pools[0].tcp)
        };
        assert_eq!((160_000, 64, 64_512), of("workers = 1"));
        assert_eq!((80_000, 32, 32_256), of("workers = 2\nshards = 2"));
        let of_sixteen = 64_512 / 2 + 64_512 / 32 - 32;
        assert_eq!((80_000, 32, of_sixteen), of("workers = 2"));
        assert_eq!((80_000, 32, of_sixteen), of("workers = 1\nshards = 16"));
    }

    #[test]
    fn shards_share_ports_where_each_keeps_a_unit_of_an_address() {
        let of = |pool: &str| share("workers = 2", pool).pools[0].udp;
        assert_eq!(15_872 / 2 + 15_872 / 32 - 48, of("ports = \"1024-16895\""));
        assert_eq!(16 * 64 + 64, of("ports = \"1024-3071\""));
        assert_eq!(128, of("ports = \"1024-3070\""));
        assert_eq!(
            16 * 64 + 64 - 20,
            of("ports = \"1024-3071\"\nreserved-ports = [\"1100-1119\"]")
        );
        assert_eq!(126 / 2 * 512 + 3 * 512, of("block = { size = 512, maximum = 1023 }"));
        assert_eq!(4_096, of("block = { size = 4096, maximum = 1023 }"));
        assert_eq!(64_512, of("port-selection = \"preserve\""));
        assert_eq!(4_032, of("mapping = \"address-and-port-dependent\"\noverlap = true"));
    }

    #[test]
    fn quotas_blocks_and_pairing_limit_a_host_further() {
        let of = |pool: &str| {
            let share = share("workers = 1", pool);
            let PoolShare { sessions, tcp, udp, .. } = share.pools[0];
            (sessions, tcp, udp)
        };
        assert_eq!((160_000, 4_096, 4_096), of("block = {}"));
        assert_eq!((160_000, 64_512 * 9, 64_512 * 9), of("pairing = \"soft\""));
        assert_eq!(
            (500, 100, 64_512),
            of("subscriber = { sessions = 500, ports = { tcp = 100 } }")
        );
        assert_eq!(
            (160_000, 1_008, 1_008),
            of("deterministic = { inside = \"10.0.0.0/22\", compression = 64 }")
        );
        assert_eq!((160_000, 60_000 - 1_024, 58_976), of("ports = \"1024-59999\""));
    }
}
