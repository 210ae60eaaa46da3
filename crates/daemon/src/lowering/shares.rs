//! Converts the limits of routers and interfaces.

use sluice_config::Config;
use sluice_config::config::{Interface, Router};
use sluice_config::schema;
use sluice_config::value::BitRate;
use sluice_engine::snapshot::Quotas;
use sluice_engine::snapshot::shares::{LinkShare, Rate, RouterShare};

/// Limits of routers and of interfaces, by number.
pub(super) fn shares(config: &Config) -> (Vec<RouterShare>, Vec<LinkShare>) {
    let router = |router: &Router| RouterShare {
        weight: router.weight,
        rate: router.limits.rate.map(rate),
    };
    let link = |interface: &Interface| LinkShare {
        weight: interface.share.and_then(|share| share.weight),
        guarantee: interface.share.and_then(|share| share.guarantee).map(BitRate::bits),
        rate: interface.rate.map(BitRate::bits),
    };
    (
        config.routers.iter().map(router).collect(),
        config.interfaces.iter().map(link).collect(),
    )
}

fn rate(written: schema::TrafficRate) -> Rate {
    Rate {
        packets: written.packets.map(u64::from),
        bits: written.bits.map(BitRate::bits),
        burst: u64::try_from(written.burst.duration().as_nanos()).unwrap_or(u64::MAX),
    }
}

/// All limits of a router except its session limit.
pub(super) fn quotas(limits: &schema::RouterLimits) -> Quotas {
    Quotas {
        routes: limits.routes.map(|routes| routes as usize),
        neighbours: limits.neighbours,
        buffers: limits.buffers,
    }
}
