mod finding;
mod leasing;
mod random;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use dhcproto::v4::{DhcpOption, Message, MessageType, Opcode, OptionCode};
use dhcproto::{Decodable as _, Encodable as _};
use sluice_config::memory::EntryBytes;
use sluice_config::{Machine, check};
use sluice_nat::Secret;
use sluice_nat::sites::{self, OtherSite, Terminal, TerminalsFull};
use sluice_wire::Context;
use sluice_wire::arp::{self, Arp};
use sluice_wire::ethernet::{self, BROADCAST};
use sluice_wire::vlan;

use super::*;
use crate::subscribers::agent::tests::server::Server;
use crate::subscribers::frame::{plain, tagged};
use crate::subscribers::leases::{Change, Expiry, Lease, Lost, RelayInformation};
use crate::subscribers::virtual_mac::VirtualMacs;

pub(crate) const TEXT: &str = r#"
[interfaces.access]
device = "null:"
addresses = ["10.0.0.1/16"]
[interfaces.flat]
device = "null:"
addresses = ["10.1.0.1/16"]
[interfaces.outside]
device = "null:"
addresses = ["203.0.0.1/16"]
[nat.pools.shared]
addresses = ["198.51.100.0/28"]
[subscribers.sites.homes]
interface = "access"
tags = "100-101.5-7"
dhcp = "inside"
public = "outside"
[subscribers.sites.shops]
interface = "access"
tags = "8-9"
dhcp = "inside"
pool = "shared"
[subscribers.sites.hall]
interface = "flat"
prefix = "10.1.7.0/24"
dhcp = "flat"
public = "outside"
[subscribers.dhcp.inside]
server = "192.0.2.10"
relay = "10.0.255.1"
leases = "/kea-leases4.csv"
format = "kea"
[subscribers.dhcp.flat]
server = "10.1.0.1"
relay = "10.1.255.1"
leases = "/dhcpd.leases"
format = "dhcpd"
[subscribers.public.outside]
prefixes = ["203.0.0.0/16"]
"#;

pub(crate) const ACCESS: u16 = 0;
const FLAT: u16 = 1;
pub(crate) const OUTSIDE: u16 = 2;
/// Indexes of the servers.
const INSIDE: usize = 0;
/// The first site with a pool.
const SHOP: Site = Site(6);
const HALL: Site = Site(8);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
const RELAY: Ipv4Addr = Ipv4Addr::new(10, 0, 255, 1);
const ROUTER_MAC: Mac = [2, 9, 9, 9, 9, 9];
const MILLISECOND: u64 = 1_000_000;
/// Unix time at which the tests' clock starts.
const START: u64 = 1_800_000_000;

/// A simple model of the workers' tables.
#[derive(Debug, Default)]
struct Entries {
    terminals: BTreeMap<(Context, u32), Terminal>,
    publics: BTreeMap<u32, (u16, u32)>,
    sites: BTreeMap<u32, (Option<Mac>, Option<u16>)>,
    most: usize,
    /// Number of calls that changed a terminal.
    changes: usize,
}

impl Mapping for Entries {
    fn set_site(&mut self, site: u32, mac: Option<Mac>, pool: Option<u16>) -> Result<(), OtherSite> {
        self.sites.insert(site, (mac, pool));
        Ok(())
    }

    fn clear_site(&mut self, site: u32) {
        self.sites.remove(&site);
        self.publics.remove(&site);
        self.terminals.retain(|(context, _), _| sites::site(*context) != site);
    }

    fn set_public(&mut self, site: u32, router: u16, address: Option<u32>) -> Result<(), OtherSite> {
        self.publics.remove(&site);
        let Some(address) = address else { return Ok(()) };
        let other = self.publics.iter().find(|(_, public)| **public == (router, address));
        if let Some((&other, _)) = other {
            return Err(OtherSite(other));
        }
        self.publics.insert(site, (router, address));
        Ok(())
    }

    fn add_terminal(&mut self, terminal: &Terminal) -> Result<(), TerminalsFull> {
        let key = (terminal.context, terminal.address);
        assert!(
            self.sites.contains_key(&sites::site(terminal.context)),
            "its site is known"
        );
        if self.terminals.get(&key) == Some(terminal) {
            return Ok(());
        }
        self.changes += 1;
        self.terminals.remove(&key);
        if self.terminals.len() >= self.most {
            return Err(TerminalsFull);
        }
        self.terminals.insert(key, *terminal);
        Ok(())
    }

    fn remove_terminal(&mut self, context: Context, address: u32) -> bool {
        self.changes += 1;
        self.terminals.remove(&(context, address)).is_some()
    }
}

pub(crate) fn parameters_of(text: &str) -> Arc<Parameters> {
    let machine = Machine {
        cores: vec![0],
        memory: 1 << 40,
        entry: EntryBytes::default(),
    };
    let checked = check("/gateway.toml", text, &machine).unwrap_or_else(|error| panic!("{error}"));
    let config = checked.config;
    let subscribers = config.subscribers.clone().expect("subscribers");
    let names: Vec<String> = (0..subscribers.sites()).map(|site| subscribers.name(site)).collect();
    let named: Vec<_> = names.iter().map(|name| (name.as_str(), None)).collect();
    let macs = VirtualMacs::new(Secret([1, 2]), &[]).expect("no prefix");
    let interface = |(number, interface): (u8, &sluice_config::config::Interface)| Interface {
        name: interface.name.clone(),
        mac: [2, 0, 0, 0, 1, number],
        router: interface.router,
        addresses: interface
            .addresses
            .iter()
            .filter_map(|net| match net.net() {
                ipnet::IpNet::V4(net) => Some(net),
                ipnet::IpNet::V6(_) => None,
            })
            .collect(),
        host: true,
    };
    Arc::new(Parameters {
        interfaces: (0..).zip(&config.interfaces).map(interface).collect(),
        macs: macs.assign(&named).expect("all have one"),
        pools: vec![7],
        secret: Secret([3, 4]),
        finder: Finder::new(&subscribers),
        subscribers,
    })
}

/// The service, an upstream DHCP server that replies immediately, and a virtual clock.
pub(crate) struct World {
    parameters: Arc<Parameters>,
    pub(crate) service: Service,
    entries: Entries,
    operator: Server,
    /// Changes the upstream server's replies.
    twist: Box<dyn FnMut(Message) -> Vec<Message>>,
    now: u64,
    /// Sent frames to which the upstream server has not replied.
    sent: Vec<Frame>,
    events: Vec<Event>,
    notes: Vec<Note>,
    next: Option<Nanoseconds>,
}

fn present(now: u64) -> Present {
    Present {
        now,
        unix: START + now / SECOND,
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::of(
            parameters_of(TEXT),
            Entries {
                most: 100,
                ..Entries::default()
            },
            SavedState::default(),
            0,
        )
    }

    fn of(parameters: Arc<Parameters>, mut entries: Entries, saved: SavedState, now: u64) -> Self {
        let mut out = ServiceOutput::default();
        let mut environment = Environment {
            present: present(now),
            mapping: &mut entries,
            out: &mut out,
        };
        let service = Service::new(parameters.clone(), saved, &mut environment);
        Self {
            parameters,
            service,
            entries,
            operator: Server::default(),
            twist: Box::new(|answer| vec![answer]),
            now,
            sent: Vec::new(),
            events: Vec::new(),
            notes: out.notes,
            next: None,
        }
    }

    /// Call a function of the service, and then perform all due work.
    fn environment<R>(&mut self, work: impl FnOnce(&mut Service, &mut Environment<'_>) -> R) -> R {
        let mut out = ServiceOutput::default();
        let mut environment = Environment {
            present: present(self.now),
            mapping: &mut self.entries,
            out: &mut out,
        };
        let result = work(&mut self.service, &mut environment);
        self.next = self.service.poll(&mut environment);
        self.notes.append(&mut out.notes);
        self.events.extend(out.events.into_iter().map(|(_, event)| event));
        for frame in out.frames {
            self.deliver(frame);
        }
        result
    }

    /// Pass DHCP messages to the upstream server, and its replies to the service.
    fn deliver(&mut self, frame: Frame) {
        let question =
            Datagram::of(&frame.bytes).filter(|_| (frame.interface, frame.delivery) == (OUTSIDE, Delivery::Unchanged));
        let Some(question) = question else {
            return self.sent.push(frame);
        };
        let message = Message::from_bytes(question.payload).expect("a message");
        let (mac, answer) = (question.source_mac, self.operator.answer(&message));
        self.sent.push(frame);
        for answer in answer
            .into_iter()
            .flat_map(|answer| (self.twist)(answer))
            .collect::<Vec<_>>()
        {
            let payload = answer.to_vec().expect("bytes");
            let datagram = Datagram {
                source_mac: ROUTER_MAC,
                destination_mac: mac,
                source: SocketAddrV4::new(self.operator.address, 67),
                destination: SocketAddrV4::new(answer.yiaddr(), 68),
                payload: &payload,
            };
            let frame = datagram.frame().expect("a frame");
            self.receive(OUTSIDE, &frame);
        }
    }

    fn receive(&mut self, interface: u16, frame: &[u8]) {
        self.environment(|service, environment| service.frame(interface, frame, environment));
    }

    fn change(&mut self, server: usize, change: &Change) {
        self.environment(|service, environment| service.change(server, change, environment));
    }

    pub(crate) fn gain(&mut self, lease: Lease) -> Arc<Lease> {
        let lease = Arc::new(lease);
        self.change(INSIDE, &Change::Gained(lease.clone()));
        lease
    }

    fn lose(&mut self, lease: &Arc<Lease>) {
        let (was, why) = (lease.clone(), Lost::Released);
        self.change(INSIDE, &Change::Lost { was, why });
    }

    /// Advance the clock.
    fn run(&mut self, time: u64) {
        let end = self.now + time;
        self.environment(|_, _| {});
        while let Some(next) = self.next.filter(|next| *next <= end) {
            assert!(next > self.now, "it comes back at {next} again and again");
            self.now = next;
            self.environment(|_, _| {});
        }
        self.now = end;
        self.environment(|_, _| {});
    }

    fn count(&self, count: Count) -> u64 {
        self.service.counts().of(count)
    }

    fn public(&self, site: Site) -> Option<Ipv4Addr> {
        let public = self.entries.publics.get(&site.0);
        public.map(|(_, address)| Ipv4Addr::from_bits(*address))
    }

    /// Sites in which this address is mapped, each with the last byte of the terminal's MAC.
    fn mapped(&self, address: Ipv4Addr) -> Vec<(u32, u8)> {
        let of = self.entries.terminals.iter();
        let of = of.filter(|((_, bits), _)| *bits == address.to_bits());
        of.map(|((context, _), terminal)| (sites::site(*context), terminal.mac[5]))
            .collect()
    }

    /// ARP messages that were sent upstream since the last call.
    fn arp(&mut self) -> Vec<(Mac, u32, u32)> {
        let sent = std::mem::take(&mut self.sent).into_iter();
        let bodies = sent.filter(|frame| frame.bytes[12..14] == [8, 6]);
        bodies
            .map(|frame| {
                assert_eq!(
                    (OUTSIDE, Delivery::Unchanged, &BROADCAST[..]),
                    (frame.interface, frame.delivery, &frame.bytes[..6])
                );
                let arp = Arp::new(&frame.bytes[ethernet::LENGTH..]).expect("a message");
                assert_eq!((true, arp::REQUEST), (arp.is_ipv4_over_ethernet(), arp.operation()));
                (arp.sender_mac(), arp.sender(), arp.target())
            })
            .collect()
    }

    /// Receive a frame in which an upstream host claims an address.
    fn claim(&mut self, address: Ipv4Addr, mac: Mac) {
        let frame = super::super::frame::announcement(mac, address);
        self.receive(OUTSIDE, &frame);
    }

    /// Check the invariants: the tables match the leases and the agent, and the counters match the state.
    fn check(&self) {
        let mut expected = BTreeMap::new();
        let mut terminals = BTreeMap::<u32, u32>::new();
        for view in self.service.leases((Site(0), Ipv4Addr::UNSPECIFIED)) {
            let site = view.site.expect("a site");
            let (_, group) = self.parameters.group_of(site).expect("a group");
            assert!(self.parameters.allows(group, view.lease.address), "{view:?}");
            let context = self.parameters.context(site, group);
            let terminal = Terminal {
                context,
                address: view.lease.address.to_bits(),
                mac: view.lease.hardware,
                interface: group.interface,
                tags: self.parameters.tags(site),
            };
            assert_eq!(None, expected.insert((context, terminal.address), terminal));
            *terminals.entry(site.0).or_default() += 1;
        }
        assert_eq!(expected, self.entries.terminals);
        let agent = self.service.agent(0).expect("a client");
        let publics: BTreeMap<u32, (u16, u32)> = agent
            .leases()
            .map(|(site, _, lease)| (site.0, (0, lease.address.to_bits())))
            .collect();
        assert_eq!(publics, self.entries.publics);
        let mut sites_of = BTreeMap::<Mac, BTreeSet<u32>>::new();
        for ((context, _), terminal) in &self.entries.terminals {
            sites_of.entry(terminal.mac).or_default().insert(sites::site(*context));
        }
        for site in (0..self.parameters.subscribers.sites()).map(Site) {
            let view = self.service.site(site).expect("a site");
            let count = terminals.get(&site.0).copied().unwrap_or(0);
            assert_eq!(count, view.terminals, "{site:?}");
            assert_eq!(self.public(site), view.public);
            let wanted = agent.state(site) != agent::State::Idle;
            assert!(
                count == 0 || view.mac.is_none() || wanted,
                "{site:?} has terminals, and asks for nothing"
            );
        }
        for view in self.service.leases((Site(0), Ipv4Addr::UNSPECIFIED)) {
            assert_eq!(sites_of[&view.lease.hardware].len() > 1, view.shares_mac, "{view:?}");
        }
    }
}

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 1, last)
}

fn hardware(terminal: u8) -> Mac {
    [2, 0, 0, 0, 0, terminal]
}

/// A lease with the circuit ID of a site.
pub(crate) fn lease(last: u8, terminal: u8, circuit: &str) -> Lease {
    Lease {
        address: address(last),
        hardware: hardware(terminal),
        client_id: None,
        renewed: START,
        expires: Expiry::At(START + 3_600),
        relay: Some(Box::new(RelayInformation {
            circuit: circuit.as_bytes().into(),
            remote: Box::default(),
        })),
        host_name: Some("kitchen".into()),
    }
}

/// A lease without relay information.
fn bare(last: u8, terminal: u8) -> Lease {
    Lease {
        relay: None,
        ..lease(last, terminal, "")
    }
}

/// A terminal's message, as a frame with the tags of its site.
pub(crate) fn request_frame(parameters: &Parameters, site: Site, terminal: u8, kind: MessageType) -> Vec<u8> {
    let none = Ipv4Addr::UNSPECIFIED;
    let mut message = Message::new_with_id(terminal.into(), none, none, none, none, &hardware(terminal));
    message.opts_mut().insert(DhcpOption::MessageType(kind));
    let payload = message.to_vec().expect("bytes");
    let datagram = Datagram {
        source_mac: hardware(terminal),
        destination_mac: BROADCAST,
        source: SocketAddrV4::new(none, 68),
        destination: SocketAddrV4::new(Ipv4Addr::BROADCAST, 67),
        payload: &payload,
    };
    tagged(datagram.frame().expect("a frame"), parameters.tags(site))
}

/// A server's reply to a relayed message, as a frame from a router.
pub(crate) fn answered(relayed: &[u8], kind: MessageType, address: Ipv4Addr) -> Vec<u8> {
    let question = Datagram::of(relayed).expect("a datagram");
    let mut message = Message::from_bytes(question.payload).expect("a message");
    let relay = message.opts().get(OptionCode::RelayAgentInformation).cloned();
    message.set_opcode(Opcode::BootReply).set_yiaddr(address);
    message.opts_mut().clear();
    message.opts_mut().insert(DhcpOption::MessageType(kind));
    message.opts_mut().insert(DhcpOption::AddressLeaseTime(600));
    message.opts_mut().insert(relay.expect("option 82"));
    let payload = message.to_vec().expect("bytes");
    let datagram = Datagram {
        source_mac: ROUTER_MAC,
        destination_mac: [2, 0, 0, 0, 1, OUTSIDE as u8],
        source: question.destination,
        destination: question.source,
        payload: &payload,
    };
    datagram.frame().expect("a frame")
}

impl World {
    /// Complete an exchange between a terminal and the server. Returns the frames to the terminal.
    fn acknowledge(&mut self, site: Site, terminal: u8, address: Ipv4Addr) -> Vec<Frame> {
        self.sent.clear();
        let frame = request_frame(&self.parameters, site, terminal, MessageType::Request);
        let (_, group) = self.parameters.group_of(site).expect("a group");
        let interface = group.interface;
        self.receive(interface, &frame);
        let relayed = self.sent.pop().expect("it is relayed");
        let answer = answered(&relayed.bytes, MessageType::Ack, address);
        self.sent.clear();
        self.receive(OUTSIDE, &answer);
        std::mem::take(&mut self.sent)
    }
}
