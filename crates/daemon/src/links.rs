//! Routes follow the link states of interfaces: while the link of an interface is down, routes over the interface are
//! not used.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_config::config::InterfaceIndex;
use sluice_engine::packet::io::{NO_PORT, PortIndex};
use sluice_engine::snapshot::Snapshot;

use crate::control::Control;

/// Interval between checks of the link states. If a link goes down and comes up between two checks, no route changes.
const PERIOD: Duration = Duration::from_millis(100);

/// Interfaces that belong to a router, with their ports.
fn routed(policy: &Snapshot) -> impl Iterator<Item = (InterfaceIndex, PortIndex)> {
    let all = (0..).zip(&policy.interfaces);
    all.filter(|(_, interface)| interface.bridge.is_none())
        .map(|(number, interface)| (number, interface.port))
}

impl Control {
    /// Enable and disable routes when link states change. Runs for the life of the process.
    pub(crate) async fn follow_routes(&self) {
        loop {
            self.settle_links();
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Enable routes over interfaces whose link is up, and disable routes over all other interfaces.
    pub(crate) fn settle_links(&self) {
        // Query each port only once, even if it carries several VLANs.
        let ports: BTreeMap<PortIndex, bool> = {
            let plane = self.plane();
            let ports = routed(plane.snapshot()).map(|(_, port)| (port, true));
            ports.collect()
        };
        // An interface without a port is up as long as it is configured.
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
                let state = if up {
                    "up, and routes through the interface are used"
                } else {
                    "down, and routes through the interface are not used"
                };
                tracing::info!("{}: the link is {state}", interface.name);
            }
        }
    }
}
