//! Routes follow the links of interfaces: those by one that is down are not used.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_config::config::InterfaceIndex;
use sluice_engine::packet::io::{NO_PORT, PortIndex};
use sluice_engine::snapshot::Snapshot;

use crate::control::Control;

/// How often links are looked at. A link that goes down and comes back between two looks changes no route.
const PERIOD: Duration = Duration::from_millis(100);

/// The interfaces that are in a router, with their ports.
fn routed(policy: &Snapshot) -> impl Iterator<Item = (InterfaceIndex, PortIndex)> {
    let all = (0..).zip(&policy.interfaces);
    all.filter(|(_, interface)| interface.bridge.is_none())
        .map(|(number, interface)| (number, interface.port))
}

impl Control {
    /// Let routes follow the links of interfaces, for ever.
    pub(crate) async fn follow_routes(&self) {
        loop {
            self.settle_links();
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Use the routes by interfaces whose links are up, and no others.
    pub(crate) fn settle_links(&self) {
        // A port is asked once, however many VLANs are on it.
        let ports: BTreeMap<PortIndex, bool> = {
            let plane = self.plane();
            let ports = routed(plane.snapshot()).map(|(_, port)| (port, true));
            ports.collect()
        };
        // What has no port is there as long as it is configured.
        let ask = |port: PortIndex| port == NO_PORT || self.link_is_up(port.into());
        let ports: BTreeMap<_, _> = ports.into_keys().map(|port| (port, ask(port))).collect();
        let mut plane = self.plane();
        let links: Vec<_> = routed(plane.snapshot())
            .filter_map(|(number, port)| Some((number, *ports.get(&port)?)))
            .collect();
        for (number, up) in links {
            if plane.set_link(number, up)
                && let Some(interface) = plane.snapshot().interface(number)
            {
                let what = if up {
                    "up: routes by it are used"
                } else {
                    "down: no route by it is used"
                };
                tracing::info!("{}: the link is {what}", interface.name);
            }
        }
    }
}
