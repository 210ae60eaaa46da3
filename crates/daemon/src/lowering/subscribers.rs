//! Converts the settings of the subscriber service.

use std::net::IpAddr;

use ipnet::Ipv4Net;
use sluice_config::Config;
use sluice_config::config::{Interface as Configured, SitesOutside, Subscribers};
use sluice_engine::snapshot;
use sluice_nat::{PoolIndex, Secret};
use sluice_wire::Mac;

use super::PoolNames;
use crate::subscribers::service::{Finder, Interface, Parameters};
use crate::subscribers::virtual_mac::{VirtualMacError, VirtualMacs};

/// Constant that is combined with the installation's name to form the key of virtual MACs.
const KEY: Secret = Secret([0x736c_7569_6365_2e33, 0x736c_7569_6365_2e34]);

/// Parameters of the subscriber service, with the engine's interfaces. `None` if no sites are configured. `macs`
/// contains the virtual MACs from [`virtual_macs`]; `secret` is used for DHCP transaction IDs.
pub fn subscribers(
    config: &Config,
    interfaces: &[snapshot::Interface],
    pools: &PoolNames,
    macs: Vec<Mac>,
    secret: Secret,
) -> Option<Parameters> {
    let subscribers = config.subscribers.clone()?;
    let index = |pool: &sluice_config::config::Pool| {
        let place = pools.iter().position(|name| name.as_ref() == Some(&pool.name));
        place.map_or(0, |place| place as PoolIndex)
    };
    let interface = |(configured, engine): (&Configured, &snapshot::Interface)| Interface {
        name: engine.name.clone(),
        mac: engine.mac,
        router: engine.router,
        addresses: addresses(configured),
        host: engine.host,
    };
    Some(Parameters {
        interfaces: config.interfaces.iter().zip(interfaces).map(interface).collect(),
        macs,
        pools: config.pools.iter().map(index).collect(),
        secret,
        finder: Finder::new(&subscribers),
        subscribers,
    })
}

fn addresses(configured: &Configured) -> Vec<Ipv4Net> {
    let v4 = |address: &sluice_config::value::InterfaceAddress| match address.address() {
        IpAddr::V4(own) => Ipv4Net::new(own, address.net().prefix_len()).ok(),
        IpAddr::V6(_) => None,
    };
    configured.addresses.iter().filter_map(v4).collect()
}

/// Virtual MACs of all sites by number. A MAC is derived from the installation's name and the site's name. The MACs of
/// sites with a pool are not used.
///
/// # Errors
/// Almost all MAC addresses with the configured prefix are in use.
pub fn virtual_macs(config: &Config) -> Result<Vec<Mac>, VirtualMacError> {
    let Some(subscribers) = &config.subscribers else {
        return Ok(Vec::new());
    };
    let has_one: Vec<u32> = with_virtual_macs(subscribers).collect();
    let names: Vec<String> = has_one.iter().map(|site| subscribers.name(*site)).collect();
    let named: Vec<_> = names.iter().map(|name| (name.as_str(), None)).collect();
    let key = installation(&config.document.system.name);
    let assigned = VirtualMacs::new(key, &subscribers.virtual_mac_prefix)?.assign(&named)?;
    let mut macs = vec![[0; 6]; subscribers.sites() as usize];
    for (site, mac) in has_one.into_iter().zip(assigned) {
        if let Some(place) = macs.get_mut(site as usize) {
            *place = mac;
        }
    }
    Ok(macs)
}

fn with_virtual_macs(subscribers: &Subscribers) -> impl Iterator<Item = u32> + '_ {
    let public = subscribers
        .groups
        .iter()
        .filter(|group| matches!(group.outside, SitesOutside::Public(_)));
    public.flat_map(|group| group.first..group.first + group.count)
}

/// Key of an installation.
fn installation(name: &str) -> Secret {
    let words = |first: u64| -> Vec<u64> {
        let chunks = name.as_bytes().chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(place, byte)| *place = *byte);
            u64::from_le_bytes(word)
        });
        [first, name.len() as u64].into_iter().chain(chunks).collect()
    };
    Secret([0, 1].map(|first| KEY.hash(&words(first))))
}

#[cfg(test)]
mod tests {
    use super::super::tests::config;
    use super::*;
    use crate::subscribers::Site;

    const TEXT: &str = r#"
[system]
name = "access-1"
[interfaces.access]
device = "null:"
addresses = ["2001:db8::1/64", "10.0.0.1/16"]
[interfaces.outside]
device = "null:"
addresses = ["198.51.100.1/22"]
[nat.pools.other]
addresses = ["203.0.113.16/28"]
[nat.pools.shared]
addresses = ["203.0.113.0/28"]
[subscribers]
virtual-mac-prefix = "02:5e"
[subscribers.sites.homes]
interface = "access"
tags = "100.5-7"
dhcp = "inside"
public = "outside"
[subscribers.sites.shops]
interface = "access"
tags = "8"
dhcp = "inside"
pool = "shared"
[subscribers.dhcp.inside]
server = "192.0.2.10"
leases = "/tmp/leases"
format = "kea"
[subscribers.public.outside]
prefixes = ["198.51.100.0/25"]
"#;

    #[test]
    fn virtual_macs_follow_from_the_names_of_installation_and_site() {
        let macs = |text: &str| virtual_macs(&config(text)).expect("all have one");
        let own = macs(TEXT);
        assert_eq!(4, own.len());
        assert!(own[..3].iter().all(|mac| mac.starts_with(&[0x02, 0x5e])));
        assert_eq!([0; 6], own[3], "a site with a pool has none");
        // The configuration has the same sites with different numbers.
        let swapped = TEXT.replace("tags = \"100.5-7\"", "tags = \"99-100.5-7\"");
        assert_eq!(own[..3], macs(&swapped)[3..6]);
        assert_ne!(own, macs(&TEXT.replace("access-1", "access-2")));
        assert_eq!(Vec::<Mac>::new(), macs("[interfaces.a]\ndevice = \"null:\"\n"));
    }

    #[test]
    fn parameters_have_the_engines_interfaces_and_numbers_of_pools() {
        let config = config(TEXT);
        let interfaces = super::super::interfaces(&config, &[[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]]);
        let pools = vec![Some("shared".to_owned()), None, Some("other".to_owned())];
        let macs = virtual_macs(&config).expect("all have one");
        let made = subscribers(&config, &interfaces, &pools, macs, Secret([1, 2])).expect("sites");
        assert_eq!(vec![2, 0], made.pools);
        let access = &made.interfaces[0];
        assert_eq!(
            ("access", [2, 0, 0, 0, 0, 1], false),
            (access.name.as_str(), access.mac, access.host)
        );
        assert_eq!(
            vec!["10.0.0.1/16".parse::<Ipv4Net>().expect("a network")],
            access.addresses
        );
        assert_eq!(Some(Site(1)), made.finder.find(0, &[100, 6], [0; 4].into()));
    }
}
