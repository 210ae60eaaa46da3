//! Checks of cards that depend on the whole configuration: memory for buffers, processes that use the cards, and cores
//! on a different NUMA node.

use std::os::unix::net::UnixStream;
use std::path::Path;

use sluice_config::{Config, Fault, schema};
use sluice_dpdk::eal::{self, Host, HugepageReason, Memory};
use sluice_dpdk::pci::{Card, CardFault, HugePages, Mode, System};
use sluice_dpdk::{Device, DriverLimit, Plan};
use sluice_engine::placement::Topology;

use crate::ports::{Outlook, key};
use crate::topology::{SYS, topology};

/// Hugepages of this machine, by page size.
pub fn hugepages() -> Vec<HugePages> {
    System::this().hugepages()
}

/// Cards of a device. A bond has the cards of all its members.
pub(crate) fn cards(device: &Device) -> Vec<Card> {
    let members = match device {
        Device::Bond { members } => members.as_slice(),
        device => std::slice::from_ref(device),
    };
    let system = System::this();
    let cards = members.iter().filter_map(|member| match member {
        Device::Pci(address) => system.card(*address),
        _ => None,
    });
    cards.collect()
}

/// Add the findings that depend on all ports together, or on a running daemon.
pub(crate) fn complete(config: &Config, ports: &mut [Outlook]) {
    tolerate_running(config, ports);
    let modes: Vec<Mode> = ports
        .iter()
        .flat_map(|port| port.cards.iter().map(Card::mode))
        .collect();
    let is_physical = modes.iter().any(|mode| mode.is_physical());
    let devices: Vec<_> = ports
        .iter()
        .map(|port| (port.plan.name.clone(), port.plan.device.clone()))
        .collect();
    let topology = topology(Path::new(SYS), &devices).unwrap_or_default();
    for (place, port) in ports.iter_mut().enumerate() {
        let by_uio = port.cards.iter().any(|card| card.mode() == Mode::Uio);
        if by_uio && port.plan.interrupts {
            port.limits.push(DriverLimit::note(
                "UIO has no receive interrupts: idle workers of this device sleep for a fixed time instead (vfio-pci \
                 has interrupts)"
                    .into(),
            ));
        }
        if is_physical && port.cards.iter().any(|card| card.mode() == Mode::Vfio) {
            port.limits.push(DriverLimit::note(
                "because another card uses UIO, or VFIO without an IOMMU, this card also uses physical addresses and \
                 needs hugepages"
                    .into(),
            ));
        }
        port.limits
            .extend(remote_cores(&topology, place, &config.cores).map(DriverLimit::note));
    }
}

/// Accept a card that the running daemon of this configuration uses, because the card is free once that daemon ends.
fn tolerate_running(config: &Config, ports: &mut [Outlook]) {
    let socket = &config.document.control.socket;
    let mut running = None;
    for limit in ports.iter_mut().flat_map(|port| &mut port.limits) {
        let Some(CardFault::InUse {
            address,
            process: Some(process),
        }) = &limit.card
        else {
            continue;
        };
        let running = *running.get_or_insert_with(|| listener(socket));
        if running == Some(process.id) {
            *limit = DriverLimit::note(format!(
                "{address} is in use by the running daemon of this configuration, \
                 {process}"
            ));
        }
    }
}

/// Process ID of the listener at a socket.
fn listener(socket: &Path) -> Option<u32> {
    let stream = UnixStream::connect(socket).ok()?;
    let credentials = rustix::net::sockopt::socket_peercred(stream).ok()?;
    u32::try_from(credentials.pid.as_raw_nonzero().get()).ok()
}

/// Warning if no worker is on the NUMA node of a device. The warning lists the cores on the device's node.
fn remote_cores(topology: &Topology, device: usize, workers: &[u16]) -> Option<String> {
    let node = topology.devices.get(device)?.node?;
    let sites = topology.cores.iter().filter(|site| site.node == node);
    let local_cores: Vec<u16> = sites.map(|site| site.core).collect();
    if local_cores.is_empty() || workers.iter().any(|worker| local_cores.contains(worker)) {
        return None;
    }
    let list = |cores: &[u16]| cores.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    let nearest = list(&local_cores[..local_cores.len().min(workers.len())]);
    Some(format!(
        "the device is on NUMA node {node}, but no worker's core ({}) is: each frame crosses between sockets (cores \
         on this node: workers = [{nearest}])",
        list(workers)
    ))
}

/// Whether hugepages are required. `None` means that hugepages are used if enough are free.
pub(crate) fn wants_hugepages(config: &Config) -> Option<bool> {
    match config.document.system.hugepages {
        schema::Hugepages::Auto => None,
        schema::Hugepages::Off => Some(false),
        schema::Hugepages::Require => Some(true),
    }
}

/// Memory from which packet buffers would be allocated.
///
/// # Errors
/// Hugepages are required, but disabled or too few.
pub fn buffer_memory(config: &Config, ports: &[Outlook], plan: &Plan) -> Result<Memory, Fault> {
    let needs = plan.needs(&[], wants_hugepages(config));
    eal::memory(&needs, &Host::look(&needs.pci)).map_err(|fault| {
        let text = fault.to_string();
        match fault.demand {
            HugepageReason::Card(address, _) => device_fault(name_of(ports, address), &text),
            HugepageReason::Configured => parted(["system", "hugepages"].map(str::to_owned).to_vec(), "", &text),
        }
    })
}

/// Name of the interface to which a card belongs.
pub(crate) fn name_of(ports: &[Outlook], address: sluice_dpdk::PciAddress) -> &str {
    let has = |port: &&Outlook| port.cards.iter().any(|card| card.address == address);
    ports.iter().find(has).map_or("", |port| &port.plan.name)
}

/// Convert an error of the driver layer about an interface's device to a fault of the configuration key `device`.
pub(crate) fn device_fault(interface: &str, text: &str) -> Fault {
    parted(key(interface, "device"), &format!("{interface}: "), text)
}

/// Split an error of the driver layer into message and hint. A colon separates the two.
fn parted(key: Vec<String>, before: &str, text: &str) -> Fault {
    let (description, hint) = text.split_once(": ").unwrap_or((text, ""));
    Fault {
        key,
        description: format!("{before}{description}"),
        hint: (!hint.is_empty()).then(|| hint.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use sluice_engine::placement::{DeviceSite, Site};

    use super::*;

    #[test]
    fn device_far_from_all_workers_names_near_cores() {
        let site = |core: u16| Site {
            core,
            socket: core % 2,
            physical: core,
            cache: core % 2,
            node: core % 2,
        };
        let device = |node| DeviceSite { name: "x".into(), node };
        let topology = Topology {
            cores: (0..8).map(site).collect(),
            devices: vec![device(Some(1)), device(None)],
        };
        assert_eq!(
            Some(
                "the device is on NUMA node 1, but no worker's core (0, 2) is: each frame crosses between sockets (cores on this node: workers = [1, 3])"
                    .to_owned()
            ),
            remote_cores(&topology, 0, &[0, 2])
        );
        assert_eq!(None, remote_cores(&topology, 0, &[0, 3]));
        assert_eq!(None, remote_cores(&topology, 1, &[0, 2]));
    }

    #[test]
    fn listener_of_a_socket_is_its_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        assert_eq!(None, listener(&path));
        let _listening = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert_eq!(Some(std::process::id()), listener(&path));
    }

    #[test]
    fn fault_of_the_driver_layer_is_parted_into_what_is_wrong_and_what_to_do() {
        let fault = device_fault("a", "0000:00:02.0 has no driver: run sluice bind 0000:00:02.0 as root");
        assert_eq!("a: 0000:00:02.0 has no driver", fault.description);
        assert_eq!(Some("run sluice bind 0000:00:02.0 as root".into()), fault.hint);
        assert_eq!(None, device_fault("a", "bad").hint);
    }
}
