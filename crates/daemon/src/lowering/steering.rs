//! Distribution of packets to shards. The configured distribution is restricted by the pools.

use sluice_config::Config;
use sluice_config::schema;
use sluice_engine::snapshot::steering::{Affinity, HashFields, Steering, SteeringSettings, spreads};
use sluice_nat::Pools;
use sluice_nat::shard::BLOCK;

use super::translation::keeps_clients;
use super::{Secrets, VALIDATED, pool};

/// Steering function of a configuration. The hash keys are derived from a secret.
pub fn steering(config: &Config, secrets: Secrets) -> Steering {
    let count = config.document.system.shards();
    let pools: Vec<_> = config.pools.iter().map(pool).collect();
    let pools = Pools::new(&pools).expect(VALIDATED);
    let by_flow = config.document.system.steering == schema::Steering::FiveTuple;
    // A card can steer packets to shards by the outside ports of only one pool. The pool with the most addresses is
    // selected.
    let largest = pools.iter().map(|(_, pool)| pool).max_by_key(|pool| pool.addresses());
    let wanted = SteeringSettings {
        hashed: if by_flow {
            HashFields::FiveTuple
        } else {
            HashFields::Subset
        },
        together: match by_flow && pools.iter().all(|(_, pool)| spreads(pool)) && !keeps_clients(config) {
            true => Affinity::Flows,
            false => Affinity::Hosts,
        },
        prefix: [config.document.nat.subscriber_prefix, 128],
        ports: largest.map_or(BLOCK, |pool| pool.unit() * BLOCK),
    };
    Steering::seeded(count.into(), &wanted, secrets.steering).expect(VALIDATED)
}

#[cfg(test)]
mod tests {
    use super::super::tests::config;
    use super::*;

    fn together(pool: &str, steering: &str) -> Affinity {
        let text = format!(
            "[system]\nsteering = \"{steering}\"\n[interfaces.a]\ndevice = \"null:\"\n\
             [nat.pools.p]\naddresses = [\"192.0.2.0/28\"]\n{pool}\n"
        );
        super::steering(&config(&text), Secrets::FIXED).affinity()
    }

    #[test]
    fn flows_of_a_host_spread_where_cards_hash_ports_and_no_pool_keeps_them_together() {
        let dependent = "mapping = \"address-and-port-dependent\"";
        assert_eq!(Affinity::Flows, together(dependent, "five-tuple"));
        assert_eq!(Affinity::Hosts, together(dependent, "subset"));
        assert_eq!(
            Affinity::Hosts,
            together("mapping = \"endpoint-independent\"", "five-tuple")
        );
        assert_eq!(
            Affinity::Hosts,
            together(&format!("{dependent}\nblock = {{}}"), "five-tuple")
        );
        assert_eq!(
            Affinity::Hosts,
            together(
                &format!("{dependent}\nport-selection = \"preserve\"\noverlap = true"),
                "five-tuple"
            )
        );
    }
}
