//! Converts the limits for packets that are punted to the host stacks of routers.

use sluice_config::schema::{HostMulticast, RouterHost};
use sluice_engine::packet::punt::{Host, LIMITS, Multicast, PuntClass};

/// Limits of a router's host stack; `interfaces` is the number of interfaces.
pub(super) fn host(written: &RouterHost, interfaces: usize) -> Host {
    let mut limits = LIMITS;
    for (name, configured) in written.limits.configured() {
        if let Some(class) = PuntClass::ALL.into_iter().find(|class| class.name() == name) {
            limits[class as usize] = (configured.rate.into(), configured.burst.into());
        }
    }
    let multicast = match written.multicast {
        HostMulticast::LinkLocal => Multicast::LinkLocal,
        HostMulticast::All => Multicast::All,
        HostMulticast::None => Multicast::None,
    };
    Host::new(limits, multicast, interfaces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lowering::tests::config;

    #[test]
    fn host_of_the_configuration_has_its_limits_and_the_others_as_ever() {
        let text = "[interfaces.a]\ndevice = \"null:\"\nrouter = \"red\"\n[routers.red]\ndaemon = true\n\
                    host = { multicast = \"none\", limits = { other = { rate = 0, burst = 0 }, bfd = { rate = 7, burst = 3 } } }\n";
        let config = config(text);
        let [default, red] = [0, 1].map(|number| host(&config.routers[number].host, 1));
        assert!(default.is_like(&Host::new(LIMITS, Multicast::default(), 1)));
        let mut limits = LIMITS;
        (limits[PuntClass::Bfd as usize], limits[PuntClass::Other as usize]) = ((7, 3), (0, 0));
        assert!(red.is_like(&Host::new(limits, Multicast::None, 1)));
    }
}
