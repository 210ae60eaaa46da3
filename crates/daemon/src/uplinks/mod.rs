//! Health checks of uplinks. A check uses probes of hosts behind the uplink, routes of routing daemons, and the link
//! state. Routes use only the gateways of uplinks that are up.

mod watched;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use sluice_config::api;
use sluice_config::config::{InterfaceIndex, Uplink};
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::snapshot::probes::{Probe, Probes};
use sluice_engine::worker::request::{Reply, Request};
use sluice_route::rib::{OfferedNextHop, Rib};
use sluice_route::{Address, Prefix};
use sluice_wire::echo::Echo;

use crate::control::Control;
use watched::Watched;

/// Interval at which the state of uplinks is updated.
const PERIOD: Duration = Duration::from_millis(20);

/// Interval of the updates if no uplink is configured.
const IDLE: Duration = Duration::from_millis(200);

/// Maximum number of probed hosts per uplink. Probes are numbered consecutively over all uplinks.
const TARGETS: usize = 8;

/// All monitored uplinks.
#[derive(Default)]
pub(crate) struct Uplinks {
    watched: Vec<Watched>,
    /// Gateways that routes must not use.
    lost: BTreeSet<(InterfaceIndex, Address)>,
    sequence: u16,
}

impl Uplinks {
    /// Whether no uplink is monitored and no gateway is excluded from routes.
    fn is_idle(&self) -> bool {
        self.watched.is_empty() && self.lost.is_empty()
    }

    /// Monitor the uplinks of a configuration. Unchanged uplinks keep their state.
    fn follow(&mut self, wanted: &[Uplink], probes: &Probes, now: Duration) {
        let same = self.watched.iter().map(|watched| &watched.uplink).eq(wanted);
        if same {
            return;
        }
        // The numbers of probes change, so pending probes are discarded.
        (0..TARGETS * self.watched.len()).for_each(|number| probes.forget(number));
        let before = std::mem::take(&mut self.watched);
        let watch = |uplink: &Uplink| {
            let is_it = |known: &&Watched| {
                let (a, b) = (&known.uplink, uplink);
                (&a.name, a.interface, &a.gateways) == (&b.name, b.interface, &b.gateways)
            };
            match before.iter().find(is_it) {
                Some(known) => known.renewed(uplink.clone(), now),
                None => Watched::new(uplink.clone(), now),
            }
        };
        self.watched = wanted.iter().map(watch).collect();
    }

    /// Probe requests that must be sent now.
    fn due(&mut self, probes: &Probes, now: Duration) -> Vec<Probe> {
        let mut due = Vec::new();
        for (place, watched) in self.watched.iter_mut().enumerate() {
            if watched.start(now) {
                // Replies to the previous request must not count for this check.
                (0..watched.targets.len()).for_each(|k| probes.forget(place * TARGETS + k));
            }
            let (interface, gateways) = (watched.uplink.interface, watched.uplink.gateways.clone());
            for (k, target) in watched.targets.iter_mut().enumerate().take(TARGETS) {
                let gateway = gateways
                    .iter()
                    .find(|gateway| gateway.is_ipv4() == target.address.is_ipv4());
                let Some(&gateway) = gateway.filter(|_| target.is_due) else {
                    continue;
                };
                self.sequence = self.sequence.wrapping_add(1);
                // The request contains a random number. A reply with this number proves that its sender has received
                // the request.
                let Ok(data) = getrandom::u64() else { continue };
                let probe = Probe {
                    number: place * TARGETS + k,
                    interface,
                    gateway: gateway.into(),
                    target: target.address.into(),
                    echo: Echo {
                        identifier: (data >> 48) as u16,
                        sequence: self.sequence,
                        data,
                    },
                };
                due.push(probe);
            }
        }
        due
    }

    /// Record that a request was sent.
    fn sent(&mut self, number: usize) {
        let watched = self.watched.get_mut(number / TARGETS);
        if let Some(target) = watched.and_then(|watched| watched.targets.get_mut(number % TARGETS)) {
            target.sent += 1;
            target.is_due = false;
        }
    }

    /// Update the state of all uplinks. Routes then use only the gateways of uplinks that are up.
    fn judge(&mut self, plane: &mut ControlPlane, now: Duration) {
        let probes = plane.snapshot().probes.clone();
        let mut lost = BTreeSet::new();
        for (place, watched) in self.watched.iter_mut().enumerate() {
            let uplink = &watched.uplink;
            let router = plane.snapshot().router_of(uplink.interface);
            let rib = plane.ribs().get(router);
            let has_link = rib.is_none_or(|rib| rib.link_is_up(uplink.interface));
            let has_route = rib.is_none_or(|rib| has_route(rib, uplink));
            let answer = |k: usize| probes.answer(place * TARGETS + k).map(Duration::from_nanos);
            if watched.judge(now, has_link, has_route, answer) {
                match watched.down {
                    None => tracing::info!("uplink {} is up and used by new flows", watched.uplink.name),
                    Some(cause) => tracing::warn!("uplink {} is down: {cause}", watched.uplink.name),
                }
            }
            if !watched.is_up() {
                let gateways = watched.uplink.gateways.iter();
                lost.extend(gateways.map(|&gateway| (watched.uplink.interface, Address::from(gateway))));
            }
        }
        for &gateway in self.lost.difference(&lost) {
            plane.set_gateway(gateway, true);
        }
        for &gateway in &lost {
            plane.set_gateway(gateway, false);
        }
        self.lost = lost;
    }

    /// Status of all uplinks.
    pub(crate) fn list(&self, plane: &ControlPlane, now: Duration) -> Vec<api::Uplink> {
        let policy = plane.snapshot();
        let list = |watched: &Watched| {
            let uplink = &watched.uplink;
            let interface = policy.interface(uplink.interface);
            let router = policy.routers.get(usize::from(policy.router_of(uplink.interface)));
            let route = uplink.health.as_ref().and_then(|health| health.route);
            api::Uplink {
                name: uplink.name.clone(),
                router: router.map_or_else(String::new, |router| router.name.clone()),
                interface: interface.map_or_else(String::new, |interface| interface.name.clone()),
                via: uplink.gateways.clone(),
                weight: uplink.weight,
                up: watched.is_up(),
                cause: watched.down.map(|cause| cause.name().into()),
                age: now.saturating_sub(watched.since).as_secs(),
                changes: watched.changes,
                consecutive: watched.contrary,
                route: route.map(|route| route.to_string()),
                targets: watched
                    .targets
                    .iter()
                    .map(|target| api::UplinkTarget {
                        address: target.address,
                        sent: target.sent,
                        answered: target.answered,
                        round_trip: target.round_trip.map(|took| took.as_micros() as u64),
                    })
                    .collect(),
            }
        };
        self.watched.iter().map(list).collect()
    }
}

/// Whether a routing daemon or the kernel has the route that the uplink requires. The required route leads to the
/// configured network and has a gateway of the uplink.
fn has_route(rib: &Rib, uplink: &Uplink) -> bool {
    let Some(route) = uplink.health.as_ref().and_then(|health| health.route) else {
        return true;
    };
    let net = route.net();
    let is_gateway = |address: Address| uplink.gateways.contains(&IpAddr::from(address));
    let leads = |next_hop: OfferedNextHop| match next_hop {
        OfferedNextHop::Gateway { interface, address } => interface == uplink.interface && is_gateway(address),
        OfferedNextHop::Via(address) => is_gateway(address),
        OfferedNextHop::Attached(_) | OfferedNextHop::Local(_) | OfferedNextHop::Drop(_) => false,
    };
    let offers = rib.get(Prefix::new(net.addr().into(), net.prefix_len()));
    let learned = offers.iter().filter(|shown| shown.origin.is_learned());
    learned.flat_map(|shown| shown.hops).any(|hop| leads(hop.next_hop))
}

impl Control {
    /// Monitor uplinks; runs for the life of the process.
    pub(crate) async fn follow_uplinks(&self) {
        loop {
            let config = self.config();
            if config.uplinks.is_empty() && self.uplinks().is_idle() {
                tokio::time::sleep(IDLE).await;
                continue;
            }
            let (now, probes) = (self.started_at.elapsed(), self.plane().snapshot().probes.clone());
            let due = {
                let mut uplinks = self.uplinks();
                uplinks.follow(&config.uplinks, &probes, now);
                uplinks.due(&probes, now)
            };
            for probe in due {
                probes.expect(&probe);
                if matches!(self.request_owner(Request::Probe(probe)).await, Ok(Reply::Done)) {
                    self.uplinks().sent(probe.number);
                }
            }
            {
                let (mut uplinks, mut plane) = (self.uplinks(), self.plane());
                uplinks.judge(&mut plane, self.started_at.elapsed());
            }
            tokio::time::sleep(PERIOD).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_config::schema::UplinkHealth;
    use sluice_route::rib::{Offer, Origin, Settings, Target, WeightedNextHop};

    fn uplink(name: &str, interface: InterfaceIndex, ping: &[[u8; 4]]) -> Uplink {
        Uplink {
            name: name.into(),
            interface,
            gateways: vec![IpAddr::from([198, 51, 100, interface as u8])],
            weight: 1,
            health: Some(UplinkHealth {
                ping: ping.iter().copied().map(IpAddr::from).collect(),
                route: Some(sluice_config::value::Prefix::of("198.18.0.0/15".parse().unwrap())),
                ..UplinkHealth::default()
            }),
        }
    }

    const HOSTS: [[u8; 4]; 2] = [[192, 0, 2, 1], [192, 0, 2, 2]];

    #[test]
    fn host_is_asked_once_a_check_and_again_where_the_request_was_not_sent() {
        let (mut uplinks, probes) = (Uplinks::default(), Probes::default());
        let all = [uplink("fibre", 1, &HOSTS), uplink("cable", 2, &HOSTS[..1])];
        uplinks.follow(&all, &probes, Duration::ZERO);
        let first = uplinks.due(&probes, Duration::ZERO);
        let numbers =
            |probes: &[Probe]| -> Vec<_> { probes.iter().map(|probe| (probe.number, probe.interface)).collect() };
        assert_eq!(vec![(0, 1), (1, 1), (8, 2)], numbers(&first));
        let again = uplinks.due(&probes, Duration::ZERO);
        assert_eq!(numbers(&first), numbers(&again));
        assert!(
            first
                .iter()
                .zip(&again)
                .all(|(one, other)| one.echo.data != other.echo.data)
        );
        [0, 8].into_iter().for_each(|number| uplinks.sent(number));
        assert_eq!(vec![(1, 1)], numbers(&uplinks.due(&probes, Duration::ZERO)));
        // An uplink that is no longer configured is not probed.
        uplinks.follow(&all[1..], &probes, Duration::ZERO);
        assert_eq!(vec![(0, 2)], numbers(&uplinks.due(&probes, Duration::ZERO)));
        uplinks.follow(&[], &probes, Duration::ZERO);
        assert!(uplinks.is_idle());
    }

    #[test]
    fn route_counts_where_it_is_learned_and_leads_by_the_gateway_of_the_uplink() {
        let gateway = |last| Address::from(IpAddr::from([198, 51, 100, last]));
        let by = |interface, last| OfferedNextHop::Gateway {
            interface,
            address: gateway(last),
        };
        let cases = [
            (Origin::Fpm, "198.18.0.0", by(1, 1), true),
            (Origin::Kernel, "198.18.0.0", OfferedNextHop::Via(gateway(1)), true),
            (Origin::Fpm, "198.18.0.0", by(1, 9), false),
            (Origin::Fpm, "198.18.0.0", by(2, 1), false),
            (Origin::Fpm, "198.20.0.0", by(1, 1), false),
            (Origin::Static, "198.18.0.0", by(1, 1), false),
        ];
        for (origin, network, next_hop, expected) in cases {
            let mut rib = Rib::new(Settings::default(), [1, 2]);
            let offer = Offer {
                origin,
                protocol: 0,
                distance: 20,
                metric: 0,
                target: Target::Hops(&[WeightedNextHop::new(next_hop)]),
            };
            let network: IpAddr = network.parse().unwrap();
            rib.offer(Prefix::new(network.into(), 15), &offer, 0).unwrap();
            assert_eq!(
                expected,
                has_route(&rib, &uplink("fibre", 1, &[])),
                "{origin:?} {network} {next_hop:?}"
            );
        }
        let mut unchecked = uplink("fibre", 1, &[]);
        unchecked.health = None;
        assert!(has_route(&Rib::new(Settings::default(), [1, 2]), &unchecked));
    }
}
