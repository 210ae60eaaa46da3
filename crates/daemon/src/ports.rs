//! Converts interfaces that have their own device to ports of the data plane.

use sluice_config::config::{Interface, InterfaceIndex, Link, SiteFrames};
use sluice_config::{Config, Fault, memory, schema};
use sluice_dpdk::driver::{DriverChoice, choose};
use sluice_dpdk::pci::Card;
use sluice_dpdk::port::Steering;
use sluice_dpdk::{Device, DriverLimit, Plan, PortPlan, limits};
use sluice_engine::packet::io::WorkerIndex;
use sluice_engine::placement::Part;
use sluice_engine::snapshot::StartParameters;
use sluice_engine::snapshot::stages::Stages;
use sluice_engine::worker::MAX_HELD;

use crate::lowering::faces_outside;
use crate::{cards, management};

/// A port with its planned parameters, before it is opened.
#[derive(Clone, Debug)]
pub struct Outlook {
    /// Interface of the port.
    pub interface: InterfaceIndex,
    /// Parameters for opening the port.
    pub plan: PortPlan,
    /// Selected driver, with the reason for the choice.
    pub choice: DriverChoice,
    /// Limitations of the driver on this port.
    pub limits: Vec<DriverLimit>,
    /// Cards of the port, as the kernel describes them.
    pub cards: Vec<Card>,
}

/// All ports, in the order of their interfaces. VLANs have no port, since the port of their parent carries their
/// frames.
///
/// # Errors
/// The driver layer does not recognise a device name.
pub fn outlook(config: &Config) -> Result<Vec<Outlook>, Vec<Fault>> {
    let mut ports = Vec::new();
    let mut faults = Vec::new();
    for (index, interface) in config.interfaces.iter().enumerate() {
        match port(config, index as InterfaceIndex, interface) {
            None => {}
            Some(Ok(plan)) => ports.push(Outlook::new(index as InterfaceIndex, plan)),
            Some(Err(fault)) => faults.push(fault),
        }
    }
    cards::complete(config, &mut ports);
    if faults.is_empty() { Ok(ports) } else { Err(faults) }
}

/// Parameters of all ports, rings and buffers. `assists` states whether receiving workers assist other workers.
pub fn plan(config: &Config, ports: &[Outlook], stages: &Stages, assists: bool) -> Plan {
    let workers = u16::try_from(config.cores.len()).unwrap_or(u16::MAX);
    let mut plan = Plan::new(ports.iter().map(|port| port.plan.clone()).collect(), workers);
    if !stages.is_run_to_completion() {
        plan.receivers = stages.all(Part::Receive, workers.into());
        plan.senders = stages.senders(workers.into(), assists);
    }
    plan.handover = config.document.system.ring;
    let parked = config
        .document
        .neighbours
        .parked
        .saturating_add(config.document.fragments.parked)
        .saturating_add(config.document.nat.unsolicited_syns);
    // Packets of a moving shard may be held in two queues. Workers that assist have another queue.
    let held = match (workers, assists) {
        (0 | 1, _) => 0,
        (_, false) => 2 * MAX_HELD as u32,
        (_, true) => 4 * MAX_HELD as u32,
    };
    let parked = parked.saturating_add(held);
    plan.parked = parked as usize;
    // Held packets are counted in addition to the packets in devices and workers.
    let more = parked.saturating_add(memory::in_rings(&config.document));
    plan.buffers = plan.buffers.saturating_add(more).min(1 << 24).next_power_of_two() - 1;
    plan
}

/// Configure on all ports how cards distribute packets to shards, and which worker receives each shard.
pub fn steer(plan: &mut Plan, config: &Config, outlooks: &[Outlook], start_parameters: &StartParameters) {
    for (port, outlook) in plan.ports.iter_mut().zip(outlooks) {
        steer_one(port, config, outlook.interface, start_parameters);
    }
}

/// Configure the distribution over shards on the port of one interface.
pub fn steer_one(port: &mut PortPlan, config: &Config, interface: InterfaceIndex, start_parameters: &StartParameters) {
    let steering = &start_parameters.steering;
    port.hash_key = Some(steering.key(faces_outside(config, interface)).into());
    port.fallback_key = Some(steering.fallback_key().into());
    let queues = Outlook::new(interface, port.clone()).queues(config).max(1);
    port.table = table(start_parameters, queues);
}

/// Parameters of an interface's port; `None` if the interface has no device of its own.
pub fn port_plan(config: &Config, index: InterfaceIndex) -> Option<Result<PortPlan, Fault>> {
    port(config, index, config.interfaces.get(usize::from(index))?)
}

/// Receive queue of each shard: the queue of its owner. A different queue is used if the owner has no queue or only
/// assists with the shard.
pub fn table(start_parameters: &StartParameters, queues: u16) -> Vec<u16> {
    let workers = start_parameters
        .owners
        .iter()
        .max()
        .map_or(1, |last| usize::from(last) + 1);
    let receivers = start_parameters.stages.all(Part::Receive, workers);
    let queue = |(shard, owner): (u16, WorkerIndex)| {
        let is_home = start_parameters.stages.has_part(owner, Part::Session);
        let place = receivers.iter().position(|&receiver| is_home && receiver == owner);
        place.and_then(|place| u16::try_from(place).ok()).unwrap_or(shard) % queues.max(1)
    };
    (0..).zip(start_parameters.owners.iter()).map(queue).collect()
}

impl Outlook {
    /// Creates the description of a port with these parameters.
    pub fn new(interface: InterfaceIndex, plan: PortPlan) -> Self {
        Self {
            interface,
            choice: choose(&plan.device, plan.mtu, plan.queues, plan.driver),
            limits: limits(&plan.device, plan.mtu, plan.queues, plan.driver),
            cards: cards::cards(&plan.device),
            plan,
        }
    }

    /// Returns `false` if a known fault prevents the port from being opened.
    pub fn is_ready(&self) -> bool {
        !self.limits.iter().any(|limit| limit.fatal)
    }

    /// Number of receive queues. The number does not exceed the number of receiving workers.
    pub fn queues(&self, config: &Config) -> u16 {
        self.choice.queues.min(receivers(config))
    }

    /// Faults that prevent the port from being opened.
    pub fn faults(&self, config: &Config) -> Vec<Fault> {
        let name = config
            .interfaces
            .get(usize::from(self.interface))
            .map_or("", |interface| &interface.name);
        let fatal = self.limits.iter().filter(|limit| limit.fatal);
        let written = config.document.interfaces.get(name);
        let takes_device = written.is_some_and(|written| written.in_use == schema::InUse::Take);
        let used = (!takes_device).then(|| management::use_of(&self.plan.device)).flatten();
        let used = used.map(|description| Fault {
            key: key(name, "device"),
            description: format!("{name}: {description}"),
            hint: Some(
                "taking the device would end remote access to this machine: use another device, or write `in-use = \
                 \"take\"`"
                    .into(),
            ),
        });
        fatal
            .map(|limit| cards::device_fault(name, &limit.text))
            .chain(used)
            .collect()
    }
}

/// Number of receiving workers.
fn receivers(config: &Config) -> u16 {
    let workers = match config.stages[0].len() {
        0 => config.cores.len(),
        receivers => receivers,
    };
    u16::try_from(workers).unwrap_or(u16::MAX)
}

pub(crate) fn key(interface: &str, key: &str) -> Vec<String> {
    ["interfaces", interface, key].map(str::to_owned).to_vec()
}

fn port(config: &Config, index: InterfaceIndex, interface: &Interface) -> Option<Result<PortPlan, Fault>> {
    let (device, queues, from) = match &interface.link {
        Link::Device { device, queues } => (device.as_str().parse::<Device>(), *queues, "device"),
        Link::Bond { members, queues, .. } => {
            let members: Result<Vec<Device>, _> = members.iter().map(|member| member.as_str().parse()).collect();
            (members.map(|members| Device::Bond { members }), *queues, "bond")
        }
        Link::Vlan { .. } | Link::Virtual { .. } | Link::Tunnel(_) | Link::Removed => return None,
    };
    let device = match device {
        Ok(device) => device,
        Err(error) => {
            return Some(Err(Fault {
                key: key(&interface.name, from),
                description: error.to_string(),
                hint: None,
            }));
        }
    };
    let mut plan = PortPlan::new(&interface.name, device);
    // A card may fail, or be unbound after a kernel update. If a card fails, the process must start with the other
    // interfaces.
    plan.required = !is_card(&plan.device);
    let bridged = bridged_tags(config, index);
    let tags = bridged.max(site_tags(config, index)).unwrap_or(0);
    plan.mtu = interface.mtu + 4 * tags;
    // The card's own address filter does not accept frames to virtual MACs.
    plan.promiscuous = interface.bridge.is_some() || bridged.is_some() || virtual_macs(config, index);
    plan.interrupts = config.document.system.idle.interrupt;
    plan.queues = queues.unwrap_or(receivers(config));
    // Only cards filter by address. All other devices deliver every frame, and the engine checks the destination.
    let card = matches!(plan.device, Device::Pci(_) | Device::Bond { .. });
    plan.mac = interface.mac.filter(|_| card).map(|mac| mac.bytes());
    plan.steering = match config.document.system.steering {
        schema::Steering::FiveTuple => Steering::FiveTuple,
        schema::Steering::Subset if faces_outside(config, index) => Steering::Destination,
        schema::Steering::Subset => Steering::Source,
    };
    Some(Ok(plan))
}

/// Whether a device is a card or a bond of cards.
fn is_card(device: &Device) -> bool {
    match device {
        Device::Pci(_) => true,
        Device::Bond { members } => members.iter().all(is_card),
        _ => false,
    }
}

/// Whether an interface uses virtual MACs for sites.
fn virtual_macs(config: &Config, index: InterfaceIndex) -> bool {
    let subscribers = config.subscribers.as_ref();
    subscribers.is_some_and(|subscribers| {
        let mut clients = subscribers.public.iter().enumerate();
        clients.any(|(place, client)| client.interface == index && subscribers.clients(place) > 0)
    })
}

/// Maximum number of tags of the bridged VLANs of a device. `None` if the device has no bridged VLAN. Devices exclude
/// at most one tag from the MTU, and customers' frames may have a second tag.
fn bridged_tags(config: &Config, device: InterfaceIndex) -> Option<u16> {
    let bridged = config.interfaces.iter().filter(|interface| interface.bridge.is_some());
    let tags = bridged.filter_map(|interface| match &interface.link {
        Link::Vlan { parent, tags } if *parent == device => Some(1 + u16::from(tags.inner().is_some())),
        _ => None,
    });
    tags.max()
}

/// Maximum number of VLAN tags in frames of the sites on a device. `None` if the device carries no access interface of
/// sites.
fn site_tags(config: &Config, device: InterfaceIndex) -> Option<u16> {
    let rows = config.subscribers.iter().flat_map(|subscribers| &subscribers.rows);
    let tags = rows.filter(|row| row.interface == device).map(|row| match row.frames {
        SiteFrames::All | SiteFrames::Prefix(_) => 0,
        SiteFrames::Tag(_) => 1,
        SiteFrames::Tags(..) => 2,
    });
    tags.max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_config::memory::EntryBytes;
    use sluice_config::{Machine, Valid, check};

    fn config(text: &str) -> Valid<Config> {
        let machine = Machine {
            cores: vec![0, 1, 2],
            memory: 1 << 40,
            entry: EntryBytes::default(),
        };
        check("test", text, &machine).unwrap_or_else(|e| panic!("{e}")).config
    }

    #[test]
    fn ports_are_interfaces_with_devices() {
        let config = config(
            "[system]\nworkers = 2\n[interfaces.a]\ndevice = \"null:\"\nmtu = 2000\n[interfaces.v]\nparent = \"a\"\n\
             vlan = 7\n[interfaces.b]\ndevice = \"ring:r,end=a\"\nqueues = 1\nmac = \"02:00:00:00:00:01\"\n",
        );
        let ports = outlook(&config).unwrap();
        let found: Vec<_> = ports
            .iter()
            .map(|port| (port.interface, port.plan.queues, port.plan.mtu))
            .collect();
        assert_eq!(vec![(0, 2, 2000), (2, 1, 1500)], found);
        assert_eq!(None, ports[1].plan.mac);
    }

    #[test]
    fn device_that_carries_bridged_vlans_takes_all_frames_and_their_tags() {
        let config = config(
            "[interfaces]\na = { device = \"null:\" }\nb = { device = \"null:\" }\nc = { device = \"null:\" }\n\
             trunk = { device = \"null:\" }\nother = { device = \"null:\" }\nv = { parent = \"trunk\", vlan = \"100.1\" }\n\
             w = { parent = \"trunk\", vlan = 7 }\nx = { parent = \"other\", vlan = 7 }\n[bridges.one]\n\
             interfaces = [\"a\", \"v\"]\n[bridges.two]\ninterfaces = [\"b\", \"w\"]\n",
        );
        let ports = outlook(&config).unwrap();
        let found: Vec<_> = ports
            .iter()
            .map(|port| (port.plan.promiscuous, port.plan.mtu))
            .collect();
        let (bridged, routed) = ((true, 1500), (false, 1500));
        assert_eq!(vec![bridged, bridged, routed, (true, 1508), routed], found);
    }

    #[test]
    fn device_of_sites_has_room_for_their_tags_and_takes_frames_to_virtual_macs() {
        let config = config(
            "[interfaces]\naccess = { device = \"null:\", addresses = [\"10.0.0.1/16\"] }\n\
             outside = { device = \"null:\", addresses = [\"192.0.2.2/24\"] }\n\
             [subscribers.sites.homes]\ninterface = \"access\"\ntags = \"100.1-9\"\ndhcp = \"inside\"\n\
             public = \"outside\"\n[subscribers.dhcp.inside]\nserver = \"192.0.2.9\"\nleases = \"leases\"\n\
             format = \"kea\"\n[subscribers.public.outside]\nprefixes = [\"192.0.2.0/24\"]\n",
        );
        let ports = outlook(&config).unwrap();
        let found: Vec<_> = ports
            .iter()
            .map(|port| (port.plan.promiscuous, port.plan.mtu))
            .collect();
        assert_eq!(vec![(false, 1508), (true, 1500)], found);
    }

    #[test]
    fn device_with_a_wrong_option_is_a_fault_of_its_key() {
        let faults = outlook(&config("[interfaces.a]\ndevice = \"ring:r,ends=a\"\n")).unwrap_err();
        assert_eq!(vec!["interfaces", "a", "device"], faults[0].key);
        assert!(faults[0].description.contains("ends"));
    }

    #[test]
    fn device_that_is_not_there_is_a_fault_with_a_hint() {
        let config = config("[interfaces.a]\ndevice = \"no-such-device\"\n");
        let faults = outlook(&config).unwrap()[0].faults(&config);
        assert_eq!("a: there is no interface no-such-device", faults[0].description);
        assert_eq!(Some("`ip link` lists the interfaces".to_owned()), faults[0].hint);
    }
}
